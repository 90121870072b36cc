//! Semantic versions, parsed like the `blang/semver` library.
// UPSTREAM: github.com/blang/semver/v4 (semver.go); k8s.io/apiserver/pkg/cel/library/semverlib.go
// for normalisation.

use std::cmp::Ordering;

use lockgate_go::quote::quote;

/// A version. Build metadata is parsed but ignored in comparisons.
#[derive(Clone, Debug)]
pub struct Semver {
    major: u64,
    minor: u64,
    patch: u64,
    prerelease: Vec<Identifier>,
    build: Vec<String>,
}

/// An identifier of a prerelease. Numeric ones precede alphanumeric ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

/// A string that is not a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SemverError {
    /// The string is empty.
    Empty,
    /// There are fewer than two dots.
    TooShort,
    /// A version to normalise has a prerelease or build metadata.
    ShortWithMetadata,
    /// An identifier has invalid characters; with its name in the message.
    InvalidCharacters(&'static str, String),
    /// A number has a leading zero; with its name in the message.
    LeadingZeroes(&'static str, String),
    /// A number is missing.
    NoNumber(String),
    /// A number is too large.
    OutOfRange(String),
    /// An identifier of the prerelease is empty.
    EmptyPrerelease,
    /// An identifier of the build metadata is empty.
    EmptyBuild,
}

impl std::fmt::Display for SemverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("Version string empty"),
            Self::TooShort => f.write_str("No Major.Minor.Patch elements found"),
            Self::ShortWithMetadata => {
                f.write_str("short version cannot contain PreRelease/Build meta data")
            }
            Self::InvalidCharacters(part, text) => {
                write!(f, "Invalid character(s) found in {part} {}", quote(text))
            }
            Self::LeadingZeroes(number, text) => {
                write!(
                    f,
                    "{number} must not contain leading zeroes {}",
                    quote(text)
                )
            }
            Self::NoNumber(text) => {
                write!(
                    f,
                    "strconv.ParseUint: parsing {}: invalid syntax",
                    quote(text)
                )
            }
            Self::OutOfRange(text) => {
                write!(
                    f,
                    "strconv.ParseUint: parsing {}: value out of range",
                    quote(text)
                )
            }
            Self::EmptyPrerelease => f.write_str("Prerelease is empty"),
            Self::EmptyBuild => f.write_str("Build meta data is empty"),
        }
    }
}

impl std::error::Error for SemverError {}

impl Semver {
    /// `semver(text)`
    ///
    /// ```
    /// use lockgate_cel::ext::semver::Semver;
    /// assert_eq!(Semver::parse("1.20.3-rc.1").unwrap().minor(), 20);
    /// assert!(Semver::parse("v1.20").is_err());
    /// assert!(Semver::parse_normalized("v1.20").is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// A string that is not a version.
    pub fn parse(text: &str) -> Result<Self, SemverError> {
        if text.is_empty() {
            return Err(SemverError::Empty);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(SemverError::TooShort);
        };
        let major = number(major, "major number", "Major number")?;
        let minor = number(minor, "minor number", "Minor number")?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => (patch, Some(prerelease)),
            None => (rest, None),
        };
        let patch = number(patch, "patch number", "Patch number")?;
        let prerelease = dotted(prerelease)
            .map(identifier)
            .collect::<Result<_, _>>()?;
        let build = dotted(build)
            .map(build_identifier)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            major,
            minor,
            patch,
            prerelease,
            build,
        })
    }

    /// `semver(text, true)`: drops a leading `v` and leading zeros, and adds missing numbers.
    ///
    /// # Errors
    ///
    /// A string that is not a version even after normalisation.
    pub fn parse_normalized(text: &str) -> Result<Self, SemverError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err(SemverError::ShortWithMetadata);
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    /// `isSemver(text)`
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        Self::parse(text).is_ok()
    }

    /// `isSemver(text, true)`
    #[must_use]
    pub fn is_valid_normalized(text: &str) -> bool {
        Self::parse_normalized(text).is_ok()
    }

    /// `major()`; numbers above the maximum `int` wrap around.
    #[must_use]
    pub const fn major(&self) -> i64 {
        self.major.cast_signed()
    }

    /// `minor()`; numbers above the maximum `int` wrap around.
    #[must_use]
    pub const fn minor(&self) -> i64 {
        self.minor.cast_signed()
    }

    /// `patch()`; numbers above the maximum `int` wrap around.
    #[must_use]
    pub const fn patch(&self) -> i64 {
        self.patch.cast_signed()
    }

    /// Compares by precedence. A prerelease precedes its release, and build metadata is ignored, so
    /// different versions may be equal.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let numbers = |v: &Self| (v.major, v.minor, v.patch);
        numbers(self)
            .cmp(&numbers(other))
            .then_with(|| self.prerelease.is_empty().cmp(&other.prerelease.is_empty()))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}

impl std::fmt::Display for Semver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (at, part) in self.prerelease.iter().enumerate() {
            f.write_str(if at == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Text(text) => f.write_str(text)?,
            }
        }
        for (at, part) in self.build.iter().enumerate() {
            f.write_str(if at == 0 { "+" } else { "." })?;
            f.write_str(part)?;
        }
        Ok(())
    }
}

