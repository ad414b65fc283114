//! `scafo operator`: the people and pipelines that may change the fleet. An operator is a keypair under an id, like a node,
//! and both share one keyspace.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::core::records::{IdentityKind, IdentityRecord, Key, Record};
use crate::error::{Code, Error, Field, Result};
use crate::registry::Desk;
use crate::state::StateDir;
use crate::state::identity::Identity;

pub mod init;
pub mod list;
pub mod revoke;

/// Where this operator's key is kept: stated, else in the user's own configuration directory.
fn key_file(config: &Config) -> Result<PathBuf> {
    if let Some(stated) = &config.operator_file.value {
        return Ok(stated.clone());
    }
    let folder = |name: &str, rest: &str| {
        let path = PathBuf::from(std::env::var_os(name).filter(|value| !value.is_empty())?).join(rest);
        path.is_absolute().then_some(path)
    };
    let home =
        folder("XDG_CONFIG_HOME", "scafo/operator.json").or_else(|| folder("HOME", ".config/scafo/operator.json"));
    home.ok_or_else(|| {
        Error::invalid("nothing says where the operator's key is kept")
            .field(Field::new("operator.file", "unset"))
            .help("name the file: --operator-file PATH, or SCAFO_OPERATOR_FILE")
    })
}

/// A key file's folder, as a place to read from and write to, and the file's name in it.
fn place(path: &Path) -> Result<(StateDir, String)> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) => Ok((StateDir::at(folder), name.to_owned())),
        _ => {
            Err(Error::invalid("the operator's key file has no name")
                .field(Field::new("operator.file", path.display())))
        }
    }
}

/// The operator whose key this user has, once the fleet knows it and has not revoked it.
pub(super) async fn acting(config: &Config, desk: &mut Desk) -> Result<Identity> {
    let path = key_file(config)?;
    let (folder, name) = place(&path)?;
    let Some(operator) = Identity::load_from(&folder, &name)? else {
        return Err(Error::new(Code::NotFound, "this user is no operator yet")
            .field(Field::new("operator.file", path.display()))
            .help("become one: scafo operator init ID"));
    };
    let held = desk.read(Key::Identity(operator.id().clone())).await?;
    let known = match held.map(|held| held.record) {
        Some(Record::Identity(identity)) => is_active(&identity) && identity.public_key.0 == operator.public_key(),
        _ => false,
    };
    if known {
        return Ok(operator);
    }
    Err(Error::new(
        Code::Unauthorized,
        format!("the fleet does not know this key as the operator {}", operator.id()),
    )
    .field(Field::new("operator.file", path.display()))
    .help("it was revoked, or belongs to another fleet: move the file away and run: scafo operator init ID"))
}

fn is_active(identity: &IdentityRecord) -> bool {
    identity.kind == IdentityKind::Operator && identity.revoked_at.is_none()
}
