//! `AlwaysPullImages`: images are pulled anew for every pod, so that nobody uses an image that
//! somebody else had the credentials for.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/alwayspullimages/admission.go

use std::collections::HashSet;

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::status::Status;
use serde_json::{Value, json};

use super::pod::{self, CONTAINER_LISTS, is_about_pods, items, items_mut, text};
use crate::decision::{Cause, Decision};
use crate::host::BoxFuture;
use crate::plugin::{Admission, Plugin};
use crate::request::{Operation, Request};
use crate::status;

/// Sets every pull policy to `Always`, and refuses pods that have another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlwaysPullImages;

impl AlwaysPullImages {
    /// Whether a pod concerns this plugin: a new one, or one that names an image it had not before.
    #[must_use]
    pub fn concerns(pod: &Value, old: Option<&Value>) -> bool {
        old.is_none_or(|old| has_new_image(pod, old))
    }

    /// Sets every pull policy of a pod, and says whether any was different.
    pub fn set_policies(pod: &mut Value) -> bool {
        if Self::wrong_policies(pod).is_empty() {
            return false;
        }
        for list in CONTAINER_LISTS {
            for container in items_mut(pod, list) {
                if let Some(container) = container.as_object_mut() {
                    container.insert(String::from("imagePullPolicy"), json!("Always"));
                }
            }
        }
        for volume in items_mut(pod, "volumes") {
            if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
                image.insert(String::from("pullPolicy"), json!("Always"));
            }
        }
        true
    }

    /// What is wrong with each pull policy of a pod, in the order containers are visited.
    #[must_use]
    pub fn wrong_policies(pod: &Value) -> Vec<FieldError> {
        wrong_policies(pod)
    }

    /// The pod; none when the request is about something else, or names no new image.
    fn pod_of(request: &Request) -> Result<Option<&Value>, Decision> {
        if !is_about_pods(request) {
            return Ok(None);
        }
        let pod = pod::pod_of(request)?;
        let old = request.old_object.as_ref();
        let old = old.filter(|_| request.operation == Operation::Update);
        Ok(Self::concerns(pod, old.map(|old| old.value())).then_some(pod))
    }

    fn set(admission: &mut Admission) -> Decision {
        let pod = match Self::pod_of(admission.request()) {
            Ok(Some(pod)) => pod,
            Ok(None) => return Decision::Allow,
            Err(refused) => return refused,
        };
        if wrong_policies(pod).is_empty() {
            return Decision::Allow;
        }
        let mut pod = pod.clone();
        Self::set_policies(&mut pod);
        admission.set_object(pod);
        Decision::Allow
    }

    fn check(request: &Request) -> Decision {
        let pod = match Self::pod_of(request) {
            Ok(Some(pod)) => pod,
            Ok(None) => return Decision::Allow,
            Err(refused) => return refused,
        };
        let refusals: Vec<Status> = wrong_policies(pod)
            .into_iter()
            .map(|error| status::forbidden_request(request, &error.to_string()))
            .collect();
        match refusals.as_slice() {
            [] => Decision::Allow,
            // Upstream aggregates the errors, and an aggregate has no status of its own.
            all => {
                let mut texts: Vec<&str> = Vec::new();
                for refusal in all {
                    if !texts.contains(&refusal.message.as_str()) {
                        texts.push(&refusal.message);
                    }
                }
                let message = match texts.as_slice() {
                    [one] => String::from(*one),
                    many => format!("[{}]", many.join(", ")),
                };
                Decision::deny(status::raw_error(message), Cause::Plugin)
            }
        }
    }
}

fn wrong_policies(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::root("spec");
    let supported = ["Always"];
    for list in CONTAINER_LISTS {
        let path = spec.child(list);
        for (n, container) in items(pod, list).iter().enumerate() {
            let policy = text(container, "imagePullPolicy");
            if policy != "Always" {
                let path = path.index(n);
                let path = path.child("imagePullPolicy");
                let shown = Shown::Named(policy);
                errors.push(FieldError::not_supported(&path, shown, &supported));
            }
        }
    }
    let path = spec.child("volumes");
    for (n, volume) in items(pod, "volumes").iter().enumerate() {
        let image = volume.get("image").filter(|image| !image.is_null());
        if let Some(policy) = image.map(|image| text(image, "pullPolicy"))
            && policy != "Always"
        {
            let path = path.index(n);
            let path = path.child("image");
            let path = path.child("pullPolicy");
            let shown = Shown::Named(policy);
            errors.push(FieldError::not_supported(&path, shown, &supported));
        }
    }
    errors
}

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    CONTAINER_LISTS
        .into_iter()
        .flat_map(|list| items(pod, list))
        .map(|container| text(container, "image"))
}

fn has_new_image(pod: &Value, old: &Value) -> bool {
    let known: HashSet<&str> = images(old).collect();
    images(pod).any(|image| !known.contains(image))
}

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
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
        Box::pin(async move { Self::set(admission) })
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move { Self::check(admission.request()) })
    }
}
