//! The object selector.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/predicates/object/matcher.go

use crate::configuration::{Labels, selects};
use crate::object::{Object, find};
use crate::request::Request;

/// The verdict of the object selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectVerdict {
    /// The selector is empty.
    Everything,
    /// The new object's labels match.
    MatchedObject,
    /// Only the stored object's labels match. This is a match, so that a label change does not bypass webhooks.
    MatchedOldObject,
    /// Neither object's labels match.
    Refused,
    /// The selector is invalid.
    Error,
}

pub(super) fn verdict(
    selector: &Labels,
    request: &Request,
    object: Option<&Object>,
) -> ObjectVerdict {
    let selector = match selector {
        Labels::Everything => return ObjectVerdict::Everything,
        Labels::Broken(_) => return ObjectVerdict::Error,
        Labels::Nothing => return ObjectVerdict::Refused,
        Labels::Selected(selector) => selector,
    };
    // An object without metadata matches nothing, not even the absence of a label.
    let matches = |object: &Object| {
        let labels = object.labels();
        request.has_metadata(object) && selects(selector, |key| find(labels?, key)?.as_str())
    };
    if object.is_some_and(matches) {
        ObjectVerdict::MatchedObject
    } else if request.old_object.as_ref().is_some_and(matches) {
        ObjectVerdict::MatchedOldObject
    } else {
        ObjectVerdict::Refused
    }
}
