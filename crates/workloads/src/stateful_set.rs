//! StatefulSets: Pods with ordinals, started in order, each with its own claims.
//!
//! UPSTREAM: kubernetes pkg/controller/statefulset

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, count, entry, is_deleting, label, list, now, number, scaled, selects, set_label, text,
};
use crate::ownership::claim;
use crate::pod;
use crate::queue::Next;
use crate::replica_set::set_count;
use crate::revision::{self, HASH, Revisions};

const AUTHOR: Author = Author::Controller {
    account: "statefulset-controller",
    component: "statefulset-controller",
};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// A StatefulSet with its Pods.
struct Members<'m> {
    context: &'m Context,
    set: &'m Object,
    revisions: Revisions,
    /// The Pods, by ordinal.
    pods: BTreeMap<i64, Arc<Object>>,
}

/// The ordinal of a StatefulSet's Pod.
fn ordinal(set: &Object, pod: &Object) -> Option<i64> {
    let rest = pod.name().strip_prefix(set.name())?.strip_prefix('-')?;
    rest.parse().ok().filter(|ordinal| *ordinal >= 0)
}

/// Reconciles a StatefulSet.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(set) = context.cache.at(Kind::StatefulSet, path) else {
        return Ok(Next::Done);
    };
    let selector = set.pointer("/spec/selector");
    let pods = claim(context, &AUTHOR, &set, Kind::Pod, |pod| {
        selects(selector, pod) && ordinal(&set, pod).is_some()
    });
    let pods = pods.await?;
    let Some(revisions) = revision::sync(context, &AUTHOR, &set).await? else {
        return Ok(Next::Done);
    };
    let pods = pods
        .into_iter()
        .filter_map(|pod| Some((ordinal(&set, &pod)?, pod)));
    let members = Members {
        context,
        set: &set,
        revisions,
        pods: pods.collect(),
    };
    let stepped = match is_deleting(&set) {
        true => Ok(()),
        false => members.step().await,
    };
    members.write_status().await?;
    let pods = &members.pods;
    let has_revision = |one: &Object| {
        let current = text(&set, "/status/currentRevision") == one.name();
        current
            || pods
                .values()
                .any(|pod| label(pod, HASH) == Some(one.name()))
    };
    revision::truncate(context, &AUTHOR, &set, &members.revisions, has_revision).await?;
    stepped?;
    let seconds = count(&set, "/spec/minReadySeconds");
    let readiness = pod::readiness(members.pods.values(), seconds, now());
    Ok(match readiness.next {
        None => Next::Done,
        Some(seconds) => Next::After(Duration::from_secs(seconds.unsigned_abs())),
    })
}

