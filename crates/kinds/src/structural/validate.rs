//! Validation of values against schemas.
//!
//! For a failed `anyOf` or `oneOf`, the errors of the best match are reported: the alternative with the most passed
//! checks. All checks are therefore counted exactly as upstream counts them.
//!
//! UPSTREAM: kube-openapi pkg/validation/validate, apiextensions-apiserver pkg/apiserver/validation

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use lockgate_api::field::{FieldError, FieldErrors};
use lockgate_go::quote::quote;

use super::correlation::Correlation;
use super::error::{self, MAX_ERRORS};
use super::format::Format;
use super::json::{Go, compact, equal, identity, shown};
use super::number;
use super::path::Path;
use super::schema::{Additional, Checks, Node, Type};

/// Validates a value, with errors below the path `base`.
pub(crate) fn validate(schema: &Node, value: &Json, base: Option<&str>) -> FieldErrors {
    let validator = Validator {
        loud: true,
        ratchet: None,
    };
    let report = validator.validate(schema, value, &Path::ROOT);
    into_errors(report, base)
}

/// Validates an updated value; errors in unchanged parts are ratcheted.
pub(crate) fn validate_update(
    schema: &Node,
    correlation: &Correlation<'_>,
    base: Option<&str>,
) -> FieldErrors {
    let report = Validator::ratcheting(schema, correlation, &Path::ROOT, true);
    into_errors(report, base)
}

/// A validation error.
#[derive(Debug)]
struct Failure {
    /// The path in the validator's format; `None` for errors of the whole object.
    name: Option<String>,
    kind: Problem,
    /// The message of upstream's validator.
    message: String,
}

#[derive(Debug)]
enum Problem {
    Type(String),
    Required,
    Enum(String, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Other(String),
}

/// The result of a check.
#[derive(Debug, Default)]
struct Report {
    failures: Vec<Failure>,
    /// True if there was an error, recorded or not.
    failed: bool,
    passed: u64,
}

impl Report {
    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed |= other.failed;
        let room = MAX_ERRORS.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.into_iter().take(room));
    }
}

fn into_errors(report: Report, base: Option<&str>) -> FieldErrors {
    let mut seen = HashSet::new();
    let mut errors = FieldErrors::with_capacity(report.failures.len());
    for failure in report.failures {
        if seen.insert(failure.message.clone()) {
            errors.push(failure.into_error(base));
        }
    }
    errors
}

impl Failure {
    fn into_error(self, base: Option<&str>) -> FieldError {
        let name = self.name.as_deref().unwrap_or_default();
        let name = name.strip_prefix('.').unwrap_or(name);
        let place = match (base, name) {
            (None, "") => "<nil>".to_owned(),
            (Some(base), "") => base.to_owned(),
            (None, name) => name.to_owned(),
            (Some(base), name) => format!("{base}.{name}"),
        };
        match self.kind {
            Problem::Type(found) => error::invalid_type(&place, &found, self.message),
            Problem::Required => error::required(&place, ""),
            Problem::Enum(found, allowed) => {
                let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                error::not_supported(&place, &found, &allowed)
            }
            Problem::TooLong(limit) => error::too_long(&place, limit),
            Problem::TooMany(count, limit) => error::too_many(&place, count, limit),
            Problem::Other(found) => error::invalid(&place, &found, self.message),
        }
    }
}

/// The enclosing value, and whether it is the root object.
#[derive(Debug, Clone, Copy)]
struct Ratchet<'c, 'a> {
    correlation: &'c Correlation<'a>,
    is_object: bool,
}

#[derive(Debug, Clone, Copy)]
struct Validator<'c, 'a> {
    /// True if errors are recorded; otherwise, only `failed` is set.
    loud: bool,
    ratchet: Option<Ratchet<'c, 'a>>,
}

