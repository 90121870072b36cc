//! Checks sources: documents, then objects, then risk rules.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_api::decode::{DecodeError, StrictFinding, StrictProblem};
use lockgate_api::document::{Document, Span, SyntaxError, Value, json, yaml};
use lockgate_api::field::FieldErrors;
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::defaults::{DIFFERENCES, DefaultDifference};
use lockgate_api::registration::policy::{PolicyKind, Registered, decode_binding, decode_policy};
use lockgate_api::registration::strategy::{
    Request, deprecation_warning, errors_on_create, warn_of_static_name, warnings_on_create,
};
use lockgate_api::registration::validation::ExpressionChecker;
use lockgate_api::registration::validation::policies::{
    PolicyExpressions, validate_binding, validate_policy,
};
use lockgate_api::registration::{
    Configuration, ConfigurationKind, GROUP, Version, Webhook, codec,
};

use lockgate_kinds::resource;
use lockgate_lint::traffic::Exchange;
use lockgate_lint::{Fix, Set};

use super::edit::{self, Edit, ObjectFixes};
use super::finding::{Finding, Rule, Severity};
use super::locate::Locator;
use super::suggest::nearest;
use super::{LintedObject, Report};
use crate::text::Source;

/// The maximum nesting of lists.
const MAX_LIST_DEPTH: usize = 8;
/// The maximum number of reported decoding errors per object.
const MAX_DECODE_ERRORS: usize = 20;

/// The CEL environments for linting.
#[derive(Clone, Copy)]
pub struct Expressions<'e> {
    /// For match conditions of webhooks.
    pub conditions: &'e dyn ExpressionChecker,
    /// For expressions of policies.
    pub policies: &'e dyn PolicyExpressions,
    /// The version of Kubernetes whose kinds and expressions are accepted.
    pub version: KubeVersion,
}

impl std::fmt::Debug for Expressions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expressions").finish_non_exhaustive()
    }
}

/// The risk rules and their input.
#[derive(Debug, Default)]
pub struct Risks {
    /// The profile and the excluded rules.
    pub options: lockgate_lint::Options,
    /// Captured requests.
    pub traffic: Vec<Exchange>,
}

/// Checks every source as an API server would, and for risks if `risks` is set.
#[must_use]
pub fn check(sources: Vec<Source>, expressions: Expressions<'_>, risks: Option<&Risks>) -> Report {
    let parsed: Vec<Vec<Part>> = sources.iter().map(parse).collect();
    let mut report = Report::default();
    let mut checker = Checker {
        report: &mut report,
        source: 0,
        text: "",
        base: 0,
        document: 0,
        trail: Vec::new(),
        expressions,
        set: risks.map(|_| Set::default()),
        located: Vec::new(),
    };
    for (index, (source, parts)) in sources.iter().zip(&parsed).enumerate() {
        checker.source = index;
        checker.text = &source.text;
        checker.document = 0;
        for part in parts {
            checker.base = part.base;
            match &part.documents {
                Ok(documents) => {
                    for document in documents {
                        checker.document(document);
                        checker.document += 1;
                    }
                }
                Err(error) => checker.unreadable(error),
            }
        }
    }
    if let Some(risks) = risks {
        checker.risks(risks);
    }
    report.sources = sources;
    report
}

/// A separately parsed part of a source, so that a syntax error does not hide the other parts.
pub(super) struct Part {
    /// The offset of the part in the source.
    base: usize,
    pub(super) documents: Result<Vec<Document>, SyntaxError>,
}

pub(super) fn parse(source: &Source) -> Vec<Part> {
    let text = &source.text;
    let is_json_file = source.name.to_ascii_lowercase().ends_with(".json");
    if is_json_file || text.trim_start().starts_with('{') {
        let documents = json_stream(text.as_bytes());
        // Text that starts like JSON may be YAML in flow style.
        if documents.is_ok() || is_json_file {
            return vec![Part { base: 0, documents }];
        }
    }
    let parts = yaml::split(text).into_iter();
    parts
        .map(|part| Part {
            base: part.start,
            documents: yaml::parse_all(&text[part]),
        })
        .collect()
}

