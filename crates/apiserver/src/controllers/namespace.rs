//! Deletes the contents of a terminating namespace, and then removes its finalizer.
//!
//! UPSTREAM: kubernetes pkg/controller/namespace

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_api::meta::time::Time;
use lockgate_store::{Entry, List};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, account, options};
use crate::decode::options::DeleteOptions;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Resource, Snapshot};
use crate::request::{ObjectPath, Request};
use crate::write::Writer;
use crate::write::delete::Deletion;
use crate::write::strategy;
use crate::write::update::Change;

/// The finalizer in the spec of a namespace, for its contents.
const FINALIZER: &str = "kubernetes";

fn user() -> UserInfo {
    account("namespace-controller")
}

/// Deletes the contents of a namespace. Returns true if complete; objects blocked by finalizers or webhooks are left,
/// and reported in the conditions of the namespace.
pub(super) async fn reconcile(context: &Context, name: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(namespaces) = snapshot.find("", "v1", "namespaces") else {
        return Ok(true);
    };
    let key = writer.storage.key(namespaces, "", name);
    let Some(entry) = writer.storage.entry(&key).await? else {
        return Ok(true);
    };
    let namespace = encoding::parse_entry(&entry, namespaces.type_meta())?;
    let is_held = strategy::namespace_finalizers(&namespace).contains(&FINALIZER);
    if !metadata::is_deleting(&namespace) || !is_held {
        return Ok(true);
    }
    let emptying = ContentDeleter {
        writer,
        namespace: name,
        deleted_at: Time::parse(metadata::text(&namespace, "deletionTimestamp")).ok(),
    };
    let progress = emptying.run(&snapshot).await?;
    update_conditions(writer, namespaces, &namespace, &progress).await;
    if !progress.is_done() {
        return Ok(false);
    }
    finalize(writer, namespaces, name).await?;
    Ok(true)
}

/// The deletion of everything in a namespace.
struct ContentDeleter<'e> {
    writer: &'e Writer,
    namespace: &'e str,
    /// The time the namespace was deleted.
    deleted_at: Option<Time>,
}

impl ContentDeleter<'_> {
    /// Deletes the objects in the namespace: Pods first, and nothing else while there are any.
    ///
    /// UPSTREAM: kubernetes pkg/controller/namespace/deletion (OrderedNamespaceDeletion)
    async fn run(&self, snapshot: &Snapshot) -> Outcome<Progress> {
        let mut progress = Progress::default();
        let (pods, others): (Vec<_>, Vec<_>) = contents(snapshot)
            .into_iter()
            .partition(|resource| resource.is("", "pods"));
        for resource in pods {
            let left = self.delete_all(resource).await?;
            if left.count > 0 {
                progress.pods_remain = true;
            }
            progress.add(resource, left);
        }
        if progress.pods_remain {
            return Ok(progress);
        }
        for resource in others {
            let left = self.delete_all(resource).await?;
            progress.add(resource, left);
        }
        Ok(progress)
    }

    async fn entries(&self, resource: &Resource) -> Outcome<Vec<Arc<Entry>>> {
        let storage = &self.writer.storage;
        let prefix = storage.prefix(resource, self.namespace);
        let page = storage.store().list(List::all(&prefix)).await;
        Ok(page.map_err(|error| read_failed(error, 0))?.entries)
    }

    /// Deletes the objects of one resource.
    async fn delete_all(&self, resource: &Arc<Resource>) -> Outcome<RemainingObjects> {
        let entries = self.entries(resource).await?;
        if entries.is_empty() {
            return Ok(RemainingObjects::default());
        }
        let is_waiting = resource.is("", "pods") && self.is_within_grace_period(&entries);
        for entry in &entries {
            if let Err(failure) = self.delete(resource, entry).await {
                let error = failure.0.message;
                tracing::debug!(
                    key = &*entry.key,
                    error,
                    "cannot delete an object in a terminating namespace"
                );
                // The rest of the collection is neither deleted nor counted.
                return Ok(RemainingObjects {
                    error: Some(error),
                    ..RemainingObjects::default()
                });
            }
        }
        let mut left = RemainingObjects::default();
        for entry in &self.entries(resource).await? {
            left.count += 1;
            for finalizer in Finalizers::of(entry) {
                *left.finalizers.entry(finalizer).or_default() += 1;
            }
        }
        if left.count > 0 && left.finalizers.is_empty() && !is_waiting {
            left.error = Some(format!(
                "unexpected items still remain in namespace: {} for gvr: {}/{}, Resource={}",
                self.namespace,
                resource.group(),
                resource.version,
                resource.plural()
            ));
        }
        Ok(left)
    }

    async fn delete(&self, resource: &Arc<Resource>, entry: &Entry) -> Outcome<()> {
        let path = ObjectPath {
            resource,
            namespace: self.namespace,
            name: entry.key.rsplit('/').next().unwrap_or_default(),
            subresource: "",
        };
        let request = Request::internal(user(), Verb::Delete, path);
        let deletion = Deletion {
            // Upstream deletes the collection, so admission receives no name.
            admission_name: Some(""),
            of_collection: true,
            ..Deletion::of(self.writer, &request)
        };
        let options = DeleteOptions {
            propagation_policy: Some(String::from("Background")),
            ..DeleteOptions::default()
        };
        match deletion.run(options).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns true during the grace period of Pods.
    fn is_within_grace_period(&self, pods: &[Arc<Entry>]) -> bool {
        let longest = pods.iter().filter_map(|entry| {
            let pod = encoding::tree(&entry.value)?;
            let phase = pod.pointer("/status/phase").and_then(Value::as_str);
            let period = pod.pointer("/spec/terminationGracePeriodSeconds")?.as_i64();
            period.filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))
        });
        let longest = longest.max().unwrap_or_default();
        let since = self.deleted_at.map_or(0, |time| {
            metadata::now().unix_seconds() - time.unix_seconds()
        });
        since < longest
    }
}

