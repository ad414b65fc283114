//! The log: one line per event to standard error. `SCAFO_LOG` (else `RUST_LOG`) takes the filter, for example
//! `scafo=debug`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Said when nothing else is: Scafo's own events. boringtun logs normal expiry of an idle session as an error.
const DEFAULT_FILTER: &str =
    "info,boringtun=off,aws_config=warn,aws_smithy_runtime=warn,aws_sdk_s3=warn,hyper_util=warn";

/// Sets the log up for a long-running command.
pub fn start() {
    let stated = ["SCAFO_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let filter = stated
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false);
    // The journal stamps every line itself.
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some();
    let started = if under_systemd {
        builder.without_time().try_init()
    } else {
        builder.try_init()
    };
    // A second start in one process keeps the first one's set-up.
    drop(started);
}
