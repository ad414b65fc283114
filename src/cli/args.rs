//! The command line's shape, without a line of logic. Flags of settings follow the one table of settings.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::settings::{SETTINGS, Setting};
use crate::core::types::Id;

/// Linux machines as one mesh-only fleet that runs celld.
#[derive(Debug, Parser)]
#[command(name = "scafo", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "On each machine, with SCAFO_BUCKET set:\n  scafo wg init      make the tunnel key\n  scafo sail         join the mesh and serve\n  scafo fleet nodes  see who is there"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run this machine's node: join the mesh, register, serve
    #[command(
        after_help = "Examples:\n  scafo sail --bucket s3://my-fleet\n  scafo sail --node-labels tier=fast --node-labels region=eu-west-1\n  SCAFO_BUCKET=s3://my-fleet SCAFO_BUCKET_ENDPOINT=https://s3.example scafo sail"
    )]
    Sail {
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<All>,
    },
    /// This machine's tunnel
    #[command(subcommand)]
    Wg(WgVerb),
    /// The whole fleet, read from the bucket
    #[command(subcommand)]
    Fleet(FleetVerb),
    /// The people and pipelines that may change the fleet
    #[command(subcommand)]
    Operator(OperatorVerb),
    /// What this machine is configured to be
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Shell completions and man pages
    #[command(subcommand)]
    Generate(GenerateVerb),
}

/// This machine's tunnel.
#[derive(Debug, Subcommand)]
pub enum WgVerb {
    /// Make the tunnel key and choose the tunnel address
    #[command(
        after_help = "Examples:\n  scafo wg init\n  scafo wg init --address 10.88.0.7 --endpoint node7.example:51820\n  scafo wg init --rotate"
    )]
    Init {
        /// The tunnel address; derived from the key when nothing is said
        #[arg(long, value_name = "IP", conflicts_with = "rotate")]
        address: Option<IpAddr>,
        /// Where others reach this machine's UDP port; detected when nothing is said; once per endpoint
        #[arg(long = "endpoint", value_name = "HOST:PORT", conflicts_with = "rotate")]
        endpoints: Vec<String>,
        /// Replace the key and keep the address
        #[arg(long)]
        rotate: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Tunnel>,
    },
    /// Show the tunnel's peers, handshakes and traffic
    #[command(after_help = "Examples:\n  scafo wg show\n  scafo wg show --json")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<State>,
    },
}

/// The whole fleet.
#[derive(Debug, Subcommand)]
pub enum FleetVerb {
    /// List the nodes, from the bucket alone: no node has to be up
    #[command(
        after_help = "Examples:\n  scafo fleet nodes\n  scafo fleet nodes --watch\n  scafo fleet nodes --json | jq '.nodes[] | select(.state != \"live\") | .id'"
    )]
    Nodes {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print again every two seconds
        #[arg(long)]
        watch: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Listing>,
    },
    /// Show who holds the coordinator lease
    #[command(after_help = "Examples:\n  scafo fleet lease\n  scafo fleet lease --json")]
    Lease {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Listing>,
    },
    /// Take a machine out of the fleet for good, a lost or stolen one too
    #[command(after_help = "Examples:\n  scafo fleet remove n-4kq2m7xw5a")]
    Remove {
        /// Which node
        id: Id,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Operating>,
    },
    /// Freeze deploys and changes of applications, and say why
    #[command(after_help = "Examples:\n  scafo fleet freeze --why 'the sale'")]
    Freeze {
        /// Why, in one line
        #[arg(long, value_name = "TEXT")]
        why: String,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Operating>,
    },
    /// Lift the freeze that stands
    #[command(after_help = "Examples:\n  scafo fleet unfreeze")]
    Unfreeze {
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Operating>,
    },
}

