//! WireGuard's cross-platform configuration protocol over a Unix socket: `wg show` reads it, and so does Scafo itself.
//!
//! Reading only: what the peers are is the registry's to say, so `set=1` is refused (EOPNOTSUPP).

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use defguard_wireguard_rs::host::Host;
use nix::errno::Errno;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::device::Status;

/// How long one exchange may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest line that is read.
const LONGEST_LINE: u64 = 4_096;

/// A socket that is answered; its file goes when this does.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Nobody answers there any more, with the file or without.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the socket, mode 0600 from the start. A file that a dead process left is replaced; a live one is not.
pub(crate) fn listen(path: &Path) -> io::Result<Listening> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
        Err(error) => return Err(error),
    }
    // Any file refuses a connection, and only a socket is a leftover of such as we are.
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        _ => {}
    }
    // Under another name until nobody else can open it.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(Listening {
        listener,
        path: path.to_owned(),
    })
}

/// Answers until it is dropped.
pub(crate) async fn serve(listening: Listening, status: impl Fn() -> Status + Send + Sync + Clone + 'static) {
    loop {
        match listening.listener.accept().await {
            Ok((stream, _)) => {
                let status = status.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(LIMIT, answer(stream, status)).await;
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(stream: UnixStream, status: impl Fn() -> Status) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read.take(LONGEST_LINE)).lines();
    // A transaction is a line that says what, further lines, and an empty one.
    let Some(first) = lines.next_line().await? else {
        return Ok(());
    };
    let text = if first == "get=1" {
        get(&status(), SystemTime::now())
    } else {
        format!("errno={}\n\n", Errno::EOPNOTSUPP as i32)
    };
    write.write_all(text.as_bytes()).await
}

/// The answer to `get=1`. The private key is left out: nobody who asks needs it.
fn get(status: &Status, now: SystemTime) -> String {
    let mut text = format!("listen_port={}\n", status.listen_port);
    for peer in &status.peers {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "public_key={}", peer.public_key.to_key().to_lower_hex());
        if let Some(endpoint) = peer.endpoint {
            let _ = writeln!(text, "endpoint={endpoint}");
        }
        let handshake = peer
            .last_handshake
            .map(|at| at.min(now).duration_since(UNIX_EPOCH).unwrap_or_default());
        let handshake = handshake.unwrap_or_default();
        let _ = writeln!(text, "last_handshake_time_sec={}", handshake.as_secs());
        let _ = writeln!(text, "last_handshake_time_nsec={}", handshake.subsec_nanos());
        let _ = writeln!(text, "rx_bytes={}\ntx_bytes={}", peer.received, peer.sent);
        let _ = writeln!(
            text,
            "persistent_keepalive_interval={}",
            peer.keepalive.unwrap_or_default()
        );
        for network in &peer.allowed_ips {
            let _ = writeln!(text, "allowed_ip={network}");
        }
        text.push_str("protocol_version=1\n");
    }
    text.push_str("errno=0\n\n");
    text
}

/// Asks the daemon behind `path` how its tunnel goes.
pub async fn query(path: &Path) -> io::Result<Host> {
    let exchange = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(b"get=1\n\n").await?;
        let mut answer = Vec::new();
        stream.take(64 << 20).read_to_end(&mut answer).await?;
        Ok(answer)
    };
    let answer: io::Result<Vec<u8>> = tokio::time::timeout(LIMIT, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    Host::parse_uapi(answer?.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::PeerStatus;
    use crate::key::PublicKey;

    fn status() -> Status {
        Status {
            public_key: PublicKey::from([1; 32]),
            listen_port: 51_820,
            mtu: 1_420,
            peers: vec![PeerStatus {
                name: "n-2".into(),
                public_key: PublicKey::from([2; 32]),
                endpoint: Some("172.31.0.2:51820".parse().unwrap()),
                allowed_ips: vec!["10.88.0.2/32".parse().unwrap()],
                last_handshake: Some(UNIX_EPOCH + Duration::from_millis(1_500)),
                received: 10,
                sent: 20,
                keepalive: Some(25),
            }],
            counters: crate::Counts::default(),
        }
    }

    #[tokio::test]
    async fn what_is_served_is_what_is_read() {
        let folder = std::env::temp_dir().join(format!("scafo-uapi-{}", std::process::id()));
        let path = folder.join("wg.sock");
        let listener = listen(&path).unwrap();
        let server = tokio::spawn(serve(listener, status));
        let host = query(&path).await.unwrap();
        assert_eq!(host.listen_port, 51_820);
        let peer = host.peers.values().next().unwrap();
        assert_eq!(
            (peer.rx_bytes, peer.tx_bytes, peer.persistent_keepalive_interval),
            (10, 20, Some(25))
        );
        assert_eq!(peer.endpoint.unwrap().to_string(), "172.31.0.2:51820");
        assert_eq!(
            peer.last_handshake
                .unwrap()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs(),
            1
        );
        assert!(listen(&path).is_err(), "a live socket is not replaced");
        server.abort();
        let _ = server.await;
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(listen(&path).unwrap());
        std::fs::write(&path, "no socket").unwrap();
        assert!(listen(&path).is_err(), "what is no socket is not ours to replace");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "no socket");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
