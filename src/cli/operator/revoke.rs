//! `scafo operator revoke`: takes an operator's right away. Overwritten, never deleted: a revoked key stays out for good.

use crate::cli::output;
use crate::config::Config;
use crate::core::guards;
use crate::core::records::{IdentityKind, Key, Record};
use crate::core::types::{Id, UnixMs};
use crate::error::{Code, Error, Field, Result};
use crate::registry::Desk;

/// Revokes `id`. Revoked already is no error.
pub async fn run(config: &Config, id: &Id) -> Result<()> {
    let mut desk = Desk::new(crate::cli::fleet::open(config)?);
    // Only an operator may; also of itself, which is how one leaves.
    super::acting(config, &mut desk).await?;
    desk.change(Key::Identity(id.clone()), |standing, now| revoked(id, standing, now))
        .await?;
    desk.hint("identities").await;
    output::print(&format!("{id} is no operator any more\n"))
}

fn revoked(id: &Id, standing: Option<&Record>, now: UnixMs) -> Result<Option<Record>> {
    let Some(Record::Identity(identity)) = standing else {
        return Err(Error::new(Code::NotFound, format!("there is no operator {id}"))
            .field(Field::new("id", id))
            .help("see who there is: scafo operator list"));
    };
    if identity.kind == IdentityKind::Node {
        return Err(Error::invalid(format!("{id} is a node and no operator")).field(Field::new("id", id)));
    }
    Ok(guards::revoke(identity, now).map(Record::Identity))
}
