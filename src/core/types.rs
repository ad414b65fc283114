//! The words of the core: ids, keys, instants and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch: a wall clock's instant, which may jump either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

/// Milliseconds since the machine started, suspends included: never jumps, means nothing on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootMs(pub u64);

impl BootMs {
    /// This instant, `ms` milliseconds later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks of one machine, sampled together once per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, as this machine has it.
    pub wall: UnixMs,
    /// The boot clock; deadlines are counted on it.
    pub boot: BootMs,
}

/// The id of a node or an operator; both are in one keyspace. 1 to 63 of `a-z`, `0-9` and `-`, with a letter or digit
/// at either end (design, section 3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

/// Why a text is no [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidId;

impl std::error::Error for InvalidId {}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 1 to 63 of a-z, 0-9 and -, with a letter or digit at either end")
    }
}

impl Id {
    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Id {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let bytes = text.as_bytes();
        let ends_well = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        let valid = bytes.len() <= 63
            && bytes.iter().all(|byte| inner(*byte))
            && ends_well(bytes.first())
            && ends_well(bytes.last());
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId)
        }
    }
}

impl TryFrom<String> for Id {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Node labels, in order of key.
pub type Labels = BTreeMap<String, String>;

/// By what network a node can be reached from beyond itself (design, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Not at all.
    Loopback,
    /// Through the mesh that Scafo builds.
    Wireguard,
    /// Through a private network that the operator vouches for.
    Private,
}

impl Transport {
    /// The name in the configuration and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Wireguard => "wireguard",
            Self::Private => "private",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = InvalidTransport;

    fn from_str(text: &str) -> Result<Self, InvalidTransport> {
        [Self::Loopback, Self::Wireguard, Self::Private]
            .into_iter()
            .find(|transport| transport.name() == text)
            .ok_or(InvalidTransport)
    }
}

/// Why a text is no [`Transport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransport;

impl fmt::Display for InvalidTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transport is loopback, wireguard or private")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_to_their_letters_and_ends() {
        for good in ["a", "0", "n-abc", "a--b", &"x".repeat(63)] {
            assert!(good.parse::<Id>().is_ok(), "{good}");
        }
        for bad in ["", "-", "a-", "-a", "A", "a.b", "a/b", "ä", &"x".repeat(64)] {
            assert_eq!(bad.parse::<Id>(), Err(InvalidId), "{bad}");
        }
    }
}
