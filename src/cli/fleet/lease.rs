//! `scafo fleet lease`: who coordinates the fleet, read from the bucket alone.

use serde::Serialize;

use crate::cli::output;
use crate::config::Config;
use crate::core::types::UnixMs;
use crate::error::Result;
use crate::registry;

/// The lease as a reader sees it. Whether its holder may act is for the holder alone to say; the age is by the store's own
/// clock.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    state: &'static str,
    holder: Option<String>,
    fence: Option<u64>,
    ttl_ms: Option<u64>,
    renewed_at: Option<UnixMs>,
    age_ms: Option<u64>,
}

/// Prints the lease.
pub async fn run(config: &Config, json: bool) -> Result<()> {
    let bucket = super::open(config)?;
    let read = registry::read_lease(bucket.as_ref()).await;
    let read = read.map_err(|error| registry::refusal(&bucket.name(), &error))?;
    let shown = match read {
        None => Shown {
            state: "none",
            holder: None,
            fence: None,
            ttl_ms: None,
            renewed_at: None,
            age_ms: None,
        },
        Some((lease, age_ms)) => Shown {
            state: match (lease.released, age_ms) {
                (true, _) => "released",
                (false, Some(age)) if age > lease.ttl_ms => "expired",
                (false, _) => "held",
            },
            holder: Some(lease.holder.to_string()),
            fence: Some(lease.fence),
            ttl_ms: Some(lease.ttl_ms),
            renewed_at: Some(lease.renewed_at),
            age_ms,
        },
    };
    if json {
        output::print_json(&shown)
    } else {
        output::print(&render(&shown))
    }
}

fn render(shown: &Shown) -> String {
    let (Some(holder), Some(fence), Some(ttl)) = (&shown.holder, shown.fence, shown.ttl_ms) else {
        return "nobody has held the coordinator lease yet\n".to_owned();
    };
    let age = shown.age_ms.map_or_else(|| "an unknown time".to_owned(), output::age);
    match shown.state {
        "held" => format!(
            "held by {holder}, fence {fence}, renewed {age} ago, ttl {}\n",
            output::age(ttl)
        ),
        "released" => format!("released by {holder} {age} ago, fence {fence}; the next live node takes it\n"),
        _ => format!(
            "expired: {holder} held it at fence {fence} and has not renewed it for {age}, ttl {}\n",
            output::age(ttl)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_this() {
        let shown = |state| Shown {
            state,
            holder: Some("n-1".into()),
            fence: Some(12),
            ttl_ms: Some(90_000),
            renewed_at: Some(UnixMs(0)),
            age_ms: Some(14_000),
        };
        let all: Vec<String> = ["held", "released", "expired"]
            .into_iter()
            .map(|state| render(&shown(state)))
            .collect();
        insta::assert_snapshot!(all.concat(), @"
        held by n-1, fence 12, renewed 14s ago, ttl 1m30s
        released by n-1 14s ago, fence 12; the next live node takes it
        expired: n-1 held it at fence 12 and has not renewed it for 14s, ttl 1m30s
        ");
    }
}
