//! The store's contract, put to the test at each boot (`s3.md`, part A). Stores that ignore a condition let two nodes own
//! one thing; they are refused by name before anything of the fleet's is written.
//!
//! No answer is no violation: a store that cannot be reached has proven nothing.

use futures_util::future::join_all;

use super::{Bucket, BucketError, ETag, Object, WriteOutcome};
use crate::host::random;

/// Writers in a race.
const RACERS: usize = 8;

/// A store's clock further off than this is worth a word.
const CLOCK_LIMIT_MS: u64 = 5_000;

/// What the test found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store breaks the contract, and no later try changes that.
    Violation {
        /// The condition that it breaks, as a sentence about the store.
        condition: &'static str,
        /// What was seen.
        seen: String,
    },
    /// The store did not answer, or not in a way that says anything.
    Inconclusive(String),
    /// The store refuses to be asked.
    Refused(BucketError),
}

/// Puts the store to the test under keys of its own, which are removed afterwards. `now_ms` is this machine's wall clock.
/// The answer is what is worth a warning.
pub async fn run(bucket: &dyn Bucket, now_ms: u64) -> Result<Vec<String>, Fault> {
    let id = random::id().map_err(|error| Fault::Inconclusive(error.message))?;
    let keys: Vec<String> = ["one", "race", "missing"]
        .iter()
        .map(|name| format!("_scafo/probe/{id}-{name}"))
        .collect();
    let found = steps(bucket, &keys, now_ms).await;
    for key in &keys {
        // Forgotten ones are reaped later.
        let _ = bucket.remove(key).await;
    }
    found
}

async fn steps(bucket: &dyn Bucket, keys: &[String], now_ms: u64) -> Result<Vec<String>, Fault> {
    let [one, race, missing] = keys else {
        return Ok(Vec::new());
    };
    // A read first: some stores make a bucket that does not exist on the first write to it (SeaweedFS), and a slip of the
    // pen in its name would become a fleet of its own.
    read(bucket.list("_scafo/probe/").await)?;
    let first = applied(
        "a create of a new key is carried out",
        bucket.create(one, body(1)).await.value,
    )?;
    rejected(
        bucket,
        one,
        &body(1),
        "a create of a key that exists is rejected",
        bucket.create(one, body(2)).await.value,
    )
    .await?;
    let mut replaced = bucket.replace(one, &first, body(3)).await.value;
    if replaced == WriteOutcome::Rejected && bucket.switch_etag_dialect() {
        replaced = bucket.replace(one, &first, body(3)).await.value;
    }
    let second = applied("a replace of the version that stands is carried out", replaced)?;
    if first == second {
        return violation("different bodies have different ETags", format!("both are {first}"));
    }
    rejected(
        bucket,
        one,
        &body(3),
        "a replace of an old version is rejected",
        bucket.replace(one, &first, body(4)).await.value,
    )
    .await?;
    let absent = bucket.replace(missing, &second, body(5)).await.value;
    if let WriteOutcome::Applied(etag) = absent {
        return violation(
            "a replace of a key that does not exist is rejected",
            format!("it was written as {etag}"),
        );
    }
    settled(absent)?;
    race_of_creates(bucket, race).await?;
    race_of_replaces(bucket, race).await?;
    let listed = read(bucket.list("_scafo/probe/").await)?;
    if !listed.value.iter().any(|entry| entry.key == *one) {
        return violation("a listing shows what was just written", format!("{one} is not in it"));
    }
    Ok(match listed.time.date_ms {
        None => vec!["the store shows no date, so stamps follow this machine's own clock".to_owned()],
        Some(date) if date.abs_diff(now_ms) > CLOCK_LIMIT_MS => {
            vec![format!(
                "the store's clock and this machine's are {} s apart",
                date.abs_diff(now_ms) / 1_000
            )]
        }
        Some(_) => Vec::new(),
    })
}

fn body(number: u8) -> Vec<u8> {
    format!("scafo probe {number}").into_bytes()
}

async fn race_of_creates(bucket: &dyn Bucket, key: &str) -> Result<(), Fault> {
    let racers = (0..RACERS).map(|racer| bucket.create(key, format!("create {racer}").into_bytes()));
    let outcomes = join_all(racers).await.into_iter().map(|reply| reply.value).collect();
    one_winner(
        bucket,
        key,
        "create",
        "of several creates at once, one is carried out",
        outcomes,
    )
    .await
}