struct Checker<'c, 'd> {
    report: &'c mut Report,
    /// The current source.
    source: usize,
    text: &'d str,
    /// The offset of the current document in the source.
    base: usize,
    /// The number of the current document in the source.
    document: usize,
    /// The list indexes that lead to the current object.
    trail: Vec<usize>,
    expressions: Expressions<'c>,
    /// The set for the risk rules; `None` without them.
    set: Option<Set>,
    /// The positions of the objects of the set.
    located: Vec<Located<'d>>,
}

/// The position of an object of the set.
struct Located<'d> {
    locator: Locator<'d>,
    source: usize,
    base: usize,
    /// The text from the document on.
    text: &'d str,
    document: usize,
    trail: Vec<usize>,
    /// Its index in the report; `None` for other kinds.
    object: Option<usize>,
}

impl Located<'_> {
    /// The edits of fixes; empty if the layout has no place for them.
    fn fixes(&self, fixes: Vec<Fix>) -> Option<ObjectFixes> {
        let fixes = merged(fixes).into_iter().filter_map(|fix| {
            let mut edit = edit::edit(self.text, self.locator.root(), &fix)?;
            edit.range = edit.range.start + self.base..edit.range.end + self.base;
            Some((fix, edit))
        });
        let fixes: Vec<(Fix, Edit)> = fixes.collect();
        (!fixes.is_empty()).then(|| ObjectFixes {
            source: self.source,
            document: self.document,
            trail: self.trail.clone(),
            fixes,
        })
    }
}

/// The fixes, with all exclusions of a webhook merged into one.
fn merged(fixes: Vec<Fix>) -> Vec<Fix> {
    let mut sets: Vec<Fix> = Vec::new();
    let mut excluded: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut selectors: BTreeSet<usize> = BTreeSet::new();
    for fix in fixes {
        match &fix {
            Fix::Exclude {
                webhook,
                namespaces,
            } => excluded
                .entry(*webhook)
                .or_default()
                .extend(namespaces.iter().cloned()),
            Fix::Set { webhook, field, .. } => {
                if field.starts_with("namespaceSelector") {
                    selectors.insert(*webhook);
                }
                sets.push(fix);
            }
            _ => {}
        }
    }
    let exclusions = excluded
        .into_iter()
        .filter(|(webhook, _)| !selectors.contains(webhook))
        .map(|(webhook, namespaces)| Fix::Exclude {
            webhook,
            namespaces: namespaces.into_iter().collect(),
        });
    sets.extend(exclusions);
    sets
}

/// A checked kind.
#[derive(Clone, Copy)]
enum Known {
    Configuration(ConfigurationKind, Version),
    Policy(Registered),
}

impl Known {
    fn identify(api_version: &str, kind: &str) -> Option<Self> {
        let configuration = codec::identify(api_version, kind);
        let configuration = configuration.map(|(kind, version)| Self::Configuration(kind, version));
        configuration.or_else(|| Registered::identify(api_version, kind).map(Self::Policy))
    }
}

/// A value that may be an object, with the type inherited from its list.
struct Candidate<'d> {
    value: Value<'d>,
    inherited: Option<Known>,
    trail: Vec<usize>,
}