/// The namespaced resources, each in one version: the preferred one, or the storage version if none is served.
fn contents(snapshot: &Snapshot) -> Vec<&Arc<Resource>> {
    let mut seen = HashSet::new();
    let served = snapshot.resources().iter();
    let all = served.chain(snapshot.storage_versions());
    all.filter(|resource| {
        let is_deletable = resource.names.verbs.iter().any(|verb| verb == "delete");
        resource.names.namespaced && is_deletable && seen.insert(&resource.storage)
    })
    .collect()
}

/// The remaining objects of one resource.
#[derive(Debug, Default)]
struct RemainingObjects {
    count: usize,
    /// The number of objects per finalizer.
    finalizers: BTreeMap<String, usize>,
    error: Option<String>,
}

/// The finalizers of a stored object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Finalizers {
    finalizers: Option<Vec<String>>,
}

impl Finalizers {
    fn of(entry: &Entry) -> Vec<String> {
        let read: Option<Self> = encoding::read_metadata(&entry.value);
        read.unwrap_or_default().finalizers.unwrap_or_default()
    }
}

/// The progress of a deletion.
#[derive(Debug, Default)]
struct Progress {
    /// By `resource.group`.
    remaining: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    errors: Vec<String>,
    pods_remain: bool,
}

impl Progress {
    fn add(&mut self, resource: &Resource, left: RemainingObjects) {
        if left.count > 0 {
            let name = format!("{}.{}", resource.plural(), resource.group());
            self.remaining.insert(name, left.count);
        }
        for (finalizer, count) in left.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
        self.errors.extend(left.error);
    }

    fn is_done(&self) -> bool {
        self.remaining.is_empty() && self.errors.is_empty()
    }

