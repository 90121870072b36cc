//! `metav1.ObjectMeta` and its parts.

use std::collections::BTreeMap;

use super::time::Time;
use crate::decode::{RawJson, wire_struct};

wire_struct! {
    /// The `metadata` of an object.
    pub struct ObjectMeta = "v1.ObjectMeta" {
        /// The name, unique among objects of the kind.
        name: String = "name", omit_empty, text("string");
        /// A prefix the server completes when `name` is empty.
        generate_name: String = "generateName", omit_empty, text("string");
        /// The namespace; empty for cluster-scoped kinds.
        namespace: String = "namespace", omit_empty, text("string");
        /// A legacy URL of the object.
        self_link: String = "selfLink", omit_empty, text("string");
        /// The identity of this object through time and space.
        uid: String = "uid", omit_empty, text("types.UID");
        /// The opaque version of the stored object.
        resource_version: String = "resourceVersion", omit_empty, text("string");
        /// The number of changes of the desired state.
        generation: i64 = "generation", omit_empty, int64;
        /// The time of creation.
        creation_timestamp: Option<Time> = "creationTimestamp", omit_empty, time;
        /// The time from which the object is to be deleted.
        deletion_timestamp: Option<Time> = "deletionTimestamp", omit_empty, opt_time;
        /// The grace period of deletion.
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds", omit_empty, opt_int64;
        /// Labels.
        labels: Option<BTreeMap<String, String>> = "labels", omit_empty, text_map;
        /// Annotations.
        annotations: Option<BTreeMap<String, String>> = "annotations", omit_empty, text_map;
        /// Objects this one depends on.
        owner_references: Option<Vec<OwnerReference>> = "ownerReferences", omit_empty, objects;
        /// The finalizers that must be removed before the object is.
        finalizers: Option<Vec<String>> = "finalizers", omit_empty, texts("string");
        /// The field managers and the fields they own.
        managed_fields: Option<Vec<ManagedFieldsEntry>> = "managedFields", omit_empty, objects;
    }
}

wire_struct! {
    /// An owner of an object.
    pub struct OwnerReference = "v1.OwnerReference" {
        /// The owner's API version.
        api_version: String = "apiVersion", always, text("string");
        /// The owner's kind.
        kind: String = "kind", always, text("string");
        /// The owner's name.
        name: String = "name", always, text("string");
        /// The owner's identity.
        uid: String = "uid", always, text("types.UID");
        /// True if this owner is the managing controller.
        controller: Option<bool> = "controller", omit_empty, opt_boolean;
        /// True if foreground deletion of the owner waits for this object.
        block_owner_deletion: Option<bool> = "blockOwnerDeletion", omit_empty, opt_boolean;
    }
}

wire_struct! {
    /// The fields one manager owns.
    pub struct ManagedFieldsEntry = "v1.ManagedFieldsEntry" {
        /// The manager's name.
        manager: String = "manager", omit_empty, text("string");
        /// `Apply` or `Update`.
        operation: String = "operation", omit_empty, text("v1.ManagedFieldsOperationType");
        /// The version the field set is written in.
        api_version: String = "apiVersion", omit_empty, text("string");
        /// The time of the last change.
        time: Option<Time> = "time", omit_empty, opt_time;
        /// The format of `fieldsV1`.
        fields_type: String = "fieldsType", omit_empty, text("string");
        /// The field set.
        fields_v1: Option<RawJson> = "fieldsV1", omit_empty, raw;
        /// The subresource the fields were set through.
        subresource: String = "subresource", omit_empty, text("string");
    }
}

wire_struct! {
    /// The `metadata` of a list.
    pub struct ListMeta = "v1.ListMeta" {
        /// A legacy URL of the list.
        self_link: String = "selfLink", omit_empty, text("string");
        /// The version the list was read at.
        resource_version: String = "resourceVersion", omit_empty, text("string");
        /// The token of the next page.
        continue_token: String = "continue", omit_empty, text("string");
        /// The number of items after this page.
        remaining_item_count: Option<i64> = "remainingItemCount", omit_empty, opt_int64;
        /// The shard of a sharded list.
        shard_info: Option<ShardInfo> = "shardInfo", omit_empty, opt_object;
    }
}

wire_struct! {
    /// The shard that was asked for.
    pub struct ShardInfo = "v1.ShardInfo" {
        /// The selector of the shard.
        selector: String = "selector", always, text("string");
    }
}
