//! Arguments and environment: what celld takes, with the flag winning over the variable.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::bucket::Location;
use crate::launch::{Environment, Launch};
use crate::refuse;

/// What `--help` prints, and a call without arguments and settings.
pub(crate) const HELP: &str = "\
celld-standin: a stand-in for celld, for tests. It runs no Workers.

Usage: celld [OPTIONS]                      run a node
       celld deploy [PROJECT] [OPTIONS]     publish a project
       celld --version | --help

  --bucket [s3://|gs://|az://]NAME[/PREFIX]   CELLD_BUCKET; also dir:/PATH
  --endpoint URL                              S3_ENDPOINT
  --region REGION                             AWS_REGION, AWS_DEFAULT_REGION
  --listen IP:PORT                            CELLD_ADDR
  --internal-listen IP:PORT                   CELLD_INTERNAL_ADDR
  --advertise HOST:PORT                       CELLD_ADVERTISE
  --unsafe-public-advertise                   CELLD_UNSAFE_PUBLIC_ADVERTISE=1
  --trust-forwarded-headers                   CELLD_TRUST_FORWARDED_HEADERS=1
  deploy only: --config FILE, --dry-run
Also from the environment: CELLD_NODE, CELLD_WATCH, CELLD_DURABILITY, CELLD_TTL_MS, CELLD_SHUTDOWN_TOTAL_MS,
CELLD_DEPLOY_POLL_S, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN";

/// What the call asks for.
#[derive(Debug)]
pub(crate) enum Action {
    Help,
    Version,
    Deploy(Box<Deploy>),
    Run(Box<Settings>),
}

/// A `deploy` call.
#[derive(Debug)]
pub(crate) struct Deploy {
    pub(crate) project: PathBuf,
    pub(crate) location: Location,
    pub(crate) dry_run: bool,
}

/// Everything that a node needs to run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) version: String,
    pub(crate) location: Location,
    pub(crate) listen: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) advertise: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) state: PathBuf,
    pub(crate) durability: String,
    pub(crate) ttl: Duration,
    pub(crate) shutdown_total: Duration,
    pub(crate) deploy_poll: Duration,
}

/// Flags as they were given.
#[derive(Default)]
struct Flags {
    bucket: Option<String>,
    endpoint: Option<String>,
    region: Option<String>,
    listen: Option<String>,
    internal: Option<String>,
    advertise: Option<String>,
    public: bool,
    positional: Vec<String>,
    dry_run: bool,
}

pub(crate) fn parse(launch: &Launch) -> Result<Action, String> {
    let environment = &launch.environment;
    let mut arguments = launch.arguments.as_slice();
    let deploy = match arguments.first().map(String::as_str) {
        Some("--version" | "-V" | "version") => return Ok(Action::Version),
        Some("--help" | "-h" | "help") => return Ok(Action::Help),
        Some("deploy") => {
            arguments = &arguments[1..];
            true
        }
        None if !environment
            .keys()
            .any(|name| matches!(name.as_str(), "CELLD_BUCKET" | "CELLD_ADDR")) =>
        {
            return Ok(Action::Help);
        }
        _ => false,
    };
    let flags = flags(arguments, deploy)?;
    let location = location(&flags, environment)?;
    if deploy {
        if flags.positional.len() > 1 {
            return Err(format!("deploy takes one project, not {:?}", flags.positional));
        }
        let project = flags
            .positional
            .first()
            .map_or_else(|| PathBuf::from("."), PathBuf::from);
        return Ok(Action::Deploy(Box::new(Deploy {
            project,
            location,
            dry_run: flags.dry_run,
        })));
    }
    if let Some(stray) = flags.positional.first() {
        return Err(format!("unknown command {stray}"));
    }
    settings(launch, flags, location).map(|settings| Action::Run(Box::new(settings)))
}

fn flags(arguments: &[String], deploy: bool) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value = || match inline.clone().or_else(|| rest.next().cloned()) {
            Some(value) => Ok(value),
            None => Err(format!("{name} needs a value")),
        };
        match name {
            "--bucket" => flags.bucket = Some(value()?),
            "--endpoint" => flags.endpoint = Some(value()?),
            "--region" => flags.region = Some(value()?),
            "--listen" if !deploy => flags.listen = Some(value()?),
            "--internal-listen" if !deploy => flags.internal = Some(value()?),
            "--advertise" if !deploy => flags.advertise = Some(value()?),
            "--unsafe-public-advertise" if !deploy => flags.public = true,
            "--trust-forwarded-headers" if !deploy => {}
            "--config" if deploy => drop(value()?),
            "--dry-run" if deploy => flags.dry_run = true,
            name if name.starts_with('-') => return Err(format!("unknown option {name}")),
            _ => flags.positional.push(argument.clone()),
        }
    }
    Ok(flags)
}

