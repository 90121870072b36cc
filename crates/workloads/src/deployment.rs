//! Deployments: a ReplicaSet per template, and rollouts from one to the next.
//!
//! ```text
//!   new template ─► new ReplicaSet ─► scale up within maxSurge ─► scale down old ones within maxUnavailable
//! ```
//!
//! A reconciliation takes one step and updates the status; its writes trigger the next one.
//!
//! UPSTREAM: kubernetes pkg/controller/deployment

mod scale;
mod status;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, annotation, count, entry, is_deleting, number, selects, set_annotation, set_label, text,
};
use crate::ownership::claim;
use crate::pod;
use crate::queue::Next;
use scale::Sizes;

const AUTHOR: Author = Author::Controller {
    account: "deployment-controller",
    component: "deployment-controller",
};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that are not copied to its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// The maximum length of the revision history annotation.
const HISTORY_LENGTH: usize = 2000;

/// A Deployment with its ReplicaSets.
struct Rollout<'r> {
    context: &'r Context,
    deployment: &'r Object,
    /// The ReplicaSet of the current template.
    new: Option<Arc<Object>>,
    old: Vec<Arc<Object>>,
}

/// Reconciles a Deployment.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(deployment) = context.cache.at(Kind::Deployment, path) else {
        return Ok(Next::Done);
    };
    if deployment.pointer("/spec/selector") == Some(&json!({})) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        context
            .events
            .warning(&AUTHOR, &deployment, "SelectingAll", message.to_owned());
        return Ok(Next::Done);
    }
    let selector = deployment.pointer("/spec/selector");
    let sets = claim(context, &AUTHOR, &deployment, Kind::ReplicaSet, |set| {
        selects(selector, set)
    });
    let rollout = Rollout::of(context, &deployment, sets.await?);
    rollout.step().await
}

/// Compares two templates without the label `pod-template-hash`.
fn is_same_template(own: &Value, other: &Value) -> bool {
    let strip = |template: &Value| {
        let mut template = template.clone();
        if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(HASH);
            }
        }
        template
    };
    strip(own) == strip(other)
}

