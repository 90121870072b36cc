//! The objects of a request in a webhook's version, and the reviews built from them.
//!
//! Each object is converted once per version and encoded once per state; a review is built once per state, resource and
//! review version.
//!
//! UPSTREAM: apiserver pkg/admission/conversion.go

use std::sync::Arc;

use lockgate_api::admission::request::{Review, ReviewBody};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, ReviewVersion};
use serde_json::Value;

use crate::conditions::ConditionInputs;
use crate::host::{ConvertError, Kinds};
use crate::matching::Target;
use crate::object::Object;
use crate::request::Request;

/// Both objects in one version.
#[derive(Debug)]
pub(crate) struct Versioned {
    pub(crate) kind: GroupVersionKind,
    pub(crate) object: Option<Object>,
    pub(crate) old_object: Option<Object>,
    /// The variables of match conditions, built for the first webhook that has any.
    pub(super) facts: Option<ConditionInputs>,
}

impl Versioned {
    pub(crate) async fn new(
        kinds: &dyn Kinds,
        request: &Request,
        kind: &GroupVersionKind,
    ) -> Result<Self, ConvertError> {
        let old_object = convert_some(kinds, request.old_object.as_ref(), kind).await?;
        let object = convert_some(kinds, request.object.as_ref(), kind).await?;
        Ok(Self {
            kind: kind.clone(),
            object,
            old_object,
            facts: None,
        })
    }

    /// Replaces the object.
    pub(super) fn replace_object(&mut self, object: Object) {
        self.object = Some(object);
        if let Some(facts) = &mut self.facts {
            facts.forget();
        }
    }
}

async fn convert_some(
    kinds: &dyn Kinds,
    object: Option<&Object>,
    to: &GroupVersionKind,
) -> Result<Option<Object>, ConvertError> {
    match object {
        Some(object) => convert(kinds, object, to).await.map(Some),
        None => Ok(None),
    }
}

/// Converts an object to another version; returns the object itself if it is in that version already.
pub(crate) async fn convert(
    kinds: &dyn Kinds,
    object: &Object,
    to: &GroupVersionKind,
) -> Result<Object, ConvertError> {
    if is_of(object.value(), to) {
        Ok(object.clone())
    } else {
        kinds.convert(object, to).await
    }
}

/// Returns `true` if a tree has the given kind, or none.
fn is_of(value: &Value, kind: &GroupVersionKind) -> bool {
    let says = |name: &str| value.get(name).and_then(Value::as_str);
    let Some(found) = says("kind") else {
        return true;
    };
    let api_version = says("apiVersion").unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group, version, found) == (&*kind.group, &*kind.version, &*kind.kind)
}

/// The reviews for one state of the objects.
#[derive(Debug, Default)]
pub(super) struct Reviews(Vec<(Target, ReviewVersion, Arc<ReviewBody>)>);

impl Reviews {
    /// Clears the cache after a change of the objects.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The review for one target, built on first use.
    pub(super) fn body(
        &mut self,
        request: &Request,
        versioned: &Versioned,
        target: Target,
        resource: &GroupVersionResource,
        version: ReviewVersion,
    ) -> Arc<ReviewBody> {
        let known = self
            .0
            .iter()
            .find(|known| (known.0, known.1) == (target, version));
        if let Some((_, _, body)) = known {
            return Arc::clone(body);
        }
        let review = Review {
            kind: &versioned.kind,
            resource,
            sub_resource: &request.subresource,
            request_kind: &request.kind,
            request_resource: &request.resource,
            request_sub_resource: &request.subresource,
            name: &request.name,
            namespace: &request.namespace,
            operation: request.operation.name(),
            user_info: &request.user,
            object: versioned.object.as_ref().map(Object::text),
            old_object: versioned.old_object.as_ref().map(Object::text),
            dry_run: request.dry_run,
            options: request.options.as_ref().map(Object::text),
        };
        let body = Arc::new(ReviewBody::new(&review, version));
        self.0.push((target, version, Arc::clone(&body)));
        body
    }
}
