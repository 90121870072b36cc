//! Levels and versions of the Pod Security Standards, and a namespace's labels for them.
//!
//! UPSTREAM: pod-security-admission api/helpers.go

use std::fmt;

use lockgate_api::field::{FieldError, Path, Shown};
use serde_json::Value;

use crate::fields::label;

/// A Pod Security level, ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The version of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Latest,
    /// The version `v1.N`.
    Minor(u64),
}

/// The level and version of one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelVersion {
    pub(crate) level: Level,
    pub(crate) version: Version,
}

/// The levels of a namespace, by mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) enforce: LevelVersion,
    pub(crate) audit: LevelVersion,
    pub(crate) warn: LevelVersion,
}

impl Level {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl Version {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(wrong)?;
        let is_number = !minor.is_empty()
            && minor.bytes().all(|byte| byte.is_ascii_digit())
            && (minor == "0" || !minor.starts_with('0'));
        if !is_number {
            return Err(wrong);
        }
        minor.parse().map(Self::Minor).map_err(|_| wrong)
    }
}

impl LevelVersion {
    pub(crate) const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };

    /// Returns true if both are equal, ignoring the version of `privileged`.
    fn is_equivalent(&self, other: &Self) -> bool {
        let privileged = Level::Privileged;
        self == other || self.level == privileged && other.level == privileged
    }
}

impl Policy {
    pub(crate) fn is_privileged(&self) -> bool {
        let modes = [self.enforce, self.audit, self.warn];
        modes.iter().all(|mode| mode.level == Level::Privileged)
    }

    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.enforce.is_equivalent(&other.enforce)
            && self.audit.is_equivalent(&other.audit)
            && self.warn.is_equivalent(&other.warn)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// The label of a mode, or of its version.
pub(crate) fn label_key(name: &str) -> String {
    format!("pod-security.kubernetes.io/{name}")
}

/// The policy of a namespace from its labels and the defaults, and the errors in the labels. An invalid label means
/// `restricted` for `enforce`, and `privileged` for `audit` and `warn`.
pub(crate) fn of_namespace(namespace: &Value, defaults: Policy) -> (Policy, Vec<FieldError>) {
    let mut policy = defaults;
    let mut errors = Vec::new();
    let mut enforce_is_set = false;
    for (name, mode, unreadable) in [
        ("enforce", &mut policy.enforce, Level::Restricted),
        ("audit", &mut policy.audit, Level::Privileged),
        ("warn", &mut policy.warn, Level::Privileged),
    ] {
        let key = label_key(name);
        if let Some(text) = label(namespace, &key) {
            let level = Level::parse(text);
            enforce_is_set |= name == "enforce" && level.is_ok();
            mode.level = level.unwrap_or_else(|why| {
                errors.push(invalid(&key, text, why));
                unreadable
            });
        }
        let key = label_key(&format!("{name}-version"));
        if let Some(text) = label(namespace, &key) {
            mode.version = Version::parse(text).unwrap_or_else(|why| {
                errors.push(invalid(&key, text, why));
                Version::Latest
            });
        }
    }
    // An enforced level that is stricter than the warn level also sets the latter.
    let has = |name: &str| label(namespace, &label_key(name)).is_some();
    if enforce_is_set && !has("warn") && policy.enforce.level > policy.warn.level {
        policy.warn.level = policy.enforce.level;
        if !has("warn-version") {
            policy.warn.version = policy.enforce.version;
        }
    }
    (policy, errors)
}

fn invalid(key: &str, text: &str, why: &str) -> FieldError {
    let metadata = Path::root("metadata");
    let labels = metadata.child("labels");
    FieldError::invalid(&labels.key(key), Shown::Text(text), why)
}
