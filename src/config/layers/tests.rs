//! Who wins, what is wrong, and where it came from.

use proptest::prelude::*;

use super::*;
use crate::error::Error;

struct Said {
    sources: Sources,
    folder: tempfile::TempDir,
}

impl Said {
    fn new(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let default_file = folder.path().join("config.json");
        if !file.is_empty() {
            fs::write(&default_file, file).unwrap();
        }
        let mut said: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (key, value) in flags {
            said.entry(key).or_default().push((*value).to_owned());
        }
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self {
            sources: Sources {
                flags: said,
                environment,
                default_file,
            },
            folder,
        }
    }

    fn config(&self) -> Config {
        load(&self.sources).require().unwrap()
    }

    fn refusal(&self) -> String {
        let error: Error = load(&self.sources).require().unwrap_err();
        error
            .to_string()
            .replace(&self.folder.path().display().to_string(), "DIR")
    }
}

#[test]
fn every_default_parses_and_goes_with_the_others() {
    let config = Said::new("", &[], &[]).config();
    assert_eq!(
        config.effective.len(),
        SETTINGS.len() - 1,
        "every setting but the file itself is shown"
    );
    assert_eq!(config.registry.liveness_window_ms.value, 90_000);
    assert_eq!(config.network.value.to_string(), "10.88.0.0/16");
    assert!(config.wireguard.guard.value);
}

#[test]
fn flags_beat_variables_beat_the_file_beats_defaults() {
    let file = r#"{"api": {"port": 1001}, "runtime": {"ports": "2000-2001"}, "node": {"id": "file"}}"#;
    let said = Said::new(
        file,
        &[("SCAFO_API_PORT", "1002"), ("SCAFO_NODE_ID", "variable")],
        &[("api.port", "1003")],
    );
    let config = said.config();
    assert_eq!(
        (config.api.port.value, config.api.port.origin.to_string()),
        (1003, "--api-port".into())
    );
    assert_eq!(config.node.id.origin, Origin::Variable("SCAFO_NODE_ID".into()));
    assert_eq!(config.node.id.value.unwrap().as_str(), "variable");
    assert_eq!(config.runtime.ports.value.first, 2000);
    assert!(matches!(config.runtime.ports.origin, Origin::File(_)));
    assert_eq!(config.state_dir.origin, Origin::Default);
}

#[test]
fn an_empty_variable_is_unset_and_a_second_name_serves_after_the_first() {
    let variables = [
        ("SCAFO_API_PORT", ""),
        ("S3_ENDPOINT", "http://a"),
        ("AWS_DEFAULT_REGION", "x"),
        ("AWS_REGION", "y"),
    ];
    let config = Said::new("", &variables, &[]).config();
    assert_eq!(config.api.port.value, 7300);
    assert_eq!(config.bucket.endpoint.origin, Origin::Variable("S3_ENDPOINT".into()));
    assert_eq!(config.bucket.region.value.as_deref(), Some("y"));
    let config = Said::new(
        "",
        &[("SCAFO_BUCKET_ENDPOINT", "http://b/"), ("S3_ENDPOINT", "http://a")],
        &[],
    )
    .config();
    assert_eq!(config.bucket.endpoint.value.as_deref(), Some("http://b"));
}

#[test]
fn labels_of_a_flag_or_a_variable_replace_the_file_s_set_whole() {
    let file = r#"{"node": {"labels": {"tier": "slow", "region": "eu"}}}"#;
    assert_eq!(Said::new(file, &[], &[]).config().node.labels.value.len(), 2);
    let config = Said::new(file, &[("SCAFO_NODE_LABELS", "tier=fast, zone=a")], &[]).config();
    assert_eq!(
        config.node.labels.value,
        [("tier".into(), "fast".into()), ("zone".into(), "a".into())].into()
    );
    let flags = [("node.labels", "x=1"), ("node.labels", "y=")];
    let config = Said::new(file, &[("SCAFO_NODE_LABELS", "tier=fast")], &flags).config();
    assert_eq!(
        config.node.labels.value,
        [("x".into(), "1".into()), ("y".into(), String::new())].into()
    );
}

