//! `mesh.json`: the last known peers, so that a node that boots while the bucket is away rejoins the mesh anyway.
//!
//! The bucket has the truth; this is a copy. A copy that cannot be read costs nothing but that early start, so it is
//! reported and written anew, unlike a key file.

use super::StateDir;
use crate::core::peers::Peers;
use crate::error::Result;

const FILE: &str = "mesh.json";

/// The peers as this node last knew them; none on a first boot.
pub fn load(state: &StateDir) -> Result<Peers> {
    Ok(state.read(FILE)?.unwrap_or_default())
}

/// Remembers the peers.
pub fn save(state: &StateDir, peers: &Peers) -> Result<()> {
    state.write_json(FILE, peers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::peers::Peer;
    use crate::core::records::PublicKeyText;

    #[test]
    fn peers_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path());
        assert!(load(&state).unwrap().is_empty());
        let peer = Peer {
            tunnel_key: PublicKeyText("key".into()),
            address: "10.88.0.2".parse().unwrap(),
            endpoints: vec!["172.31.0.2:51820".into()],
        };
        let peers = Peers::from([("n-2".parse().unwrap(), peer)]);
        save(&state, &peers).unwrap();
        assert_eq!(load(&state).unwrap(), peers);
        std::fs::write(state.join(FILE), "{").unwrap();
        assert!(load(&state).is_err());
    }
}
