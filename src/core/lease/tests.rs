//! Tenures by hand, and fleets of candidates on a store that loses, delays and ghosts, over many seeds.

use proptest::prelude::*;

use super::*;

const FULL: Timing = Timing {
    ttl_ms: 90_000,
    renew_ms: 30_000,
};

fn version(record: LeaseRecord, number: u64) -> Version<()> {
    Version {
        record,
        etag: format!("v{number}"),
        held: (),
    }
}

/// One node with the only view of the store.
struct Alone {
    lease: Lease<()>,
    jitter: Jitter,
    versions: u64,
}

impl Alone {
    fn new() -> Self {
        let lease = Lease::new("n-1".parse().unwrap(), "boot-1".into(), FULL, 0);
        Self {
            lease,
            jitter: Jitter::new(1),
            versions: 0,
        }
    }

    fn ask(&mut self, now: u64) -> Option<Ask<()>> {
        self.lease.next(BootMs(now), UnixMs(0), &mut self.jitter)
    }

    fn read(&mut self, now: u64, found: Option<Version<()>>, age: Option<u64>) {
        assert_eq!(self.ask(now), Some(Ask::Read));
        self.lease.on_read(BootMs(now), Some(found), age, &mut self.jitter);
    }

    /// Sends the write that is due and has it answered as applied at `answered`.
    fn write(&mut self, now: u64, answered: u64) -> LeaseRecord {
        let Some(Ask::Write { record, .. }) = self.ask(now) else {
            panic!("nothing to write")
        };
        self.versions += 1;
        self.lease.on_written(
            BootMs(answered),
            Written::Applied(version(record.clone(), self.versions)),
        );
        record
    }

    fn fence_at(&self, now: u64) -> Option<u64> {
        self.lease.authority(BootMs(now)).map(|authority| authority.fence)
    }

    /// A holder since 10 s, at fence 1.
    fn holding() -> Self {
        let mut alone = Self::new();
        alone.read(0, None, None);
        assert_eq!(alone.write(10_000, 10_050).fence, 1);
        alone
    }
}

fn others(fence: u64, released: bool) -> LeaseRecord {
    LeaseRecord {
        holder: "n-2".parse().unwrap(),
        boot_id: "b".into(),
        fence,
        ttl_ms: 90_000,
        released,
        renewed_at: UnixMs(0),
    }
}

#[test]
fn the_margins_are_the_design_s_and_shrink_with_the_ttl() {
    assert_eq!(
        (FULL.authority_ms(), FULL.new_work_ms(), FULL.dates_ms()),
        (78_000, 72_000, 92_000)
    );
    let short = Timing {
        ttl_ms: 2_250,
        renew_ms: 700,
    };
    assert_eq!((short.authority_ms(), short.new_work_ms()), (1_950, 1_800));
    assert!(short.dates_ms() > 2_250 + 1_000, "whole seconds never shrink");
}

#[test]
fn the_authority_counts_from_before_the_request_was_sent() {
    let mut alone = Alone::new();
    alone.read(0, None, None);
    alone.write(10_000, 15_900);
    assert_eq!(
        alone.lease.authority(BootMs(10_000 + 71_999)),
        Some(Authority {
            fence: 1,
            may_begin: true
        })
    );
    assert_eq!(
        alone.lease.authority(BootMs(10_000 + 72_000)),
        Some(Authority {
            fence: 1,
            may_begin: false
        })
    );
    assert_eq!(alone.fence_at(10_000 + 77_999), Some(1));
    assert_eq!(alone.fence_at(10_000 + 78_000), None);
}

#[test]
fn one_missed_renewal_is_survived_and_a_second_loses_it() {
    let mut alone = Alone::holding();
    assert!(matches!(alone.ask(40_000), Some(Ask::Write { .. })));
    alone.lease.on_written(BootMs(46_000), Written::Unknown);
    assert_eq!(alone.fence_at(46_000), Some(1));
    alone.write(70_000, 70_050);
    assert_eq!(alone.fence_at(147_000), Some(1), "the second slot renewed it");
    // Now every try fails until the deadline.
    let mut now = 100_000;
    while alone.fence_at(now).is_some() {
        if let Some(Ask::Write { record, .. }) = alone.ask(now) {
            assert_eq!(record.fence, 1);
            now += 6_000;
            alone.lease.on_written(BootMs(now), Written::Unknown);
        }
        now += 1_000;
    }
    assert!((148_000..155_000).contains(&now), "{now}");
    assert_eq!(
        alone.write(now + 6_000, now + 6_010).fence,
        2,
        "what is over is acquired again"
    );
}

#[test]
fn a_renewal_that_is_answered_after_the_deadline_restores_nothing() {
    let mut alone = Alone::holding();
    alone.write(40_000, 10_000 + 78_001);
    assert_eq!(alone.fence_at(10_000 + 78_001), None);
    assert_eq!(alone.write(90_000, 90_010).fence, 2);
}

