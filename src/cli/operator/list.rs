//! `scafo operator list`: who may change the fleet, and who no longer may.

use serde::Serialize;

use crate::cli::output::{self, Table};
use crate::config::Config;
use crate::core::records::{IdentityKind, IdentityRecord, Unreadable};
use crate::core::types::{Id, UnixMs};
use crate::error::Result;
use crate::host::clock::{Clock, SystemClock};
use crate::registry;

/// The operators. The JSON form is stable.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing {
    operators: Vec<Row>,
    unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: Id,
    state: &'static str,
    created_at: UnixMs,
    revoked_at: Option<UnixMs>,
    public_key: String,
}

/// Prints them.
pub async fn run(config: &Config, json: bool) -> Result<()> {
    let bucket = crate::cli::fleet::open(config)?;
    let read = registry::read_identities(bucket.as_ref()).await;
    let (identities, unreadable) = read.map_err(|error| registry::refusal(&bucket.name(), &error))?;
    let operators = identities
        .into_iter()
        .filter(|(_, identity)| identity.kind == IdentityKind::Operator);
    let listing = Listing {
        operators: operators.map(row).collect(),
        unreadable,
    };
    if json {
        output::print_json(&listing)
    } else {
        output::print(&render(&listing, SystemClock.now().wall))
    }
}

fn row((id, identity): (Id, IdentityRecord)) -> Row {
    Row {
        id,
        state: if identity.revoked_at.is_some() {
            "revoked"
        } else {
            "active"
        },
        created_at: identity.created_at,
        revoked_at: identity.revoked_at,
        public_key: identity.public_key.0,
    }
}

fn render(listing: &Listing, now: UnixMs) -> String {
    let mut text = String::new();
    for record in &listing.unreadable {
        text.push_str(&format!("unreadable: {}: {}\n", record.key, record.reason));
    }
    if listing.operators.is_empty() {
        return text + "no operators yet; become one: scafo operator init ID\n";
    }
    let mut table = Table::new(["OPERATOR", "STATE", "SINCE", "PUBLIC KEY"]);
    for row in &listing.operators {
        let since = row.revoked_at.unwrap_or(row.created_at);
        let age = output::age(now.0.saturating_sub(since.0));
        table.row([row.id.to_string(), row.state.to_owned(), age, row.public_key.clone()]);
    }
    text + &table.to_string()
}
