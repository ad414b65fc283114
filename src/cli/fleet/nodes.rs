//! `scafo fleet nodes`: the fleet from the bucket alone, one row per node, one clock for all of them.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use crate::bucket::Bucket;
use crate::cli::output::{self, Table};
use crate::config::Config;
use crate::core::fleet_time::FleetTime;
use crate::core::listing::{self, Listing, Row, VersionCount};
use crate::core::liveness::State;
use crate::core::types::Labels;
use crate::error::Result;
use crate::host::clock::{Clock, SystemClock};
use crate::registry;

/// How often `--watch` reads again.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// A clock further off than this is shown.
const SHOWN_SKEW_MS: u64 = crate::core::fleet_time::SKEW_WARNING_MS;

/// Prints the listing, again and again with `watch`.
pub async fn run(config: &Config, json: bool, watch: bool) -> Result<()> {
    let bucket = super::open(config)?;
    let window_ms = config.registry.liveness_window_ms.value;
    loop {
        let listing = read(bucket.as_ref(), window_ms).await?;
        if json {
            output::print_json(&listing)?;
        } else {
            if watch {
                output::clear_screen()?;
            }
            output::print(&render(&listing))?;
        }
        if !watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

async fn read(bucket: &dyn Bucket, window_ms: u64) -> Result<Listing> {
    let read = registry::read_nodes(bucket, &SystemClock)
        .await
        .map_err(|error| registry::refusal(&bucket.name(), &error))?;
    let mut time = FleetTime::default();
    read.samples.into_iter().for_each(|sample| time.observe(sample));
    let at = time.at(SystemClock.now());
    Ok(listing::list(
        &read.nodes,
        read.freeze.as_ref(),
        read.unreadable,
        at,
        window_ms,
    ))
}

/// The listing for people. Styles are written plainly; the printer strips them where nobody can see them.
pub fn render(listing: &Listing) -> String {
    let mut text = header(listing);
    if listing.nodes.is_empty() {
        text.push_str("no nodes yet; on each machine: scafo wg init, then scafo sail\n");
        return text;
    }
    let mut table = Table::new(["ID", "STATE", "BEAT", "ADDRESS", "LABELS", "SERVING", "SCAFO", "CELLD"]);
    for row in &listing.nodes {
        table.row(cells(row));
    }
    text.push('\n');
    text.push_str(&table.to_string());
    text
}

fn header(listing: &Listing) -> String {
    let nodes = if listing.total == 1 { "node" } else { "nodes" };
    let mut lines = vec![format!("{} {nodes}, {} live", listing.total, listing.live)];
    if let Some(freeze) = &listing.freeze {
        let age = output::age(listing.at.0.saturating_sub(freeze.since.0));
        lines.push(format!("frozen for {age} by {}: {}", freeze.by, freeze.why));
    }
    for (binary, counts) in [("scafo", &listing.versions.scafo), ("celld", &listing.versions.celld)] {
        if !counts.is_empty() {
            lines.push(format!("{binary}: {}", versions(counts)));
        }
    }
    for record in &listing.unreadable {
        lines.push(format!("unreadable: {}: {}", record.key, record.reason));
    }
    for row in &listing.nodes {
        if let Some(skew) = row.clock_skew_ms.filter(|skew| skew.unsigned_abs() > SHOWN_SKEW_MS) {
            let side = if skew > 0 { "ahead" } else { "behind" };
            lines.push(format!(
                "clock: {} was {} s {side} when it booted",
                row.id,
                skew.unsigned_abs() / 1_000
            ));
        }
    }
    lines.join("\n") + "\n"
}

/// `0.6.2 on 2 nodes, 0.6.1 on 1, unreported on 1`: the noun stands once.
fn versions(counts: &[VersionCount]) -> String {
    let mut parts = Vec::new();
    for (index, count) in counts.iter().enumerate() {
        let version = count.version.as_deref().unwrap_or("unreported");
        let noun = match (index, count.nodes) {
            (0, 1) => " node",
            (0, _) => " nodes",
            _ => "",
        };
        parts.push(format!("{version} on {}{noun}", count.nodes));
    }
    parts.join(", ")
}

fn cells(row: &Row) -> [String; 8] {
    let style = match row.state {
        State::Live => Style::new().fg_color(Some(AnsiColor::Green.into())),
        State::Stale => Style::new().fg_color(Some(AnsiColor::Red.into())),
        State::Draining => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        State::Never => Style::new().dimmed(),
    };
    let none = || "-".to_owned();
    let serving: Vec<&str> = row.serving.iter().map(|serving| serving.app.as_str()).collect();
    [
        row.id.to_string(),
        format!("{style}{}{style:#}", row.state.name()),
        row.age_ms.map_or_else(none, output::age),
        std::net::SocketAddr::new(row.address, row.api_port).to_string(),
        or_dash(labels(&row.labels)),
        or_dash(serving.join(",")),
        row.versions.scafo.clone().unwrap_or_else(none),
        row.versions.celld.clone().unwrap_or_else(none),
    ]
}

fn labels(labels: &Labels) -> String {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::liveness::tests::node;
    use crate::core::records::{FreezeRecord, Unreadable};
    use crate::core::types::UnixMs;

    fn listing() -> Listing {
        let now = 1_700_000_000_000;
        let mut nodes = vec![
            node("ams-1", Some(now - 4_000), None),
            node("ams-2", Some(now - 70_000), Some(now - 1_000)),
            node("fra-1", Some(now - 5_400_000), None),
            node("fra-2", None, None),
        ];
        for (node, celld) in nodes.iter_mut().zip(["0.6.2", "0.6.1", "0.6.2"]) {
            node.versions.celld = Some(celld.into());
            node.versions.scafo = Some("0.1.0".into());
        }
        nodes[0].labels = [
            ("tier".to_owned(), "fast".to_owned()),
            ("region".to_owned(), "eu-west-1".to_owned()),
        ]
        .into();
        nodes[2].clock_skew_ms = Some(-61_000);
        let freeze = FreezeRecord {
            since: UnixMs(now - 7_200_000),
            by: "ana".into(),
            why: "the sale".into(),
            lifted: false,
        };
        let unreadable = vec![Unreadable {
            key: "_scafo/nodes/odd.json".into(),
            reason: "apiPort: invalid type".into(),
        }];
        listing::list(&nodes, Some(&freeze), unreadable, UnixMs(now), 90_000)
    }

    #[test]
    fn people_read_this() {
        insta::assert_snapshot!(anstream::adapter::strip_str(&render(&listing())).to_string());
    }

    #[test]
    fn programs_read_this() {
        insta::assert_json_snapshot!(listing());
    }

    #[test]
    fn an_empty_fleet_says_what_to_do() {
        let empty = listing::list([], None, Vec::new(), UnixMs(0), 90_000);
        insta::assert_snapshot!(render(&empty));
    }
}
