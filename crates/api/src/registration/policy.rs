//! Admission policies and their bindings: `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` and
//! the kinds of their bindings.
//!
//! Both kinds of policy share matching and parameters, and differ in validations and mutations.
//! [`Policy`] and [`Binding`] represent either kind, so that matching, parameters and validation are
//! implemented once. Only `v1` of the group has these kinds.

use super::hub::{self, MatchCondition};
use super::v1;
use crate::decode::{DecodeError, Decoded, WireStruct, decode_value, wire_struct};
use crate::document::Value;
use crate::meta::label_selector::LabelSelector;
use crate::meta::object::ObjectMeta;
use crate::meta::time::Time;

/// The kind of a policy or of a binding's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// `ValidatingAdmissionPolicy`
    Validating,
    /// `MutatingAdmissionPolicy`
    Mutating,
}

impl PolicyKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Validating, Self::Mutating];

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingAdmissionPolicy",
            Self::Mutating => "MutatingAdmissionPolicy",
        }
    }

    /// The kind of its bindings.
    #[must_use]
    pub fn binding_name(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingAdmissionPolicyBinding",
            Self::Mutating => "MutatingAdmissionPolicyBinding",
        }
    }

    /// The plural resource name.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Validating => "validatingadmissionpolicies",
            Self::Mutating => "mutatingadmissionpolicies",
        }
    }

    /// The plural resource name of its bindings.
    #[must_use]
    pub fn binding_resource(self) -> &'static str {
        match self {
            Self::Validating => "validatingadmissionpolicybindings",
            Self::Mutating => "mutatingadmissionpolicybindings",
        }
    }
}

/// One of the four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Registered {
    /// A policy.
    Policy(PolicyKind),
    /// A binding.
    Binding(PolicyKind),
}

impl Registered {
    /// The kind of a document, if it is one of the four.
    #[must_use]
    pub fn identify(api_version: &str, kind: &str) -> Option<Self> {
        if api_version.strip_prefix(super::GROUP)? != "/v1" {
            return None;
        }
        PolicyKind::ALL.into_iter().find_map(|known| {
            if known.name() == kind {
                Some(Self::Policy(known))
            } else {
                (known.binding_name() == kind).then_some(Self::Binding(known))
            }
        })
    }

    /// The kind of a resource.
    #[must_use]
    pub fn of_resource(plural: &str) -> Option<Self> {
        PolicyKind::ALL.into_iter().find_map(|known| {
            if known.resource() == plural {
                Some(Self::Policy(known))
            } else {
                (known.binding_resource() == plural).then_some(Self::Binding(known))
            }
        })
    }

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy(kind) => kind.name(),
            Self::Binding(kind) => kind.binding_name(),
        }
    }
}

/// A policy of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Validating or mutating.
    pub kind: PolicyKind,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The kind of its parameters.
    pub param_kind: Option<ParamKind>,
    /// The requests to match.
    pub match_constraints: Option<MatchResources>,
    /// CEL conditions, all of which must be true.
    pub match_conditions: Option<Vec<MatchCondition>>,
    /// Variables, each of which can refer to preceding ones.
    pub variables: Option<Vec<Variable>>,
    /// `Fail` or `Ignore`: how errors are handled.
    pub failure_policy: Option<String>,
    /// The validations; validating policies only.
    pub validations: Option<Vec<Validation>>,
    /// The audit annotations; validating policies only.
    pub audit_annotations: Option<Vec<AuditAnnotation>>,
    /// The mutations; mutating policies only.
    pub mutations: Option<Vec<Mutation>>,
    /// `Never` or `IfNeeded`; mutating policies only.
    pub reinvocation_policy: String,
}

/// A binding of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The kind of its policy.
    pub kind: PolicyKind,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The name of the policy.
    pub policy_name: String,
    /// Selects the parameters.
    pub param_ref: Option<ParamRef>,
    /// The requests to match; if absent, all requests that the policy matches.
    pub match_resources: Option<MatchResources>,
    /// The actions for a failed validation; validating policies only.
    pub validation_actions: Option<Vec<String>>,
}

/// The matching requests of a policy or a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchResources {
    /// Selects namespaces.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects objects.
    pub object_selector: Option<LabelSelector>,
    /// The rules of matching requests.
    pub resource_rules: Option<Vec<NamedRule>>,
    /// The excluded requests, which take precedence over the other rules.
    pub exclude_resource_rules: Option<Vec<NamedRule>>,
    /// `Exact` or `Equivalent`: whether equivalent resources in other versions match.
    pub match_policy: Option<String>,
}

