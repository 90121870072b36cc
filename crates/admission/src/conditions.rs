//! Match conditions, compiled and evaluated: the last predicate, and the only expensive one.
//!
//! Match conditions are evaluated on the object in the webhook's version, before its call. A false condition excludes
//! the webhook; an evaluation error is subject to the failure policy. The crate `lockgate-cel` implements the
//! expressions.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::access::{Authorizer, User};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::registration::hub::MatchCondition;
use lockgate_api::registration::validation::policies::{
    self, ComposedExpressions, PolicyExpressions,
};
use lockgate_api::registration::validation::{Environment, ExpressionChecker, ExpressionError};
use lockgate_cel::admission::{
    self as cel, Composition, Evaluated, MatchConditions, Outcome, RequestVariable, Role, Variables,
};
use lockgate_cel::eval::RecordedExpression;
use lockgate_cel::ext::authorizer::AuthorizerValue;
use lockgate_cel::{CompileError, Libraries, Program};
use serde_json::Value;

use crate::decision::FailurePolicy;
use crate::object::Object;
use crate::request::Request;

/// The maximum number of cached condition lists per state of the objects.
const MAX_REMEMBERED: usize = 64;

/// The conditions of one webhook, compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(Arc<List>);

#[derive(Debug, Default)]
struct List {
    conditions: MatchConditions,
    /// A hash of names and expressions. `None` if the result must not be cached, because the authorizer is used.
    sum: Option<u64>,
}

/// The feature gate `AdmissionWebhookMatchConditions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ConditionsGate {
    /// Match conditions are evaluated.
    #[default]
    Enabled,
    /// Match conditions are ignored: webhooks are called as if they had none.
    Disabled,
}

/// The role of an expression in a webhook or a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExpressionRole {
    /// One of `matchConditions`.
    MatchCondition,
    /// One of `variables`.
    Variable,
    /// The `expression` of one of `validations`.
    Validation,
    /// The `messageExpression` of one of `validations`.
    Message,
    /// The `valueExpression` of one of `auditAnnotations`.
    AuditAnnotation,
    /// The expression of one of `mutations`.
    Mutation,
}

impl ExpressionRole {
    /// The API field with such expressions.
    #[must_use]
    pub fn list(self) -> &'static str {
        match self {
            Self::MatchCondition => "matchConditions",
            Self::Variable => "variables",
            Self::Validation | Self::Message => "validations",
            Self::AuditAnnotation => "auditAnnotations",
            Self::Mutation => "mutations",
        }
    }
}

/// One evaluation of an expression, recorded for explanations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionTrace {
    /// Its role.
    pub role: ExpressionRole,
    /// Its index in that list.
    pub index: usize,
    /// The expression as written.
    pub expression: String,
    /// Its name, its result and those of its subexpressions, and its cost.
    pub recorded: RecordedExpression,
}

/// The verdict of match conditions and its cost in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsTrace {
    /// The verdict.
    pub verdict: ConditionsVerdict,
    /// The number of evaluation errors up to the first false condition.
    pub errors: usize,
    /// The evaluation time.
    pub elapsed: Duration,
    /// The evaluated conditions, if recorded.
    pub expressions: Vec<ExpressionTrace>,
}

/// The verdict of match conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionsVerdict {
    /// All conditions are true.
    Matched,
    /// This condition is false.
    Excluded {
        /// Its name.
        condition: String,
    },
    /// They cannot be evaluated, and the failure policy is `Ignore`.
    Ignored {
        /// The error.
        error: String,
    },
    /// They cannot be evaluated, and the failure policy is `Fail`.
    Refused {
        /// The error.
        error: String,
    },
}

/// The variables of conditions for a request in one version. Built for the first webhook that has conditions, and
/// shared with the others.
#[derive(Debug)]
pub(crate) struct ConditionInputs {
    /// The request behind `authorizer.requestResource`.
    request: cel::Request,
    /// The variable `request`.
    variable: RequestVariable,
    authorizer: AuthorizerValue,
    /// Cached verdicts of condition lists for the current objects.
    known: Vec<(Conditions, Evaluated)>,
    /// True if every subexpression is recorded.
    records: bool,
}

impl ConditionInputs {
    pub(crate) fn new(
        request: &Request,
        kind: &GroupVersionKind,
        resource: &GroupVersionResource,
        authorizer: AuthorizerValue,
    ) -> Self {
        let mut request = variable(request, kind);
        let mut shown = request.clone();
        shown.resource = cel_resource(resource);
        let variable = RequestVariable::new(shown);
        // They are part of the variable now, and may be large.
        request.options = None;
        Self {
            request,
            variable,
            authorizer,
            known: Vec::new(),
            records: false,
        }
    }

