//! The way in: one file per verb, `args` without logic, `output` for what people read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::config::{self, Loaded, Sources};
use crate::daemon;
use crate::error::{Error, Result};

pub mod args;
pub mod config_show;
pub mod fleet;
pub mod generate;
pub mod logging;
pub mod operator;
pub mod output;
pub mod wg;

use args::{Cli, ConfigVerb, FleetVerb, GenerateVerb, OperatorVerb, Verb, WgVerb};

/// Runs the program that its arguments ask for.
pub fn main() -> ExitCode {
    run_with(std::env::args_os())
}

fn run_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help that was asked for is data; a wrong argument is a diagnosis, and `invalid-input`.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            return fail(&wrong_argument(&error));
        }
    };
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    output::print_error(error);
    ExitCode::from(error.code.exit_code())
}

/// clap's words in the form of every other error: its first line, then its hints.
fn wrong_argument(error: &clap::Error) -> Error {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("the arguments make no sense");
    let mut wrong = Error::invalid(first.trim_start_matches("error: "));
    wrong
        .help
        .extend(lines.map(|line| line.trim_start_matches("tip: ").to_owned()));
    wrong
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Sail { settings } => {
            logging::start();
            block_on(daemon::sail(load(settings.values)))
        }
        Verb::Wg(WgVerb::Init {
            address,
            endpoints,
            rotate,
            json,
            settings,
        }) => wg::init::run(
            load(settings.values),
            wg::init::Asked {
                address,
                endpoints,
                rotate,
            },
            json,
        ),
        Verb::Wg(WgVerb::Show { json, settings }) => {
            let config = load(settings.values).require()?;
            block_on(wg::show::run(&config, json))
        }
        Verb::Fleet(FleetVerb::Nodes { json, watch, settings }) => {
            let config = load(settings.values).require()?;
            block_on(fleet::nodes::run(&config, json, watch))
        }
        Verb::Fleet(FleetVerb::Lease { json, settings }) => {
            let config = load(settings.values).require()?;
            block_on(fleet::lease::run(&config, json))
        }
        Verb::Fleet(FleetVerb::Remove { id, settings }) => {
            let config = load(settings.values).require()?;
            block_on(fleet::remove::run(&config, &id))
        }
        Verb::Fleet(FleetVerb::Freeze { why, settings }) => {
            let config = load(settings.values).require()?;
            block_on(fleet::freeze::freeze(&config, &why))
        }
        Verb::Fleet(FleetVerb::Unfreeze { settings }) => {
            let config = load(settings.values).require()?;
            block_on(fleet::freeze::unfreeze(&config))
        }
        Verb::Operator(OperatorVerb::Init { id, json, settings }) => {
            let config = load(settings.values).require()?;
            block_on(operator::init::run(&config, &id, json))
        }
        Verb::Operator(OperatorVerb::List { json, settings }) => {
            let config = load(settings.values).require()?;
            block_on(operator::list::run(&config, json))
        }
        Verb::Operator(OperatorVerb::Revoke { id, settings }) => {
            let config = load(settings.values).require()?;
            block_on(operator::revoke::run(&config, &id))
        }
        Verb::Config(ConfigVerb::Show { json, settings }) => config_show::run(load(settings.values), json),
        Verb::Generate(GenerateVerb::Completions { shell }) => {
            generate::completions(Cli::command(), shell);
            Ok(())
        }
        Verb::Generate(GenerateVerb::Man { directory }) => generate::man(Cli::command(), &directory),
    }
}

fn load(flags: BTreeMap<&'static str, Vec<String>>) -> Loaded {
    config::load(&Sources::from_process(flags))
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::internal(format!("no tasks can be run: {error}")))?;
    runtime.block_on(work)
}
