//! FlowSchemas and PriorityLevelConfigurations.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_label, copy_field};
use crate::equality::semantically_equal;
use crate::flow_control::{EXEMPT, mandatory_levels, mandatory_schemas};
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, ServerComponent, Written, cluster, sub};
use crate::object::{Object, at_mut, fill, fill_number, get_mut, open, with};
use crate::typed::{internal_form, member_type};
use lockgate_api::field::{FieldError, FieldErrors, Shown};
use lockgate_api::meta::names::check_subdomain;
use lockgate_go::json::to_string;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const FLOW_SCHEMAS: Resource = cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "flowschemas",
    "flowschema",
    "FlowSchema",
    "FlowSchemaList",
    &FlowSchema,
)
.subresources(&[sub(
    "status",
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "FlowSchema",
    CHANGE,
)])
.generation(SPEC);

pub(super) const PRIORITY_LEVEL_CONFIGURATIONS: Resource = cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "prioritylevelconfigurations",
    "prioritylevelconfiguration",
    "PriorityLevelConfiguration",
    "PriorityLevelConfigurationList",
    &PriorityLevelConfiguration,
)
.subresources(&[sub(
    "status",
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    CHANGE,
)])
.generation(SPEC);

/// The kind `FlowSchema`.
#[derive(Debug)]
pub(super) struct FlowSchema;

impl Kind for FlowSchema {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            _ => &[&["metadata"], &["spec"]],
        }
    }

    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::FlowSchemas)
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        _old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            errors.extend(self.validate_create(new, context));
        } else {
            conditions(&mut errors, new.object());
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        flow_schema(errors, new);
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, schema_defaults);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |object| keep_metadata(object, old));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        schema_row(object, common)
    }

    fn sort_key(&self, object: &Value) -> Option<(i64, String)> {
        // Sorts tables by matching precedence.
        let precedence = read::integer(object, "/spec/matchingPrecedence");
        Some((precedence, read::text(object, "/metadata/name").to_owned()))
    }
}

/// The kind `PriorityLevelConfiguration`.
#[derive(Debug)]
pub(super) struct PriorityLevelConfiguration;

impl Kind for PriorityLevelConfiguration {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            _ => &[&["metadata"], &["spec"]],
        }
    }

    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::PriorityLevels)
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        _old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            errors.extend(self.validate_create(new, context));
        } else {
            conditions(&mut errors, new.object());
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        priority_level(errors, new);
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, level_defaults);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |object| keep_metadata(object, old));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        level_row(object, common)
    }
}

fn schema_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill_number(spec, "matchingPrecedence", 1000);
    }
}

fn level_defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if let Some(exempt) = get_mut(spec, "exempt") {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = get_mut(spec, "limited") {
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(queuing) = at_mut(limited, &["limitResponse", "queuing"]) {
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    }
}

/// A status update does not change metadata except managed fields.
fn keep_metadata(object: &mut Object, old: &Object) {
    let managed = at_mut(object, &["metadata"]).and_then(|meta| meta.remove("managedFields"));
    copy_field(object, old, "metadata");
    if let (Some(managed), Some(metadata)) = (managed, open(object, "metadata")) {
        metadata.insert("managedFields".to_owned(), managed);
    }
}

fn schema_row(object: &Value, common: &Common<'_>) -> Row {
    let method = match object.pointer("/spec/distinguisherMethod") {
        Some(method) if method.is_object() => read::text(method, "/type"),
        _ => "<none>",
    };
    let dangling = read::condition(object, "Dangling");
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/priorityLevelConfiguration/name")),
        cell(read::integer(object, "/spec/matchingPrecedence")),
        cell(method),
        cell(common.age.as_str()),
        cell(dangling.map_or("?", |condition| read::text(condition, "/status"))),
    ])
}

