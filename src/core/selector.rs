//! Label selectors: which nodes an application may be placed on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::types::Labels;

/// One condition on a node's labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Requirement {
    /// `key=value`.
    Is(String, String),
    /// `key!=value`; a node without the label fulfils it.
    IsNot(String, String),
    /// `key`.
    Has(String),
    /// `!key`.
    HasNot(String),
}

/// Conditions that must all hold; none at all holds everywhere. Written with commas, for example `tier=fast,!spot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector(Vec<Requirement>);

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSelector(String);

impl fmt::Display for InvalidSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no condition; one is key=value, key!=value, key or !key",
            self.0
        )
    }
}

impl Selector {
    /// Whether a node with these labels is meant.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Is(key, value) => labels.get(key) == Some(value),
            Requirement::IsNot(key, value) => labels.get(key) != Some(value),
            Requirement::Has(key) => labels.contains_key(key),
            Requirement::HasNot(key) => !labels.contains_key(key),
        })
    }
}

/// What a label's key and value are made of.
fn is_word(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    text.len() <= 63 && text.bytes().all(good)
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let mut requirements = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || InvalidSelector(part.to_owned());
            let requirement = if let Some((key, value)) = part.split_once("!=") {
                Requirement::IsNot(key.to_owned(), value.to_owned())
            } else if let Some((key, value)) = part.split_once('=') {
                Requirement::Is(key.to_owned(), value.to_owned())
            } else if let Some(key) = part.strip_prefix('!') {
                Requirement::HasNot(key.to_owned())
            } else {
                Requirement::Has(part.to_owned())
            };
            let (Requirement::Is(key, value) | Requirement::IsNot(key, value)) = &requirement else {
                let (Requirement::Has(key) | Requirement::HasNot(key)) = &requirement else {
                    return Err(wrong());
                };
                if key.is_empty() || !is_word(key) {
                    return Err(wrong());
                }
                requirements.push(requirement);
                continue;
            };
            if key.is_empty() || !is_word(key) || !is_word(value) {
                return Err(wrong());
            }
            requirements.push(requirement);
        }
        // In one order, so that equal selectors are equal texts.
        requirements.sort();
        requirements.dedup();
        Ok(Self(requirements))
    }
}

impl TryFrom<String> for Selector {
    type Error = InvalidSelector;

    fn try_from(text: String) -> Result<Self, InvalidSelector> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Is(key, value) => write!(f, "{key}={value}")?,
                Requirement::IsNot(key, value) => write!(f, "{key}!={value}")?,
                Requirement::Has(key) => f.write_str(key)?,
                Requirement::HasNot(key) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        selector.parse::<Selector>().unwrap().matches(&labels)
    }

    #[test]
    fn every_condition_has_to_hold() {
        let fast = [("tier", "fast"), ("region", "eu")];
        for selector in [
            "",
            "tier=fast",
            "tier=fast, region=eu",
            "tier",
            "!spot",
            "tier!=slow",
            "spot!=yes",
        ] {
            assert!(matches(selector, &fast), "{selector}");
        }
        for selector in [
            "tier=slow",
            "tier=fast,region=us",
            "spot",
            "!tier",
            "tier!=fast",
            "tier=",
        ] {
            assert!(!matches(selector, &fast), "{selector}");
        }
        assert!(matches("tier=", &[("tier", "")]));
    }

    #[test]
    fn what_is_no_condition_is_named() {
        for bad in ["=x", "!", "!=x", "a b", "a=b c", "a=ä", "a==b", "a!=!b"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
        let error = "tier=fast,a b".parse::<Selector>().unwrap_err().to_string();
        assert_eq!(
            error,
            r#""a b" is no condition; one is key=value, key!=value, key or !key"#
        );
    }

    proptest! {
        #[test]
        fn a_selector_is_shown_as_it_is_read(text in "[a-c!=, ]{0,16}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
            }
        }
    }
}
