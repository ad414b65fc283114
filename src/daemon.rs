//! `scafo sail`: what is checked before anything is written or bound, then the actor. The only place that wires
//! everything.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use crate::bucket;
use crate::config::Config;
use crate::config::transport::{self, Exposure, TunnelFacts};
use crate::core::node::{Settings, TunnelSettings};
use crate::core::records::{PublicKeyText, Versions};
use crate::core::types::Transport;
use crate::error::Result;
use crate::host::clock::SystemClock;
use crate::host::{addresses, random};
use crate::mesh::Mesh;
use crate::registry::Registry;
use crate::runtime::version_probe;
use crate::state::StateDir;
use crate::state::identity::NodeIdentity;
use crate::state::tunnel::TunnelState;

mod actor;
mod endpoints;

/// How long `celld --version` may take (design, section 9).
const CELLD_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