impl Members<'_> {
    fn ordinals(&self) -> std::ops::Range<i64> {
        let first = count(self.set, "/spec/ordinals/start");
        first..first + count(self.set, "/spec/replicas")
    }

    fn is_ordered(&self) -> bool {
        text(self.set, "/spec/podManagementPolicy") != "Parallel"
    }

    fn partition(&self) -> i64 {
        count(self.set, "/spec/updateStrategy/rollingUpdate/partition")
    }

    /// The revision of Pods below the partition.
    fn current(&self) -> &Arc<Object> {
        let name = text(self.set, "/status/currentRevision");
        let found = self.revisions.all.iter().find(|one| one.name() == name);
        found.unwrap_or(&self.revisions.update)
    }

    fn is_available(&self, pod: &Value) -> bool {
        let seconds = count(self.set, "/spec/minReadySeconds");
        pod::phase(pod) == "Running"
            && !is_deleting(pod)
            && pod::available_in(pod, seconds, now()) == Some(0)
    }

    async fn step(&self) -> Result<(), Rejected> {
        let is_ordered = self.is_ordered();
        for ordinal in self.ordinals() {
            let waits = self.reconcile_replica(ordinal).await?;
            if waits && is_ordered {
                return Ok(());
            }
        }
        let surplus: Vec<_> = self
            .pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| !self.ordinals().contains(ordinal))
            .collect();
        for (ordinal, pod) in &surplus {
            if !is_deleting(pod) {
                self.remove(pod).await?;
                self.delete_claims(**ordinal).await?;
            }
            if is_ordered {
                return Ok(());
            }
        }
        if !surplus.is_empty() || text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return Ok(());
        }
        self.update().await
    }

    /// Ensures that the Pod of an ordinal exists. Returns true if later ordinals must wait for it.
    async fn reconcile_replica(&self, ordinal: i64) -> Result<bool, Rejected> {
        let Some(pod) = self.pods.get(&ordinal) else {
            self.create(ordinal).await?;
            return Ok(true);
        };
        if pod::is_finished(pod) {
            if !is_deleting(pod) {
                self.remove(pod).await?;
            }
            return Ok(true);
        }
        if pod::phase(pod) == "Pending" {
            self.create_claims(pod.name()).await?;
        }
        Ok(!self.is_available(pod))
    }

    /// Replaces Pods of old revisions, from the highest ordinal down to the partition.
    async fn update(&self) -> Result<(), Rejected> {
        let ordinals = self.ordinals();
        let total = ordinals.end - ordinals.start;
        let most = self
            .set
            .pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
        let mut budget = scaled(most, total, true).unwrap_or(1).max(1);
        let first = ordinals.start + self.partition();
        for ordinal in (first..ordinals.end).rev() {
            let Some(pod) = self.pods.get(&ordinal) else {
                return Ok(());
            };
            let is_old = label(pod, HASH) != Some(self.revisions.update.name());
            if is_old && !is_deleting(pod) {
                self.remove(pod).await?;
            } else if self.is_available(pod) {
                continue;
            }
            budget -= 1;
            if budget <= 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn tell(
        &self,
        result: &Result<(), Rejected>,
        verb: &str,
        done: &'static str,
        failed: &'static str,
        what: &str,
    ) {
        let (events, set) = (&self.context.events, self.set);
        match result {
            Ok(()) => {
                let message = format!("{verb} {what} in StatefulSet {} successful", set.name());
                events.normal(&AUTHOR, set, done, message);
            }
            Err(refused) => {
                let why = refused.message();
                let message = format!(
                    "{verb} {what} in StatefulSet {} failed error: {why}",
                    set.name()
                );
                events.warning(&AUTHOR, set, failed, message);
            }
        }
    }

    async fn remove(&self, pod: &Object) -> Result<(), Rejected> {
        let removed = self.context.delete(&AUTHOR, pod).await;
        let what = format!("Pod {}", pod.name());
        self.tell(
            &removed,
            "delete",
            "SuccessfulDelete",
            "FailedDelete",
            &what,
        );
        removed
    }

    async fn create(&self, ordinal: i64) -> Result<(), Rejected> {
        let name = format!("{}-{ordinal}", self.set.name());
        self.create_claims(&name).await?;
        let keeps_current = text(self.set, "/spec/updateStrategy/type") == "RollingUpdate"
            && ordinal < self.ordinals().start + self.partition();
        let revision = if keeps_current {
            self.current()
        } else {
            &self.revisions.update
        };
        let pod = self.pod(ordinal, &name, revision);
        let created = self.context.create_missing(&AUTHOR, Kind::Pod, pod).await;
        let created = created.map(drop);
        let what = format!("Pod {name}");
        self.tell(
            &created,
            "create",
            "SuccessfulCreate",
            "FailedCreate",
            &what,
        );
        created
    }

    fn pod(&self, ordinal: i64, name: &str, revision: &Object) -> Value {
        let set = self.set;
        let mut pod = pod::from_template(&revision::template(revision), set);
        entry(&mut pod, "metadata").remove("generateName");
        pod["metadata"]["name"] = name.into();
        set_label(&mut pod, HASH, revision.name());
        set_label(&mut pod, POD_NAME, name);
        set_label(&mut pod, POD_INDEX, &ordinal.to_string());
        pod["spec"]["hostname"] = name.into();
        pod["spec"]["subdomain"] = text(set, "/spec/serviceName").into();
        let own: Vec<Value> = list(set, "/spec/volumeClaimTemplates")
            .map(|template| {
                let volume = text(template, "/metadata/name");
                let claim = format!("{volume}-{name}");
                json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            })
            .collect();
        if !own.is_empty() {
            let others = list(&pod, "/spec/volumes")
                .filter(|volume| !own.iter().any(|one| one["name"] == volume["name"]));
            let volumes: Vec<Value> = own.iter().chain(others).cloned().collect();
            pod["spec"]["volumes"] = volumes.into();
        }
        pod
    }

    /// Creates the missing claims of a Pod.
    async fn create_claims(&self, pod: &str) -> Result<(), Rejected> {
        let set = self.set;
        for template in list(set, "/spec/volumeClaimTemplates") {
            let name = format!("{}-{pod}", text(template, "/metadata/name"));
            let kind = Kind::PersistentVolumeClaim;
            if self
                .context
                .cache
                .get(kind, set.namespace(), &name)
                .is_some()
            {
                continue;
            }
            let mut claim = template.clone();
            claim["apiVersion"] = "v1".into();
            claim["kind"] = kind.name().into();
            claim["metadata"]["name"] = name.as_str().into();
            claim["metadata"]["namespace"] = set.namespace().into();
            let labels = set.pointer("/spec/selector/matchLabels");
            let labels = labels.and_then(Value::as_object).into_iter().flatten();
            for (key, value) in labels {
                set_label(&mut claim, key, value.as_str().unwrap_or_default());
            }
            if text(
                set,
                "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted",
            ) == "Delete"
            {
                claim["metadata"]["ownerReferences"] = json!([set.as_owner()]);
            }
            if let Some(members) = claim.as_object_mut() {
                members.remove("status");
            }
            let created = self.context.create_missing(&AUTHOR, kind, claim).await;
            let created = created.map(drop);
            let what = format!("Claim {name} Pod {pod}");
            self.tell(
                &created,
                "create",
                "SuccessfulCreate",
                "FailedCreate",
                &what,
            );
            created?;
        }
        Ok(())
    }

    /// Deletes the claims of a removed Pod, unless the retention policy keeps them. Pods that still use them prevent
    /// their deletion.
    async fn delete_claims(&self, ordinal: i64) -> Result<(), Rejected> {
        let policy = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled";
        if text(self.set, policy) != "Delete" {
            return Ok(());
        }
        for template in list(self.set, "/spec/volumeClaimTemplates") {
            let name = text(template, "/metadata/name");
            let name = format!("{name}-{}-{ordinal}", self.set.name());
            let kind = Kind::PersistentVolumeClaim;
            let claim = self.context.cache.get(kind, self.set.namespace(), &name);
            if let Some(claim) = claim.filter(|claim| !is_deleting(claim)) {
                self.context.delete(&AUTHOR, &claim).await?;
            }
        }
        Ok(())
    }

    async fn write_status(&self) -> Result<(), Rejected> {
        let status = self.status();
        self.context.set_status(&AUTHOR, self.set, status).await
    }

    fn status(&self) -> Value {
        let set = self.set;
        let seconds = count(set, "/spec/minReadySeconds");
        let running = self
            .pods
            .values()
            .filter(|pod| pod::phase(pod) == "Running");
        let readiness = pod::readiness(running, seconds, now());
        let of = |revision: &Object| {
            let pods = self
                .pods
                .values()
                .filter(|pod| !is_deleting(pod) && label(pod, HASH) == Some(revision.name()));
            i64::try_from(pods.count()).unwrap_or(i64::MAX)
        };
        let (mut current, update) = (self.current(), &self.revisions.update);
        let total = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        let updated = of(update);
        let wanted = count(set, "/spec/replicas");
        let is_over = text(set, "/spec/updateStrategy/type") == "RollingUpdate"
            && [updated, total, readiness.ready] == [wanted; 3];
        if is_over {
            current = update;
        }
        let mut status = json!({
            "observedGeneration": count(set, "/metadata/generation"),
            "replicas": total,
            "availableReplicas": readiness.available,
            "currentRevision": current.name(),
            "updateRevision": update.name(),
            "collisionCount": number(set, "/status/collisionCount").unwrap_or_default(),
        });
        set_count(&mut status, "readyReplicas", readiness.ready);
        set_count(&mut status, "currentReplicas", of(current));
        set_count(&mut status, "updatedReplicas", updated);
        if let Some(conditions) = set.pointer("/status/conditions") {
            status["conditions"] = conditions.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, name: &str) -> Object {
        Object {
            kind,
            key: kind.key("n", name).into(),
            created: 1,
            value: json!({"metadata": {"name": name, "namespace": "n"}}),
        }
    }

    #[test]
    fn ordinals_are_read_from_names() {
        let set = object(Kind::StatefulSet, "web");
        let of = |name: &str| ordinal(&set, &object(Kind::Pod, name));
        assert_eq!(of("web-0"), Some(0));
        assert_eq!(of("web-12"), Some(12));
        assert_eq!(of("web-x"), None);
        assert_eq!(of("web-2-0"), None);
        assert_eq!(of("db-0"), None);
    }
}
