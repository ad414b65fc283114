//! How the process ends: what asks for it, the bounded drain, and the seal.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::faults::{Faults, POLL};
use crate::node::Node;

/// How long the seal may take when the drain used up the total.
const SEAL_LEAST: Duration = Duration::from_secs(1);

/// What ends the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM, SIGINT or `POST /shutdown`: drain, then exit 0.
    Stop,
    /// The lease is lost: exit 3 at once, with the reason.
    Fence(String),
}

/// SIGTERM and SIGINT. Listened for before the process says that it serves: whoever reads that may stop it at once.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
        })
    }
}

/// Waits for the first reason to end.
pub(crate) async fn asked(signals: &mut Signals, requests: &mut UnboundedReceiver<End>, faults: &Faults) -> End {
    loop {
        let end = tokio::select! {
            _ = signals.term.recv() => End::Stop,
            _ = signals.int.recv() => End::Stop,
            Some(end) = requests.recv() => end,
            () = tokio::time::sleep(POLL) => {
                if faults.is_on("fence") {
                    return End::Fence("the fault `fence` is on".into());
                }
                continue;
            }
        };
        if end == End::Stop && faults.is_on("ignore-term") {
            continue;
        }
        return end;
    }
}

/// Lets requests that are under way finish, within the total; then seals. A second signal is not read.
pub(crate) async fn drain(node: &Node, faults: &Faults) {
    let began = Instant::now();
    let total = node.settings.shutdown_total;
    let least = Duration::from_millis(faults.number("drain-ms", 0).unwrap_or(0));
    while began.elapsed() < total && (began.elapsed() < least || node.requests_under_way() > 0) {
        let left = total.saturating_sub(began.elapsed());
        tokio::time::sleep(left.min(Duration::from_millis(10))).await;
    }
    if faults.is_on("no-seal") {
        return;
    }
    let left = total.saturating_sub(began.elapsed()).max(SEAL_LEAST);
    let sealed = tokio::time::timeout(left, node.lease.seal(&node.bucket)).await;
    match sealed.unwrap_or_else(|_| Err("the store does not answer".into())) {
        Ok(()) => eprintln!("node-log close: sealed epoch {}", node.lease.epoch),
        Err(error) => eprintln!("node-log close: not sealed: {error}"),
    }
}