fn revision(set: &Value) -> i64 {
    let text = annotation(set, REVISION);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn replicas(set: &Value) -> i64 {
    count(set, "/spec/replicas")
}

fn is_paused(deployment: &Value) -> bool {
    crate::object::flag(deployment, "/spec/paused")
}

fn has_deadline(deployment: &Value) -> bool {
    // UPSTREAM: kubernetes pkg/controller/deployment/util (HasProgressDeadline): `MaxInt32` means no deadline.
    let seconds = number(deployment, "/spec/progressDeadlineSeconds");
    seconds.is_some_and(|seconds| seconds != i64::from(i32::MAX))
}

impl<'r> Rollout<'r> {
    fn of(context: &'r Context, deployment: &'r Object, mut sets: Vec<Arc<Object>>) -> Self {
        let template = &deployment["spec"]["template"];
        sets.sort_by_key(|set| set.created);
        // Of several with this template, the oldest is used.
        let place = sets
            .iter()
            .position(|set| is_same_template(template, &set["spec"]["template"]));
        let new = place.map(|place| sets.remove(place));
        Self {
            context,
            deployment,
            new,
            old: sets,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.old.iter().chain(&self.new)
    }

    fn sizes(&self) -> Sizes {
        Sizes::of(self.deployment)
    }

    async fn step(mut self) -> Reconciled {
        if is_deleting(self.deployment) {
            return self.write_status(false).await;
        }
        if let Some(status) = status::after_pause(self.deployment) {
            self.context
                .set_status(&AUTHOR, self.deployment, status)
                .await?;
            return Ok(Next::Done);
        }
        if self.new.is_some() && self.sync_new().await? {
            return Ok(Next::Done);
        }
        if is_paused(self.deployment) || self.is_scaling() {
            self.scale().await?;
            if is_paused(self.deployment) {
                self.clean_up().await?;
            }
            return self.write_status(false).await;
        }
        match text(self.deployment, "/spec/strategy/type") {
            "Recreate" => self.recreate().await,
            _ => self.roll().await,
        }
    }

    /// Updates the annotations of the new ReplicaSet and the Deployment. Returns true if one was written.
    async fn sync_new(&mut self) -> Result<bool, Rejected> {
        let Some(new) = &self.new else {
            return Ok(false);
        };
        let next = self.old.iter().map(|set| revision(set)).max();
        let next = next.unwrap_or_default() + 1;
        let seconds = count(self.deployment, "/spec/minReadySeconds");
        let mut wanted = new.value.clone();
        self.annotate(&mut wanted, next);
        if count(&wanted, "/spec/minReadySeconds") != seconds {
            wanted["spec"]["minReadySeconds"] = seconds.into();
        }
        if wanted != new.value {
            let annotations = wanted["metadata"]["annotations"].clone();
            let edit = |set: &mut Value| {
                set["metadata"]["annotations"] = annotations.clone();
                if count(set, "/spec/minReadySeconds") != seconds {
                    set["spec"]["minReadySeconds"] = seconds.into();
                }
            };
            self.context.edit(&AUTHOR, new, &edit).await?;
            return Ok(true);
        }
        let told = annotation(new, REVISION).unwrap_or_default();
        if annotation(self.deployment, REVISION) == Some(told) {
            return Ok(false);
        }
        let at = self.deployment.status();
        let edit = |deployment: &mut Value| set_annotation(deployment, REVISION, told);
        self.context.api.edit(&AUTHOR, at, &edit).await?;
        Ok(true)
    }

    /// Sets the annotations that a ReplicaSet inherits from its Deployment, and its revision.
    fn annotate(&self, set: &mut Value, next: i64) {
        let own = self.deployment.pointer("/metadata/annotations");
        let own = own.and_then(Value::as_object).into_iter().flatten();
        for (key, value) in own.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str())) {
            set_annotation(set, key, value.as_str().unwrap_or_default());
        }
        let before = annotation(set, REVISION).map(str::to_owned);
        if revision(set) >= next {
            return;
        }
        set_annotation(set, REVISION, &next.to_string());
        if let Some(before) = before {
            let mut history: Vec<String> = annotation(set, HISTORY)
                .unwrap_or_default()
                .split(',')
                .filter(|revision| !revision.is_empty())
                .map(str::to_owned)
                .collect();
            history.push(before);
            while history.join(",").len() > HISTORY_LENGTH {
                history.remove(0);
            }
            set_annotation(set, HISTORY, &history.join(","));
        }
    }

    fn set_size_annotations(&self, set: &mut Value) {
        let sizes = self.sizes();
        set_annotation(set, DESIRED, &sizes.replicas.to_string());
        set_annotation(set, MAX, &(sizes.replicas + sizes.max_surge).to_string());
    }

    /// Creates the ReplicaSet of the current template. Errors are reported by conditions and an event.
    async fn create_new(&self) -> Reconciled {
        let deployment = self.deployment;
        let mut template = deployment["spec"]["template"].clone();
        let collisions = number(deployment, "/status/collisionCount");
        let hash = crate::object::template_hash(&template, collisions);
        set_label(&mut template, HASH, &hash);
        let mut selector = deployment["spec"]["selector"].clone();
        entry(&mut selector, "matchLabels").insert(String::from(HASH), hash.as_str().into());
        let name = format!("{}-{hash}", deployment.name());
        let size = self
            .sizes()
            .of_new(self.old.iter().map(|set| replicas(set)).sum(), 0);
        let mut set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": deployment.namespace(),
                "ownerReferences": [deployment.as_owner()],
                "labels": template["metadata"]["labels"],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        });
        let seconds = count(deployment, "/spec/minReadySeconds");
        if seconds > 0 {
            set["spec"]["minReadySeconds"] = seconds.into();
        }
        let newest = self.old.iter().map(|set| revision(set)).max();
        let next = newest.unwrap_or_default() + 1;
        self.annotate(&mut set, next);
        self.set_size_annotations(&mut set);
        let events = &self.context.events;
        match self
            .context
            .api
            .create(&AUTHOR, Kind::ReplicaSet, set)
            .await
        {
            Ok(_) => {
                if size > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {size}");
                    events.normal(&AUTHOR, deployment, "ScalingReplicaSet", message);
                }
                let message = format!("Created new replica set \"{name}\"");
                self.update_progressing("True", "NewReplicaSetCreated", &message, Some(next))
                    .await?;
                Ok(Next::Done)
            }
            Err(refused) if refused.is_already_exists() => {
                // Hash collision: the hash is computed with the next collision count.
                let at = deployment.status();
                let edit = |deployment: &mut Value| {
                    let collisions = count(deployment, "/status/collisionCount");
                    entry(deployment, "status")
                        .insert(String::from("collisionCount"), (collisions + 1).into());
                };
                self.context.api.edit(&AUTHOR, at, &edit).await?;
                Ok(Next::Done)
            }
            Err(refused) if refused.is_namespace_terminating() => Ok(Next::Done),
            Err(refused) => {
                let why = refused.message();
                let message = format!("Failed to create new replica set \"{name}\": {why}");
                self.update_progressing("False", "ReplicaSetCreateError", &message, None)
                    .await?;
                events.warning(&AUTHOR, deployment, "ReplicaSetCreateError", message);
                Err(refused)
            }
        }
    }

    /// Updates the condition `Progressing`, and the revision.
    async fn update_progressing(
        &self,
        status: &str,
        reason: &str,
        message: &str,
        revision: Option<i64>,
    ) -> Result<(), Rejected> {
        let tells = has_deadline(self.deployment);
        let edit = |deployment: &mut Value| {
            if let Some(revision) = revision {
                set_annotation(deployment, REVISION, &revision.to_string());
            }
            if tells {
                let mut conditions = crate::object::conditions(deployment);
                status::set(&mut conditions, "Progressing", status, reason, message);
                entry(deployment, "status").insert(String::from("conditions"), conditions.into());
            }
        };
        let at = self.deployment.status();
        self.context.api.edit(&AUTHOR, at, &edit).await?;
        Ok(())
    }

    async fn roll(&mut self) -> Reconciled {
        let Some(new) = self.new.clone() else {
            return self.create_new().await;
        };
        let sizes = self.sizes();
        let total: i64 = self.all().map(|set| replicas(set)).sum();
        let size = sizes.of_new(total, replicas(&new));
        if self.resize(&new, size, false).await? {
            return self.write_status(true).await;
        }
        let old: Vec<_> = self
            .old
            .iter()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect();
        let mut scaled = false;
        for (set, size) in sizes.of_old(&old, &new) {
            scaled |= self.resize(&set, size, false).await?;
        }
        if !scaled && status::is_complete(self.deployment, &self.deployment["status"]) {
            self.clean_up().await?;
        }
        self.write_status(true).await
    }

    async fn recreate(&mut self) -> Reconciled {
        let mut scaled = false;
        for set in self.old.clone() {
            scaled |= self.resize(&set, 0, false).await?;
        }
        if scaled || self.runs_old_pods() {
            return self.write_status(true).await;
        }
        let Some(new) = self.new.clone() else {
            return self.create_new().await;
        };
        self.resize(&new, self.sizes().replicas, false).await?;
        if status::is_complete(self.deployment, &self.deployment["status"]) {
            self.clean_up().await?;
        }
        self.write_status(true).await
    }

    fn runs_old_pods(&self) -> bool {
        self.old.iter().any(|set| {
            let pods = self.context.cache.controlled(set.uid(), Kind::Pod);
            count(set, "/status/replicas") > 0 || pods.iter().any(|pod| !pod::is_finished(pod))
        })
    }

    /// Deletes old ReplicaSets beyond `revisionHistoryLimit`.
    async fn clean_up(&self) -> Result<(), Rejected> {
        let Some(limit) = number(self.deployment, "/spec/revisionHistoryLimit") else {
            return Ok(());
        };
        let mut old: Vec<_> = self.old.iter().filter(|set| !is_deleting(set)).collect();
        let excess = old
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        old.sort_by_key(|set| (revision(set), set.created));
        for set in old.into_iter().take(excess) {
            let is_used = count(set, "/status/replicas") != 0
                || replicas(set) != 0
                || count(set, "/metadata/generation") > count(set, "/status/observedGeneration");
            if !is_used {
                self.context.delete(&AUTHOR, set).await?;
            }
        }
        Ok(())
    }

    /// Scales a ReplicaSet. Returns true if it was updated.
    async fn resize(&self, set: &Object, size: i64, annotates: bool) -> Result<bool, Rejected> {
        let before = replicas(set);
        let mut wanted = set.value.clone();
        self.set_size_annotations(&mut wanted);
        let differs = before != size;
        let is_due = differs || annotates && wanted != set.value;
        if !is_due {
            return Ok(false);
        }
        let edit = |set: &mut Value| {
            set["spec"]["replicas"] = size.into();
            self.set_size_annotations(set);
        };
        self.context.edit(&AUTHOR, set, &edit).await?;
        if differs {
            let way = if before < size { "up" } else { "down" };
            let name = set.name();
            let message = format!("Scaled {way} replica set {name} from {before} to {size}");
            let events = &self.context.events;
            events.normal(&AUTHOR, self.deployment, "ScalingReplicaSet", message);
        }
        Ok(differs)
    }

    /// Returns true if the Deployment was scaled after its ReplicaSets.
    fn is_scaling(&self) -> bool {
        let wanted = self.sizes().replicas;
        self.all().filter(|set| replicas(set) > 0).any(|set| {
            let desired = annotation(set, DESIRED).and_then(|text| text.parse::<i64>().ok());
            desired.is_some_and(|desired| desired != wanted)
        })
    }

    async fn scale(&self) -> Result<(), Rejected> {
        for (set, size, annotates) in self.sizes().proportional(self) {
            self.resize(&set, size, annotates).await?;
        }
        Ok(())
    }

    /// Writes the status and ends the step; during a rollout, the next reconciliation is due at the progress
    /// deadline.
    async fn write_status(&self, rolls: bool) -> Reconciled {
        let status = status::of(self, rolls);
        let next = if rolls {
            status::next_check(self.deployment, &status)
        } else {
            Next::Done
        };
        self.context
            .set_status(&AUTHOR, self.deployment, status)
            .await?;
        Ok(next)
    }
}