    /// The current conditions of a namespace.
    ///
    /// UPSTREAM: kubernetes pkg/controller/namespace/deletion/status_condition_utils.go. Discovery is in-process here
    /// and does not fail.
    fn conditions(&self) -> [Condition; 5] {
        let mut errors = self.errors.clone();
        errors.sort();
        let failed = (!errors.is_empty()).then(|| {
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                errors.len(),
                errors.join(", ")
            );
            ("ContentDeletionFailed", message)
        });
        let counted = |counts: &BTreeMap<String, usize>, how: &str, what: &str| {
            let each: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name} {how} {count} resource instances"))
                .collect();
            // While there are Pods, upstream counts nothing.
            (!each.is_empty() && !self.pods_remain).then(|| format!("{what}: {}", each.join(", ")))
        };
        let remaining = counted(&self.remaining, "has", "Some resources are remaining")
            .map(|message| ("SomeResourcesRemain", message));
        let held = counted(
            &self.finalizers,
            "in",
            "Some content in the namespace has finalizers remaining",
        )
        .map(|message| ("SomeFinalizersRemain", message));
        [
            Condition {
                kind: "NamespaceDeletionDiscoveryFailure",
                trouble: None,
                fine: (
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
            },
            Condition {
                kind: "NamespaceDeletionGroupVersionParsingFailure",
                trouble: None,
                fine: (
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            },
            Condition {
                kind: "NamespaceDeletionContentFailure",
                trouble: failed,
                fine: (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            },
            Condition {
                kind: "NamespaceContentRemaining",
                trouble: remaining,
                fine: ("ContentRemoved", "All content successfully removed"),
            },
            Condition {
                kind: "NamespaceFinalizersRemaining",
                trouble: held,
                fine: (
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            },
        ]
    }
}

/// One condition of a namespace: the reason and message for both states.
struct Condition {
    kind: &'static str,
    trouble: Option<(&'static str, String)>,
    fine: (&'static str, &'static str),
}

impl Condition {
    /// Sets the condition in a list. Returns true if it changed.
    fn set(&self, conditions: &mut Vec<Value>, now: &str) -> bool {
        let (status, reason, message) = match &self.trouble {
            Some((reason, message)) => ("True", *reason, message.as_str()),
            None => ("False", self.fine.0, self.fine.1),
        };
        let mut new = json!({
            "type": self.kind,
            "status": status,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        });
        let Some(old) = conditions.iter_mut().find(|old| old["type"] == self.kind) else {
            conditions.push(new);
            return true;
        };
        if old["status"] == status {
            new["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
        let is_changed = *old != new;
        *old = new;
        is_changed
    }
}

/// Updates the conditions of a namespace. The deletion continues if that fails.
async fn update_conditions(
    writer: &Writer,
    namespaces: &Arc<Resource>,
    namespace: &Value,
    progress: &Progress,
) {
    let now = metadata::now().to_string();
    let with_conditions = |namespace: &Value| {
        let told = namespace.pointer("/status/conditions");
        let mut conditions = told.and_then(Value::as_array).cloned().unwrap_or_default();
        let mut is_changed = false;
        for condition in &progress.conditions() {
            is_changed |= condition.set(&mut conditions, &now);
        }
        is_changed.then_some(conditions)
    };
    if with_conditions(namespace).is_none() {
        return;
    }
    let name = metadata::text(namespace, "name");
    let path = ObjectPath {
        resource: namespaces,
        namespace: name,
        name,
        subresource: "status",
    };
    let request = Request::internal(user(), Verb::Update, path);
    let options = options();
    let told = Change::new(writer, &request, &options)
        .edit(|namespace| {
            if let Some(conditions) = with_conditions(namespace) {
                namespace["status"]["conditions"] = conditions.into();
            }
        })
        .await;
    if let Err(failure) = told
        && !failure.is_not_found()
    {
        let error = failure.0.message;
        tracing::debug!(name, error, "namespace conditions not written");
    }
}

/// Removes the `kubernetes` finalizer. Other finalizers are left to their owners.
async fn finalize(writer: &Writer, namespaces: &Arc<Resource>, name: &str) -> Outcome<()> {
    let path = ObjectPath {
        resource: namespaces,
        namespace: name,
        name,
        subresource: "finalize",
    };
    let request = Request::internal(user(), Verb::Update, path);
    let options = options();
    let finalized = Change::new(writer, &request, &options)
        .edit(|namespace| {
            let mut finalizers: Vec<Value> = strategy::namespace_finalizers(namespace)
                .into_iter()
                .map(Value::from)
                .collect();
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
                if finalizers.is_empty() {
                    spec.remove("finalizers");
                } else {
                    spec.insert(String::from("finalizers"), finalizers.into());
                }
            }
        })
        .await;
    match finalized {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}
