//! The operating system's random source: keys, ids of writes and boots, and the seed of the core's jitter.

use data_encoding::HEXLOWER;

use crate::error::{Error, Result};

/// Fills an array with random bytes. Fails only where the kernel has no random source to give.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::capability(format!("the system's random source does not answer: {error}")))?;
    Ok(bytes)
}

/// A fresh id of 128 random bits in lower-case hexadecimal, for a write, a boot or a probe.
pub fn id() -> Result<String> {
    Ok(HEXLOWER.encode(&bytes::<16>()?))
}
