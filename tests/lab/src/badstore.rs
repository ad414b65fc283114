//! Stores that break the contract which a fleet rests on, each in its own way, as such stores are met in the field. Just
//! enough of S3 for Scafo: no signatures are checked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;

use crate::serve::{Answered, Asked, Serving};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing: the conditions hold.
    None,
    /// Writes are carried out whatever their condition says (SeaweedFS before 2025, MinIO without a read quorum).
    IgnoresConditions,
    /// A replace of a key that does not exist creates it (MinIO before #21550).
    ReplacesTheMissing,
    /// Tags in conditions have to come without their quotes (Hetzner, DigitalOcean).
    WantsUnquotedTags,
    /// Conditional writes are not known at all (Backblaze B2).
    KnowsNoConditions,
    /// The condition is checked, and the write follows a moment later (RustFS with several endpoints).
    IsNotAtomic,
}

/// A store at work.
#[derive(Debug)]
pub struct BadStore {
    serving: Serving,
}

#[derive(Debug, Default)]
struct Objects {
    objects: BTreeMap<String, (Bytes, String)>,
    versions: u64,
}

impl BadStore {
    /// A store with this flaw and one bucket, `fleet`.
    pub fn start(flaw: Flaw) -> Self {
        let objects: Arc<Mutex<Objects>> = Arc::default();
        Self {
            serving: Serving::start(move |request| answer(objects.clone(), flaw, request)),
        }
    }

    /// Its address, for `SCAFO_BUCKET_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address())
    }
}

async fn answer(objects: Arc<Mutex<Objects>>, flaw: Flaw, request: Asked) -> Answered {
    let key = request
        .uri()
        .path()
        .trim_start_matches("/fleet")
        .trim_matches('/')
        .to_owned();
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(ToOwned::to_owned)
    };
    let (none_match, matches) = (header("if-none-match"), header("if-match"));
    let found = || {
        objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .objects
            .get(&key)
            .cloned()
    };
    Some(match request.method().as_str() {
        "GET" if key.is_empty() => list(
            &objects.lock().unwrap_or_else(PoisonError::into_inner),
            request.uri().query().unwrap_or_default(),
        ),
        "GET" => match found() {
            None => error(404, "NoSuchKey"),
            Some((_, tag)) if none_match.is_some_and(|wanted| wanted.trim_matches('"') == tag) => status(304),
            Some((body, tag)) => tagged(&tag, body),
        },
        "DELETE" => {
            objects
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .objects
                .remove(&key);
            status(204)
        }
        "PUT" => {
            if flaw == Flaw::KnowsNoConditions && (none_match.is_some() || matches.is_some()) {
                return Some(error(501, "NotImplemented"));
            }
            let holds = |found: Option<&String>| match (flaw, &none_match, &matches, found) {
                (Flaw::IgnoresConditions, ..) | (_, None, None, _) => true,
                (_, Some(_), _, found) => found.is_none(),
                (Flaw::ReplacesTheMissing, _, Some(_), None) => true,
                (Flaw::WantsUnquotedTags, _, Some(wanted), Some(tag)) => wanted == tag,
                (_, _, Some(wanted), Some(tag)) => wanted.trim_matches('"') == tag,
                (_, _, Some(_), None) => false,
            };
            let tag = found().map(|(_, tag)| tag);
            if flaw == Flaw::IsNotAtomic {
                if !holds(tag.as_ref()) {
                    return Some(error(412, "PreconditionFailed"));
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
            let tag = objects.objects.get(&key).map(|(_, tag)| tag.clone());
            if flaw != Flaw::IsNotAtomic && !holds(tag.as_ref()) {
                let missing = tag.is_none() && matches.is_some();
                return Some(if missing {
                    error(404, "NoSuchKey")
                } else {
                    error(412, "PreconditionFailed")
                });
            }
            objects.versions += 1;
            let tag = format!("{:032x}", objects.versions);
            objects
                .objects
                .insert(key.clone(), (request.body().clone(), tag.clone()));
            tagged(&tag, Bytes::new())
        }
        _ => error(405, "MethodNotAllowed"),
    })
}

fn list(objects: &Objects, query: &str) -> Response<Bytes> {
    let prefix = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("prefix="))
        .unwrap_or_default()
        .replace("%2F", "/");
    let contents: String = objects
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(key, (_, tag))| format!("<Contents><Key>{key}</Key><ETag>\"{tag}\"</ETag></Contents>"))
        .collect();
    let body = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    );
    dated(200).body(Bytes::from(body)).unwrap()
}

fn tagged(tag: &str, body: Bytes) -> Response<Bytes> {
    dated(200).header("etag", format!("\"{tag}\"")).body(body).unwrap()
}

fn status(status: u16) -> Response<Bytes> {
    dated(status).body(Bytes::new()).unwrap()
}

fn error(status: u16, code: &str) -> Response<Bytes> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
    dated(status).body(Bytes::from(body)).unwrap()
}

/// hyper dates every answer by itself.
fn dated(status: u16) -> hyper::http::response::Builder {
    Response::builder().status(status)
}