impl<'d> Checker<'_, 'd> {
    fn unreadable(&mut self, error: &SyntaxError) {
        let part = self.text.get(self.base..).unwrap_or_default();
        let help = part.contains("{{").then(|| {
            String::from(
                "this looks like a template: render it first: `helm template … | lockgate lint -f -`",
            )
        });
        self.find(
            Rule::Syntax,
            Severity::Error,
            error.message.clone(),
            String::new(),
            error.span,
            help,
        );
    }

    fn document(&mut self, document: &'d Document) {
        let mut work = vec![Candidate {
            value: document.root(),
            inherited: None,
            trail: Vec::new(),
        }];
        while let Some(candidate) = work.pop() {
            let first = work.len();
            self.candidate(candidate, &mut work);
            work[first..].reverse();
        }
    }

    /// Checks a configuration, or adds the items of a list to `work`.
    fn candidate(&mut self, candidate: Candidate<'d>, work: &mut Vec<Candidate<'d>>) {
        let Candidate {
            value,
            inherited,
            trail,
        } = candidate;
        self.trail = trail;
        if value.members().next().is_none() {
            return;
        }
        let text = |name: &str| {
            value
                .get(name)
                .and_then(|value| value.as_str())
                .unwrap_or_default()
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let own = Known::identify(api_version, kind);
        let untyped = api_version.is_empty() && kind.is_empty();
        match own.or_else(|| inherited.filter(|_| untyped)) {
            Some(Known::Configuration(kind, version)) => {
                return self.configuration(value, kind, version);
            }
            Some(Known::Policy(_)) if !self.is_served(api_version, kind) => {
                return self.unknown_version(value, api_version, kind);
            }
            Some(Known::Policy(what)) => return self.policy(value, what),
            None => {}
        }
        let list_of = kind
            .strip_suffix("List")
            .map(|kind| Known::identify(api_version, kind));
        if let Some(inherited) = list_of
            && (inherited.is_some() || api_version == "v1")
            && self.trail.len() < MAX_LIST_DEPTH
        {
            let items = value
                .get("items")
                .into_iter()
                .flat_map(|items| items.items());
            work.extend(items.enumerate().map(|(at, value)| Candidate {
                value,
                inherited,
                trail: self.trail.iter().copied().chain([at]).collect(),
            }));
            return;
        }
        let is_ours = ConfigurationKind::ALL
            .iter()
            .any(|known| known.name() == kind)
            || PolicyKind::ALL
                .iter()
                .any(|known| known.name() == kind || known.binding_name() == kind);
        if is_ours && api_version.starts_with(GROUP) {
            return self.unknown_version(value, api_version, kind);
        }
        self.report.ignored += 1;
        if let Some(set) = &mut self.set {
            set.add_manifest(value);
            self.locate(value, None);
        }
    }

    /// Returns false for a kind that the selected version does not have yet.
    fn is_served(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let row = resource::by_kind(group, version, kind);
        row.is_none_or(|row| resource::is_served(row, self.expressions.version))
    }

    /// Records the position of the object last added to the set.
    fn locate(&mut self, value: Value<'d>, object: Option<usize>) {
        self.located.push(Located {
            locator: Locator::new(value),
            source: self.source,
            base: self.base,
            text: self.text.get(self.base..).unwrap_or_default(),
            document: self.document,
            trail: self.trail.clone(),
            object,
        });
    }

    /// Adds the risks, except for objects that the API rejects.
    fn risks(&mut self, risks: &Risks) {
        let Some(mut set) = self.set.take() else {
            return;
        };
        for exchange in &risks.traffic {
            set.add_exchange(exchange.clone());
        }
        self.report.captured_calls = set.captured_calls();
        let mut fixes: BTreeMap<usize, Vec<Fix>> = BTreeMap::new();
        let mut rejected = vec![false; self.report.objects.len()];
        for finding in &self.report.findings {
            let object = finding.object.and_then(|object| rejected.get_mut(object));
            if let Some(rejected) = object {
                *rejected |= finding.severity == Severity::Error;
            }
        }
        for risk in lockgate_lint::check(&set, &risks.options) {
            let Some(place) = self.located.get(risk.object) else {
                continue;
            };
            let is_rejected = |object| rejected.get(object) == Some(&true);
            if place.object.is_some_and(is_rejected) {
                continue;
            }
            let fixable = risk.fix.is_some();
            if let Some(fix) = risk.fix {
                fixes.entry(risk.object).or_default().push(fix);
            }
            let message = match &risk.webhook {
                Some(name) => format!("`{name}`: {}", risk.message),
                None => risk.message,
            };
            self.report.findings.push(Finding {
                rule: Rule::Risk(risk.rule),
                severity: risk.severity,
                message,
                help: Some(risk.rule.advice.to_owned()),
                source: place.source,
                span: shifted(place.locator.locate(&risk.path, ""), place.base),
                path: risk.path,
                object: place.object,
                fixable,
            });
        }
        for (object, fixes) in fixes {
            let place = self.located.get(object);
            self.report
                .fixes
                .extend(place.and_then(|place| place.fixes(fixes)));
        }
    }

    fn unknown_version(&mut self, value: Value<'_>, api_version: &str, kind: &str) {
        let asked = self.expressions.version;
        let (message, help) = if Known::identify(api_version, kind).is_some() {
            let message =
                format!("kind `{kind}` of `{api_version}` is not served by Kubernetes {asked}");
            (message, None)
        } else {
            let message = format!("unknown kind `{kind}` in `{api_version}`");
            (message, Some(format!("use `{GROUP}/v1`")))
        };
        let span = value
            .get("apiVersion")
            .map_or_else(|| value.span(), |value| value.span());
        self.find(
            Rule::UnknownVersion,
            Severity::Error,
            message,
            String::from("apiVersion"),
            span,
            help,
        );
    }

    fn configuration(&mut self, value: Value<'d>, kind: ConfigurationKind, version: Version) {
        let mut object = LintedObject {
            source: self.source,
            api_version: version.api_version(),
            kind: kind.name(),
            name: written_name(value),
            default_differences: Vec::new(),
        };
        let decoded = codec::decode_without_defaults(value, kind, version);
        if let Ok(decoded) = &decoded {
            object.default_differences = default_differences(&decoded.value);
        }
        self.report.objects.push(object);
        let index = self.report.objects.len() - 1;
        let about = ObjectChecker {
            index,
            locator: Locator::new(value),
        };
        match decoded {
            Err(error) => self.undecodable(&about, error, &|value| {
                codec::decode_without_defaults(value, kind, version).map(|it| it.findings)
            }),
            Ok(decoded) => {
                for strict in &decoded.findings {
                    self.add(about.strict(strict));
                }
                if let Some(set) = &mut self.set {
                    set.add_configuration(decoded.value.clone(), version);
                    self.locate(value, Some(index));
                }
                self.rules(&about, decoded.value, version);
            }
        }
    }

    /// Finds the decoding errors of an object. An API server reports the first one; further ones are found by
    /// removing the value and decoding again.
    fn undecodable(
        &mut self,
        about: &ObjectChecker<'_>,
        mut error: DecodeError,
        decode: &dyn Fn(Value<'_>) -> Result<Vec<StrictFinding>, DecodeError>,
    ) {
        let whole = about.locator.root().span();
        let text = self.text.get(self.base..);
        let text = text.and_then(|text| text.get(..whole.end as usize));
        let mut text = text.unwrap_or_default().to_owned();
        for _ in 0..MAX_DECODE_ERRORS {
            let place = error.span;
            let help = self.quoting_help(&error);
            let mut finding =
                about.finding(Rule::Decode, Severity::Error, error.message, "", place);
            finding.help = help;
            self.add(finding);
            let Some(blanked) = without(&text, place) else {
                return;
            };
            text = blanked;
            let Ok(document) = yaml::parse(&text) else {
                return;
            };
            // A list item is not a document.
            if document.root().span().start != whole.start {
                return;
            }
            match decode(document.root()) {
                Err(next) if next.span == place => return,
                Err(next) => error = next,
                Ok(findings) => {
                    for strict in &findings {
                        self.add(about.strict(strict));
                    }
                    return;
                }
            }
        }
    }

    /// Checks a policy or a binding.
    fn policy(&mut self, value: Value<'d>, what: Registered) {
        self.report.objects.push(LintedObject {
            source: self.source,
            api_version: Version::V1.api_version(),
            kind: what.name(),
            name: written_name(value),
            default_differences: Vec::new(),
        });
        let about = ObjectChecker {
            index: self.report.objects.len() - 1,
            locator: Locator::new(value),
        };
        let checked = match what {
            Registered::Policy(kind) => decode_policy(value, kind).map(|mut decoded| {
                complete(&mut decoded.value.metadata);
                if let Some(set) = &mut self.set {
                    set.add_policy(decoded.value.clone());
                }
                let errors = validate_policy(&decoded.value, self.expressions.policies);
                (decoded.findings, errors, decoded.value.metadata.name)
            }),
            Registered::Binding(kind) => decode_binding(value, kind).map(|mut decoded| {
                complete(&mut decoded.value.metadata);
                if let Some(set) = &mut self.set {
                    set.add_binding(decoded.value.clone());
                }
                let errors = validate_binding(&decoded.value);
                (decoded.findings, errors, decoded.value.metadata.name)
            }),
        };
        match checked {
            Err(error) => self.undecodable(&about, error, &|value| match what {
                Registered::Policy(kind) => decode_policy(value, kind).map(|it| it.findings),
                Registered::Binding(kind) => decode_binding(value, kind).map(|it| it.findings),
            }),
            Ok((findings, errors, name)) => {
                if self.set.is_some() {
                    self.locate(value, Some(about.index));
                }
                for strict in &findings {
                    self.add(about.strict(strict));
                }
                self.invalid(&about, &errors);
                self.warn(&about, warn_of_static_name(&name));
            }
        }
    }

    fn invalid(&mut self, about: &ObjectChecker<'_>, errors: &FieldErrors) {
        for error in errors {
            let span = about.locator.locate(&error.field, error.formatted_value());
            let message = error.to_string();
            self.add(about.finding(
                Rule::Validation,
                Severity::Error,
                message,
                &error.field,
                span,
            ));
        }
    }

    fn warn(&mut self, about: &ObjectChecker<'_>, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            let span = about.locator.locate("metadata.name", "");
            let finding = about.finding(
                Rule::ApiWarning,
                Severity::Warning,
                warning,
                "metadata.name",
                span,
            );
            self.add(finding);
        }
    }

    /// Help for unquoted YAML scalars such as `n`, `on` and `1.0`, which are booleans or numbers, not strings.
    fn quoting_help(&self, error: &DecodeError) -> Option<String> {
        let document = self.text.get(self.base..)?;
        let written = document.get(error.span.range())?;
        let is_surprise = error.message.ends_with("of type string") && written.len() < 40;
        let what = match () {
            () if !is_surprise => return None,
            () if error.message.contains("unmarshal bool") => "boolean",
            () if error.message.contains("unmarshal number") => "number",
            () => return None,
        };
        Some(format!(
            "`{written}` is a {what} unless it is quoted: \"{written}\""
        ))
    }

    fn rules(
        &mut self,
        about: &ObjectChecker<'_>,
        mut configuration: Configuration,
        version: Version,
    ) {
        configuration.apply_defaults(version);
        complete(&mut configuration.metadata);
        let request = Request {
            version,
            expressions: self.expressions.conditions,
            static_manifests: false,
        };
        self.invalid(about, &errors_on_create(&configuration, &request));
        self.warn(
            about,
            warnings_on_create(&configuration.metadata.name, &request),
        );
        self.version(about, configuration.kind, version);
    }

    /// Findings about the API version: deprecation and different defaults.
    fn version(&mut self, about: &ObjectChecker<'_>, kind: ConfigurationKind, version: Version) {
        let span = about.locator.locate("apiVersion", "");
        if let Some(warning) = deprecation_warning(kind, version) {
            let rule = Rule::DeprecatedVersion;
            self.add(about.finding(rule, Severity::Warning, warning, "apiVersion", span));
        }
        let differences = &self.report.objects[about.index].default_differences;
        if version == Version::V1 || differences.is_empty() {
            return;
        }
        let message = format!(
            "defaults that differ from v1 apply: {}",
            describe_differences(differences).join(", ")
        );
        let mut finding = about.finding(
            Rule::VersionedDefault,
            Severity::Note,
            message,
            "apiVersion",
            span,
        );
        finding.help = Some(String::from(
            "set these fields explicitly before migrating to v1",
        ));
        self.add(finding);
    }

    fn find(
        &mut self,
        rule: Rule,
        severity: Severity,
        message: String,
        path: String,
        span: Span,
        help: Option<String>,
    ) {
        let source = self.source;
        self.add(Finding {
            rule,
            severity,
            message,
            help,
            path,
            source,
            span,
            object: None,
            fixable: false,
        });
    }

    /// Adds a finding, with its position relative to the source.
    fn add(&mut self, mut finding: Finding) {
        finding.source = self.source;
        finding.span = shifted(finding.span, self.base);
        self.report.findings.push(finding);
    }
}