fn location(flags: &Flags, environment: &Environment) -> Result<Location, String> {
    let variable = |name: &str| environment.get(name).cloned();
    let Some(bucket) = flags.bucket.clone().or_else(|| variable("CELLD_BUCKET")) else {
        return Err("no bucket: celld would keep its state in memory, and the stand-in does not; give --bucket".into());
    };
    let endpoint = flags.endpoint.clone().or_else(|| variable("S3_ENDPOINT"));
    let region = flags
        .region
        .clone()
        .or_else(|| variable("AWS_REGION"))
        .or_else(|| variable("AWS_DEFAULT_REGION"));
    let credentials = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let location = Location {
        url: refuse::bucket(&bucket)?,
        endpoint,
        region: region.unwrap_or_else(|| "us-east-1".into()),
        credentials,
        session_token: variable("AWS_SESSION_TOKEN"),
    };
    refuse::endpoint(&location)?;
    Ok(location)
}

fn settings(launch: &Launch, flags: Flags, location: Location) -> Result<Settings, String> {
    let variable = |name: &str| launch.environment.get(name).cloned();
    let number = |name: &str, default: u64| {
        variable(name).and_then(|value| value.parse().ok()).unwrap_or(default) // Checked by `refuse::environment`.
    };
    let listen = flags.listen.or_else(|| variable("CELLD_ADDR"));
    let internal = flags.internal.or_else(|| variable("CELLD_INTERNAL_ADDR"));
    let advertise = flags.advertise.or_else(|| variable("CELLD_ADVERTISE"));
    let public = flags.public || variable("CELLD_UNSAFE_PUBLIC_ADVERTISE").as_deref() == Some("1");
    let explicit = internal.is_some();

    let listen = match listen {
        Some(text) => refuse::socket_address("--listen", &text)?,
        None => SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
    };
    let internal = match internal {
        Some(text) => refuse::socket_address("--internal-listen", &text)?,
        None => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    };
    refuse::listeners(listen, internal, explicit, advertise.as_deref(), public)?;
    let node = variable("CELLD_NODE");
    if let Some(node) = &node {
        refuse::node_id(&launch.version, node)?;
    }
    let state = variable("CELLD_WATCH").map(PathBuf::from);
    let state = state.unwrap_or_else(|| std::env::temp_dir().join(format!("celld-{}", std::process::id())));
    Ok(Settings {
        version: launch.version.clone(),
        location,
        listen,
        internal,
        advertise,
        node,
        state,
        durability: variable("CELLD_DURABILITY").unwrap_or_else(|| "fleet".into()),
        ttl: Duration::from_millis(number("CELLD_TTL_MS", 10_000)),
        shutdown_total: Duration::from_millis(number("CELLD_SHUTDOWN_TOTAL_MS", 40_000)),
        deploy_poll: Duration::from_secs(number("CELLD_DEPLOY_POLL_S", 30).max(1)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    fn launch(version: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Launch {
        Launch {
            binary: "/opt/celld".into(),
            version: version.into(),
            arguments: arguments.iter().map(|&argument| argument.into()).collect(),
            environment: environment
                .iter()
                .map(|&(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Settings, String> {
        match parse(&launch("0.6.2", arguments, environment))? {
            Action::Run(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_at_all_is_help() {
        assert!(matches!(
            parse(&launch("0.6.2", &[], &[("HOME", "/root")])),
            Ok(Action::Help)
        ));
        assert!(matches!(parse(&launch("0.6.2", &["-V"], &[])), Ok(Action::Version)));
        assert!(parse(&launch("0.6.2", &["serve"], &[("CELLD_BUCKET", "b")])).is_err());
        assert!(parse(&launch("0.6.2", &["--lisen", "x"], &[("CELLD_BUCKET", "b")])).is_err());
    }

    #[test]
    fn a_flag_wins_over_its_variable() {
        let environment = [
            ("CELLD_BUCKET", "dir:/env"),
            ("CELLD_ADDR", "127.0.0.1:1"),
            ("CELLD_INTERNAL_ADDR", "127.0.0.1:2"),
            ("CELLD_WATCH", "/state"),
            ("CELLD_NODE", "n-1"),
            ("CELLD_SHUTDOWN_TOTAL_MS", "500"),
        ];
        let from_environment = run(&[], &environment).unwrap();
        assert_eq!(from_environment.listen.port(), 1);
        assert_eq!(from_environment.shutdown_total, Duration::from_millis(500));
        let settings = run(&["--listen=127.0.0.1:3", "--bucket", "dir:/flag"], &environment).unwrap();
        assert_eq!(settings.listen.port(), 3);
        assert_eq!(settings.internal.port(), 2);
        assert_eq!(settings.location.url.to_string(), "dir:/flag");
        assert_eq!(
            (settings.node.as_deref(), settings.state.to_str()),
            (Some("n-1"), Some("/state"))
        );
    }

    #[test]
    fn a_bucket_is_needed_and_cloud_stores_are_out_of_reach() {
        assert!(run(&["--listen", "127.0.0.1:0"], &[]).unwrap_err().contains("bucket"));
        assert!(
            run(&["--bucket", "gs://b", "--endpoint", "http://h"], &[])
                .unwrap_err()
                .contains("S3 only")
        );
        assert!(run(&["--bucket", "gs://b"], &[]).unwrap_err().contains("stand-in"));
    }
}