fn level_row(object: &Value, common: &Common<'_>) -> Row {
    let limited = object
        .pointer("/spec/limited")
        .filter(|limited| limited.is_object());
    let queuing = limited
        .and_then(|limited| limited.pointer("/limitResponse/queuing"))
        .filter(|queuing| queuing.is_object());
    let amount = |holder: Option<&Value>, pointer: &str| match holder {
        Some(holder) => cell(read::integer(holder, pointer)),
        None => cell("<none>"),
    };
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/type")),
        amount(limited, "/nominalConcurrencyShares"),
        amount(queuing, "/queues"),
        amount(queuing, "/handSize"),
        amount(queuing, "/queueLengthLimit"),
        cell(common.age.as_str()),
    ])
}

/// Validates that condition types are unique.
fn conditions(errors: &mut FieldErrors, object: &Object) {
    let status = At::root(object, "status");
    let mut seen = BTreeSet::new();
    for condition in status.at("conditions").items() {
        let kind = condition.at("type");
        if !seen.insert(kind.text()) {
            kind.duplicate(errors);
        }
        kind.must_be_set(errors);
    }
}

/// UPSTREAM: pkg/apis/flowcontrol/validation/validation.go (ValidateFlowSchema)
fn flow_schema(errors: &mut FieldErrors, new: &Written<'_>) {
    const HIGHEST: i64 = 10_000;
    let at = At::root(new.object(), "spec");
    let precedence = at.at("matchingPrecedence");
    if precedence.int() <= 0 {
        precedence.invalid_int(errors, "must be a positive value");
    }
    if precedence.int() > HIGHEST {
        precedence.invalid_int(errors, format!("must not be greater than {HIGHEST}"));
    }
    if precedence.int() == 1 && new.metadata.name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        precedence.invalid_int(errors, detail);
    }
    let method = at.at("distinguisherMethod");
    let kind = method.at("type");
    if method.is_set() && !matches!(kind.text(), "ByNamespace" | "ByUser") {
        let shown = format!("{{\"Type\":{}}}", Shown::Named(kind.text()));
        errors.push(FieldError::not_supported(
            &kind.path,
            Shown::Rendered(&shown),
            &["ByNamespace", "ByUser"],
        ));
    }
    let level = at.at("priorityLevelConfiguration");
    if level.at("name").is_empty() {
        let detail = "must reference a priority level";
        level.at("name").required_because(errors, detail);
    } else {
        level.at("name").check(errors, check_subdomain);
    }
    for rule in at.at("rules").items() {
        flow_rule(errors, &rule);
    }
    validate_mandatory(errors, new, "FlowSchema");
    conditions(errors, new.object());
}

/// The required spec of a mandatory object. The level `exempt` is mostly mutable.
fn fixed_spec(kind: &str, name: &str) -> Option<Value> {
    let mandatory = match (kind, name) {
        ("PriorityLevelConfiguration", EXEMPT) => return None,
        ("PriorityLevelConfiguration", _) => mandatory_levels(),
        _ => mandatory_schemas(),
    };
    let mut mandatory = mandatory.into_iter();
    let mut found = mandatory.find(|object| object["metadata"]["name"] == name)?;
    Some(found["spec"].take())
}

/// Mandatory objects are immutable.
fn validate_mandatory(errors: &mut FieldErrors, new: &Written<'_>, kind: &str) {
    let name = new.metadata.name.as_str();
    let Some(fixed) = fixed_spec(kind, name) else {
        return;
    };
    let at = At::root(new.object(), "spec");
    let value = at.value.cloned().unwrap_or_default();
    let ty = member_type("flowcontrol.apiserver.k8s.io", kind, &["spec"]);
    if let Some(ty) = ty
        && !semantically_equal(ty, &value, &fixed)
    {
        let shown = internal_form(ty, at.value);
        let detail = format!("spec of '{name}' must equal the fixed value");
        at.invalid_as(errors, Shown::Rendered(&shown), detail);
    }
}

