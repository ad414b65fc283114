//! The node as one state machine: registration, beats, the fleet's records, the mesh's peers, and leaving.
//!
//! Events go in with the time, effects come out; nothing else moves the state. Three lanes keep at most one request each
//! in flight: the node's *own* records (registration, beats, drain), the *view* of everybody else's, and the *hint*. An
//! answer names the request that it answers, so a late one meets nothing and changes nothing.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::backoff::{Backoff, Jitter};
use super::fleet_time::{FleetTime, Sample};
use super::lease::{Lease, Timing};
use super::peers::Peers;
use super::records::{Fleet, Held, Key, NodeRecord, PublicKeyText, Record, Versions};
use super::types::{BootMs, Id, Labels, Now, Transport};
use crate::error::Error;

mod coordinate;
mod live;
mod reap;
mod register;
#[cfg(test)]
mod tests;
mod watch;

/// How long leaving may take to say so in the bucket, in milliseconds (design, section 9).
const DRAIN_LIMIT_MS: u64 = 5_000;

/// The first and the longest delay between tries of a request that the bucket did not answer.
const RETRY_MS: (u64, u64) = (500, 15_000);

/// What the node is, decided before the state machine starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's id.
    pub id: Id,
    /// Its Ed25519 key.
    pub public_key: PublicKeyText,
    /// Fresh for each start of the daemon.
    pub boot_id: String,
    /// By what network it is reached.
    pub transport: Transport,
    /// What it registers; the first candidate when the tunnel address is not final yet.
    pub address: IpAddr,
    /// The port of its API, once bound. 0 until then.
    pub api_port: u16,
    /// What selectors match.
    pub labels: Labels,
    /// What this daemon started as.
    pub versions: Versions,
    /// The tunnel, on a mesh node.
    pub tunnel: Option<TunnelSettings>,
    /// `registry.heartbeatIntervalMs`.
    pub heartbeat_interval_ms: u64,
    /// `registry.livenessWindowMs`.
    pub liveness_window_ms: u64,
    /// `registry.nodeRefreshIntervalMs`.
    pub node_refresh_interval_ms: u64,
    /// `registry.hintPollIntervalMs`.
    pub hint_poll_interval_ms: u64,
    /// `coordinator.leaseTtlMs` and `coordinator.renewIntervalMs`.
    pub lease: Timing,
    /// The highest fence that an earlier boot saw.
    pub highest_fence: u64,
    /// Seed of the jitter.
    pub seed: u64,
}

/// The tunnel as `scafo wg init` left it.
#[derive(Clone, Debug)]
pub struct TunnelSettings {
    /// Its X25519 public key, as bytes; candidates of a derived address follow from it.
    pub key: [u8; 32],
    /// The same as text.
    pub key_text: PublicKeyText,
    /// The mesh network.
    pub network: IpNet,
    /// Whether the operator chose the address; a taken one is then a conflict rather than a reason to move on.
    pub stated: bool,
    /// Whether an earlier boot claimed the address; the mesh then comes up before the bucket answers.
    pub claimed: bool,
    /// Underlay endpoints to publish.
    pub endpoints: Vec<String>,
    /// The last known peers.
    pub cached_peers: Peers,
}

/// Names one request, so that its answer finds it and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// What happened.
#[expect(clippy::large_enum_variant, reason = "a handful exist at a time, each for a moment")]
#[derive(Clone, Debug)]
pub enum Event {
    /// The daemon is ready to carry out effects.
    Started,
    /// [`Node::poll_timeout`] has come.
    TimerDue,
    /// A request was answered. `samples` are the store's dates seen on the way.
    Answered {
        /// Which request.
        op: OpId,
        /// What came of it.
        answer: Answer,
        /// The store's clock, as seen meanwhile.
        samples: Vec<Sample>,
    },
    /// The addresses that peers may reach this node at have changed.
    EndpointsChanged(Vec<String>),
    /// SIGTERM or SIGINT. The second one skips the waits.
    AskedToLeave,
}

/// What should happen.
#[expect(clippy::large_enum_variant, reason = "a handful exist at a time, each for a moment")]
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the registry; answered by [`Event::Answered`].
    Registry(OpId, Request),
    /// Give the tunnel its address and install the guard; answered by [`Answer::Done`].
    OpenTunnel(OpId, IpAddr),
    /// Remember on disk that this address is claimed; answered by [`Answer::Done`].
    SaveAddress(OpId, IpAddr),
    /// Bind the API and read its listening addresses back; answered by [`Answer::Serving`].
    Serve(OpId, IpAddr),
    /// The mesh's peers are these now.
    SetPeers(Peers),
    /// Remember on disk that this fence was seen.
    SaveFence(u64),
    /// Something that an operator cares about.
    Notice(Notice),
    /// Stop everything. An error is what the process reports.
    Exit(Option<Error>),
}