fn shifted(span: Span, base: usize) -> Span {
    Span::new(span.start as usize + base, span.end as usize + base)
}

/// The current object.
struct ObjectChecker<'d> {
    index: usize,
    locator: Locator<'d>,
}

/// Sets the fields that the server sets before validation.
fn complete(meta: &mut ObjectMeta) {
    meta.namespace.clear();
    meta.generation = 1;
    if meta.name.is_empty() && !meta.generate_name.is_empty() {
        // Any suffix works: the server picks five such characters.
        meta.name = format!("{}xxxxx", meta.generate_name);
    }
}

impl ObjectChecker<'_> {
    fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        message: String,
        path: &str,
        span: Span,
    ) -> Finding {
        let path = path.to_owned();
        let object = Some(self.index);
        Finding {
            rule,
            severity,
            message,
            help: None,
            path,
            source: 0,
            span,
            object,
            fixable: false,
        }
    }

    fn strict(&self, strict: &StrictFinding) -> Finding {
        let rule = match strict.problem {
            StrictProblem::UnknownField => Rule::UnknownField,
            StrictProblem::DuplicateField => Rule::DuplicateField,
        };
        let message = strict.to_string();
        let mut finding = self.finding(rule, Severity::Error, message, &strict.path, strict.span);
        let name = strict.path.rsplit('.').next().unwrap_or_default();
        finding.help = nearest(name, strict.known.iter().map(|field| field.json))
            .map(|known| format!("did you mean `{known}`?"));
        finding
    }
}

