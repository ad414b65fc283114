//! Parse, run, and map an error to its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    scafo::cli::main()
}
