//! The fleet as `scafo fleet nodes` tells it (design, section 13): one row per node, all judged against one clock.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use semver::Version;
use serde::Serialize;

use super::liveness::{self, State};
use super::records::{FreezeRecord, NodeRecord, Serving, Unreadable, Versions};
use super::types::{Id, Labels, UnixMs};

/// The whole listing. Its JSON form is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The one clock of all rows: fleet time.
    pub at: UnixMs,
    /// How many nodes there are.
    pub total: usize,
    /// How many of them are live.
    pub live: usize,
    /// The freeze that stands, if one does.
    pub freeze: Option<Freeze>,
    /// How many nodes run which version, newest first.
    pub versions: VersionCounts,
    /// Records that could not be read.
    pub unreadable: Vec<Unreadable>,
    /// The nodes, in order of id.
    pub nodes: Vec<Row>,
}

/// A freeze that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Freeze {
    /// Since when.
    pub since: UnixMs,
    /// By whom.
    pub by: String,
    /// Why.
    pub why: String,
}

/// Nodes per version, for each binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionCounts {
    /// Scafo's.
    pub scafo: Vec<VersionCount>,
    /// celld's.
    pub celld: Vec<VersionCount>,
}

/// How many nodes run one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionCount {
    /// The version; absent for nodes whose record does not say.
    pub version: Option<String>,
    /// How many nodes.
    pub nodes: usize,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The node's id.
    pub id: Id,
    /// Live, stale, draining or never.
    pub state: State,
    /// Heard from inside the window, whatever it said about leaving.
    pub answering: bool,
    /// The last beat.
    pub heartbeat_at: Option<UnixMs>,
    /// How long ago that was.
    pub age_ms: Option<u64>,
    /// When it said that it is leaving.
    pub draining_at: Option<UnixMs>,
    /// Where it is reached.
    pub address: IpAddr,
    /// The port of its API.
    pub api_port: u16,
    /// Its labels.
    pub labels: Labels,
    /// What it serves.
    pub serving: Vec<Serving>,
    /// What its daemon booted with.
    pub versions: Versions,
    /// How far its clock was off when it booted.
    pub clock_skew_ms: Option<i64>,
}

/// Lists `nodes` at the instant `at` of fleet time.
pub fn list<'a>(
    nodes: impl IntoIterator<Item = &'a NodeRecord>,
    freeze: Option<&FreezeRecord>,
    mut unreadable: Vec<Unreadable>,
    at: UnixMs,
    window_ms: u64,
) -> Listing {
    let mut rows: Vec<Row> = nodes.into_iter().map(|node| row(node, at, window_ms)).collect();
    rows.sort_by(|one, other| one.id.cmp(&other.id));
    unreadable.sort();
    let count = |of: fn(&Versions) -> Option<&String>| count_versions(rows.iter().map(|row| of(&row.versions)));
    Listing {
        at,
        total: rows.len(),
        live: rows.iter().filter(|row| row.state == State::Live).count(),
        freeze: freeze.filter(|freeze| !freeze.lifted).map(|freeze| Freeze {
            since: freeze.since,
            by: freeze.by.clone(),
            why: freeze.why.clone(),
        }),
        versions: VersionCounts {
            scafo: count(|versions| versions.scafo.as_ref()),
            celld: count(|versions| versions.celld.as_ref()),
        },
        unreadable,
        nodes: rows,
    }
}

fn row(node: &NodeRecord, at: UnixMs, window_ms: u64) -> Row {
    Row {
        id: node.id.clone(),
        state: liveness::state(node, at, window_ms),
        answering: liveness::answering(node, at, window_ms),
        heartbeat_at: node.heartbeat_at,
        age_ms: liveness::age_ms(node, at),
        draining_at: node.draining_at,
        address: node.address,
        api_port: node.api_port,
        labels: node.labels.clone(),
        serving: node.serving.clone(),
        versions: node.versions.clone(),
        clock_skew_ms: node.clock_skew_ms,
    }
}

/// Newest first by semantic version; versions that are none come after those, and unreported ones last.
fn count_versions<'a>(versions: impl Iterator<Item = Option<&'a String>>) -> Vec<VersionCount> {
    let mut counts: BTreeMap<Option<&String>, usize> = BTreeMap::new();
    for version in versions {
        *counts.entry(version).or_default() += 1;
    }
    let mut counts: Vec<VersionCount> = counts
        .into_iter()
        .map(|(version, nodes)| VersionCount {
            version: version.cloned(),
            nodes,
        })
        .collect();
    counts.sort_by_key(|count| {
        let parsed = count.version.as_ref().and_then(|version| Version::parse(version).ok());
        Reverse((count.version.is_some(), parsed, count.version.clone()))
    });
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::liveness::tests::node;

    fn versioned(id: &str, celld: Option<&str>) -> NodeRecord {
        let mut node = node(id, Some(100_000), None);
        node.versions.celld = celld.map(Into::into);
        node
    }

    #[test]
    fn versions_are_counted_newest_first_and_unreported_last() {
        let nodes = [
            versioned("a", Some("0.6.2")),
            versioned("b", None),
            versioned("c", Some("0.10.0")),
            versioned("d", Some("0.6.2")),
            versioned("e", Some("odd")),
            versioned("f", Some("0.6.2-rc.1")),
        ];
        let listing = list(&nodes, None, Vec::new(), UnixMs(100_000), 90_000);
        let counts: Vec<_> = listing
            .versions
            .celld
            .iter()
            .map(|count| (count.version.as_deref(), count.nodes))
            .collect();
        assert_eq!(
            counts,
            [
                (Some("0.10.0"), 1),
                (Some("0.6.2"), 2),
                (Some("0.6.2-rc.1"), 1),
                (Some("odd"), 1),
                (None, 1)
            ]
        );
    }

    #[test]
    fn rows_are_in_order_of_id_and_judged_by_one_clock() {
        let nodes = [
            node("b", Some(1_000), None),
            node("a", Some(90_000), None),
            node("c", None, None),
        ];
        let listing = list(&nodes, None, Vec::new(), UnixMs(100_000), 90_000);
        let rows: Vec<_> = listing.nodes.iter().map(|row| (row.id.as_str(), row.state)).collect();
        assert_eq!(rows, [("a", State::Live), ("b", State::Stale), ("c", State::Never)]);
        assert_eq!((listing.total, listing.live), (3, 1));
    }

    #[test]
    fn a_lifted_freeze_does_not_stand() {
        let freeze = FreezeRecord {
            since: UnixMs(5),
            by: "ana".into(),
            why: "sale".into(),
            lifted: true,
        };
        assert_eq!(list([], Some(&freeze), Vec::new(), UnixMs(9), 90_000).freeze, None);
        let freeze = FreezeRecord {
            lifted: false,
            ..freeze
        };
        assert_eq!(
            list([], Some(&freeze), Vec::new(), UnixMs(9), 90_000)
                .freeze
                .map(|freeze| freeze.by),
            Some("ana".into())
        );
    }
}