/// The name in the document, for titles; decoding may fail later.
fn written_name(value: Value<'_>) -> String {
    let metadata = value.get("metadata");
    let text = |name: &str| {
        metadata
            .and_then(|meta| meta.get(name))
            .and_then(|value| value.as_str())
    };
    text("name")
        .or_else(|| text("generateName"))
        .unwrap_or_default()
        .to_owned()
}

/// The unset fields whose defaults depend on the API version.
fn default_differences(configuration: &Configuration) -> Vec<(usize, DefaultDifference)> {
    let mut found = Vec::new();
    for (index, webhook) in configuration.webhooks().iter().enumerate() {
        let absent = DIFFERENCES
            .into_iter()
            .filter(|difference| is_absent(webhook, difference.field));
        found.extend(absent.map(|difference| (index, difference)));
    }
    found
}

fn is_absent(webhook: &Webhook, field: &str) -> bool {
    match field {
        "failurePolicy" => webhook.failure_policy.is_none(),
        "matchPolicy" => webhook.match_policy.is_none(),
        "sideEffects" => webhook.side_effects.is_none(),
        "timeoutSeconds" => webhook.timeout_seconds.is_none(),
        "admissionReviewVersions" => webhook
            .admission_review_versions
            .as_ref()
            .is_none_or(Vec::is_empty),
        _ => false,
    }
}

