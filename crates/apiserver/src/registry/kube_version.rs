//! The order of versions: `v2`, `v1`, `v1beta1`, `v1alpha2`, and then all others, alphabetically.
//!
//! UPSTREAM: apimachinery pkg/version/helpers.go (CompareKubeAwareVersionStrings)

use std::cmp::Reverse;

/// The stability of a version, the most stable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stability {
    Stable,
    Beta,
    Alpha,
}

/// The rank of a version: preferred versions come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VersionRank {
    Kube(Stability, Reverse<u64>, Reverse<u64>),
    Other(String),
}

impl VersionRank {
    pub(crate) fn of(version: &str) -> Self {
        Self::kube(version).unwrap_or_else(|| Self::Other(version.to_owned()))
    }

    fn kube(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit());
        let (major, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let (stability, minor) = match rest {
            "" => (Stability::Stable, 0),
            _ => match rest.strip_prefix("beta") {
                Some(minor) => (Stability::Beta, number(minor)?),
                None => (Stability::Alpha, number(rest.strip_prefix("alpha")?)?),
            },
        };
        Some(Self::Kube(
            stability,
            Reverse(number(major)?),
            Reverse(minor),
        ))
    }
}

/// Parses a number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_stable_and_newer_versions() {
        let mut versions = [
            "foo10",
            "v1alpha1",
            "v12alpha1",
            "v3beta1",
            "v10",
            "v11beta2",
            "v2",
            "v1",
            "foo1",
            "v10beta3",
            "v0",
            "v1beta01",
        ];
        versions.sort_by_key(|version| VersionRank::of(version));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10",
                "v0",
                "v1beta01",
            ]
        );
    }
}
