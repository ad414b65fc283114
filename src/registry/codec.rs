//! The text of a record: JSON, with a fresh `writeId` in every write and the fields of newer builds kept.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bucket::Object;
use crate::core::records::{Held, Key, Record};

/// The field that tells one write from every other one: equal bodies have equal ETags, and then two writers would both
/// believe that they won.
pub(super) const WRITE_ID: &str = "writeId";

/// Reads a record. The error says why it cannot be read, naming the field where one is to blame.
pub(super) fn decode(key: &Key, object: &Object) -> Result<Held, String> {
    let body = std::str::from_utf8(&object.body).map_err(|_| "it is not text".to_owned())?;
    let record = match key {
        Key::Node(id) => {
            let node: crate::core::records::NodeRecord = parse(body)?;
            if node.id != *id {
                return Err(format!("id: it says {}", node.id));
            }
            Record::Node(node)
        }
        Key::Peer(id) => {
            let peer: crate::core::records::PeerRecord = parse(body)?;
            if peer.id != *id {
                return Err(format!("id: it says {}", peer.id));
            }
            Record::Peer(peer)
        }
        Key::Identity(_) => Record::Identity(parse(body)?),
        Key::Address(_) => Record::Address(parse(body)?),
        Key::Network => Record::Network(parse(body)?),
        Key::Freeze => Record::Freeze(parse(body)?),
        Key::Hint => Record::Hint(parse(body)?),
        Key::Lease => Record::Lease(parse(body)?),
    };
    Ok(Held {
        record,
        etag: object.etag.as_str().to_owned(),
        body: body.to_owned(),
        store_age_ms: None,
    })
}

fn parse<T: DeserializeOwned>(body: &str) -> Result<T, String> {
    let deserializer = &mut serde_json::Deserializer::from_str(body);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if matches!(path.as_str(), "." | "?") {
            inner.to_string()
        } else {
            format!("{path}: {inner}")
        }
    })
}

/// The body that writes `record` over `held`. Only fields that differ from what was read are touched, so whatever a
/// newer build put into the record stays as it was.
pub(super) fn encode(held: Option<&Held>, record: &Record, write_id: &str) -> String {
    let mut body: Map<String, Value> = held
        .and_then(|held| serde_json::from_str(&held.body).ok())
        .unwrap_or_default();
    let before = held.map(|held| fields(&held.record)).unwrap_or_default();
    for (name, value) in fields(record) {
        if before.get(&name) != Some(&value) {
            body.insert(name, value);
        }
    }
    body.insert(WRITE_ID.to_owned(), Value::String(write_id.to_owned()));
    Value::Object(body).to_string()
}

/// The `writeId` of a body; `None` where there is none.
pub(super) fn write_id(body: &[u8]) -> Option<String> {
    let body: Map<String, Value> = serde_json::from_slice(body).ok()?;
    body.get(WRITE_ID)?.as_str().map(ToOwned::to_owned)
}

fn fields(record: &Record) -> Map<String, Value> {
    fn object(record: &impl Serialize) -> Map<String, Value> {
        match serde_json::to_value(record) {
            Ok(Value::Object(fields)) => fields,
            // Records are structs of texts, numbers and lists: their JSON is always an object.
            _ => Map::new(),
        }
    }
    match record {
        Record::Node(record) => object(record),
        Record::Identity(record) => object(record),
        Record::Peer(record) => object(record),
        Record::Address(record) => object(record),
        Record::Network(record) => object(record),
        Record::Freeze(record) => object(record),
        Record::Hint(record) => object(record),
        Record::Lease(record) => object(record),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::ETag;
    use crate::core::records::NodeRecord;
    use crate::core::types::UnixMs;

    const NEWER: &str = r#"{"id":"a","bootId":"b","publicKey":"k","transport":"wireguard","address":"10.88.0.2",
        "apiPort":7300,"labels":{"tier":"fast"},"versions":{"scafo":"9.0.0","celld":"1.0.0","future":"x"},
        "serving":[{"app":"shop","port":7400,"fence":3,"weight":7}],"startedAt":5,"heartbeatAt":6,"drainingAt":null,
        "rack":{"row":4},"writeId":"old"}"#;

    fn object(body: &str) -> Object {
        Object {
            body: body.as_bytes().to_vec(),
            etag: ETag::new("tag").unwrap(),
        }
    }

    fn key() -> Key {
        Key::Node("a".parse().unwrap())
    }

    fn node(held: &Held) -> NodeRecord {
        let Record::Node(node) = &held.record else {
            panic!("not a node")
        };
        node.clone()
    }

    #[test]
    fn a_beat_changes_its_own_field_and_nothing_else() {
        let held = decode(&key(), &object(NEWER)).unwrap();
        let beaten = NodeRecord {
            heartbeat_at: Some(UnixMs(99)),
            ..node(&held)
        };
        let body = encode(Some(&held), &Record::Node(beaten), "new");
        let mut expected: Map<String, Value> = serde_json::from_str(NEWER).unwrap();
        expected.insert("heartbeatAt".into(), 99.into());
        expected.insert("writeId".into(), "new".into());
        assert_eq!(serde_json::from_str::<Map<String, Value>>(&body).unwrap(), expected);
    }

    #[test]
    fn a_label_that_was_taken_away_is_gone() {
        let held = decode(&key(), &object(NEWER)).unwrap();
        let body = encode(
            Some(&held),
            &Record::Node(NodeRecord {
                labels: Default::default(),
                ..node(&held)
            }),
            "new",
        );
        assert!(node(&decode(&key(), &object(&body)).unwrap()).labels.is_empty());
        assert!(body.contains("\"rack\""));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let why = |body: &str| decode(&key(), &object(body)).unwrap_err();
        assert_eq!(why("{"), "EOF while parsing an object at line 1 column 1");
        assert!(why(&NEWER.replace("7300", "\"x\"")).starts_with("apiPort: invalid type"));
        assert_eq!(why(&NEWER.replace("\"id\":\"a\"", "\"id\":\"z\"")), "id: it says z");
        assert_eq!(
            decode(
                &key(),
                &Object {
                    body: vec![0xff],
                    etag: ETag::new("t").unwrap()
                }
            )
            .unwrap_err(),
            "it is not text"
        );
    }

    #[test]
    fn the_write_id_is_found_again() {
        let held = decode(&key(), &object(NEWER)).unwrap();
        assert_eq!(
            write_id(encode(Some(&held), &held.record, "w-1").as_bytes()),
            Some("w-1".into())
        );
        assert_eq!(write_id(b"[]"), None);
        assert_eq!(write_id(b"{"), None);
    }

    proptest! {
        #[test]
        fn no_body_makes_the_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..400) {
            let object = Object { body, etag: ETag::new("t").unwrap() };
            for key in [key(), Key::Identity("a".parse().unwrap()), Key::Peer("a".parse().unwrap()), Key::Network, Key::Hint, Key::Freeze] {
                let _ = decode(&key, &object);
            }
            let whole = NEWER.as_bytes();
            let cut = Object { body: whole[..cut.min(whole.len() - 1)].to_vec(), etag: ETag::new("t").unwrap() };
            prop_assert!(decode(&key(), &cut).is_err());
        }
    }
}
