//! One suite for every bucket: what the trait promises holds in memory, in a directory shared by processes, and in a real
//! S3 store; what stores get wrong is found out and named; and a lost answer is never taken for a conflict.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use scafo::bucket::memory::{Faults, MemoryBucket};
use scafo::bucket::probe::{self, Fault};
use scafo::bucket::s3::{Credentials, S3Bucket, S3Options};
use scafo::bucket::url::BucketUrl;
use scafo::bucket::{self, Bucket, BucketError, Changed, ETag, WriteOutcome};
use scafo_lab::badstore::{BadStore, Flaw};
use scafo_lab::proxy::{Action, Proxy};
use scafo_lab::store::{ACCESS_KEY, SECRET_KEY, Store};

const RACERS: usize = 8;

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn s3(endpoint: &str, url: &str) -> S3Bucket {
    let Ok(BucketUrl::S3 { name: bucket, prefix }) = url.parse() else {
        panic!("{url}")
    };
    let credentials = Credentials::Stated {
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
    };
    S3Bucket::open(S3Options {
        bucket,
        prefix,
        endpoint: Some(endpoint.to_owned()),
        region: None,
        credentials,
    })
}

fn applied(outcome: WriteOutcome) -> ETag {
    match outcome {
        WriteOutcome::Applied(etag) => etag,
        other => panic!("{other:?}"),
    }
}

async fn body(bucket: &dyn Bucket, key: &str) -> Option<Vec<u8>> {
    bucket.get(key).await.unwrap().value.map(|object| object.body)
}

/// What the trait promises, under `root` so that one store can be asked again and again.
async fn conforms(bucket: &dyn Bucket, root: &str) {
    let key = format!("{root}/one.json");
    assert_eq!(body(bucket, &key).await, None);
    let first = applied(bucket.create(&key, b"one".to_vec()).await.value);
    let read = bucket.get(&key).await.unwrap();
    let object = read.value.unwrap();
    assert_eq!((object.body.as_slice(), &object.etag), (&b"one"[..], &first));
    assert!(
        read.time.date_ms.unwrap().abs_diff(now_ms()) < 5_000,
        "the store shows its clock"
    );
    assert!(read.time.last_modified_ms.unwrap().abs_diff(now_ms()) < 5_000);
    assert_eq!(bucket.create(&key, b"two".to_vec()).await.value, WriteOutcome::Rejected);
    assert_eq!(
        bucket.get_if_changed(&key, &first).await.unwrap().value,
        Changed::Unchanged
    );

    let second = applied(bucket.replace(&key, &first, b"two".to_vec()).await.value);
    assert_ne!(first, second);
    assert_eq!(
        bucket.replace(&key, &first, b"three".to_vec()).await.value,
        WriteOutcome::Rejected
    );
    let Changed::Changed(object) = bucket.get_if_changed(&key, &first).await.unwrap().value else {
        panic!()
    };
    assert_eq!((object.body.as_slice(), &object.etag), (&b"two"[..], &second));

    let missing = format!("{root}/missing.json");
    assert_eq!(
        bucket.replace(&missing, &second, b"x".to_vec()).await.value,
        WriteOutcome::Rejected
    );
    assert_eq!(
        bucket.get_if_changed(&missing, &second).await.unwrap().value,
        Changed::Absent
    );
    bucket.remove(&missing).await.unwrap();

    for (name, content) in [
        ("empty", vec![]),
        ("binary", (0..=255).collect::<Vec<u8>>()),
        ("deep/er/n-1.json", b"x".to_vec()),
    ] {
        let key = format!("{root}/{name}");
        applied(bucket.create(&key, content.clone()).await.value);
        assert_eq!(body(bucket, &key).await, Some(content));
    }
    let listed = bucket.list(&format!("{root}/")).await.unwrap().value;
    let keys: Vec<&str> = listed
        .iter()
        .map(|entry| entry.key.strip_prefix(root).unwrap())
        .collect();
    assert_eq!(keys, ["/binary", "/deep/er/n-1.json", "/empty", "/one.json"]);
    assert_eq!(listed[3].etag.as_ref(), Some(&second), "a listing shows versions");
    let listed = bucket.list(&format!("{root}/deep")).await.unwrap().value;
    assert_eq!(listed.len(), 1);
    assert!(bucket.list(&format!("{root}/nothing")).await.unwrap().value.is_empty());

    bucket.remove(&key).await.unwrap();
    assert_eq!(body(bucket, &key).await, None);
    applied(bucket.create(&key, b"again".to_vec()).await.value);
}

