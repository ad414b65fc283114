//! `scafo operator init`: makes the key and claims the id.

use serde::Serialize;

use crate::cli::output;
use crate::config::Config;
use crate::core::guards::{self, Verdict};
use crate::core::records::{IdentityKind, IdentityRecord, Key, PublicKeyText, Record};
use crate::core::types::{Id, UnixMs};
use crate::error::{Error, Field, Result};
use crate::host::files;
use crate::registry::Desk;
use crate::state::identity::Identity;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    id: String,
    public_key: String,
    file: String,
}

/// Makes the key, unless it is there, and claims the id for it. Asked again after a failure half way, it goes on.
pub async fn run(config: &Config, id: &Id, json: bool) -> Result<()> {
    let path = super::key_file(config)?;
    let (folder, name) = super::place(&path)?;
    let mut desk = Desk::new(crate::cli::fleet::open(config)?);
    let operator = match Identity::load_from(&folder, &name)? {
        Some(there) if there.id() == id => there,
        Some(there) => {
            return Err(
                Error::conflict(format!("this user is the operator {} already", there.id()))
                    .field(Field::new("operator.file", path.display()))
                    .help("name another file for another operator: --operator-file PATH"),
            );
        }
        None => {
            // Looked at before a key is made, so that a taken id leaves no file behind.
            let held = desk.read(Key::Identity(id.clone())).await?;
            claimable(id, held.as_ref().map(|held| &held.record), None)?;
            files::create_private_dir(folder.path()).map_err(|error| {
                Error::invalid(format!("the folder of the operator's key cannot be made: {error}"))
                    .field(Field::new("operator.file", path.display()))
            })?;
            Identity::create(&folder, &name, id)?
        }
    };
    let key = PublicKeyText(operator.public_key());
    desk.change(Key::Identity(id.clone()), |standing, now| {
        claim(id, standing, &key, now)
    })
    .await?;
    desk.hint("identities").await;
    let made = Made {
        id: id.to_string(),
        public_key: operator.public_key(),
        file: path.display().to_string(),
    };
    if json {
        return output::print_json(&made);
    }
    output::print(&format!(
        "operator    {}\npublic key  {}\nkept in     {}\n",
        made.id, made.public_key, made.file
    ))
}

/// The identity that claims the id; `None` when it is claimed already.
fn claim(id: &Id, standing: Option<&Record>, key: &PublicKeyText, now: UnixMs) -> Result<Option<Record>> {
    let identity = IdentityRecord {
        kind: IdentityKind::Operator,
        public_key: key.clone(),
        created_at: now,
        revoked_at: None,
        revoked_keys: Vec::new(),
    };
    match (claimable(id, standing, Some(key))?, standing) {
        (Verdict::Ours, _) => Ok(None),
        (Verdict::Reclaim, Some(Record::Identity(held))) => Ok(Some(Record::Identity(guards::reclaim(held, identity)))),
        _ => Ok(Some(Record::Identity(identity))),
    }
}

/// Whether the id can be had, by this key or, with none, by a new one.
fn claimable(id: &Id, standing: Option<&Record>, key: Option<&PublicKeyText>) -> Result<Verdict> {
    let held = match standing {
        Some(Record::Identity(held)) => Some(held),
        _ => None,
    };
    let new = PublicKeyText(String::new());
    let refused = |message: String, help: &str| Err(Error::conflict(message).field(Field::new("id", id)).help(help));
    match guards::judge(held, IdentityKind::Operator, key.unwrap_or(&new)) {
        Verdict::HeldByNode => refused(
            format!("the id {id} belongs to a node"),
            "nodes and operators share one keyspace: choose another id",
        ),
        Verdict::HeldByOperator => refused(
            format!("the id {id} belongs to another operator"),
            "choose another id, or have that one revoked first: scafo operator revoke ID",
        ),
        Verdict::Revoked => refused(
            format!("the key of the operator {id} was revoked"),
            "move the key file away and run this again: a revoked key never comes back, a new one may take the id",
        ),
        verdict @ (Verdict::Claim | Verdict::Ours | Verdict::Reclaim) => Ok(verdict),
    }
}
