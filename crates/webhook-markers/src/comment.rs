//! The comments `+kubebuilder:webhook:…`, `+kubebuilder:webhookconfiguration:…` and `+lockgate:conversion:…`.
//!
//! UPSTREAM: sigs.k8s.io/controller-tools v0.21 pkg/markers/parse.go and pkg/webhook/parser.go. Two
//! errors are detected here but not there: a duplicate argument, and an invalid `reinvocationPolicy`.

use crate::words::{canonical, list, nearest};
use crate::{ConversionMarker, Marker, Role, Service, check};

/// A marker comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comment {
    /// A webhook.
    Webhook(Box<Marker>),
    /// The name of a webhook configuration.
    Configuration {
        /// The kind of the configuration.
        role: Role,
        /// Its name; empty for the default.
        name: String,
    },
    /// The conversion of a custom resource, which kubebuilder does not have.
    Conversion(ConversionMarker),
}

/// An invalid marker comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentError {
    /// The offset in bytes from the `+`.
    pub at: usize,
    /// The message.
    pub message: String,
    /// The suggested fix.
    pub help: Option<String>,
}

type Reader = fn(&str) -> Result<Comment, CommentError>;

/// The comments by name. A name must follow every name that it is a prefix of.
const COMMENTS: [(&str, Reader); 3] = [
    ("+kubebuilder:webhookconfiguration", configuration),
    ("+kubebuilder:webhook", webhook),
    ("+lockgate:conversion", conversion),
];

/// Parses a comment, starting at its `+`. `None` for any other comment.
///
/// # Errors
///
/// Fails if a known comment has a syntax error.
pub fn read(text: &str) -> Option<Result<Comment, CommentError>> {
    let text = text.trim_end();
    let mut known = COMMENTS.iter();
    let (rest, read) = known.find_map(|(name, read)| Some((text.strip_prefix(name)?, read)))?;
    let arguments = match rest.strip_prefix(':') {
        Some(arguments) => arguments,
        None if rest.is_empty() => "",
        None => return None,
    };
    let base = text.len() - arguments.len();
    Some(read(arguments).map_err(|mut error| {
        error.at += base;
        error
    }))
}

/// The type of an argument.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Text,
    Integer,
    Boolean,
    List,
}