/// A rule, optionally limited to named objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedRule {
    /// The names of the objects; empty means all.
    pub resource_names: Option<Vec<String>>,
    /// The rule.
    pub rule: hub::Rule,
}

wire_struct! {
    /// A policy that validates requests.
    pub struct ValidatingAdmissionPolicy = "v1.ValidatingAdmissionPolicy" {
        /// `ValidatingAdmissionPolicy`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// The group and version.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// The metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// The specification.
        spec: ValidatingAdmissionPolicySpec = "spec", always, object;
        /// The status, set by a controller.
        status: ValidatingAdmissionPolicyStatus = "status", always, object;
    }
}

wire_struct! {
    /// The specification of a validating policy.
    pub struct ValidatingAdmissionPolicySpec = "v1.ValidatingAdmissionPolicySpec" {
        /// The kind of its parameters.
        param_kind: Option<ParamKind> = "paramKind", omit_empty, opt_object;
        /// The requests to match.
        match_constraints: Option<WireMatchResources> = "matchConstraints", omit_empty, opt_object;
        /// The validations.
        validations: Option<Vec<Validation>> = "validations", omit_empty, objects;
        /// `Fail` or `Ignore`: how errors are handled.
        failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text("v1.FailurePolicyType");
        /// The audit annotations.
        audit_annotations: Option<Vec<AuditAnnotation>> = "auditAnnotations", omit_empty, objects;
        /// CEL conditions, all of which must be true.
        match_conditions: Option<Vec<v1::MatchCondition>> = "matchConditions", omit_empty, objects;
        /// Variables, each of which can refer to preceding ones.
        variables: Option<Vec<Variable>> = "variables", omit_empty, objects;
    }
}

wire_struct! {
    /// The status of a validating policy.
    pub struct ValidatingAdmissionPolicyStatus = "v1.ValidatingAdmissionPolicyStatus" {
        /// The observed generation.
        observed_generation: i64 = "observedGeneration", omit_empty, int64;
        /// The results of type checking.
        type_checking: Option<TypeChecking> = "typeChecking", omit_empty, opt_object;
        /// Conditions.
        conditions: Option<Vec<Condition>> = "conditions", omit_empty, objects;
    }
}

wire_struct! {
    /// The results of type checking the expressions against the schemas of the matched kinds.
    pub struct TypeChecking = "v1.TypeChecking" {
        /// The type checking warnings.
        expression_warnings: Option<Vec<ExpressionWarning>> = "expressionWarnings", omit_empty, objects;
    }
}

wire_struct! {
    /// A type checking warning about one expression.
    pub struct ExpressionWarning = "v1.ExpressionWarning" {
        /// The field path of the expression.
        field_ref: String = "fieldRef", always, text("string");
        /// The warning.
        warning: String = "warning", always, text("string");
    }
}

wire_struct! {
    /// A condition in a status.
    pub struct Condition = "v1.Condition" {
        /// The condition type.
        condition_type: String = "type", always, text("string");
        /// `True`, `False` or `Unknown`.
        status: String = "status", always, text("v1.ConditionStatus");
        /// The observed generation.
        observed_generation: i64 = "observedGeneration", omit_empty, int64;
        /// The time of the last transition.
        last_transition_time: Option<Time> = "lastTransitionTime", always, time;
        /// The machine-readable reason.
        reason: String = "reason", always, text("string");
        /// The human-readable message.
        message: String = "message", always, text("string");
    }
}

wire_struct! {
    /// A policy that mutates objects.
    pub struct MutatingAdmissionPolicy = "v1.MutatingAdmissionPolicy" {
        /// `MutatingAdmissionPolicy`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// The group and version.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// The metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// The specification.
        spec: MutatingAdmissionPolicySpec = "spec", always, object;
    }
}

