//! A plugin's rules: the trait that every plugin of this crate implements, its denials, and the adapter for the engine
//! of `lockgate-admission`.

use std::fmt;
use std::future::Future;

use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::host::BoxFuture;
use lockgate_admission::object::Object;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status::{forbidden_request, raw_error};
use lockgate_admission::trace::Step;
use lockgate_api::field::{FieldError, aggregate};
use lockgate_api::meta::status::{Status, StatusCause};
use serde_json::Value;

/// The requests that rules handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The operations.
    pub operations: &'static [Operation],
    /// The group; `*` for all.
    pub group: &'static str,
    /// Resources such as `pods` and `pods/resize`; `*` matches all resources without subresources, `*/*` matches
    /// everything.
    pub resources: &'static [&'static str],
}

impl About {
    /// Resources of the core group.
    #[must_use]
    pub const fn core(
        operations: &'static [Operation],
        resources: &'static [&'static str],
    ) -> Self {
        Self {
            operations,
            group: "",
            resources,
        }
    }

    /// Returns true if the request matches.
    #[must_use]
    pub fn includes(&self, request: &Request) -> bool {
        let names = |resource: &&str| match *resource {
            "*/*" => true,
            "*" => request.subresource.is_empty(),
            named => {
                let (plural, subresource) = named.split_once('/').unwrap_or((named, ""));
                plural == request.resource.resource && subresource == request.subresource
            }
        };
        self.operations.contains(&request.operation)
            && (self.group == "*" || self.group == request.resource.group)
            && self.resources.iter().any(names)
    }
}

/// Creates.
pub const CREATE: &[Operation] = &[Operation::Create];
/// Updates.
pub const UPDATE: &[Operation] = &[Operation::Update];
/// Creates and updates.
pub const WRITE: &[Operation] = &[Operation::Create, Operation::Update];

/// Creates of Pods.
pub const NEW_PODS: About = About::core(CREATE, &["pods"]);
/// Creates and updates of Pods.
pub const PODS: About = About::core(WRITE, &["pods"]);

/// Success, or the reason to end the request.
pub type Verdict = Result<(), Refusal>;

/// The reason to end a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The request is denied: 403, with the object's name before the message.
    Forbidden(String, Vec<StatusCause>),
    /// An outcome returned unchanged.
    Status(Box<Status>),
    /// An error without a status upstream: 500 with only the message.
    Plain(String),
    /// A lookup failed, so no decision was made.
    Fault(String),
}

impl Refusal {
    /// A denial of the request.
    pub fn forbidden(text: impl Into<String>) -> Self {
        Self::Forbidden(text.into(), Vec::new())
    }

    /// An error with a code, a reason and a message.
    pub fn status(code: i32, reason: &str, message: impl Into<String>) -> Self {
        Self::Status(Box::new(Status {
            kind: String::from("Status"),
            api_version: String::from("v1"),
            status: String::from("Failure"),
            message: message.into(),
            reason: reason.to_owned(),
            code,
            ..Status::default()
        }))
    }

    /// Field errors of the object, each as a cause.
    #[must_use]
    pub fn invalid(errors: &[FieldError]) -> Self {
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.error_type.reason().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        let causes = causes.collect();
        let mut refusal = Self::status(422, "Invalid", aggregate(errors));
        if let Self::Status(status) = &mut refusal {
            status.details.get_or_insert_default().causes = Some(causes);
        }
        refusal
    }

    /// Converts it to a decision on a request.
    #[must_use]
    pub fn decision(self, request: &Request) -> Decision {
        match self {
            Self::Forbidden(text, causes) => {
                let mut status = forbidden_request(request, &text);
                if !causes.is_empty() {
                    status.details.get_or_insert_default().causes = Some(causes);
                }
                Decision::deny(status, Cause::Plugin)
            }
            Self::Status(status) => Decision::deny(*status, Cause::Plugin),
            Self::Plain(text) => Decision::deny(raw_error(text), Cause::Plugin),
            Self::Fault(text) => Decision::deny(Status::internal_error(&text), Cause::Internal),
        }
    }
}

