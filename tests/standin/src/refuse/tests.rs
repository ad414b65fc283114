//! Each refusal, and its neighbour that is taken.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use super::*;

fn environment_of(version: &str, pairs: &[(&str, &str)]) -> Result<(), String> {
    environment(
        version,
        &pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
    )
}

#[test]
fn removed_variables_stop_06_by_presence_and_05_takes_its_own() {
    for name in REMOVED {
        let value = if name.ends_with("_MS") { "1" } else { "x" };
        let error = environment_of("0.6.0", &[(name, value)]).unwrap_err();
        assert!(error.contains(name), "{error}");
        environment_of("0.5.1", &[(name, value)]).unwrap();
    }
    assert!(environment_of("0.6.2", &[("CELLD_VAR_NAME", "")]).is_err());
    assert!(environment_of("0.6.1-fork.1", &[("CELLD_VARS_FILE", "")]).is_err());
    assert!(environment_of("0.5.1", &[("CELLD_VAR_NAME", "x")]).is_ok());
    assert!(environment_of("0.6.2", &[("CELLD_WORKER_LOADER", "")]).is_ok());
    assert!(environment_of("0.5.0", &[("CELLD_AI_URL", "x")]).is_err());
}

#[test]
fn booleans_numbers_and_durability_are_checked() {
    for value in ["true", "", "2", "yes"] {
        assert!(
            environment_of("0.6.2", &[("CELLD_TRUST_FORWARDED_HEADERS", value)]).is_err(),
            "{value}"
        );
    }
    for value in ["0", "1"] {
        environment_of("0.6.2", &[("CELLD_UNSAFE_PUBLIC_ADVERTISE", value)]).unwrap();
    }
    assert!(environment_of("0.6.2", &[("CELLD_TTL_MS", "10s")]).is_err());
    assert!(environment_of("0.6.2", &[("CELLD_DURABILITY", "disk")]).is_err());
    environment_of("0.6.2", &[("CELLD_DURABILITY", "bucket")]).unwrap();
    let wait = |ms| {
        environment_of(
            "0.5.1",
            &[("CELLD_SHUTDOWN_TOTAL_MS", "1000"), ("CELLD_DRAIN_TOKEN_WAIT_MS", ms)],
        )
    };
    wait("750").unwrap();
    assert!(wait("751").is_err());
}

#[test]
fn a_node_id_has_a_charset_and_an_empty_one_is_not_unset() {
    for id in ["n-1", "a.b_C", ".a", &"x".repeat(128)] {
        node_id("0.6.2", id).unwrap();
    }
    for id in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(129)] {
        assert!(node_id("0.6.2", id).is_err(), "{id:?}");
    }
    node_id("0.5.1", "..").unwrap();
    assert!(environment_of("0.6.2", &[("CELLD_NODE", "")]).is_err());
}

#[test]
fn buckets_are_read_as_celld_reads_them() {
    let read = |text: &str| bucket(text).map(|url| url.to_string());
    assert_eq!(read("name").unwrap(), "s3://name");
    assert_eq!(read(" S3://name/a/b/ ").unwrap(), "s3://name/a/b");
    assert_eq!(read("gs://name/p").unwrap(), "gs://name/p");
    assert_eq!(read("dir:/tmp/.b/apps/shop").unwrap(), "dir:/tmp/.b/apps/shop");
    for text in [
        "",
        "s3://",
        "ftp://name",
        "name/pre fix",
        "name/pré",
        "name/a+b",
        "dir:relative",
        "dir:/a b",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
}

fn pair(listen: &str, internal: Option<&str>, advertise: Option<&str>, public: bool) -> Result<(), String> {
    let internal_address = socket_address("--internal-listen", internal.unwrap_or("127.0.0.1:0"))?;
    listeners(
        socket_address("--listen", listen)?,
        internal_address,
        internal.is_some(),
        advertise,
        public,
    )
}

#[test]
fn listeners_beyond_loopback_must_be_explicit() {
    pair("127.0.0.1:8080", None, None, false).unwrap();
    assert!(
        pair("10.0.0.1:8080", None, None, false)
            .unwrap_err()
            .contains("explicitly")
    );
    assert!(pair("0.0.0.0:8080", None, None, false).is_err());
    pair("10.0.0.1:8080", Some("10.0.0.1:8081"), None, false).unwrap();
    assert!(
        pair("127.0.0.1:1", None, Some("10.0.0.1:1"), false)
            .unwrap_err()
            .contains("explicit")
    );
    assert!(
        pair("0.0.0.0:1", Some("0.0.0.0:2"), None, false)
            .unwrap_err()
            .contains("--advertise")
    );
    assert!(pair("[::]:1", Some("[::]:2"), None, false).is_err());
    pair("0.0.0.0:1", Some("0.0.0.0:2"), Some("10.0.0.1:2"), false).unwrap();
    assert!(
        pair("8.8.8.8:1", Some("8.8.8.8:2"), None, false)
            .unwrap_err()
            .contains("public")
    );
}

#[test]
fn addresses_to_listen_on_are_literal() {
    for text in ["localhost:80", "::1:80", "10.0.0.1", "10.0.0.1:99999", ""] {
        assert!(socket_address("--listen", text).is_err(), "{text:?}");
    }
    socket_address("--listen", "[::1]:80").unwrap();
}

#[test]
fn what_is_advertised_must_be_a_private_place_to_dial() {
    let advertise = |text: &str, public| pair("127.0.0.1:1", Some("0.0.0.0:2"), Some(text), public);
    for good in [
        "10.88.0.1:7401",
        "192.168.1.1:1",
        "100.64.0.1:1",
        "100.127.255.255:1",
        "169.254.1.1:1",
        "127.0.0.1:1",
        "[fd00::1]:1",
        "[fe80::1]:1",
        "[::1]:1",
        "node-1.svc.local:8081",
    ] {
        advertise(good, false).unwrap();
    }
    for bad in [
        "10.0.0.1:0",
        "10.0.0.1",
        "0.0.0.0:1",
        "224.0.0.1:1",
        "255.255.255.255:1",
        "[::]:1",
        "[ff02::1]:1",
        "fd00::1:8081",
        "a_b:1",
        ":1",
        "host:0",
        "host:99999",
    ] {
        assert!(advertise(bad, true).is_err(), "{bad}");
    }
    assert!(advertise(&format!("{}:1", "a".repeat(64)), false).is_err());
    for literal in ["8.8.8.8:1", "100.128.0.1:1", "[2001:db8::1]:1", "203.0.113.9:1"] {
        assert!(advertise(literal, false).is_err(), "{literal}");
        advertise(literal, true).unwrap();
    }
}