wire_struct! {
    /// The specification of a mutating policy.
    pub struct MutatingAdmissionPolicySpec = "v1.MutatingAdmissionPolicySpec" {
        /// The kind of its parameters.
        param_kind: Option<ParamKind> = "paramKind", omit_empty, opt_object;
        /// The requests to match.
        match_constraints: Option<WireMatchResources> = "matchConstraints", omit_empty, opt_object;
        /// Variables, each of which can refer to preceding ones.
        variables: Option<Vec<Variable>> = "variables", omit_empty, objects;
        /// The mutations.
        mutations: Option<Vec<Mutation>> = "mutations", omit_empty, objects;
        /// `Fail` or `Ignore`: how errors are handled.
        failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text("v1.FailurePolicyType");
        /// CEL conditions, all of which must be true.
        match_conditions: Option<Vec<v1::MatchCondition>> = "matchConditions", omit_empty, objects;
        /// `Never` or `IfNeeded`: reinvocation after later mutations.
        reinvocation_policy: String = "reinvocationPolicy", omit_empty, text("v1.ReinvocationPolicyType");
    }
}

wire_struct! {
    /// The binding of a validating policy.
    pub struct ValidatingAdmissionPolicyBinding = "v1.ValidatingAdmissionPolicyBinding" {
        /// `ValidatingAdmissionPolicyBinding`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// The group and version.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// The metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// The specification.
        spec: ValidatingAdmissionPolicyBindingSpec = "spec", always, object;
    }
}

wire_struct! {
    /// The specification of a binding of a validating policy.
    pub struct ValidatingAdmissionPolicyBindingSpec = "v1.ValidatingAdmissionPolicyBindingSpec" {
        /// The name of the policy.
        policy_name: String = "policyName", omit_empty, text("string");
        /// Selects the parameters.
        param_ref: Option<ParamRef> = "paramRef", omit_empty, opt_object;
        /// The requests to match.
        match_resources: Option<WireMatchResources> = "matchResources", omit_empty, opt_object;
        /// The actions for a failed validation.
        validation_actions: Option<Vec<String>> = "validationActions", omit_empty, strings("v1.ValidationAction");
    }
}

wire_struct! {
    /// The binding of a mutating policy.
    pub struct MutatingAdmissionPolicyBinding = "v1.MutatingAdmissionPolicyBinding" {
        /// `MutatingAdmissionPolicyBinding`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// The group and version.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// The metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// The specification.
        spec: MutatingAdmissionPolicyBindingSpec = "spec", always, object;
    }
}

wire_struct! {
    /// The specification of a binding of a mutating policy.
    pub struct MutatingAdmissionPolicyBindingSpec = "v1.MutatingAdmissionPolicyBindingSpec" {
        /// The name of the policy.
        policy_name: String = "policyName", omit_empty, text("string");
        /// Selects the parameters.
        param_ref: Option<ParamRef> = "paramRef", omit_empty, opt_object;
        /// The requests to match.
        match_resources: Option<WireMatchResources> = "matchResources", omit_empty, opt_object;
    }
}

wire_struct! {
    /// The kind of the parameters of a policy.
    pub struct ParamKind = "v1.ParamKind" {
        /// The group and version.
        api_version: String = "apiVersion", omit_empty, text("string");
        /// The kind.
        kind: String = "kind", omit_empty, text("string");
    }
}

wire_struct! {
    /// Selects the parameters of a binding.
    pub struct ParamRef = "v1.ParamRef" {
        /// The name of a single parameter object.
        name: String = "name", omit_empty, text("string");
        /// The namespace of the parameters; defaults to that of the request.
        namespace: String = "namespace", omit_empty, text("string");
        /// Selects parameter objects by labels.
        selector: Option<LabelSelector> = "selector", omit_empty, opt_object;
        /// `Allow` or `Deny`: the behavior if no parameters are found.
        parameter_not_found_action: Option<String> = "parameterNotFoundAction", omit_empty, opt_text("v1.ParameterNotFoundActionType");
    }
}

wire_struct! {
    /// The matching requests of a policy or a binding, on the wire.
    pub struct WireMatchResources = "v1.MatchResources" {
        /// Selects namespaces.
        namespace_selector: Option<LabelSelector> = "namespaceSelector", omit_empty, opt_object;
        /// Selects objects.
        object_selector: Option<LabelSelector> = "objectSelector", omit_empty, opt_object;
        /// The rules of matching requests.
        resource_rules: Option<Vec<NamedRuleWithOperations>> = "resourceRules", omit_empty, objects;
        /// The excluded requests, which take precedence over the other rules.
        exclude_resource_rules: Option<Vec<NamedRuleWithOperations>> = "excludeResourceRules", omit_empty, objects;
        /// `Exact` or `Equivalent`: whether equivalent resources in other versions match.
        match_policy: Option<String> = "matchPolicy", omit_empty, opt_text("v1.MatchPolicyType");
    }
}

