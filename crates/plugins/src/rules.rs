//! A plugin's rules: the one trait that every plugin of this crate is written on, how a refusal is said,
//! and how the engine of `lockgate-admission` runs them.

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
    /// The group; `*` for all of them.
    pub group: &'static str,
    /// Resources such as `pods` and `pods/resize`; `*` is all resources without their subresources,
    /// `*/*` is everything.
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

    /// Returns true if the request is one of these.
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

/// New objects.
pub const CREATE: &[Operation] = &[Operation::Create];
/// Changed objects.
pub const UPDATE: &[Operation] = &[Operation::Update];
/// New and changed objects.
pub const WRITE: &[Operation] = &[Operation::Create, Operation::Update];

/// New pods.
pub const NEW_PODS: About = About::core(CREATE, &["pods"]);
/// New and changed pods.
pub const PODS: About = About::core(WRITE, &["pods"]);

/// Nothing against it, or a reason to stop.
pub type Verdict = Result<(), Refusal>;

/// Why a request does not go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The rules do not allow it: 403, with the object's name before the text.
    Forbidden(String, Vec<StatusCause>),
    /// An outcome returned unchanged.
    Status(Box<Status>),
    /// An error that upstream gives no status: 500 with nothing but the text.
    Plain(String),
    /// A lookup failed, so no decision was made.
    Fault(String),
}

impl Refusal {
    /// The rules do not allow it.
    pub fn forbidden(text: impl Into<String>) -> Self {
        Self::Forbidden(text.into(), Vec::new())
    }

    /// An outcome with a code, a reason and a message.
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

    /// Fields of the object are wrong, each with a cause that names it.
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

    /// The same as a decision about a request.
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
    /// The name it is switched on and off by: upstream's, where there is one.
    fn name(&self) -> &'static str;

    /// The operations it takes part in at all, which metrics tell.
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

    /// Changes an object, or refuses it. The object is not in the request meanwhile; deletions have none.
    fn mutate(&self, _: &mut Admission, _: &mut Value) -> impl Future<Output = Verdict> + Send {
        async { Ok(()) }
    }

    /// Decides about the final object.
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

/// Has rules change the object of a request.
pub(crate) async fn mutate<R: Rules>(rules: &R, admission: &mut Admission) -> Verdict {
    check_shape(admission.request())?;
    let Some(object) = admission.request_mut().object.take() else {
        return rules.mutate(admission, &mut Value::Null).await;
    };
    // Rules change an object in place: what was there unwritten is there still.
    let unwritten = object.unwritten().cloned();
    let mut value = object.into_value();
    let verdict = rules.mutate(admission, &mut value).await;
    admission.set_object(Object::with_unwritten(value, unwritten));
    verdict
}

/// Has rules decide about the object of a request.
pub(crate) async fn validate<R: Rules>(rules: &R, admission: &mut Admission) -> Verdict {
    check_shape(admission.request())?;
    rules.validate(admission).await
}

/// Refuses what is not shaped like the pod it is said to be: a list that cannot be read would pass for an
/// empty one.
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

/// Every list of containers in a pod's spec, in the order they are visited.
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
