//! `scafo fleet freeze` and `unfreeze`: while a freeze stands, nobody deploys or changes applications.

use crate::cli::{operator, output};
use crate::config::Config;
use crate::core::records::{FreezeRecord, Key, Record};
use crate::core::types::UnixMs;
use crate::error::{Code, Error, Field, Result};
use crate::registry::Desk;

/// The longest reason; it is read in a listing's second line.
const LONGEST_REASON: usize = 200;

/// Freezes, and says why.
pub async fn freeze(config: &Config, why: &str) -> Result<()> {
    let why = why.trim();
    let good = !why.is_empty() && why.chars().count() <= LONGEST_REASON && !why.chars().any(char::is_control);
    if !good {
        return Err(
            Error::invalid(format!("the reason is one line of up to {LONGEST_REASON} characters"))
                .field(Field::new("why", why).from("--why")),
        );
    }
    let mut desk = Desk::new(super::open(config)?);
    let by = operator::acting(config, &mut desk).await?.id().to_string();
    desk.change(Key::Freeze, |standing, now| match standing {
        Some(Record::Freeze(freeze)) if !freeze.lifted => Err(stands(freeze, now)),
        _ => Ok(Some(Record::Freeze(FreezeRecord {
            since: now,
            by: by.clone(),
            why: why.to_owned(),
            lifted: false,
        }))),
    })
    .await?;
    desk.hint("freeze").await;
    output::print(&format!("frozen by {by}: {why}\n"))
}

/// Lifts the freeze that stands.
pub async fn unfreeze(config: &Config) -> Result<()> {
    let mut desk = Desk::new(super::open(config)?);
    operator::acting(config, &mut desk).await?;
    desk.change(Key::Freeze, |standing, _| match standing {
        Some(Record::Freeze(freeze)) if !freeze.lifted => Ok(Some(Record::Freeze(FreezeRecord {
            lifted: true,
            ..freeze.clone()
        }))),
        _ => Err(Error::new(Code::NotFound, "no freeze stands")),
    })
    .await?;
    desk.hint("freeze").await;
    output::print("the freeze is lifted\n")
}

fn stands(freeze: &FreezeRecord, now: UnixMs) -> Error {
    let age = output::age(now.0.saturating_sub(freeze.since.0));
    Error::new(
        Code::Frozen,
        format!("a freeze stands for {age}, by {}: {}", freeze.by, freeze.why),
    )
    .help("lift it first: scafo fleet unfreeze")
}