fn flow_rule(errors: &mut FieldErrors, rule: &At<'_, '_>) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        subjects.required_because(errors, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        flow_subject(errors, &subject);
    }
    let (resources, others) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        rule.required_because(errors, detail);
    }
    for resource in resources.items() {
        verbs(errors, &resource.at("verbs"));
        for (key, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            let all = resource.at(key);
            if all.is_empty() {
                let detail = format!("resource rules must supply at least one {what}");
                all.required_because(errors, detail);
            } else if all.len() > 1 && all.texts().any(|one| one == "*") {
                let detail = format!("if '*' is present, must not specify other {what}s");
                all.invalid(errors, detail);
            }
        }
        let namespaces = resource.at("namespaces");
        if namespaces.is_empty() && !resource.at("clusterScope").flag() {
            let detail =
                "resource rules that are not cluster scoped must supply at least one namespace";
            namespaces.required_because(errors, detail);
        } else if namespaces.texts().any(|one| one == "*") {
            if namespaces.len() > 1 {
                let detail = "if '*' is present, must not specify other namespaces";
                namespaces.invalid(errors, detail);
            }
        } else {
            for namespace in namespaces.items() {
                for message in check_label(namespace.text()) {
                    let detail = format!(
                        "each member of this list must be '*' or a DNS-1123 label; {message}"
                    );
                    namespace.invalid(errors, detail);
                }
            }
        }
    }
    for other in others.items() {
        verbs(errors, &other.at("verbs"));
        let urls = other.at("nonResourceURLs");
        if urls.is_empty() {
            urls.required_because(errors, "nonResourceURLs must contain at least one value");
        } else if urls.texts().any(|one| one == "*") {
            if urls.len() > 1 {
                let detail = "if '*' is present, must not specify other non-resource URLs";
                urls.invalid(errors, detail);
            }
        } else {
            for url in urls.items() {
                non_resource_url(errors, &url);
            }
        }
    }
}

fn verbs(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const VERBS: [&str; 9] = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "proxy",
        "update",
        "watch",
    ];
    if at.is_empty() {
        at.required_because(errors, "verbs must contain at least one value");
    } else if at.texts().any(|verb| verb == "*") {
        if at.len() > 1 {
            at.invalid(errors, "if '*' is present, must not specify other verbs");
        }
    } else if !at.texts().all(|verb| VERBS.contains(&verb)) {
        let shown = at.value.map_or_else(|| String::from("null"), to_string);
        errors.push(FieldError::not_supported(
            &at.path,
            Shown::Rendered(&shown),
            &VERBS,
        ));
    }
}

