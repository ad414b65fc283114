//! `scafo wg`: this machine's tunnel.

pub mod init;
pub mod show;
