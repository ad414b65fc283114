//! celld versions: reading the line that `celld --version` prints, and the oldest version that Scafo runs.
//!
//! It knows nothing of processes; `runtime::version_probe` runs the binary and hands its output to [`CelldVersion::parse`].

use std::fmt;

use semver::Version;

/// The oldest celld that Scafo runs: the first with the peer protocol, health path and `/state` that it relies on.
pub const OLDEST_SUPPORTED: Version = Version::new(0, 5, 0);

/// What the binary calls itself in the first field of its version line.
const PROGRAM: &str = "celld";

/// How much of an unexpected word is repeated to the reader, in characters.
const SHOWN: usize = 40;

/// The version of a celld binary as it reported it, with the pre-release part by which forks tell their builds apart
/// (`0.5.1-fork.2`) and any build metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CelldVersion(Version);

/// Why a version line is not one, or names a celld that is too old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionFault {
    /// Nothing but white space.
    Empty,
    /// Another program: its first word.
    OtherProgram(String),
    /// The right program, and no word after its name.
    NoVersion,
    /// The second word is no semantic version.
    NotSemantic(String),
    /// A version older than [`OLDEST_SUPPORTED`].
    TooOld(CelldVersion),
}

impl CelldVersion {
    /// Reads the first two words of `output`: `celld` and a semantic version without a `v`. What follows (` (debug)` of
    /// a debug build, further lines) is ignored.
    pub fn parse(output: &str) -> Result<Self, VersionFault> {
        let mut words = output.split_whitespace();
        let program = words.next().ok_or(VersionFault::Empty)?;
        if program != PROGRAM {
            return Err(VersionFault::OtherProgram(shown(program)));
        }
        let word = words.next().ok_or(VersionFault::NoVersion)?;
        Version::parse(word)
            .map(Self)
            .map_err(|_| VersionFault::NotSemantic(shown(word)))
    }

    /// [`Self::parse`], and refuses what Scafo does not run.
    pub fn supported(output: &str) -> Result<Self, VersionFault> {
        let version = Self::parse(output)?;
        if version.is_supported() {
            Ok(version)
        } else {
            Err(VersionFault::TooOld(version))
        }
    }

    /// Whether Scafo runs this version. Semantic order decides, so a pre-release of 0.5.0 is too old and one of 0.5.1
    /// is not; build metadata does not count.
    pub fn is_supported(&self) -> bool {
        self.0.cmp_precedence(&OLDEST_SUPPORTED).is_ge()
    }

    /// The version itself, for decisions that differ by release.
    pub fn semantic(&self) -> &Version {
        &self.0
    }
}

impl fmt::Display for CelldVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A clause that completes "the binary ...", for people.
impl fmt::Display for VersionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("printed nothing"),
            Self::OtherProgram(word) => write!(f, "printed `{word}` where `{PROGRAM} VERSION` was expected"),
            Self::NoVersion => write!(f, "printed `{PROGRAM}` and no version"),
            Self::NotSemantic(word) => write!(f, "printed `{word}` where a version such as `0.6.2` was expected"),
            Self::TooOld(version) => {
                write!(f, "is celld {version}; {OLDEST_SUPPORTED} or newer is needed")
            }
        }
    }
}

impl std::error::Error for VersionFault {}

