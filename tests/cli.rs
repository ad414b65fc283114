//! The command line as people and scripts meet it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Output};

fn scafo(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scafo"))
        .args(arguments)
        .env_clear()
        .env("SCAFO_STATE_DIR", "/nonesuch/scafo")
        .env("COLUMNS", "100")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn help_is_data_and_has_examples() {
    insta::assert_snapshot!("help", text(&scafo(&["--help"], &[])));
    for verb in [
        &["sail"][..],
        &["wg", "init"],
        &["wg", "show"],
        &["fleet", "nodes"],
        &["config", "show"],
    ] {
        let help = text(&scafo(&[verb, &["--help"]].concat(), &[]));
        assert!(help.contains("Examples:"), "{verb:?}");
    }
    insta::assert_snapshot!("help-sail", text(&scafo(&["sail", "--help"], &[])));
    insta::assert_snapshot!("help-wg-init", text(&scafo(&["wg", "init", "--help"], &[])));
}

#[test]
fn nothing_said_is_help_and_a_failure() {
    let output = scafo(&[], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn every_setting_is_shown_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(
        &file,
        r#"{"node": {"labels": {"tier": "fast"}}, "registry": {"heartbeatIntervalMs": 10000}}"#,
    )
    .unwrap();
    let file = file.display().to_string();
    let arguments = ["config", "show", "--config", &file, "--api-port", "7301"];
    let variables = [
        ("SCAFO_BUCKET", "s3://fleet"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
    ];
    let shown = text(&scafo(&arguments, &variables)).replace(&folder.path().display().to_string(), "DIR");
    let shown: Vec<&str> = shown.lines().map(|line| line.trim_end()).collect();
    let shown = shown.join("\n");
    assert!(!shown.contains("hush"));
    // Columns are as wide as their longest cell, and the folder's name is another one each time.
    let squeezed: Vec<String> = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    insta::assert_snapshot!(squeezed.join("\n"));

    let json = text(&scafo(&[&arguments[..], &["--json"]].concat(), &variables));
    let lines: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let line = |key: &str| lines.iter().find(|line| line["key"] == key).unwrap();
    assert_eq!(line("api.port")["origin"], "--api-port");
    assert_eq!(line("bucket.region")["origin"], "AWS_REGION");
    assert_eq!(line("node.labels")["value"], "tier=fast");
    assert_eq!(line("registry.heartbeatIntervalMs")["origin"], file.as_str());
    assert_eq!(line("node.transport")["value"], "loopback");
}

#[test]
fn a_listing_without_a_bucket_says_so_and_makes_nothing() {
    let refused = |variables: &[(&str, &str)]| {
        let output = scafo(&["fleet", "nodes"], variables);
        assert!(output.stdout.is_empty());
        format!(
            "{}exit code {}",
            String::from_utf8_lossy(&output.stderr),
            output.status.code().unwrap()
        )
    };
    insta::assert_snapshot!(refused(&[]), @"
    error[invalid-input]: no bucket is named, and this machine has none of its own
      bucket.url = unset (from default)
    help: name the fleet's bucket: --bucket s3://NAME, or SCAFO_BUCKET
    exit code 2
    ");
    insta::assert_snapshot!(refused(&[("SCAFO_BUCKET", "dir:/nonesuch/bucket")]), @"
    error[not-found]: there is no such directory
      bucket.url = dir:/nonesuch/bucket (from SCAFO_BUCKET)
    help: name the fleet's bucket: --bucket, or SCAFO_BUCKET
    exit code 5
    ");
    assert!(!std::path::Path::new("/nonesuch").exists());
}

#[test]
fn completions_and_man_pages_come_from_the_same_definition() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            text(&scafo(&["generate", "completions", shell], &[])).contains("wireguard-listen-port"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    text(&scafo(&["generate", "man", &folder.path().display().to_string()], &[]));
    for page in ["scafo.1", "scafo-sail.1", "scafo-wg-init.1", "scafo-fleet-nodes.1"] {
        assert!(folder.path().join(page).is_file(), "{page}");
    }
}

#[test]
fn no_colour_where_nobody_sees_it() {
    let output = scafo(&["sail", "--api-host", "10.1.2.3"], &[]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains('\u{1b}'));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let script = format!(
        "set -o pipefail; '{}' config show | true; echo $?",
        env!("CARGO_BIN_EXE_scafo")
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{output:?}");
}
