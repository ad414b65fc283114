//! `scafo fleet remove`: takes a machine out of the fleet for good, lost or stolen ones too. Its key is revoked, so every
//! other node forgets it as a peer, its own daemon stops at its next look at the records, and its id and its tunnel
//! address can be had again.

use crate::cli::{operator, output};
use crate::config::Config;
use crate::core::guards;
use crate::core::records::{IdentityKind, Key, Record};
use crate::core::types::{Id, UnixMs};
use crate::error::{Code, Error, Field, Result};
use crate::registry::Desk;

/// Removes the node `id`. Removed already is no error.
pub async fn run(config: &Config, id: &Id) -> Result<()> {
    let mut desk = Desk::new(super::open(config)?);
    operator::acting(config, &mut desk).await?;
    desk.change(Key::Identity(id.clone()), |standing, now| removed(id, standing, now))
        .await?;
    desk.hint("identities").await;
    output::print(&format!(
        "{id} is removed: its key is revoked, its peers forget it within moments, and its id and tunnel address are free\n"
    ))
}

fn removed(id: &Id, standing: Option<&Record>, now: UnixMs) -> Result<Option<Record>> {
    match standing {
        Some(Record::Identity(identity)) if identity.kind == IdentityKind::Operator => {
            Err(Error::invalid(format!("{id} is an operator and no node"))
                .field(Field::new("id", id))
                .help(format!("to take an operator's right away: scafo operator revoke {id}")))
        }
        Some(Record::Identity(identity)) => Ok(guards::revoke(identity, now).map(Record::Identity)),
        _ => Err(Error::new(Code::NotFound, format!("there is no node {id}"))
            .field(Field::new("id", id))
            .help("see who there is: scafo fleet nodes")),
    }
}
