//! What celld refuses to start with, by version. Pure: text in, a sentence out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bucket::Location;
use crate::launch::Environment;

/// Removed before 0.5: their presence stops every version that Scafo supports.
const REMOVED_EARLY: [&str; 2] = ["CELLD_AI_BINDING", "CELLD_AI_URL"];

/// Removed by 0.6: their presence alone stops it. `CELLD_WORKER_LOADER` is tolerated when empty.
const REMOVED: [&str; 18] = [
    "CELLD_SHUTDOWN_DRAIN_MS",
    "CELLD_DRAIN_TOKEN_WAIT_MS",
    "CELLD_PACED_HANDOFF",
    "CELLD_STORAGE_PROBE",
    "CELLD_OUTPUT_GATE",
    "CELLD_EVICTIONS",
    "CELLD_OTEL_SINK",
    "CELLD_LOG_BUNDLE",
    "CELLD_LOG_CAPTURE_WORKERS",
    "CELLD_LOG_GROUP_COMMIT_MS",
    "CELLD_QUEUE_PRODUCER_GROUP_MS",
    "CELLD_REBALANCE_BATCH_CELLS",
    "CELLD_PRESENCE_SHADOW",
    "CELLD_CLOUD_RESTART_ON_DEPLOY",
    "CELLD_MAX_LOADED_WORKERS",
    "CELLD_WORKER_LOADER",
    "CELLD_VARS_FILE",
    "CELLD_TEST_OTEL_SWEEP_MS",
];

/// Variables that are 0 or 1.
const BOOLEANS: [&str; 2] = ["CELLD_UNSAFE_PUBLIC_ADVERTISE", "CELLD_TRUST_FORWARDED_HEADERS"];

/// Variables that are whole numbers.
const NUMBERS: [&str; 14] = [
    "CELLD_TTL_MS",
    "CELLD_SHUTDOWN_TOTAL_MS",
    "CELLD_SHUTDOWN_DRAIN_MS",
    "CELLD_DRAIN_TOKEN_WAIT_MS",
    "CELLD_READY_FLEET_GATE_MS",
    "CELLD_OPERATION_DEADLINE_MS",
    "CELLD_DEPLOY_POLL_S",
    "CELLD_DEPLOY_MAX_AGE_S",
    "CELLD_IDLE_EVICT_S",
    "CELLD_MAX_RESIDENT_CELLS",
    "CELLD_MAX_RSS_MB",
    "CELLD_LOCAL_CACHE_MAX_BYTES",
    "CELLD_WAKER_TICK_MS",
    "CELLD_RELEASES",
];

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BucketUrl {
    /// A directory, which only the stand-in takes.
    Dir(String),
    /// A bucket of a store: scheme, name and prefix without slashes at its ends.
    Store {
        scheme: &'static str,
        name: String,
        prefix: String,
    },
}

impl BucketUrl {
    /// What celld prints as the kind of ownership.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Dir(_) => "dir",
            Self::Store { scheme, .. } => scheme,
        }
    }

    /// The prefix within the bucket, or the directory.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::Dir(path) => path,
            Self::Store { prefix, .. } => prefix,
        }
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path) => write!(f, "dir:{path}"),
            Self::Store { scheme, name, prefix } if prefix.is_empty() => write!(f, "{scheme}://{name}"),
            Self::Store { scheme, name, prefix } => write!(f, "{scheme}://{name}/{prefix}"),
        }
    }
}

/// Whether a version follows the rules of 0.6.
fn is_06(version: &str) -> bool {
    let mut parts = version
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u64>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (0, 6)
}

/// Every variable, before any argument is looked at.
pub(crate) fn environment(version: &str, environment: &Environment) -> Result<(), String> {
    for (name, value) in environment {
        let tolerated = name == "CELLD_WORKER_LOADER" && value.is_empty();
        let removed = REMOVED.contains(&name.as_str()) || name.starts_with("CELLD_VAR_");
        if REMOVED_EARLY.contains(&name.as_str()) || (is_06(version) && removed && !tolerated) {
            return Err(format!("{name} was removed; unset it"));
        }
        if BOOLEANS.contains(&name.as_str()) && !matches!(value.as_str(), "0" | "1") {
            return Err(format!("{name} must be 0 or 1, not {value:?}"));
        }
        if NUMBERS.contains(&name.as_str()) && value.parse::<u64>().is_err() {
            return Err(format!("{name} must be a whole number, not {value:?}"));
        }
        if name == "CELLD_DURABILITY" && !matches!(value.as_str(), "fleet" | "bucket") {
            return Err(format!("CELLD_DURABILITY must be fleet or bucket, not {value:?}"));
        }
        if name == "CELLD_NODE" {
            node_id(version, value)?;
        }
    }
    let number = |name: &str, default: u64| match environment.get(name) {
        Some(value) => value.parse().unwrap_or(default),
        None => default,
    };
    let total = number("CELLD_SHUTDOWN_TOTAL_MS", 40_000);
    if number("CELLD_DRAIN_TOKEN_WAIT_MS", 0) > total / 4 * 3 {
        return Err("CELLD_DRAIN_TOKEN_WAIT_MS must be at most 3/4 of CELLD_SHUTDOWN_TOTAL_MS".into());
    }
    Ok(())
}

