//! The options of a write, from the query or from the body of a delete.
//!
//! UPSTREAM: apimachinery pkg/apis/meta/v1/validation/validation.go

use std::sync::OnceLock;

use lockgate_admission::object::Object;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_go::number::int;
use serde_json::{Map, Value};

use crate::error::{Outcome, bad_request, invalid};
use crate::http::negotiate::PatchType;
use crate::http::query::Query;

/// The group of options.
const GROUP: &str = "meta.k8s.io";
/// The maximum length of a field manager.
const MANAGER_MAX: usize = 128;

/// The treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of a write, for any verb.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WriteOptions {
    /// As sent: empty, or `All`.
    pub(crate) dry_run: Vec<String>,
    pub(crate) field_manager: String,
    /// As sent.
    field_validation: String,
    /// For server-side apply.
    pub(crate) force: Option<bool>,
    /// The default field manager: the client's program, from its user agent.
    default_manager: String,
}

impl WriteOptions {
    fn read(query: &Query) -> Self {
        Self {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            field_manager: query.text("fieldManager").to_owned(),
            field_validation: query.text("fieldValidation").to_owned(),
            force: query.flag("force"),
            default_manager: String::new(),
        }
    }

    /// The options of a write by the server itself.
    pub(crate) fn of_program(program: &str) -> Self {
        Self::default().by(program)
    }

    /// The options of a server-side apply with force.
    pub(crate) fn of_forced_apply(field_manager: &str) -> Self {
        Self {
            field_manager: field_manager.to_owned(),
            force: Some(true),
            ..Self::default()
        }
    }

    /// Sets the user agent, whose program is the default field manager.
    pub(crate) fn by(mut self, agent: &str) -> Self {
        let program = agent.split('/').next().unwrap_or_default();
        self.default_manager = program
            .chars()
            .filter(|letter| !letter.is_control())
            .take(MANAGER_MAX)
            .collect();
        self
    }

    /// The field manager of the write.
    pub(crate) fn manager(&self) -> &str {
        if self.field_manager.is_empty() {
            &self.default_manager
        } else {
            &self.field_manager
        }
    }

    /// The options of a create.
    pub(crate) fn of_create(query: &Query) -> Outcome<Self> {
        let options = Self::read(query);
        let errors = options.errors();
        options.check("CreateOptions", errors)
    }

    /// The options of an update.
    pub(crate) fn of_update(query: &Query) -> Outcome<Self> {
        let options = Self::read(query);
        let errors = options.errors();
        options.check("UpdateOptions", errors)
    }

    /// The options of a patch.
    pub(crate) fn of_patch(query: &Query, patch: PatchType) -> Outcome<Self> {
        let options = Self::read(query);
        let mut errors = FieldErrors::new();
        match patch {
            PatchType::Apply if options.field_manager.is_empty() => errors.push(
                FieldError::required(&Path::root("fieldManager"), "is required for apply patch"),
            ),
            PatchType::Apply => {}
            _ if options.force.is_some() => errors.push(FieldError::forbidden(
                &Path::root("force"),
                "may not be specified for non-apply patch",
            )),
            _ => {}
        }
        errors.extend(options.errors());
        options.check("PatchOptions", errors)
    }

