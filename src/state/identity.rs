//! `node.json`: the node's id and its Ed25519 key. A node *is* its key (seed, "Node identity"). An operator's key file is
//! of the same form.

use std::fmt;

use data_encoding::{BASE32_NOPAD, BASE64};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::StateDir;
use crate::core::types::Id;
use crate::error::{Error, Field, Result};
use crate::host::random;

const FILE: &str = "node.json";

/// Characters of the public key's base32 form in a derived id.
const DERIVED_CHARACTERS: usize = 10;

/// Who a node or an operator is: an id and a key.
pub struct Identity {
    id: Id,
    // Wipes itself when dropped (feature `zeroize`).
    key: SigningKey,
}

/// How a boot came by its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was in the file.
    Back,
    /// There was none.
    New,
    /// A pinned id took the place of this one.
    Instead(Id),
}

/// The file, as written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    id: Id,
    public_key: String,
    private_key: String,
}

impl Drop for File {
    fn drop(&mut self) {
        self.private_key.zeroize();
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = self.public_key();
        write!(f, "Identity({}, {}…)", self.id, public.get(..8).unwrap_or_default())
    }
}

impl Identity {
    /// The identity in `state`, or a new one. A pinned id that is not the stored one gets a new key, written in the old
    /// one's place.
    pub fn load_or_create(state: &StateDir, pinned: Option<&Id>) -> Result<(Self, Came)> {
        let stored = Self::load(state)?;
        let came = match (stored, pinned) {
            (Some(stored), None) => return Ok((stored, Came::Back)),
            (Some(stored), Some(pinned)) if stored.id == *pinned => return Ok((stored, Came::Back)),
            (Some(stored), Some(_)) => Came::Instead(stored.id.clone()),
            (None, _) => Came::New,
        };
        let identity = Self::generate(pinned)?;
        identity.save(state, FILE)?;
        Ok((identity, came))
    }

    /// A new identity under `id`, in a file of `state` that is not there yet.
    pub fn create(state: &StateDir, name: &str, id: &Id) -> Result<Self> {
        let identity = Self::generate(Some(id))?;
        identity.save(state, name)?;
        Ok(identity)
    }

    /// The node's identity in `state`; `None` when there is no file.
    pub fn load(state: &StateDir) -> Result<Option<Self>> {
        Self::load_from(state, FILE)
    }

    /// The identity in a file of `state`; `None` when there is no such file.
    pub fn load_from(state: &StateDir, name: &str) -> Result<Option<Self>> {
        let Some(file) = state.read::<File>(name)? else {
            return Ok(None);
        };
        let wrong = |reason: &str| state.unreadable(name, reason);
        let secret = state.secret(name, &file.private_key)?;
        let key = SigningKey::from_bytes(&secret);
        let identity = Self {
            id: file.id.clone(),
            key,
        };
        if identity.public_key() != file.public_key {
            return Err(wrong("publicKey does not belong to privateKey"));
        }
        Ok(Some(identity))
    }

    fn generate(pinned: Option<&Id>) -> Result<Self> {
        let secret = Zeroizing::new(random::bytes::<32>()?);
        let key = SigningKey::from_bytes(&secret);
        let id = match pinned {
            Some(id) => id.clone(),
            None => derived_id(key.verifying_key().as_bytes())?,
        };
        Ok(Self { id, key })
    }

    fn save(&self, state: &StateDir, name: &str) -> Result<()> {
        let file = File {
            id: self.id.clone(),
            public_key: self.public_key(),
            private_key: BASE64.encode(Zeroizing::new(self.key.to_bytes()).as_slice()),
        };
        state.write_json(name, &file)
    }

    /// The node's id.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The public key in base64.
    pub fn public_key(&self) -> String {
        BASE64.encode(self.key.verifying_key().as_bytes())
    }

    /// Signs; the signature in base64.
    pub fn sign(&self, bytes: &[u8]) -> String {
        BASE64.encode(&self.key.sign(bytes).to_bytes())
    }
}

/// Whether `signature` (base64) is of exactly `bytes`, by `public_key` (base64). Malformed texts are no signature.
pub fn verify(public_key: &str, bytes: &[u8], signature: &str) -> bool {
    let decoded = |text: &str| BASE64.decode(text.as_bytes()).ok();
    let key = decoded(public_key)
        .and_then(|key| <[u8; 32]>::try_from(key).ok())
        .and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let signature = decoded(signature).and_then(|signature| Signature::from_slice(&signature).ok());
    // The strict form refuses keys of small order, for which several parties could claim one signature.
    key.zip(signature)
        .is_some_and(|(key, signature)| key.verify_strict(bytes, &signature).is_ok())
}

