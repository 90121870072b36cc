//! PersistentVolumeClaims and PersistentVolumes: claims are bound to matching or provisioned volumes. Nothing is
//! stored in them.
//!
//! UPSTREAM: kubernetes pkg/controller/volume/persistentvolume/pv_controller.go

use std::sync::Arc;

use lockgate_go::quantity::Quantity;
use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{Object, annotation, is_deleting, list, selects, set_annotation, text};
use crate::queue::Next;
use crate::scheduler::SELECTED_NODE;

const AUTHOR: Author = Author::Controller {
    account: "persistent-volume-binder",
    component: "persistentvolume-controller",
};

/// The provisioner of volumes, and of the initial StorageClass.
const PROVISIONER: &str = "lockgate.dev/simulated";
const CLASS: &str = "standard";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BOUND: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Creates a default StorageClass, unless one exists.
pub(crate) async fn provide_class(context: &Context) -> Result<(), Rejected> {
    let classes = context.cache.all(Kind::StorageClass);
    let is_default = |class: &Arc<Object>| annotation(class, DEFAULT_CLASS) == Some("true");
    if classes.iter().any(is_default) {
        return Ok(());
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    });
    context
        .create_missing(&AUTHOR, Kind::StorageClass, class)
        .await?;
    Ok(())
}

/// Binds a claim.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(claim) = context.cache.at(Kind::PersistentVolumeClaim, path) else {
        return Ok(Next::Done);
    };
    if is_deleting(&claim) {
        return Ok(Next::Done);
    }
    let volume = text(&claim, "/spec/volumeName");
    if !volume.is_empty() {
        return match context.cache.get(Kind::PersistentVolume, "", volume) {
            Some(volume) => bind(context, &claim, &volume).await,
            None => mark_lost(context, &claim).await,
        };
    }
    let class_name = text(&claim, "/spec/storageClassName");
    let class = context.cache.get(Kind::StorageClass, "", class_name);
    let waits = class
        .as_ref()
        .is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer");
    if waits && annotation(&claim, SELECTED_NODE).is_none() {
        let message = "waiting for first consumer to be created before binding";
        context
            .events
            .normal(&AUTHOR, &claim, "WaitForFirstConsumer", message.to_owned());
        return pending(context, &claim).await;
    }
    if let Some(volume) = fitting(context, &claim) {
        return bind(context, &claim, &volume).await;
    }
    match class {
        Some(class) if text(&class, "/provisioner") != "kubernetes.io/no-provisioner" => {
            provision(context, &claim, &class).await
        }
        _ => {
            let (reason, message) = if class_name.is_empty() {
                let message =
                    "no persistent volumes available for this claim and no storage class is set";
                ("FailedBinding", message.to_owned())
            } else {
                let message = format!("storageclass.storage.k8s.io \"{class_name}\" not found");
                ("ProvisioningFailed", message)
            };
            context.events.warning(&AUTHOR, &claim, reason, message);
            pending(context, &claim).await
        }
    }
}

async fn pending(context: &Context, claim: &Object) -> Reconciled {
    if text(claim, "/status/phase").is_empty() {
        context
            .set_status(&AUTHOR, claim, json!({"phase": "Pending"}))
            .await?;
    }
    Ok(Next::Done)
}

/// Sets the phase `Lost` of a bound claim whose volume was deleted.
async fn mark_lost(context: &Context, claim: &Object) -> Reconciled {
    if annotation(claim, BOUND).is_none() {
        return pending(context, claim).await;
    }
    if text(claim, "/status/phase") != "Lost" {
        context
            .set_status(&AUTHOR, claim, json!({"phase": "Lost"}))
            .await?;
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        context
            .events
            .warning(&AUTHOR, claim, "ClaimLost", message.to_owned());
    }
    Ok(Next::Done)
}

fn is_of_claim(volume: &Value, claim: &Object) -> bool {
    let uid = text(volume, "/spec/claimRef/uid");
    text(volume, "/spec/claimRef/namespace") == claim.namespace()
        && text(volume, "/spec/claimRef/name") == claim.name()
        && (uid.is_empty() || uid == claim.uid())
}

fn quantity(text: &str) -> Option<Quantity> {
    Quantity::parse(text).ok()
}