/// A word that a stranger printed, short and free of control characters.
fn shown(word: &str) -> String {
    let mut shown: String = word.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if word.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn supported(line: &str) -> Result<String, VersionFault> {
        CelldVersion::supported(line).map(|version| version.to_string())
    }

    fn too_old(version: &str) -> VersionFault {
        VersionFault::TooOld(CelldVersion(Version::parse(version).unwrap()))
    }

    #[test]
    fn releases_debug_builds_and_forks_are_read_whole() {
        assert_eq!(supported("celld 0.6.2\n").unwrap(), "0.6.2");
        assert_eq!(supported("celld 0.5.0").unwrap(), "0.5.0");
        assert_eq!(supported("celld 0.6.2 (debug)\n").unwrap(), "0.6.2");
        assert_eq!(supported("celld 0.5.1-ewhauser.1\n").unwrap(), "0.5.1-ewhauser.1");
        assert_eq!(
            supported("celld 0.6.1-rpc-targets.1+g1234\n").unwrap(),
            "0.6.1-rpc-targets.1+g1234"
        );
        assert_eq!(supported("  celld\t1.0.0\r\nmore\n").unwrap(), "1.0.0");
    }

    #[test]
    fn a_pre_release_of_the_oldest_is_older_than_it() {
        assert_eq!(supported("celld 0.5.0-rc.1"), Err(too_old("0.5.0-rc.1")));
        assert_eq!(supported("celld 0.4.9"), Err(too_old("0.4.9")));
        assert_eq!(supported("celld 0.3.0 (debug)"), Err(too_old("0.3.0")));
        assert_eq!(supported("celld 0.5.0+build.7").unwrap(), "0.5.0+build.7");
        assert_eq!(supported("celld 0.5.1-alpha").unwrap(), "0.5.1-alpha");
    }

    #[test]
    fn what_is_no_version_says_what_it_is() {
        assert_eq!(supported(" \n\t"), Err(VersionFault::Empty));
        assert_eq!(supported("celld\n"), Err(VersionFault::NoVersion));
        assert_eq!(
            supported("celld v0.6.2"),
            Err(VersionFault::NotSemantic("v0.6.2".into()))
        );
        assert_eq!(supported("celld 0.6"), Err(VersionFault::NotSemantic("0.6".into())));
        assert_eq!(
            supported("CELLD 0.6.2"),
            Err(VersionFault::OtherProgram("CELLD".into()))
        );
        assert_eq!(
            supported("node v22.1.0"),
            Err(VersionFault::OtherProgram("node".into()))
        );
    }

    #[test]
    fn the_faults_read_as_sentences() {
        let faults = [
            VersionFault::Empty,
            VersionFault::OtherProgram("node".into()),
            VersionFault::NoVersion,
            VersionFault::NotSemantic("v0.6.2".into()),
            too_old("0.5.0-rc.1"),
        ];
        let text: Vec<String> = faults.iter().map(|fault| format!("the binary {fault}")).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        the binary printed nothing
        the binary printed `node` where `celld VERSION` was expected
        the binary printed `celld` and no version
        the binary printed `v0.6.2` where a version such as `0.6.2` was expected
        the binary is celld 0.5.0-rc.1; 0.5.0 or newer is needed
        ");
    }

    #[test]
    fn a_strangers_word_is_cut_and_escaped() {
        let fault = CelldVersion::parse(&format!("celld \u{1b}[31m{}", "9".repeat(500))).unwrap_err();
        let VersionFault::NotSemantic(word) = fault else {
            panic!("{fault:?}")
        };
        assert!(
            word.chars().count() < 60 && word.is_ascii() != word.contains('…') && !word.contains('\u{1b}'),
            "{word}"
        );
    }

    proptest! {
        #[test]
        fn no_output_panics(output in any::<String>()) {
            let _ = CelldVersion::supported(&output).map_err(|fault| fault.to_string());
        }

        #[test]
        fn no_second_word_panics(word in "[0-9a-z.+v-]{0,30}") {
            let _ = CelldVersion::supported(&format!("celld {word}")).map_err(|fault| fault.to_string());
        }

        #[test]
        fn a_released_version_is_supported_from_the_oldest_on(major in 0u64..3, minor in 0u64..12, patch in 0u64..30) {
            let version = CelldVersion::parse(&format!("celld {major}.{minor}.{patch} rest")).unwrap();
            prop_assert_eq!(version.is_supported(), (major, minor, patch) >= (0, 5, 0));
            prop_assert_eq!(version.to_string(), format!("{major}.{minor}.{patch}"));
        }
    }
}
