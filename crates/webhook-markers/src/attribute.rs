//! The attributes `#[webhook(…)]` and `#[conversion(…)]`: their arguments, the annotated items, and errors in both.

mod arguments;
mod conversion;
mod header;

use std::collections::HashMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};

use crate::words::{canonical, list, nearest};
use crate::{Alias, Marker, Role, Selector, check};
use arguments::{Argument, Item};

pub use conversion::read_conversion;
pub use header::{Header, HubHeader};

/// The arguments, by name.
pub const ARGUMENTS: &[&str] = &[
    "admission_review_versions",
    "alias",
    "failure_policy",
    "groups",
    "match_conditions",
    "match_policy",
    "mutating",
    "name",
    "namespace_selector",
    "object_selector",
    "path",
    "reinvocation_policy",
    "resources",
    "scope",
    "service_name",
    "service_namespace",
    "service_port",
    "side_effects",
    "timeout_seconds",
    "url",
    "verbs",
    "versions",
    "webhook_versions",
];

const VERBS: [&str; 4] = ["create", "update", "delete", "connect"];

/// The method of a validator for two verbs.
const BOTH: &str = "create_or_update";
const BOTH_VERBS: [&str; 2] = ["create", "update"];

/// The methods of a validator.
const METHODS: [&str; 5] = ["create", "update", BOTH, "delete", "connect"];

/// An error with its location.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The offending token.
    pub span: Span,
    /// The message.
    pub message: String,
    /// The suggested fix.
    pub help: Option<String>,
}

impl Problem {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: None,
        }
    }

    fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Parses the attribute of an `impl`. `at` is the location of the attribute.
///
/// # Errors
///
/// Returns all errors at once.
pub fn read(arguments: TokenStream, header: &Header, at: Span) -> Result<Marker, Vec<Problem>> {
    let mut reader = Reader {
        header,
        problems: Vec::new(),
        places: HashMap::new(),
        verbs: None,
        marker: Marker {
            role: header.role,
            ..Marker::default()
        },
    };
    match arguments::split(arguments) {
        Ok(arguments) => arguments
            .iter()
            .for_each(|argument| reader.argument(argument)),
        Err(problem) => reader.problems.push(problem),
    }
    reader.finish(at)
}

struct Reader<'h> {
    header: &'h Header,
    problems: Vec<Problem>,
    /// The location of each argument.
    places: HashMap<String, Span>,
    verbs: Option<Vec<Item>>,
    marker: Marker,
}

