//! The served version of the API.

use lockgate_api::kube_version::KubeVersion;
use serde_json::{Value, json};

/// The default Kubernetes version.
pub const KUBERNETES_VERSION: &str = KubeVersion::REFERENCE.release();

/// The reference version as `kubectl version` prints it.
pub(crate) const GIT_VERSION: &str = concat!("v1.36.4+lockgate-", env!("CARGO_PKG_VERSION"));

/// The document at `/version`.
pub(crate) fn document(version: KubeVersion) -> Value {
    let minor = version.minor();
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "emulationMajor": "1",
        "emulationMinor": minor.to_string(),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": (minor - 1).to_string(),
        "gitVersion": format!("{}+lockgate-{}", version.release(), env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": platform(),
    })
}

/// The operating system and architecture in Go's notation, as clients expect.
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
        assert_eq!(document(KubeVersion::REFERENCE)["platform"], "linux/amd64");
    }

    #[test]
    fn says_which_version_it_stands_in_for() {
        let reference = document(KubeVersion::REFERENCE);
        assert_eq!(reference["gitVersion"], GIT_VERSION);
        let older = document(KubeVersion::V1_34);
        assert_eq!(
            (&older["minor"], &older["minCompatibilityMinor"]),
            (&json!("34"), &json!("33"))
        );
        let version = older["gitVersion"].as_str().unwrap();
        assert!(version.starts_with("v1.34.4+lockgate-"), "{version}");
    }
}
