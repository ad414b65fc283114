//! Growing delays between tries, with jitter from a seed.

/// A small deterministic generator (splitmix64, Steele, Lea and Flood 2014), so that equal seeds give equal runs.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator for one node; the seed comes from the machine's random source or from a simulation.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The bias of a plain remainder is far below what a delay can show.
        mixed.checked_rem(bound).unwrap_or(0)
    }

    /// `ms` less up to a fifth of it, so that machines which started together drift apart.
    pub fn around(&mut self, ms: u64) -> u64 {
        ms - self.below(ms / 5 + 1)
    }
}

/// Delays that double from `first_ms` to `most_ms`.
#[derive(Clone, Debug)]
pub struct Backoff {
    first_ms: u64,
    most_ms: u64,
    tries: u32,
}

impl Backoff {
    /// The first and the longest delay, in milliseconds.
    pub fn new(first_ms: u64, most_ms: u64) -> Self {
        Self {
            first_ms,
            most_ms,
            tries: 0,
        }
    }

    /// The delay before the next try.
    pub fn next_ms(&mut self, jitter: &mut Jitter) -> u64 {
        let doubled = self.first_ms.checked_shl(self.tries.min(32)).unwrap_or(u64::MAX);
        self.tries = self.tries.saturating_add(1);
        jitter.around(doubled.min(self.most_ms))
    }

    /// The next delay is the first one again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_over() {
        let mut jitter = Jitter::new(1);
        let mut backoff = Backoff::new(100, 1_000);
        for expected in [100, 200, 400, 800, 1_000, 1_000] {
            let delay = backoff.next_ms(&mut jitter);
            assert!((expected * 4 / 5..=expected).contains(&delay), "{delay} of {expected}");
        }
        for _ in 0..100 {
            assert!(backoff.next_ms(&mut jitter) <= 1_000);
        }
        backoff.reset();
        assert!(backoff.next_ms(&mut jitter) <= 100);
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let run = |seed| (0..50).map(|_| Jitter::new(seed).below(1_000)).collect::<Vec<_>>();
        assert_eq!(run(7), run(7));
        assert_eq!(Jitter::new(3).below(0), 0);
    }
}