/// Parses a number; `part` and `number` are its names in errors.
fn number(text: &str, part: &'static str, number: &'static str) -> Result<u64, SemverError> {
    if !is_digits(text) {
        return Err(SemverError::InvalidCharacters(part, text.to_owned()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(SemverError::LeadingZeroes(number, text.to_owned()));
    }
    if text.is_empty() {
        return Err(SemverError::NoNumber(String::new()));
    }
    text.parse()
        .map_err(|_| SemverError::OutOfRange(text.to_owned()))
}

fn identifier(text: &str) -> Result<Identifier, SemverError> {
    if text.is_empty() {
        return Err(SemverError::EmptyPrerelease);
    }
    if is_digits(text) {
        return number(text, "prerelease", "Numeric PreRelease version").map(Identifier::Number);
    }
    if !is_identifier(text) {
        return Err(SemverError::InvalidCharacters(
            "prerelease",
            text.to_owned(),
        ));
    }
    Ok(Identifier::Text(text.to_owned()))
}

fn build_identifier(text: &str) -> Result<String, SemverError> {
    if text.is_empty() {
        return Err(SemverError::EmptyBuild);
    }
    if !is_identifier(text) {
        return Err(SemverError::InvalidCharacters(
            "build meta data",
            text.to_owned(),
        ));
    }
    Ok(text.to_owned())
}

fn dotted(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split('.'))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Removes leading zeros, but keeps or adds one before a non-digit.
fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in ["1.2.3", "0.0.0-0", "1.2.3-rc.1.x-y+build.007", "1.2.3+a-b"] {
            assert_eq!(Semver::parse(text).unwrap().to_string(), text);
        }
        let huge = Semver::parse("18446744073709551615.1.2").unwrap();
        assert_eq!([huge.major(), huge.minor(), huge.patch()], [-1, 1, 2]);
    }

    #[test]
    fn normalizes() {
        for (text, want) in [
            ("v1.20", "1.20.0"),
            ("1", "1.0.0"),
            ("01.02.03", "1.2.3"),
            ("1.2.03-rc.01a", "1.2.3-rc.01a"),
            ("1.2.00-a", "1.2.0-a"),
            ("000", "0.0.0"),
        ] {
            assert_eq!(
                Semver::parse_normalized(text).unwrap().to_string(),
                want,
                "{text}"
            );
            assert!(Semver::is_valid_normalized(text));
            assert!(!Semver::is_valid(text) || text == want);
        }
    }

    #[test]
    fn explains_what_is_no_version() {
        for (text, want) in [
            ("", "Version string empty"),
            ("1.2", "No Major.Minor.Patch elements found"),
            (
                "v1.2.3",
                "Invalid character(s) found in major number \"v1\"",
            ),
            ("1.é.3", "Invalid character(s) found in minor number \"é\""),
            ("1.2.x", "Invalid character(s) found in patch number \"x\""),
            (
                "01.2.3",
                "Major number must not contain leading zeroes \"01\"",
            ),
            (
                "1.2.03",
                "Patch number must not contain leading zeroes \"03\"",
            ),
            (".2.3", "strconv.ParseUint: parsing \"\": invalid syntax"),
            (
                "1.2.18446744073709551616",
                "strconv.ParseUint: parsing \"18446744073709551616\": value out of range",
            ),
            ("1.2.3-", "Prerelease is empty"),
            (
                "1.2.3-01",
                "Numeric PreRelease version must not contain leading zeroes \"01\"",
            ),
            (
                "1.2.3-a_b",
                "Invalid character(s) found in prerelease \"a_b\"",
            ),
            ("1.2.3+", "Build meta data is empty"),
            (
                "1.2.3+a+b",
                "Invalid character(s) found in build meta data \"a+b\"",
            ),
        ] {
            assert_eq!(Semver::parse(text).unwrap_err().to_string(), want, "{text}");
        }
        assert_eq!(
            Semver::parse_normalized("1-rc").unwrap_err().to_string(),
            "short version cannot contain PreRelease/Build meta data"
        );
        assert_eq!(
            Semver::parse_normalized("1.2.abc").unwrap_err().to_string(),
            "Invalid character(s) found in patch number \"0abc\""
        );
    }

    #[test]
    fn orders_versions() {
        let ascending = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-A",
            "1.0.0-a",
            "1.0.0-a.1",
            "1.0.0",
            "1.0.1-a",
            "1.1.0",
            "2.0.0",
        ];
        for pair in ascending.windows(2) {
            let [a, b] = pair else { continue };
            let (a, b) = (Semver::parse(a).unwrap(), Semver::parse(b).unwrap());
            assert_eq!(a.compare(&b), Ordering::Less, "{a} {b}");
            assert_eq!(b.compare(&a), Ordering::Greater, "{a} {b}");
        }
        let with_build = Semver::parse("1.0.0+x").unwrap();
        assert_eq!(
            with_build.compare(&Semver::parse("1.0.0+y").unwrap()),
            Ordering::Equal
        );
    }
}