/// One string per field: both defaults, and the affected webhooks.
#[must_use]
pub fn describe_differences(differences: &[(usize, DefaultDifference)]) -> Vec<String> {
    DIFFERENCES
        .into_iter()
        .filter_map(|difference| {
            let hooks: Vec<usize> = differences
                .iter()
                .filter(|(_, found)| *found == difference)
                .map(|(index, _)| *index)
                .collect();
            let DefaultDifference { field, v1, v1beta1 } = difference;
            let v1 = v1.unwrap_or("required");
            let place = match hooks[..] {
                [] => return None,
                [one] => format!("webhooks[{one}]"),
                [first, ..] => format!("webhooks[{first}] and {} more", hooks.len() - 1),
            };
            Some(format!("{field} of {place} (v1beta1: {v1beta1}, v1: {v1})"))
        })
        .collect()
}

/// Parses concatenated JSON texts.
fn json_stream(source: &[u8]) -> Result<Vec<Document>, SyntaxError> {
    let mut documents = Vec::new();
    let mut at = 0;
    loop {
        let rest = source.get(at..).unwrap_or_default();
        match rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
            Some(space) => at += space,
            None => return Ok(documents),
        }
        let (document, end) = json::parse_at(source, at)?;
        documents.push(document);
        at = end;
    }
}

/// The text with a value blanked out, which YAML reads as null. All other positions are unchanged.
fn without(text: &str, value: Span) -> Option<String> {
    let range = value.range();
    let (before, after) = (text.get(..range.start)?, text.get(range.end..)?);
    let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
    let blanks: String = text.get(range)?.bytes().map(blank).collect();
    Some(format!("{before}{blanks}{after}"))
}
