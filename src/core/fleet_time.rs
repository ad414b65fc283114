//! Fleet time: the bucket's clock as this machine estimates it (design, section 7; `s3.md` C8).
//!
//! The estimate is anchored on the boot clock, so a step of this machine's wall clock moves no stamp. No lease decision
//! may use it.

use std::collections::VecDeque;

use super::types::{BootMs, Now, UnixMs};

/// A wall clock further off than this is worth a warning.
pub const SKEW_WARNING_MS: u64 = 5_000;

/// How many samples are remembered; the one with the shortest round trip counts.
const SAMPLES: usize = 8;

/// One reply's `Date`, and when the request went out and the reply came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The store's `Date`, whole seconds, cut off.
    pub date_ms: u64,
    /// Boot clock before the request was sent.
    pub sent: BootMs,
    /// Boot clock after the reply came.
    pub received: BootMs,
}

impl Sample {
    /// Fleet time less boot time. Half a second is added since HTTP cuts the date to whole seconds.
    fn offset_ms(self) -> i128 {
        let middle = (i128::from(self.sent.0) + i128::from(self.received.0)) / 2;
        i128::from(self.date_ms) + 500 - middle
    }

    fn round_trip_ms(self) -> u64 {
        self.received.since(self.sent)
    }
}

/// The estimate.
#[derive(Clone, Debug, Default)]
pub struct FleetTime {
    samples: VecDeque<Sample>,
}

impl FleetTime {
    /// Takes a reply's date into account.
    pub fn observe(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Fleet time at `now`; the machine's own wall clock while the store has shown no date.
    pub fn at(&self, now: Now) -> UnixMs {
        let Some(best) = self.samples.iter().min_by_key(|sample| sample.round_trip_ms()) else {
            return now.wall;
        };
        let fleet = i128::from(now.boot.0) + best.offset_ms();
        UnixMs(u64::try_from(fleet.max(0)).unwrap_or(u64::MAX))
    }

    /// How far this machine's wall clock is ahead of fleet time, in milliseconds; `None` while that is unknown.
    /// Within a second of 0 is as good as equal: a store's date has no finer grain.
    pub fn skew_ms(&self, now: Now) -> Option<i64> {
        (!self.samples.is_empty())
            .then(|| i64::try_from(i128::from(now.wall.0) - i128::from(self.at(now).0)).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now(wall: u64, boot: u64) -> Now {
        Now {
            wall: UnixMs(wall),
            boot: BootMs(boot),
        }
    }

    #[test]
    fn without_a_sample_the_wall_clock_serves() {
        assert_eq!(FleetTime::default().at(now(77, 5)), UnixMs(77));
        assert_eq!(FleetTime::default().skew_ms(now(77, 5)), None);
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_no_stamp() {
        let mut time = FleetTime::default();
        time.observe(Sample {
            date_ms: 1_000_000,
            sent: BootMs(100),
            received: BootMs(120),
        });
        let before = time.at(now(1_000_500, 110));
        assert_eq!(time.at(now(9_999_999, 110)), before);
        assert_eq!(time.skew_ms(now(1_003_600 + 500, 110)), Some(3_600));
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut time = FleetTime::default();
        time.observe(Sample {
            date_ms: 5_000,
            sent: BootMs(0),
            received: BootMs(4_000),
        });
        time.observe(Sample {
            date_ms: 9_000,
            sent: BootMs(4_000),
            received: BootMs(4_010),
        });
        assert_eq!(time.at(now(0, 4_005)), UnixMs(9_500));
    }

    proptest! {
        #[test]
        fn the_estimate_is_off_by_no_more_than_half_a_second_and_half_the_round_trip(
            truth in 1_000_000u64..2_000_000_000_000, boot in 0u64..1_000_000_000, out in 0u64..3_000, back in 0u64..3_000,
        ) {
            // The store answers at `truth`; its date is cut to the second.
            let mut time = FleetTime::default();
            time.observe(Sample { date_ms: truth / 1_000 * 1_000, sent: BootMs(boot), received: BootMs(boot + out + back) });
            let estimate = time.at(now(0, boot + out));
            prop_assert!(estimate.0.abs_diff(truth) <= 501 + (out + back).div_ceil(2));
        }
    }
}