    pub(crate) fn recording(self, records: bool) -> Self {
        Self { records, ..self }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.records
    }

    /// The variables of expressions for these objects.
    pub(crate) fn variables<'f>(
        &'f self,
        object: Option<&'f Object>,
        old_object: Option<&'f Object>,
    ) -> Variables<'f> {
        Variables::of(&self.variable)
            .object(object.map(Object::value))
            .old_object(old_object.map(Object::value))
            .authorizer(self.authorizer.clone(), &self.request)
    }

    /// Clears cached verdicts after a change of the objects.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

impl Conditions {
    pub(crate) fn new(conditions: Option<&[MatchCondition]>) -> Self {
        let conditions = conditions.unwrap_or_default();
        let asks = |condition: &MatchCondition| condition.expression.contains("authorizer");
        let sum = (!conditions.iter().any(asks)).then(|| {
            let mut hasher = DefaultHasher::new();
            for condition in conditions {
                (&condition.name, &condition.expression).hash(&mut hasher);
            }
            hasher.finish()
        });
        let conditions = MatchConditions::compile(named(conditions));
        Self(Arc::new(List { conditions, sum }))
    }

    /// The conditions of a policy, which may use its parameters.
    pub(crate) fn of_policy(
        conditions: Option<&[MatchCondition]>,
        composition: &Composition,
    ) -> Self {
        let conditions = conditions.unwrap_or_default();
        let looks = |condition: &MatchCondition| condition.expression.contains("params");
        if !conditions.iter().any(looks) {
            return Self::new(Some(conditions));
        }
        let conditions = MatchConditions::compile_with(named(conditions), |expression| {
            composition.program(expression, Role::Condition)
        });
        let sum = None;
        Self(Arc::new(List { conditions, sum }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.conditions.is_empty()
    }

    /// The expression of the condition with this name.
    pub(crate) fn expression(&self, name: &str) -> Option<&str> {
        let mut all = self.0.conditions.conditions().iter();
        all.find(|condition| condition.name == name)
            .map(|condition| condition.expression.as_str())
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = (&str, Option<&Program>)> {
        let conditions = self.0.conditions.conditions().iter();
        conditions.map(|condition| (&*condition.expression, condition.program()))
    }

    /// Evaluates all conditions. The caller sets the duration.
    pub(crate) fn evaluate(
        &self,
        facts: &mut ConditionInputs,
        object: Option<&Object>,
        old_object: Option<&Object>,
        policy: FailurePolicy,
    ) -> ConditionsTrace {
        self.evaluate_with(facts, object, old_object, None, policy)
    }

    /// The same with the parameters of a policy.
    pub(crate) fn evaluate_with(
        &self,
        facts: &mut ConditionInputs,
        object: Option<&Object>,
        old_object: Option<&Object>,
        params: Option<&Value>,
        policy: FailurePolicy,
    ) -> ConditionsTrace {
        let known = facts.known.iter().find(|(known, _)| self.is_as(known));
        let mut expressions = Vec::new();
        let Evaluated { outcome, errors } = match known {
            _ if facts.records => {
                let variables = facts.variables(object, old_object).params(params);
                let (evaluated, records) =
                    self.0.conditions.evaluate_recorded(&variables.evaluator());
                expressions = self.traced(records);
                evaluated
            }
            Some((_, evaluated)) => evaluated.clone(),
            None => {
                let variables = facts.variables(object, old_object).params(params);
                let evaluated = self.0.conditions.evaluate(&variables.evaluator());
                if self.0.sum.is_some() && facts.known.len() < MAX_REMEMBERED {
                    facts.known.push((self.clone(), evaluated.clone()));
                }
                evaluated
            }
        };
        let verdict = match (outcome, policy) {
            (Outcome::Match, _) => ConditionsVerdict::Matched,
            (Outcome::NoMatch(name), _) => ConditionsVerdict::Excluded {
                condition: name.unwrap_or_default(),
            },
            (Outcome::Reject(error), FailurePolicy::Ignore) => ConditionsVerdict::Ignored { error },
            (Outcome::Reject(error), FailurePolicy::Fail) => ConditionsVerdict::Refused { error },
        };
        ConditionsTrace {
            verdict,
            errors,
            elapsed: Duration::ZERO,
            expressions,
        }
    }

    /// Assigns the records to their conditions. Names are unique among conditions.
    fn traced(&self, records: Vec<RecordedExpression>) -> Vec<ExpressionTrace> {
        let conditions = self.0.conditions.conditions();
        let traced = records.into_iter().filter_map(|recorded| {
            let index = conditions
                .iter()
                .position(|condition| condition.name == recorded.name)?;
            Some(ExpressionTrace {
                role: ExpressionRole::MatchCondition,
                index,
                expression: conditions.get(index)?.expression.clone(),
                recorded,
            })
        });
        traced.collect()
    }

    /// Returns `true` if both lists of conditions are equal.
    fn is_as(&self, other: &Self) -> bool {
        fn list(conditions: &Conditions) -> impl Iterator<Item = (&str, &str)> {
            let list = conditions.0.conditions.conditions();
            list.iter().map(|c| (&*c.name, &*c.expression))
        }
        // Hashes are compared first; equal hashes are confirmed by the texts.
        self.0.sum.is_some()
            && self.0.sum == other.0.sum
            && (Arc::ptr_eq(&self.0, &other.0) || list(self).eq(list(other)))
    }
}

fn named(conditions: &[MatchCondition]) -> impl Iterator<Item = (&str, &str)> {
    let conditions = conditions.iter();
    conditions.map(|condition| (&*condition.name, &*condition.expression))
}

fn cel_resource(resource: &GroupVersionResource) -> cel::GroupVersionResource {
    cel::GroupVersionResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
    }
}

/// The authorizer value of conditions, for the requesting user.
pub(crate) fn asking(request: &Request, authorizer: &Arc<dyn Authorizer>) -> AuthorizerValue {
    let user = User {
        name: request.user.username.clone(),
        uid: request.user.uid.clone(),
        groups: request.user.groups.clone().unwrap_or_default(),
        extra: request.user.extra.clone().unwrap_or_default(),
    };
    AuthorizerValue::new(Arc::new(user), Arc::clone(authorizer))
}

/// The variable `request`. Its `resource` is always the requested one, even if the webhook receives another.
fn variable(request: &Request, converted: &GroupVersionKind) -> cel::Request {
    let kind = |kind: &GroupVersionKind| cel::GroupVersionKind {
        group: kind.group.clone(),
        version: kind.version.clone(),
        kind: kind.kind.clone(),
    };
    let resource = cel_resource(&request.resource);
    let user = &request.user;
    cel::Request {
        kind: kind(converted),
        resource: resource.clone(),
        sub_resource: request.subresource.clone(),
        request_kind: kind(&request.kind),
        request_resource: resource,
        request_sub_resource: request.subresource.clone(),
        name: request.name.clone(),
        namespace: request.namespace.clone(),
        operation: request.operation.name().to_owned(),
        username: user.username.clone(),
        user_uid: user.uid.clone(),
        groups: user.groups.clone().unwrap_or_default(),
        extra: user.extra.clone().unwrap_or_default(),
        dry_run: request.dry_run,
        options: request
            .options
            .as_ref()
            .map(|options| options.value().clone()),
    }
}

/// The libraries that servers of a version allow in new expressions.
#[must_use]
pub fn libraries_of(version: KubeVersion) -> Libraries {
    match version {
        KubeVersion::V1_33 => Libraries::BeforeSemver,
        KubeVersion::V1_34 => Libraries::BeforeLists,
        KubeVersion::V1_35 | KubeVersion::V1_36 | KubeVersion::V1_37 => Libraries::All,
    }
}

/// Compiles the match conditions of webhooks and the expressions of policies when registrations are validated.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegistrationChecker(Libraries);

impl RegistrationChecker {
    /// With the libraries of the reference version.
    pub const REFERENCE: &'static Self = &Self(Libraries::All);

    /// With the libraries of a version.
    #[must_use]
    pub fn of(version: KubeVersion) -> &'static Self {
        match libraries_of(version) {
            Libraries::BeforeSemver => &Self(Libraries::BeforeSemver),
            Libraries::BeforeLists => &Self(Libraries::BeforeLists),
            Libraries::All => Self::REFERENCE,
        }
    }
}

impl ExpressionChecker for RegistrationChecker {
    /// Stored expressions may use all libraries.
    fn check(&self, expression: &str, environment: Environment) -> Result<(), ExpressionError> {
        let checked = match environment {
            Environment::New => cel::check_condition_with(expression, self.0),
            Environment::Stored => cel::check_condition(expression),
        };
        checked.map_err(expression_error)
    }
}

impl PolicyExpressions for RegistrationChecker {
    fn begin(&self, composition: policies::Composition) -> Box<dyn ComposedExpressions> {
        let begun = if composition.variables {
            Composition::new(composition.params)
        } else {
            Composition::without_variables(composition.params)
        };
        Box::new(Composed(begun.with_libraries(self.0)))
    }
}

/// The expressions of one policy.
struct Composed(Composition);

impl ComposedExpressions for Composed {
    fn declare(&mut self, name: &str, expression: &str) -> Result<(), ExpressionError> {
        let declared = self.0.declare(name, expression);
        declared.map_err(expression_error)
    }

