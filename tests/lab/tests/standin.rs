//! The stand-in on a real S3 store: what it deploys it serves, and without its store it fences itself.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::net::SocketAddr;
use std::time::Duration;

use scafo_lab::celld;
use scafo_lab::machines::Lab;
use scafo_lab::store::{ACCESS_KEY, SECRET_KEY, Store};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn it_serves_from_s3_and_loses_its_lease_with_the_store() {
    let lab = Lab::new();
    let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
    let mut store = Store::on(&lab.neighbour());
    let binary = celld::standin(lab.folder(), "0.6.2");
    let variables = [
        ("S3_ENDPOINT", store.endpoint()),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
        ("CELLD_BUCKET", "s3://fleet/apps/shop".into()),
        ("CELLD_NODE", "n-1".into()),
        ("CELLD_TTL_MS", "2000".into()),
    ];
    let on_a = |arguments: &[&str]| {
        let mut command = a.command(&binary);
        command
            .args(arguments)
            .envs(variables.clone())
            .env("CELLD_WATCH", a.folder().join("celld-state"));
        command
    };
    let listen = ["--listen", "0.0.0.0:7400", "--internal-listen", "127.0.0.1:7401"];
    // Nothing is deployed yet.
    let mut process = a.spawn("celld", on_a(&listen));
    assert_eq!(process.wait_exit(LIMIT).code(), Some(1), "{}", process.log());

    let project = lab.folder().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("index.js"), "export default {}").unwrap();
    let mut deploy = a.spawn("deploy", on_a(&["deploy", project.to_str().unwrap()]));
    assert!(deploy.wait_exit(LIMIT).success(), "{}", deploy.log());

    let mut process = a.spawn("celld", on_a(&listen));
    process.wait_log(LIMIT, "(ownership=s3)");
    let address = SocketAddr::from((a.address(), 7400));
    let answer = b.get(address, "/").unwrap().json();
    assert_eq!((&answer["node"], &answer["app"]), (&"n-1".into(), &"shop".into()));

    store.stop();
    assert_eq!(process.wait_exit(LIMIT).code(), Some(3));
    assert!(process.log().contains("SELF-FENCE:"), "{}", process.log());
}