/// The smallest volume that matches a claim, or the one reserved for it.
fn fitting(context: &Context, claim: &Object) -> Option<Arc<Object>> {
    let mut volumes = context.cache.all(Kind::PersistentVolume);
    volumes.retain(|volume| !is_deleting(volume) && fits(volume, claim));
    if let Some(reserved) = volumes.iter().find(|volume| is_of_claim(volume, claim)) {
        return Some(Arc::clone(reserved));
    }
    volumes.sort_by(|one, other| {
        let size = |volume: &Value| quantity(text(volume, "/spec/capacity/storage"));
        match (size(one), size(other)) {
            (Some(one), Some(other)) => one.compare(&other),
            _ => std::cmp::Ordering::Equal,
        }
    });
    volumes.into_iter().next()
}

fn fits(volume: &Object, claim: &Object) -> bool {
    let is_reserved = volume
        .pointer("/spec/claimRef")
        .is_some_and(Value::is_object);
    if is_reserved && !is_of_claim(volume, claim) || text(volume, "/status/phase") == "Released" {
        return false;
    }
    let mode = |object: &Value| match text(object, "/spec/volumeMode") {
        "" => String::from("Filesystem"),
        mode => mode.to_owned(),
    };
    let selector = claim.pointer("/spec/selector");
    let wanted = quantity(text(claim, "/spec/resources/requests/storage"));
    let has = quantity(text(volume, "/spec/capacity/storage"));
    let is_large_enough = match (has, wanted) {
        (Some(has), Some(wanted)) => has.compare(&wanted).is_ge(),
        (_, wanted) => wanted.is_none(),
    };
    is_large_enough
        && ["storageClassName", "volumeAttributesClassName"]
            .iter()
            .all(|member| {
                let of = |object: &Value| text(&object["spec"], &format!("/{member}")).to_owned();
                of(volume) == of(claim)
            })
        && mode(volume) == mode(claim)
        && selector.is_none_or(|selector| selects(Some(selector), volume))
        && list(claim, "/spec/accessModes")
            .all(|mode| list(volume, "/spec/accessModes").any(|one| one == mode))
}

fn claim_reference(claim: &Object) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace(),
        "name": claim.name(),
        "uid": claim.uid(),
    })
}

/// Binds a claim and a volume: the volume first, so that no other claim is bound to it.
async fn bind(context: &Context, claim: &Object, volume: &Object) -> Reconciled {
    let is_reserved = volume
        .pointer("/spec/claimRef")
        .is_some_and(Value::is_object);
    if is_reserved && !is_of_claim(volume, claim) {
        let message = format!(
            "volume \"{}\" already bound to a different claim.",
            volume.name()
        );
        context
            .events
            .warning(&AUTHOR, claim, "FailedBinding", message);
        return pending(context, claim).await;
    }
    if text(volume, "/spec/claimRef/uid") != claim.uid() {
        let reference = claim_reference(claim);
        let edit = |volume: &mut Value| {
            if volume.pointer("/spec/claimRef").is_none_or(Value::is_null) {
                set_annotation(volume, BOUND_BY_CONTROLLER, "yes");
            }
            volume["spec"]["claimRef"] = reference.clone();
        };
        context.edit(&AUTHOR, volume, &edit).await?;
        return Ok(Next::Done);
    }
    if text(claim, "/spec/volumeName").is_empty() || annotation(claim, BOUND).is_none() {
        let edit = |claim: &mut Value| {
            if text(claim, "/spec/volumeName").is_empty() {
                claim["spec"]["volumeName"] = volume.name().into();
                set_annotation(claim, BOUND_BY_CONTROLLER, "yes");
            }
            set_annotation(claim, BOUND, "yes");
        };
        context.edit(&AUTHOR, claim, &edit).await?;
        return Ok(Next::Done);
    }
    if text(claim, "/status/phase") != "Bound" {
        let status = bound_status(claim, volume);
        context.set_status(&AUTHOR, claim, status).await?;
    }
    Ok(Next::Done)
}

/// The status of a newly bound claim. Later changes of its VolumeAttributesClass are the resizer's.
fn bound_status(claim: &Value, volume: &Value) -> Value {
    let mut status = claim.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = "Bound".into();
    status["accessModes"] = volume["spec"]["accessModes"].clone();
    status["capacity"] = volume["spec"]["capacity"].clone();
    if let Some(class) = volume.pointer("/spec/volumeAttributesClassName") {
        status["currentVolumeAttributesClassName"] = class.clone();
    }
    status
}