/// Eight writers race, again and again; one wins each time, and what stands is what it wrote.
async fn races_have_one_winner(bucket: &dyn Bucket, root: &str, rounds: usize) {
    for round in 0..rounds {
        let key = format!("{root}/race-{round}");
        let create = |racer: usize| bucket.create(&key, format!("create {racer}").into_bytes());
        let winner = one_winner(
            join_all((0..RACERS).map(create))
                .await
                .into_iter()
                .map(|reply| reply.value),
        );
        let object = bucket.get(&key).await.unwrap().value.unwrap();
        assert_eq!(object.body, format!("create {winner}").into_bytes());
        let replace = |racer: usize| bucket.replace(&key, &object.etag, format!("replace {racer}").into_bytes());
        let winner = one_winner(
            join_all((0..RACERS).map(replace))
                .await
                .into_iter()
                .map(|reply| reply.value),
        );
        assert_eq!(body(bucket, &key).await, Some(format!("replace {winner}").into_bytes()));
    }
}

fn one_winner(outcomes: impl Iterator<Item = WriteOutcome>) -> usize {
    let outcomes: Vec<WriteOutcome> = outcomes.collect();
    let winners: Vec<usize> = outcomes
        .iter()
        .enumerate()
        .filter(|(_, outcome)| matches!(outcome, WriteOutcome::Applied(_)))
        .map(|(racer, _)| racer)
        .collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    winners[0]
}

