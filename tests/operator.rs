//! Operators and the deploy freeze, through the real binary on a directory bucket.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A fleet's bucket and a home for each operator.
struct Fleet {
    folder: tempfile::TempDir,
}

impl Fleet {
    fn new() -> Self {
        let fleet = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(fleet.path("bucket")).unwrap();
        fleet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `scafo` as the user whose home this is.
    fn scafo(&self, home: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_scafo"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.path(home))
            .env("SCAFO_STATE_DIR", "/nonesuch/scafo")
            .env("SCAFO_BUCKET", format!("dir:{}", self.path("bucket").display()))
            .output()
            .unwrap()
    }

    fn ok(&self, home: &str, arguments: &[&str]) -> String {
        let output = self.scafo(home, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, home: &str, arguments: &[&str]) -> String {
        let output = self.scafo(home, arguments);
        assert!(output.stdout.is_empty(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).replace(&self.folder.path().display().to_string(), "DIR");
        format!("{text}exit code {}", output.status.code().unwrap())
    }

    fn operators(&self) -> Vec<(String, String)> {
        let listing: Value = serde_json::from_str(&self.ok("ana", &["operator", "list", "--json"])).unwrap();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        listing["operators"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (text(row, "id"), text(row, "state")))
            .collect()
    }
}

#[test]
fn an_operator_claims_an_id_once_and_keeps_the_key_to_itself() {
    let fleet = Fleet::new();
    assert!(fleet.ok("ana", &["operator", "list"]).contains("no operators yet"));
    let made: Value = serde_json::from_str(&fleet.ok("ana", &["operator", "init", "ana", "--json"])).unwrap();
    let key = fleet.path("ana/.config/scafo/operator.json");
    assert_eq!(made["file"], key.display().to_string());
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    // Again is no harm; as somebody else is.
    let again: Value = serde_json::from_str(&fleet.ok("ana", &["operator", "init", "ana", "--json"])).unwrap();
    assert_eq!(again["publicKey"], made["publicKey"]);
    insta::assert_snapshot!(fleet.refused("ana", &["operator", "init", "bob"]), @"
    error[conflict]: this user is the operator ana already
      operator.file = DIR/ana/.config/scafo/operator.json
    help: name another file for another operator: --operator-file PATH
    exit code 4
    ");
    insta::assert_snapshot!(fleet.refused("bob", &["operator", "init", "ana"]), @"
    error[conflict]: the id ana belongs to another operator
      id = ana
    help: choose another id, or have that one revoked first: scafo operator revoke ID
    exit code 4
    ");
    assert!(!fleet.path("bob").exists(), "a refusal leaves no key behind");
    assert_eq!(fleet.operators(), [("ana".to_owned(), "active".to_owned())]);
}

#[test]
fn a_node_s_id_is_no_operator_s() {
    let fleet = Fleet::new();
    let identities = fleet.path("bucket/_scafo/identities");
    fs::create_dir_all(&identities).unwrap();
    fs::write(
        identities.join("n-1.json"),
        r#"{"kind":"node","publicKey":"k","createdAt":1,"writeId":"w"}"#,
    )
    .unwrap();
    insta::assert_snapshot!(fleet.refused("ana", &["operator", "init", "n-1"]), @"
    error[conflict]: the id n-1 belongs to a node
      id = n-1
    help: nodes and operators share one keyspace: choose another id
    exit code 4
    ");
    fleet.ok("ana", &["operator", "init", "ana"]);
    assert!(
        fleet
            .refused("ana", &["operator", "revoke", "n-1"])
            .contains("n-1 is a node and no operator")
    );
    fs::write(identities.join("odd.json"), "{").unwrap();
    assert!(
        fleet
            .ok("ana", &["operator", "list"])
            .contains("unreadable: _scafo/identities/odd.json")
    );
}

#[test]
fn a_freeze_stands_until_it_is_lifted_and_is_told() {
    let fleet = Fleet::new();
    insta::assert_snapshot!(fleet.refused("ana", &["fleet", "freeze", "--why", "the sale"]), @"
    error[not-found]: this user is no operator yet
      operator.file = DIR/ana/.config/scafo/operator.json
    help: become one: scafo operator init ID
    exit code 5
    ");
    fleet.ok("ana", &["operator", "init", "ana"]);
    fleet.ok("ana", &["fleet", "freeze", "--why", "the sale"]);
    let listing = fleet.ok("ana", &["fleet", "nodes"]);
    assert!(
        listing.lines().nth(1).unwrap().ends_with("by ana: the sale"),
        "{listing}"
    );
    let again = fleet.refused("ana", &["fleet", "freeze", "--why", "another"]);
    assert!(
        again.starts_with("error[frozen]: a freeze stands for ") && again.ends_with("exit code 7"),
        "{again}"
    );
    fleet.ok("ana", &["fleet", "unfreeze"]);
    assert!(!fleet.ok("ana", &["fleet", "nodes"]).contains("the sale"));
    assert!(
        fleet
            .refused("ana", &["fleet", "unfreeze"])
            .contains("no freeze stands")
    );
    assert!(
        fleet
            .refused("ana", &["fleet", "freeze", "--why", " "])
            .starts_with("error[invalid-input]")
    );
}

#[test]
fn a_revoked_operator_acts_no_more_and_its_key_never_comes_back() {
    let fleet = Fleet::new();
    fleet.ok("ana", &["operator", "init", "ana"]);
    fleet.ok("bob", &["operator", "init", "bob"]);
    assert!(
        fleet
            .refused("ana", &["operator", "revoke", "eve"])
            .contains("there is no operator eve")
    );
    fleet.ok("ana", &["operator", "revoke", "bob"]);
    fleet.ok("ana", &["operator", "revoke", "bob"]);
    assert_eq!(fleet.operators()[1], ("bob".to_owned(), "revoked".to_owned()));
    insta::assert_snapshot!(fleet.refused("bob", &["fleet", "freeze", "--why", "spite"]), @"
    error[unauthorized]: the fleet does not know this key as the operator bob
      operator.file = DIR/bob/.config/scafo/operator.json
    help: it was revoked, or belongs to another fleet: move the file away and run: scafo operator init ID
    exit code 6
    ");
    assert!(
        fleet
            .refused("bob", &["operator", "init", "bob"])
            .contains("the key of the operator bob was revoked")
    );
    // A new key may take the id, and the old one stays out.
    let old = fs::read(fleet.path("bob/.config/scafo/operator.json")).unwrap();
    fs::remove_file(fleet.path("bob/.config/scafo/operator.json")).unwrap();
    fleet.ok("bob", &["operator", "init", "bob"]);
    fleet.ok("bob", &["fleet", "freeze", "--why", "back"]);
    fs::write(fleet.path("bob/.config/scafo/operator.json"), old).unwrap();
    assert!(
        fleet
            .refused("bob", &["fleet", "unfreeze"])
            .starts_with("error[unauthorized]")
    );
}