/// 1 to 128 of ASCII letters, digits, `.`, `-` and `_`; from 0.6 on neither `.` nor `..`.
pub(crate) fn node_id(version: &str, id: &str) -> Result<(), String> {
    let charset = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if id.is_empty() || id.len() > 128 || !charset || (is_06(version) && matches!(id, "." | "..")) {
        return Err(format!("CELLD_NODE must be 1 to 128 of A-Z a-z 0-9 . - _, not {id:?}"));
    }
    Ok(())
}

/// `[s3://|gs://|az://]NAME[/PREFIX]`, or the stand-in's own `dir:/PATH`.
pub(crate) fn bucket(text: &str) -> Result<BucketUrl, String> {
    let text = text.trim();
    let prefix_is_plain = |prefix: &str| {
        prefix
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'))
    };
    if let Some(path) = text.strip_prefix("dir:") {
        if !path.starts_with('/') || !prefix_is_plain(path) {
            return Err(format!(
                "the bucket {text:?} is no absolute path of A-Z a-z 0-9 - _ . /"
            ));
        }
        return Ok(BucketUrl::Dir(path.trim_end_matches('/').to_owned()));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
            "s3" => ("s3", rest),
            "gs" => ("gs", rest),
            "az" => ("az", rest),
            _ => {
                return Err(format!(
                    "the bucket scheme {scheme}:// is none of s3://, gs:// and az://"
                ));
            }
        },
        None => ("s3", text),
    };
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err(format!("the bucket {text:?} has no name"));
    }
    if !prefix_is_plain(prefix) {
        return Err(format!(
            "the bucket prefix {prefix:?} may hold A-Z a-z 0-9 - _ . / only"
        ));
    }
    Ok(BucketUrl::Store {
        scheme,
        name: name.into(),
        prefix: prefix.trim_matches('/').into(),
    })
}

/// An endpoint goes with S3 alone; and what the stand-in itself cannot reach.
pub(crate) fn endpoint(location: &Location) -> Result<(), String> {
    let scheme = location.url.scheme();
    match (&location.endpoint, scheme) {
        (_, "dir") => Ok(()),
        (Some(_), "gs" | "az") => Err(format!("--endpoint is for S3 only, not {scheme}://")),
        (None, _) => Err(format!(
            "the stand-in reaches {scheme}:// stores only at a plain-http S3_ENDPOINT"
        )),
        (Some(endpoint), _) if !endpoint.starts_with("http://") => Err(format!(
            "the stand-in speaks plain http to a store, and S3_ENDPOINT is {endpoint:?}"
        )),
        (Some(_), _) if location.credentials.is_none() => {
            Err("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are needed".into())
        }
        (Some(_), _) => Ok(()),
    }
}

/// IP:PORT, IPv6 in brackets; names are refused.
pub(crate) fn socket_address(flag: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{flag} must be IP:PORT (IPv6 in brackets), not {text:?}"))
}

/// The rules that join the two listeners and the advertised address.
pub(crate) fn listeners(
    listen: SocketAddr,
    internal: SocketAddr,
    explicit_internal: bool,
    advertise: Option<&str>,
    public: bool,
) -> Result<(), String> {
    if !explicit_internal && !listen.ip().is_loopback() {
        return Err(format!(
            "--listen {listen} is beyond loopback: give --internal-listen explicitly"
        ));
    }
    match advertise {
        Some(_) if !explicit_internal => Err("--advertise needs an explicit --internal-listen".into()),
        Some(text) => advertised(text, public),
        None if internal.ip().is_unspecified() => Err(format!("--internal-listen {internal} needs --advertise")),
        None => concrete(internal.ip(), public),
    }
}

fn advertised(text: &str, public: bool) -> Result<(), String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        if address.port() == 0 {
            return Err(format!("--advertise {text} has port 0"));
        }
        return concrete(address.ip(), public);
    }
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("--advertise {text:?} has no port"))?;
    if host.contains(':') || host.contains('[') {
        return Err(format!("--advertise {text:?}: an IPv6 address needs brackets"));
    }
    let label_is_good = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if host.len() > 253 || !host.split('.').all(label_is_good) {
        return Err(format!("--advertise {text:?} is no host name"));
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => Err(format!("--advertise {text:?} has no good port")),
        Ok(_) => Ok(()),
    }
}

fn concrete(address: IpAddr, public: bool) -> Result<(), String> {
    if address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(format!("{address} cannot be advertised"));
    }
    let private = match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    };
    if !private && !public {
        return Err(format!(
            "{address} is public: peer traffic is plain text (--unsafe-public-advertise overrides)"
        ));
    }
    Ok(())
}

/// Private, loopback, link-local and shared address space (100.64.0.0/10).
fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private() || address.is_loopback() || address.is_link_local() || (first == 100 && second & 0xc0 == 64)
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
}

#[cfg(test)]
#[path = "refuse/tests.rs"]
mod tests;
