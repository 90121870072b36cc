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
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
