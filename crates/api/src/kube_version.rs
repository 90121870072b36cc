//! The minor versions of Kubernetes that can be emulated.

use std::fmt;
use std::str::FromStr;

/// A minor version of Kubernetes. The implementation follows [`KubeVersion::REFERENCE`]; tables beside the relevant
/// code list the differences of other versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum KubeVersion {
    /// 1.33
    V1_33,
    /// 1.34
    V1_34,
    /// 1.35
    V1_35,
    /// 1.36
    #[default]
    V1_36,
    /// 1.37
    V1_37,
}

/// A string that is not a supported version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeVersionError(String);

impl std::error::Error for KubeVersionError {}

impl fmt::Display for KubeVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, .., last] = KubeVersion::ALL;
        let text = &self.0;
        write!(
            f,
            "`{text}` is no Kubernetes version from {first} to {last}"
        )
    }
}

impl KubeVersion {
    /// The version of the recordings.
    pub const REFERENCE: Self = Self::V1_36;

    /// All versions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V1_33,
        Self::V1_34,
        Self::V1_35,
        Self::V1_36,
        Self::V1_37,
    ];

    /// The minor version number.
    #[must_use]
    pub const fn minor(self) -> u8 {
        match self {
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// The emulated release, as in `v1.36.4`.
    #[must_use]
    pub const fn release(self) -> &'static str {
        match self {
            Self::V1_33 => "v1.33.13",
            Self::V1_34 => "v1.34.4",
            Self::V1_35 => "v1.35.4",
            Self::V1_36 => "v1.36.4",
            Self::V1_37 => "v1.37.0-rc.1",
        }
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

impl FromStr for KubeVersion {
    type Err = KubeVersionError;

    /// Parses `1.34`, `v1.34` or `1.34.2`.
    fn from_str(text: &str) -> Result<Self, KubeVersionError> {
        let error = || KubeVersionError(text.to_owned());
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let mut parts = numbers.split('.');
        let (Some("1"), Some(minor)) = (parts.next(), parts.next()) else {
            return Err(error());
        };
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !parts.next().is_none_or(is_number) || parts.next().is_some() {
            return Err(error());
        }
        let mut all = Self::ALL.into_iter();
        all.find(|version| version.minor().to_string() == minor)
            .ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_people_write_them() {
        for (text, want) in [
            ("1.33", KubeVersion::V1_33),
            ("v1.34", KubeVersion::V1_34),
            ("1.35.4", KubeVersion::V1_35),
            ("v1.37.0", KubeVersion::V1_37),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in [
            "", "1", "1.", "1.32", "2.34", "1.34.", "1.34.1.1", "1.34-rc", "1.034",
        ] {
            let error = text.parse::<KubeVersion>().unwrap_err().to_string();
            let want = format!("`{text}` is no Kubernetes version from 1.33 to 1.37");
            assert_eq!(error, want);
        }
        assert_eq!(KubeVersion::default(), KubeVersion::REFERENCE);
    }
}
