//! Everybody's records: list first, then read only what moved, many at once.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{Registry, codec, keys, note, signature, trouble};
use crate::bucket::{Bucket, BucketError, ETag, Entry};
use crate::core::fleet_time::Sample;
use crate::core::lease::LeaseRecord;
use crate::core::node::Trouble;
use crate::core::records::{Fleet, FreezeRecord, IdentityRecord, Key, NodeRecord, Record, SignedPeer, Unreadable};
use crate::core::types::Id;
use crate::host::clock::Clock;

/// How many reads are under way at once.
const READS_AT_ONCE: usize = 64;

/// What was read last time, by whole key.
#[derive(Debug, Default)]
pub(super) struct View {
    records: BTreeMap<String, Cached>,
}

/// One version of one record, read once.
#[derive(Clone, Debug)]
struct Cached {
    etag: ETag,
    record: Result<Record, String>,
}

impl Registry {
    /// Reads what moved since the last time, and puts together what the fleet looks like now. All of it or nothing:
    /// what could not be read this time is never taken for absent.
    pub(super) async fn refresh(&self, samples: &mut Vec<Sample>) -> Result<Fleet, Trouble> {
        let mut view = self.view.lock().await;
        let bucket = self.bucket.as_ref();
        let read = async {
            // One listing for all kinds: a request per page is what a store charges for, and most fleets fit on one page.
            let sent = self.clock.now().boot;
            let mut listed = bucket.list(keys::ALL).await?;
            note(sent, self.clock.now().boot, listed.time, samples);
            listed
                .value
                .retain(|entry| keys::parse(&entry.key).is_some_and(|key| is_of_the_fleet(&key)));
            read_all(bucket, listed.value, &view.records).await
        };
        view.records = read
            .await
            .map_err(|error: BucketError| trouble(&bucket.name(), error))?;
        let mut fleet = assemble(&view.records);
        signature::authenticate(&mut fleet);
        Ok(fleet)
    }
}

/// Whether a refresh looks at records of this kind. The hint and the lease move all the time and have lanes of their own.
fn is_of_the_fleet(key: &Key) -> bool {
    match key {
        Key::Node(_) | Key::Identity(_) | Key::Peer(_) | Key::Address(_) => true,
        Key::Network | Key::Freeze | Key::Hint | Key::Lease => false,
    }
}

/// Reads the records of `entries` that are not in `known` at the listed version.
async fn read_all(
    bucket: &dyn Bucket,
    entries: Vec<Entry>,
    known: &BTreeMap<String, Cached>,
) -> Result<BTreeMap<String, Cached>, BucketError> {
    let reads = entries.into_iter().filter_map(|entry| {
        let key = keys::parse(&entry.key)?;
        let cached = known
            .get(&entry.key)
            .filter(|cached| entry.etag.as_ref() == Some(&cached.etag))
            .cloned();
        Some(async move {
            if let Some(cached) = cached {
                return Ok(Some((entry.key, cached)));
            }
            // Gone between the listing and the read: gone.
            let Some(object) = bucket.get(&entry.key).await?.value else {
                return Ok(None);
            };
            let record = codec::decode(&key, &object).map(|held| held.record);
            Ok(Some((
                entry.key,
                Cached {
                    etag: object.etag,
                    record,
                },
            )))
        })
    });
    stream::iter(reads)
        .buffer_unordered(READS_AT_ONCE)
        .try_fold(
            BTreeMap::new(),
            |mut records, read: Option<(String, Cached)>| async move {
                records.extend(read);
                Ok(records)
            },
        )
        .await
}

fn assemble(records: &BTreeMap<String, Cached>) -> Fleet {
    let mut fleet = Fleet::default();
    for (path, cached) in records {
        match (keys::parse(path), &cached.record) {
            (_, Err(reason)) => {
                fleet.unreadable.push(Unreadable {
                    key: path.clone(),
                    reason: reason.clone(),
                });
            }
            (Some(Key::Node(id)), Ok(Record::Node(node))) => {
                fleet.nodes.insert(id, node.clone());
            }
            (Some(Key::Identity(id)), Ok(Record::Identity(identity))) => {
                fleet.identities.insert(id, identity.clone());
            }
            (Some(Key::Peer(id)), Ok(Record::Peer(peer))) => {
                fleet.peers.insert(
                    id,
                    SignedPeer {
                        record: peer.clone(),
                        authentic: false,
                    },
                );
            }
            (Some(Key::Address(address)), Ok(Record::Address(claim))) => {
                fleet.addresses.insert(address, claim.clone());
            }
            _ => {}
        }
    }
    fleet
}

/// What `scafo fleet nodes` reads: node records, the freeze, and the store's clock.
#[derive(Debug)]
pub struct NodesRead {
    /// The records that can be read.
    pub nodes: Vec<NodeRecord>,
    /// The freeze, lifted or not.
    pub freeze: Option<FreezeRecord>,
    /// The records that cannot.
    pub unreadable: Vec<Unreadable>,
    /// The store's dates seen on the way.
    pub samples: Vec<Sample>,
}

/// Reads every node record and the freeze, in parallel, without any node's help.
pub async fn read_nodes(bucket: &dyn Bucket, clock: &dyn Clock) -> Result<NodesRead, BucketError> {
    let mut samples = Vec::new();
    let freeze_path = keys::path(&Key::Freeze);
    let sent = clock.now().boot;
    let (listed, freeze) = futures_util::try_join!(bucket.list(keys::NODES), bucket.get(&freeze_path))?;
    note(sent, clock.now().boot, listed.time, &mut samples);
    let records = read_all(bucket, listed.value, &BTreeMap::new()).await?;
    let mut fleet = assemble(&records);
    let freeze = freeze
        .value
        .and_then(|object| match codec::decode(&Key::Freeze, &object) {
            Ok(held) => match held.record {
                Record::Freeze(freeze) => Some(freeze),
                _ => None,
            },
            Err(reason) => {
                fleet.unreadable.push(Unreadable {
                    key: freeze_path.clone(),
                    reason,
                });
                None
            }
        });
    Ok(NodesRead {
        nodes: fleet.nodes.into_values().collect(),
        freeze,
        unreadable: fleet.unreadable,
        samples,
    })
}

/// Reads the lease and its age by the store's own clock; `None` when nobody ever held it.
pub async fn read_lease(bucket: &dyn Bucket) -> Result<Option<(LeaseRecord, Option<u64>)>, BucketError> {
    let path = keys::path(&Key::Lease);
    let reply = bucket.get(&path).await?;
    let Some(object) = reply.value else { return Ok(None) };
    let age = reply.time.date_ms.zip(reply.time.last_modified_ms);
    match codec::decode(&Key::Lease, &object).map(|held| held.record) {
        Ok(Record::Lease(lease)) => Ok(Some((lease, age.map(|(date, modified)| date.saturating_sub(modified))))),
        Ok(_) => Ok(None),
        Err(reason) => Err(BucketError::Invalid(format!("{path} cannot be read: {reason}"))),
    }
}

/// Reads every identity, in parallel, and names those that cannot be read.
pub async fn read_identities(
    bucket: &dyn Bucket,
) -> Result<(BTreeMap<Id, IdentityRecord>, Vec<Unreadable>), BucketError> {
    let listed = bucket.list(keys::IDENTITIES).await?;
    let fleet = assemble(&read_all(bucket, listed.value, &BTreeMap::new()).await?);
    Ok((fleet.identities, fleet.unreadable))
}

#[cfg(test)]
mod tests;
