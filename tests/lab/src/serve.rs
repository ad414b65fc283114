//! An HTTP/1.1 server on a thread of its own, for the proxy and the bad stores.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A request with its whole body.
pub(crate) type Asked = Request<Bytes>;

/// An answer with its whole body; `None` cuts the connection without one.
pub(crate) type Answered = Option<Response<Bytes>>;

/// A server at work; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    /// Serves on a free port of the loopback.
    pub(crate) fn start<F, A>(answer: F) -> Self
    where
        F: Fn(Asked) -> A + Send + Sync + 'static,
        A: Future<Output = Answered> + Send,
    {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(TcpListener::from_std(listener).unwrap(), Arc::new(answer)) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept<F, A>(listener: TcpListener, answer: Arc<F>)
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = Answered> + Send,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                let answered = answer(Request::from_parts(head, body)).await;
                // An error makes the connection end without an answer.
                let (head, body) = answered.ok_or(io::ErrorKind::ConnectionReset)?.into_parts();
                Ok::<_, io::Error>(Response::from_parts(
                    head,
                    Full::<Bytes>::new(body).map_err(|never: Infallible| match never {}),
                ))
            }
        });
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
