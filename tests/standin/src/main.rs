//! `celld-standin`: a stand-in for celld that keeps its public contract, for Scafo's tests and for trying Scafo out.
//!
//! It is not celld. It runs no Workers; where celld would hand a request to one, it answers with JSON that names the
//! node, the application and the deployment. Every HTTP answer carries the header `x-celld-standin: 1`, every JSON body
//! `"standin": true`, and the log says so at the start. `--version` alone prints what celld would, so that whoever reads
//! it can be tested.
//!
//! # What it keeps of the contract
//! Flags and environment (a flag wins), the refusals of bad ones, the version line, the two listeners, the health path,
//! `/state`, `/reload` and `/shutdown`, the node's lease object, signals, the bounded drain, exit codes 0, 1 and 3, the
//! lines `SELF-FENCE:` and `node-log close: sealed epoch N`, and `deploy` with the objects it writes.
//!
//! # What it adds
//! - `dir:/PATH` as a bucket: a plain directory, an object's key being its path below it.
//! - `PUT /kv/KEY` on the public listener, acknowledged once the state directory has it on disk; `GET /kv/KEY` reads it
//!   back. So a test can see whether acknowledged writes survive a restart or a move.
//! - `POST /standin/fence` and `POST /standin/crash` on the internal listener: exit 3 as after a lost lease, and SIGABRT.
//! - It locks its state directory and exits with 1 when another process has it. celld does not, but two processes on
//!   one directory are a supervisor's bug, and this makes it loud.
//!
//! # Which version it is
//! 0.6.2, unless the file `BINARY.version` beside the binary (as it was called, symbolic links not followed) holds
//! another, or the binary is called `celld-VERSION`. Versions before 0.6 take the settings that 0.6 refuses.
//!
//! # Faults on demand
//! A file of one of these names in the folder `BINARY.faults/` beside the binary or in `.standin/` in the state
//! directory (`CELLD_WATCH`) switches a fault on; its content is the parameter. They are looked at when they matter, so
//! they work on a running process.
//!
//! | file | what happens |
//! | --- | --- |
//! | `hang-version` | `--version` never answers (beside the binary only) |
//! | `exit-at-start` | exits at once with the code in the file, default 1 |
//! | `start-delay-ms` | waits before it takes its lease and says that it listens |
//! | `unhealthy` | health stays 503 while the file is there |
//! | `drain-ms` | the drain takes this long, or until `CELLD_SHUTDOWN_TOTAL_MS` |
//! | `ignore-term` | SIGTERM, SIGINT and `POST /shutdown` change nothing |
//! | `no-seal` | stops without the line about the sealed epoch, lease left open |
//! | `reload-fails` | `POST /reload` reports a failed build and keeps the old deployment |
//! | `fence` | exits with 3 within 50 ms of the file's appearance, and again at each start while it is there |

mod args;
mod bucket;
mod deploy;
mod faults;
mod launch;
mod lease;
mod listeners;
mod node;
mod refuse;
mod shutdown;
mod writes;

use std::process::ExitCode;

use crate::args::Action;
use crate::launch::Launch;

fn main() -> ExitCode {
    let launch = Launch::from_process();
    match act(&launch) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("Error: {fault} (celld-standin)");
            ExitCode::from(1)
        }
    }
}

fn act(launch: &Launch) -> Result<u8, String> {
    // Before the arguments, as celld does: a bad variable makes even `--version` fail.
    refuse::environment(&launch.version, &launch.environment)?;
    match args::parse(launch)? {
        Action::Help => {
            println!("{}", args::HELP);
            Ok(0)
        }
        Action::Version => {
            while launch.faults(None).is_on("hang-version") {
                std::thread::sleep(faults::POLL);
            }
            println!("celld {}", launch.version);
            Ok(0)
        }
        Action::Deploy(request) => runtime()?.block_on(deploy::deploy(&request)),
        Action::Run(settings) => {
            let faults = launch.faults(Some(&settings.state));
            runtime()?.block_on(node::run(*settings, faults))
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))
}
