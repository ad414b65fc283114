//! The table, every rule, and every fault with its field, value and origin.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::{Loaded, Sources, load};

const LAN: &str = "192.168.7.7";
const TUNNEL: &str = "10.88.0.7";

fn loaded(flags: &[(&'static str, &str)]) -> Loaded {
    let mut said: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (key, value) in flags {
        said.entry(key).or_default().push((*value).to_owned());
    }
    load(&Sources {
        flags: said,
        environment: BTreeMap::new(),
        default_file: "/nonesuch".into(),
    })
}

fn tunnel() -> TunnelFacts {
    TunnelFacts {
        address: TUNNEL.parse().unwrap(),
        network: "10.88.0.0/16".parse().unwrap(),
    }
}

fn host() -> Vec<IpAddr> {
    ["127.0.0.1", "::1", LAN, "fd31::7"]
        .map(|address| address.parse().unwrap())
        .to_vec()
}

fn resolved(flags: &[(&'static str, &str)], tunnel: Option<TunnelFacts>) -> Result<Exposure, Faults> {
    resolve(&loaded(flags).config, tunnel, &host())
}

fn refusal(flags: &[(&'static str, &str)], tunnel: Option<TunnelFacts>) -> String {
    resolved(flags, tunnel)
        .unwrap_err()
        .into_result(())
        .unwrap_err()
        .to_string()
}

fn shown(exposure: Exposure) -> String {
    let Exposure {
        transport,
        api_host,
        address,
        runtime_host,
    } = exposure;
    format!("{transport}: api {api_host}, registers {address}, runtimes {runtime_host}")
}

const BUCKET: (&str, &str) = ("bucket.url", "s3://fleet");

#[test]
fn the_table_of_defaults() {
    assert_eq!(
        shown(resolved(&[], None).unwrap()),
        "loopback: api 127.0.0.1, registers 127.0.0.1, runtimes 127.0.0.1"
    );
    let mesh = "wireguard: api 10.88.0.7, registers 10.88.0.7, runtimes 10.88.0.7";
    assert_eq!(shown(resolved(&[BUCKET], Some(tunnel())).unwrap()), mesh);
    assert_eq!(
        shown(resolved(&[BUCKET, ("node.transport", "wireguard")], Some(tunnel())).unwrap()),
        mesh
    );
    assert_eq!(
        shown(resolved(&[BUCKET, ("node.transport", "private"), ("node.address", LAN)], None).unwrap()),
        "private: api 0.0.0.0, registers 192.168.7.7, runtimes 0.0.0.0"
    );
    // A node with a tunnel may still be told to keep to itself.
    let alone = resolved(&[("node.transport", "loopback")], Some(tunnel())).unwrap();
    assert_eq!(
        shown(alone),
        "loopback: api 127.0.0.1, registers 127.0.0.1, runtimes 127.0.0.1"
    );
}

#[test]
fn stated_values_that_agree_with_the_table_are_taken() {
    let all = [
        BUCKET,
        ("api.host", TUNNEL),
        ("node.address", TUNNEL),
        ("runtime.bindHost", TUNNEL),
    ];
    assert!(resolved(&all, Some(tunnel())).is_ok());
    let mapped = [BUCKET, ("api.host", "::ffff:10.88.0.7")];
    assert!(
        resolved(&mapped, Some(tunnel())).is_ok(),
        "the same address in IPv6's clothes"
    );
    assert_eq!(
        resolved(&[("api.host", "::1")], None).unwrap().api_host.to_string(),
        "::1"
    );
    let private = [
        BUCKET,
        ("node.transport", "private"),
        ("node.address", LAN),
        ("api.host", LAN),
    ];
    assert_eq!(resolved(&private, None).unwrap().api_host.to_string(), LAN);
}

#[test]
fn a_lan_address_without_a_transport() {
    insta::assert_snapshot!(refusal(&[("api.host", LAN)], None), @"
    error[invalid-input]: this node could be reached from beyond loopback and does not say by what network
      api.host = 192.168.7.7 (from --api-host): it reaches beyond loopback
    help: say by what network: --transport wireguard after scafo wg init, or --transport private with --address
    ");
    for key in ["node.address", "runtime.bindHost"] {
        let text = refusal(&[(key, LAN)], None);
        assert!(
            text.contains(&format!("{key} = {LAN} (from --")) && text.lines().count() == 3,
            "{text}"
        );
    }
    insta::assert_snapshot!(refusal(&[("api.host", LAN), ("node.address", LAN), ("runtime.bindHost", "0.0.0.0"), ("node.transport", "loopback")], None), @"
    error[invalid-input]: this node could be reached from beyond loopback and does not say by what network
      api.host = 192.168.7.7 (from --api-host): it reaches beyond loopback
      node.address = 192.168.7.7 (from --address): it reaches beyond loopback
      runtime.bindHost = 0.0.0.0 (from --runtime-bind-host): it reaches beyond loopback
    help: say by what network: --transport wireguard after scafo wg init, or --transport private with --address
    ");
}

#[test]
fn wireguard_and_a_field_that_is_not_the_tunnel_address() {
    insta::assert_snapshot!(refusal(&[BUCKET, ("api.host", "0.0.0.0"), ("node.address", LAN), ("runtime.bindHost", "127.0.0.1")], Some(tunnel())), @"
    error[invalid-input]: with the wireguard transport a node is its tunnel address and nothing else
      api.host = 0.0.0.0 (from --api-host): it is not the tunnel address 10.88.0.7
      node.address = 192.168.7.7 (from --address): it is not the tunnel address 10.88.0.7
      runtime.bindHost = 127.0.0.1 (from --runtime-bind-host): it is not the tunnel address 10.88.0.7
    help: leave api.host out: it follows the tunnel
    help: leave node.address out: it follows the tunnel
    help: leave runtime.bindHost out: it follows the tunnel
    ");
}

#[test]
fn wireguard_without_a_key_and_everything_else_that_is_wrong_with_it() {
    insta::assert_snapshot!(refusal(&[("node.transport", "wireguard"), ("api.host", "0.0.0.0")], None), @"
    error[invalid-input]: 3 settings are wrong
      node.transport = wireguard (from --transport): there is no wireguard.json in /var/lib/scafo
      api.host = 0.0.0.0 (from --api-host): it is no tunnel address
      bucket.url = unset (from default): a node that others can reach needs a bucket that they can reach too
    help: make the key: scafo wg init
    help: leave api.host out: it follows the tunnel
    help: name it: --bucket s3://NAME, or SCAFO_BUCKET
    ");
}

#[test]
fn a_stated_network_that_is_not_the_tunnel_s() {
    insta::assert_snapshot!(refusal(&[BUCKET, ("fleet.network", "10.99.0.0/16")], Some(tunnel())), @"
    error[invalid-input]: this machine's tunnel is for another mesh network
      fleet.network = 10.99.0.0/16 (from --fleet-network): wireguard.json is for 10.88.0.0/16
    help: leave fleet.network out, or make the tunnel anew in the right network: scafo wg init
    ");
    assert!(resolved(&[BUCKET, ("fleet.network", "10.88.7.7/16")], Some(tunnel())).is_ok());
}

#[test]
fn private_without_an_address() {
    insta::assert_snapshot!(refusal(&[BUCKET, ("node.transport", "private")], None), @"
    error[invalid-input]: the private transport registers this host's address on that network
      node.address = unset (from default): it is not stated
    help: state it: --address IP
    ");
}

#[test]
fn private_with_an_address_that_nobody_can_reach_here() {
    let reason = |address: &str| {
        let faults = resolved(
            &[BUCKET, ("node.transport", "private"), ("node.address", address)],
            None,
        )
        .unwrap_err();
        faults.into_result(()).unwrap_err().fields[0].reason.clone().unwrap()
    };
    for (address, why) in [
        ("0.0.0.0", "it is a wildcard"),
        ("::", "it is a wildcard"),
        ("127.0.0.1", "it is loopback, where only this machine is"),
        ("::1", "it is loopback, where only this machine is"),
        ("224.0.0.5", "it is multicast"),
        ("ff02::1", "it is multicast"),
        ("255.255.255.255", "it is broadcast"),
        ("0.1.2.3", "it is in 0.0.0.0/8, which no host has"),
        ("192.0.2.9", "it is an address of documentation"),
        ("2001:db8::9", "it is an address of documentation"),
        ("3fff::9", "it is an address of documentation"),
        ("::ffff:127.0.0.1", "it is loopback, where only this machine is"),
        ("192.168.7.8", "this host does not have it"),
        (
            "node7.example",
            "it is a name or no address at all; an address is registered",
        ),
    ] {
        assert_eq!(reason(address), why, "{address}");
    }
    assert!(
        resolved(
            &[BUCKET, ("node.transport", "private"), ("node.address", "fd31::7")],
            None
        )
        .is_ok()
    );
}

#[test]
fn private_listens_where_it_says_that_it_is() {
    insta::assert_snapshot!(refusal(&[BUCKET, ("node.transport", "private"), ("node.address", LAN), ("api.host", "127.0.0.1"), ("runtime.bindHost", "10.9.9.9")], None), @"
    error[invalid-input]: a node listens where it says that it can be reached
      api.host = 127.0.0.1 (from --api-host): it is neither 0.0.0.0 nor node.address
      runtime.bindHost = 10.9.9.9 (from --runtime-bind-host): it is neither 0.0.0.0 nor node.address
    help: leave api.host out: 0.0.0.0 serves every address
    help: leave runtime.bindHost out: 0.0.0.0 serves every address
    ");
}

#[test]
fn what_is_bound_is_dialled_where_it_answers() {
    for (bind, dial) in [
        ("0.0.0.0:7300", "127.0.0.1:7300"),
        ("[::]:7300", "[::1]:7300"),
        ("10.88.0.7:7300", "10.88.0.7:7300"),
        ("127.0.0.1:7300", "127.0.0.1:7300"),
    ] {
        assert_eq!(dial_local(bind.parse().unwrap()).to_string(), dial);
    }
}

#[test]
fn what_was_bound_has_to_be_what_the_table_allows() {
    let mesh = resolved(&[BUCKET], Some(tunnel())).unwrap();
    let check = |bound: &[&str]| {
        let bound: Vec<SocketAddr> = bound.iter().map(|address| address.parse().unwrap()).collect();
        mesh.check_bound(TUNNEL.parse().unwrap(), &bound)
    };
    assert!(check(&["10.88.0.7:7300", "10.88.0.7:7300"]).is_ok());
    for wrong in [
        &["0.0.0.0:7300"][..],
        &["10.88.0.7:7300", "192.168.7.7:7300"],
        &["[::]:7300"],
        &[],
    ] {
        assert!(check(wrong).is_err(), "{wrong:?}");
    }
}

fn anything() -> impl Strategy<Value = Option<String>> {
    let known = prop_oneof![
        Just("0.0.0.0"),
        Just("::"),
        Just("127.0.0.1"),
        Just("::1"),
        Just(LAN),
        Just(TUNNEL),
        Just("fd31::7"),
        Just("10.1.2.3"),
        Just("255.255.255.255"),
        Just("192.0.2.1"),
        Just("::ffff:10.88.0.7"),
        Just("a.example"),
        Just(""),
    ];
    proptest::option::of(prop_oneof![known.prop_map(ToOwned::to_owned), "\\PC{0,12}"])
}

proptest! {
    #[test]
    fn whatever_is_said_what_is_exposed_is_in_the_table(
        transport in proptest::option::of(prop_oneof![Just("loopback"), Just("wireguard"), Just("private")]),
        (api, address, runtime) in (anything(), anything(), anything()),
        has_tunnel in any::<bool>(), has_bucket in any::<bool>(),
    ) {
        let said = [("node.transport", transport.map(ToOwned::to_owned)), ("api.host", api), ("node.address", address), ("runtime.bindHost", runtime)];
        let mut flags: Vec<(&'static str, String)> = said.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        if has_bucket {
            flags.push(("bucket.url", "s3://fleet".to_owned()));
        }
        let flags: Vec<(&'static str, &str)> = flags.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let tunnel = has_tunnel.then(tunnel);
        if let Ok(Exposure { transport, api_host, address, runtime_host }) = resolved(&flags, tunnel) {
            match transport {
                Transport::Loopback => prop_assert!(api_host.is_loopback() && address.is_loopback() && runtime_host.is_loopback()),
                Transport::Wireguard => {
                    let only: IpAddr = TUNNEL.parse().unwrap();
                    prop_assert!(has_bucket && [api_host, address, runtime_host] == [only; 3]);
                }
                Transport::Private => {
                    prop_assert!(has_bucket && host().contains(&address) && !address.is_loopback());
                    prop_assert!([api_host, runtime_host].iter().all(|bind| bind.is_unspecified() || *bind == address));
                }
            }
        }
    }
}