/// The people and pipelines that may change the fleet.
#[derive(Debug, Subcommand)]
pub enum OperatorVerb {
    /// Make an operator's key and claim its id
    #[command(
        after_help = "Examples:\n  scafo operator init ana\n  scafo operator init ci --operator-file /etc/ci/scafo.json"
    )]
    Init {
        /// The id; nodes and operators share one keyspace
        id: Id,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Operating>,
    },
    /// List the operators, revoked ones too
    #[command(after_help = "Examples:\n  scafo operator list\n  scafo operator list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Listing>,
    },
    /// Take an operator's right away for good
    #[command(after_help = "Examples:\n  scafo operator revoke ana")]
    Revoke {
        /// Whose
        id: Id,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<Operating>,
    },
}

/// What this machine is configured to be.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Print every effective setting with where it came from
    #[command(after_help = "Examples:\n  scafo config show\n  scafo config show --json")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags<All>,
    },
}

/// Completions and man pages.
#[derive(Debug, Subcommand)]
pub enum GenerateVerb {
    /// Print a shell's completions
    #[command(after_help = "Examples:\n  scafo generate completions bash > /etc/bash_completion.d/scafo")]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write a man page for every verb
    #[command(after_help = "Examples:\n  scafo generate man /usr/share/man/man1")]
    Man {
        /// Where to
        directory: PathBuf,
    },
}

/// Which settings a verb takes.
pub trait Scope {
    /// Whether it takes this one.
    fn takes(setting: &Setting) -> bool;
}

/// Every setting.
#[derive(Debug)]
pub struct All;

impl Scope for All {
    fn takes(_: &Setting) -> bool {
        true
    }
}

/// What `wg init` needs. Its own `--address` and `--endpoint` are the tunnel's.
#[derive(Debug)]
pub struct Tunnel;

impl Scope for Tunnel {
    fn takes(setting: &Setting) -> bool {
        matches!(
            setting.key,
            "state.dir" | "config" | "fleet.network" | "wireguard.listenPort"
        )
    }
}

/// What asks the daemon of one state directory.
#[derive(Debug)]
pub struct State;

impl Scope for State {
    fn takes(setting: &Setting) -> bool {
        matches!(setting.key, "state.dir" | "config")
    }
}

/// What reads the fleet.
#[derive(Debug)]
pub struct Listing;

impl Scope for Listing {
    fn takes(setting: &Setting) -> bool {
        matches!(setting.key, "state.dir" | "config" | "registry.livenessWindowMs")
            || setting.key.starts_with("bucket.")
    }
}

/// What acts for an operator.
#[derive(Debug)]
pub struct Operating;

impl Scope for Operating {
    fn takes(setting: &Setting) -> bool {
        Listing::takes(setting) && setting.key != "registry.livenessWindowMs" || setting.key == "operator.file"
    }
}

/// The flags of settings that a verb takes, by key.
#[derive(Debug)]
pub struct SettingFlags<S> {
    /// What was said, once per use of the flag.
    pub values: BTreeMap<&'static str, Vec<String>>,
    scope: PhantomData<S>,
}

impl<S: Scope> FromArgMatches for SettingFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = SETTINGS
            .iter()
            .filter(|setting| S::takes(setting))
            .filter_map(|setting| {
                let values = matches.get_many::<String>(setting.key)?;
                Some((setting.key, values.cloned().collect()))
            })
            .collect();
        Ok(Self {
            values,
            scope: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Scope> Args for SettingFlags<S> {
    fn augment_args(mut command: Command) -> Command {
        for setting in SETTINGS.iter().filter(|setting| S::takes(setting)) {
            command = command.arg(flag(setting));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let variable = setting.variables.first().copied().unwrap_or_default();
    let default = setting
        .default
        .map(|default| format!(", default {default}"))
        .unwrap_or_default();
    Arg::new(setting.key)
        .long(setting.flag)
        .value_name(setting.value_name)
        .help(format!("{} [{variable}{default}]", setting.help))
        // Of a setting that takes one value, the last one counts.
        .action(ArgAction::Append)
        .allow_hyphen_values(true)
        .help_heading("Settings")
}