/// A request to the registry.
#[expect(clippy::large_enum_variant, reason = "a handful exist at a time, each for a moment")]
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Does the store keep its contract? Answered by [`Answer::Done`].
    Probe,
    /// Read one record. Answered by [`Answer::Read`].
    Read(Key),
    /// Write a record where there is none. Answered by [`Answer::Wrote`].
    Create(Key, Record),
    /// Write over this version of a record, keeping fields that this build does not know. Answered by
    /// [`Answer::Wrote`].
    Replace(Key, Held, Record),
    /// Remove a record, whatever its version. Answered by [`Answer::Done`].
    Remove(Key),
    /// Read everybody's records. Answered by [`Answer::Refreshed`].
    Refresh,
    /// Has the hint moved since this version? Answered by [`Answer::Hinted`].
    PollHint,
    /// Tell the others that something changed; best effort. Answered by [`Answer::Hinted`].
    WriteHint(&'static str),
}

impl Request {
    /// Whether this is about the lease: worth less the longer it takes, so it is given up on soon.
    pub fn is_for_the_lease(&self) -> bool {
        matches!(
            self,
            Self::Read(Key::Lease) | Self::Create(Key::Lease, _) | Self::Replace(Key::Lease, ..)
        )
    }
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A record, or that there is none.
    Read(Result<Option<Held>, Trouble>),
    /// How a write ended.
    Wrote(Wrote),
    /// Everybody's records.
    Refreshed(Result<Fleet, Trouble>),
    /// Whether the hint moved since the last time this node looked.
    Hinted(Result<bool, Trouble>),
    /// The API listens on this port.
    Serving(Result<u16, Error>),
    /// Done, or not.
    Done(Result<(), Trouble>),
}

/// How a write ended, once every doubt was resolved by reading back.
#[derive(Clone, Debug)]
pub enum Wrote {
    /// It is written.
    Applied(Held),
    /// It is not written, and never will be: this stands there instead.
    Lost(Option<Held>),
    /// Nobody knows yet, or nothing was written.
    Trouble(Trouble),
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Try again later.
    Transient(String),
    /// Trying again changes nothing until somebody mends what the error names.
    Refused(Error),
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something changed that an operator wants to know.
    Info,
    /// Something is not as it should be.
    Warn,
}

/// One line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub text: String,
}

/// How far the node has come, for `/v1/health` and the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not registered yet.
    Registering,
    /// Registered and beating.
    Live,
    /// Leaving.
    Draining,
    /// Nothing more will happen.
    Stopped,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registering => "registering",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        })
    }
}

/// The node's state. Drive it so: hand it an [`Event`], carry out every [`Effect`] in order, wait until
/// [`poll_timeout`](Node::poll_timeout) or the next event.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    phase: Phase,
    milestones: register::Milestones,
    own: Lane<register::Doing>,
    view: Lane<()>,
    hint: Lane<watch::Hinting>,
    retry: Backoff,
    next_op: u64,
    jitter: Jitter,
    time: FleetTime,
    /// The node record as the bucket has it.
    record: Option<Held>,
    beat_at: BootMs,
    watch: watch::Watch,
    coordinator: coordinate::Coordinator,
    reaper: reap::Reaper,
    leaving: Option<live::Leaving>,
    waiting: Option<String>,
    skew_warned: bool,
}

/// One request at a time, and when the next may go out.
#[derive(Debug)]
struct Lane<T> {
    pending: Option<(OpId, T)>,
    not_before: BootMs,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            pending: None,
            not_before: BootMs(0),
        }
    }
}

impl<T> Lane<T> {
    fn take(&mut self, op: OpId) -> Option<T> {
        self.pending
            .take_if(|(pending, _)| *pending == op)
            .map(|(_, doing)| doing)
    }

    fn is_free(&self, now: BootMs) -> bool {
        self.pending.is_none() && self.not_before <= now
    }

    /// When the lane can do something again by itself.
    fn due(&self, at: BootMs) -> Option<BootMs> {
        self.pending.is_none().then(|| at.max(self.not_before))
    }
}

impl Node {
    /// A node that has done nothing yet.
    pub fn new(settings: Settings) -> Self {
        let jitter = Jitter::new(settings.seed);
        let milestones = register::Milestones::new(&settings);
        let peers = settings
            .tunnel
            .as_ref()
            .map(|tunnel| tunnel.cached_peers.clone())
            .unwrap_or_default();
        let (id, boot_id) = (settings.id.clone(), settings.boot_id.clone());
        let lease = Lease::new(id, boot_id, settings.lease, settings.highest_fence);
        Self {
            settings,
            phase: Phase::Registering,
            milestones,
            own: Lane::default(),
            view: Lane::default(),
            hint: Lane::default(),
            retry: Backoff::new(RETRY_MS.0, RETRY_MS.1),
            next_op: 0,
            jitter,
            time: FleetTime::default(),
            record: None,
            beat_at: BootMs(0),
            watch: watch::Watch::new(peers),
            coordinator: coordinate::Coordinator::new(lease),
            reaper: reap::Reaper::default(),
            leaving: None,
            waiting: None,
            skew_warned: false,
        }
    }

    /// How far the node has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What the node waits for, in words, while it does.
    pub fn waiting(&self) -> Option<&str> {
        self.waiting.as_deref()
    }