#[test]
fn labels_that_are_none() {
    let flags = [
        ("node.labels", "tier"),
        ("node.labels", "=x"),
        ("node.labels", "a=b"),
        ("node.labels", "a=c"),
        ("node.labels", "sp ace=x"),
        ("node.labels", "k=-x"),
    ];
    insta::assert_snapshot!(Said::new("", &[], &flags).refusal(), @"
    error[invalid-input]: a setting is wrong
      node.labels = tier (from --node-labels): a label is key=value
      node.labels = =x (from --node-labels): the label has no key
      node.labels = a=c (from --node-labels): the label a stands twice
      node.labels = sp ace=x (from --node-labels): a key is up to 63 letters, digits, -, _, . and /, with a letter or digit at either end
      node.labels = k=-x (from --node-labels): a value is up to 63 letters, digits, -, _ and ., with a letter or digit at either end
    ");
}

#[test]
fn what_no_setting_is_called_is_named_with_the_nearest_one() {
    let file = r#"{"registry": {"livenesWindowMs": 1}, "api": 7300, "wholly": {"else": true}, "config": "x"}"#;
    insta::assert_snapshot!(Said::new(file, &[], &[]).refusal(), @"
    error[invalid-input]: the configuration file has a setting that does not exist
      api = 7300 (from DIR/config.json): it is a group of settings: an object
      config = x (from DIR/config.json): there is no such setting
      registry.livenesWindowMs = 1 (from DIR/config.json): there is no such setting; did you mean registry.livenessWindowMs?
      wholly = {\"else\":true} (from DIR/config.json): there is no such setting
    ");
}

#[test]
fn values_of_the_wrong_kind() {
    let file = r#"{"api": {"port": "7300"}, "node": {"id": 7, "labels": ["a=b"]}, "wireguard": {"mtu": 100, "endpoints": "x", "guard": true}}"#;
    insta::assert_snapshot!(Said::new(file, &[], &[]).refusal(), @r#"
    error[invalid-input]: a setting is wrong
      node.id = 7 (from DIR/config.json): it is not a text
      node.labels = ["a=b"] (from DIR/config.json): labels are an object of texts
      api.port = 7300 (from DIR/config.json): it is not a number
      wireguard.endpoints = x (from DIR/config.json): endpoints are a list of texts
      wireguard.mtu = 100 (from DIR/config.json): it is not from 1280 to 65535
      wireguard.guard = true (from DIR/config.json): it is not a text
    help: api.port takes a whole number from 1 to 65535
    help: wireguard.mtu takes a whole number from 1280 to 65535
    "#);
}

#[test]
fn a_file_that_cannot_be_read() {
    insta::assert_snapshot!(Said::new("{", &[], &[]).refusal(), @"
    error[invalid-input]: the configuration file cannot be read
      config = DIR/config.json: EOF while parsing an object at line 1 column 1
    ");
    insta::assert_snapshot!(Said::new("[]", &[("SCAFO_CONFIG", "/nonesuch/c.json")], &[]).refusal(), @"
    error[invalid-input]: the configuration file cannot be read
      config = /nonesuch/c.json (from SCAFO_CONFIG): No such file or directory (os error 2)
    ");
    assert!(
        Said::new("", &[], &[]).config().node.id.value.is_none(),
        "no file at the usual place is no fault"
    );
}

#[test]
fn windows_that_do_not_go_together() {
    let reason = |variables: &[(&str, &str)]| Said::new("", variables, &[]).refusal();
    let text = reason(&[("SCAFO_REGISTRY_HEARTBEAT_INTERVAL_MS", "60000")]);
    assert!(
        text.contains("registry.livenessWindowMs = 90000 (from default): it is less than two beats"),
        "{text}"
    );
    let text = reason(&[("SCAFO_COORDINATOR_LEASE_TTL_MS", "90001")]);
    assert!(text.contains("coordinator.leaseTtlMs = 90001 (from SCAFO_COORDINATOR_LEASE_TTL_MS): it is longer than the liveness window"), "{text}");
    let text = reason(&[("SCAFO_COORDINATOR_RENEW_INTERVAL_MS", "36000")]);
    assert!(text.contains("coordinator.renewIntervalMs = 36000"), "{text}");
    let text = reason(&[("SCAFO_API_PORT", "7500")]);
    assert!(
        text.contains("api.port = 7500 (from SCAFO_API_PORT): runtimes are given the ports 7400-7999"),
        "{text}"
    );
    // A whole lease in seconds, as tests use it.
    let short = [
        ("SCAFO_REGISTRY_HEARTBEAT_INTERVAL_MS", "500"),
        ("SCAFO_REGISTRY_LIVENESS_WINDOW_MS", "2500"),
        ("SCAFO_COORDINATOR_LEASE_TTL_MS", "2500"),
        ("SCAFO_COORDINATOR_RENEW_INTERVAL_MS", "700"),
    ];
    Said::new("", &short, &[]).config();
}

#[test]
fn endpoints_networks_and_names_are_checked() {
    let refused = |key: &'static str, value: &str| {
        load(&Said::new("", &[], &[(key, value)]).sources)
            .faults
            .is_at_fault(key)
    };
    for good in ["node.example:51820", "10.0.0.1:1", "[fd00::1]:51820", "a:65535"] {
        assert!(!refused("wireguard.endpoints", good), "{good}");
    }
    for bad in [
        "node.example",
        "node.example:0",
        ":1",
        "10.0.0.256:1",
        "fd00::1:51820",
        "a b:1",
        "0.0.0.0:1",
        "224.0.0.1:1",
        "x:99999",
    ] {
        assert!(refused("wireguard.endpoints", bad), "{bad}");
    }
    for (good, bad) in [
        ("10.1.0.0/16", "10.1.0.0/30"),
        ("fd00::/64", "2001:db8::/64"),
        ("100.64.0.0/10", "8.8.8.0/24"),
        ("172.16.0.0/12", "ten"),
    ] {
        assert!(!refused("fleet.network", good), "{good}");
        assert!(refused("fleet.network", bad), "{bad}");
    }
    for bad in ["", "a/b", "sixteen-letters-", "..", "a b"] {
        assert!(refused("wireguard.interface", bad), "{bad}");
    }
    for bad in ["7400", "9-8", "0-5", "a-b", "7400-70000", "7400-7400"] {
        assert!(refused("runtime.ports", bad), "{bad}");
    }
    assert!(refused("state.dir", "relative"));
    assert!(refused("bucket.endpoint", "s3.example"));
}

proptest! {
    #[test]
    fn nothing_that_is_said_makes_it_panic(text in "\\PC{0,20}", index in 0..SETTINGS.len(), layer in 0..3u8) {
        let setting = &SETTINGS[index];
        let value = Value::String(text.clone());
        let file = setting.key.rsplit('.').fold(value, |inner, name| serde_json::json!({ name: inner })).to_string();
        let said = match layer {
            0 => Said::new(&file, &[], &[]),
            1 => Said::new("", &[(setting.variables[0], &text)], &[]),
            _ => Said::new("", &[], &[(setting.key, &text)]),
        };
        let _ = load(&said.sources);
    }

    #[test]
    fn no_file_makes_it_panic(text in "[{}\\[\\]\":,a-z0-9. ]{0,60}") {
        let _ = load(&Said::new(&text, &[], &[]).sources);
    }
}
