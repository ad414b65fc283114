//! celld versions: parsing `celld --version` and the oldest that is supported.