fn derived_id(public_key: &[u8]) -> Result<Id> {
    let text = BASE32_NOPAD.encode(public_key).to_ascii_lowercase();
    let id = format!("n-{}", text.get(..DERIVED_CHARACTERS).unwrap_or_default());
    id.parse()
        .map_err(|error| Error::internal(format!("a derived id is not one: {error}")).field(Field::new("node.id", &id)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::error::Code;

    fn state() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path());
        (folder, state)
    }

    fn shown(state: &StateDir, error: &Error) -> String {
        error.to_string().replace(&state.path().display().to_string(), "STATE")
    }

    #[test]
    fn an_identity_comes_back() {
        let (_folder, state) = state();
        let (first, came) = Identity::load_or_create(&state, None).unwrap();
        assert_eq!(came, Came::New);
        assert!(first.id().as_str().starts_with("n-") && first.id().as_str().len() == 12);
        let (second, came) = Identity::load_or_create(&state, None).unwrap();
        assert_eq!(came, Came::Back);
        assert_eq!(first.public_key(), second.public_key());
        let mode = fs::metadata(state.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(verify(&first.public_key(), b"x", &second.sign(b"x")));
        assert!(!verify(&first.public_key(), b"y", &second.sign(b"x")));
    }

    #[test]
    fn a_pinned_id_keeps_or_replaces_the_identity() {
        let (_folder, state) = state();
        let pin = |id: &str| id.parse::<Id>().unwrap();
        let (first, _) = Identity::load_or_create(&state, Some(&pin("ams-1"))).unwrap();
        assert_eq!(first.id(), &pin("ams-1"));
        let (same, came) = Identity::load_or_create(&state, Some(&pin("ams-1"))).unwrap();
        assert_eq!((same.public_key(), came), (first.public_key(), Came::Back));
        let (other, came) = Identity::load_or_create(&state, Some(&pin("ams-2"))).unwrap();
        assert_eq!(came, Came::Instead(pin("ams-1")));
        assert_ne!(other.public_key(), first.public_key());
    }

    #[test]
    fn a_file_cut_at_any_byte_is_refused_and_kept() {
        let (_folder, state) = state();
        Identity::load_or_create(&state, None).unwrap();
        let whole = fs::read(state.join(FILE)).unwrap();
        for cut in 0..whole.len() {
            fs::write(state.join(FILE), &whole[..cut]).unwrap();
            for pinned in [None, Some(&"ams-9".parse().unwrap())] {
                let error = Identity::load_or_create(&state, pinned).unwrap_err();
                assert_eq!(error.code, Code::InvalidInput, "{cut}");
            }
            assert_eq!(fs::read(state.join(FILE)).unwrap(), &whole[..cut]);
        }
        let error = Identity::load(&state).unwrap_err();
        insta::assert_snapshot!(shown(&state, &error), @r"
        error[invalid-input]: node.json cannot be read, and what cannot be read is never replaced
          node.json = STATE/node.json: it is cut short, at line 5 column 0
        help: bring the file back from a backup of the state directory
        help: or give this machine up as the node that it was: mv STATE/node.json STATE/node.json.broken
        ");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let (_folder, state) = state();
        Identity::load_or_create(&state, None).unwrap();
        fs::set_permissions(state.join(FILE), fs::Permissions::from_mode(0o644)).unwrap();
        insta::assert_snapshot!(shown(&state, &Identity::load(&state).unwrap_err()), @r"
        error[invalid-input]: node.json holds a private key and is open to other users
          node.json = STATE/node.json
        help: chmod 600 STATE/node.json
        help: if anybody else may have read it, make a new key: the old one is no longer a secret
        ");
    }

    #[test]
    fn a_wrong_file_is_refused_and_no_secret_is_shown() {
        let (_folder, state) = state();
        let (identity, _) = Identity::load_or_create(&state, None).unwrap();
        let text = fs::read_to_string(state.join(FILE)).unwrap();
        let secret = BASE64.encode(&identity.key.to_bytes());
        let wrong = [
            text.replace(&identity.public_key(), &BASE64.encode(&[1; 32])),
            text.replace(&secret, &BASE64.encode(&[1; 31])),
            text.replace(&secret, "!!"),
            text.replace("\"id\"", "\"name\""),
            text.replace(identity.id().as_str(), "Not An Id"),
            format!("{text} {text}"),
        ];
        for wrong in wrong {
            fs::write(state.join(FILE), &wrong).unwrap();
            let error = Identity::load_or_create(&state, None).unwrap_err();
            assert_eq!(error.code, Code::InvalidInput, "{wrong}");
            assert!(!error.to_string().contains(&secret));
        }
        fs::remove_file(state.join(FILE)).unwrap();
        fs::create_dir(state.join(FILE)).unwrap();
        assert_eq!(
            Identity::load_or_create(&state, None).unwrap_err().code,
            Code::InvalidInput
        );
        assert!(!format!("{identity:?}").contains(&secret));
    }
}
