//! The one table of settings: key, flag, variables, default and a line of help. The command line, the file, the
//! environment and `scafo config show` all follow it.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A whole number between two bounds, both included.
    Number(u64, u64),
    /// Texts: one flag each, commas between them in a variable, a list in the file.
    List,
    /// `key=value` pairs: one flag each, commas between them in a variable, an object in the file.
    Pairs,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key in the file, with dots between its levels.
    pub key: &'static str,
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// The variables, the first one that is set counts.
    pub variables: &'static [&'static str],
    /// What a value looks like.
    pub kind: Kind,
    /// How the value is called in `--help`.
    pub value_name: &'static str,
    /// The default as text; `None` when there is none.
    pub default: Option<&'static str>,
    /// What it is, in one line.
    pub help: &'static str,
}

/// A day: no interval of ours is longer.
const DAY_MS: u64 = 86_400_000;

const fn setting(
    key: &'static str,
    flag: &'static str,
    variables: &'static [&'static str],
    kind: Kind,
    value_name: &'static str,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting {
        key,
        flag,
        variables,
        kind,
        value_name,
        default,
        help,
    }
}

/// Every setting, in the order in which they are shown.
#[rustfmt::skip]
pub const SETTINGS: [Setting; 29] = [
    setting("bucket.url", "bucket", &["SCAFO_BUCKET"], Kind::Text, "URL", None,
        "The bucket that the fleet shares: s3://NAME[/PREFIX], or dir:/PATH to try out"),
    setting("bucket.endpoint", "bucket-endpoint", &["SCAFO_BUCKET_ENDPOINT", "S3_ENDPOINT"], Kind::Text, "URL", None,
        "The store's address when it is not Amazon's, for example https://s3.example"),
    setting("bucket.region", "bucket-region", &["SCAFO_BUCKET_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"], Kind::Text, "REGION", None,
        "The store's region; us-east-1 when nothing is said, auto for Cloudflare R2"),
    setting("state.dir", "state-dir", &["SCAFO_STATE_DIR"], Kind::Text, "DIR", Some("/var/lib/scafo"),
        "Where this machine keeps its keys and state"),
    setting("node.id", "node-id", &["SCAFO_NODE_ID"], Kind::Text, "ID", None,
        "The node's id; derived from its key when nothing is said"),
    setting("node.labels", "node-labels", &["SCAFO_NODE_LABELS"], Kind::Pairs, "K=V", None,
        "A label that selectors match against; once per pair"),
    setting("node.transport", "transport", &["SCAFO_TRANSPORT"], Kind::Text, "TRANSPORT", None,
        "By what network the node is reached: loopback, wireguard or private"),
    setting("node.address", "address", &["SCAFO_ADDRESS"], Kind::Text, "IP", None,
        "The address that the node registers; follows the transport"),
    setting("api.host", "api-host", &["SCAFO_API_HOST"], Kind::Text, "IP", None,
        "Where the API listens; follows the transport"),
    setting("api.port", "api-port", &["SCAFO_API_PORT"], Kind::Number(1, 65_535), "PORT", Some("7300"),
        "The API's port"),
    setting("runtime.binary", "runtime-binary", &["SCAFO_RUNTIME_BINARY"], Kind::Text, "PATH", Some("celld"),
        "The celld to run, 0.5.0 or newer"),
    setting("runtime.bindHost", "runtime-bind-host", &["SCAFO_RUNTIME_BIND_HOST"], Kind::Text, "IP", None,
        "Where runtimes listen; follows the transport"),
    setting("runtime.ports", "runtime-ports", &["SCAFO_RUNTIME_PORTS"], Kind::Text, "FIRST-LAST", Some("7400-7999"),
        "The ports that runtimes are given"),
    setting("registry.heartbeatIntervalMs", "registry-heartbeat-interval-ms", &["SCAFO_REGISTRY_HEARTBEAT_INTERVAL_MS"], Kind::Number(50, DAY_MS), "MS", Some("30000"),
        "How often the node beats"),
    setting("registry.livenessWindowMs", "registry-liveness-window-ms", &["SCAFO_REGISTRY_LIVENESS_WINDOW_MS"], Kind::Number(100, DAY_MS), "MS", Some("90000"),
        "How old a beat may be while the node counts as live"),
    setting("registry.nodeRefreshIntervalMs", "registry-node-refresh-interval-ms", &["SCAFO_REGISTRY_NODE_REFRESH_INTERVAL_MS"], Kind::Number(50, DAY_MS), "MS", Some("30000"),
        "How often the fleet's records are read again"),
    setting("registry.hintPollIntervalMs", "registry-hint-poll-interval-ms", &["SCAFO_REGISTRY_HINT_POLL_INTERVAL_MS"], Kind::Number(50, DAY_MS), "MS", Some("5000"),
        "How often the change hint is looked at"),
    setting("coordinator.leaseTtlMs", "coordinator-lease-ttl-ms", &["SCAFO_COORDINATOR_LEASE_TTL_MS"], Kind::Number(100, DAY_MS), "MS", Some("90000"),
        "How long the coordinator's lease lasts; at most the liveness window"),
    setting("coordinator.renewIntervalMs", "coordinator-renew-interval-ms", &["SCAFO_COORDINATOR_RENEW_INTERVAL_MS"], Kind::Number(10, DAY_MS), "MS", Some("30000"),
        "How often the holder renews the lease"),
    setting("wireguard.interface", "wireguard-interface", &["SCAFO_WIREGUARD_INTERFACE"], Kind::Text, "NAME", Some("scafo0"),
        "The tunnel's interface"),
    setting("wireguard.listenPort", "wireguard-listen-port", &["SCAFO_WIREGUARD_LISTEN_PORT"], Kind::Number(0, 65_535), "PORT", Some("51820"),
        "The tunnel's UDP port; 0 lets the kernel choose"),
    setting("wireguard.endpoints", "wireguard-endpoints", &["SCAFO_WIREGUARD_ENDPOINTS"], Kind::List, "HOST:PORT", None,
        "Where others reach this node's UDP port; detected when nothing is said; once per endpoint"),
    setting("wireguard.mtu", "wireguard-mtu", &["SCAFO_WIREGUARD_MTU"], Kind::Number(1_280, 65_535), "BYTES", None,
        "The tunnel's MTU; detected when nothing is said"),
    setting("wireguard.keepaliveSeconds", "wireguard-keepalive-seconds", &["SCAFO_WIREGUARD_KEEPALIVE_SECONDS"], Kind::Number(0, 65_535), "SECONDS", Some("25"),
        "How often an idle tunnel sends something, which keeps NATs open; 0 for never"),
    setting("wireguard.backend", "wireguard-backend", &["SCAFO_WIREGUARD_BACKEND"], Kind::Text, "BACKEND", Some("embedded"),
        "Which WireGuard carries the tunnel: embedded or kernel"),
    setting("wireguard.guard", "wireguard-guard", &["SCAFO_WIREGUARD_GUARD"], Kind::Text, "ON|OFF", Some("on"),
        "Whether packets for the tunnel address that did not come through the tunnel are dropped"),
    setting("fleet.network", "fleet-network", &["SCAFO_FLEET_NETWORK"], Kind::Text, "CIDR", Some("10.88.0.0/16"),
        "The mesh network; every node has to agree on it"),
    setting("operator.file", "operator-file", &["SCAFO_OPERATOR_FILE"], Kind::Text, "PATH", None,
        "An operator's key file; scafo/operator.json in the user's configuration directory when nothing is said"),
    setting("config", "config", &["SCAFO_CONFIG"], Kind::Text, "FILE", None,
        "The configuration file; /etc/scafo/config.json when that exists"),
];

/// The setting with this key.
pub fn setting_of(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_variables_follow_the_key() {
        for setting in SETTINGS {
            let own = setting.variables[0];
            assert!(own.starts_with("SCAFO_"), "{own}");
            assert_eq!(
                own["SCAFO_".len()..].to_lowercase().replace('_', "-"),
                setting.flag,
                "{}",
                setting.key
            );
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = SETTINGS
            .iter()
            .flat_map(|setting| {
                [setting.key, setting.flag]
                    .into_iter()
                    .chain(setting.variables.iter().copied())
            })
            .collect();
        names.retain(|name| *name != "config");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