/// An argument: its name, its type, and if it is optional.
type Known = (&'static str, Type, bool);

const WEBHOOK: &[Known] = &[
    ("admissionReviewVersions", Type::List, false),
    ("failurePolicy", Type::Text, false),
    ("groups", Type::List, false),
    ("matchPolicy", Type::Text, true),
    ("mutating", Type::Boolean, false),
    ("name", Type::Text, false),
    ("path", Type::Text, true),
    ("reinvocationPolicy", Type::Text, true),
    ("resources", Type::List, false),
    ("serviceName", Type::Text, true),
    ("serviceNamespace", Type::Text, true),
    ("servicePort", Type::Integer, true),
    ("sideEffects", Type::Text, true),
    ("timeoutSeconds", Type::Integer, true),
    ("url", Type::Text, true),
    ("verbs", Type::List, false),
    ("versions", Type::List, false),
    ("webhookVersions", Type::List, true),
];

const CONFIGURATION: &[Known] = &[
    ("mutating", Type::Boolean, false),
    ("name", Type::Text, true),
];

const CONVERSION: &[Known] = &[
    ("group", Type::Text, false),
    ("path", Type::Text, true),
    ("resource", Type::Text, false),
    ("reviewVersions", Type::List, true),
    ("serviceName", Type::Text, true),
    ("serviceNamespace", Type::Text, true),
    ("servicePort", Type::Integer, true),
    ("url", Type::Text, true),
];

fn conversion(text: &str) -> Result<Comment, CommentError> {
    let given = Scanner::new(text).arguments(CONVERSION)?;
    for name in ["group", "resource"] {
        let value = given.text(name).unwrap_or_default();
        if !check::is_subdomain(&value) || (name == "resource" && value.contains('.')) {
            return Err(given.wrong(name, format!("{name} cannot be `{value}`")));
        }
    }
    let review_versions = given.list("reviewVersions");
    let mut versions = review_versions.iter().flatten();
    if let Some(version) = versions.find(|version| !matches!(version.as_str(), "v1" | "v1beta1")) {
        let message = format!("reviewVersions is `v1` or `v1beta1`, not `{version}`");
        return Err(given.wrong("reviewVersions", message));
    }
    let (path, url) = (given.text("path"), given.text("url"));
    if let Some(path) = &path {
        check::path(path).map_err(|error| given.wrong("path", error.to_string()))?;
    }
    if let Some(url) = &url {
        check::url(url).map_err(|error| given.wrong("url", error.to_string()))?;
        if path.is_some() {
            return Err(given.wrong("url", String::from("`url` and `path` exclude each other")));
        }
    }
    Ok(Comment::Conversion(ConversionMarker {
        group: given.text("group"),
        resource: given.text("resource").unwrap_or_default(),
        path,
        url,
        service: given.service(),
        review_versions,
    }))
}

fn configuration(text: &str) -> Result<Comment, CommentError> {
    let given = Scanner::new(text).arguments(CONFIGURATION)?;
    Ok(Comment::Configuration {
        role: given.role(),
        name: given.text("name").unwrap_or_default(),
    })
}

fn webhook(text: &str) -> Result<Comment, CommentError> {
    let given = Scanner::new(text).arguments(WEBHOOK)?;
    let versions = given.list("webhookVersions").unwrap_or_default();
    if let Some(version) = versions.iter().find(|version| *version != "v1") {
        let message = format!("webhookVersions is `v1`, not `{version}`");
        return Err(given.wrong("webhookVersions", message));
    }
    let policy = |name: &str, known: &[&str]| {
        let Some(text) = given.text(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let word = canonical(&text, known).ok_or_else(|| {
            given.wrong(
                name,
                format!("{name} is {}, not `{text}`", list(known, "or")),
            )
        });
        word.map(Some)
    };
    let match_policy = policy("matchPolicy", &["Exact", "Equivalent"])?;
    let side_effects = policy("sideEffects", &["None", "NoneOnDryRun"])?;
    if side_effects.is_none() {
        let mut error = given.missing("sideEffects");
        error.help = Some(String::from("most webhooks have none: `sideEffects=None`"));
        return Err(error);
    }
    let reinvocation_policy = policy("reinvocationPolicy", &["Never", "IfNeeded"])?;
    let path = given.text("path").filter(|path| !path.is_empty());
    let url = given.text("url").filter(|url| !url.is_empty());
    match (&path, &url) {
        (Some(_), Some(_)) => {
            return Err(given.wrong("url", String::from("`url` and `path` exclude each other")));
        }
        (None, None) => return Err(given.missing("path` or `url")),
        _ => {}
    }
    if let Some(url) = &url {
        check::url(url).map_err(|error| given.wrong("url", error.to_string()))?;
    }
    // Zero means the default.
    let timeout_seconds = given
        .integer("timeoutSeconds")
        .filter(|seconds| *seconds != 0);
    if let Some(seconds) = timeout_seconds.filter(|seconds| !(1..=30).contains(seconds)) {
        let message = format!("timeoutSeconds is from 1 to 30, not `{seconds}`");
        return Err(given.wrong("timeoutSeconds", message));
    }
    let failure_policy = given.text("failurePolicy").map(|policy| {
        // Any other value is rejected by the rules of the API.
        canonical(&policy, &["Fail", "Ignore"]).unwrap_or(policy)
    });
    let verbs = given.list("verbs").unwrap_or_default().into_iter();
    let known = ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"];
    let verbs = verbs.map(|verb| canonical(&verb, &known).unwrap_or(verb));
    let groups = given.list("groups").map(|groups| {
        let named = groups.into_iter();
        let named = named.map(|group| {
            if group == "core" {
                String::new()
            } else {
                group
            }
        });
        named.collect()
    });
    let role = given.role();
    Ok(Comment::Webhook(Box::new(Marker {
        role,
        name: given.text("name").unwrap_or_default(),
        path,
        url,
        service: given.service(),
        groups,
        versions: given.list("versions"),
        resources: given.list("resources"),
        verbs: verbs.collect(),
        failure_policy,
        match_policy,
        side_effects,
        reinvocation_policy: reinvocation_policy.filter(|_| role == Role::Mutating),
        timeout_seconds,
        admission_review_versions: given.list("admissionReviewVersions"),
        ..Marker::default()
    })))
}

/// A parsed value.
#[derive(Debug)]
enum Value {
    Text(String),
    Integer(i32),
    Boolean(bool),
    List(Vec<String>),
}

/// The given arguments, each with its location.
struct Given(Vec<(&'static str, usize, Value)>);

impl Given {
    fn find(&self, name: &str) -> Option<&Value> {
        let mut given = self.0.iter();
        given
            .find(|(known, ..)| *known == name)
            .map(|(.., value)| value)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.find(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn integer(&self, name: &str) -> Option<i32> {
        match self.find(name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    fn list(&self, name: &str) -> Option<Vec<String>> {
        match self.find(name) {
            Some(Value::List(list)) => Some(list.clone()),
            _ => None,
        }
    }

    fn role(&self) -> Role {
        match self.find("mutating") {
            Some(Value::Boolean(true)) => Role::Mutating,
            _ => Role::Validating,
        }
    }

    fn service(&self) -> Service {
        let text = |name: &str| self.text(name).filter(|text| !text.is_empty());
        Service {
            name: text("serviceName"),
            namespace: text("serviceNamespace"),
            port: self.integer("servicePort"),
        }
    }

    fn wrong(&self, name: &str, message: String) -> CommentError {
        let place = self.0.iter().find(|(known, ..)| *known == name);
        CommentError {
            at: place.map_or(0, |(_, at, _)| *at),
            message,
            help: None,
        }
    }

    fn missing(&self, name: &str) -> CommentError {
        CommentError {
            at: 0,
            message: format!("argument `{name}` is missing"),
            help: None,
        }
    }
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next non-blank character.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    fn error(&self, message: impl Into<String>) -> CommentError {
        CommentError {
            at: self.at,
            message: message.into(),
            help: None,
        }
    }

    fn expect(&mut self, character: char, after: &str) -> Result<(), CommentError> {
        match self.peek() {
            Some(found) if found == character => {
                self.at += character.len_utf8();
                Ok(())
            }
            Some(found) => {
                Err(self.error(format!("`{character}` expected {after}, not `{found}`")))
            }
            None => Err(self.error(format!("`{character}` expected {after}"))),
        }
    }

    /// Parses all arguments. Unknown and missing ones are errors.
    fn arguments(mut self, known: &[Known]) -> Result<Given, CommentError> {
        let mut given = Given(Vec::new());
        while self.peek().is_some() {
            if !given.0.is_empty() {
                self.expect(',', "between arguments")?;
            }
            let (name, at, value) = self.argument(known)?;
            if given.find(name).is_some() {
                let message = format!("argument `{name}` is given twice");
                return Err(CommentError {
                    at,
                    message,
                    help: None,
                });
            }
            given.0.push((name, at, value));
        }
        let missing: Vec<&str> = known
            .iter()
            .filter(|(name, _, optional)| !optional && given.find(name).is_none())
            .map(|(name, ..)| *name)
            .collect();
        if missing.is_empty() {
            return Ok(given);
        }
        let (noun, verb) = if missing.len() == 1 {
            ("argument", "is")
        } else {
            ("arguments", "are")
        };
        let message = format!("{noun} {} {verb} missing", list(&missing, "and"));
        Err(CommentError {
            at: 0,
            message,
            help: None,
        })
    }

    fn argument(&mut self, known: &[Known]) -> Result<(&'static str, usize, Value), CommentError> {
        self.peek();
        let at = self.at;
        let name = self.word();
        if name.is_empty() {
            return Err(self.error("the name of an argument expected"));
        }
        let Some(&(name, written, _)) = known.iter().find(|(known, ..)| *known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
            let help = match nearest(name, &names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known are {}", list(&names, "and")),
            };
            return Err(CommentError {
                at,
                message: format!("unknown argument `{name}`"),
                help: Some(help),
            });
        };
        self.expect('=', &format!("after `{name}`"))?;
        let value = match written {
            Type::Text => Value::Text(self.string(name)?),
            Type::Integer => Value::Integer(self.integer(name)?),
            Type::Boolean => Value::Boolean(self.boolean(name)?),
            Type::List => Value::List(self.strings(name)?),
        };
        Ok((name, at, value))
    }

    /// Letters, digits and underscores.
    fn word(&mut self) -> &'t str {
        self.peek();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.at += word.len();
        word
    }

    fn boolean(&mut self, name: &str) -> Result<bool, CommentError> {
        let at = self.at;
        match self.word() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(CommentError {
                at,
                message: format!("{name} is `true` or `false`, not `{other}`"),
                help: None,
            }),
        }
    }

    fn integer(&mut self, name: &str) -> Result<i32, CommentError> {
        self.peek();
        let at = self.at;
        let sign = if self.rest().starts_with('-') {
            "-"
        } else {
            ""
        };
        self.at += sign.len();
        let digits = self.word();
        format!("{sign}{digits}").parse().map_err(|_| CommentError {
            at,
            message: format!("{name} is a number, not `{sign}{digits}`"),
            help: None,
        })
    }

    /// Parses `a;b;c` or `{a, b, c}`.
    fn strings(&mut self, name: &str) -> Result<Vec<String>, CommentError> {
        let mut strings = Vec::new();
        let is_delimited = self.peek() == Some('{');
        let separator = if is_delimited { ',' } else { ';' };
        if is_delimited {
            self.at += 1;
        }
        loop {
            match self.peek() {
                None | Some('}') => break,
                Some(',') if !is_delimited => break,
                Some(_) => strings.push(self.string(name)?),
            }
            match self.peek() {
                Some(found) if found == separator => self.at += 1,
                None | Some('}') => break,
                Some(',') if !is_delimited => break,
                Some(found) => {
                    let message = format!("`{separator}` expected in {name}, not `{found}`");
                    let mut error = self.error(message);
                    error.help = Some(String::from("put a value with such characters in quotes"));
                    return Err(error);
                }
            }
        }
        if is_delimited {
            self.expect('}', &format!("at the end of {name}"))?;
        }
        Ok(strings)
    }

    /// Parses a quoted string, or everything up to a value separator.
    fn string(&mut self, name: &str) -> Result<String, CommentError> {
        match self.peek() {
            Some('"') => self.quoted(name),
            Some('`') => {
                let rest = self.rest().get(1..).unwrap_or_default();
                let Some((text, _)) = rest.split_once('`') else {
                    return Err(self.error(format!("{name} lacks the closing quote")));
                };
                self.at += text.len() + 2;
                Ok(text.to_owned())
            }
            _ => {
                let rest = self.rest();
                let end = rest.find([',', ';', ':', '}']).unwrap_or(rest.len());
                let text = rest.get(..end).unwrap_or_default();
                if text.trim().is_empty() {
                    let mut error = self.error(format!("{name} has an empty value"));
                    error.help = Some(String::from("an empty text is written `\"\"`"));
                    return Err(error);
                }
                self.at += text.len();
                Ok(text.trim_end().to_owned())
            }
        }
    }

    /// Parses a string in double quotes, with Go's escapes.
    fn quoted(&mut self, name: &str) -> Result<String, CommentError> {
        let rest = self.rest();
        let (mut text, mut at) = (Vec::new(), 1);
        loop {
            let rest = rest.get(at..).unwrap_or_default();
            match rest.chars().next() {
                None => return Err(self.error(format!("{name} lacks the closing quote"))),
                Some('"') => break,
                Some('\\') => {
                    let escaped = unescape(rest);
                    let unknown =
                        || self.error(format!("{name} has an escape that Go does not know"));
                    let (bytes, length) = escaped.ok_or_else(unknown)?;
                    text.extend(bytes);
                    at += length;
                }
                Some(character) => {
                    text.extend(character.to_string().into_bytes());
                    at += character.len_utf8();
                }
            }
        }
        let text =
            String::from_utf8(text).map_err(|_| self.error(format!("{name} is not UTF-8")))?;
        self.at += at + 1;
        Ok(text)
    }
}

/// The bytes of an escape sequence, and its length.
fn unescape(text: &str) -> Option<(Vec<u8>, usize)> {
    let code = text.chars().nth(1)?;
    let plain = |byte: u8| Some((vec![byte], 2));
    let digits = |start: usize, length: usize, radix: u32| {
        let digits = text.get(start..start + length)?;
        let is_digit = |c: char| c.is_digit(radix);
        digits
            .chars()
            .all(is_digit)
            .then(|| u32::from_str_radix(digits, radix).ok())?
    };
    let character = |length: usize| {
        let character = char::from_u32(digits(2, length, 16)?)?;
        Some((character.to_string().into_bytes(), 2 + length))
    };
    match code {
        'a' => plain(0x07),
        'b' => plain(0x08),
        'f' => plain(0x0c),
        'n' => plain(b'\n'),
        'r' => plain(b'\r'),
        't' => plain(b'\t'),
        'v' => plain(0x0b),
        '\\' | '"' => plain(code as u8),
        'x' => Some((vec![u8::try_from(digits(2, 2, 16)?).ok()?], 4)),
        '0'..='7' => Some((vec![u8::try_from(digits(1, 3, 8)?).ok()?], 4)),
        'u' => character(4),
        'U' => character(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: &str = "mutating=true,failurePolicy=fail,groups=apps,resources=r,verbs=create,versions=v1,name=a.b.c,admissionReviewVersions=v1";

    fn webhook(arguments: &str) -> Result<Marker, String> {
        let text = format!("+kubebuilder:webhook:{arguments}");
        match read(&text).unwrap() {
            Ok(Comment::Webhook(marker)) => Ok(*marker),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn reads_every_argument_in_every_form() {
        let marker = webhook(
            "verbs=Create;UPDATE,path=\"/x\", serviceName = hooks ,serviceNamespace=infra,servicePort=8443,\
             mutating=true,failurePolicy=IGNORE,groups=\"\";core;`apps`,resources={pods, \"pods/status\",},\
             versions=v1 ; v2,name=a.b.c,admissionReviewVersions={v1},sideEffects=noneondryrun,\
             timeoutSeconds=30,matchPolicy=exact,reinvocationPolicy=ifneeded,webhookVersions=v1",
        )
        .unwrap();
        assert_eq!(marker.verbs, ["CREATE", "UPDATE"]);
        assert_eq!(marker.path.as_deref(), Some("/x"));
        assert_eq!(marker.service.name.as_deref(), Some("hooks"));
        assert_eq!(marker.service.namespace.as_deref(), Some("infra"));
        assert_eq!(marker.service.port, Some(8443));
        assert_eq!(marker.groups.unwrap(), ["", "", "apps"]);
        assert_eq!(marker.resources.unwrap(), ["pods", "pods/status"]);
        assert_eq!(marker.versions.unwrap(), ["v1", "v2"]);
        assert_eq!(marker.failure_policy.as_deref(), Some("Ignore"));
        assert_eq!(marker.side_effects.as_deref(), Some("NoneOnDryRun"));
        assert_eq!(marker.match_policy.as_deref(), Some("Exact"));
        assert_eq!(marker.reinvocation_policy.as_deref(), Some("IfNeeded"));
        assert_eq!(marker.timeout_seconds, Some(30));
    }

    #[test]
    fn reads_names_of_configurations_and_nothing_else() {
        let named = read("+kubebuilder:webhookconfiguration:mutating=true,name=mine").unwrap();
        let want = Comment::Configuration {
            role: Role::Mutating,
            name: String::from("mine"),
        };
        assert_eq!(named, Ok(want));
        for other in [
            "+kubebuilder:rbac:groups=x",
            "+kubebuilder:webhooks:x=1",
            "+optional",
            "text",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn reads_conversions() {
        let read = |arguments: &str| {
            let read = read(&format!("+lockgate:conversion:{arguments}")).unwrap();
            read.map_err(|error| error.message)
        };
        let Ok(Comment::Conversion(marker)) = read(
            "group=batch.example.com,resource=cronjobs,path=/convert,reviewVersions=v1;v1beta1,serviceName=hooks",
        ) else {
            panic!("no conversion")
        };
        assert_eq!(marker.group.as_deref(), Some("batch.example.com"));
        assert_eq!(marker.resource, "cronjobs");
        assert_eq!(marker.path.as_deref(), Some("/convert"));
        assert_eq!(marker.review_versions.unwrap(), ["v1", "v1beta1"]);
        assert_eq!(marker.service.name.as_deref(), Some("hooks"));
        for (arguments, want) in [
            ("group=a.b", "argument `resource` is missing"),
            ("group=A,resource=b", "group cannot be `A`"),
            ("group=a,resource=b.c", "resource cannot be `b.c`"),
            (
                "group=a,resource=b,reviewVersions=v2",
                "reviewVersions is `v1` or `v1beta1`, not `v2`",
            ),
            (
                "group=a,resource=b,path=x",
                "path `x` does not start with `/`",
            ),
            (
                "group=a,resource=b,path=/x,url=\"https://a.b/x\"",
                "`url` and `path` exclude each other",
            ),
        ] {
            assert_eq!(read(arguments).unwrap_err(), want, "{arguments}");
        }
    }

    #[test]
    fn knows_the_escapes_of_go() {
        for (text, want) in [
            (r#""a\n\t\\\"""#, "a\n\t\\\""),
            (r#""\x41\101\u00e9\U0001F600""#, "AAé😀"),
            ("`a\\n`", "a\\n"),
        ] {
            assert_eq!(
                Scanner::new(text).string("x"),
                Ok(want.to_owned()),
                "{text}"
            );
        }
        for text in [
            r#""\q""#,
            r#""\x4""#,
            r#""\uD800""#,
            r#""\xff""#,
            r#""a"#,
            "`a",
            r#""\"#,
            r#""\400""#,
        ] {
            assert!(Scanner::new(text).string("x").is_err(), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (arguments, want) in [
            (
                "",
                "arguments `admissionReviewVersions`, `failurePolicy`, `groups`, `mutating`, `name`, `resources`, `verbs` and `versions` are missing",
            ),
            (
                "mutating=maybe",
                "mutating is `true` or `false`, not `maybe`",
            ),
            ("servicePort=x", "servicePort is a number, not `x`"),
            ("faillurePolicy=fail", "unknown argument `faillurePolicy`"),
            ("name=a,name=b", "argument `name` is given twice"),
            ("name", "`=` expected after `name`"),
            ("name=", "name has an empty value"),
            ("name=a,", "the name of an argument expected"),
            ("name=\"a\"b", "`,` expected between arguments, not `b`"),
            ("groups=a:b", "`;` expected in groups, not `:`"),
            ("groups={a", "`}` expected at the end of groups"),
            ("groups={a;b}", "`,` expected in groups, not `;`"),
        ] {
            assert_eq!(webhook(arguments).unwrap_err(), want, "{arguments}");
        }
        for (arguments, want) in [
            ("path=/x", "argument `sideEffects` is missing"),
            (
                "path=/x,sideEffects=Some",
                "sideEffects is `None` or `NoneOnDryRun`, not `Some`",
            ),
            ("sideEffects=None", "argument `path` or `url` is missing"),
            (
                "sideEffects=None,path=/x,url=\"https://a/x\"",
                "`url` and `path` exclude each other",
            ),
            (
                "sideEffects=None,path=/x,timeoutSeconds=31",
                "timeoutSeconds is from 1 to 30, not `31`",
            ),
            (
                "sideEffects=None,path=/x,timeoutSeconds=-1",
                "timeoutSeconds is from 1 to 30, not `-1`",
            ),
            (
                "sideEffects=None,path=/x,matchPolicy=some",
                "matchPolicy is `Exact` or `Equivalent`, not `some`",
            ),
            (
                "sideEffects=None,path=/x,webhookVersions=v1beta1",
                "webhookVersions is `v1`, not `v1beta1`",
            ),
        ] {
            let arguments = format!("{REQUIRED},{arguments}");
            assert_eq!(webhook(&arguments).unwrap_err(), want, "{arguments}");
        }
    }

    #[test]
    fn says_where_it_is_wrong() {
        let error = read("+kubebuilder:webhook:name=a,nmae=b")
            .unwrap()
            .unwrap_err();
        assert_eq!(error.at, "+kubebuilder:webhook:name=a,".len());
        assert_eq!(error.help.as_deref(), Some("did you mean `name`?"));
    }
}
