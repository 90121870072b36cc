//! ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings.

use lockgate_api::document::tree;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::registration::policy::{
    Binding, Policy, PolicyKind, Registered, decode_binding, decode_policy,
};
use lockgate_api::registration::strategy::warn_of_static_name;
use lockgate_api::registration::validation::policies;
use serde_json::{Value, json};

use super::json_path;
use crate::at::At;
use crate::cells::read;
use crate::cells::{Common, Row, cell, count_cell};
use crate::kind::{
    CHANGE, Context, Finalizers, Kind, Resource, SPEC, ServerComponent, Written, cluster, sub,
};
use crate::object::{Object, at_mut, each, fill, get_mut, with};

pub(super) const VALIDATING_ADMISSION_POLICIES: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "validatingadmissionpolicy",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyList",
    &ValidatingAdmissionPolicy,
)
.categories(&["api-extensions"])
.subresources(&[sub(
    "status",
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    CHANGE,
)])
.conditional_update()
.generation(SPEC);

pub(super) const MUTATING_ADMISSION_POLICIES: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicy",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyList",
    &MutatingAdmissionPolicy,
)
.categories(&["api-extensions"])
.conditional_update()
.generation(SPEC);

pub(super) const VALIDATING_ADMISSION_POLICY_BINDINGS: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicybinding",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicyBindingList",
    &PolicyBinding(PolicyKind::Validating),
)
.categories(&["api-extensions"])
.conditional_update()
.generation(SPEC);

pub(super) const MUTATING_ADMISSION_POLICY_BINDINGS: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicybinding",
    "MutatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicyBindingList",
    &PolicyBinding(PolicyKind::Mutating),
)
.categories(&["api-extensions"])
.conditional_update()
.generation(SPEC);

/// The kind `ValidatingAdmissionPolicy`.
#[derive(Debug)]
pub(super) struct ValidatingAdmissionPolicy;

impl Kind for ValidatingAdmissionPolicy {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Policies(Registered::Policy(
            PolicyKind::Validating,
        )))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, policy_defaults);
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        policy_errors(PolicyKind::Validating, new, None, context)
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if subresource == "status" {
            return status_errors(new);
        }
        policy_errors(PolicyKind::Validating, new, Some(old), context)
    }

    fn warnings_on_create(&self, new: &Written<'_>, _: &Context<'_>) -> Vec<String> {
        warnings(new)
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _: &Written<'_>,
        _: &Context<'_>,
    ) -> Vec<String> {
        warnings(new)
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static str {
        "Name|Validations:integer|ParamKind|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        let validations = count_cell(read::count(object, "/spec/validations"));
        Row::plain(common, [validations, parameters(object)])
    }
}

/// The kind `MutatingAdmissionPolicy`.
#[derive(Debug)]
pub(super) struct MutatingAdmissionPolicy;

impl Kind for MutatingAdmissionPolicy {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Policies(Registered::Policy(
            PolicyKind::Mutating,
        )))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, policy_defaults);
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        policy_errors(PolicyKind::Mutating, new, None, context)
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if !subresource.is_empty() {
            return FieldErrors::new();
        }
        policy_errors(PolicyKind::Mutating, new, Some(old), context)
    }

    fn warnings_on_create(&self, new: &Written<'_>, _: &Context<'_>) -> Vec<String> {
        warnings(new)
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _: &Written<'_>,
        _: &Context<'_>,
    ) -> Vec<String> {
        warnings(new)
    }

    fn columns(&self) -> &'static str {
        "Name|Mutations:integer|ParamKind|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        let mutations = count_cell(read::count(object, "/spec/mutations"));
        Row::plain(common, [mutations, parameters(object)])
    }
}

/// The kinds `ValidatingAdmissionPolicyBinding` and `MutatingAdmissionPolicyBinding`.
#[derive(Debug)]
pub(super) struct PolicyBinding(pub(super) PolicyKind);

impl Kind for PolicyBinding {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Policies(Registered::Binding(self.0)))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, binding_defaults);
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate_create(&self, new: &Written<'_>, _: &Context<'_>) -> FieldErrors {
        binding_errors(self.0, new)
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        _: &Written<'_>,
        _: &Context<'_>,
    ) -> FieldErrors {
        if !subresource.is_empty() {
            return FieldErrors::new();
        }
        binding_errors(self.0, new)
    }

    fn warnings_on_create(&self, new: &Written<'_>, _: &Context<'_>) -> Vec<String> {
        warnings(new)
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _: &Written<'_>,
        _: &Context<'_>,
    ) -> Vec<String> {
        warnings(new)
    }

    fn columns(&self) -> &'static str {
        "Name|PolicyName|ParamRef|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        binding_row(object, common)
    }
}

