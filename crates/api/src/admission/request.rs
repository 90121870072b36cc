//! Builds the AdmissionReviews sent to webhooks.
//!
//! Many webhooks may receive the same request, each with another `uid`. So the body is serialized
//! once, around the bytes of the objects, and only the `uid` is inserted per call.

use serde::Serialize;

use lockgate_go::json::to_string;

use super::{GROUP, GroupVersionKind, GroupVersionResource, ReviewVersion, UserInfo};

/// The admission request of a review.
#[derive(Debug, Clone, Copy)]
pub struct Review<'r> {
    /// The kind of `object`, after conversion to the version of the matched rule.
    pub kind: &'r GroupVersionKind,
    /// The resource of the webhook's matched rule.
    pub resource: &'r GroupVersionResource,
    /// The subresource; may be empty.
    pub sub_resource: &'r str,
    /// The kind of the original request.
    pub request_kind: &'r GroupVersionKind,
    /// The resource of the original request.
    pub request_resource: &'r GroupVersionResource,
    /// The subresource of the original request.
    pub request_sub_resource: &'r str,
    /// The object's name; empty if it is not known yet.
    pub name: &'r str,
    /// The namespace; may be empty.
    pub namespace: &'r str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'r str,
    /// The user of the request.
    pub user_info: &'r UserInfo,
    /// The new object as JSON.
    pub object: Option<&'r str>,
    /// The old object as JSON.
    pub old_object: Option<&'r str>,
    /// True for a dry run.
    pub dry_run: bool,
    /// The options of the operation as JSON.
    pub options: Option<&'r str>,
}

/// The serialized review, without its `uid`.
#[derive(Debug, Clone)]
pub struct ReviewBody {
    head: String,
    tail: String,
}

impl ReviewBody {
    /// Serializes the review. Its JSON strings are not validated.
    #[must_use]
    pub fn new(review: &Review<'_>, version: ReviewVersion) -> Self {
        let version = version.name();
        let head = format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"{GROUP}/{version}\",\"request\":{{\"uid\":"
        );
        let objects = [review.object, review.old_object, review.options];
        let objects_len: usize = objects.into_iter().flatten().map(str::len).sum();
        let mut members = Members(String::with_capacity(objects_len + 1024));
        // In the API server's order.
        members.value("kind", review.kind);
        members.value("resource", review.resource);
        members.text("subResource", review.sub_resource);
        members.value("requestKind", review.request_kind);
        members.value("requestResource", review.request_resource);
        members.text("requestSubResource", review.request_sub_resource);
        members.text("name", review.name);
        members.text("namespace", review.namespace);
        members.value("operation", review.operation);
        members.value("userInfo", review.user_info);
        members.raw("object", review.object.unwrap_or("null"));
        members.raw("oldObject", review.old_object.unwrap_or("null"));
        members.raw("dryRun", if review.dry_run { "true" } else { "false" });
        members.raw("options", review.options.unwrap_or("null"));
        let Members(mut tail) = members;
        tail.push_str("}}\n");
        Self { head, tail }
    }

    /// The body of one call.
    #[must_use]
    pub fn with_uid(&self, uid: &str) -> Vec<u8> {
        let mut body = String::with_capacity(self.head.len() + self.tail.len() + uid.len() + 2);
        body.push_str(&self.head);
        body.push_str(&to_string(uid));
        body.push_str(&self.tail);
        body.into_bytes()
    }
}

/// Serializes the members of a JSON object, after the first one.
struct Members(String);

impl Members {
    fn raw(&mut self, name: &str, json: &str) {
        for part in [",\"", name, "\":", json] {
            self.0.push_str(part);
        }
    }

    fn value<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.raw(name, &to_string(value));
    }

    /// Writes a string unless it is empty.
    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.value(name, value);
        }
    }
}
