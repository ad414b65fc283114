//! How the process ends: what asks for it, the bounded drain, and the seal.

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
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

/// Waits for the first reason to end.
pub(crate) async fn asked(requests: &mut UnboundedReceiver<End>, faults: &Faults) -> Result<End, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
    let (mut term, mut int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    loop {
        let end = tokio::select! {
            _ = term.recv() => End::Stop,
            _ = int.recv() => End::Stop,
            Some(end) = requests.recv() => end,
            () = tokio::time::sleep(POLL) => {
                if faults.is_on("fence") {
                    return Ok(End::Fence("the fault `fence` is on".into()));
                }
                continue;
            }
        };
        if end == End::Stop && faults.is_on("ignore-term") {
            continue;
        }
        return Ok(end);
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
