//! The layers: flags over environment over file over default, each value with its origin.
//!
//! Only [`Sources::from_process`] looks at the process; everything else takes what it is given. An empty variable counts
//! as unset, as a shell's `VAR= command` means it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::settings::{Kind, SETTINGS, Setting, setting_of};
use super::values::{self, Raw, WrongParts};
use super::{
    ApiSettings, BucketSettings, Config, CoordinatorSettings, Effective, Fault, Faults, Loaded, NodeSettings, Origin,
    RegistrySettings, RuntimeSettings, Sourced, WireguardSettings,
};
use crate::error::Field;

/// Read when nobody names a file and this one exists.
pub const DEFAULT_FILE: &str = "/etc/scafo/config.json";

/// The sentence for faults of single values.
const WRONG: &str = "a setting is wrong";

/// What was said, before anybody looked at it.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Values of flags, by key.
    pub flags: BTreeMap<&'static str, Vec<String>>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Where the file is looked for when nobody names one.
    pub default_file: PathBuf,
}

impl Sources {
    /// These flags and this process's environment. Variables that are not text are left out, as if unset.
    pub fn from_process(flags: BTreeMap<&'static str, Vec<String>>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            flags,
            environment,
            default_file: PathBuf::from(DEFAULT_FILE),
        }
    }

    fn variable(&self, setting: &Setting) -> Option<(&str, &str)> {
        setting.variables.iter().find_map(|name| {
            let value = self.environment.get(*name)?;
            (!value.is_empty()).then_some((*name, value.as_str()))
        })
    }
}

/// Puts the layers together. Every fault is noted; where a value cannot be used, its default stands in.
pub fn load(sources: &Sources) -> Loaded {
    let mut layers = Layers {
        sources,
        file: None,
        faults: Faults::default(),
        effective: Vec::new(),
    };
    layers.read_file();
    let config = Config {
        bucket: BucketSettings {
            url: layers.optional("bucket.url", values::bucket_url),
            endpoint: layers.optional("bucket.endpoint", values::endpoint_url),
            region: layers.optional("bucket.region", values::text),
        },
        state_dir: layers.required("state.dir", values::absolute_path),
        node: NodeSettings {
            id: layers.optional("node.id", values::id),
            labels: layers.labels(),
            transport: layers.optional("node.transport", values::transport),
            address: layers.optional("node.address", values::text),
        },
        api: ApiSettings {
            host: layers.optional("api.host", values::text),
            port: layers.required("api.port", values::number),
        },
        runtime: RuntimeSettings {
            binary: layers.required("runtime.binary", values::text),
            bind_host: layers.optional("runtime.bindHost", values::text),
            ports: layers.required("runtime.ports", values::port_range),
        },
        registry: RegistrySettings {
            heartbeat_interval_ms: layers.required("registry.heartbeatIntervalMs", values::number),
            liveness_window_ms: layers.required("registry.livenessWindowMs", values::number),
            node_refresh_interval_ms: layers.required("registry.nodeRefreshIntervalMs", values::number),
            hint_poll_interval_ms: layers.required("registry.hintPollIntervalMs", values::number),
        },
        coordinator: CoordinatorSettings {
            lease_ttl_ms: layers.required("coordinator.leaseTtlMs", values::number),
            renew_interval_ms: layers.required("coordinator.renewIntervalMs", values::number),
        },
        wireguard: WireguardSettings {
            interface: layers.required("wireguard.interface", values::interface),
            listen_port: layers.required("wireguard.listenPort", values::number),
            endpoints: layers.endpoints(),
            mtu: layers.optional("wireguard.mtu", values::number),
            keepalive_seconds: layers.required("wireguard.keepaliveSeconds", values::number),
            backend: layers.required("wireguard.backend", values::backend),
            guard: layers.required("wireguard.guard", values::on_or_off),
        },
        network: layers.required("fleet.network", values::network),
        operator_file: layers.optional("operator.file", values::absolute_path),
        effective: Vec::new(),
    };
    let Layers {
        mut faults,
        mut effective,
        ..
    } = layers;
    effective.sort_by_key(|entry| SETTINGS.iter().position(|setting| setting.key == entry.key));
    values::cross_check(&config, &mut faults);
    Loaded {
        config: Config { effective, ..config },
        faults,
    }
}

struct Layers<'a> {
    sources: &'a Sources,
    file: Option<(PathBuf, BTreeMap<String, Value>)>,
    faults: Faults,
    effective: Vec<Effective>,
}

