//! The wire types. Both versions say the same; they differ in the names of Go types in errors.

use std::collections::BTreeMap;

use crate::decode::wire_struct;

wire_struct! {
    /// A kind in a version of its group.
    pub struct GroupVersionKind = "v1.GroupVersionKind" {
        /// The API group; empty for the core group.
        group: String = "group", always, text("string");
        /// The version.
        version: String = "version", always, text("string");
        /// The kind.
        kind: String = "kind", always, text("string");
    }
}

wire_struct! {
    /// A resource in a version of its group.
    pub struct GroupVersionResource = "v1.GroupVersionResource" {
        /// The API group; empty for the core group.
        group: String = "group", always, text("string");
        /// The version.
        version: String = "version", always, text("string");
        /// The resource, in the plural.
        resource: String = "resource", always, text("string");
    }
}

wire_struct! {
    /// The user of a request.
    pub struct UserInfo = "v1.UserInfo" {
        /// The name.
        username: String = "username", omit_empty, text("string");
        /// An identity that stays when the name is reused.
        uid: String = "uid", omit_empty, text("string");
        /// The groups.
        groups: Option<Vec<String>> = "groups", omit_empty, texts("string");
        /// Further attributes from the authenticator.
        extra: Option<BTreeMap<String, Vec<String>>> = "extra", omit_empty, texts_map("v1.ExtraValue");
    }
}

macro_rules! review_types {
    ($(#[$doc:meta])* $version:ident) => {
        $(#[$doc])*
        pub mod $version {
            use std::collections::BTreeMap;

            use super::{GroupVersionKind, GroupVersionResource, UserInfo};
            use crate::decode::{Bytes, RawJson, wire_struct};
            use crate::meta::status::Status;

            wire_struct! {
                /// A question to a webhook, or its answer.
                pub struct AdmissionReview = (concat!(stringify!($version), ".AdmissionReview")) {
                    /// `AdmissionReview`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The question.
                    request: Option<AdmissionRequest> = "request", omit_empty, opt_object;
                    /// The answer.
                    response: Option<AdmissionResponse> = "response", omit_empty, opt_object;
                }
            }

            wire_struct! {
                /// The question: what is about to happen.
                pub struct AdmissionRequest = (concat!(stringify!($version), ".AdmissionRequest")) {
                    /// Names this call; the answer repeats it.
                    uid: String = "uid", always, text("types.UID");
                    /// The kind of `object`.
                    kind: GroupVersionKind = "kind", always, object;
                    /// The resource the rule matched.
                    resource: GroupVersionResource = "resource", always, object;
                    /// The subresource, if any.
                    sub_resource: String = "subResource", omit_empty, text("string");
                    /// The kind the client asked for.
                    request_kind: Option<GroupVersionKind> = "requestKind", omit_empty, opt_object;
                    /// The resource the client asked for.
                    request_resource: Option<GroupVersionResource> = "requestResource", omit_empty, opt_object;
                    /// The subresource the client asked for.
                    request_sub_resource: String = "requestSubResource", omit_empty, text("string");
                    /// The object's name, when known.
                    name: String = "name", omit_empty, text("string");
                    /// The namespace, if any.
                    namespace: String = "namespace", omit_empty, text("string");
                    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
                    operation: String = "operation", always, text((concat!(stringify!($version), ".Operation")));
                    /// The user of the request.
                    user_info: UserInfo = "userInfo", always, object;
                    /// The object as it would be stored.
                    object: Option<RawJson> = "object", always, raw;
                    /// The object as it is stored.
                    old_object: Option<RawJson> = "oldObject", always, raw;
                    /// True for a dry run.
                    dry_run: Option<bool> = "dryRun", omit_empty, opt_boolean;
                    /// The options of the operation.
                    options: Option<RawJson> = "options", always, raw;
                }
            }

            wire_struct! {
                /// The answer: whether it may happen.
                pub struct AdmissionResponse = (concat!(stringify!($version), ".AdmissionResponse")) {
                    /// The `uid` of the question.
                    uid: String = "uid", always, text("types.UID");
                    /// True admits the request.
                    allowed: bool = "allowed", always, boolean;
                    /// The reason of a denial.
                    status: Option<Status> = "status", omit_empty, opt_object;
                    /// Changes to the object, as a JSON Patch.
                    patch: Option<Bytes> = "patch", omit_empty, bytes;
                    /// `JSONPatch`.
                    patch_type: Option<String> = "patchType", omit_empty, opt_text((concat!(stringify!($version), ".PatchType")));
                    /// The audit annotations.
                    audit_annotations: Option<BTreeMap<String, String>> = "auditAnnotations", omit_empty, text_map;
                    /// The warnings for the client.
                    warnings: Option<Vec<String>> = "warnings", omit_empty, texts("string");
                }
            }
        }
    };
}

review_types! {
    /// `admission.k8s.io/v1` on the wire.
    v1
}
review_types! {
    /// `admission.k8s.io/v1beta1` on the wire.
    v1beta1
}
