//! A running node: binds, reads the pointer, takes its lease, serves, and ends.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::args::Settings;
use crate::bucket::Bucket;
use crate::deploy::{self, Deployment};
use crate::faults::Faults;
use crate::lease::{Lease, Renewal};
use crate::listeners;
use crate::shutdown::{self, End, Signals};
use crate::writes::Writes;

/// Exit code of a node that lost its authority.
const FENCED: u8 = 3;

/// How long answers under way may still take after the seal.
const LAST_ANSWERS: Duration = Duration::from_millis(50);

/// What the listeners and the background tasks share.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) id: String,
    pub(crate) bucket: Bucket,
    pub(crate) lease: Lease,
    pub(crate) faults: Faults,
    deployment: Mutex<Deployment>,
    writes: Mutex<Writes>,
    draining: AtomicBool,
    under_way: AtomicUsize,
    ends: UnboundedSender<End>,
}

/// Counts a request for as long as it lives.
pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    pub(crate) fn deployment(&self) -> Deployment {
        held(&self.deployment).clone()
    }

    pub(crate) fn writes(&self) -> MutexGuard<'_, Writes> {
        held(&self.writes)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self, end: End) {
        // The receiver lives until the process ends.
        let _ = self.ends.send(end);
    }

    pub(crate) fn begin_request(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    pub(crate) fn requests_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Reads the pointer again. On failure the old deployment goes on serving.
    pub(crate) async fn reload(&self) -> Result<Deployment, String> {
        if self.faults.is_on("reload-fails") {
            return Err("the build failed: the fault `reload-fails` is on".into());
        }
        let new = deploy::current(&self.bucket).await?;
        let old = std::mem::replace(&mut *held(&self.deployment), new.clone());
        if old != new {
            println!("deployment {} replaces {}", new.version, old.version);
        }
        Ok(new)
    }
}

/// A panic elsewhere does not make what it held unreadable here: each value is whole at every moment.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a node to its end and returns the exit code.
pub(crate) async fn run(settings: Settings, faults: Faults) -> Result<u8, String> {
    println!(
        "celld-standin: a stand-in for celld {}; it runs no Workers",
        settings.version
    );
    if let Some(code) = faults.number("exit-at-start", 1) {
        eprintln!("the fault `exit-at-start` is on");
        return Ok(u8::try_from(code).unwrap_or(1));
    }
    let writes = Writes::open(&settings.state)?;
    let public = bind(settings.listen)?;
    let internal = bind(settings.internal)?;
    let internal_address = internal.local_addr().map_err(|error| error.to_string())?;
    let public_address = public.local_addr().map_err(|error| error.to_string())?;
    let advertise = settings
        .advertise
        .clone()
        .unwrap_or_else(|| internal_address.to_string());

    let bucket = Bucket::open(&settings.location)?;
    let deployment = deploy::current(&bucket).await?;
    if let Some(delay) = faults.number("start-delay-ms", 0) {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let incarnation = random_hex()?;
    let id = settings.node.clone().unwrap_or_else(|| format!("node_{incarnation}"));
    let ttl_ms = u64::try_from(settings.ttl.as_millis()).unwrap_or(u64::MAX);
    let lease = Lease::take(&bucket, &id, &advertise, &incarnation, ttl_ms).await?;

    let mut signals = Signals::listen()?;
    println!(
        "celld listening on {public_address} (ownership={})",
        settings.location.url.scheme()
    );
    println!("celld internal listening on {internal_address} (advertise={advertise})");

    let (ends, mut requests) = unbounded_channel();
    let node = Arc::new(Node {
        settings,
        id,
        bucket,
        lease,
        faults: faults.clone(),
        deployment: Mutex::new(deployment),
        writes: Mutex::new(writes),
        draining: AtomicBool::new(false),
        under_way: AtomicUsize::new(0),
        ends,
    });
    tokio::spawn(listeners::serve(public, Arc::clone(&node), listeners::Side::Public));
    tokio::spawn(listeners::serve(internal, Arc::clone(&node), listeners::Side::Internal));
    tokio::spawn(keep_lease(Arc::clone(&node)));
    tokio::spawn(follow_pointer(Arc::clone(&node)));

    match shutdown::asked(&mut signals, &mut requests, &faults).await {
        End::Fence(reason) => Ok(fenced(&reason)),
        End::Stop => {
            node.draining.store(true, Ordering::Relaxed);
            println!("draining");
            // A lease that is lost during the drain ends it.
            let lost = async {
                loop {
                    if let Some(End::Fence(reason)) = requests.recv().await {
                        break reason;
                    }
                }
            };
            tokio::select! {
                reason = lost => Ok(fenced(&reason)),
                () = shutdown::drain(&node, &faults) => {
                    tokio::time::sleep(LAST_ANSWERS).await;
                    Ok(0)
                }
            }
        }
    }
}

fn fenced(reason: &str) -> u8 {
    println!("SELF-FENCE: {reason}");
    eprintln!("SELF-FENCE: {reason}");
    FENCED
}

/// With SO_REUSEADDR, so that a restart is not held up by connections of the process before it.
fn bind(address: std::net::SocketAddr) -> Result<TcpListener, String> {
    let bound = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(4096)
    };
    bound().map_err(|error: std::io::Error| format!("cannot listen on {address}: {error}"))
}

/// Renews every third of a TTL; fences when the record is somebody else's or a whole TTL passed without a renewal.
async fn keep_lease(node: Arc<Node>) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(node.settings.ttl / 3).await;
        let began = Instant::now();
        // A store that answers nobody must not keep the lease alive past its end.
        let left = node.settings.ttl.saturating_sub(renewed.elapsed());
        let renewal = tokio::time::timeout(left, node.lease.renew(&node.bucket)).await;
        match renewal.unwrap_or_else(|_| Err("the store does not answer".into())) {
            Ok(Renewal::Renewed) => renewed = began,
            Ok(Renewal::Replaced) => {
                return node.end(End::Fence(format!("lease of {} replaced by another process", node.id)));
            }
            Err(error) => eprintln!("lease renewal failed: {error}"),
        }
        if renewed.elapsed() >= node.settings.ttl {
            return node.end(End::Fence(format!("lease of {} expired", node.id)));
        }
    }
}

async fn follow_pointer(node: Arc<Node>) {
    loop {
        tokio::time::sleep(node.settings.deploy_poll).await;
        if let Err(error) = node.reload().await {
            eprintln!("deployment not read: {error}");
        }
    }
}

fn random_hex() -> Result<String, String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