wire_struct! {
    /// A rule, optionally limited to named objects, on the wire.
    pub struct NamedRuleWithOperations = "v1.NamedRuleWithOperations" {
        /// The names of the objects; empty means all.
        resource_names: Option<Vec<String>> = "resourceNames", omit_empty, strings("string");
        /// The operations.
        operations: Option<Vec<String>> = "operations" in "RuleWithOperations", omit_empty, strings("v1.OperationType");
        /// The API groups.
        api_groups: Option<Vec<String>> = "apiGroups" in "RuleWithOperations.Rule", omit_empty, strings("string");
        /// The API versions.
        api_versions: Option<Vec<String>> = "apiVersions" in "RuleWithOperations.Rule", omit_empty, strings("string");
        /// The resources.
        resources: Option<Vec<String>> = "resources" in "RuleWithOperations.Rule", omit_empty, strings("string");
        /// The scope.
        scope: Option<String> = "scope" in "RuleWithOperations.Rule", omit_empty, opt_text("v1.ScopeType");
    }
}

wire_struct! {
    /// A validation of a policy.
    pub struct Validation = "v1.Validation" {
        /// The expression.
        expression: String = "expression", always, text("string");
        /// The message of a failed validation.
        message: String = "message", omit_empty, text("string");
        /// The reason in the response.
        reason: Option<String> = "reason", omit_empty, opt_text("v1.StatusReason");
        /// An expression that evaluates to the message.
        message_expression: String = "messageExpression", omit_empty, text("string");
    }
}

wire_struct! {
    /// An audit annotation of a policy.
    pub struct AuditAnnotation = "v1.AuditAnnotation" {
        /// The key, appended to the name of the policy.
        key: String = "key", always, text("string");
        /// The CEL expression of the value.
        value_expression: String = "valueExpression", always, text("string");
    }
}

wire_struct! {
    /// A variable: a named CEL expression.
    pub struct Variable = "v1.Variable" {
        /// The name, used as `variables.<name>`.
        name: String = "name", always, text("string");
        /// The expression.
        expression: String = "expression", always, text("string");
    }
}

wire_struct! {
    /// A mutation of the object.
    pub struct Mutation = "v1.Mutation" {
        /// `ApplyConfiguration` or `JSONPatch`.
        patch_type: String = "patchType", omit_empty, text("v1.PatchType");
        /// The apply configuration.
        apply_configuration: Option<ApplyConfiguration> = "applyConfiguration", omit_empty, opt_object;
        /// The JSON patch.
        json_patch: Option<JsonPatch> = "jsonPatch", omit_empty, opt_object;
    }
}

wire_struct! {
    /// An apply configuration, merged into the object.
    pub struct ApplyConfiguration = "v1.ApplyConfiguration" {
        /// The CEL expression that evaluates to the apply configuration.
        expression: String = "expression", omit_empty, text("string");
    }
}

wire_struct! {
    /// A JSON patch.
    pub struct JsonPatch = "v1.JSONPatch" {
        /// The CEL expression that evaluates to the patch.
        expression: String = "expression", omit_empty, text("string");
    }
}

impl ParamKind {
    /// The group and the version.
    #[must_use]
    pub fn group_version(&self) -> (&str, &str) {
        let api_version = self.api_version.as_str();
        api_version.split_once('/').unwrap_or(("", api_version))
    }
}

impl From<NamedRuleWithOperations> for NamedRule {
    fn from(wire: NamedRuleWithOperations) -> Self {
        Self {
            resource_names: wire.resource_names,
            rule: hub::Rule {
                operations: wire.operations,
                api_groups: wire.api_groups,
                api_versions: wire.api_versions,
                resources: wire.resources,
                scope: wire.scope,
            },
        }
    }
}

impl From<WireMatchResources> for MatchResources {
    fn from(wire: WireMatchResources) -> Self {
        Self {
            namespace_selector: wire.namespace_selector,
            object_selector: wire.object_selector,
            resource_rules: wire.resource_rules.map(hub::convert_list),
            exclude_resource_rules: wire.exclude_resource_rules.map(hub::convert_list),
            match_policy: wire.match_policy,
        }
    }
}

