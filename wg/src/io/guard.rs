//! The guard: an nftables table of our own that drops packets for the tunnel address that came in by anything but the
//! tunnel or loopback.
//!
//! Linux answers for an address on whatever interface it is asked, so a neighbour with a static route would reach what is
//! bound to the tunnel address; binding alone is no isolation. Nothing of the host's own tables is read or changed.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::error::GuardError;

/// How long `nft` may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The table's name for an interface. nftables takes letters, digits, `_`, `-`, `.` and `/` in names.
pub fn table(interface: &str) -> String {
    let name: String = interface
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    format!("scafo_{name}")
}

/// Installs the guard for `address`, in place of one that is there already, in one transaction.
pub async fn install(interface: &str, address: IpAddr) -> Result<(), GuardError> {
    let table = table(interface);
    let family = if address.is_ipv4() { "ip" } else { "ip6" };
    nft(&format!(
        "add table inet {table}\n\
         delete table inet {table}\n\
         add table inet {table} {{ comment \"scafo: the tunnel address is reached through the tunnel alone\"; }}\n\
         add chain inet {table} guard {{ type filter hook prerouting priority raw; policy accept; }}\n\
         add rule inet {table} guard {family} daddr {address} iifname != {{ \"{interface}\", \"lo\" }} counter drop\n"
    ))
    .await
}

/// Whether the guard for this interface is in place.
pub async fn is_installed(interface: &str) -> bool {
    let listed = Command::new("nft")
        .args(["list", "chain", "inet", &table(interface), "guard"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(LIMIT, listed).await {
        Ok(Ok(output)) => output.status.success() && String::from_utf8_lossy(&output.stdout).contains("drop"),
        _ => false,
    }
}

/// Removes the guard; no guard is no error.
pub async fn remove(interface: &str) -> Result<(), GuardError> {
    let table = table(interface);
    nft(&format!("add table inet {table}\ndelete table inet {table}\n")).await
}

async fn nft(script: &str) -> Result<(), GuardError> {
    let failed = |error: std::io::Error| GuardError::NoNft(error.to_string());
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).await.map_err(failed)?;
    }
    let output = match tokio::time::timeout(LIMIT, child.wait_with_output()).await {
        Ok(output) => output.map_err(failed)?,
        Err(_) => return Err(GuardError::Refused("no answer within 10 s".to_owned())),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // The first line says what; the rest repeats the script.
    Err(GuardError::Refused(
        said.lines()
            .next()
            .unwrap_or("it failed without a word")
            .trim()
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_s_name_is_one_that_nftables_takes() {
        assert_eq!(table("scafo0"), "scafo_scafo0");
        assert_eq!(table("wg-1.x"), "scafo_wg_1_x");
    }
}
