//! The device in network namespaces, against the real kernel, `wg` and wireguard-go.
//!
//! Needs root; says so and passes without.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../examples/device.rs"]
mod device;
mod guard;
mod lab;
mod lifecycle;
mod traffic;
mod underlay;

/// Is a device, when this binary was started to be one; see [`lab`].
#[test]
fn device_process() {
    if std::env::var_os(lab::DEVICE).is_some() {
        device::main();
    }
}