impl Reader<'_> {
    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn argument(&mut self, argument: &Argument) {
        let read = place_of(argument, ARGUMENTS, &mut self.places);
        let read = read.and_then(|name| self.value(&name, argument));
        if let Err(problem) = read {
            self.problem(problem);
        }
    }

    fn value(&mut self, name: &str, argument: &Argument) -> Result<(), Problem> {
        let marker = &mut self.marker;
        match name {
            "name" => {
                let item = argument.single()?;
                check::name(&item.text)
                    .map_err(|(message, help)| Problem::new(item.span, message).with_help(help))?;
                marker.name.clone_from(&item.text);
            }
            "path" => marker.path = Some(path(argument.single()?)?),
            "alias" => {
                for item in argument.list()? {
                    let alias = if item.is_word && item.text == "logical" {
                        Alias::Logical
                    } else {
                        Alias::Path(path(item)?)
                    };
                    marker.aliases.push(alias);
                }
            }
            "url" => {
                let item = argument.single()?;
                let path = check::url(&item.text);
                path.map_err(|error| Problem::new(item.span, error.to_string()))?;
                marker.url = Some(item.text.clone());
            }
            "service_name" => marker.service.name = Some(argument.single()?.text.clone()),
            "service_namespace" => marker.service.namespace = Some(argument.single()?.text.clone()),
            "service_port" => marker.service.port = Some(integer(argument, 1, 65_535)?),
            "timeout_seconds" => marker.timeout_seconds = Some(integer(argument, 1, 30)?),
            "groups" => {
                let groups = texts(argument)?.into_iter();
                // As in kubebuilder's comments, which users are familiar with.
                let named = groups.map(|group| {
                    if group == "core" {
                        String::new()
                    } else {
                        group
                    }
                });
                marker.groups = Some(named.collect());
            }
            "versions" => marker.versions = Some(texts(argument)?),
            "resources" => marker.resources = Some(texts(argument)?),
            "admission_review_versions" => {
                marker.admission_review_versions = Some(words(argument, &["v1", "v1beta1"])?);
            }
            "webhook_versions" => drop(words(argument, &["v1"])?),
            "verbs" => {
                let verbs = argument.list()?;
                words(argument, &["create", "update", "delete", "connect", "*"])?;
                self.verbs = Some(verbs.to_vec());
            }
            "scope" => marker.scope = Some(word(argument, &["Cluster", "Namespaced", "*"])?),
            "failure_policy" => marker.failure_policy = Some(word(argument, &["Fail", "Ignore"])?),
            "match_policy" => marker.match_policy = Some(word(argument, &["Exact", "Equivalent"])?),
            "side_effects" => {
                marker.side_effects = Some(word(argument, &["None", "NoneOnDryRun"])?);
            }
            "reinvocation_policy" => {
                if marker.role == Role::Validating {
                    let message = "reinvocation applies to a `Mutator` only";
                    return Err(Problem::new(argument.name.span(), message)
                        .with_help("leave out `reinvocation_policy`"));
                }
                marker.reinvocation_policy = Some(word(argument, &["Never", "IfNeeded"])?);
            }
            "mutating" => {
                let is_mutating = argument.flag()?;
                if is_mutating != (marker.role == Role::Mutating) {
                    let message = "the trait says whether a webhook is mutating: `Mutator` is, \
                                   `Validator` is not";
                    return Err(Problem::new(argument.name.span(), message)
                        .with_help("leave out `mutating`, or implement the other trait"));
                }
            }
            "namespace_selector" => marker.namespace_selector = Some(selector(argument)?),
            "object_selector" => marker.object_selector = Some(selector(argument)?),
            "match_conditions" => marker.match_conditions = conditions(argument)?,
            _ => {}
        }
        Ok(())
    }

    /// Checks the arguments against each other after all are parsed.
    fn finish(mut self, at: Span) -> Result<Marker, Vec<Problem>> {
        if !self.places.contains_key("name") {
            let problem = Problem::new(at, "argument `name` is missing");
            let help = "a name is a domain: `name = \"pods.policy.example.com\"`";
            self.problem(problem.with_help(help));
        }
        self.exclude("url", &["path"], "the path is that of the URL");
        let services = ["service_name", "service_namespace", "service_port"];
        self.exclude(
            "url",
            &services,
            "a webhook is at a URL or behind a service",
        );
        self.choose_verbs();
        if self.problems.is_empty() {
            return Ok(self.marker);
        }
        Err(self.problems)
    }

    fn exclude(&mut self, name: &str, others: &[&str], why: &str) {
        let excluded = excluded(&self.places, name, others, why);
        self.problems.extend(excluded);
    }

    fn choose_verbs(&mut self) {
        let chosen = match (self.header.role, self.verbs.take()) {
            (Role::Mutating, None) => vec!["create", "update"],
            (Role::Mutating, Some(verbs)) => self.verbs_of_mutator(&verbs),
            (Role::Validating, None) => {
                let is_written = |verb: &&str| is_answered(&self.header.methods, verb);
                let written: Vec<_> = VERBS.into_iter().filter(is_written).collect();
                if written.is_empty() {
                    let message = "this validator implements no method";
                    let help = format!("write {}", list(&METHODS, "or"));
                    self.problem(Problem::new(self.header.span, message).with_help(help));
                }
                written
            }
            (Role::Validating, Some(verbs)) => self.verbs_of_validator(&verbs),
        };
        self.marker.verbs = chosen.into_iter().map(str::to_uppercase).collect();
    }

    /// The verb of an item; unknown ones have been reported already.
    fn verb(item: &Item) -> Option<&'static str> {
        let known = VERBS.into_iter().chain(["*"]);
        known
            .into_iter()
            .find(|verb| item.text.eq_ignore_ascii_case(verb))
    }

    fn verbs_of_mutator(&mut self, verbs: &[Item]) -> Vec<&'static str> {
        for item in verbs {
            if let Some("delete" | "*") = Self::verb(item) {
                let message = "a deletion has no object to change: `mutate` would never be called";
                let help = "leave it to a `Validator`; `create` and `update` are the default here";
                self.problem(Problem::new(item.span, message).with_help(help));
            }
        }
        verbs.iter().filter_map(Self::verb).collect()
    }

    fn verbs_of_validator(&mut self, verbs: &[Item]) -> Vec<&'static str> {
        let given: Vec<_> = verbs.iter().filter_map(Self::verb).collect();
        let methods = &self.header.methods;
        let mut problems = Vec::new();
        for method in methods {
            let name = method.to_string();
            let answers: &[&str] = match name.as_str() {
                BOTH => &BOTH_VERBS,
                _ => &[name.as_str()],
            };
            let is_asked = given
                .iter()
                .any(|verb| *verb == "*" || answers.contains(verb));
            if METHODS.contains(&name.as_str()) && !is_asked {
                let missing = list(answers, "or");
                let message = format!("`{name}` is never called: `verbs` has no {missing}");
                let help = format!("add {missing} to `verbs`, or leave `verbs` out");
                problems.push(Problem::new(method.span(), message).with_help(help));
            }
        }
        for item in verbs {
            let wanted = match Self::verb(item) {
                None => continue,
                Some("*") => VERBS.to_vec(),
                Some(verb) => vec![verb],
            };
            let is_absent = |verb: &&str| !is_answered(methods, verb);
            let absent: Vec<_> = wanted.into_iter().filter(is_absent).collect();
            if !absent.is_empty() {
                let absent = list(&absent, "and");
                let message = format!("no method is written here for {absent}");
                let help = "a call that always allows costs each such request its time; write the method \
                            or leave out the verb";
                problems.push(Problem::new(item.span, message).with_help(help));
            }
        }
        self.problems.extend(problems);
        given
    }
}