/// The type of a value, as upstream's validator infers it.
fn type_name(value: Go<'_>) -> &'static str {
    match value {
        Go::Nil => "null",
        Go::Bool(_) => "boolean",
        Go::Int(_) => "integer",
        Go::Float(_) => "number",
        Go::Text(_) => "string",
        Go::List(_) => "array",
        Go::Map(_) => "object",
    }
}

impl Node {
    fn allows_type(&self, name: &str) -> bool {
        if self.either_type {
            matches!(name, "integer" | "string")
        } else {
            !name.is_empty() && self.kind.name() == name
        }
    }

    fn type_names(&self) -> &str {
        if self.either_type {
            "integer,string"
        } else {
            self.kind.name()
        }
    }

    fn has_type(&self) -> bool {
        self.either_type || self.kind != Type::Any
    }
}

impl Validator<'_, '_> {
    /// Validates a value with ratcheting.
    fn ratcheting(
        schema: &Node,
        correlation: &Correlation<'_>,
        path: &Path<'_>,
        loud: bool,
    ) -> Report {
        let ratchet = Ratchet {
            correlation,
            is_object: path.is_root(),
        };
        let validator = Validator {
            loud,
            ratchet: Some(ratchet),
        };
        let mut report = validator.validate(schema, correlation.new, path);
        if report.failed && correlation.is_unchanged() {
            report.failures.clear();
            report.failed = false;
        }
        report
    }

    fn fail(self, report: &mut Report, failure: impl FnOnce() -> Failure) {
        report.failed = true;
        if self.loud && report.failures.len() < MAX_ERRORS {
            report.failures.push(failure());
        }
    }

    /// Adds an error at a path.
    fn fail_at(
        self,
        report: &mut Report,
        path: &Path<'_>,
        detail: impl FnOnce() -> (Problem, String),
    ) {
        self.fail(report, || {
            let (kind, rest) = detail();
            let name = path.in_body();
            Failure {
                message: format!("{name} in body {rest}"),
                name: Some(name),
                kind,
            }
        });
    }

    /// Adds an error of the whole object.
    fn fail_object(self, report: &mut Report, message: impl FnOnce() -> String) {
        self.fail(report, || Failure {
            name: None,
            kind: Problem::Other("\"\"".to_owned()),
            message: message(),
        });
    }

    fn validate(self, schema: &Node, value: &Json, path: &Path<'_>) -> Report {
        let mut report = Report::default();
        let go = Go::from(value);
        let checks = schema.checks.as_deref();
        let format = checks.and_then(|checks| checks.format.as_ref());
        if go == Go::Nil {
            self.check_null(&mut report, schema, path);
            self.check_enum(&mut report, checks, value, path);
            return report;
        }
        if schema.has_type() || format.is_some() {
            self.check_type(&mut report, schema, format, go, path);
            report.passed += 1;
        }
        if let Some(checks) = checks {
            self.check_junctors(&mut report, checks, value, path);
        }
        report.passed += 2;
        match go {
            Go::Text(text) => {
                report.passed += 1;
                if let Some(checks) = checks {
                    self.check_text(&mut report, checks, text, path);
                }
                if let Some(format) = format.filter(|format| format.is_of_text()) {
                    report.passed += 1;
                    if !format.matches(text) {
                        self.fail_at(&mut report, path, || {
                            let rest =
                                format!("must be of type {}: {}", format.name(), quote(text));
                            (Problem::Type(text.to_owned()), rest)
                        });
                    }
                }
            }
            Go::Int(_) | Go::Float(_) => {
                report.passed += 2;
                if let Some(failures) = number::check(schema, checks, go, path) {
                    for failure in failures {
                        self.fail_number(&mut report, failure, path);
                    }
                }
            }
            Go::List(elements) => {
                report.passed += 2;
                self.check_list(&mut report, schema, elements, path);
            }
            Go::Nil | Go::Bool(_) | Go::Map(_) => {}
        }
        report.passed += 1;
        self.check_enum(&mut report, checks, value, path);
        if let Go::Map(entries) = go {
            report.passed += 1;
            self.check_map(&mut report, schema, entries, path);
        }
        report.passed += 1;
        report
    }

    fn check_null(self, report: &mut Report, schema: &Node, path: &Path<'_>) {
        if schema.has_type() && !schema.allows_type("null") && !schema.nullable {
            self.fail_type(report, schema.type_names(), "null", path);
        } else {
            report.passed += 1;
        }
    }

    fn fail_type(self, report: &mut Report, expected: &str, found: &str, path: &Path<'_>) {
        self.fail_at(report, path, || {
            let rest = format!("must be of type {expected}: {}", quote(found));
            (Problem::Type(found.to_owned()), rest)
        });
    }

    fn fail_number(self, report: &mut Report, failure: number::Failure, path: &Path<'_>) {
        match failure {
            number::Failure::OfObject(message) => self.fail_object(report, || message),
            number::Failure::At(found, rest) => {
                self.fail_at(report, path, || (Problem::Other(found), rest));
            }
            number::Failure::Whole(found, message) => self.fail(report, || Failure {
                name: Some(path.in_body()),
                kind: Problem::Other(found),
                message,
            }),
        }
    }

    /// UPSTREAM: kube-openapi pkg/validation/validate/type.go
    fn check_type(
        self,
        report: &mut Report,
        schema: &Node,
        format: Option<&Format>,
        value: Go<'_>,
        path: &Path<'_>,
    ) {
        let found = type_name(value);
        let found_format = match value {
            Go::Int(_) => "int64",
            Go::Float(_) => "float64",
            _ => "",
        };
        let is_whole = matches!(value, Go::Float(float) if number::is_whole(float));
        let fits = schema.allows_type(found)
            || is_whole && schema.allows_type("integer")
            || found == "integer" && schema.allows_type("number");
        let is_text_or_list = matches!(value, Go::Text(_) | Go::List(_));
        if let Some(format) = format {
            if !is_text_or_list && !fits && found_format != format.name() {
                return self.fail_type(report, format.name(), found_format, path);
            }
            // A list is accepted for a string with a format.
            let is_number = schema.allows_type("number") || schema.allows_type("integer");
            if is_text_or_list && !is_number {
                report.passed += 1;
                return;
            }
        }
        if fits {
            report.passed += 1;
        } else {
            self.fail_type(report, schema.type_names(), found, path);
        }
    }

    fn check_junctors(self, report: &mut Report, checks: &Checks, value: &Json, path: &Path<'_>) {
        // Upstream does not ratchet within these.
        let plain = self.plain();
        if !checks.any_of.is_empty() {
            plain.check_any_of(report, &checks.any_of, value, path);
        }
        if !checks.one_of.is_empty() {
            plain.check_one_of(report, &checks.one_of, value, path);
        }
        if !checks.all_of.is_empty() {
            plain.check_all_of(report, &checks.all_of, value, path);
        }
        if let Some(not) = &checks.not
            && !plain.quiet().validate(not, value, path).failed
        {
            self.fail_object(report, || {
                format!(
                    "{} must not validate the schema (not)",
                    quote(&path.in_body())
                )
            });
        }
    }

    /// This validator without ratcheting.
    fn plain(self) -> Self {
        Self {
            ratchet: None,
            ..self
        }
    }

    /// This validator without recording errors.
    fn quiet(self) -> Self {
        Self {
            loud: false,
            ..self
        }
    }

    fn check_any_of(self, report: &mut Report, schemas: &[Node], value: &Json, path: &Path<'_>) {
        let mut closest: Option<(u64, &Node)> = None;
        for schema in schemas {
            let found = self.quiet().validate(schema, value, path);
            if !found.failed {
                report.merge(found);
                return;
            }
            if closest.is_none_or(|(passed, _)| found.passed > passed) {
                closest = Some((found.passed, schema));
            }
        }
        self.fail_object(report, || {
            let name = quote(&path.in_body());
            format!("{name} must validate at least one schema (anyOf)")
        });
        self.merge_closest(report, closest, value, path);
    }

    fn check_one_of(self, report: &mut Report, schemas: &[Node], value: &Json, path: &Path<'_>) {
        let mut closest: Option<(u64, &Node)> = None;
        let mut valid = 0;
        let mut first = None;
        for schema in schemas {
            let found = self.quiet().validate(schema, value, path);
            if !found.failed {
                valid += 1;
                first.get_or_insert(found);
            } else if closest.is_none_or(|(passed, _)| found.passed > passed) {
                closest = Some((found.passed, schema));
            }
        }
        match first {
            Some(first) if valid == 1 => report.merge(first),
            _ => {
                self.fail_object(report, || {
                    let name = quote(&path.in_body());
                    let found = match valid {
                        0 => "Found none valid".to_owned(),
                        valid => format!("Found {valid} valid alternatives"),
                    };
                    format!("{name} must validate one and only one schema (oneOf). {found}")
                });
                if valid == 0 {
                    self.merge_closest(report, closest, value, path);
                }
            }
        }
    }

    /// Adds the errors of the best match.
    fn merge_closest(
        self,
        report: &mut Report,
        closest: Option<(u64, &Node)>,
        value: &Json,
        path: &Path<'_>,
    ) {
        match closest {
            Some((_, schema)) if self.loud => report.merge(self.validate(schema, value, path)),
            Some((passed, _)) => report.passed += passed,
            None => {}
        }
    }

    fn check_all_of(self, report: &mut Report, schemas: &[Node], value: &Json, path: &Path<'_>) {
        let mut valid = 0;
        for schema in schemas {
            let found = self.validate(schema, value, path);
            valid += usize::from(!found.failed);
            report.merge(found);
        }
        if valid != schemas.len() {
            self.fail_object(report, || {
                let name = quote(&path.in_body());
                let none = if valid == 0 { ". None validated" } else { "" };
                format!("{name} must validate all the schemas (allOf){none}")
            });
        }
    }

    fn check_text(self, report: &mut Report, checks: &Checks, text: &str, path: &Path<'_>) {
        let length = if checks.max_length.is_some() || checks.min_length.is_some() {
            i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
        } else {
            0
        };
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            let rest = || format!("should be at most {max} chars long");
            return self.fail_at(report, path, || (Problem::TooLong(max), rest()));
        }
        let other = || Problem::Other(quote(text));
        if let Some(min) = checks.min_length.filter(|min| length < *min) {
            let rest = || format!("should be at least {min} chars long");
            return self.fail_at(report, path, || (other(), rest()));
        }
        let Some(pattern) = &checks.pattern else {
            return;
        };
        let source = &pattern.source;
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => self.fail_at(report, path, || {
                (other(), format!("should match '{source}'"))
            }),
            Err(reason) => self.fail_at(report, path, || {
                let rest = format!("should match '{source}, but pattern is invalid: {reason}'");
                (other(), rest)
            }),
        }
    }

    fn check_enum(
        self,
        report: &mut Report,
        checks: Option<&Checks>,
        value: &Json,
        path: &Path<'_>,
    ) {
        let allowed = checks.map_or(&[][..], |checks| &checks.allowed);
        if allowed.is_empty() || allowed.iter().any(|allowed| is_allowed(value, allowed)) {
            return;
        }
        self.fail_at(report, path, || {
            let texts = allowed.iter().map(|allowed| match allowed {
                Json::String(text) => text.clone(),
                other => compact(other),
            });
            let texts: Vec<String> = texts.collect();
            // Only compared with other messages: the final error is formatted elsewhere.
            let rest = format!("should be one of [{}]", texts.join(" "));
            (Problem::Enum(shown(value), texts), rest)
        });
    }

    fn check_list(self, report: &mut Report, schema: &Node, elements: &[Json], path: &Path<'_>) {
        if let Some(items) = &schema.items {
            for (at, element) in elements.iter().enumerate() {
                let path = path.index(at);
                let correlation = self
                    .ratchet
                    .and_then(|ratchet| ratchet.correlation.index(at));
                report.merge(match correlation {
                    Some(correlation) => {
                        Validator::ratcheting(items, &correlation, &path, self.loud)
                    }
                    None => self.plain().validate(items, element, &path),
                });
            }
        }
        let Some(checks) = &schema.checks else {
            return;
        };
        let size = i64::try_from(elements.len()).unwrap_or(i64::MAX);
        if let Some(min) = checks.min_items.filter(|min| size < *min) {
            self.fail_at(report, path, || {
                let rest = format!("should have at least {min} items");
                (Problem::Other(size.to_string()), rest)
            });
        }
        if let Some(max) = checks.max_items.filter(|max| size > *max) {
            self.fail_at(report, path, || {
                let rest = format!("should have at most {max} items");
                (Problem::TooMany(elements.len(), max), rest)
            });
        }
        if checks.unique_items {
            let mut seen = HashSet::with_capacity(elements.len());
            if !elements
                .iter()
                .all(|element| seen.insert(identity(element)))
            {
                self.fail_at(report, path, || {
                    let rest = "shouldn't contain duplicates".to_owned();
                    (Problem::Other("\"\"".to_owned()), rest)
                });
            }
        }
    }

    fn check_map(
        self,
        report: &mut Report,
        schema: &Node,
        entries: &Map<String, Json>,
        path: &Path<'_>,
    ) {
        let size = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        let checks = schema.checks.as_deref();
        if let Some(min) = checks
            .and_then(|checks| checks.min_properties)
            .filter(|min| size < *min)
        {
            self.fail_at(report, path, || {
                let rest = format!("should have at least {min} properties");
                (Problem::Other(size.to_string()), rest)
            });
        }
        if let Some(max) = checks
            .and_then(|checks| checks.max_properties)
            .filter(|max| size > *max)
        {
            self.fail_at(report, path, || {
                let rest = format!("should have at most {max} properties");
                (Problem::TooMany(entries.len(), max), rest)
            });
        }
        let unknown = entries
            .iter()
            .filter(|(name, _)| !schema.properties.contains_key(name.as_str()));
        match &schema.additional {
            Additional::Bool(false) => {
                for (name, _) in unknown {
                    self.fail(report, || {
                        let place = path.in_body();
                        Failure {
                            message: format!("{place}.{name} in body is a forbidden property"),
                            name: Some(place),
                            kind: Problem::Other(quote(name)),
                        }
                    });
                }
            }
            Additional::Schema(entry) => {
                for (name, value) in unknown {
                    let path = path.key(name);
                    report.merge(self.check_member(entry, name, value, &path));
                }
            }
            Additional::Unsaid | Additional::Bool(true) => {}
        }
        for (name, property) in &schema.properties {
            if let Some(value) = entries.get(&**name) {
                let path = path.child(name);
                report.merge(self.check_member(property, name, value, &path));
            }
        }
        for name in checks.iter().flat_map(|checks| &checks.required) {
            if !entries.contains_key(name) {
                let path = path.key(name);
                let rest = || "is required".to_owned();
                self.fail_at(report, &path, || (Problem::Required, rest()));
            }
        }
    }

    fn check_member(self, schema: &Node, name: &str, value: &Json, path: &Path<'_>) -> Report {
        let Some(ratchet) = self.ratchet else {
            return self.validate(schema, value, path);
        };
        // Both objects are converted to the same version, so these fields cannot change.
        let is_type = ratchet.is_object && matches!(name, "apiVersion" | "kind");
        match ratchet.correlation.key(name).filter(|_| !is_type) {
            Some(correlation) => Validator::ratcheting(schema, &correlation, path, self.loud),
            None => self.plain().validate(schema, value, path),
        }
    }
}

/// Returns true if a value equals an enum value.
///
/// UPSTREAM: kube-openapi pkg/validation/validate/validator.go (basicCommonValidator) converts the
/// value to the Go type of the allowed one first, so `1.5` is `1` and `65` is `"A"`.
fn is_allowed(value: &Json, allowed: &Json) -> bool {
    match (Go::from(value), Go::from(allowed)) {
        (Go::Nil, _) | (_, Go::Nil) => false,
        (Go::Int(value), Go::Float(allowed)) => value as f64 == allowed,
        (Go::Float(value), Go::Int(allowed)) => number::truncate(value) == allowed,
        (Go::Int(value), Go::Text(allowed)) => {
            let c = u32::try_from(value).ok().and_then(char::from_u32);
            let mut text = [0; 4];
            c.unwrap_or(char::REPLACEMENT_CHARACTER)
                .encode_utf8(&mut text)
                == allowed
        }
        _ => equal(value, allowed),
    }
}
