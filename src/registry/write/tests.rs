//! Whatever the store does to requests and answers, nothing is guessed: over many seeds, on a paused clock.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::bucket::Bucket;
use crate::bucket::memory::{Faults, MemoryBucket};
use crate::core::records::{AddressRecord, HintRecord};
use crate::core::types::{BootMs, Now, UnixMs};
use crate::host::clock::Clock;

/// tokio's clock, which the tests pause.
#[derive(Debug)]
struct TestClock(tokio::time::Instant);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let boot = u64::try_from(self.0.elapsed().as_millis()).unwrap();
        Now {
            wall: UnixMs(1_700_000_000_000 + boot),
            boot: BootMs(boot),
        }
    }
}

fn registry(bucket: &MemoryBucket) -> Registry {
    Registry::new(
        Arc::new(bucket.clone()),
        Arc::new(TestClock(tokio::time::Instant::now())),
        None,
    )
}

fn key() -> Key {
    Key::Address("10.88.0.7".parse().unwrap())
}

fn claim(id: &str) -> Record {
    Record::Address(AddressRecord {
        id: id.parse().unwrap(),
        claimed_at: UnixMs(1),
    })
}

/// Runs on a paused clock: minutes of late writes take no time.
fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

fn faults() -> impl Strategy<Value = Faults> {
    (0u64..300, 0u64..300, 0u64..300, 0u64..200, 0u64..200).prop_map(
        |(lost_request, lost_answer, late_write, throttled, contended)| Faults {
            lost_request,
            lost_answer,
            late_write,
            throttled,
            contended,
            latency_ms: 1..200,
            late_by_ms: 1..120_000,
            skew_ms: 0,
        },
    )
}

async fn standing(bucket: &MemoryBucket) -> Option<Held> {
    bucket.set_faults(Faults::default());
    let object = bucket.get(&keys::path(&key())).await.unwrap().value?;
    Some(codec::decode(&key(), &object).unwrap())
}

fn holder(held: &Held) -> &str {
    match &held.record {
        Record::Address(claim) => claim.id.as_str(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn a_claim_is_never_won_twice_and_a_landed_one_is_never_lost(seed in any::<u64>(), faults in faults()) {
        run(async {
            let bucket = MemoryBucket::new(seed, 1_700_000_000_000, faults);
            let registries: Vec<Registry> = (0..4).map(|_| registry(&bucket)).collect();
            let claims = registries.iter().enumerate().map(|(number, registry)| async move {
                registry.write(&key(), None, claim(&format!("n-{number}")), &mut Vec::new()).await
            });
            let outcomes = futures_util::future::join_all(claims).await;
            // Everything that is still on its way lands.
            tokio::time::sleep(Duration::from_secs(300)).await;
            let standing = standing(&bucket).await;
            for (number, outcome) in outcomes.iter().enumerate() {
                let id = format!("n-{number}");
                match outcome {
                    Wrote::Applied(held) => {
                        let standing = standing.as_ref().unwrap();
                        assert_eq!((holder(held), holder(standing)), (id.as_str(), id.as_str()), "a winner stands");
                        assert_eq!((&held.etag, &held.body), (&standing.etag, &standing.body), "at the version it was told");
                    }
                    // Somebody else stands there, and always will: a create never replaces.
                    Wrote::Lost(Some(other)) => {
                        assert_ne!(holder(other), id);
                        assert_eq!(holder(other), holder(standing.as_ref().unwrap()));
                    }
                    Wrote::Lost(None) => panic!("nothing was ever removed"),
                    Wrote::Trouble(Trouble::Transient(_)) => {}
                    Wrote::Trouble(Trouble::Refused(error)) => panic!("{error}"),
                }
            }
        });
    }

    #[test]
    fn replaces_count_up_without_losing_or_doubling_one_that_was_confirmed(seed in any::<u64>(), faults in faults()) {
        run(async {
            let bucket = MemoryBucket::new(seed, 1_700_000_000_000, Faults::default());
            let writer = registry(&bucket);
            let count = |counter| Record::Hint(HintRecord { counter, kind: String::new() });
            let Wrote::Applied(mut held) = writer.write(&Key::Hint, None, count(0), &mut Vec::new()).await else { panic!() };
            bucket.set_faults(faults);
            let mut confirmed = 0;
            for counter in 1..=12 {
                match writer.write(&Key::Hint, Some(held.clone()), count(counter), &mut Vec::new()).await {
                    Wrote::Applied(applied) => {
                        held = applied;
                        confirmed = counter;
                    }
                    // An earlier write that was given up on landed late: its content stands, and is taken up.
                    Wrote::Lost(Some(found)) => held = found,
                    Wrote::Lost(None) => panic!("nothing was ever removed"),
                    Wrote::Trouble(_) => {}
                }
            }
            let last = held.clone();
            tokio::time::sleep(Duration::from_secs(300)).await;
            bucket.set_faults(Faults::default());
            let object = bucket.get(&keys::path(&Key::Hint)).await.unwrap().value.unwrap();
            let Record::Hint(standing) = codec::decode(&Key::Hint, &object).unwrap().record else { panic!() };
            assert!(standing.counter >= confirmed, "{} was confirmed and {} stands", confirmed, standing.counter);
            if standing.counter == confirmed {
                assert_eq!(last.etag, object.etag.as_str());
            }
        });
    }
}

#[test]
fn a_lost_answer_is_found_again_and_is_no_conflict() {
    run(async {
        let bucket = MemoryBucket::new(
            1,
            1_700_000_000_000,
            Faults {
                lost_answer: 1_000,
                latency_ms: 10..11,
                ..Faults::default()
            },
        );
        let writer = registry(&bucket);
        let (key, mut samples) = (key(), Vec::new());
        let write = writer.write(&key, None, claim("n-1"), &mut samples);
        // The write lands and its answer is lost; the read back is let through.
        let heal = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            bucket.set_faults(Faults::default());
        };
        let (wrote, ()) = tokio::join!(write, heal);
        assert!(
            matches!(&wrote, Wrote::Applied(held) if holder(held) == "n-1"),
            "{wrote:?}"
        );
    });
}

#[test]
fn fields_of_a_newer_build_outlive_this_one_s_writes() {
    run(async {
        let bucket = MemoryBucket::new(1, 1_700_000_000_000, Faults::default());
        let newer = r#"{"id":"n-1","claimedAt":1,"rack":{"row":4},"writeId":"w"}"#;
        bucket.create(&keys::path(&key()), newer.into()).await;
        let held = standing(&bucket).await.unwrap();
        registry(&bucket)
            .write(&key(), Some(held), claim("n-2"), &mut Vec::new())
            .await;
        let held = standing(&bucket).await.unwrap();
        assert_eq!(holder(&held), "n-2");
        assert!(held.body.contains(r#""rack":{"row":4}"#), "{}", held.body);
    });
}

#[test]
fn what_cannot_be_read_is_never_overwritten() {
    run(async {
        let bucket = MemoryBucket::new(1, 1_700_000_000_000, Faults::default());
        bucket.create(&keys::path(&key()), b"{\"id\":".to_vec()).await;
        let writer = registry(&bucket);
        let wrote = writer.write(&key(), None, claim("n-1"), &mut Vec::new()).await;
        assert!(
            matches!(&wrote, Wrote::Trouble(Trouble::Refused(error)) if error.message.contains("cannot be read")),
            "{wrote:?}"
        );
        assert!(
            writer.read(&key(), &mut Vec::new()).await.is_err(),
            "unreadable is not absent"
        );
    });
}
