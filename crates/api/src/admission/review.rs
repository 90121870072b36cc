//! The wire types. Both versions have the same fields; only the Go type names in errors differ.

use std::collections::BTreeMap;

use crate::decode::wire_struct;

wire_struct! {
    /// A group, version and kind.
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
    /// A group, version and resource.
    pub struct GroupVersionResource = "v1.GroupVersionResource" {
        /// The API group; empty for the core group.
        group: String = "group", always, text("string");
        /// The version.
        version: String = "version", always, text("string");
        /// The plural name of the resource.
        resource: String = "resource", always, text("string");
    }
}

wire_struct! {
    /// The user of a request.
    pub struct UserInfo = "v1.UserInfo" {
        /// The username.
        username: String = "username", omit_empty, text("string");
        /// The UID, which is never reused.
        uid: String = "uid", omit_empty, text("string");
        /// The groups.
        groups: Option<Vec<String>> = "groups", omit_empty, strings("string");
        /// Extra attributes from the authenticator.
        extra: Option<BTreeMap<String, Vec<String>>> = "extra", omit_empty, string_list_map("v1.ExtraValue");
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
                /// A request to a webhook, or its response.
                pub struct AdmissionReview = (concat!(stringify!($version), ".AdmissionReview")) {
                    /// `AdmissionReview`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The request.
                    request: Option<AdmissionRequest> = "request", omit_empty, opt_object;
                    /// The response.
                    response: Option<AdmissionResponse> = "response", omit_empty, opt_object;
                }
            }

            wire_struct! {
                /// The admission request.
                pub struct AdmissionRequest = (concat!(stringify!($version), ".AdmissionRequest")) {
                    /// The identifier of this call, repeated in the response.
                    uid: String = "uid", always, text("types.UID");
                    /// The kind of `object`.
                    kind: GroupVersionKind = "kind", always, object;
                    /// The resource of the matched rule.
                    resource: GroupVersionResource = "resource", always, object;
                    /// The subresource, if any.
                    sub_resource: String = "subResource", omit_empty, text("string");
                    /// The kind of the original request.
                    request_kind: Option<GroupVersionKind> = "requestKind", omit_empty, opt_object;
                    /// The resource of the original request.
                    request_resource: Option<GroupVersionResource> = "requestResource", omit_empty, opt_object;
                    /// The subresource of the original request.
                    request_sub_resource: String = "requestSubResource", omit_empty, text("string");
                    /// The object's name, if known.
                    name: String = "name", omit_empty, text("string");
                    /// The namespace, if any.
                    namespace: String = "namespace", omit_empty, text("string");
                    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
                    operation: String = "operation", always, text((concat!(stringify!($version), ".Operation")));
                    /// The user of the request.
                    user_info: UserInfo = "userInfo", always, object;
                    /// The new object.
                    object: Option<RawJson> = "object", always, raw;
                    /// The existing object.
                    old_object: Option<RawJson> = "oldObject", always, raw;
                    /// True for a dry run.
                    dry_run: Option<bool> = "dryRun", omit_empty, opt_boolean;
                    /// The options of the operation.
                    options: Option<RawJson> = "options", always, raw;
                }
            }

            wire_struct! {
                /// The admission response.
                pub struct AdmissionResponse = (concat!(stringify!($version), ".AdmissionResponse")) {
                    /// The `uid` of the request.
                    uid: String = "uid", always, text("types.UID");
                    /// True if the request is allowed.
                    allowed: bool = "allowed", always, boolean;
                    /// The reason of a denial.
                    status: Option<Status> = "status", omit_empty, opt_object;
                    /// The JSON Patch of the object.
                    patch: Option<Bytes> = "patch", omit_empty, bytes;
                    /// `JSONPatch`.
                    patch_type: Option<String> = "patchType", omit_empty, opt_text((concat!(stringify!($version), ".PatchType")));
                    /// The audit annotations.
                    audit_annotations: Option<BTreeMap<String, String>> = "auditAnnotations", omit_empty, string_map;
                    /// The warnings for the client.
                    warnings: Option<Vec<String>> = "warnings", omit_empty, strings("string");
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
