//! An S3 store over plain HTTP: presigned, path-style requests for one object each.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};

use super::{Condition, Location, Object};

/// How long one request may take; a store that is away is an error soon enough for a lease to notice.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a signature holds.
const SIGNED_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Store {
    client: Client<HttpConnector, Full<Bytes>>,
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
}

impl Store {
    pub(super) fn open(location: &Location, name: &str, prefix: &str) -> Result<Self, String> {
        let endpoint = location.endpoint.as_deref().unwrap_or_default();
        let url = endpoint
            .parse()
            .map_err(|error| format!("S3_ENDPOINT {endpoint:?}: {error}"))?;
        let bucket = Bucket::new(url, UrlStyle::Path, name.to_owned(), location.region.clone())
            .map_err(|error| format!("S3_ENDPOINT {endpoint:?}: {error}"))?;
        let (key, secret) = location.credentials.clone().ok_or("no credentials")?;
        let credentials = match &location.session_token {
            Some(token) => Credentials::new_with_token(key, secret, token.clone()),
            None => Credentials::new(key, secret),
        };
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self {
            client,
            bucket,
            credentials,
            prefix: prefix.to_owned(),
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Object>, String> {
        let key = self.key(key);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let request = Request::get(url.as_str())
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let response = self.send(request, &key).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let tag = response
                    .headers()
                    .get(ETAG)
                    .and_then(|tag| tag.to_str().ok())
                    .unwrap_or_default();
                Ok(Some(Object {
                    tag: tag.to_owned(),
                    body: response.into_body(),
                }))
            }
            status => Err(refused("GET", &key, status, response.body())),
        }
    }

    pub(super) async fn put(&self, key: &str, body: Bytes, condition: Condition<'_>) -> Result<bool, String> {
        let key = self.key(key);
        let url = self.bucket.put_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let mut request = Request::builder().method(Method::PUT).uri(url.as_str());
        request = match condition {
            Condition::Always => request,
            Condition::Absent => request.header(IF_NONE_MATCH, "*"),
            Condition::Unchanged(tag) => request.header(IF_MATCH, tag),
        };
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let response = self.send(request, &key).await?;
        match response.status() {
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Ok(false),
            status if status.is_success() => Ok(true),
            status => Err(refused("PUT", &key, status, response.body())),
        }
    }

    fn key(&self, key: &str) -> String {
        if self.prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{}/{key}", self.prefix)
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>, key: &str) -> Result<Response<Bytes>, String> {
        let exchange = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|error| format!("{key}: {error}"))?;
            let (head, body) = response.into_parts();
            let body = body
                .collect()
                .await
                .map_err(|error| format!("{key}: {error}"))?
                .to_bytes();
            Ok(Response::from_parts(head, body))
        };
        tokio::time::timeout(LIMIT, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("{key}: the store does not answer")))
    }
}

fn refused(method: &str, key: &str, status: StatusCode, body: &[u8]) -> String {
    let words: String = String::from_utf8_lossy(body).chars().take(300).collect();
    format!("{method} {key}: {status} {words}")
}
