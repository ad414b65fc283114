//! The serial actor: the only caller of the core. It samples the clock, hands over one event, and carries out every
//! effect in order; what takes time runs in a task whose answer comes back as an event.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::endpoints::Endpoints;
use crate::api::{self, Health};
use crate::config::transport::Exposure;
use crate::core::node::{Answer, Effect, Event, Level, Node, OpId, Phase, Settings, Trouble};
use crate::core::types::BootMs;
use crate::error::{Error, Field, Result};
use crate::host::clock::{Clock, SystemClock};
use crate::mesh::Mesh;
use crate::registry::Registry;
use crate::state::{StateDir, fence};

/// Answers that wait for the actor. Three lanes with one request each, signals and endpoints: more never wait.
const QUEUE: usize = 64;

/// The longest sleep. Timers of the runtime stand still while the machine is suspended; the boot clock does not, so
/// after waking up it takes no longer than this to see what is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);

/// How long the API may take to finish its last answers.
const API_STOP_LIMIT: Duration = Duration::from_secs(2);

/// Everything that the actor works with.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) registry: Arc<Registry>,
    pub(super) exposure: Exposure,
    pub(super) api_port: u16,
    pub(super) mesh: Option<Arc<Mesh>>,
    pub(super) endpoints: Option<Endpoints>,
    pub(super) state: StateDir,
    pub(super) celld: String,
}

/// The actor at work.
pub(super) struct Actor {
    node: Node,
    registry: Arc<Registry>,
    exposure: Exposure,
    api_port: u16,
    mesh: Option<Arc<Mesh>>,
    endpoints: Option<Endpoints>,
    state: StateDir,
    refresh_interval: Duration,
    lease_limit: Duration,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    health: watch::Sender<Health>,
    stop: CancellationToken,
    api: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl Actor {
    pub(super) fn new(parts: Parts) -> Self {
        let (events, inbox) = mpsc::channel(QUEUE);
        let health = Health {
            id: parts.settings.id.to_string(),
            phase: Phase::Registering.to_string(),
            waiting: None,
            scafo: env!("CARGO_PKG_VERSION").to_owned(),
            celld: parts.celld,
        };
        Self {
            refresh_interval: Duration::from_millis(parts.settings.node_refresh_interval_ms),
            // Three fifths of a renewal's slot: one that hangs leaves time for another before the next is due.
            lease_limit: Duration::from_millis(parts.settings.lease.renew_ms * 3 / 5),
            node: Node::new(parts.settings),
            registry: parts.registry,
            exposure: parts.exposure,
            api_port: parts.api_port,
            mesh: parts.mesh,
            endpoints: parts.endpoints,
            state: parts.state,
            events,
            inbox,
            health: watch::Sender::new(health),
            stop: CancellationToken::new(),
            api: None,
        }
    }

    /// Runs until the node leaves. The error is why it had to.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut terminate = listen_for(SignalKind::terminate())?;
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        self.watch_machine();
        let mut event = Some(Event::Started);
        let ending = loop {
            if let Some(event) = event.take()
                && let Some(ending) = self.step(event)
            {
                break ending;
            }
            let sleep = tokio::time::sleep(self.sleep());
            event = tokio::select! {
                biased;
                _ = terminate.recv() => Some(Event::AskedToLeave),
                _ = interrupt.recv() => Some(Event::AskedToLeave),
                answered = self.inbox.recv() => answered,
                () = sleep => self.timer_event(),
            };
        };
        self.shut_down().await;
        ending.map_or(Ok(()), Err)
    }

