//! Which bucket: `s3://NAME[/PREFIX]` or `dir:/PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A bucket's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketUrl {
    /// A bucket of an S3-compatible store, or a part of one.
    S3 {
        /// The bucket's name.
        name: String,
        /// What every key begins with, without a slash at either end; empty for the whole bucket.
        prefix: String,
    },
    /// A directory: for trying out, tests and one machine.
    Dir(PathBuf),
}

/// Why a text is no [`BucketUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBucketUrl(&'static str);

impl fmt::Display for InvalidBucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for BucketUrl {
    type Err = InvalidBucketUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBucketUrl> {
        if let Some(path) = text.strip_prefix("dir:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Dir(path))
            } else {
                Err(InvalidBucketUrl("a directory bucket is dir: and an absolute path"))
            };
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(InvalidBucketUrl("a bucket is s3://NAME, s3://NAME/PREFIX or dir:/PATH"));
        };
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        // Amazon's rules for names of buckets; other stores allow no more.
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let name_is_good = (3..=63).contains(&name.len())
            && name.bytes().all(|byte| letter(byte) || byte == b'-' || byte == b'.')
            && name.bytes().next().is_some_and(letter)
            && name.bytes().last().is_some_and(letter);
        if !name_is_good {
            return Err(InvalidBucketUrl(
                "a bucket's name is 3 to 63 of a-z, 0-9, - and ., with a letter or digit at either end",
            ));
        }
        // celld's rule for prefixes; applications live in the same bucket.
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let parts_are_good = prefix.is_empty()
            || prefix
                .split('/')
                .all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(good));
        if !parts_are_good {
            return Err(InvalidBucketUrl(
                "a prefix is parts of A-Z, a-z, 0-9, -, _ and ., with single slashes between them",
            ));
        }
        Ok(Self::S3 {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { name, prefix } if prefix.is_empty() => write!(f, "s3://{name}"),
            Self::S3 { name, prefix } => write!(f, "s3://{name}/{prefix}"),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn good_urls_come_back() {
        for (text, shown) in [
            ("s3://my-fleet", "s3://my-fleet"),
            ("s3://my-fleet/", "s3://my-fleet"),
            ("s3://my-fleet/eu/prod_1/", "s3://my-fleet/eu/prod_1"),
            ("dir:/var/lib/scafo/bucket", "dir:/var/lib/scafo/bucket"),
        ] {
            assert_eq!(
                text.parse::<BucketUrl>().map(|url| url.to_string()),
                Ok(shown.to_owned())
            );
        }
    }

    #[test]
    fn bad_urls_say_what_a_good_one_is() {
        for text in [
            "",
            "my-fleet",
            "gs://x",
            "s3://",
            "s3://ab",
            "s3://Upper",
            "s3://a_b_c",
            "s3://abc//x",
            "s3://abc/../x",
            "s3://abc/ä",
            "dir:x",
            "dir:",
        ] {
            assert!(text.parse::<BucketUrl>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_is_shown_so_that_it_parses_again(text in "(s3://|dir:)?[a-zA-Z0-9./_-]{0,20}") {
            if let Ok(url) = text.parse::<BucketUrl>() {
                prop_assert_eq!(url.to_string().parse::<BucketUrl>(), Ok(url));
            }
        }
    }
}
