//! The version of the API that is served.

use serde_json::{Value, json};

/// The version of Kubernetes whose API is served.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

/// The version as `kubectl version` shows it.
pub(crate) const GIT_VERSION: &str = concat!("v1.36.4+lockgate-", env!("CARGO_PKG_VERSION"));

/// The document at `/version`.
pub(crate) fn document() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": platform(),
    })
}

/// The operating system and architecture by the names that Go has for them, which clients expect.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    };
    format!("{system}/{architecture}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn names_its_platform_as_kubernetes_does() {
        assert_eq!(document()["platform"], "linux/amd64");
    }
}
