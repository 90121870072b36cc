//! A compiled policy.

use std::fmt;
use std::sync::Arc;

use lockgate_api::registration::policy::{Mutation, ParamKind, Policy, PolicyKind, Validation};
use lockgate_cel::Program;
use lockgate_cel::admission::{Composition, Role, Variable};

use crate::conditions::{Conditions, ExpressionRole};
use crate::configuration::criteria::Criteria;
use crate::decision::FailurePolicy;

/// A program, or its compilation error.
pub(crate) type Compiled = Result<Arc<Program>, Box<str>>;

/// A policy, compiled.
pub struct CompiledPolicy {
    kind: PolicyKind,
    name: Arc<str>,
    failure_policy: FailurePolicy,
    pub(crate) criteria: Criteria,
    param_kind: Option<ParamKind>,
    pub(crate) conditions: Conditions,
    pub(crate) variables: Box<[Variable]>,
    pub(crate) validations: Box<[CompiledValidation]>,
    pub(crate) annotations: Box<[CompiledAnnotation]>,
    pub(crate) mutations: Box<[CompiledMutation]>,
    reinvocable: bool,
    /// True if an expression uses `namespaceObject`.
    pub(crate) looks_at_namespace: bool,
    /// The reason the policy cannot be evaluated at all.
    pub(crate) unreadable: Option<Box<str>>,
}

/// A compiled validation.
#[derive(Debug)]
pub(crate) struct CompiledValidation {
    pub(crate) expression: Box<str>,
    pub(crate) program: Compiled,
    pub(crate) message: Box<str>,
    pub(crate) message_expression: Box<str>,
    pub(crate) message_program: Option<Compiled>,
    pub(crate) reason: Option<Box<str>>,
}

/// A compiled audit annotation.
#[derive(Debug)]
pub(crate) struct CompiledAnnotation {
    pub(crate) key: Box<str>,
    pub(crate) expression: Box<str>,
    pub(crate) program: Compiled,
}

/// The patch type of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

/// A compiled mutation.
#[derive(Debug)]
pub(crate) struct CompiledMutation {
    pub(crate) patch_type: PatchType,
    pub(crate) expression: Box<str>,
    pub(crate) program: Compiled,
}

/// The index of `namespaceObject` among the variables of an expression.
const NAMESPACE: usize = 2;

impl CompiledPolicy {
    pub(super) fn new(policy: &Policy) -> Self {
        let variables = policy.variables.iter().flatten();
        let composition = Composition::compile(
            policy.param_kind.is_some(),
            variables.map(|variable| (&*variable.name, &*variable.expression)),
        );
        let compile = |expression: &str, role: Role| -> Compiled {
            let program = composition.program(expression, role);
            program.map_err(|error| error.to_string().into())
        };
        let conditions = policy.match_conditions.as_deref();
        let conditions = Conditions::of_policy(conditions, &composition);
        let validations = policy.validations.iter().flatten();
        let validations = validations
            .map(|validation| compile_validation(validation, &compile))
            .collect();
        let annotations = policy.audit_annotations.iter().flatten();
        let annotations = annotations.map(|annotation| CompiledAnnotation {
            key: annotation.key.as_str().into(),
            expression: annotation.value_expression.as_str().into(),
            program: compile(&annotation.value_expression, Role::AuditAnnotation),
        });
        let annotations = annotations.collect();
        let mutations = policy.mutations.iter().flatten();
        let mutations = mutations
            .map(|mutation| compile_mutation(mutation, &compile))
            .collect();
        let failure_policy = match policy.failure_policy.as_deref() {
            Some("Ignore") => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        };
        let variables = composition.into_variables().into_boxed_slice();
        let (criteria, unreadable) = match &policy.match_constraints {
            Some(constraints) => (Criteria::of_policy(constraints), None),
            None => {
                let why = "policy contained no match constraints, a required field";
                (Criteria::everything(), Some(why.into()))
            }
        };
        let mut compiled = Self {
            kind: policy.kind,
            name: policy.metadata.name.as_str().into(),
            failure_policy,
            criteria,
            param_kind: policy.param_kind.clone(),
            conditions,
            variables,
            validations,
            annotations,
            mutations,
            reinvocable: policy.reinvocation_policy == "IfNeeded",
            looks_at_namespace: false,
            unreadable,
        };
        let mut programs = compiled.programs();
        let looks_at_namespace = programs.any(|program| program.mentions(NAMESPACE));
        drop(programs);
        compiled.looks_at_namespace = looks_at_namespace;
        compiled
    }