    /// Hands one event to the core and carries out what it answers. `Some` once the node has left.
    fn step(&mut self, event: Event) -> Option<Option<Error>> {
        let effects = self.node.handle(SystemClock.now(), event);
        let mut ending = None;
        for effect in effects {
            if let Effect::Exit(error) = effect {
                ending = Some(error);
            } else {
                self.carry_out(effect);
            }
        }
        self.health.send_if_modified(|health| {
            let (phase, waiting) = (
                self.node.phase().to_string(),
                self.node.waiting().map(ToOwned::to_owned),
            );
            let changed = health.phase != phase || health.waiting != waiting;
            (health.phase, health.waiting) = (phase, waiting);
            changed
        });
        ending
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Registry(op, request) => {
                let registry = self.registry.clone();
                let limit = request.is_for_the_lease().then_some(self.lease_limit);
                self.answer_later(async move {
                    let (answer, samples) = match limit {
                        None => registry.answer(request).await,
                        Some(limit) => registry.answer_within(request, limit).await,
                    };
                    Event::Answered { op, answer, samples }
                });
            }
            Effect::OpenTunnel(op, address) => {
                let mesh = self.mesh.clone();
                self.answer_later(
                    async move { done(op, with(mesh, async |mesh: &Mesh| mesh.open(address).await).await) },
                );
            }
            Effect::SaveAddress(op, address) => {
                let saved = self.mesh.as_ref().map_or(Ok(()), |mesh| mesh.save_address(address));
                self.answer_later(async move { done(op, saved) });
            }
            Effect::Serve(op, address) => {
                let served = self.serve(address);
                self.answer_later(async move {
                    Event::Answered {
                        op,
                        answer: Answer::Serving(served),
                        samples: Vec::new(),
                    }
                });
            }
            Effect::SetPeers(peers) => {
                if let Some(mesh) = &self.mesh {
                    mesh.set_peers(peers);
                }
            }
            Effect::SaveFence(fence) => {
                if let Err(error) = fence::save(&self.state, fence) {
                    tracing::warn!(
                        "the fence {fence} is not remembered for the next boot: {}",
                        error.message
                    );
                }
            }
            Effect::Notice(notice) => match notice.level {
                Level::Info => tracing::info!("{}", notice.text),
                Level::Warn => tracing::warn!("{}", notice.text),
            },
            Effect::Exit(_) => {}
        }
    }

    fn answer_later(&self, answer: impl Future<Output = Event> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move {
            // Only an actor that is gone no longer listens.
            let _ = events.send(answer.await).await;
        });
    }

    /// Binds the API, reads its addresses back, and serves only where the transport allows it.
    fn serve(&mut self, address: IpAddr) -> Result<u16> {
        let bind = self.exposure.api_at(address, self.api_port);
        let interface = self.mesh.as_ref().map(|mesh| mesh.interface().to_owned());
        // With a mesh, once for what comes through the tunnel and once for this machine's own callers, which reach
        // their own tunnel address by the loopback device.
        let devices: Vec<&str> = interface
            .iter()
            .map(String::as_str)
            .flat_map(|interface| [interface, "lo"])
            .collect();
        let listeners = api::bind(bind, &devices).map_err(|error| not_bound(bind, &error))?;
        let bound: Vec<SocketAddr> = listeners
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .collect();
        self.exposure.check_bound(address, &bound)?;
        let port = bound.first().map_or(self.api_port, SocketAddr::port);
        let serving = api::serve(listeners, self.health.subscribe(), self.stop.clone());
        self.api = Some(tokio::spawn(serving));
        Ok(port)
    }

    /// Looks after what the machine may change behind the node's back: its addresses, and the tunnel's own interface.
    fn watch_machine(&self) {
        let (Some(mesh), Some(endpoints)) = (self.mesh.clone(), self.endpoints.clone()) else {
            return;
        };
        let (events, stop, interval) = (self.events.clone(), self.stop.clone(), self.refresh_interval);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(interval) => {}
                }
                mesh.mend().await;
                let current = endpoints.current().await;
                if !current.is_empty() && events.send(Event::EndpointsChanged(current)).await.is_err() {
                    return;
                }
            }
        });
    }

    fn sleep(&self) -> Duration {
        let now = SystemClock.now().boot;
        let until = |due: BootMs| Duration::from_millis(due.since(now));
        self.node.poll_timeout().map_or(LONGEST_SLEEP, until).min(LONGEST_SLEEP)
    }

    fn timer_event(&self) -> Option<Event> {
        let now = SystemClock.now().boot;
        self.node
            .poll_timeout()
            .filter(|due| *due <= now)
            .map(|_| Event::TimerDue)
    }

    async fn shut_down(mut self) {
        self.stop.cancel();
        if let Some(api) = self.api.take() {
            let _ = tokio::time::timeout(API_STOP_LIMIT, api).await;
        }
    }
}

async fn with(mesh: Option<Arc<Mesh>>, open: impl AsyncFnOnce(&Mesh) -> Result<()>) -> Result<()> {
    match mesh {
        Some(mesh) => open(&mesh).await,
        None => Err(Error::internal("a node without a mesh was asked to open its tunnel")),
    }
}

fn done(op: OpId, result: Result<()>) -> Event {
    Event::Answered {
        op,
        answer: Answer::Done(result.map_err(Trouble::Refused)),
        samples: Vec::new(),
    }
}

fn not_bound(bind: SocketAddr, error: &std::io::Error) -> Error {
    let field = Field::new("api.host", bind.ip());
    let port = Field::new("api.port", bind.port());
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::conflict(format!("something else listens on {bind}"))
            .field(port)
            .help(format!(
                "see who it is with: ss -ltnp 'sport = :{}'; or choose another port with --api-port",
                bind.port()
            )),
        std::io::ErrorKind::PermissionDenied => {
            Error::capability(format!("this process may not listen on {bind}: {error}"))
                .field(port)
                .help("choose a port above 1023 with --api-port, or grant CAP_NET_BIND_SERVICE")
        }
        _ => Error::invalid(format!("the API cannot listen on {bind}: {error}"))
            .field(field)
            .field(port)
            .help("choose an address of this host with --api-host"),
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::internal(format!("no signal can be waited for: {error}")))
}
