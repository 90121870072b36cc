//! Building the review that is sent to a webhook.
//!
//! Many webhooks are asked about the same thing, and each call has a `uid` of its own. So the body is
//! put together once, around the bytes of the objects, and only the `uid` is filled in per call.

use serde::Serialize;

use lockgate_go::json::to_string;

use super::{GROUP, GroupVersionKind, GroupVersionResource, ReviewVersion, UserInfo};

/// The request a webhook is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Review<'r> {
    /// The kind of `object`, after conversion to what the webhook asked for.
    pub kind: &'r GroupVersionKind,
    /// The resource the webhook's rule matched.
    pub resource: &'r GroupVersionResource,
    /// The subresource, or nothing.
    pub sub_resource: &'r str,
    /// The kind the client sent.
    pub request_kind: &'r GroupVersionKind,
    /// The resource the client addressed.
    pub request_resource: &'r GroupVersionResource,
    /// The subresource the client addressed.
    pub request_sub_resource: &'r str,
    /// The object's name, or nothing when it is not known yet.
    pub name: &'r str,
    /// The namespace, or nothing.
    pub namespace: &'r str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'r str,
    /// The user of the request.
    pub user_info: &'r UserInfo,
    /// The new object as JSON.
    pub object: Option<&'r str>,
    /// The stored object as JSON.
    pub old_object: Option<&'r str>,
    /// True for a dry run.
    pub dry_run: bool,
    /// The options of the operation as JSON.
    pub options: Option<&'r str>,
}

/// The body of a review, complete but for its `uid`.
#[derive(Debug, Clone)]
pub struct ReviewBody {
    head: String,
    tail: String,
}

impl ReviewBody {
    /// Puts the body together. The JSON texts of the review are taken as they are.
    #[must_use]
    pub fn new(review: &Review<'_>, version: ReviewVersion) -> Self {
        let version = version.name();
        let head = format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"{GROUP}/{version}\",\"request\":{{\"uid\":"
        );
        let objects = [review.object, review.old_object, review.options];
        let objects_len: usize = objects.into_iter().flatten().map(str::len).sum();
        let mut members = Members(String::with_capacity(objects_len + 1024));
        // The order is that of the API server.
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

    /// The bytes for one call.
    #[must_use]
    pub fn with_uid(&self, uid: &str) -> Vec<u8> {
        let mut body = String::with_capacity(self.head.len() + self.tail.len() + uid.len() + 2);
        body.push_str(&self.head);
        body.push_str(&to_string(uid));
        body.push_str(&self.tail);
        body.into_bytes()
    }
}

/// Members of a JSON object after the first.
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

    /// Writes a text unless it is empty.
    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.value(name, value);
        }
    }
}
