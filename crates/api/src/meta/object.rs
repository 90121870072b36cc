//! `metav1.ObjectMeta` and its parts.

use std::collections::BTreeMap;

use super::time::Time;
use crate::decode::{RawJson, wire_struct};

wire_struct! {
    /// The `metadata` of an object.
    pub struct ObjectMeta = "v1.ObjectMeta" {
        /// The name, unique within the namespace.
        name: String = "name", omit_empty, text("string");
        /// The prefix for a generated name, used if `name` is empty.
        generate_name: String = "generateName", omit_empty, text("string");
        /// The namespace; empty for cluster-scoped kinds.
        namespace: String = "namespace", omit_empty, text("string");
        /// The deprecated URL of the object.
        self_link: String = "selfLink", omit_empty, text("string");
        /// The UID, unique in time and space.
        uid: String = "uid", omit_empty, text("types.UID");
        /// The opaque resource version.
        resource_version: String = "resourceVersion", omit_empty, text("string");
        /// The generation of the desired state.
        generation: i64 = "generation", omit_empty, int64;
        /// The creation timestamp.
        creation_timestamp: Option<Time> = "creationTimestamp", omit_empty, time;
        /// The deletion timestamp.
        deletion_timestamp: Option<Time> = "deletionTimestamp", omit_empty, opt_time;
        /// The grace period of deletion.
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds", omit_empty, opt_int64;
        /// Labels.
        labels: Option<BTreeMap<String, String>> = "labels", omit_empty, string_map;
        /// Annotations.
        annotations: Option<BTreeMap<String, String>> = "annotations", omit_empty, string_map;
        /// The owners of the object.
        owner_references: Option<Vec<OwnerReference>> = "ownerReferences", omit_empty, objects;
        /// The finalizers, which block the removal of the object.
        finalizers: Option<Vec<String>> = "finalizers", omit_empty, strings("string");
        /// The fields owned by field managers.
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
        /// The owner's UID.
        uid: String = "uid", always, text("types.UID");
        /// True if this owner is the managing controller.
        controller: Option<bool> = "controller", omit_empty, opt_boolean;
        /// True if this object blocks foreground deletion of the owner.
        block_owner_deletion: Option<bool> = "blockOwnerDeletion", omit_empty, opt_boolean;
    }
}

wire_struct! {
    /// The fields of one field manager.
    pub struct ManagedFieldsEntry = "v1.ManagedFieldsEntry" {
        /// The name of the field manager.
        manager: String = "manager", omit_empty, text("string");
        /// `Apply` or `Update`.
        operation: String = "operation", omit_empty, text("v1.ManagedFieldsOperationType");
        /// The API version of the field set.
        api_version: String = "apiVersion", omit_empty, text("string");
        /// The time of the last update.
        time: Option<Time> = "time", omit_empty, opt_time;
        /// The format of `fieldsV1`.
        fields_type: String = "fieldsType", omit_empty, text("string");
        /// The field set.
        fields_v1: Option<RawJson> = "fieldsV1", omit_empty, raw;
        /// The subresource of the update.
        subresource: String = "subresource", omit_empty, text("string");
    }
}

wire_struct! {
    /// The `metadata` of a list.
    pub struct ListMeta = "v1.ListMeta" {
        /// The deprecated URL of the list.
        self_link: String = "selfLink", omit_empty, text("string");
        /// The resource version of the list.
        resource_version: String = "resourceVersion", omit_empty, text("string");
        /// The continue token of the next page.
        continue_token: String = "continue", omit_empty, text("string");
        /// The number of items after this page.
        remaining_item_count: Option<i64> = "remainingItemCount", omit_empty, opt_int64;
        /// The shard of a partial list.
        shard_info: Option<ShardInfo> = "shardInfo", omit_empty, opt_object;
    }
}

wire_struct! {
    /// The requested shard.
    pub struct ShardInfo = "v1.ShardInfo" {
        /// The selector of the shard.
        selector: String = "selector", always, text("string");
    }
}
