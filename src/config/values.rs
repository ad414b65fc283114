//! How values are read, and which of them cannot stand together. Every error is the reason alone: who said it and where
//! is added by the layers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use serde_json::Value;

use super::settings::Kind;
use super::{Backend, Config, Fault, Faults, Origin, PortRange};
use crate::bucket::url::BucketUrl;
use crate::core::types::{Id, Labels, Transport};
use crate::error::Field;

/// What somebody said, before it is read.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// Each use of a flag.
    Flags(Vec<String>),
    /// A variable's value.
    Variable(String),
    /// A value of the file.
    Json(Value),
}

/// The parts of a list that cannot be used, each as it stands and with the reason.
pub(super) type WrongParts = Vec<(String, String)>;

impl Raw {
    /// As people wrote it. No setting is a secret: credentials are the environment's and the machine's affair.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Flags(values) => values.join(","),
            Self::Variable(value) => value.clone(),
            Self::Json(value) => shown(value),
        }
    }

    /// One text. In the file, a number has to be one and a text has to be one.
    pub(super) fn text(&self, kind: Kind) -> Result<String, String> {
        let text = match (self, kind) {
            (Self::Flags(values), _) => values.last().cloned().unwrap_or_default(),
            (Self::Variable(value), _) => value.trim().to_owned(),
            (Self::Json(Value::Number(number)), Kind::Number(..)) => number.to_string(),
            (Self::Json(_), Kind::Number(..)) => return Err("it is not a number".to_owned()),
            (Self::Json(Value::String(text)), _) => text.clone(),
            (Self::Json(_), _) => return Err("it is not a text".to_owned()),
        };
        if let Kind::Number(least, most) = kind {
            let number: u64 = text.parse().map_err(|_| "it is not a whole number".to_owned())?;
            if !(least..=most).contains(&number) {
                return Err(format!("it is not from {least} to {most}"));
            }
        }
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(text)
    }

    /// Labels, and every pair that is none with the reason.
    pub(super) fn pairs(&self) -> (Labels, WrongParts) {
        let mut labels = Labels::new();
        let mut wrong = Vec::new();
        let pairs: Vec<Result<(String, String), (String, String)>> = match self {
            Self::Flags(values) => values.iter().map(|pair| split(pair)).collect(),
            Self::Variable(value) => value.split(',').map(|pair| split(pair.trim())).collect(),
            Self::Json(Value::Object(fields)) => fields
                .iter()
                .map(|(key, value)| match value {
                    Value::String(value) => Ok((key.clone(), value.clone())),
                    other => Err((
                        format!("{key}: {}", shown(other)),
                        "a label's value is a text".to_owned(),
                    )),
                })
                .collect(),
            Self::Json(other) => vec![Err((shown(other), "labels are an object of texts".to_owned()))],
        };
        for pair in pairs {
            match pair.and_then(|(key, value)| checked_label(key, value)) {
                Ok((key, value)) if labels.contains_key(&key) => {
                    wrong.push((format!("{key}={value}"), format!("the label {key} stands twice")));
                }
                Ok((key, value)) => {
                    labels.insert(key, value);
                }
                Err(fault) => wrong.push(fault),
            }
        }
        (labels, wrong)
    }

    /// Endpoints, and every one that is none with the reason.
    pub(super) fn endpoints(&self) -> (Vec<String>, WrongParts) {
        let all: Vec<Result<String, (String, String)>> = match self {
            Self::Flags(values) => values.iter().cloned().map(Ok).collect(),
            Self::Variable(value) => value.split(',').map(|part| Ok(part.trim().to_owned())).collect(),
            Self::Json(Value::Array(values)) => values
                .iter()
                .map(|value| match value {
                    Value::String(text) => Ok(text.clone()),
                    other => Err((shown(other), "an endpoint is a text".to_owned())),
                })
                .collect(),
            Self::Json(other) => vec![Err((shown(other), "endpoints are a list of texts".to_owned()))],
        };
        let mut endpoints = Vec::new();
        let mut wrong = Vec::new();
        for endpoint in all {
            match endpoint.and_then(|text| checked_endpoint(&text).map_err(|reason| (text, reason))) {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(fault) => wrong.push(fault),
            }
        }
        (endpoints, wrong)
    }
}

/// A value of the file as people wrote it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn split(pair: &str) -> Result<(String, String), (String, String)> {
    match pair.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err((pair.to_owned(), "a label is key=value".to_owned())),
    }
}

/// A label's key and value are up to 63 letters, digits, `-`, `_`, `.` and, in keys, `/`, with a letter or digit at
/// either end, so that a selector can name any of them. A value may be empty.
fn checked_label(key: String, value: String) -> Result<(String, String), (String, String)> {
    let good = |text: &str, slash: bool| {
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        bytes.len() <= 63
            && bytes.iter().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') || (slash && *byte == b'/')
            })
            && ends.into_iter().flatten().all(u8::is_ascii_alphanumeric)
    };
    let pair = format!("{key}={value}");
    if key.is_empty() {
        Err((pair, "the label has no key".to_owned()))
    } else if !good(&key, true) {
        Err((
            pair,
            "a key is up to 63 letters, digits, -, _, . and /, with a letter or digit at either end".to_owned(),
        ))
    } else if !good(&value, false) {
        Err((
            pair,
            "a value is up to 63 letters, digits, -, _ and ., with a letter or digit at either end".to_owned(),
        ))
    } else {
        Ok((key, value))
    }
}