fn non_resource_url(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let path = at.text();
    let wildcards = path.matches('*').count();
    let detail = if path.is_empty() {
        "must not be empty"
    } else if path == "/" {
        return;
    } else if !path.starts_with('/') {
        "must start with slash"
    } else if path.contains(' ') {
        "must not contain white-space"
    } else if path.contains("//") {
        "must not contain double slash"
    } else if wildcards > 1 || (wildcards == 1 && !path.ends_with("/*")) {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    at.invalid(errors, detail);
}

fn flow_subject(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const KINDS: [(&str, &str); 3] = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = at.at("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        return kind.not_supported(errors, &["Group", "ServiceAccount", "User"]);
    };
    let subject = at.at(own);
    if subject.is_set() {
        let name = subject.at("name");
        name.must_be_set(errors);
        if *own == "serviceAccount" {
            if !matches!(name.text(), "" | "*") {
                name.check(errors, check_subdomain);
            }
            let namespace = subject.at("namespace");
            if namespace.is_empty() {
                let detail = "must specify namespace for service account";
                namespace.required_because(errors, detail);
            } else {
                namespace.check(errors, check_label);
            }
        }
    } else {
        let detail = format!("{own} is required when subject kind is '{}'", kind.text());
        subject.required_because(errors, detail);
    }
    let others: &[&str] = match kind.text() {
        "ServiceAccount" => &["user", "group"],
        "User" => &["serviceAccount", "group"],
        _ => &["serviceAccount", "user"],
    };
    for key in others {
        if at.at(key).is_set() {
            let name = KINDS
                .iter()
                .find(|(_, own)| own == key)
                .map_or("", |(name, _)| name);
            let detail = format!("{key} is forbidden when subject kind is not '{name}'");
            at.at(key).forbidden(errors, detail);
        }
    }
}

/// UPSTREAM: pkg/apis/flowcontrol/validation/validation.go (ValidatePriorityLevelConfiguration)
fn priority_level(errors: &mut FieldErrors, new: &Written<'_>) {
    const PRESERVE: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let metadata = At::root(new.object(), "metadata");
    let annotations = metadata.at("annotations");
    if annotations.entry(PRESERVE).is_set() {
        annotations.forbidden(errors, format!("annotation '{PRESERVE}' is forbidden"));
    }
    let at = At::root(new.object(), "spec");
    let kind = at.at("type");
    if (new.metadata.name == "exempt") != (kind.text() == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        kind.invalid(errors, detail);
    }
    let (limited, exempt) = (at.at("limited"), at.at("exempt"));
    match kind.text() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden(errors, "must be nil if the type is not Limited");
            }
            if exempt.is_set() {
                shares(errors, &exempt);
                percent(errors, &exempt.at("lendablePercent"));
            }
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden(errors, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                shares(errors, &limited);
                limit_response(errors, &limited.at("limitResponse"));
                percent(errors, &limited.at("lendablePercent"));
                let borrowing = limited.at("borrowingLimitPercent");
                if borrowing.int() < 0 {
                    let detail = "if specified, must be a non-negative integer";
                    borrowing.invalid_int(errors, detail);
                }
            } else {
                limited.required_because(errors, "must not be empty when type is Limited");
            }
        }
        _ => kind.one_of(errors, &["Exempt", "Limited"]),
    }
    validate_mandatory(errors, new, "PriorityLevelConfiguration");
    conditions(errors, new.object());
}

fn shares(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let shares = at.at("nominalConcurrencyShares");
    if shares.int() < 0 {
        shares.invalid_int(errors, "must be a non-negative integer");
    }
}

fn percent(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_set() {
        at.within(errors, 0, 100);
    }
}

fn limit_response(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let queuing = at.at("queuing");
    match at.at("type").text() {
        "Reject" => {
            if queuing.is_set() {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                queuing.forbidden(errors, detail);
            }
        }
        "Queue" if queuing.is_set() => queues(errors, &queuing),
        "Queue" => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            queuing.required_because(errors, detail);
        }
        _ => at.at("type").one_of(errors, &["Queue", "Reject"]),
    }
}

fn queues(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const QUEUES: i64 = 10_000_000;
    const HASH_BITS: f64 = 60.0;
    let (limit, queues, hand) = (
        at.at("queueLengthLimit"),
        at.at("queues"),
        at.at("handSize"),
    );
    if limit.int() <= 0 {
        limit.invalid_int(errors, "must be positive");
    }
    if queues.int() <= 0 {
        queues.invalid_int(errors, "must be positive");
    } else if queues.int() > QUEUES {
        queues.invalid_int(errors, format!("must not be greater than {QUEUES}"));
    }
    if hand.int() <= 0 {
        hand.invalid_int(errors, "must be positive");
    } else if hand.int() > queues.int() {
        let detail = format!("should not be greater than queues ({})", queues.int());
        hand.invalid_int(errors, detail);
    } else {
        #[expect(
            clippy::cast_precision_loss,
            reason = "upstream computes with floats, too"
        )]
        let bits = (queues.int() as f64).log2() * hand.int() as f64;
        if bits.ceil() > HASH_BITS {
            let detail = format!(
                "required entropy bits of deckSize {} and handSize {} should not be greater than 60",
                queues.int(),
                hand.int()
            );
            hand.invalid_int(errors, detail);
        }
    }
}
