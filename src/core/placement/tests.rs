//! Test vectors, and what a change of the fleet may move.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

fn nodes(numbers: impl IntoIterator<Item = usize>) -> BTreeMap<Id, Labels> {
    let label = |number: usize| if number.is_multiple_of(2) { "fast" } else { "slow" };
    numbers
        .into_iter()
        .map(|number| {
            (
                id(&format!("n-{number}")),
                Labels::from([("tier".to_owned(), label(number).to_owned())]),
            )
        })
        .collect()
}

fn wanted(replicas: u32, selector: &str) -> Wanted {
    Wanted {
        replicas,
        selector: selector.parse().unwrap(),
        served: true,
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("app-{number}")).collect()
}

fn place_all(apps: &[String], wanted: &Wanted, live: &BTreeMap<Id, Labels>) -> BTreeMap<String, Placed> {
    place(apps.iter().map(|app| (app.as_str(), wanted)), live)
}

fn sets(placed: &BTreeMap<String, Placed>) -> BTreeMap<&str, BTreeSet<&Id>> {
    placed
        .iter()
        .map(|(app, placed)| (app.as_str(), placed.nodes.iter().collect()))
        .collect()
}

#[test]
fn test_vectors() {
    // By an independent implementation (the Python package xxhash). Whoever changes one of these moves every application
    // of every fleet.
    for (app, node, expected) in [
        ("shop", "n-1", 0x1118_efdd_cd83_91a6),
        ("shop", "n-2", 0x62fb_9bc0_16ec_01f3),
        ("", "a", 0x795c_8372_8c2a_36e1),
        ("blog", "n-4kq2m7xw5a", 0xa148_8b6f_26c6_1488),
    ] {
        assert_eq!(score(app, &id(node)), expected, "{app} on {node}");
    }
    let apps = ["shop", "blog", "wiki"].map(ToOwned::to_owned);
    let placed = place_all(&apps, &wanted(2, ""), &nodes(1..=5));
    for (app, nodes) in [
        ("blog", ["n-1", "n-2"]),
        ("shop", ["n-5", "n-3"]),
        ("wiki", ["n-3", "n-4"]),
    ] {
        assert_eq!(placed[app].nodes, nodes.map(id), "{app}");
    }
}

#[test]
fn fewer_nodes_than_replicas_is_said_and_is_no_error() {
    let placed = place_all(&["shop".into()], &wanted(3, "tier=fast"), &nodes([1, 2, 3]));
    assert_eq!(
        (placed["shop"].nodes.as_slice(), placed["shop"].missing),
        (&[id("n-2")][..], 2)
    );
    let placed = place_all(&["shop".into()], &wanted(3, "tier=none"), &nodes([1, 2, 3]));
    assert_eq!((placed["shop"].nodes.len(), placed["shop"].missing), (0, 3));
}

#[test]
fn what_is_not_served_is_placed_nowhere_and_misses_nothing() {
    let blocked = Wanted {
        served: false,
        ..wanted(3, "")
    };
    assert_eq!(
        place_all(&["shop".into()], &blocked, &nodes(1..9))["shop"],
        Placed::default()
    );
}

#[test]
fn a_thousand_nodes_share_evenly() {
    let apps = names(20_000);
    let placed = place_all(&apps, &wanted(1, ""), &nodes(0..1_000));
    let mut shares: BTreeMap<&Id, usize> = BTreeMap::new();
    placed
        .values()
        .flat_map(|placed| &placed.nodes)
        .for_each(|node| *shares.entry(node).or_default() += 1);
    // 20 each on average; a fair draw keeps every node within five standard deviations.
    let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
    assert_eq!(shares.len(), 1_000);
    assert!(*least >= 2 && *most <= 45, "{least} to {most}");
}

proptest! {
    #[test]
    fn a_leaving_node_moves_only_what_it_served(count in 2usize..20, gone in 0usize..20, replicas in 1u32..4, apps in 1usize..40) {
        let gone = gone % count;
        let apps = names(apps);
        let wanted = wanted(replicas, "");
        let before = place_all(&apps, &wanted, &nodes(0..count));
        let after = place_all(&apps, &wanted, &nodes((0..count).filter(|number| *number != gone)));
        let leaver = id(&format!("n-{gone}"));
        let (before, after) = (sets(&before), sets(&after));
        for (app, had) in &before {
            let mut kept = had.clone();
            if !kept.remove(&leaver) {
                prop_assert_eq!(had, &after[app], "{} was not served by {}", app, leaver);
            } else {
                prop_assert!(kept.is_subset(&after[app]), "{}: those who stay go on", app);
            }
        }
    }

    #[test]
    fn an_arriving_node_takes_only_what_it_wins(count in 1usize..20, replicas in 1u32..4, apps in 1usize..40) {
        let apps = names(apps);
        let wanted = wanted(replicas, "");
        let before = place_all(&apps, &wanted, &nodes(0..count));
        let after = place_all(&apps, &wanted, &nodes(0..=count));
        let newcomer = id(&format!("n-{count}"));
        let (before, after) = (sets(&before), sets(&after));
        for (app, has) in &after {
            if has.contains(&newcomer) {
                let mut others = has.clone();
                others.remove(&newcomer);
                prop_assert!(others.is_subset(&before[app]));
            } else {
                prop_assert_eq!(has, &before[app]);
            }
        }
    }

    #[test]
    fn the_order_of_the_inputs_does_not_matter(mut order in Just((0..30usize).collect::<Vec<_>>()).prop_shuffle(), replicas in 0u32..5) {
        let wanted = wanted(replicas, "tier=fast");
        let apps = names(30);
        let live = nodes(order.iter().copied());
        let shuffled: Vec<String> = order.iter().map(|index| apps[*index].clone()).collect();
        order.sort_unstable();
        prop_assert_eq!(place_all(&shuffled, &wanted, &live), place_all(&apps, &wanted, &nodes(order)));
    }

    #[test]
    fn the_fingerprint_moves_with_everything_that_decides(replicas in 1u32..9, fence in 1u64..9) {
        let one = wanted(replicas, "tier=fast");
        let live = nodes(0..3);
        let at = [id("n-0")];
        let print = |wanted: &Wanted, placement: Option<(&[Id], u64)>, live: &BTreeMap<Id, Labels>| {
            fingerprint([Standing { app: "shop", wanted, placement }], live)
        };
        let base = print(&one, Some((&at, fence)), &live);
        prop_assert_eq!(base, print(&one.clone(), Some((&at, fence)), &live.clone()));
        let mut relabelled = live.clone();
        relabelled.get_mut(&id("n-0")).unwrap().insert("tier".into(), "slow".into());
        for other in [
            print(&wanted(replicas + 1, "tier=fast"), Some((&at, fence)), &live),
            print(&wanted(replicas, "tier"), Some((&at, fence)), &live),
            print(&Wanted { served: false, ..one.clone() }, Some((&at, fence)), &live),
            print(&one, Some((&at, fence + 1)), &live),
            print(&one, Some((&[], fence)), &live),
            print(&one, None, &live),
            print(&one, Some((&at, fence)), &nodes(0..2)),
            print(&one, Some((&at, fence)), &relabelled),
        ] {
            prop_assert_ne!(base, other);
        }
    }
}
