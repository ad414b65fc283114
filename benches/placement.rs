//! A whole assignment pass, and one that is skipped: 10,000 applications over 1,000 nodes on one core.
//!
//! `cargo bench --bench placement`

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use scafo::core::placement::{Standing, Wanted, fingerprint, place};
use scafo::core::types::{Id, Labels};

const APPS: usize = 10_000;
const NODES: usize = 1_000;

fn live() -> BTreeMap<Id, Labels> {
    let node = |number: usize| {
        let tier = if number.is_multiple_of(2) { "fast" } else { "slow" };
        let id = format!("n-{number:010}").parse().expect("digits make an id");
        (
            id,
            Labels::from([
                ("tier".to_owned(), tier.to_owned()),
                ("region".to_owned(), "eu-west-1".to_owned()),
            ]),
        )
    };
    (0..NODES).map(node).collect()
}

fn apps() -> Vec<(String, Wanted)> {
    let selectors = ["", "tier=fast", "tier=slow", "region=eu-west-1,tier!=slow"];
    let app = |number: usize| {
        let selector = selectors[number % selectors.len()]
            .parse()
            .expect("these are selectors");
        (
            format!("app-{number}"),
            Wanted {
                replicas: 3,
                selector,
                served: true,
            },
        )
    };
    (0..APPS).map(app).collect()
}

fn passes(criterion: &mut Criterion) {
    let (live, apps) = (live(), apps());
    criterion.bench_function("assign 10,000 applications over 1,000 nodes", |bench| {
        bench.iter(|| {
            place(
                apps.iter().map(|(app, wanted)| (app.as_str(), wanted)),
                black_box(&live),
            )
        });
    });
    let placed = place(apps.iter().map(|(app, wanted)| (app.as_str(), wanted)), &live);
    criterion.bench_function("skip the pass", |bench| {
        bench.iter(|| {
            let standing = apps.iter().map(|(app, wanted)| Standing {
                app,
                wanted,
                placement: Some((placed[app].nodes.as_slice(), 7)),
            });
            fingerprint(standing, black_box(&live))
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = passes
}
criterion_main!(benches);
