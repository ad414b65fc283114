//! The node's lease object `nodes/<id>.json`: taken at the start, renewed, lost, and sealed at the end.
//!
//! As in celld, the id is a singleton key: a newcomer with the same id replaces the record at once, and the older
//! process finds out at its next renewal and fences itself. The stand-in replaces an open record too, where celld would
//! recover its log first.

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::bucket::{Bucket, Condition};

/// What a renewal found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    /// Somebody else's record stands there.
    Replaced,
}

/// One process's hold on its node id.
#[derive(Debug)]
pub(crate) struct Lease {
    key: String,
    node: String,
    address: String,
    /// Random for each process; tells its own record from a twin's.
    incarnation: String,
    ttl_ms: u64,
    /// One more than the record before it had.
    pub(crate) epoch: u64,
    /// Whether the record is sealed. Held across each write, so that a renewal under way never reopens a sealed one.
    sealed: Mutex<bool>,
}

impl Lease {
    pub(crate) async fn take(
        bucket: &Bucket,
        node: &str,
        address: &str,
        incarnation: &str,
        ttl_ms: u64,
    ) -> Result<Self, String> {
        let key = format!("nodes/{node}.json");
        let before: Option<Value> = bucket
            .get(&key)
            .await?
            .and_then(|object| serde_json::from_slice(&object.body).ok());
        let epoch = before
            .and_then(|record| record.pointer("/log/epoch")?.as_u64())
            .unwrap_or(0)
            + 1;
        let lease = Self {
            key,
            node: node.into(),
            address: address.into(),
            incarnation: incarnation.into(),
            ttl_ms,
            epoch,
            sealed: Mutex::new(false),
        };
        lease.write(bucket, "open").await?;
        Ok(lease)
    }

    /// Writes the record with a new expiry, unless it is sealed or somebody else's.
    pub(crate) async fn renew(&self, bucket: &Bucket) -> Result<Renewal, String> {
        let sealed = self.sealed.lock().await;
        if *sealed {
            return Ok(Renewal::Renewed);
        }
        if self.is_replaced(bucket).await? {
            return Ok(Renewal::Replaced);
        }
        self.write(bucket, "open").await.map(|()| Renewal::Renewed)
    }

    /// Writes the record as sealed; it is never renewed again.
    pub(crate) async fn seal(&self, bucket: &Bucket) -> Result<(), String> {
        let mut sealed = self.sealed.lock().await;
        if self.is_replaced(bucket).await? {
            return Err("the lease belongs to another process".into());
        }
        *sealed = true;
        self.write(bucket, "sealed").await
    }

    async fn is_replaced(&self, bucket: &Bucket) -> Result<bool, String> {
        let record = bucket.get(&self.key).await?;
        let record: Option<Value> = record.and_then(|object| serde_json::from_slice(&object.body).ok());
        let owner = record
            .as_ref()
            .and_then(|record| record.get("standin_incarnation")?.as_str());
        Ok(owner.is_some_and(|owner| owner != self.incarnation))
    }

    async fn write(&self, bucket: &Bucket, state: &str) -> Result<(), String> {
        let expires = if state == "sealed" { 0 } else { unix_ms() + self.ttl_ms };
        let record = json!({
            "node": self.node, "expires_ms": expires, "addr": self.address, "peer_protocol": 5,
            "log": { "state": state, "epoch": self.epoch, "ensemble": [], "tiered": 0, "active": 0 },
            "standin": true, "standin_incarnation": self.incarnation,
        });
        bucket
            .put(&self.key, record.to_string().into(), Condition::Always)
            .await
            .map(drop)
    }
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_process_of_an_id_holds_its_lease() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = Bucket::Dir(folder.path().into());
        let take = |incarnation| Lease::take(&bucket, "n-1", "127.0.0.1:1", incarnation, 1000);
        let old = take("a").await.unwrap();
        assert_eq!(old.renew(&bucket).await.unwrap(), Renewal::Renewed);
        let new = take("b").await.unwrap();
        assert_eq!((old.epoch, new.epoch), (1, 2));
        assert_eq!(old.renew(&bucket).await.unwrap(), Renewal::Replaced);
        assert!(old.seal(&bucket).await.is_err());
        new.seal(&bucket).await.unwrap();
        let record: Value = serde_json::from_slice(&bucket.get("nodes/n-1.json").await.unwrap().unwrap().body).unwrap();
        assert_eq!(
            record["log"],
            json!({"state": "sealed", "epoch": 2, "ensemble": [], "tiered": 0, "active": 0})
        );
    }
}
