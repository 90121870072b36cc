//! Command lines with the syntax of Go's pflag.
//!
//! UPSTREAM: github.com/spf13/pflag flag.go

use std::collections::BTreeMap;

use lockgate_go::quote::quote;

/// The kind of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `--flag`, `--flag=true`, `--flag=false`.
    Bool,
    /// Any text.
    Text,
    /// A comma-separated list; repeated flags append to it.
    List,
    Int,
    Float,
    Duration,
    /// `--version` and `--version=raw`.
    Version,
}

/// A parse error with pflag's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FlagError {
    #[error("unknown flag: --{0}")]
    Unknown(String),
    #[error("unknown shorthand flag: '{found}' in -{argument}")]
    UnknownShorthand { found: char, argument: String },
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    #[error("flag needs an argument: --{0}")]
    NeedsArgument(String),
    #[error("invalid argument {} for \"--{name}\" flag: {why}", quote(.value))]
    Invalid {
        name: String,
        value: String,
        why: String,
    },
    #[error("{} does not take any arguments, got [{}]", quote(.program), quote(.argument))]
    Argument { program: String, argument: String },
}

/// The flags of a command line, with all values of each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// Parses the arguments after the program name.
    pub(super) fn parse(
        program: &str,
        known: impl Fn(&str) -> Option<Kind>,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let positional = || FlagError::Argument {
                program: program.to_owned(),
                argument: argument.clone(),
            };
            let (name, given) = match argument.strip_prefix("--") {
                Some("") => match arguments.next() {
                    None => return Ok(flags),
                    Some(argument) => {
                        return Err(FlagError::Argument {
                            program: program.to_owned(),
                            argument,
                        });
                    }
                },
                Some(long) if long.starts_with(['-', '=']) => {
                    return Err(FlagError::Syntax(argument));
                }
                Some(long) => match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                },
                None => match argument.strip_prefix('-') {
                    None | Some("") => return Err(positional()),
                    Some(short) => shorthand(short)?,
                },
            };
            // UPSTREAM: component-base cli/flag/flags.go (WordSepNormalizeFunc)
            let name = name.replace('_', "-");
            let kind = known(&name).ok_or_else(|| FlagError::Unknown(name.clone()))?;
            let value = match (given, kind) {
                (Some(value), _) => value,
                (None, Kind::Bool | Kind::Version) => String::from("true"),
                (None, _) => arguments
                    .next()
                    .ok_or_else(|| FlagError::NeedsArgument(name.clone()))?,
            };
            check(kind, &value).map_err(|why| FlagError::Invalid {
                name: name.clone(),
                value: value.clone(),
                why,
            })?;
            let values = flags.0.entry(name).or_default();
            match kind {
                // UPSTREAM: pflag string_slice.go: an empty value is an empty list.
                Kind::List => {
                    let items = value.split(',').filter(|item| !item.is_empty());
                    values.extend(items.map(str::to_owned));
                }
                _ => values.push(value),
            }
        }
        Ok(flags)
    }

    /// The names of all set flags.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The last value of a flag.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// The last value of a flag, if not empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<&str> {
        self.last(name).filter(|value| !value.is_empty())
    }

    /// Every value of a flag, or every item of a list.
    pub(super) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The value of a boolean flag.
    pub(super) fn is_on(&self, name: &str) -> Option<bool> {
        self.last(name).and_then(boolean)
    }
}

/// The flag and the value of `-v=4`, `-v4` and `-v`.
fn shorthand(short: &str) -> Result<(&'static str, Option<String>), FlagError> {
    let mut rest = short.chars();
    match rest.next() {
        Some('v') => {
            let value = rest.as_str();
            let value = value.strip_prefix('=').unwrap_or(value);
            Ok(("v", (!value.is_empty()).then(|| value.to_owned())))
        }
        Some('h') => Ok(("help", None)),
        first => Err(FlagError::UnknownShorthand {
            found: first.unwrap_or('-'),
            argument: short.to_owned(),
        }),
    }
}

/// UPSTREAM: Go strconv atob.go
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn check(kind: Kind, value: &str) -> Result<(), String> {
    let syntax = |function: &str| {
        let value = quote(value);
        format!("strconv.{function}: parsing {value}: invalid syntax")
    };
    match kind {
        Kind::Text | Kind::List | Kind::Version => Ok(()),
        Kind::Bool => boolean(value)
            .map(|_| ())
            .ok_or_else(|| syntax("ParseBool")),
        Kind::Int => value
            .parse::<i64>()
            .map(|_| ())
            .map_err(|_| syntax("ParseInt")),
        Kind::Float => value
            .parse::<f64>()
            .map(|_| ())
            .map_err(|_| syntax("ParseFloat")),
        Kind::Duration => lockgate_go::time::Duration::parse(value)
            .map(|_| ())
            .map_err(|_| format!("time: invalid duration {}", quote(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<Kind> {
        Some(match name {
            "on" | "help" => Kind::Bool,
            "text" => Kind::Text,
            "names" => Kind::List,
            "v" => Kind::Int,
            "time" => Kind::Duration,
            _ => return None,
        })
    }

    fn parse(line: &str) -> Result<Flags, FlagError> {
        Flags::parse("tool", known, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn reads_every_form() {
        let flags =
            parse("--on --text a --text=b=c --names=a,b --names c, -v=4 --time 1m").unwrap();
        assert_eq!(flags.is_on("on"), Some(true));
        assert_eq!(flags.all("text"), ["a", "b=c"]);
        assert_eq!(flags.last("text"), Some("b=c"));
        assert_eq!(flags.all("names"), ["a", "b", "c"]);
        assert_eq!(flags.last("v"), Some("4"));
        assert_eq!(parse("-v 3").unwrap().last("v"), Some("3"));
        assert_eq!(parse("-v3").unwrap().last("v"), Some("3"));
        assert_eq!(parse("-h").unwrap().is_on("help"), Some(true));
        assert_eq!(parse("--on=F").unwrap().is_on("on"), Some(false));
        assert_eq!(parse("--text=").unwrap().non_empty("text"), None);
        assert_eq!(parse("--names=").unwrap().all("names").len(), 0);
        assert_eq!(parse("--names= --").unwrap().names().count(), 1);
    }

    #[test]
    fn complains_as_pflag_does() {
        for (line, expected) in [
            ("--bogus", "unknown flag: --bogus"),
            ("--bogus=1", "unknown flag: --bogus"),
            ("--text", "flag needs an argument: --text"),
            ("--=x", "bad flag syntax: --=x"),
            ("-x", "unknown shorthand flag: 'x' in -x"),
            ("foo", "\"tool\" does not take any arguments, got [\"foo\"]"),
            (
                "--on no",
                "\"tool\" does not take any arguments, got [\"no\"]",
            ),
            ("-- a", "\"tool\" does not take any arguments, got [\"a\"]"),
            (
                "--on=maybe",
                "invalid argument \"maybe\" for \"--on\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                "--v=x",
                "invalid argument \"x\" for \"--v\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                "--time=x",
                "invalid argument \"x\" for \"--time\" flag: time: invalid duration \"x\"",
            ),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
        }
    }
}
