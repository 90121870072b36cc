//! The programs that the tests run: installed ones, and those installed by `tools/need.sh`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::runner::Client;

/// Returns true for the file name of a kubectl, with or without a version suffix such as `kubectl.1.27`.
fn is_kubectl(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some(rest) = name.strip_prefix("kubectl") else {
        return false;
    };
    rest.chars()
        .all(|letter| letter.is_ascii_digit() || ".-_v".contains(letter))
        && path.is_file()
}

/// Every installed kubectl, the oldest first, one per minor version. `LOCKGATE_KUBECTLS` lists additional ones,
/// separated by colons.
pub(crate) fn kubectls() -> &'static [Client] {
    static FOUND: OnceLock<Vec<Client>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        // The other versions may be in the folder of a symlink's target.
        let real = folders
            .iter()
            .filter_map(|folder| folder.join("kubectl").canonicalize().ok());
        let real: Vec<PathBuf> = real
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        folders.extend(real);
        let files = folders
            .iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok());
        let files = files.flat_map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())));
        let further = std::env::var_os("LOCKGATE_KUBECTLS").unwrap_or_default();
        let further: Vec<PathBuf> = std::env::split_paths(&further).collect();
        let mut versions = BTreeMap::new();
        let mut seen = Vec::new();
        for file in files.filter(|file| is_kubectl(file)).chain(further) {
            let Ok(file) = file.canonicalize() else {
                continue;
            };
            if seen.contains(&file) {
                continue;
            }
            seen.push(file.clone());
            if let Some(minor) = minor(&file) {
                versions.entry(minor).or_insert(file);
            }
        }
        let client = |(minor, file)| Client {
            version: format!("1.{minor}"),
            programs: vec![("kubectl", file)],
        };
        versions.into_iter().map(client).collect()
    })
}

/// The minor version of a kubectl; `None` for wrapper scripts.
fn minor(file: &Path) -> Option<u32> {
    let output = Command::new(file)
        .args(["version", "--client", "-o", "json"])
        .output()
        .ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let text = version.pointer("/clientVersion/gitVersion")?.as_str()?;
    if text.contains("dispatcher") {
        return None;
    }
    text.strip_prefix("v1.")?.split('.').next()?.parse().ok()
}

/// The folder of programs installed by `tools/need.sh`, which runs if one is missing.
pub(crate) fn installed(program: &str) -> PathBuf {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    let folder = READY.get_or_init(|| {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = Command::new(root.join("tools/need.sh"))
            .arg("clients")
            .current_dir(&root)
            .output();
        let output = output.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    });
    folder.join("bin").join(program)
}

/// The real Helm, with the newest kubectl.
pub(crate) fn helm() -> Client {
    let mut client = kubectls().last().unwrap().clone();
    client.version = String::from("3");
    client.programs.push(("helm", installed("helm")));
    client
}