#[tokio::test]
async fn memory() {
    let bucket = MemoryBucket::new(
        7,
        now_ms(),
        Faults {
            latency_ms: 0..3,
            ..Faults::default()
        },
    );
    conforms(&bucket, "a").await;
    races_have_one_winner(&bucket, "b", 25).await;
    assert_eq!(probe::run(&bucket, now_ms()).await, Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn directory() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = bucket::open(&BucketUrl::Dir(folder.path().join("bucket")), None, None).unwrap();
    conforms(bucket.as_ref(), "a").await;
    races_have_one_winner(bucket.as_ref(), "b", 25).await;
    assert_eq!(probe::run(bucket.as_ref(), now_ms()).await, Ok(vec![]));
    for bad in ["../x", "a//b", "/a", "", "a/./b"] {
        assert!(bucket.get(bad).await.is_err(), "{bad}");
    }
    // A writer that died half way leaves nothing that is listed or read.
    std::fs::write(folder.path().join("bucket/a/.0123.tmp"), "half").unwrap();
    assert!(
        bucket
            .list("a/")
            .await
            .unwrap()
            .value
            .iter()
            .all(|entry| !entry.key.contains("tmp"))
    );
}

/// Eight processes on one directory. Each is this very test binary, told what to do by a variable.
#[tokio::test(flavor = "multi_thread")]
async fn directory_of_many_processes() {
    if let Some(root) = std::env::var_os("SCAFO_TEST_RACER") {
        return race_in_a_process(Path::new(&root)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let racers: Vec<_> = (0..RACERS)
        .map(|racer| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "directory_of_many_processes", "--nocapture"])
                .env("SCAFO_TEST_RACER", folder.path())
                .env("SCAFO_TEST_NUMBER", racer.to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut racer in racers {
        assert!(racer.wait().unwrap().success());
    }
    let bucket = bucket::open(&BucketUrl::Dir(folder.path().to_owned()), None, None).unwrap();
    // Every process added its share to one counter, one at a time.
    let count = String::from_utf8(body(bucket.as_ref(), "counter").await.unwrap()).unwrap();
    assert_eq!(
        count.split_whitespace().next(),
        Some((RACERS * 25).to_string().as_str())
    );
}

async fn race_in_a_process(root: &Path) {
    let bucket = bucket::open(&BucketUrl::Dir(root.to_owned()), None, None).unwrap();
    let number = std::env::var("SCAFO_TEST_NUMBER").unwrap();
    for _ in 0..25 {
        for attempt in 0.. {
            assert!(attempt < 10_000, "nobody lets this process win");
            let outcome = match bucket.get("counter").await.unwrap().value {
                None => bucket.create("counter", format!("1 {number}").into_bytes()).await.value,
                Some(object) => {
                    let text = String::from_utf8(object.body).unwrap();
                    let count: usize = text.split_whitespace().next().unwrap().parse().unwrap();
                    bucket
                        .replace("counter", &object.etag, format!("{} {number}", count + 1).into_bytes())
                        .await
                        .value
                }
            };
            if matches!(outcome, WriteOutcome::Applied(_)) {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_store() {
    let mut store = Store::on_loopback();
    let bucket = s3(&store.endpoint(), "s3://fleet");
    assert_eq!(probe::run(&bucket, now_ms()).await, Ok(vec![]));
    conforms(&bucket, "a").await;
    races_have_one_winner(&bucket, "b", 25).await;

    // A prefix is a world of its own.
    let part = s3(&store.endpoint(), "s3://fleet/eu/prod");
    conforms(&part, "a").await;
    let keys = bucket.list("eu/prod/a/").await.unwrap().value;
    assert!(keys.iter().any(|entry| entry.key == "eu/prod/a/one.json"));

    // More keys than one page of a listing holds.
    let many = join_all(
        (0..1_050).map(|number| bucket.create(Box::leak(format!("many/{number:04}").into_boxed_str()), b"x".to_vec())),
    )
    .await;
    assert!(many.iter().all(|reply| matches!(reply.value, WriteOutcome::Applied(_))));
    let keys: Vec<String> = bucket
        .list("many/")
        .await
        .unwrap()
        .value
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert_eq!(keys.len(), 1_050);
    assert!(keys.is_sorted());

    let none = s3(&store.endpoint(), "s3://nonesuch");
    assert!(matches!(none.get("x").await, Err(BucketError::NoSuchBucket(_))));
    assert!(matches!(
        probe::run(&none, now_ms()).await,
        Err(Fault::Refused(BucketError::NoSuchBucket(_)))
    ));

    store.stop();
    assert!(matches!(bucket.get("x").await, Err(BucketError::Unreachable(_))));
    assert!(matches!(
        bucket.create("x", vec![]).await.value,
        WriteOutcome::Unknown(_)
    ));
    assert!(
        matches!(probe::run(&bucket, now_ms()).await, Err(Fault::Inconclusive(_))),
        "no answer is no violation"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_never_a_conflict() {
    let store = Store::on_loopback();
    let proxy = Proxy::before(store.socket());
    let bucket = s3(&proxy.endpoint(), "s3://fleet");

    // The store carries it out and the reply is cut: nobody knows, and the body is there. One request, no retry that
    // would meet its own work.
    proxy.rule("PUT", "lost-create", Action::CutReply, 1);
    let outcome = bucket.create("lost-create", b"mine".to_vec()).await.value;
    assert!(matches!(outcome, WriteOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(proxy.requests("PUT", "lost-create"), 1);
    let landed = bucket.get("lost-create").await.unwrap().value.unwrap();
    assert_eq!(landed.body, b"mine");
    proxy.rule("PUT", "lost-create", Action::CutReply, 1);
    let outcome = bucket
        .replace("lost-create", &landed.etag, b"mine too".to_vec())
        .await
        .value;
    assert!(matches!(outcome, WriteOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(body(&bucket, "lost-create").await, Some(b"mine too".to_vec()));

    // Every other answer that says nothing says nothing.
    const ERROR: &str = "<?xml version=\"1.0\"?><Error><Code>PreconditionFailed</Code><Message>x</Message></Error>";
    const INTERNAL: &str = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>x</Message></Error>";
    const CONFLICT: &str =
        "<?xml version=\"1.0\"?><Error><Code>ConditionalRequestConflict</Code><Message>x</Message></Error>";
    const SLOW: &str = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>x</Message></Error>";
    let says = async |key: &'static str, action: Action| {
        proxy.rule("PUT", key, action, 1);
        let outcome = bucket.create(key, b"x".to_vec()).await.value;
        assert_eq!(proxy.requests("PUT", key), 1, "{key}");
        outcome
    };
    for (key, action) in [
        ("refused", Action::Refuse),
        ("error-in-200", Action::Answer(200, ERROR)),
        ("empty-200", Action::Answer(200, "")),
        ("internal", Action::AnswerInstead(500, INTERNAL)),
    ] {
        let outcome = says(key, action).await;
        assert!(matches!(outcome, WriteOutcome::Unknown(_)), "{key}: {outcome:?}");
    }
    assert_eq!(
        says("conflict", Action::AnswerInstead(409, CONFLICT)).await,
        WriteOutcome::Contended
    );
    assert_eq!(says("slow", Action::Answer(503, SLOW)).await, WriteOutcome::Throttled);
    assert_eq!(
        says("precondition", Action::Answer(412, ERROR)).await,
        WriteOutcome::Rejected
    );
    let denied = says(
        "denied",
        Action::Answer(403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"),
    )
    .await;
    assert!(
        matches!(denied, WriteOutcome::Fatal(BucketError::Denied(_))),
        "{denied:?}"
    );

    // Reads may be tried again.
    proxy.rule("GET", "lost-create", Action::Answer(500, INTERNAL), 1);
    assert_eq!(body(&bucket, "lost-create").await, Some(b"mine too".to_vec()));

    // A store that hangs is given up on, and the write is in doubt.
    proxy.rule("PUT", "hang", Action::Hang, 1);
    let begun = std::time::Instant::now();
    assert!(matches!(
        bucket.create("hang", b"x".to_vec()).await.value,
        WriteOutcome::Unknown(_)
    ));
    assert!(begun.elapsed() < Duration::from_secs(15));
}

async fn probed(flaw: Flaw) -> Result<Vec<String>, Fault> {
    let store = BadStore::start(flaw);
    probe::run(&s3(&store.endpoint(), "s3://fleet"), now_ms()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_break_the_contract_are_refused_by_name() {
    assert_eq!(probed(Flaw::None).await, Ok(vec![]));
    let violation = |answer: Result<Vec<String>, Fault>| match answer {
        Err(Fault::Violation { condition, .. }) => condition,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        violation(probed(Flaw::IgnoresConditions).await),
        "a create of a key that exists is rejected"
    );
    assert_eq!(
        violation(probed(Flaw::ReplacesTheMissing).await),
        "a replace of a key that does not exist is rejected"
    );
    assert_eq!(
        violation(probed(Flaw::IsNotAtomic).await),
        "of several creates at once, one is carried out"
    );
    let unknown = probed(Flaw::KnowsNoConditions).await;
    assert!(
        matches!(unknown, Err(Fault::Refused(BucketError::Unsupported(_)))),
        "{unknown:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_wants_unquoted_tags_works() {
    let store = BadStore::start(Flaw::WantsUnquotedTags);
    let bucket = s3(&store.endpoint(), "s3://fleet");
    assert_eq!(probe::run(&bucket, now_ms()).await, Ok(vec![]));
    let first = applied(bucket.create("x", b"1".to_vec()).await.value);
    applied(bucket.replace("x", &first, b"2".to_vec()).await.value);
    assert_eq!(
        bucket.replace("x", &first, b"3".to_vec()).await.value,
        WriteOutcome::Rejected
    );
    races_have_one_winner(&bucket, "b", 5).await;
}