    /// Takes an event and says what should happen.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.phase == Phase::Stopped {
            return effects;
        }
        match event {
            Event::Started | Event::TimerDue => {}
            Event::Answered { op, answer, samples } => {
                samples.into_iter().for_each(|sample| self.time.observe(sample));
                self.warn_of_skew(now, &mut effects);
                self.on_answer(now, op, answer, &mut effects);
            }
            Event::EndpointsChanged(endpoints) => self.on_endpoints(endpoints, &mut effects),
            Event::AskedToLeave => self.on_asked_to_leave(now, &mut effects),
        }
        self.advance(now, &mut effects);
        effects
    }

    /// When [`Event::TimerDue`] is wanted; `None` while only an answer can move things.
    pub fn poll_timeout(&self) -> Option<BootMs> {
        let own = match self.phase {
            Phase::Stopped => return None,
            Phase::Registering => self.own.due(BootMs(0)),
            Phase::Live if self.milestones.all() => self.own.due(self.beat_at),
            Phase::Live => self.own.due(BootMs(0)),
            Phase::Draining => {
                let deadline = self.leaving.as_ref().map(|leaving| leaving.deadline);
                let saying = self.own.due(BootMs(0)).filter(|_| self.is_saying());
                [deadline, saying].into_iter().flatten().min()
            }
        };
        let watching = self.watching();
        let view = self.view.due(self.watch.refresh_at).filter(|_| watching);
        let hint = self
            .hint
            .due(self.watch.poll_at)
            .filter(|_| watching && self.phase == Phase::Live);
        let lease = self.coordinator.due().filter(|_| self.phase == Phase::Live);
        let reap = self
            .reaper
            .due()
            .filter(|_| self.phase == Phase::Live && self.coordinator.was_holder());
        [own, view, hint, lease, reap].into_iter().flatten().min()
    }

    fn on_answer(&mut self, now: Now, op: OpId, answer: Answer, effects: &mut Vec<Effect>) {
        if let Some(doing) = self.own.take(op) {
            self.on_own(now, doing, answer, effects);
        } else if let Some(()) = self.view.take(op) {
            self.on_view(now, answer, effects);
        } else if let Some(hinting) = self.hint.take(op) {
            self.on_hint(now, hinting, answer);
        } else if self.coordinator.take(op) {
            self.on_lease(now, answer, effects);
        } else if let Some(reaping) = self.reaper.take(op) {
            self.on_reaping(now, reaping, answer, effects);
        }
    }

    /// Starts whatever is due and can be started.
    fn advance(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Stopped => return,
            Phase::Draining => return self.advance_leaving(now, effects),
            Phase::Registering | Phase::Live => {}
        }
        if self.own.is_free(now.boot) {
            self.advance_own(now, effects);
        }
        if self.phase != Phase::Stopped {
            self.advance_watch(now, effects);
        }
        if self.phase != Phase::Stopped {
            self.advance_coordinator(now, effects);
            self.advance_reaper(now, effects);
        }
    }

    fn op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    fn ask_own(&mut self, doing: register::Doing, request: Request, effects: &mut Vec<Effect>) {
        let op = self.op();
        self.own.pending = Some((op, doing));
        effects.push(Effect::Registry(op, request));
    }

    /// Puts the own lane off after trouble, and says once what is being waited for.
    fn put_off(&mut self, now: Now, trouble: String, effects: &mut Vec<Effect>) {
        self.own.not_before = now.boot.plus(self.retry.next_ms(&mut self.jitter));
        if self.waiting.as_ref() != Some(&trouble) {
            effects.push(warn(format!("waiting for the bucket: {trouble}")));
            self.waiting = Some(trouble);
        }
    }

    /// The own lane got an answer: the bucket is there.
    fn answered(&mut self, effects: &mut Vec<Effect>) {
        self.retry.reset();
        if self.waiting.take().is_some() {
            effects.push(info("the bucket answers again"));
        }
    }

    fn exit(&mut self, error: Option<Error>, effects: &mut Vec<Effect>) {
        self.phase = Phase::Stopped;
        effects.push(Effect::Exit(error));
    }

    fn warn_of_skew(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(skew) = self.time.skew_ms(now) else { return };
        let off = skew.unsigned_abs() > super::fleet_time::SKEW_WARNING_MS;
        if off && !self.skew_warned {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            effects.push(warn(format!(
                "this machine's clock is {} s {side} the bucket's; stamps follow the bucket's, but set the clock (chronyd or systemd-timesyncd)",
                skew.unsigned_abs() / 1_000
            )));
        }
        self.skew_warned = off;
    }

    fn own_record(&self) -> Option<&NodeRecord> {
        match self.record.as_ref().map(|held| &held.record) {
            Some(Record::Node(record)) => Some(record),
            _ => None,
        }
    }
}

fn info(text: impl Into<String>) -> Effect {
    Effect::Notice(Notice {
        level: Level::Info,
        text: text.into(),
    })
}

fn warn(text: impl Into<String>) -> Effect {
    Effect::Notice(Notice {
        level: Level::Warn,
        text: text.into(),
    })
}