#[test]
fn a_renewal_that_landed_with_its_answer_lost_is_taken_up() {
    let mut alone = Alone::holding();
    let Some(Ask::Write { record, .. }) = alone.ask(40_000) else {
        panic!()
    };
    alone.lease.on_written(BootMs(46_000), Written::Unknown);
    assert!(matches!(alone.ask(52_000), Some(Ask::Write { .. })));
    alone
        .lease
        .on_written(BootMs(52_100), Written::Lost(Some(version(record, 9))));
    assert_eq!(
        alone.fence_at(40_000 + 77_999),
        Some(1),
        "from before the one that landed was sent"
    );
    assert_eq!(alone.fence_at(40_000 + 78_000), None);
}

#[test]
fn another_holder_is_waited_for_by_the_own_clock() {
    let mut alone = Alone::new();
    let theirs = version(others(7, false), 1);
    for now in [0, 30_000, 60_000, 89_000] {
        alone.read(now, Some(theirs.clone()), Some(now));
        assert_eq!(alone.lease.holder().map(|record| record.fence), Some(7));
    }
    // The moment is not missed by a whole poll.
    assert_eq!(alone.lease.due(), Some(BootMs(90_000)));
    alone.read(90_000, Some(theirs), None);
    assert_eq!(alone.write(96_000, 96_010).fence, 8);
}

#[test]
fn the_store_s_own_dates_show_a_long_dead_lease_at_once() {
    let mut alone = Alone::new();
    alone.read(0, Some(version(others(7, false), 1)), Some(91_000));
    assert_eq!(
        alone.lease.holder().map(|record| record.fence),
        Some(7),
        "not dead enough"
    );
    let mut alone = Alone::new();
    alone.read(0, Some(version(others(7, false), 1)), Some(92_000));
    assert_eq!(alone.write(6_000, 6_010).fence, 8);
}

#[test]
fn a_released_lease_is_taken_at_once_and_a_fence_never_falls() {
    let mut alone = Alone::new();
    alone.lease.on_fence(40);
    alone.read(0, Some(version(others(7, true), 1)), None);
    assert_eq!(alone.write(6_000, 6_010).fence, 41);
    // Somebody deletes the object by hand.
    let mut later = Alone::new();
    later.lease.on_fence(41);
    later.read(0, None, None);
    assert_eq!(later.write(6_000, 6_010).fence, 42);
}

#[test]
fn a_ghost_of_this_very_boot_is_acquired_over() {
    let mut alone = Alone::new();
    alone.read(0, None, None);
    let Some(Ask::Write { record, .. }) = alone.ask(6_000) else {
        panic!()
    };
    alone.lease.on_written(BootMs(12_000), Written::Unknown);
    assert_eq!(alone.fence_at(12_000), None);
    alone.read(20_000, Some(version(record, 3)), None);
    assert_eq!(alone.write(26_000, 26_010).fence, 2);
}

#[test]
fn a_lost_lease_acts_no_more() {
    let mut alone = Alone::holding();
    alone.ask(40_000);
    alone
        .lease
        .on_written(BootMs(40_100), Written::Lost(Some(version(others(2, false), 5))));
    assert_eq!(alone.fence_at(40_100), None);
    assert_eq!(alone.lease.highest_fence(), 2);
}

#[test]
fn a_jump_of_the_clocks_voids_the_authority_until_it_is_written_again() {
    let mut alone = Alone::holding();
    alone.lease.on_clock_jump(BootMs(20_000));
    assert_eq!(alone.fence_at(20_000), None);
    assert_eq!(alone.write(20_000, 20_010).fence, 2);
}

#[test]
fn leaving_gives_it_back_and_wants_nothing_more() {
    let mut alone = Alone::holding();
    let Some(Ask::Write { record, .. }) = alone.lease.release(UnixMs(5)) else {
        panic!()
    };
    assert!(record.released && record.fence == 1);
    assert_eq!(alone.fence_at(10_100), None, "before anybody is told");
    alone
        .lease
        .on_written(BootMs(10_200), Written::Applied(version(record, 2)));
    assert_eq!(alone.lease.due(), None);
}

/// A request on its way: to the store at `lands`, back at `answers` (never, when lost), given up on at `gives_up`.
struct Flight {
    node: usize,
    ask: Ask<()>,
    lands: u64,
    answers: Option<u64>,
    gives_up: u64,
    landed: Option<(Option<Version<()>>, bool, Option<u64>)>,
    told: bool,
}

struct World {
    now: u64,
    store: Option<(Version<()>, u64)>,
    versions: u64,
    leases: Vec<Lease<()>>,
    offsets: Vec<u64>,
    paused_until: Vec<u64>,
    flights: Vec<Flight>,
    luck: Jitter,
    jitter: Jitter,
    faults: bool,
    fences: Vec<u64>,
}

impl World {
    fn new(seed: u64, nodes: usize, timing: Timing) -> Self {
        let mut luck = Jitter::new(seed);
        let leases =
            (0..nodes).map(|node| Lease::new(format!("n-{node}").parse().unwrap(), format!("b-{node}"), timing, 0));
        Self {
            now: 0,
            store: None,
            versions: 0,
            leases: leases.collect(),
            offsets: (0..nodes).map(|_| luck.below(10_000_000)).collect(),
            paused_until: vec![0; nodes],
            flights: Vec::new(),
            luck,
            jitter: Jitter::new(seed ^ 1),
            faults: true,
            fences: Vec::new(),
        }
    }