    fn check(&mut self, expression: &str, role: policies::Role) -> Result<(), ExpressionError> {
        let checked = match role {
            policies::Role::MatchCondition => self.0.check_match_condition(expression),
            policies::Role::Validation => self.0.check(expression, Role::Condition),
            policies::Role::Message => self.0.check(expression, Role::Message),
            policies::Role::AuditAnnotation => self.0.check(expression, Role::AuditAnnotation),
            policies::Role::ApplyConfiguration => {
                self.0.check(expression, Role::ApplyConfiguration)
            }
            policies::Role::JsonPatch => self.0.check(expression, Role::JsonPatch),
        };
        checked.map_err(expression_error)
    }
}

fn expression_error(error: CompileError) -> ExpressionError {
    match error {
        CompileError::Program(reason) => ExpressionError::Program(reason.to_string()),
        other => ExpressionError::Compilation(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lockgate_api::access::{AccessRequest, Decision, FixedAuthorizer};
    use serde_json::json;

    use super::*;
    use crate::request::{Operation, kind, resource};

    fn evaluate(expressions: &[&str], policy: FailurePolicy) -> ConditionsTrace {
        let conditions: Vec<MatchCondition> = (0..)
            .zip(expressions)
            .map(|(n, expression)| MatchCondition {
                name: format!("c{n}"),
                expression: String::from(*expression),
            })
            .collect();
        let mut request = Request::new(
            Operation::Create,
            kind("example.com", "v1", "Thing"),
            resource("example.com", "v1", "things"),
        );
        request.namespace = String::from("shop");
        request.user.username = String::from("ann");
        let object = Object::new(json!({"apiVersion": "example.com/v2", "spec": {"n": 1}}));
        let authorizer: Arc<dyn Authorizer> = Arc::new(FixedAuthorizer::AllowAll);
        let asking = asking(&request, &authorizer);
        let kind = kind("example.com", "v2", "Thing");
        let mut facts = ConditionInputs::new(&request, &kind, &request.resource, asking);
        Conditions::new(Some(&conditions)).evaluate(&mut facts, Some(&object), None, policy)
    }

    fn excluded(condition: &str) -> ConditionsVerdict {
        ConditionsVerdict::Excluded {
            condition: condition.to_owned(),
        }
    }

    #[test]
    fn a_false_condition_excludes_and_errors_before_it_are_counted() {
        let error = "object.nope == 1";
        for policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            for (expressions, verdict, errors) in [
                (&["true"][..], ConditionsVerdict::Matched, 0),
                (&["true", "false"], excluded("c1"), 0),
                (&[error, "true", "false", "true", error], excluded("c2"), 1),
                (&["false", error], excluded("c0"), 0),
                (
                    &[
                        "has(object.spec)",
                        "oldObject == null",
                        "namespaceObject == null",
                    ],
                    ConditionsVerdict::Matched,
                    0,
                ),
            ] {
                let trace = evaluate(expressions, policy);
                assert_eq!(
                    (trace.verdict, trace.errors),
                    (verdict, errors),
                    "{expressions:?}"
                );
            }
        }
    }

    #[test]
    fn errors_meet_the_failure_policy() {
        let no_key = |name: &str| {
            format!("expression 'object.{name} == 1' resulted in error: no such key: {name}")
        };
        for (expressions, error, errors) in [
            (&["object.zzz == 1", "true"][..], no_key("zzz"), 1),
            (&["object.zzz == 1", "object.zzz == 1"], no_key("zzz"), 2),
            (
                &["object.a == 1", "object.b == 1"],
                format!("[{}, {}]", no_key("a"), no_key("b")),
                2,
            ),
            (
                &["'text'"],
                String::from("compilation error: must evaluate to bool but got string"),
                1,
            ),
        ] {
            let failed = evaluate(expressions, FailurePolicy::Fail);
            let refused = ConditionsVerdict::Refused {
                error: error.clone(),
            };
            assert_eq!((failed.verdict, failed.errors), (refused, errors));
            let ignored = evaluate(expressions, FailurePolicy::Ignore);
            let verdict = ConditionsVerdict::Ignored { error };
            assert_eq!((ignored.verdict, ignored.errors), (verdict, errors));
        }
    }

    #[test]
    fn kind_is_converted_and_resource_is_not() {
        let trace = evaluate(
            &[
                "request.kind.version == 'v2'",
                "request.resource.version == 'v1'",
                "request.requestKind.version == 'v1'",
                "request.requestResource.version == 'v1'",
                "object.apiVersion == 'example.com/v2'",
                "request.userInfo.username == 'ann' && request.namespace == 'shop'",
                "request.operation == 'CREATE' && request.dryRun == false",
                "!has(request.name) && !has(request.subResource)",
                "authorizer.group('').resource('pods').check('get').allowed()",
                "authorizer.requestResource.check('update').allowed()",
            ],
            FailurePolicy::Fail,
        );
        assert_eq!(trace.verdict, ConditionsVerdict::Matched);
    }

    #[test]
    fn asking_the_authorizer_uses_up_budgets() {
        let check = "authorizer.group('').resource('pods').check('get').allowed()";
        let three = [check; 3].join(" && ");
        let trace = evaluate(&[&three], FailurePolicy::Fail);
        let error = format!(
            "expression '{three}' resulted in error: operation cancelled: actual cost limit exceeded"
        );
        assert_eq!(trace.verdict, ConditionsVerdict::Refused { error });
        let two = [check; 2].join(" && ");
        let trace = evaluate(&[&*two; 8], FailurePolicy::Fail);
        let error = String::from(
            "validation failed due to running out of cost budget, no further validation rules will \
             be run",
        );
        assert_eq!(trace.verdict, ConditionsVerdict::Refused { error });
        assert_eq!(trace.errors, 0);
    }

    /// An authorizer that counts its calls.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl Authorizer for Counting {
        fn authorize(&self, request: &AccessRequest<'_>) -> Decision {
            self.0.fetch_add(1, Ordering::Relaxed);
            FixedAuthorizer::AllowAll.authorize(request)
        }
    }

    #[test]
    fn remembers_what_equal_lists_said_about_the_same_objects() {
        let list = |pairs: &[(&str, &str)]| {
            let named = |(name, expression): &(&str, &str)| MatchCondition {
                name: String::from(*name),
                expression: String::from(*expression),
            };
            Conditions::new(Some(&pairs.iter().map(named).collect::<Vec<_>>()))
        };
        let request = Request::new(
            Operation::Create,
            kind("", "v1", "A"),
            resource("", "v1", "as"),
        );
        let counting = Arc::new(Counting::default());
        let authorizer: Arc<dyn Authorizer> = counting.clone();
        let asking = asking(&request, &authorizer);
        let mut facts = ConditionInputs::new(&request, &request.kind, &request.resource, asking);
        let one = Object::new(json!({"n": 1}));
        let two = Object::new(json!({"n": 2}));
        let is_matched = |facts: &mut ConditionInputs, conditions: &Conditions, object| {
            let trace = conditions.evaluate(facts, Some(object), None, FailurePolicy::Fail);
            trace.verdict == ConditionsVerdict::Matched
        };
        let first = list(&[("a", "object.n == 1")]);
        let again = list(&[("a", "object.n == 1")]);
        assert!(is_matched(&mut facts, &first, &one));
        assert!(is_matched(&mut facts, &again, &one));
        assert_eq!(facts.known.len(), 1);
        // Another name is another list, since the name is reported when it excludes.
        assert!(is_matched(
            &mut facts,
            &list(&[("b", "object.n == 1")]),
            &one
        ));
        assert_eq!(facts.known.len(), 2);
        facts.forget();
        assert!(!is_matched(&mut facts, &again, &two));

        let asks = list(&[("a", "authorizer.path('/x').check('get').allowed()")]);
        for _ in 0..3 {
            assert!(is_matched(&mut facts, &asks, &one));
        }
        assert_eq!(counting.0.load(Ordering::Relaxed), 3);

        for n in 0..2 * MAX_REMEMBERED {
            let expression = format!("object.n != {}", n + 10);
            assert!(is_matched(&mut facts, &list(&[("a", &expression)]), &one));
        }
        assert_eq!(facts.known.len(), MAX_REMEMBERED);
    }
}
