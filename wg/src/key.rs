//! X25519 keys in the forms that WireGuard's tools use.

use std::fmt;

use defguard_wireguard_rs::key::Key;
use x25519_dalek::StaticSecret;

/// A peer's public key. Shown in base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 bytes in base64")]
pub struct InvalidKey;

impl PublicKey {
    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key in WireGuard's vocabulary.
    pub(crate) fn to_key(self) -> Key {
        Key::new(self.0)
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl std::str::FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        Key::try_from(text)
            .map(|key| Self(key.as_array()))
            .map_err(|_| InvalidKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_key())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The tunnel's private key. Wiped when dropped, and never shown.
#[derive(Clone)]
pub struct PrivateKey(StaticSecret);

impl PrivateKey {
    /// The key itself, for a session.
    pub(crate) fn secret(&self) -> &StaticSecret {
        &self.0
    }

    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }
}

impl From<StaticSecret> for PrivateKey {
    fn from(secret: StaticSecret) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = self.public().to_string();
        write!(f, "PrivateKey(of {}…)", public.get(..8).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_shown_and_secrets_are_not_shown() {
        let private = PrivateKey::from(StaticSecret::from([7; 32]));
        let public = private.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!("short".parse::<PublicKey>(), Err(InvalidKey));
        assert!(format!("{private:?}").contains(&public.to_string()[..8]));
        assert!(format!("{private:?}").len() < 32);
    }
}