/// `host:port`, where the host is a name, an IPv4 address or an IPv6 address in brackets.
pub fn checked_endpoint(text: &str) -> Result<String, String> {
    let wrong = "an endpoint is host:port, with an IPv6 address in brackets";
    let (host, port) = text.rsplit_once(':').ok_or(wrong)?;
    port.parse::<u16>()
        .ok()
        .filter(|port| *port > 0)
        .ok_or("the port is not from 1 to 65535")?;
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        inner.parse::<std::net::Ipv6Addr>().map_err(|_| wrong)?;
        return Ok(text.to_owned());
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let host_is_good = host.len() <= 253 && host.trim_end_matches('.').split('.').all(label);
    // All digits and dots is an address or nothing.
    let numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let address_is_good = host
        .parse::<Ipv4Addr>()
        .is_ok_and(|address| !address.is_unspecified() && !address.is_multicast());
    if host_is_good && (!numeric || address_is_good) {
        Ok(text.to_owned())
    } else {
        Err(wrong.to_owned())
    }
}

pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "it is not a whole number that fits".to_owned())
}

pub(super) fn bucket_url(text: &str) -> Result<BucketUrl, String> {
    text.parse()
        .map_err(|error: crate::bucket::url::InvalidBucketUrl| error.to_string())
}

pub(super) fn endpoint_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.trim_matches('/').is_empty() && !rest.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("an endpoint of a store begins with https:// or http://".to_owned()),
    }
}

pub(super) fn absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("it is not an absolute path".to_owned())
    }
}

pub(super) fn id(text: &str) -> Result<Id, String> {
    text.parse()
        .map_err(|error: crate::core::types::InvalidId| error.to_string())
}

pub(super) fn transport(text: &str) -> Result<Transport, String> {
    text.parse()
        .map_err(|error: crate::core::types::InvalidTransport| error.to_string())
}

pub(super) fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "embedded" => Ok(Backend::Embedded),
        "kernel" => Ok(Backend::Kernel),
        _ => Err("a backend is embedded or kernel".to_owned()),
    }
}

pub(super) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is neither on nor off".to_owned()),
    }
}

pub(super) fn port_range(text: &str) -> Result<PortRange, String> {
    let wrong = || "ports are FIRST-LAST, from 1 to 65535, for example 7400-7999".to_owned();
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let range = PortRange {
        first: first.trim().parse().map_err(|_| wrong())?,
        last: last.trim().parse().map_err(|_| wrong())?,
    };
    // A runtime takes two.
    if range.first == 0 || range.last <= range.first {
        Err(wrong())
    } else {
        Ok(range)
    }
}

/// Names that the kernel takes for an interface (`dev_valid_name`): up to 15 bytes, no slash, colon or space.
pub(super) fn interface(text: &str) -> Result<String, String> {
    let good = text.len() <= 15
        && !matches!(text, "." | "..")
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%' | b'"'));
    if good {
        Ok(text.to_owned())
    } else {
        Err("an interface's name is up to 15 letters, digits and - _ .".to_owned())
    }
}

/// A network for a mesh: its own address range, with room for more than a handful of nodes, none that means something
/// else everywhere.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text
        .parse()
        .map_err(|_| "a network is ADDRESS/PREFIX, for example 10.88.0.0/16".to_owned())?;
    let network = network.trunc();
    let (least, most) = if network.addr().is_ipv4() { (8, 29) } else { (8, 125) };
    if !(least..=most).contains(&network.prefix_len()) {
        return Err(format!("a mesh network's prefix is from /{least} to /{most}"));
    }
    let private = match network.addr() {
        // RFC 1918, and RFC 6598's shared space.
        IpAddr::V4(v4) => v4.is_private() || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64),
        // RFC 4193.
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    if private {
        Ok(network)
    } else {
        Err("a mesh network is a private one: in 10/8, 172.16/12, 192.168/16, 100.64/10 or fc00::/7".to_owned())
    }
}

/// Settings that cannot stand together.
pub(super) fn cross_check(config: &Config, faults: &mut Faults) {
    let registry = &config.registry;
    let beat = registry.heartbeat_interval_ms.value;
    let window = registry.liveness_window_ms.value;
    if window < 2 * beat {
        faults.merge(one(
            "registry.livenessWindowMs",
            window,
            &registry.liveness_window_ms.origin,
            format!("it is less than two beats, which are {beat} ms each, so one late beat would count as a death"),
        ));
    }
    let ttl = config.coordinator.lease_ttl_ms.value;
    let renew = config.coordinator.renew_interval_ms.value;
    if ttl > window {
        faults.merge(one(
            "coordinator.leaseTtlMs",
            ttl,
            &config.coordinator.lease_ttl_ms.origin,
            format!("it is longer than the liveness window ({window} ms), within which nothing of a dead holder moves anyway"),
        ));
    }
    // Authority ends 12 s before the TTL and new work 6 s before that (design, section 8); both shrink with the TTL.
    let margins = 18_000.min(ttl / 5);
    if 2 * renew >= ttl - margins {
        faults.merge(one(
            "coordinator.renewIntervalMs",
            renew,
            &config.coordinator.renew_interval_ms.origin,
            format!("two renewals do not fit into the {} ms that a lease of {ttl} ms can be used, so one missed renewal would lose it", ttl - margins),
        ));
    }
    let ports = config.runtime.ports.value;
    let api = config.api.port.value;
    if (ports.first..=ports.last).contains(&api) {
        faults.merge(one(
            "api.port",
            api,
            &config.api.port.origin,
            format!("runtimes are given the ports {}-{}", ports.first, ports.last),
        ));
    }
}

fn one(key: &str, value: impl std::fmt::Display, origin: &Origin, reason: String) -> Faults {
    let mut faults = Faults::default();
    let field = Field::new(key, value).from(origin).because(reason);
    faults.add(Fault {
        summary: "two settings do not go together",
        field,
        help: None,
    });
    faults
}
