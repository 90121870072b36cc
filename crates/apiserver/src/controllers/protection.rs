//! Protects volumes, claims and attributes classes while they are in use: removes the finalizers that the plugin
//! `StorageObjectInUseProtection` adds.
//!
//! UPSTREAM: kubernetes pkg/controller/volume/{pvcprotection,pvprotection,vacprotection}

use std::sync::Arc;

use lockgate_store::{Entry, Event, List};
use serde_json::Value;

use super::owner_graph::Meta;
use super::{Context, account, options};
use crate::config::Controllers as Switches;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::write::update::Change;

/// A protected kind.
#[derive(Debug)]
struct Protected {
    prefix: &'static str,
    group: &'static str,
    plural: &'static str,
    finalizer: &'static str,
    account: &'static str,
    is_on: fn(&Switches) -> bool,
}

const CLAIMS: &str = "/core/persistentvolumeclaims/";
const VOLUMES: &str = "/core/persistentvolumes/";
const PODS: &str = "/core/pods/";

const PROTECTED: [Protected; 3] = [
    Protected {
        prefix: CLAIMS,
        group: "",
        plural: "persistentvolumeclaims",
        finalizer: "kubernetes.io/pvc-protection",
        account: "pvc-protection-controller",
        is_on: |on| on.claim_protection,
    },
    Protected {
        prefix: VOLUMES,
        group: "",
        plural: "persistentvolumes",
        finalizer: "kubernetes.io/pv-protection",
        account: "pv-protection-controller",
        is_on: |on| on.volume_protection,
    },
    Protected {
        prefix: "/storage.k8s.io/volumeattributesclasses/",
        group: "storage.k8s.io",
        plural: "volumeattributesclasses",
        finalizer: "kubernetes.io/vac-protection",
        account: "volumeattributesclass-protection-controller",
        is_on: |on| on.attributes_class_protection,
    },
];

impl Protected {
    fn of(key: &str) -> Option<&'static Self> {
        PROTECTED.iter().find(|kind| key.starts_with(kind.prefix))
    }

    /// Returns true if the finalizer is missing, or may have to be removed.
    fn concerns(&self, entry: &Entry) -> bool {
        let meta = Meta::read(entry);
        meta.is_some_and(|meta| meta.is_deleting() == meta.has_finalizer(self.finalizer))
    }
}

/// The key of the protected object to process after an event.
pub(super) fn key_of<'e>(on: &Switches, event: &'e Event) -> Option<&'e Arc<str>> {
    let Event::Put { entry, .. } = event else {
        return None;
    };
    let kind = Protected::of(&entry.key).filter(|kind| (kind.is_on)(on))?;
    kind.concerns(entry).then_some(&entry.key)
}

/// Returns true if objects with such keys are protected, or use protected objects.
pub(super) fn is_watched(key: &str) -> bool {
    Protected::of(key).is_some() || key.starts_with(PODS)
}

/// The key prefix of objects that may no longer be in use after a change: a Pod uses claims of its namespace, volumes
/// and claims use attributes classes.
pub(super) fn freed_by(key: &str) -> Option<String> {
    if let Some(rest) = key.strip_prefix(PODS) {
        let (namespace, _) = rest.split_once('/')?;
        return Some(format!("{CLAIMS}{namespace}/"));
    }
    let uses_classes = key.starts_with(CLAIMS) || key.starts_with(VOLUMES);
    uses_classes.then(|| String::from(PROTECTED[2].prefix))
}

/// Adds the finalizer to an object, or removes it from one that is terminating and not in use. Returns true if
/// complete.
pub(super) async fn reconcile(context: &Context, key: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let Some(kind) = Protected::of(key) else {
        return Ok(true);
    };
    let Some(entry) = writer.storage.entry(key).await? else {
        return Ok(true);
    };
    if !kind.concerns(&entry) {
        return Ok(true);
    }
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find(kind.group, "v1", kind.plural) else {
        return Ok(true);
    };
    let object = writer.storage.decode(&entry, resource).await?;
    if metadata::is_deleting(&object) && is_in_use(context, kind, &object).await? {
        return Ok(false);
    }
    let path = ObjectPath {
        resource,
        namespace: metadata::text(&object, "namespace"),
        name: metadata::text(&object, "name"),
        subresource: "",
    };
    let request = Request::internal(account(kind.account), Verb::Update, path);
    let options = options();
    let changed = Change::new(writer, &request, &options)
        .edit(|object| change_finalizer(object, kind.finalizer))
        .await;
    match changed {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// A terminating object loses the finalizer, any other gets it.
fn change_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> = metadata::finalizers(object)
        .into_iter()
        .filter(|&name| name != finalizer)
        .map(str::to_owned)
        .collect();
    if !metadata::is_deleting(object) {
        finalizers.push(finalizer.to_owned());
    }
    metadata::change(object, |metadata| {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert(String::from("finalizers"), finalizers.into());
        }
    });
}