impl Layers<'_> {
    fn read_file(&mut self) {
        let setting = setting_of("config");
        let stated = self
            .sources
            .flags
            .get("config")
            .and_then(|values| values.last())
            .map(|path| (path.clone(), Origin::Flag("--config".to_owned())));
        let stated = stated.or_else(|| {
            let (name, value) = self.sources.variable(setting?)?;
            Some((value.to_owned(), Origin::Variable(name.to_owned())))
        });
        let (path, origin) = match stated {
            Some((path, origin)) => (PathBuf::from(path), Some(origin)),
            None => (self.sources.default_file.clone(), None),
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && origin.is_none() => return,
            Err(error) => return self.file_fault(&path, origin, &error.to_string()),
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(fields)) => {
                let mut values = BTreeMap::new();
                self.flatten(&path, "", fields, &mut values);
                self.file = Some((path, values));
            }
            Ok(_) => self.file_fault(&path, origin, "it is not a JSON object"),
            Err(error) => self.file_fault(&path, origin, &error.to_string()),
        }
    }

    fn file_fault(&mut self, path: &Path, origin: Option<Origin>, reason: &str) {
        let mut field = Field::new("config", path.display()).because(reason);
        if let Some(origin) = origin {
            field = field.from(origin);
        }
        self.faults.add(Fault {
            summary: "the configuration file cannot be read",
            field,
            help: None,
        });
    }

    /// Brings nested objects to keys with dots. What no setting is called is a fault, with the nearest one that is.
    fn flatten(&mut self, path: &Path, prefix: &str, fields: Map<String, Value>, values: &mut BTreeMap<String, Value>) {
        for (name, value) in fields {
            let key = if prefix.is_empty() {
                name
            } else {
                format!("{prefix}.{name}")
            };
            let is_group = SETTINGS
                .iter()
                .any(|setting| setting.key.starts_with(&format!("{key}.")));
            match value {
                value if setting_of(&key).is_some() && key != "config" => {
                    values.insert(key, value);
                }
                Value::Object(fields) if is_group => self.flatten(path, &key, fields, values),
                value => {
                    let reason = if is_group {
                        "it is a group of settings: an object".to_owned()
                    } else {
                        unknown(&key)
                    };
                    let field = Field::new(&key, values::shown(&value))
                        .from(path.display())
                        .because(reason);
                    self.faults.add(Fault {
                        summary: "the configuration file has a setting that does not exist",
                        field,
                        help: None,
                    });
                }
            }
        }
    }

    /// What was said about a setting, by whoever comes first.
    fn find(&self, setting: &Setting) -> Option<(Raw, Origin)> {
        if let Some(values) = self.sources.flags.get(setting.key) {
            return Some((Raw::Flags(values.clone()), Origin::Flag(format!("--{}", setting.flag))));
        }
        if let Some((name, value)) = self.sources.variable(setting) {
            return Some((Raw::Variable(value.to_owned()), Origin::Variable(name.to_owned())));
        }
        let (path, values) = self.file.as_ref()?;
        Some((Raw::Json(values.get(setting.key)?.clone()), Origin::File(path.clone())))
    }

    fn optional<T>(&mut self, key: &'static str, parse: fn(&str) -> Result<T, String>) -> Sourced<Option<T>> {
        let Some(setting) = setting_of(key) else {
            return Sourced {
                value: None,
                origin: Origin::Default,
            };
        };
        let Some((raw, origin)) = self.find(setting) else {
            self.effective.push(Effective {
                key,
                value: setting.default.map(ToOwned::to_owned),
                origin: Origin::Default,
            });
            return Sourced {
                value: None,
                origin: Origin::Default,
            };
        };
        let parsed = raw
            .text(setting.kind)
            .and_then(|text| parse(&text).map(|value| (value, text)));
        match parsed {
            Ok((value, text)) => {
                self.effective.push(Effective {
                    key,
                    value: Some(text),
                    origin: origin.clone(),
                });
                Sourced {
                    value: Some(value),
                    origin,
                }
            }
            Err(reason) => {
                self.fault(setting, &raw, origin.clone(), reason);
                Sourced { value: None, origin }
            }
        }
    }

    fn required<T>(&mut self, key: &'static str, parse: fn(&str) -> Result<T, String>) -> Sourced<T> {
        let Sourced { value, origin } = self.optional(key, parse);
        let default = || setting_of(key).and_then(|setting| parse(setting.default?).ok());
        // A test reads every default, so this one parses.
        let value = value
            .or_else(default)
            .expect("every required setting has a default that parses");
        Sourced { value, origin }
    }

    fn labels(&mut self) -> Sourced<crate::core::types::Labels> {
        self.collection("node.labels", Raw::pairs, |pairs| {
            let shown: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            shown.join(",")
        })
    }

    fn endpoints(&mut self) -> Sourced<Vec<String>> {
        self.collection("wireguard.endpoints", Raw::endpoints, |endpoints| endpoints.join(","))
    }

    fn collection<T: Default>(
        &mut self,
        key: &'static str,
        parse: fn(&Raw) -> (T, WrongParts),
        show: fn(&T) -> String,
    ) -> Sourced<T> {
        let found = setting_of(key).and_then(|setting| Some((setting, self.find(setting)?)));
        let Some((setting, (raw, origin))) = found else {
            self.effective.push(Effective {
                key,
                value: None,
                origin: Origin::Default,
            });
            return Sourced {
                value: T::default(),
                origin: Origin::Default,
            };
        };
        let (value, wrong) = parse(&raw);
        for (part, reason) in wrong {
            let field = Field::new(setting.key, part).from(&origin).because(reason);
            self.faults.add(Fault {
                summary: WRONG,
                field,
                help: None,
            });
        }
        self.effective.push(Effective {
            key,
            value: Some(show(&value)),
            origin: origin.clone(),
        });
        Sourced { value, origin }
    }

    fn fault(&mut self, setting: &Setting, raw: &Raw, origin: Origin, reason: String) {
        let field = Field::new(setting.key, raw.shown()).from(origin).because(reason);
        let help = match setting.kind {
            Kind::Number(least, most) => Some(format!("{} takes a whole number from {least} to {most}", setting.key)),
            Kind::Text | Kind::List | Kind::Pairs => None,
        };
        self.faults.add(Fault {
            summary: WRONG,
            field,
            help,
        });
    }
}

fn unknown(key: &str) -> String {
    let nearest = SETTINGS
        .iter()
        .filter(|setting| setting.key != "config")
        .map(|setting| (strsim::damerau_levenshtein(key, setting.key), setting.key))
        .min()
        // Further off than a third of its length is no slip of the pen.
        .filter(|(distance, nearest)| *distance <= nearest.len() / 3);
    match nearest {
        Some((_, nearest)) => format!("there is no such setting; did you mean {nearest}?"),
        None => "there is no such setting".to_owned(),
    }
}

#[cfg(test)]
mod tests;
