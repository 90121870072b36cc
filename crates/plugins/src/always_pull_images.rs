//! `AlwaysPullImages`: images are pulled for every Pod, so that a Pod cannot use an image that was pulled with the
//! credentials of another.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/alwayspullimages/admission.go

use std::collections::HashSet;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status::forbidden_request;
use lockgate_api::field::{FieldError, Path, Shown};
use serde_json::{Value, json};

use crate::fields::{CONTAINER_LISTS, at, items, items_mut, text};
use crate::rules::{About, PODS, Refusal, Rules, Verdict, object, old_object};
use crate::texts::aggregate;

/// Sets every pull policy to `Always`, and denies Pods with another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlwaysPullImages;

/// Returns true if the Pod is new, or has a new image.
fn concerns(request: &Request, pod: &Value) -> bool {
    request.operation == Operation::Create || has_new_image(pod, old_object(request))
}

fn set_policies(pod: &mut Value) {
    for list in CONTAINER_LISTS {
        for container in items_mut(pod, &["spec", list]) {
            if let Some(container) = container.as_object_mut() {
                container.insert(String::from("imagePullPolicy"), json!("Always"));
            }
        }
    }
    for volume in items_mut(pod, &["spec", "volumes"]) {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert(String::from("pullPolicy"), json!("Always"));
        }
    }
}

/// The errors for pull policies of a Pod, in the order containers are visited.
fn wrong_policies(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::root("spec");
    let supported = ["Always"];
    for list in CONTAINER_LISTS {
        let path = spec.child(list);
        for (n, container) in items(pod, &["spec", list]).iter().enumerate() {
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
    for (n, volume) in items(pod, &["spec", "volumes"]).iter().enumerate() {
        if let Some(policy) = at(volume, &["image"]).map(|image| text(image, "pullPolicy"))
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
        .flat_map(|list| items(pod, &["spec", list]))
        .map(|container| text(container, "image"))
}

fn has_new_image(pod: &Value, old: &Value) -> bool {
    let known: HashSet<&str> = images(old).collect();
    images(pod).any(|image| !known.contains(image))
}

impl Rules for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn mutates(&self) -> &'static [About] {
        &[PODS]
    }

    fn validates(&self) -> &'static [About] {
        &[PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        if concerns(ask.request(), pod) {
            set_policies(pod);
        }
        Ok(())
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let pod = object(request);
        if !concerns(request, pod) {
            return Ok(());
        }
        // Upstream returns an aggregate error, which has no status.
        let refusals = wrong_policies(pod).into_iter();
        let refusals = refusals.map(|error| forbidden_request(request, &error.to_string()).message);
        match aggregate(refusals.collect()) {
            None => Ok(()),
            Some(message) => Err(Refusal::Plain(message)),
        }
    }
}