async fn is_in_use(context: &Context, kind: &Protected, object: &Value) -> Outcome<bool> {
    let name = metadata::text(object, "name");
    match kind.plural {
        "persistentvolumes" => Ok(text(object, "/status/phase") == "Bound"),
        "persistentvolumeclaims" => {
            let namespace = metadata::text(object, "namespace");
            let pods = objects(context, &format!("{PODS}{namespace}/")).await?;
            Ok(pods.iter().any(|pod| uses_claim(pod, object)))
        }
        _ => {
            let volumes = objects(context, VOLUMES).await?;
            let claims = objects(context, CLAIMS).await?;
            let fields = [
                "/spec/volumeAttributesClassName",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
            ];
            let uses = |object: &Value| fields.iter().any(|field| text(object, field) == name);
            Ok(volumes.iter().chain(&claims).any(uses))
        }
    }
}

/// Returns true if a scheduled Pod uses a claim, by name or as an ephemeral volume.
fn uses_claim(pod: &Value, claim: &Value) -> bool {
    if text(pod, "/spec/nodeName").is_empty() {
        return false;
    }
    let name = metadata::text(claim, "name");
    let is_shut_down = metadata::is_deleting(pod)
        && metadata::number(pod, "deletionGracePeriodSeconds") == Some(0);
    let is_of_pod = || {
        let uid = metadata::text(pod, "uid");
        let owners = claim.pointer("/metadata/ownerReferences");
        let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
        owners.any(|owner| owner["uid"] == uid && owner["controller"] == true)
    };
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().any(|volume| {
        if text(volume, "/persistentVolumeClaim/claimName") == name {
            return true;
        }
        let own = format!("{}-{}", metadata::text(pod, "name"), text(volume, "/name"));
        volume.get("ephemeral").is_some() && own == name && !is_shut_down && is_of_pod()
    })
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

async fn objects(context: &Context, prefix: &str) -> Outcome<Vec<Value>> {
    let page = context.writer.storage.store().list(List::all(prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    let read = page.entries.iter();
    Ok(read
        .filter_map(|entry| encoding::tree(&entry.value))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_scheduled_uses_its_claims() {
        let claim = json!({"metadata": {"name": "data"}});
        let mut pod = json!({
            "metadata": {"name": "a", "uid": "1"},
            "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        });
        assert!(!uses_claim(&pod, &claim), "nobody runs it yet");
        pod["spec"]["nodeName"] = "n".into();
        assert!(uses_claim(&pod, &claim));
        assert!(!uses_claim(&pod, &json!({"metadata": {"name": "other"}})));
    }

    #[test]
    fn a_pod_uses_the_claims_it_owns_until_it_is_shut_down() {
        let mut claim = json!({"metadata": {"name": "a-v"}});
        let mut pod = json!({
            "metadata": {"name": "a", "uid": "1"},
            "spec": {"nodeName": "n", "volumes": [{"name": "v", "ephemeral": {}}]},
        });
        assert!(!uses_claim(&pod, &claim), "it was made for somebody else");
        claim["metadata"]["ownerReferences"] = json!([{"uid": "1", "controller": true}]);
        assert!(uses_claim(&pod, &claim));
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        assert!(!uses_claim(&pod, &claim));
    }

    #[test]
    fn tells_what_may_be_free_after_a_change() {
        assert_eq!(
            freed_by("/core/pods/ns/a").as_deref(),
            Some("/core/persistentvolumeclaims/ns/")
        );
        assert_eq!(
            freed_by("/core/persistentvolumes/v").as_deref(),
            Some("/storage.k8s.io/volumeattributesclasses/")
        );
        assert_eq!(freed_by("/core/configmaps/ns/a"), None);
    }
}
