//! `Priority`: a pod's priority is that of its class.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/priority/admission.go

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::host::BoxFuture;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status::forbidden_request;
use serde_json::Value;

use crate::metadata;

/// The preemption policy without a class.
const PREEMPT_LOWER: &str = "PreemptLowerPriority";

/// The priority classes by name.
#[derive(Debug, Default)]
pub(crate) struct PriorityClasses(RwLock<BTreeMap<String, Class>>);

#[derive(Debug, Clone)]
struct Class {
    value: i64,
    preemption: Option<String>,
    is_default: bool,
}

impl PriorityClasses {
    /// Adds or replaces a class.
    pub(crate) fn set(&self, name: &str, object: &Value) {
        let class = Class {
            value: object
                .get("value")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            preemption: object
                .get("preemptionPolicy")
                .and_then(Value::as_str)
                .map(str::to_owned),
            is_default: object
                .get("globalDefault")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        };
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), class);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    fn find(&self, name: &str) -> Option<Class> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// The class of pods that name none; of several the lowest.
    fn default(&self) -> Option<(String, Class)> {
        let classes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let defaults = classes.iter().filter(|(_, class)| class.is_default);
        defaults
            .min_by_key(|(_, class)| class.value)
            .map(|(name, class)| (name.clone(), class.clone()))
    }
}

/// Sets the priority of pods.
#[derive(Debug)]
pub(crate) struct Priority(pub(crate) Arc<PriorityClasses>);

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn admits(&self) -> bool {
        true
    }

    fn validates(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move { self.set(admission) })
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move { self.check_class(admission.request()) })
    }
}

fn is(request: &Request, group: &str, resource: &str) -> bool {
    request.resource.group == group
        && request.resource.resource == resource
        && request.subresource.is_empty()
}

fn refuse(request: &Request, why: &str) -> Decision {
    Decision::deny(forbidden_request(request, why), Cause::Plugin)
}

impl Priority {
    fn set(&self, admission: &mut Admission) -> Decision {
        let request = admission.request();
        let Some(pod) = request.object.as_ref().filter(|_| is(request, "", "pods")) else {
            return Decision::Allow;
        };
        let mut pod = pod.value().clone();
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return Decision::Allow;
        };
        if request.operation == Operation::Update {
            let old = request
                .old_object
                .as_ref()
                .and_then(|old| old.value().get("spec"));
            for member in ["priority", "preemptionPolicy"] {
                if !spec.contains_key(member)
                    && let Some(known) = old.and_then(|old| old.get(member))
                {
                    spec.insert(member.to_owned(), known.clone());
                }
            }
            admission.set_object(pod);
            return Decision::Allow;
        }
        let named = spec
            .get("priorityClassName")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let (name, class) = if named.is_empty() {
            let nothing = Class {
                value: 0,
                preemption: Some(PREEMPT_LOWER.to_owned()),
                is_default: false,
            };
            self.0.default().unwrap_or_else(|| (String::new(), nothing))
        } else {
            match self.0.find(&named) {
                Some(class) => (named, class),
                None => {
                    return refuse(
                        request,
                        &format!("no PriorityClass with name {named} was found"),
                    );
                }
            }
        };
        if let Some(own) = spec
            .get("priority")
            .and_then(Value::as_i64)
            .filter(|&own| own != class.value)
        {
            let why = format!(
                "the integer value of priority ({own}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.value
            );
            return refuse(request, &why);
        }
        if let (Some(policy), Some(own)) = (
            &class.preemption,
            spec.get("preemptionPolicy").and_then(Value::as_str),
        ) && own != policy
        {
            let why = format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority \
                 admission controller computed {policy} from the given PriorityClass name"
            );
            return refuse(request, &why);
        }
        if !name.is_empty() {
            spec.insert(String::from("priorityClassName"), name.into());
        }
        spec.insert(String::from("priority"), class.value.into());
        if let Some(policy) = class.preemption {
            spec.insert(String::from("preemptionPolicy"), policy.into());
        }
        admission.set_object(pod);
        Decision::Allow
    }

    /// There is one default at most.
    fn check_class(&self, request: &Request) -> Decision {
        let Some(class) = request
            .object
            .as_ref()
            .filter(|_| is(request, "scheduling.k8s.io", "priorityclasses"))
        else {
            return Decision::Allow;
        };
        let wants = class
            .value()
            .get("globalDefault")
            .and_then(Value::as_bool)
            .unwrap_or_default();
        match self.0.default().filter(|_| wants) {
            Some((known, _))
                if known != metadata::text(class.value(), "name")
                    || request.operation == Operation::Create =>
            {
                refuse(
                    request,
                    &format!(
                        "PriorityClass {known} is already marked as default. Only one default can exist"
                    ),
                )
            }
            _ => Decision::Allow,
        }
    }
}
