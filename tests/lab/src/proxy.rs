//! An HTTP proxy before a store that plays the faults of networks: it forwards signed bytes as they are, and refuses,
//! hangs, answers for the store, or lets the store finish and cuts the reply, as its rules say.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::serve::{Answered, Asked, Serving};

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection ends; the store never hears of it.
    Refuse,
    /// Nobody ever answers.
    Hang,
    /// The proxy answers with this status and body; the store never hears of it.
    Answer(u16, &'static str),
    /// The store carries it out, and the connection ends before its answer.
    CutReply,
    /// The store carries it out, and the proxy answers with this status and body instead.
    AnswerInstead(u16, &'static str),
    /// The store hears of it this much later.
    Delay(Duration),
}

/// Which requests something happens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The method.
    pub method: &'static str,
    /// A part of the path.
    pub path_contains: String,
    /// What happens.
    pub action: Action,
    /// To how many of them; afterwards they pass.
    pub times: u32,
}

/// A proxy at work.
#[derive(Debug)]
pub struct Proxy {
    serving: Serving,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    requests: Vec<(String, String)>,
}

impl Proxy {
    /// A proxy before the store at `upstream`; everything passes at first.
    pub fn before(upstream: SocketAddr) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let serving = Serving::start(move |request| {
            let action = held(&shared).take(&request);
            forward(upstream, request, action)
        });
        Self { serving, state }
    }

    /// Its address, for `SCAFO_BUCKET_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address())
    }

    /// Adds a rule; of several that fit, the first one counts.
    pub fn rule(&self, method: &'static str, path_contains: &str, action: Action, times: u32) {
        held(&self.state).rules.push(Rule {
            method,
            path_contains: path_contains.to_owned(),
            action,
            times,
        });
    }

    /// How many requests of this method came for paths that contain `part`.
    pub fn requests(&self, method: &str, part: &str) -> usize {
        held(&self.state)
            .requests
            .iter()
            .filter(|(found, path)| found == method && path.contains(part))
            .count()
    }
}

impl State {
    fn take(&mut self, request: &Asked) -> Option<Action> {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        self.requests.push((method.clone(), path.clone()));
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.times > 0 && rule.method == method && path.contains(&rule.path_contains))?;
        rule.times -= 1;
        Some(rule.action.clone())
    }
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn forward(upstream: SocketAddr, request: Asked, action: Option<Action>) -> Answered {
    match action {
        Some(Action::Refuse) => return None,
        Some(Action::Hang) => {
            tokio::time::sleep(Duration::from_secs(120)).await;
            return None;
        }
        Some(Action::Answer(status, body)) => return Some(answer(status, body)),
        Some(Action::Delay(time)) => tokio::time::sleep(time).await,
        Some(Action::CutReply | Action::AnswerInstead(..)) | None => {}
    }
    let answered = ask(upstream, request).await?;
    match action {
        Some(Action::CutReply) => None,
        Some(Action::AnswerInstead(status, body)) => Some(answer(status, body)),
        _ => Some(answered),
    }
}

fn answer(status: u16, body: &'static str) -> Response<Bytes> {
    Response::builder()
        .status(status)
        .header("content-type", "application/xml")
        .body(Bytes::from(body))
        .unwrap()
}

/// Asks the store with the very bytes that came: the signature covers the host and the path.
async fn ask(upstream: SocketAddr, request: Asked) -> Answered {
    let stream = TcpStream::connect(upstream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let response = sender.send_request(request.map(Full::new)).await.ok()?;
    let (mut head, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    // The body is whole now, so it is sent with its length.
    head.headers.remove("transfer-encoding");
    Some(Response::from_parts(head, body))
}
