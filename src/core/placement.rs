//! Which nodes serve an application: rendezvous hashing over the live nodes that match its selector (seed, "The
//! coordinator lease"; design, section 8).
//!
//! Every node has a score for every application, and the top scores serve it. So a node that leaves moves only what it
//! served, a node that arrives takes only what it wins, and everybody who has the same inputs has the same answer.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use super::selector::Selector;
use super::types::{Id, Labels};

#[cfg(test)]
mod tests;

/// What placement looks at in an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many nodes should serve it.
    pub replicas: u32,
    /// Which nodes may.
    pub selector: Selector,
    /// Whether it is to be served at all: neither blocked, retired nor being deleted.
    pub served: bool,
}

/// What was decided for an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The nodes, the best score first.
    pub nodes: Vec<Id>,
    /// How many more were wanted than match. Reported, never an error.
    pub missing: u32,
}

/// A node's score for an application: XXH3 (64 bits) of the node's id, seeded with XXH3 of the application's name. Fixed
/// for all time: every node of every version must come to the same answer.
///
/// Test vectors: `shop` on `n-1` is `0x1118efddcd8391a6`, `shop` on `n-2` is `0x62fb9bc016ec01f3`.
pub fn score(app: &str, node: &Id) -> u64 {
    seeded_score(seed(app), node)
}

fn seed(app: &str) -> u64 {
    xxh3_64(app.as_bytes())
}

fn seeded_score(seed: u64, node: &Id) -> u64 {
    xxh3_64_with_seed(node.as_str().as_bytes(), seed)
}

/// Places every application on the live nodes.
pub fn place<'a>(
    apps: impl IntoIterator<Item = (&'a str, &'a Wanted)>,
    live: &BTreeMap<Id, Labels>,
) -> BTreeMap<String, Placed> {
    // Applications share few selectors, so each is matched against all nodes once.
    let mut matching: BTreeMap<&Selector, Vec<&Id>> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    for (app, wanted) in apps {
        let candidates = matching.entry(&wanted.selector).or_insert_with(|| {
            live.iter()
                .filter(|(_, labels)| wanted.selector.matches(labels))
                .map(|(id, _)| id)
                .collect()
        });
        placed.insert(app.to_owned(), place_one(app, wanted, candidates));
    }
    placed
}

fn place_one(app: &str, wanted: &Wanted, candidates: &[&Id]) -> Placed {
    let replicas = if wanted.served {
        usize::try_from(wanted.replicas).unwrap_or(usize::MAX)
    } else {
        0
    };
    if replicas == 0 {
        return Placed::default();
    }
    let seed = seed(app);
    // Equal scores, which 64 bits all but rule out, go by id.
    let mut ranked: Vec<(u64, &Id)> = candidates.iter().map(|id| (seeded_score(seed, id), *id)).collect();
    let best_first = |one: &(u64, &Id), other: &(u64, &Id)| other.cmp(one);
    if ranked.len() > replicas {
        ranked.select_nth_unstable_by(replicas - 1, best_first);
        ranked.truncate(replicas);
    }
    ranked.sort_unstable_by(best_first);
    let missing = replicas - ranked.len();
    Placed {
        nodes: ranked.into_iter().map(|(_, id)| id.clone()).collect(),
        missing: u32::try_from(missing).unwrap_or(u32::MAX),
    }
}

/// One application with its placement, as the fingerprint sees it.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// The application's name.
    pub app: &'a str,
    /// What is wanted.
    pub wanted: &'a Wanted,
    /// Where it is placed, and the fence of that decision; `None` when it never was.
    pub placement: Option<(&'a [Id], u64)>,
}

/// Everything that a pass decides from, in 128 bits: applications in order of their names with their replicas, selectors,
/// flags and placements, and the live nodes with their labels. Equal fingerprints mean that a pass would write what is
/// written already.
pub fn fingerprint<'a>(standings: impl IntoIterator<Item = Standing<'a>>, live: &BTreeMap<Id, Labels>) -> u128 {
    let mut hash = Xxh3::new();
    // Every text goes with its length before it, so that no two inputs run together into the same bytes.
    let text = |hash: &mut Xxh3, text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    for Standing { app, wanted, placement } in standings {
        hash.update(&[1]);
        text(&mut hash, app);
        hash.update(&wanted.replicas.to_le_bytes());
        hash.update(&[u8::from(wanted.served)]);
        text(&mut hash, &wanted.selector.to_string());
        let Some((nodes, fence)) = placement else {
            hash.update(&[0]);
            continue;
        };
        hash.update(&[1]);
        hash.update(&fence.to_le_bytes());
        hash.update(&(nodes.len() as u64).to_le_bytes());
        nodes.iter().for_each(|node| text(&mut hash, node.as_str()));
    }
    for (id, labels) in live {
        hash.update(&[2]);
        text(&mut hash, id.as_str());
        hash.update(&(labels.len() as u64).to_le_bytes());
        for (key, value) in labels {
            text(&mut hash, key);
            text(&mut hash, value);
        }
    }
    hash.digest128()
}