/// The typed object. Objects are decoded already, so a failure is a broken invariant, and rejects the write.
fn typed_policy(value: &Value, kind: PolicyKind) -> Result<Policy, FieldError> {
    decode_policy(tree::read(value).root(), kind)
        .map(|decoded| decoded.value)
        .map_err(|error| FieldError::internal(&Path::root("spec"), error.to_string()))
}

/// The typed binding, like [`typed_policy`].
fn typed_binding(value: &Value, kind: PolicyKind) -> Result<Binding, FieldError> {
    decode_binding(tree::read(value).root(), kind)
        .map(|decoded| decoded.value)
        .map_err(|error| FieldError::internal(&Path::root("spec"), error.to_string()))
}

fn policy_errors(
    kind: PolicyKind,
    new: &Written<'_>,
    old: Option<&Written<'_>>,
    context: &Context<'_>,
) -> FieldErrors {
    let old = old.map(|old| typed_policy(old.value, kind)).transpose();
    match (typed_policy(new.value, kind), old) {
        (Ok(new), Ok(None)) => policies::validate_policy(&new, context.policies),
        (Ok(new), Ok(Some(old))) => policies::validate_policy_update(&new, &old, context.policies),
        (Err(error), _) | (_, Err(error)) => vec![error],
    }
}

/// UPSTREAM: pkg/apis/admissionregistration/validation/validation.go (validateValidatingAdmissionPolicyStatus)
fn status_errors(new: &Written<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new.object(), "status");
    let type_checking = status.at("typeChecking");
    for warning in type_checking.at("expressionWarnings").items() {
        warning.at("warning").must_be_set(&mut errors);
        let field = warning.at("fieldRef");
        let path = field.text().trim();
        if path.is_empty() {
            field.required(&mut errors);
        } else if let Some(problem) = json_path::problem(&format!("{{{path}}}")) {
            let detail = format!("invalid JSONPath: {problem}");
            field.invalid_as(&mut errors, Shown::Text(path), detail);
        }
    }
    status.at("conditions").conditions(&mut errors);
    errors
}

fn binding_errors(kind: PolicyKind, new: &Written<'_>) -> FieldErrors {
    match typed_binding(new.value, kind) {
        Ok(new) => policies::validate_binding(&new),
        Err(error) => vec![error],
    }
}

fn warnings(new: &Written<'_>) -> Vec<String> {
    let warning = warn_of_static_name(&new.metadata.name);
    warning.into_iter().collect()
}

fn policy_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "failurePolicy", "Fail");
        if let Some(matching) = get_mut(spec, "matchConstraints") {
            match_resources(matching);
        }
    }
}

fn binding_defaults(object: &mut Object) {
    if let Some(matching) = at_mut(object, &["spec", "matchResources"]) {
        match_resources(matching);
    }
}

fn match_resources(matching: &mut Object) {
    fill(matching, "matchPolicy", "Equivalent");
    fill(matching, "namespaceSelector", json!({}));
    fill(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        each(matching, key, |rule| fill(rule, "scope", "*"));
    }
}

fn binding_row(object: &Value, common: &Common<'_>) -> Row {
    let policy = cell(read::text(object, "/spec/policyName"));
    Row::plain(common, [policy, parameter_reference(object)])
}

/// The cell of a policy's `paramKind`.
fn parameters(object: &Value) -> Value {
    match object.pointer("/spec/paramKind") {
        Some(kind) if kind.is_object() => cell(format!(
            "{}/{}",
            read::text(kind, "/apiVersion"),
            read::text(kind, "/kind")
        )),
        _ => cell("<unset>"),
    }
}

/// The cell of a binding's `paramRef`.
fn parameter_reference(object: &Value) -> Value {
    let Some(reference) = object.pointer("/spec/paramRef") else {
        return cell("<unset>");
    };
    match (
        read::text(reference, "/namespace"),
        read::text(reference, "/name"),
    ) {
        (_, "") => match reference.get("selector") {
            Some(selector) if selector.is_object() => cell(go_selector(selector)),
            _ => cell("<unset>"),
        },
        ("", name) => cell(format!("*/{name}")),
        (namespace, name) => cell(format!("{namespace}/{name}")),
    }
}

/// A selector as its generated `String` method prints it in Go.
fn go_selector(selector: &Value) -> String {
    let labels: String = read::members(selector, "/matchLabels")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: String = read::items(selector, "/matchExpressions")
        .iter()
        .map(|requirement| {
            let values: Vec<&str> = read::items(requirement, "/values")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                read::text(requirement, "/key"),
                read::text(requirement, "/operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
