//! HTTP/1.1 inside the mesh (design, section 11): the sockets, the limits, and the endpoints.
//!
//! It decides nothing about who is exposed to whom: it binds where it is told and reports where it listens.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::core::node::Phase;
use crate::error::{Code, Error};

/// Connections that are served at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 256;

/// How long a client may take to send its request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// How long one connection may last altogether. Callers of a node's API ask one short question at a time.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);

/// Connections that the kernel holds for us while we are busy.
const BACKLOG: i32 = 1_024;

/// What `GET /v1/health` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The node's id.
    pub id: String,
    /// `registering`, `live`, `draining` or `stopped`.
    pub phase: String,
    /// What the node waits for, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// The version of Scafo.
    pub scafo: String,
    /// The version of celld that was found at boot.
    pub celld: String,
}

/// Binds the API. With `devices`, one socket each, bound to that device besides the address: packets for the address
/// that came in by any other device never reach it, guard or no guard. All sockets share one port.
pub fn bind(address: SocketAddr, devices: &[&str]) -> io::Result<Vec<std::net::TcpListener>> {
    let mut address = address;
    let mut listeners = Vec::new();
    let devices: Vec<Option<&str>> = if devices.is_empty() {
        vec![None]
    } else {
        devices.iter().copied().map(Some).collect()
    };
    for device in devices {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for connections of the last run to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind_device(device.map(str::as_bytes))?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = std::net::TcpListener::from(socket);
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Serves until `stop`. Returns once every listener is closed.
pub async fn serve(
    listeners: Vec<std::net::TcpListener>,
    health: watch::Receiver<Health>,
    stop: CancellationToken,
) -> io::Result<()> {
    let router = Router::new()
        .route("/v1/health", get(answer_health))
        .fallback(not_found)
        .with_state(health);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut serving = tokio::task::JoinSet::new();
    for listener in listeners {
        let listener = TcpListener::from_std(listener)?;
        serving.spawn(accept(listener, router.clone(), places.clone(), stop.clone()));
    }
    serving.join_all().await;
    Ok(())
}

async fn accept(listener: TcpListener, router: Router, places: Arc<Semaphore>, stop: CancellationToken) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let router = router.clone();
                connections.spawn(async move {
                    serve_connection(stream, router).await;
                    drop(place);
                });
            }
            // Out of descriptors, or a connection that was reset before it was accepted: neither ends the server.
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    // A client that went away or wrote nonsense is its own affair.
    let _ = tokio::time::timeout(CONNECTION_LIMIT, connection).await;
}

async fn answer_health(State(health): State<watch::Receiver<Health>>) -> Response {
    let health = health.borrow().clone();
    let status = if health.phase == Phase::Live.to_string() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(health)).into_response()
}

async fn not_found() -> Response {
    error_response(&Error::new(Code::NotFound, "there is no such endpoint"))
}

/// An error as every endpoint sends it.
fn error_response(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields: Vec<_> = error
        .fields
        .iter()
        .map(|field| serde_json::json!({"field": field.name, "value": field.value, "origin": field.origin}))
        .collect();
    let body = serde_json::json!({
        "error": {"code": error.code.name(), "message": error.message, "fields": fields},
    });
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn health_follows_the_phase_and_unknown_paths_answer_as_errors() {
        let listeners = bind(SocketAddr::from(([127, 0, 0, 1], 0)), &[]).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let mut health = Health {
            id: "n-1".into(),
            phase: Phase::Registering.to_string(),
            waiting: Some("no answer".into()),
            scafo: "0.1.0".into(),
            celld: "0.6.2".into(),
        };
        let (sender, receiver) = watch::channel(health.clone());
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listeners, receiver, stop.clone()));
        let answer = ask(address, "/v1/health").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains(r#""waiting":"no answer""#));
        health.phase = Phase::Live.to_string();
        health.waiting = None;
        sender.send(health).unwrap();
        assert!(ask(address, "/v1/health").await.starts_with("HTTP/1.1 200"));
        let answer = ask(address, "/nowhere").await;
        assert!(
            answer.starts_with("HTTP/1.1 404") && answer.contains(r#""code":"not-found""#),
            "{answer}"
        );
        stop.cancel();
        server.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[test]
    fn a_taken_port_is_an_error() {
        let first = bind(SocketAddr::from(([127, 0, 0, 1], 0)), &[]).unwrap();
        assert!(bind(first[0].local_addr().unwrap(), &[]).is_err());
    }
}