/// Provisions a volume for a claim. It is reserved for the claim, which is bound to it afterwards.
async fn provision(context: &Context, claim: &Object, class: &Object) -> Reconciled {
    let name = format!("pvc-{}", claim.uid());
    let provisioner = text(class, "/provisioner");
    let policy = match text(class, "/reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
        "spec": {
            "capacity": {"storage": text(claim, "/spec/resources/requests/storage")},
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": claim_reference(claim),
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class.name(),
            "hostPath": {"path": format!("/var/lib/lockgate/volumes/{name}"), "type": ""},
        },
    });
    for (member, value) in [
        ("volumeMode", claim.pointer("/spec/volumeMode")),
        (
            "volumeAttributesClassName",
            claim.pointer("/spec/volumeAttributesClassName"),
        ),
        ("mountOptions", class.get("mountOptions")),
    ] {
        if let Some(value) = value {
            volume["spec"][member] = value.clone();
        }
    }
    if context
        .create_missing(&AUTHOR, Kind::PersistentVolume, volume)
        .await?
    {
        let message = format!("Successfully provisioned volume {name}");
        context
            .events
            .normal(&AUTHOR, claim, "ProvisioningSucceeded", message);
    }
    Ok(Next::Done)
}

/// Updates the phase of a volume, and deletes a provisioned volume whose claim was deleted.
pub(crate) async fn reconcile_volume(context: &Context, name: &str) -> Reconciled {
    let Some(volume) = context.cache.at(Kind::PersistentVolume, name) else {
        return Ok(Next::Done);
    };
    let reference = volume
        .pointer("/spec/claimRef")
        .filter(|one| one.is_object());
    let phase = match reference {
        None => "Available",
        Some(reference) => {
            let (namespace, name) = (text(reference, "/namespace"), text(reference, "/name"));
            let claim = context
                .cache
                .get(Kind::PersistentVolumeClaim, namespace, name);
            let uid = text(reference, "/uid");
            match claim {
                _ if uid.is_empty() => "Available",
                Some(claim) if claim.uid() == uid => match text(&claim, "/spec/volumeName") {
                    bound if bound == volume.name() => "Bound",
                    _ => "Available",
                },
                _ => "Released",
            }
        }
    };
    if text(&volume, "/status/phase") != phase {
        let mut status = volume.get("status").cloned().unwrap_or_else(|| json!({}));
        status["phase"] = phase.into();
        context.set_status(&AUTHOR, &volume, status).await?;
    } else if phase == "Released"
        && text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
        && annotation(&volume, PROVISIONED_BY).is_some()
        && !is_deleting(&volume)
    {
        context.delete(&AUTHOR, &volume).await?;
    }
    Ok(Next::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, value: Value) -> Object {
        Object {
            kind,
            key: kind.key("n", "a").into(),
            created: 1,
            value,
        }
    }

    #[test]
    fn a_claim_takes_over_what_its_volume_has() {
        let volume = json!({"spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
            "volumeAttributesClassName": "gold"}});
        let claim = json!({"status": {"phase": "Pending"}});
        assert_eq!(
            bound_status(&claim, &volume),
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"},
                "currentVolumeAttributesClassName": "gold"})
        );
    }

    #[test]
    fn a_volume_fits_by_class_size_and_modes() {
        let claim = object(
            Kind::PersistentVolumeClaim,
            json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
                "resources": {"requests": {"storage": "1Gi"}}}}),
        );
        let volume = |change: fn(&mut Value)| {
            let mut value = json!({"spec": {"storageClassName": "slow", "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}});
            change(&mut value);
            object(Kind::PersistentVolume, value)
        };
        assert!(fits(&volume(|_| {}), &claim));
        assert!(!fits(
            &volume(|value| value["spec"]["capacity"]["storage"] = "500Mi".into()),
            &claim
        ));
        assert!(!fits(
            &volume(|value| value["spec"]["storageClassName"] = "fast".into()),
            &claim
        ));
        assert!(!fits(
            &volume(|value| value["spec"]["accessModes"] = json!([])),
            &claim
        ));
        assert!(!fits(
            &volume(|value| value["spec"]["volumeMode"] = "Block".into()),
            &claim
        ));
        let reserved = |name: &'static str| {
            let mut volume = volume(|_| {});
            volume.value["spec"]["claimRef"] = json!({"namespace": "n", "name": name});
            volume
        };
        assert!(fits(&reserved("c"), &claim));
        assert!(!fits(&reserved("other"), &claim));
    }
}
