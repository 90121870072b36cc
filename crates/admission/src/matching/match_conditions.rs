//! The match conditions: the last predicate, and the only one that costs.
//!
//! They are evaluated on the object in the version the webhook asked for, at the webhook's turn. A
//! false one excludes the webhook whatever else happens; what cannot be evaluated meets the failure
//! policy. The expressions themselves are the business of the crate `lockgate-cel`.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go

use std::sync::Arc;
use std::time::Duration;

use lockgate_api::admission::GroupVersionKind;
use lockgate_api::registration::hub::MatchCondition;
use lockgate_cel::admission::{self as cel, Judgement, MatchConditions, Outcome, Variables};
use lockgate_cel::ext::authorizer::{Authorizer, AuthorizerValue, User};

use crate::configuration::FailurePolicy;
use crate::object::Object;
use crate::request::Request;

/// The conditions of one webhook, compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(MatchConditions);

/// What the conditions said, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionsTrace {
    /// What follows.
    pub verdict: ConditionsVerdict,
    /// How many could not be evaluated, up to the first that was false.
    pub errors: usize,
    /// How long evaluation took.
    pub elapsed: Duration,
}

/// What match conditions say.
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

/// What conditions are evaluated on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'i> {
    pub(crate) request: &'i Request,
    /// The kind the objects are in.
    pub(crate) kind: &'i GroupVersionKind,
    pub(crate) object: Option<&'i Object>,
    pub(crate) old_object: Option<&'i Object>,
    pub(crate) authorizer: &'i Arc<dyn Authorizer>,
}

impl Conditions {
    pub(crate) fn new(conditions: Option<&[MatchCondition]>) -> Self {
        let named = conditions
            .unwrap_or_default()
            .iter()
            .map(|condition| (&*condition.name, &*condition.expression));
        Self(MatchConditions::compile(named))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates all conditions. The time is filled in by whoever has a clock.
    pub(crate) fn evaluate(&self, input: &Input<'_>, policy: FailurePolicy) -> ConditionsTrace {
        let request = variable(input);
        let json = request.to_json();
        let user = Arc::new(user(input.request));
        let authorizer = AuthorizerValue::new(user, Arc::clone(input.authorizer));
        let variables = Variables::new(&json)
            .object(input.object.map(Object::value))
            .old_object(input.old_object.map(Object::value))
            .authorizer(authorizer, &request);
        let Judgement { outcome, errors } = self.0.judge(&variables.evaluator());
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
}

/// The variable `request`. Its `resource` stays the one the client addressed, even where the webhook
/// is sent another.
fn variable(input: &Input<'_>) -> cel::Request {
    let request = input.request;
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
    let user = user(request);
    cel::Request {
        kind: kind(input.kind),
        resource: resource.clone(),
        sub_resource: request.subresource.clone(),
        request_kind: kind(&request.kind),
        request_resource: resource,
        request_sub_resource: request.subresource.clone(),
        name: request.name.clone(),
        namespace: request.namespace.clone(),
        operation: request.operation.name().to_owned(),
        username: user.name,
        user_uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        dry_run: request.dry_run,
        options: request
            .options
            .as_ref()
            .map(|options| options.value().clone()),
    }
}

fn user(request: &Request) -> User {
    User {
        name: request.user.username.clone(),
        uid: request.user.uid.clone(),
        groups: request.user.groups.clone().unwrap_or_default(),
        extra: request.user.extra.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_cel::ext::authorizer::FixedAuthorizer;
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
        Conditions::new(Some(&conditions)).evaluate(
            &Input {
                request: &request,
                kind: &kind("example.com", "v2", "Thing"),
                object: Some(&object),
                old_object: None,
                authorizer: &authorizer,
            },
            policy,
        )
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
}