impl From<ValidatingAdmissionPolicy> for Policy {
    fn from(wire: ValidatingAdmissionPolicy) -> Self {
        let spec = wire.spec;
        Self {
            kind: PolicyKind::Validating,
            metadata: wire.metadata,
            param_kind: spec.param_kind,
            match_constraints: spec.match_constraints.map(Into::into),
            match_conditions: spec.match_conditions.map(hub::convert_list),
            variables: spec.variables,
            failure_policy: spec.failure_policy,
            validations: spec.validations,
            audit_annotations: spec.audit_annotations,
            mutations: None,
            reinvocation_policy: String::new(),
        }
    }
}

impl From<MutatingAdmissionPolicy> for Policy {
    fn from(wire: MutatingAdmissionPolicy) -> Self {
        let spec = wire.spec;
        Self {
            kind: PolicyKind::Mutating,
            metadata: wire.metadata,
            param_kind: spec.param_kind,
            match_constraints: spec.match_constraints.map(Into::into),
            match_conditions: spec.match_conditions.map(hub::convert_list),
            variables: spec.variables,
            failure_policy: spec.failure_policy,
            validations: None,
            audit_annotations: None,
            mutations: spec.mutations,
            reinvocation_policy: spec.reinvocation_policy,
        }
    }
}

impl From<ValidatingAdmissionPolicyBinding> for Binding {
    fn from(wire: ValidatingAdmissionPolicyBinding) -> Self {
        let spec = wire.spec;
        Self {
            kind: PolicyKind::Validating,
            metadata: wire.metadata,
            policy_name: spec.policy_name,
            param_ref: spec.param_ref,
            match_resources: spec.match_resources.map(Into::into),
            validation_actions: spec.validation_actions,
        }
    }
}

impl From<MutatingAdmissionPolicyBinding> for Binding {
    fn from(wire: MutatingAdmissionPolicyBinding) -> Self {
        let spec = wire.spec;
        Self {
            kind: PolicyKind::Mutating,
            metadata: wire.metadata,
            policy_name: spec.policy_name,
            param_ref: spec.param_ref,
            match_resources: spec.match_resources.map(Into::into),
            validation_actions: None,
        }
    }
}

impl MatchResources {
    /// Applies the defaults.
    ///
    /// UPSTREAM: kubernetes pkg/apis/admissionregistration/v1/defaults.go
    fn apply_defaults(&mut self) {
        self.match_policy
            .get_or_insert_with(|| String::from("Equivalent"));
        self.namespace_selector.get_or_insert_default();
        self.object_selector.get_or_insert_default();
        let rules = self.resource_rules.iter_mut().flatten();
        for rule in rules.chain(self.exclude_resource_rules.iter_mut().flatten()) {
            rule.rule.scope.get_or_insert_with(|| String::from("*"));
        }
    }
}

impl Policy {
    /// Applies the defaults.
    pub fn apply_defaults(&mut self) {
        self.failure_policy
            .get_or_insert_with(|| String::from("Fail"));
        if let Some(constraints) = &mut self.match_constraints {
            constraints.apply_defaults();
        }
    }
}

impl Binding {
    /// Applies the defaults.
    pub fn apply_defaults(&mut self) {
        if let Some(resources) = &mut self.match_resources {
            resources.apply_defaults();
        }
    }
}

fn decode_as<W, T>(value: Value<'_>) -> Result<Decoded<T>, DecodeError>
where
    W: WireStruct + Default + Into<T>,
{
    let Decoded { value, findings } = decode_value::<W>(value)?;
    Ok(Decoded {
        value: value.into(),
        findings,
    })
}

/// Decodes a policy and applies the defaults.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode_policy(value: Value<'_>, kind: PolicyKind) -> Result<Decoded<Policy>, DecodeError> {
    let mut decoded = match kind {
        PolicyKind::Validating => decode_as::<ValidatingAdmissionPolicy, Policy>(value),
        PolicyKind::Mutating => decode_as::<MutatingAdmissionPolicy, Policy>(value),
    }?;
    decoded.value.apply_defaults();
    Ok(decoded)
}

/// Decodes a binding and applies the defaults.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode_binding(value: Value<'_>, kind: PolicyKind) -> Result<Decoded<Binding>, DecodeError> {
    let mut decoded = match kind {
        PolicyKind::Validating => decode_as::<ValidatingAdmissionPolicyBinding, Binding>(value),
        PolicyKind::Mutating => decode_as::<MutatingAdmissionPolicyBinding, Binding>(value),
    }?;
    decoded.value.apply_defaults();
    Ok(decoded)
}