async fn race_of_replaces(bucket: &dyn Bucket, key: &str) -> Result<(), Fault> {
    let Some(Object { etag, .. }) = read(bucket.get(key).await)?.value else {
        return violation("a read shows what was just written", "nothing".to_owned());
    };
    let racers = (0..RACERS).map(|racer| bucket.replace(key, &etag, format!("replace {racer}").into_bytes()));
    let outcomes = join_all(racers).await.into_iter().map(|reply| reply.value).collect();
    one_winner(
        bucket,
        key,
        "replace",
        "of several replaces of one version at once, one is carried out",
        outcomes,
    )
    .await
}

/// Exactly one racer won, and what stands is what it wrote.
async fn one_winner(
    bucket: &dyn Bucket,
    key: &str,
    kind: &str,
    condition: &'static str,
    outcomes: Vec<WriteOutcome>,
) -> Result<(), Fault> {
    let winners: Vec<usize> = outcomes
        .iter()
        .enumerate()
        .filter(|(_, outcome)| matches!(outcome, WriteOutcome::Applied(_)))
        .map(|(racer, _)| racer)
        .collect();
    if winners.len() > 1 {
        return violation(condition, format!("{} of {RACERS} were", winners.len()));
    }
    for outcome in &outcomes {
        if let WriteOutcome::Fatal(error) = outcome {
            return Err(Fault::Refused(error.clone()));
        }
    }
    let unsettled = outcomes
        .iter()
        .any(|outcome| !matches!(outcome, WriteOutcome::Applied(_) | WriteOutcome::Rejected));
    match (winners.first(), read(bucket.get(key).await)?.value) {
        (Some(winner), Some(object)) if object.body == format!("{kind} {winner}").into_bytes() => Ok(()),
        (Some(winner), found) => {
            let found = found.map(|object| String::from_utf8_lossy(&object.body).into_owned());
            violation(
                "a read shows what was just written",
                format!("{kind} {winner} won and {found:?} stands"),
            )
        }
        // Somebody won whose answer says nothing, which is as good as long as it is one.
        (None, Some(_)) if unsettled => Ok(()),
        (None, _) if unsettled => Err(Fault::Inconclusive(format!(
            "no answer said who won a race: {outcomes:?}"
        ))),
        (None, _) => violation(condition, "none was".to_owned()),
    }
}

fn applied(condition: &'static str, outcome: WriteOutcome) -> Result<ETag, Fault> {
    match outcome {
        WriteOutcome::Applied(etag) => Ok(etag),
        WriteOutcome::Rejected => violation(condition, "it was rejected".to_owned()),
        other => match settled(other) {
            Err(fault) => Err(fault),
            Ok(()) => Err(Fault::Inconclusive("another write was under way".to_owned())),
        },
    }
}

/// The write was not carried out, and what stood before still stands.
async fn rejected(
    bucket: &dyn Bucket,
    key: &str,
    standing: &[u8],
    condition: &'static str,
    outcome: WriteOutcome,
) -> Result<(), Fault> {
    if let WriteOutcome::Applied(etag) = outcome {
        return violation(condition, format!("it was carried out, as {etag}"));
    }
    settled(outcome)?;
    match read(bucket.get(key).await)?.value {
        Some(object) if object.body == standing => Ok(()),
        found => {
            let found = found.map(|object| String::from_utf8_lossy(&object.body).into_owned());
            violation(condition, format!("it was rejected, and yet {found:?} stands"))
        }
    }
}

/// `Ok` for outcomes that leave a read to decide.
fn settled(outcome: WriteOutcome) -> Result<(), Fault> {
    match outcome {
        WriteOutcome::Applied(_) | WriteOutcome::Rejected | WriteOutcome::Contended => Ok(()),
        WriteOutcome::Throttled => Err(Fault::Inconclusive("the store asks for fewer requests".to_owned())),
        WriteOutcome::Unknown(why) => Err(Fault::Inconclusive(why)),
        WriteOutcome::Fatal(error) => Err(Fault::Refused(error)),
    }
}

fn read<T>(answer: Result<T, BucketError>) -> Result<T, Fault> {
    answer.map_err(|error| {
        if error.is_transient() {
            Fault::Inconclusive(error.to_string())
        } else {
            Fault::Refused(error)
        }
    })
}

fn violation<T>(condition: &'static str, seen: String) -> Result<T, Fault> {
    Err(Fault::Violation { condition, seen })
}
