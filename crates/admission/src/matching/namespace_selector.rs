//! The namespace selector.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/predicates/namespace/matcher.go

use std::sync::Arc;

use super::NamespaceMissing;
use crate::configuration::{Labels, selects};
use crate::host::{Namespace, NamespaceError, Namespaces};
use crate::object::{Object, SMALL, first_named};
use crate::request::{Operation, Request};

/// The verdict of the namespace selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceVerdict {
    /// The request is not namespaced, so the selector does not apply.
    NotNamespaced,
    /// The selector is empty, so the namespace was not looked up.
    Everything,
    /// The namespace's labels match.
    Matched,
    /// The namespace's labels do not match.
    Refused,
    /// The selector is invalid or the namespace cannot be read.
    Error,
}

/// The result of the namespace lookup.
#[derive(Debug)]
pub(crate) enum NamespaceLookup {
    /// Not looked up yet.
    Unasked,
    /// The namespace exists.
    Known(Arc<Namespace>),
    /// It does not exist or cannot be read.
    Failed(NamespaceError),
}

pub(super) fn verdict(
    selector: &Labels,
    request: &Request,
    object: Option<&Object>,
    lookup: &mut NamespaceLookup,
    namespaces: &dyn Namespaces,
) -> Result<NamespaceVerdict, NamespaceMissing> {
    let is_namespaces = request.resource.resource == "namespaces";
    if request.namespace.is_empty() && !is_namespaces {
        return Ok(NamespaceVerdict::NotNamespaced);
    }
    match selector {
        Labels::Broken(_) => return Ok(NamespaceVerdict::Error),
        Labels::Everything => return Ok(NamespaceVerdict::Everything),
        Labels::Nothing | Labels::Selected(_) => {}
    }
    // The cache does not have the labels that the namespace will have.
    let carries_labels = is_namespaces
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update);
    if carries_labels {
        return Ok(told(selector, |key| {
            object.and_then(|object| object.label(key))
        }));
    }
    if let NamespaceLookup::Unasked = lookup {
        let cached = namespaces.cached(&request.namespace);
        *lookup = NamespaceLookup::Known(cached.ok_or(NamespaceMissing)?);
    }
    Ok(match lookup {
        NamespaceLookup::Known(namespace) => told(selector, |key| {
            let labels = &namespace.labels;
            let found = if labels.len() > SMALL {
                labels.get(key)
            } else {
                first_named(labels.iter(), key)
            };
            found.map(String::as_str)
        }),
        NamespaceLookup::Failed(_) | NamespaceLookup::Unasked => NamespaceVerdict::Error,
    })
}

fn told<'l>(selector: &Labels, look_up: impl Fn(&str) -> Option<&'l str>) -> NamespaceVerdict {
    match selector {
        Labels::Selected(selector) if selects(selector, look_up) => NamespaceVerdict::Matched,
        _ => NamespaceVerdict::Refused,
    }
}
