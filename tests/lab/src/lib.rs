//! What whole-program tests of Scafo stand on: machines in network namespaces, celld binaries of every kind, and waiting
//! with a limit.
//!
//! Everything is blocking and panics on failure with the text that explains it, since a test has nobody to report an
//! error to. Everything that a test made is gone when its values are dropped, also when it panics.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use scafo_lab::celld;
//! use scafo_lab::machines::{Cut, Lab};
//! use scafo_lab::node::Node;
//! use scafo_lab::wait::eventually;
//!
//! let lab = Lab::new();
//! let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
//! let celld = celld::standin(lab.folder(), "0.6.2");
//! let node = |machine| {
//!     Node::new(machine, "/path/to/scafo").env("SCAFO_BUCKET", lab.dir_bucket()).env("SCAFO_RUNTIME_BINARY", celld.display())
//! };
//! let (a, b) = (node(&a), node(&b));
//! a.wg_init(&[]).ok();
//! b.wg_init(&[]).ok();
//! let (first, _second) = (a.sail(&[]), b.sail(&[]));
//! eventually(Duration::from_secs(20), "both nodes are live", || (a.fleet_nodes()?["live"] == 2).then_some(()));
//! b.machine.cut(Cut::Everything);
//! first.terminate();
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness panics where a test fails"
)]

pub mod badstore;
pub mod celld;
pub mod machines;
pub mod node;
pub mod proxy;
mod serve;
pub mod store;
pub mod wait;