    fn errors(&self) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let path = Path::root("fieldManager");
        if self.field_manager.len() > MANAGER_MAX {
            errors.push(FieldError::too_long(&path, MANAGER_MAX));
        }
        for (index, letter) in self
            .field_manager
            .char_indices()
            .filter(|(_, letter)| letter.is_control())
        {
            let detail = format!(
                "invalid character U+{:04X} (at position {index})",
                u32::from(letter)
            );
            errors.push(FieldError::invalid(
                &path,
                Shown::Text(&self.field_manager),
                detail,
            ));
        }
        errors.extend(dry_run_errors(&self.dry_run));
        if !matches!(
            self.field_validation.as_str(),
            "" | "Ignore" | "Warn" | "Strict"
        ) {
            let path = Path::root("fieldValidation");
            let shown = Shown::Text(&self.field_validation);
            errors.push(FieldError::not_supported(
                &path,
                shown,
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
        errors
    }

    fn check(self, kind: &str, errors: FieldErrors) -> Outcome<Self> {
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(invalid(kind, GROUP, "", &errors))
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The treatment of unknown and duplicate fields.
    pub(crate) fn field_validation(&self) -> FieldValidation {
        match self.field_validation.as_str() {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// The options for webhooks. Empty options are shared.
    pub(crate) fn to_object(&self, kind: &'static str) -> Object {
        static CREATE: OnceLock<Object> = OnceLock::new();
        static UPDATE: OnceLock<Object> = OnceLock::new();
        let is_default = self.dry_run.is_empty()
            && self.field_manager.is_empty()
            && self.field_validation.is_empty();
        let shared = match kind {
            "CreateOptions" if is_default => &CREATE,
            "UpdateOptions" if is_default => &UPDATE,
            _ => return Object::new(self.to_value(kind)),
        };
        shared.get_or_init(|| self.to_value(kind).into()).clone()
    }

    fn to_value(&self, kind: &str) -> Value {
        let mut members = typed(kind);
        if !self.dry_run.is_empty() {
            members.insert(String::from("dryRun"), self.dry_run.clone().into());
        }
        for (key, text) in [
            ("fieldManager", &self.field_manager),
            ("fieldValidation", &self.field_validation),
        ] {
            if !text.is_empty() {
                members.insert(key.to_owned(), text.clone().into());
            }
        }
        Value::Object(members)
    }
}

fn typed(kind: &str) -> Map<String, Value> {
    Map::from_iter([
        (String::from("apiVersion"), Value::from("meta.k8s.io/v1")),
        (String::from("kind"), Value::from(kind)),
    ])
}

fn dry_run_errors(values: &[String]) -> FieldErrors {
    if values.iter().all(|value| value == "All") {
        return FieldErrors::new();
    }
    vec![FieldError::not_supported(
        &Path::root("dryRun"),
        Shown::List(values),
        &["All"],
    )]
}

/// The preconditions of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// The options of a delete.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Option<Preconditions>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) dry_run: Vec<String>,
}

impl DeleteOptions {
    /// Parses the query of a delete without a body.
    pub(crate) fn from_query(query: &Query) -> Outcome<Self> {
        let grace_period_seconds = match query.first("gracePeriodSeconds") {
            None => None,
            Some(text) => Some(int(text).map_err(|error| bad_request(error.to_string()))?),
        };
        Self {
            grace_period_seconds,
            preconditions: None,
            orphan_dependents: query.flag("orphanDependents"),
            propagation_policy: query.first("propagationPolicy").map(str::to_owned),
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
        }
        .check()
    }

    /// Converts a decoded body.
    pub(crate) fn from_value(value: &Value) -> Outcome<Self> {
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let dry_run = value
            .get("dryRun")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Self {
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            preconditions: value
                .get("preconditions")
                .filter(|value| value.is_object())
                .map(|value| Preconditions {
                    uid: text(value, "uid"),
                    resource_version: text(value, "resourceVersion"),
                }),
            orphan_dependents: value.get("orphanDependents").and_then(Value::as_bool),
            propagation_policy: text(value, "propagationPolicy"),
            dry_run: dry_run
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect(),
        }
        .check()
    }

    fn check(self) -> Outcome<Self> {
        let mut errors = FieldErrors::new();
        let path = Path::root("propagationPolicy");
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(&path, Shown::Named(policy), detail));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(
                    &path,
                    Shown::Named(policy),
                    &supported,
                ));
            }
        }
        errors.extend(dry_run_errors(&self.dry_run));
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(invalid("DeleteOptions", GROUP, "", &errors))
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The options in the form for webhooks.
    pub(crate) fn to_value(&self) -> Value {
        let mut members = typed("DeleteOptions");
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(key.to_owned(), value);
            }
        };
        set(
            "gracePeriodSeconds",
            self.grace_period_seconds.map(Value::from),
        );
        set("orphanDependents", self.orphan_dependents.map(Value::from));
        set(
            "propagationPolicy",
            self.propagation_policy.clone().map(Value::from),
        );
        set(
            "dryRun",
            (!self.dry_run.is_empty()).then(|| self.dry_run.clone().into()),
        );
        let preconditions = self.preconditions.as_ref().map(|preconditions| {
            let pairs = [
                ("uid", &preconditions.uid),
                ("resourceVersion", &preconditions.resource_version),
            ];
            let members = pairs.into_iter().filter_map(|(key, value)| {
                value
                    .clone()
                    .map(|value| (key.to_owned(), Value::from(value)))
            });
            Value::Object(members.collect())
        });
        set("preconditions", preconditions);
        Value::Object(members)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_webhooks_what_was_told() {
        let options =
            WriteOptions::of_create(&Query::parse("fieldManager=me&dryRun=All&pretty=1")).unwrap();
        let shown = options.to_object("CreateOptions");
        assert_eq!(
            *shown.value(),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "dryRun": ["All"], "fieldManager": "me"})
        );
        for kind in ["CreateOptions", "UpdateOptions"] {
            let nothing = WriteOptions::default().to_object(kind);
            let want = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
            assert_eq!(*nothing.value(), want);
            assert!(nothing.same(&WriteOptions::default().to_object(kind)));
        }
        assert!(options.is_dry_run());
        assert_eq!(options.field_validation(), FieldValidation::Warn);
    }

    #[test]
    fn names_a_field_manager_after_the_program_of_a_client() {
        let options = WriteOptions::of_create(&Query::default()).unwrap();
        assert_eq!(options.by("kubectl/v1.36 (linux)").manager(), "kubectl");
        let options = WriteOptions::of_create(&Query::parse("fieldManager=me")).unwrap();
        assert_eq!(options.by("kubectl/v1.36").manager(), "me");
        let long = "x".repeat(200);
        assert_eq!(WriteOptions::of_program(&long).manager().len(), MANAGER_MAX);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for (query, want) in [
            (
                "dryRun=Some",
                r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
            ),
            (
                "fieldValidation=Maybe",
                r#"CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn""#,
            ),
        ] {
            let failure = WriteOptions::of_create(&Query::parse(query)).unwrap_err();
            assert_eq!((failure.0.code, failure.0.message.as_str()), (422, want));
        }
        let failure = WriteOptions::of_patch(&Query::default(), PatchType::Apply).unwrap_err();
        assert_eq!(
            failure.0.message,
            r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#
        );
    }

    #[test]
    fn reads_deletions_from_query_and_body() {
        let query = DeleteOptions::from_query(&Query::parse(
            "propagationPolicy=Orphan&gracePeriodSeconds=0",
        ))
        .unwrap();
        let body = DeleteOptions::from_value(
            &json!({"propagationPolicy": "Orphan", "gracePeriodSeconds": 0}),
        )
        .unwrap();
        assert_eq!(query, body);
        assert_eq!(
            body.to_value(),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan", "gracePeriodSeconds": 0})
        );
        let failure =
            DeleteOptions::from_query(&Query::parse("gracePeriodSeconds=soon")).unwrap_err();
        assert_eq!(
            failure.0.message,
            r#"strconv.ParseInt: parsing "soon": invalid syntax"#
        );
        let failure =
            DeleteOptions::from_query(&Query::parse("propagationPolicy=Never")).unwrap_err();
        assert_eq!(
            failure.0.message,
            r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Never": supported values: "Foreground", "Background", "Orphan", "nil""#
        );
    }
}
