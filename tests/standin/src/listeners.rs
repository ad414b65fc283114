//! The two HTTP listeners: the public one with the reserved health path and the "Worker", and the internal one.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::node::Node;
use crate::shutdown::End;

/// The one public path that is not the Worker's.
const HEALTH: &str = "/.well-known/celld/health";

/// How large a value of `PUT /kv/KEY` may be, in bytes.
const VALUE_LIMIT: usize = 1 << 20;

/// How long a key may be, in bytes.
const KEY_LIMIT: usize = 256;

/// Which listener a connection came in on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Public,
    Internal,
}

type Answer = Response<Full<Bytes>>;

/// Accepts until the process ends.
pub(crate) async fn serve(listener: TcpListener, node: Arc<Node>, side: Side) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or the peer is gone already: the next one may be luckier.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async {
                let answer = match side {
                    Side::Public => public(&node, request).await,
                    Side::Internal => internal(&node, &request).await,
                };
                Ok::<_, Infallible>(answer)
            });
            // A connection that breaks is its client's business.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(status: StatusCode, mut body: Value) -> Answer {
    if let Some(object) = body.as_object_mut() {
        object.insert("standin".into(), true.into());
    }
    let mut response = Response::new(Full::new(format!("{body}\n").into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-celld-standin", HeaderValue::from_static("1"));
    response
}

async fn public(node: &Node, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if path == HEALTH {
        return health(node);
    }
    if node.is_draining() {
        let mut refusal = answer(
            StatusCode::SERVICE_UNAVAILABLE,
            json!({ "ok": false, "draining": true }),
        );
        refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        refusal
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return refusal;
    }
    let _under_way = node.begin_request();
    match path.strip_prefix("/kv/") {
        Some(key) if !key.is_empty() && key.len() <= KEY_LIMIT => kv(node, key, request).await,
        _ => worker(node, &request),
    }
}

/// Readiness; the fleet counts as settled at once, since a stand-in has no peers to wait for.
fn health(node: &Node) -> Answer {
    if node.is_draining() || node.faults.is_on("unhealthy") {
        return answer(StatusCode::SERVICE_UNAVAILABLE, json!({ "ok": false }));
    }
    answer(StatusCode::OK, json!({ "ok": true }))
}

async fn kv(node: &Node, key: &str, request: Request<Incoming>) -> Answer {
    match *request.method() {
        Method::PUT => {
            let Ok(body) = Limited::new(request.into_body(), VALUE_LIMIT).collect().await else {
                return answer(StatusCode::PAYLOAD_TOO_LARGE, json!({ "ok": false }));
            };
            let Ok(value) = String::from_utf8(body.to_bytes().into()) else {
                return answer(StatusCode::BAD_REQUEST, json!({ "ok": false, "error": "not UTF-8" }));
            };
            match node.writes().put(key, &value) {
                Ok(()) => answer(StatusCode::OK, json!({ "ok": true, "key": key, "acknowledged": true })),
                Err(error) => answer(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    json!({ "ok": false, "error": error.to_string() }),
                ),
            }
        }
        Method::GET => match node.writes().get(key) {
            Some(value) => answer(StatusCode::OK, json!({ "ok": true, "key": key, "value": value })),
            None => answer(StatusCode::NOT_FOUND, json!({ "ok": false, "key": key })),
        },
        _ => answer(StatusCode::METHOD_NOT_ALLOWED, json!({ "ok": false })),
    }
}

/// Where celld would call the application.
fn worker(node: &Node, request: &Request<Incoming>) -> Answer {
    let deployment = node.deployment();
    let prefix = node.settings.location.url.prefix();
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    answer(
        StatusCode::OK,
        json!({
            "node": node.id,
            "app": prefix.rsplit('/').next(),
            "prefix": prefix,
            "script": deployment.script,
            "deployment": deployment.version,
            "version": node.settings.version,
            "pid": std::process::id(),
            "method": request.method().as_str(),
            "path": request.uri().path(),
            "host": host,
        }),
    )
}

async fn internal(node: &Node, request: &Request<Incoming>) -> Answer {
    let not_allowed = || answer(StatusCode::METHOD_NOT_ALLOWED, json!({ "ok": false }));
    let is_post = request.method() == Method::POST;
    match request.uri().path() {
        "/state" if request.method() == Method::GET => answer(StatusCode::OK, state(node)),
        "/shutdown" | "/reload" | "/standin/fence" | "/standin/crash" if !is_post => not_allowed(),
        "/shutdown" => {
            node.end(End::Stop);
            answer(StatusCode::OK, json!({ "ok": true }))
        }
        "/reload" => match node.reload().await {
            Ok(deployment) => {
                let deployment = json!({ "version": deployment.version, "script_name": deployment.script });
                answer(StatusCode::OK, json!({ "ok": true, "deployment": deployment }))
            }
            Err(error) => answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({ "ok": false, "error": error }),
            ),
        },
        "/standin/fence" => {
            node.end(End::Fence("a test asked for it".into()));
            answer(StatusCode::OK, json!({ "ok": true }))
        }
        "/standin/crash" => std::process::abort(),
        _ => answer(StatusCode::NOT_FOUND, json!({ "ok": false })),
    }
}

fn state(node: &Node) -> Value {
    let deployment = node.deployment();
    let memory = resident_bytes();
    let draining = node.is_draining();
    json!({
        "ownership": node.settings.location.url.scheme(),
        "durability": node.settings.durability,
        "occupied": 0, "evicting": 0, "restoring": 0, "activating": 0, "activation_waiting": 0, "capacity_waiting": 0,
        "phases": {}, "shedding": null, "rss_bytes": memory, "in_use_bytes": memory,
        "residents": [], "published": [], "publishes": node.writes().len(), "stops": 0, "owned_cells": 0,
        "quiescing": draining,
        "node_load": { "draining": draining, "rss_bytes": memory, "restoring": 0, "owned_cells": 0, "resident_cells": 0 },
        "deployment": { "version": deployment.version, "script_name": deployment.script, "isolates": 0, "draining": [] },
    })
}

/// Resident memory as the kernel counts it, in bytes; 0 where it does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}