    /// All of its programs.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let variables = self.variables.iter();
        let variables = variables.filter_map(|variable| variable.program.as_ref().ok());
        let validations = self.validations.iter().flat_map(|validation| {
            let message = validation.message_program.as_ref();
            [Some(&validation.program), message].into_iter().flatten()
        });
        let annotations = self
            .annotations
            .iter()
            .map(|annotation| &annotation.program);
        let mutations = self.mutations.iter().map(|mutation| &mutation.program);
        let others = validations.chain(annotations).chain(mutations);
        let others = others.filter_map(|program| program.as_ref().ok());
        variables.chain(others).map(|program| &**program)
    }

    /// A policy that cannot be decoded.
    pub(super) fn unreadable(kind: PolicyKind, name: &str, why: &str) -> Self {
        Self {
            kind,
            name: name.into(),
            failure_policy: FailurePolicy::Fail,
            criteria: Criteria::everything(),
            param_kind: None,
            conditions: Conditions::default(),
            variables: Box::default(),
            validations: Box::default(),
            annotations: Box::default(),
            mutations: Box::default(),
            reinvocable: false,
            looks_at_namespace: false,
            unreadable: Some(why.into()),
        }
    }

    /// Validating or mutating.
    #[must_use]
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The failure policy, which applies to errors.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// Its expressions with their roles, indices and programs.
    pub fn expressions(
        &self,
    ) -> impl Iterator<Item = (ExpressionRole, usize, &str, Option<&Program>)> {
        fn program(compiled: &Compiled) -> Option<&Program> {
            compiled.as_deref().ok()
        }
        let conditions = self.conditions.expressions().enumerate();
        let conditions = conditions
            .map(|(at, (text, program))| (ExpressionRole::MatchCondition, at, text, program));
        let variables = self.variables.iter().enumerate().map(|(at, it)| {
            let program = it.program.as_deref().ok();
            (ExpressionRole::Variable, at, &*it.expression, program)
        });
        let validations = self.validations.iter().enumerate().flat_map(|(at, it)| {
            let message = it.message_program.as_ref().and_then(program);
            [
                (
                    ExpressionRole::Validation,
                    at,
                    &*it.expression,
                    program(&it.program),
                ),
                (
                    ExpressionRole::Message,
                    at,
                    &*it.message_expression,
                    message,
                ),
            ]
        });
        let annotations = self.annotations.iter().enumerate().map(|(at, it)| {
            let role = ExpressionRole::AuditAnnotation;
            (role, at, &*it.expression, program(&it.program))
        });
        let mutations = self.mutations.iter().enumerate().map(|(at, it)| {
            let role = ExpressionRole::Mutation;
            (role, at, &*it.expression, program(&it.program))
        });
        (conditions.chain(variables).chain(validations))
            .chain(annotations)
            .chain(mutations)
            .filter(|(_, _, text, _)| !text.is_empty())
    }

    /// The kind of its parameters.
    #[must_use]
    pub fn param_kind(&self) -> Option<&ParamKind> {
        self.param_kind.as_ref()
    }

    /// The expression of a match condition.
    #[must_use]
    pub fn match_condition(&self, name: &str) -> Option<&str> {
        self.conditions.expression(name)
    }

    /// Returns true if the policy is reinvoked when the object changes after it.
    #[must_use]
    pub fn reinvocable(&self) -> bool {
        self.reinvocable
    }
}

fn compile_validation(
    validation: &Validation,
    compile: &dyn Fn(&str, Role) -> Compiled,
) -> CompiledValidation {
    let message = validation.message_expression.as_str();
    CompiledValidation {
        expression: validation.expression.as_str().into(),
        program: compile(&validation.expression, Role::Condition),
        message: validation.message.as_str().into(),
        message_expression: message.into(),
        message_program: (!message.is_empty()).then(|| compile(message, Role::Message)),
        reason: validation.reason.as_deref().map(Into::into),
    }
}

fn compile_mutation(
    mutation: &Mutation,
    compile: &dyn Fn(&str, Role) -> Compiled,
) -> CompiledMutation {
    let (patch_type, role, expression) = if mutation.patch_type == "JSONPatch" {
        let patch = mutation.json_patch.as_ref();
        let expression = patch.map(|patch| patch.expression.as_str());
        (PatchType::JsonPatch, Role::JsonPatch, expression)
    } else {
        let apply = mutation.apply_configuration.as_ref();
        let expression = apply.map(|apply| apply.expression.as_str());
        (
            PatchType::ApplyConfiguration,
            Role::ApplyConfiguration,
            expression,
        )
    };
    let expression = expression.unwrap_or_default();
    CompiledMutation {
        patch_type,
        expression: expression.into(),
        program: compile(expression, role),
    }
}

impl fmt::Debug for CompiledPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompiledPolicy").field(&self.name).finish()
    }
}