/// The rules of a plugin.
///
/// The same rules run in process ([`InTree`]) and as webhooks. They run only for the resources in
/// [`mutates`](Self::mutates) and [`validates`](Self::validates), and must be idempotent.
pub trait Rules: Send + Sync + 'static {
    /// The name that enables and disables it: upstream's if it has the plugin.
    fn name(&self) -> &'static str;

    /// The operations it handles at all, as reported in metrics.
    fn operations(&self) -> &'static [Operation] {
        WRITE
    }

    /// The requests whose objects it may mutate.
    fn mutates(&self) -> &'static [About] {
        &[]
    }

    /// The requests it may deny in the validating phase.
    fn validates(&self) -> &'static [About] {
        &[]
    }

    /// Mutates or denies an object. The object is taken out of the request meanwhile; deletions have none.
    fn mutate(&self, _: &mut Admission, _: &mut Value) -> impl Future<Output = Verdict> + Send {
        async { Ok(()) }
    }

    /// Validates the final object.
    fn validate(&self, _: &mut Admission) -> impl Future<Output = Verdict> + Send {
        async { Ok(()) }
    }
}

/// Rules as a plugin of the engine.
#[derive(Debug, Clone, Copy)]
pub struct InTree<R>(pub R);

impl<R: Rules> Plugin for InTree<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn handles(&self, operation: Operation) -> bool {
        self.0.operations().contains(&operation)
    }

    fn admits(&self) -> bool {
        !self.0.mutates().is_empty()
    }

    fn validates(&self) -> bool {
        !self.0.validates().is_empty()
    }

    fn concerns(&self, step: Step, request: &Request) -> bool {
        let about = match step {
            Step::Admit => self.0.mutates(),
            Step::Validate => self.0.validates(),
        };
        about.iter().any(|about| about.includes(request))
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        // All requests: rules see only the resources they list.
        if !self.concerns(Step::Admit, admission.request()) {
            return Box::pin(async { Decision::Allow });
        }
        Box::pin(async move {
            match mutate(&self.0, admission).await {
                Ok(()) => Decision::Allow,
                Err(refusal) => refusal.decision(admission.request()),
            }
        })
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        if !self.concerns(Step::Validate, admission.request()) {
            return Box::pin(async { Decision::Allow });
        }
        Box::pin(async move {
            match validate(&self.0, admission).await {
                Ok(()) => Decision::Allow,
                Err(refusal) => refusal.decision(admission.request()),
            }
        })
    }
}

/// Applies rules to the object of a request.
pub(crate) async fn mutate<R: Rules>(rules: &R, admission: &mut Admission) -> Verdict {
    check_shape(admission.request())?;
    let Some(object) = admission.request_mut().object.take() else {
        return rules.mutate(admission, &mut Value::Null).await;
    };
    // Rules change an object in place: unencoded fields are preserved.
    let unwritten = object.unwritten().cloned();
    let mut value = object.into_value();
    let verdict = rules.mutate(admission, &mut value).await;
    admission.set_object(Object::with_unwritten(value, unwritten));
    verdict
}

/// Validates the object of a request.
pub(crate) async fn validate<R: Rules>(rules: &R, admission: &mut Admission) -> Verdict {
    check_shape(admission.request())?;
    rules.validate(admission).await
}

/// Rejects objects with malformed fields: an unreadable list would pass as an empty one.
fn check_shape(request: &Request) -> Verdict {
    let is_pod = request.kind.group.is_empty() && request.kind.kind == "Pod";
    let comes_with_one = matches!(request.operation, Operation::Create | Operation::Update);
    if !is_pod || !comes_with_one {
        return Ok(());
    }
    let unreadable = |what: &str| {
        let message =
            format!("Resource was marked with kind Pod but was unable to be converted: {what}");
        Err(Refusal::status(400, "BadRequest", message))
    };
    let Some(pod) = &request.object else {
        return unreadable("no object");
    };
    let Some(spec) = pod.value().get("spec").filter(|spec| !spec.is_null()) else {
        return Ok(());
    };
    let Some(spec) = spec.as_object() else {
        return unreadable("spec is no object");
    };
    for name in CONTAINER_LISTS
        .into_iter()
        .chain(["volumes", "tolerations"])
    {
        let is_list = spec.get(name).is_none_or(|list| match list {
            Value::Null => true,
            Value::Array(items) => items.iter().all(Value::is_object),
            _ => false,
        });
        if !is_list {
            return unreadable(&format!("spec.{name} is no list of objects"));
        }
    }
    Ok(())
}

/// The container lists of a Pod spec, in the order they are visited.
///
/// UPSTREAM: kubernetes pkg/apis/core/pods/helpers.go
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// The new object of a request, if any.
pub(crate) fn object(request: &Request) -> &Value {
    request
        .object
        .as_ref()
        .map_or(&Value::Null, |object| object.value())
}

/// The stored object of a request, if any.
pub(crate) fn old_object(request: &Request) -> &Value {
    let old = request.old_object.as_ref();
    old.map_or(&Value::Null, |object| object.value())
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forbidden(text, _) | Self::Plain(text) | Self::Fault(text) => text,
            Self::Status(status) => &status.message,
        })
    }
}
