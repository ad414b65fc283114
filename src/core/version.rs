//! celld versions: what `celld --version` prints, and the oldest that is supported (seed, "Registration"; `celld.md`,
//! part 1).

use std::fmt;

use semver::Version;

/// The oldest celld that Scafo runs.
pub const OLDEST: Version = Version::new(0, 5, 0);

/// What `celld --version` says of itself. Forks keep their own parts, which are shown as they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CelldVersion(Version);

/// Why a celld is not one that Scafo runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionFault {
    /// It printed nothing.
    Silent,
    /// It printed something that is no version of celld; the first line of it.
    NotCelld(String),
    /// It is older than [`OLDEST`]. A pre-release of the oldest is older than it.
    TooOld(CelldVersion),
}

impl CelldVersion {
    /// Reads the output of `celld --version`: the word `celld`, a semantic version without a `v`, and whatever follows.
    pub fn parse(output: &str) -> Result<Self, VersionFault> {
        let line = output
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .ok_or(VersionFault::Silent)?;
        let not_celld = || VersionFault::NotCelld(line.chars().take(80).collect());
        let mut words = line.split_whitespace();
        if words.next() != Some("celld") {
            return Err(not_celld());
        }
        let version = words
            .next()
            .and_then(|version| Version::parse(version).ok())
            .ok_or_else(not_celld)?;
        let version = Self(version);
        // Build metadata says nothing about age, and semver's order of precedence leaves it out.
        if version.0.cmp_precedence(&OLDEST).is_lt() {
            Err(VersionFault::TooOld(version))
        } else {
            Ok(version)
        }
    }
}

impl fmt::Display for CelldVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn supported_versions_are_read_and_shown_whole() {
        for (output, shown) in [
            ("celld 0.6.2\n", "0.6.2"),
            ("celld 0.5.0", "0.5.0"),
            ("\n  celld 0.6.1 (debug)\nmore\n", "0.6.1"),
            ("celld 0.5.1-ewhauser.1", "0.5.1-ewhauser.1"),
            ("celld 0.5.0+build.7", "0.5.0+build.7"),
            ("celld 1.0.0-rc.1", "1.0.0-rc.1"),
        ] {
            assert_eq!(
                CelldVersion::parse(output).map(|version| version.to_string()),
                Ok(shown.to_owned()),
                "{output}"
            );
        }
    }

    #[test]
    fn older_ones_are_named() {
        for old in ["0.4.1", "0.3.0", "0.5.0-rc.1", "0.5.0-alpha+x"] {
            let Err(VersionFault::TooOld(version)) = CelldVersion::parse(&format!("celld {old}")) else {
                panic!("{old}")
            };
            assert_eq!(version.to_string(), old);
        }
    }

    #[test]
    fn what_is_no_version_of_celld_is_said() {
        assert_eq!(CelldVersion::parse(" \n\n"), Err(VersionFault::Silent));
        for output in [
            "celld",
            "celld v0.6.2",
            "celldx 0.6.2",
            "0.6.2",
            "deno 2.0.0",
            "celld 0.6",
        ] {
            assert_eq!(
                CelldVersion::parse(output),
                Err(VersionFault::NotCelld(output.into())),
                "{output}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_output_makes_it_panic(output in "\\PC*") {
            let _ = CelldVersion::parse(&output);
        }
    }
}
