//! The facts of one request, which upstream calls attributes.
//!
//! A host sets them from a decoded write; there are no decisions here. The object is the only fact that changes during
//! admission, because mutating plugins replace it.

use std::time::Instant;

use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, UserInfo};
use lockgate_api::registration;

use crate::object::Object;

/// An admission operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object, by update or by patch.
    Update,
    /// A deleted object.
    Delete,
    /// A connection to an object, such as `pods/exec`.
    Connect,
}

impl Operation {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// The name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// The operation with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The kind of `object`; for subresources the kind of the subresource.
    pub kind: GroupVersionKind,
    /// The requested resource, without its subresource.
    pub resource: GroupVersionResource,
    /// The subresource; may be empty.
    pub subresource: String,
    /// The name in the URL; empty before the server has generated it.
    pub name: String,
    /// The namespace; for a Namespace its own name; empty for cluster-scoped resources.
    pub namespace: String,
    /// The requesting user.
    pub user: UserInfo,
    /// The new object in `kind`. Absent for deletions.
    pub object: Option<Object>,
    /// The stored object in `kind`.
    pub old_object: Option<Object>,
    /// The options of the operation, with `apiVersion` and `kind`.
    pub options: Option<Object>,
    /// `true` for dry runs.
    pub dry_run: bool,
    /// The deadline of the request.
    pub deadline: Option<Instant>,
    /// True if the object has timestamps with a higher resolution than their JSON. Upstream's objects have, when a
    /// write changed `managedFields`: the first patch of a webhook truncates them, and therefore counts as a change in
    /// any case.
    pub fine_times: bool,
    /// The object before the first patch.
    unpatched: Option<Object>,
}

impl Request {
    /// Creates a request with these facts; all others are empty.
    #[must_use]
    pub fn new(
        operation: Operation,
        kind: GroupVersionKind,
        resource: GroupVersionResource,
    ) -> Self {
        Self {
            operation,
            kind,
            resource,
            subresource: String::new(),
            name: String::new(),
            namespace: String::new(),
            user: UserInfo::default(),
            object: None,
            old_object: None,
            options: None,
            dry_run: false,
            deadline: None,
            fine_times: false,
            unpatched: None,
        }
    }

    /// Replaces the object with a patched one.
    pub(crate) fn set_patched(&mut self, object: Object) {
        if let Some(before) = self.object.replace(object) {
            self.unpatched.get_or_insert(before);
        }
    }

    /// The object before the first patch, if any.
    pub(crate) fn take_unpatched(&mut self) -> Option<Object> {
        self.unpatched.take()
    }

    /// Returns `true` for objects that configure admission itself. API-registered webhooks are never called for them,
    /// so that a broken webhook can be removed.
    ///
    /// UPSTREAM: apiserver pkg/admission/plugin/webhook/predicates/rules/rules.go
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.kind.group == registration::GROUP
            && matches!(
                self.kind.kind.as_str(),
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }

    /// Returns `true` if an object of this request has metadata. Connect options have none.
    #[must_use]
    pub fn has_metadata(&self, object: &Object) -> bool {
        self.operation != Operation::Connect || object.value().get("metadata").is_some()
    }

    /// The object's name in errors. A name that has not been generated is shown as its prefix.
    ///
    /// UPSTREAM: apiserver pkg/admission/errors.go
    #[must_use]
    pub fn display_name(&self) -> &str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let Some(object) = &self.object else {
            return "Unknown";
        };
        if !self.has_metadata(object) {
            return "Unknown/errorGettingName";
        }
        ["name", "generateName"]
            .into_iter()
            .filter_map(|member| object.metadata_text(member))
            .find(|name| !name.is_empty())
            .unwrap_or("Unknown")
    }

    /// Returns `true` once the deadline of the request has passed.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// A kind.
#[must_use]
pub fn kind(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

/// A resource.
#[must_use]
pub fn resource(group: &str, version: &str, resource: &str) -> GroupVersionResource {
    GroupVersionResource {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(operation: Operation) -> Request {
        Request::new(operation, kind("", "v1", "Pod"), resource("", "v1", "pods"))
    }

    #[test]
    fn exempts_what_configures_admission_by_kind_alone() {
        for (group, name, want) in [
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicy",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicyBinding",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingAdmissionPolicy",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingAdmissionPolicyBinding",
                true,
            ),
            ("admissionregistration.k8s.io", "Scale", false),
            ("example.com", "ValidatingWebhookConfiguration", false),
            ("authentication.k8s.io", "TokenReview", false),
            ("apiextensions.k8s.io", "CustomResourceDefinition", false),
            ("", "Namespace", false),
        ] {
            for version in ["v1", "v1beta1", "v7"] {
                let mut request = pods(Operation::Delete);
                request.kind = kind(group, version, name);
                request.subresource = String::from("status");
                assert_eq!(request.is_exempt(), want, "{group} {version} {name}");
            }
        }
    }

    #[test]
    fn names_an_object_by_what_is_known() {
        let mut request = pods(Operation::Create);
        assert_eq!(request.display_name(), "Unknown");
        for (object, want) in [
            (json!({}), "Unknown"),
            (json!({"metadata": {}}), "Unknown"),
            (json!({"metadata": {"generateName": "web-"}}), "web-"),
            (
                json!({"metadata": {"generateName": "web-", "name": "n"}}),
                "n",
            ),
            (
                json!({"metadata": {"name": "", "generateName": "web-"}}),
                "web-",
            ),
        ] {
            request.object = Some(object.into());
            assert_eq!(request.display_name(), want);
        }
        request.operation = Operation::Connect;
        request.object = Some(json!({"kind": "PodExecOptions"}).into());
        assert_eq!(request.display_name(), "Unknown/errorGettingName");
        request.name = String::from("given");
        assert_eq!(request.display_name(), "given");
    }

    #[test]
    fn knows_the_words_of_the_api() {
        for operation in Operation::ALL {
            assert_eq!(Operation::from_name(operation.name()), Some(operation));
        }
        assert_eq!(Operation::from_name("*"), None);
    }
}
