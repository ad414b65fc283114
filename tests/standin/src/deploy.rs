//! `deploy`: publishes a project's files under the prefix, and reads which deployment the pointer names.
//!
//! Objects are written in celld's order, the pointer last, so that a node never sees a pointer without its deployment.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::args::Deploy;
use crate::bucket::{Bucket, Condition, sha256};

/// The object that names the deployment of the whole fleet.
pub(crate) const POINTER: &str = "deploy/current.json";

/// Folders that are no part of a project.
const LEFT_OUT: [&str; 3] = [".git", "node_modules", "target"];

/// The deployment that a pointer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deployment {
    pub(crate) script: String,
    pub(crate) version: String,
}

/// Reads the pointer and checks that what it names is there.
pub(crate) async fn current(bucket: &Bucket) -> Result<Deployment, String> {
    let pointer = bucket
        .get(POINTER)
        .await?
        .ok_or_else(|| format!("{POINTER} is missing: nothing was deployed yet"))?;
    let pointer: Value =
        serde_json::from_slice(&pointer.body).map_err(|error| format!("{POINTER} cannot be read: {error}"))?;
    let text = |name: &str| pointer.get(name).and_then(Value::as_str).map(str::to_owned);
    let version = text("version").ok_or_else(|| format!("{POINTER} has no version"))?;
    if let Some(prefix) = text("prefix") {
        let manifest = format!("{}/manifest.json", prefix.trim_matches('/'));
        bucket
            .get(&manifest)
            .await?
            .ok_or_else(|| format!("{manifest} is missing"))?;
    }
    Ok(Deployment {
        script: text("script_name").unwrap_or_else(|| "worker".into()),
        version,
    })
}

/// Publishes, and returns the exit code.
pub(crate) async fn deploy(request: &Deploy) -> Result<u8, String> {
    let files = files(&request.project)?;
    let script = script_name(&request.project, &files);
    let version = version(&script, &files);
    if request.dry_run {
        println!(
            "{script} {version}: {} files, nothing written (celld-standin)",
            files.len()
        );
        return Ok(0);
    }
    let bucket = Bucket::open(&request.location)?;
    let mut assets = serde_json::Map::new();
    for (path, content) in &files {
        let digest = sha256(content);
        let key = format!("deploy-blobs/assets/sha256/{}/{digest}", &digest[..2]);
        bucket.put(&key, content.clone(), Condition::Always).await?;
        assets.insert(path.clone(), json!({ "sha256": digest, "size": content.len() }));
    }
    let prefix = format!("deploy/{script}/{version}");
    let manifest = json!({
        "script_name": script, "version": version, "required_features": [], "standin": true,
    });
    bucket
        .put(
            &format!("{prefix}/assets.json"),
            to_bytes(&assets.into()),
            Condition::Always,
        )
        .await?;
    bucket
        .put(
            &format!("{prefix}/manifest.json"),
            to_bytes(&manifest),
            Condition::Always,
        )
        .await?;
    let pointer = json!({
        "script_name": script, "version": version, "prefix": prefix, "rollout": { "percent": 100 },
    });
    for key in [format!("deploy/{script}/current.json"), POINTER.to_owned()] {
        let seen = bucket.get(&key).await?;
        let condition = seen
            .as_ref()
            .map_or(Condition::Absent, |object| Condition::Unchanged(&object.tag));
        if !bucket.put(&key, to_bytes(&pointer), condition).await? {
            return Err(format!(
                "{key} changed meanwhile: somebody else deployed; run deploy again"
            ));
        }
    }
    println!(
        "deployed {script} {version} to {} (celld-standin)",
        request.location.url
    );
    Ok(0)
}

fn to_bytes(value: &Value) -> Bytes {
    value.to_string().into()
}

/// The first 16 hexadecimal digits of a SHA-256 over the script's name and every file, in order of their paths.
fn version(script: &str, files: &[(String, Bytes)]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(script);
    for (path, content) in files {
        hasher.update((path.len() as u64).to_be_bytes());
        hasher.update(path);
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(content);
    }
    hasher
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The `name` of the project's configuration, else the folder's.
fn script_name(project: &Path, files: &[(String, Bytes)]) -> String {
    let stated = ["wrangler.json", "wrangler.jsonc", "package.json"]
        .iter()
        .find_map(|file| {
            let (_, content) = files.iter().find(|(path, _)| path == file)?;
            let value: Value = serde_json::from_slice(content).ok()?;
            value.get("name")?.as_str().map(str::to_owned)
        });
    let folder = || {
        project
            .canonicalize()
            .ok()?
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let name = stated.or_else(folder).unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_') {
                letter
            } else {
                '-'
            }
        })
        .collect();
    if plain.is_empty() { "worker".into() } else { plain }
}

fn files(project: &Path) -> Result<Vec<(String, Bytes)>, String> {
    let mut found = Vec::new();
    let mut folders = vec![project.to_owned()];
    let describe = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| describe(&folder, error))? {
            let path: PathBuf = entry.map_err(|error| describe(&folder, error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !LEFT_OUT.contains(&name.as_ref()) {
                    folders.push(path);
                }
            } else {
                let content = fs::read(&path).map_err(|error| describe(&path, error))?;
                let relative = path
                    .strip_prefix(project)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                found.push((relative, content.into()));
            }
        }
    }
    if found.is_empty() {
        return Err(format!("{} has no files to deploy", project.display()));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn the_version_follows_the_content_alone() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("shop");
        fs::create_dir_all(project.join("src")).unwrap();
        fs::write(project.join("src/index.js"), "export default {}").unwrap();
        let of = |project: &Path| {
            let files = files(project).unwrap();
            (
                script_name(project, &files),
                version(&script_name(project, &files), &files),
            )
        };
        let first = of(&project);
        assert_eq!((first.0.as_str(), first.1.len()), ("shop", 16));
        fs::create_dir_all(project.join("node_modules/x")).unwrap();
        fs::write(project.join("node_modules/x/y.js"), "left out").unwrap();
        assert_eq!(of(&project), first);
        fs::write(project.join("src/index.js"), "export default { }").unwrap();
        assert_ne!(of(&project).1, first.1);
        fs::write(project.join("wrangler.json"), r#"{"name": "my shop"}"#).unwrap();
        assert_eq!(of(&project).0, "my-shop");
    }
}
