//! ControllerRevisions: the template history of StatefulSets and DaemonSets.
//!
//! UPSTREAM: kubernetes pkg/controller/history/controller_history.go

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::Context;
use crate::kind::Kind;
use crate::object::{Object, count, is_deleting, number, selects, template_hash};
use crate::ownership::claim;

/// The label of Pods, and of DaemonSets' ControllerRevisions.
pub(crate) const HASH: &str = "controller-revision-hash";
/// The label of StatefulSets' ControllerRevisions.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// The ControllerRevisions of a StatefulSet or DaemonSet, in order.
#[derive(Debug)]
pub(crate) struct Revisions {
    pub(crate) all: Vec<Arc<Object>>,
    /// The revision of the current template.
    pub(crate) update: Arc<Object>,
}

/// The data of a revision: a patch that restores its template.
fn data(set: &Value) -> Value {
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// The template of a revision.
pub(crate) fn template(revision: &Value) -> Value {
    let mut template = revision
        .pointer("/data/spec/template")
        .cloned()
        .unwrap_or_default();
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    template
}

/// The revisions of a StatefulSet or DaemonSet. `None` if one was written, which triggers another reconciliation.
pub(crate) async fn sync(
    context: &Context,
    by: &Author,
    set: &Object,
) -> Result<Option<Revisions>, Rejected> {
    let selector = set.pointer("/spec/selector");
    let claimed = claim(context, by, set, Kind::ControllerRevision, |revision| {
        selects(selector, revision)
    });
    let mut all = claimed.await?;
    all.sort_by_key(|revision| (count(revision, "/revision"), revision.created));
    let data = data(set);
    let newest = all
        .last()
        .map_or(0, |revision| count(revision, "/revision"));
    let found = all
        .iter()
        .rfind(|revision| revision["data"] == data)
        .cloned();
    match found {
        Some(update) if count(&update, "/revision") == newest => {
            return Ok(Some(Revisions { all, update }));
        }
        Some(update) => {
            let edit = |revision: &mut Value| revision["revision"] = (newest + 1).into();
            context.edit(by, &update, &edit).await?;
        }
        None if is_deleting(set) => {
            let update = all.last().cloned();
            return Ok(update.map(|update| Revisions { all, update }));
        }
        None => create(context, by, set, data, newest + 1).await?,
    }
    Ok(None)
}

async fn create(
    context: &Context,
    by: &Author,
    set: &Object,
    data: Value,
    number_of: i64,
) -> Result<(), Rejected> {
    let labels = set.pointer("/spec/template/metadata/labels");
    for collisions in number(set, "/status/collisionCount").unwrap_or_default().. {
        let hash = template_hash(&data, Some(collisions));
        let name = format!("{}-{hash}", set.name());
        let mut labels = labels.cloned().unwrap_or_else(|| json!({}));
        let label = if set.kind == Kind::DaemonSet {
            HASH
        } else {
            REVISION_HASH
        };
        labels[label] = hash.as_str().into();
        let revision = json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "namespace": set.namespace(),
                "labels": labels,
                "ownerReferences": [set.as_owner()],
            },
            "data": data,
            "revision": number_of,
        });
        if context
            .create_missing(by, Kind::ControllerRevision, revision)
            .await?
        {
            break;
        }
        // Hash collision: the hash is computed with the next collision count.
    }
    Ok(())
}

/// Deletes unused revisions beyond `revisionHistoryLimit`.
pub(crate) async fn truncate(
    context: &Context,
    by: &Author,
    set: &Object,
    revisions: &Revisions,
    is_live: impl Fn(&Object) -> bool,
) -> Result<(), Rejected> {
    let limit = number(set, "/spec/revisionHistoryLimit").unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let update = revisions.update.name();
    let old: Vec<_> = revisions
        .all
        .iter()
        .filter(|revision| revision.name() != update && !is_live(revision))
        .collect();
    let excess = old.len().saturating_sub(limit);
    for revision in old.into_iter().take(excess) {
        context.delete(by, revision).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_comes_back_out_of_a_revision() {
        let set = json!({"spec": {"replicas": 3, "template": {"spec": {"containers": []}}}});
        let data = data(&set);
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        assert!(data["spec"].get("replicas").is_none());
        assert_eq!(template(&json!({"data": data})), set["spec"]["template"]);
    }
}