/// Records the location of an argument and returns its name; an unknown or duplicate argument is an error.
fn place_of(
    argument: &Argument,
    known: &[&str],
    places: &mut HashMap<String, Span>,
) -> Result<String, Problem> {
    let name = argument.name.to_string();
    let place = argument.name.span();
    if !known.contains(&name.as_str()) {
        let problem = Problem::new(place, format!("unknown argument `{name}`"));
        let help = match nearest(&name, known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known are {}", list(known, "and")),
        };
        return Err(problem.with_help(help));
    }
    if places.insert(name.clone(), place).is_some() {
        let message = format!("argument `{name}` is given twice");
        return Err(Problem::new(place, message));
    }
    Ok(name)
}

/// The arguments that are excluded by another one.
fn excluded(
    places: &HashMap<String, Span>,
    name: &str,
    others: &[&str],
    why: &str,
) -> Vec<Problem> {
    let given = others.iter().filter(|_| places.contains_key(name));
    given
        .filter_map(|other| {
            let message = format!("`{other}` and `{name}` exclude each other: {why}");
            Some(Problem::new(*places.get(*other)?, message))
        })
        .collect()
}

/// Returns true if a validator with these methods handles a verb.
fn is_answered(methods: &[Ident], verb: &str) -> bool {
    methods
        .iter()
        .any(|method| method == verb || (method == BOTH && BOTH_VERBS.contains(&verb)))
}

fn path(item: &Item) -> Result<String, Problem> {
    check::path(&item.text).map_err(|error| {
        Problem::new(item.span, error.to_string()).with_help("a path looks like `/validate-pods`")
    })?;
    Ok(item.text.clone())
}

fn integer(argument: &Argument, least: i32, most: i32) -> Result<i32, Problem> {
    let item = argument.single()?;
    let number = item.text.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            let (name, text) = (&argument.name, &item.text);
            let message = format!("`{name}` is a number from {least} to {most}, not `{text}`");
            Problem::new(item.span, message)
        })
}

/// Parses a list without duplicates.
fn texts(argument: &Argument) -> Result<Vec<String>, Problem> {
    let mut texts = Vec::new();
    for item in argument.list()? {
        if texts.contains(&item.text) {
            let message = format!("`{}` is duplicated in `{}`", item.text, argument.name);
            return Err(Problem::new(item.span, message));
        }
        texts.push(item.text.clone());
    }
    if texts.is_empty() {
        let message = format!("`{}` is empty", argument.name);
        return Err(Problem::new(argument.name.span(), message));
    }
    Ok(texts)
}

fn words(argument: &Argument, known: &[&str]) -> Result<Vec<String>, Problem> {
    texts(argument)?;
    let items = argument.list()?.iter();
    items
        .map(|item| known_word(argument, item, known))
        .collect()
}

fn word(argument: &Argument, known: &[&str]) -> Result<String, Problem> {
    known_word(argument, argument.single()?, known)
}

fn known_word(argument: &Argument, item: &Item, known: &[&str]) -> Result<String, Problem> {
    canonical(&item.text, known).ok_or_else(|| {
        let known = list(known, "or");
        let message = format!("`{}` is {known}, not `{}`", argument.name, item.text);
        Problem::new(item.span, message)
    })
}

fn selector(argument: &Argument) -> Result<Selector, Problem> {
    let item = argument.single()?;
    Selector::parse(&item.text).map_err(|message| {
        let message = format!("`{}` cannot be read: {message}", argument.name);
        let help = "write it as kubectl does: `\"team=red, env in (prod, staging), !legacy\"`";
        Problem::new(item.span, message).with_help(help)
    })
}

fn conditions(argument: &Argument) -> Result<Vec<(String, String)>, Problem> {
    let mut conditions: Vec<(String, String)> = Vec::new();
    for (key, value) in argument.pairs()? {
        if conditions.iter().any(|(known, _)| *known == key.text) {
            let message = format!("match condition `{}` is given twice", key.text);
            return Err(Problem::new(key.span, message));
        }
        if value.is_word || value.text.trim().is_empty() {
            let message = format!(
                "match condition `{}` needs a CEL expression as text",
                key.text
            );
            return Err(Problem::new(value.span, message));
        }
        conditions.push((key.text.clone(), value.text.clone()));
    }
    if conditions.is_empty() {
        let message = "`match_conditions` is empty";
        return Err(Problem::new(argument.name.span(), message));
    }
    Ok(conditions)
}

/// The tokens without the invisible groups that macros put around fragments.
fn visible(tokens: TokenStream) -> Vec<TokenTree> {
    let mut seen = Vec::new();
    let mut rest: Vec<_> = tokens.into_iter().collect();
    rest.reverse();
    while let Some(token) = rest.pop() {
        match token {
            TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::None => {
                let inside: Vec<_> = group.stream().into_iter().collect();
                rest.extend(inside.into_iter().rev());
            }
            other => seen.push(other),
        }
    }
    seen
}

#[cfg(test)]
mod tests;
