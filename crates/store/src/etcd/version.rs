//! Versions of etcd with known bugs that affect watch caches.
//!
//! UPSTREAM: apiserver pkg/storage/feature/feature_support_checker.go

/// An etcd version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }
}

/// The known bug of an etcd version, if any.
pub(super) fn fault(text: &str) -> Option<&'static str> {
    let Some(version) = Version::parse(text) else {
        return Some("unknown version");
    };
    let is_in = |from: Version, until: Version| from <= version && version < until;
    if version < Version(3, 4, 0) {
        Some("it has no progress requests, which came with 3.4")
    } else if is_in(Version(3, 5, 0), Version(3, 5, 3)) {
        Some("members may lose data when they are killed under load (etcd#13766, fixed in 3.5.3)")
    } else if is_in(Version(3, 4, 0), Version(3, 4, 25))
        || is_in(Version(3, 5, 0), Version(3, 5, 8))
    {
        Some(
            "progress notifications may come before the events they are about (etcd#15220, fixed in 3.4.25 and 3.5.8)",
        )
    } else if is_in(Version(3, 4, 0), Version(3, 4, 31))
        || is_in(Version(3, 5, 0), Version(3, 5, 13))
    {
        Some("watches may starve under load (etcd#17507, fixed in 3.4.31 and 3.5.13)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_versions_with_known_faults() {
        for (version, fault_of) in [
            ("3.3.27", Some("progress requests")),
            ("3.4.24", Some("15220")),
            ("3.4.30", Some("17507")),
            ("3.4.31", None),
            ("3.5.2", Some("13766")),
            ("3.5.3", Some("15220")),
            ("3.5.7", Some("15220")),
            ("3.5.12", Some("17507")),
            ("3.5.13", None),
            ("3.6.8", None),
            ("3.7.0-rc.1", None),
            ("v4", Some("unknown version")),
            ("", Some("unknown version")),
        ] {
            let found = fault(version);
            assert_eq!(found.is_some(), fault_of.is_some(), "{version}: {found:?}");
            if let (Some(found), Some(part)) = (found, fault_of) {
                assert!(found.contains(part), "{version}: {found}");
            }
        }
    }
}
