//! `scafo generate`: completions and man pages from the same definition as the command line itself.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate};

use crate::error::{Error, Field, Result};

/// Writes a shell's completions to standard output.
pub fn completions(mut command: Command, shell: Shell) {
    let name = command.get_name().to_owned();
    generate(shell, &mut command, name, &mut io::stdout());
}

/// Writes a man page for every verb into `folder`, which is made where it is missing.
pub fn man(command: Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| {
            Error::invalid(format!("the man pages cannot be written: {error}"))
                .field(Field::new("DIR", folder.display()))
                .help("name a directory that you may write to")
        })
}
