//! Match conditions, compiled and evaluated: the last predicate, and the only one that costs.
//!
//! They are evaluated on the object in the version the webhook asked for, at the webhook's turn. A
//! false one excludes the webhook whatever else happens; what cannot be evaluated meets the failure
//! policy. The expressions themselves are the business of the crate `lockgate-cel`.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::access::{Authorizer, User};
use lockgate_api::admission::GroupVersionKind;
use lockgate_api::registration::hub::MatchCondition;
use lockgate_api::registration::validation::{Environment, ExpressionChecker};
use lockgate_cel::admission::{self as cel, Judgement, MatchConditions, Outcome, Variables};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use serde_json::Value;

use crate::decision::FailurePolicy;
use crate::object::Object;
use crate::request::Request;

/// So many different lists of conditions are remembered for one state of the objects.
const MAX_REMEMBERED: usize = 64;

/// The conditions of one webhook, compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(Arc<List>);

#[derive(Debug, Default)]
struct List {
    conditions: MatchConditions,
    /// A sum of names and expressions. None when what they say may not be remembered: the authorizer
    /// is asked anew every time.
    sum: Option<u64>,
}

/// The feature gate `AdmissionWebhookMatchConditions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ConditionsGate {
    /// They do.
    #[default]
    Enabled,
    /// They do not: webhooks that have some are called as if they had none.
    Disabled,
}

/// The verdict of match conditions and its cost in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsTrace {
    /// The verdict.
    pub verdict: ConditionsVerdict,
    /// How many could not be evaluated, up to the first that was false.
    pub errors: usize,
    /// How long evaluation took.
    pub elapsed: Duration,
}

/// The verdict of match conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionsVerdict {
    /// All hold.
    Matched,
    /// This one does not.
    Excluded {
        /// Its name.
        condition: String,
    },
    /// They cannot be evaluated, and the failure policy is to go on without the webhook.
    Ignored {
        /// Why.
        error: String,
    },
    /// They cannot be evaluated, and the failure policy is to refuse the request.
    Refused {
        /// Why.
        error: String,
    },
}

/// The variables of conditions for a request in one version. Built for the first webhook that has any, and
/// kept for the others.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The request behind `authorizer.requestResource`.
    request: cel::Request,
    /// The variable `request`.
    variable: Value,
    authorizer: AuthorizerValue,
    /// Verdicts of condition lists about the current objects.
    known: Vec<(Conditions, Judgement)>,
}

impl Facts {
    pub(crate) fn new(
        request: &Request,
        kind: &GroupVersionKind,
        authorizer: AuthorizerValue,
    ) -> Self {
        let mut request = variable(request, kind);
        let variable = request.to_json();
        // They are in the variable now, and may be large.
        request.options = None;
        Self {
            request,
            variable,
            authorizer,
            known: Vec::new(),
        }
    }

    /// The objects have changed.
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
        let named = conditions
            .iter()
            .map(|condition| (&*condition.name, &*condition.expression));
        Self(Arc::new(List {
            conditions: MatchConditions::compile(named),
            sum,
        }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.conditions.is_empty()
    }

    /// Evaluates all conditions. The time is filled in by whoever has a clock.
    pub(crate) fn evaluate(
        &self,
        facts: &mut Facts,
        object: Option<&Object>,
        old_object: Option<&Object>,
        policy: FailurePolicy,
    ) -> ConditionsTrace {
        let known = facts.known.iter().find(|(known, _)| self.is_as(known));
        let Judgement { outcome, errors } = match known {
            Some((_, judgement)) => judgement.clone(),
            None => {
                let variables = Variables::new(&facts.variable)
                    .object(object.map(Object::value))
                    .old_object(old_object.map(Object::value))
                    .authorizer(facts.authorizer.clone(), &facts.request);
                let judgement = self.0.conditions.judge(&variables.evaluator());
                if self.0.sum.is_some() && facts.known.len() < MAX_REMEMBERED {
                    facts.known.push((self.clone(), judgement.clone()));
                }
                judgement
            }
        };
        let verdict = match (outcome, policy) {
            (Outcome::Match, _) => ConditionsVerdict::Matched,
            (Outcome::NoMatch(name), _) => ConditionsVerdict::Excluded {
                condition: name.unwrap_or_default(),
            },
            (Outcome::Refuse(error), FailurePolicy::Ignore) => ConditionsVerdict::Ignored { error },
            (Outcome::Refuse(error), FailurePolicy::Fail) => ConditionsVerdict::Refused { error },
        };
        ConditionsTrace {
            verdict,
            errors,
            elapsed: Duration::ZERO,
        }
    }

    /// Returns `true` if both have the same conditions.
    fn is_as(&self, other: &Self) -> bool {
        fn list(conditions: &Conditions) -> impl Iterator<Item = (&str, &str)> {
            let list = conditions.0.conditions.conditions();
            list.iter().map(|c| (&*c.name, &*c.expression))
        }
        // The sum tells most apart; that equal ones are equal is for the texts to say.
        self.0.sum.is_some()
            && self.0.sum == other.0.sum
            && (Arc::ptr_eq(&self.0, &other.0) || list(self).eq(list(other)))
    }
}

/// Who asks the authorizer.
pub(crate) fn asking(request: &Request, authorizer: &Arc<dyn Authorizer>) -> AuthorizerValue {
    let user = User {
        name: request.user.username.clone(),
        uid: request.user.uid.clone(),
        groups: request.user.groups.clone().unwrap_or_default(),
        extra: request.user.extra.clone().unwrap_or_default(),
    };
    AuthorizerValue::new(Arc::new(user), Arc::clone(authorizer))
}

/// The variable `request`. Its `resource` stays the one the client addressed, even where the webhook
/// is sent another.
fn variable(request: &Request, converted: &GroupVersionKind) -> cel::Request {
    let kind = |kind: &GroupVersionKind| cel::GroupVersionKind {
        group: kind.group.clone(),
        version: kind.version.clone(),
        kind: kind.kind.clone(),
    };
    let resource = cel::GroupVersionResource {
        group: request.resource.group.clone(),
        version: request.resource.version.clone(),
        resource: request.resource.resource.clone(),
    };
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

/// Compiles match conditions when registrations are validated, as a v1.36 server does.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchConditionChecker;

impl ExpressionChecker for MatchConditionChecker {
    /// New and stored expressions have the same language in this release.
    fn check(&self, expression: &str, _: Environment) -> Result<(), String> {
        cel::check_condition(expression)
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
        let mut facts = Facts::new(&request, &kind("example.com", "v2", "Thing"), asking);
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

    /// Counts how often it is asked.
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
        let mut facts = Facts::new(&request, &request.kind, asking(&request, &authorizer));
        let one = Object::new(json!({"n": 1}));
        let two = Object::new(json!({"n": 2}));
        let is_matched = |facts: &mut Facts, conditions: &Conditions, object| {
            let trace = conditions.evaluate(facts, Some(object), None, FailurePolicy::Fail);
            trace.verdict == ConditionsVerdict::Matched
        };
        let first = list(&[("a", "object.n == 1")]);
        let again = list(&[("a", "object.n == 1")]);
        assert!(is_matched(&mut facts, &first, &one));
        assert!(is_matched(&mut facts, &again, &one));
        assert_eq!(facts.known.len(), 1);
        // Another name is another list: it is named when it excludes.
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