    fn boot(&self, node: usize) -> BootMs {
        BootMs(self.now + self.offsets[node])
    }

    fn send(&mut self, node: usize, ask: Ask<()>) {
        let mut strikes = |rate| self.faults && self.luck.below(100) < rate;
        let (ghost, lost, slow) = (strikes(8), strikes(8), strikes(10));
        let out = if ghost {
            6_000 + self.luck.below(120_000)
        } else {
            self.luck.below(if slow { 5_000 } else { 60 })
        };
        let back = self.luck.below(if slow { 5_000 } else { 60 });
        let lands = self.now + out;
        let answers = (!lost).then_some(lands + back);
        self.flights.push(Flight {
            node,
            ask,
            lands,
            answers,
            gives_up: self.now + 6_000,
            landed: None,
            told: false,
        });
    }

    fn land(&mut self) {
        let now = self.now;
        for flight in self
            .flights
            .iter_mut()
            .filter(|flight| flight.landed.is_none() && flight.lands <= now)
        {
            let current = self.store.as_ref();
            let applied = match &flight.ask {
                Ask::Read => false,
                Ask::Write { over, .. } => {
                    over.as_ref().map(|over| &over.etag) == current.map(|(version, _)| &version.etag)
                }
            };
            if let (true, Ask::Write { record, .. }) = (applied, &flight.ask) {
                if current.is_none_or(|(version, _)| version.record.fence != record.fence) {
                    self.fences.push(record.fence);
                }
                self.versions += 1;
                self.store = Some((version(record.clone(), self.versions), now));
            }
            // Both dates are cut to whole seconds.
            let age = self.store.as_ref().map(|(_, at)| (now / 1_000 - at / 1_000) * 1_000);
            flight.landed = Some((self.store.as_ref().map(|(version, _)| version.clone()), applied, age));
        }
    }

    fn tell(&mut self) {
        for index in 0..self.flights.len() {
            let Flight {
                node,
                answers,
                gives_up,
                told,
                ..
            } = self.flights[index];
            if told || self.now < self.paused_until[node] {
                continue;
            }
            let answered = answers.is_some_and(|at| at <= self.now && at <= gives_up);
            if !answered && self.now < gives_up {
                continue;
            }
            self.flights[index].told = true;
            let boot = self.boot(node);
            let flight = &self.flights[index];
            let landed = flight.landed.clone().filter(|_| answered);
            match (&flight.ask, landed) {
                (Ask::Read, Some((found, _, age))) => {
                    self.leases[node].on_read(boot, Some(found), age, &mut self.jitter)
                }
                (Ask::Read, None) => self.leases[node].on_read(boot, None, None, &mut self.jitter),
                (Ask::Write { .. }, Some((found, true, _))) => {
                    self.leases[node].on_written(boot, Written::Applied(found.unwrap()));
                }
                (Ask::Write { .. }, Some((found, false, _))) => {
                    self.leases[node].on_written(boot, Written::Lost(found))
                }
                (Ask::Write { .. }, None) => self.leases[node].on_written(boot, Written::Unknown),
            }
        }
        self.flights.retain(|flight| !flight.told || flight.landed.is_none());
    }

    fn step(&mut self) {
        self.land();
        self.tell();
        for node in 0..self.leases.len() {
            if self.faults && self.luck.below(20_000) == 0 {
                // Stopped, by a signal or a hypervisor, perhaps for longer than everything.
                self.paused_until[node] = self.now + self.luck.below(300_000);
            }
            let pending = self.flights.iter().any(|flight| flight.node == node && !flight.told);
            if self.now < self.paused_until[node] || pending {
                continue;
            }
            let boot = self.boot(node);
            if let Some(ask) = self.leases[node].next(boot, UnixMs(self.now), &mut self.jitter) {
                self.send(node, ask);
            }
        }
        let holders = self.holders();
        assert!(holders.len() <= 1, "{holders:?} hold the lease at {}", self.now);
    }

    fn holders(&self) -> Vec<usize> {
        (0..self.leases.len())
            .filter(|node| self.leases[*node].authority(self.boot(*node)).is_some())
            .collect()
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.step();
            self.now += 50;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn at_most_one_node_holds_it_whatever_happens_and_one_does_once_it_stops(seed in any::<u64>(), nodes in 1usize..5) {
        let mut world = World::new(seed, nodes, FULL);
        world.run(1_200_000);
        prop_assert!(world.fences.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", world.fences);
        // Faults stop; whoever is stopped goes on.
        world.faults = false;
        world.paused_until.fill(0);
        world.run(240_000);
        prop_assert_eq!(world.holders().len(), 1);
        let fences = world.fences.len();
        world.run(600_000);
        prop_assert_eq!(world.fences.len(), fences, "a quiet fleet keeps its holder");
    }
}
