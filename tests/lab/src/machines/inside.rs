//! Reaching into a machine's network from the test process itself: sockets made there, HTTP requests sent from there, and
//! relays by which a machine offers something that listens on the host's loopback.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};

use super::Machine;

/// How long a connection or an answer may take when nothing else is said.
const LIMIT: Duration = Duration::from_secs(10);

/// The answer to an HTTP request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("no JSON ({error}) in an answer {}: {}", self.status, self.body),
        }
    }
}

/// Passes TCP connections from a port of a machine on to an address that the test process reaches. Ends when dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl Machine {
    /// Runs something on a thread that is in this machine's network. Sockets made there stay in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(Path::new("/run/netns").join(self.namespace())).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A TCP listener on this machine; port 0 lets the kernel choose.
    pub fn listen(&self, address: IpAddr, port: u16) -> io::Result<TcpListener> {
        self.inside(|| TcpListener::bind((address, port)))
    }

    /// A TCP connection from this machine.
    pub fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        self.inside(|| TcpStream::connect_timeout(&to, limit))
    }

    /// `GET` from this machine.
    pub fn get(&self, to: SocketAddr, path: &str) -> io::Result<Answer> {
        self.request(to, "GET", path, &[], "")
    }

    /// An HTTP request from this machine, on a connection of its own, within ten seconds.
    pub fn request(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let mut stream = self.connect(to, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {to}\r\n"));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        stream.write_all(text.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("no HTTP answer from {to}")))
    }

    /// Offers on this machine's `port` what listens on `target` in the test process's own network, such as a store on
    /// the host's loopback. Port 0 lets the kernel choose.
    pub fn relay(&self, port: u16, target: SocketAddr) -> Relay {
        let listener = self.listen(Ipv4Addr::UNSPECIFIED.into(), port).unwrap();
        let address = SocketAddr::from((self.address(), listener.local_addr().unwrap().port()));
        let ended = Arc::new(AtomicBool::new(false));
        let acceptor = thread::spawn({
            let ended = Arc::clone(&ended);
            move || accept(&listener, target, &ended)
        });
        Relay {
            address,
            ended,
            acceptor: Some(acceptor),
        }
    }
}

impl Relay {
    /// Where the machines reach it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let mut waited = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut waited, PollTimeout::from(50u8)), Ok(1..)) {
            continue;
        }
        let Ok((near, _)) = listener.accept() else { continue };
        thread::spawn(move || {
            // A target that is down closes the connection at once, as a dead host's port would.
            let Ok(far) = TcpStream::connect_timeout(&target, LIMIT) else {
                return;
            };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (Ok(near_again), Ok(far_again)) = (near.try_clone(), far.try_clone()) else {
                return;
            };
            let there = thread::spawn(move || pass(near_again, far_again));
            pass(far, near);
            let _ = there.join();
        });
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    // Either end may break the connection at any time; the other must hear of it.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.contains("chunked"));
    let body = if chunked { unchunk(body)? } else { body.to_owned() };
    Some(Answer { status, headers, body })
}

/// The text of a body in chunks. Sizes count bytes, and text that is no UTF-8 was replaced before: then it fails.
fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_and_in_chunks() {
        let plain = parse("HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nbody").unwrap();
        assert_eq!(
            (plain.status, plain.header("x-a"), plain.body.as_str()),
            (200, Some("b"), "body")
        );
        let chunked =
            parse("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
        assert_eq!(chunked.unwrap().body, "abcde");
        assert!(parse("").is_none());
    }
}
