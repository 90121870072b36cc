//! Maintains the status of ResourceQuotas: the limits and the used amounts.
//!
//! Creates are charged by the plugin `ResourceQuota` before they are stored. The controller handles everything else:
//! new and changed quotas, and released usage.
//!
//! UPSTREAM: kubernetes pkg/controller/resourcequota/resource_quota_controller.go

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockgate_plugins::quota::{Counted, Devices, Usage, counted_by, status_of};
use lockgate_store::{Entry, Event, List};
use serde_json::Value;

use super::{Context, account, options};
use crate::encoding;
use crate::error::{Outcome, internal, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::write::update::{Change, New};

/// The key prefix of quotas.
const QUOTAS: &str = "/core/resourcequotas/";

/// Resources whose updates may reduce usage.
const SHRINKING: [&str; 4] = [
    "/core/pods/",
    "/core/services/",
    "/core/persistentvolumeclaims/",
    "/resource.k8s.io/resourceclaims/",
];

/// The time other servers may take to store a charged object. If a quota is charged meanwhile, its version changes and
/// it is counted again.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// Returns true if a change at a key may require work, even if it is not a deletion.
pub(super) fn is_watched(key: &str) -> bool {
    key.starts_with(QUOTAS) || SHRINKING.iter().any(|prefix| key.starts_with(prefix))
}

/// The namespaces with quotas.
#[derive(Debug, Default)]
pub(super) struct Namespaces(HashMap<String, HashSet<String>>);

impl Namespaces {
    /// The namespace whose quotas must be recalculated after an event, if any.
    pub(super) fn observe(&mut self, event: &Event) -> Option<String> {
        let key = event.key();
        let Some(quota) = key.strip_prefix(QUOTAS) else {
            let namespace = namespace_of(key)?;
            let gives_back = match event {
                Event::Delete { .. } => true,
                Event::Put { previous, .. } => {
                    previous.is_some() && SHRINKING.iter().any(|prefix| key.starts_with(prefix))
                }
            };
            return (gives_back && self.0.contains_key(namespace)).then(|| namespace.to_owned());
        };
        let (namespace, name) = quota.split_once('/')?;
        match event {
            Event::Delete { .. } => {
                if let Some(quotas) = self.0.get_mut(namespace) {
                    quotas.remove(name);
                    if quotas.is_empty() {
                        self.0.remove(namespace);
                    }
                }
                None
            }
            Event::Put { entry, previous } => {
                let quotas = self.0.entry(namespace.to_owned()).or_default();
                quotas.insert(name.to_owned());
                is_unsettled(entry, previous.as_ref()).then(|| namespace.to_owned())
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The namespace in a key of four parts.
fn namespace_of(key: &str) -> Option<&str> {
    let mut parts = key.strip_prefix('/')?.split('/').skip(2);
    let namespace = parts.next()?;
    parts.next().map(|_| namespace)
}

/// Returns true if a quota was found at start, is new, or has a changed spec or a stale status.
fn is_unsettled(entry: &Entry, previous: Option<&Entry>) -> bool {
    let Some(previous) = previous else {
        return true;
    };
    let spec = |entry: &Entry| {
        let tree = encoding::tree(&entry.value)?;
        Some((
            tree.get("spec")?.clone(),
            tree.pointer("/status/hard").cloned(),
        ))
    };
    match (spec(entry), spec(previous)) {
        (Some(now), Some(before)) => now.0 != before.0 || now.0.get("hard") != now.1.as_ref(),
        _ => true,
    }
}

/// Counts the usage in a namespace, and updates its quotas. Returns true if anything changed.
pub(super) async fn reconcile(context: &Context, namespace: &str) -> Outcome<bool> {
    let snapshot = context.writer.registry.snapshot();
    let quotas = snapshot
        .find("", "v1", "resourcequotas")
        .ok_or_else(|| internal("quotas are not served"))?;
    let mut found = entries(context, quotas, namespace).await?;
    let is_shared = context.writer.storage.store().is_shared();
    if is_shared && found.iter().any(|entry| is_counted(entry)) {
        tokio::time::sleep(UNDER_WAY).await;
    }
    // Nothing is charged meanwhile, and all charged writes are stored.
    let _counting = context.quotas.count(namespace).await;
    let devices = Arc::new(devices(context, namespace).await?);
    if !is_shared {
        found = entries(context, quotas, namespace).await?;
    }
    let mut changed = false;
    for entry in &found {
        let quota = context.writer.storage.decode(entry, quotas).await?;
        let mut usage: Vec<Usage> = Vec::new();
        for counted in counted_by(&quota, &devices) {
            let objects = objects(context, &counted, namespace).await?;
            usage.push((counted, objects));
        }
        let status =
            status_of(&quota, &usage, &devices).map_err(|error| internal(&error.to_string()))?;
        if let Some(status) = status {
            changed |= write(context, quotas, &quota, status).await?;
        }
    }
    Ok(changed)
}

/// Returns true if the status of a quota contains the usage.
fn is_counted(entry: &Entry) -> bool {
    encoding::tree(&entry.value).is_some_and(|quota| quota.pointer("/status/used").is_some())
}

/// The objects on which the usage of ResourceClaims depends.
async fn devices(context: &Context, namespace: &str) -> Outcome<Devices> {
    let snapshot = context.writer.registry.snapshot();
    let Some(resource) = snapshot.find("resource.k8s.io", "v1", "deviceclasses") else {
        return Ok(Devices::default());
    };
    let mut classes = Vec::new();
    for entry in &entries(context, resource, "").await? {
        let class = context.writer.storage.decode(entry, resource).await?;
        classes.push(Arc::new(class));
    }
    if classes.is_empty() {
        return Ok(Devices::default());
    }
    let mut lists = Vec::new();
    for (group, resource) in [("", "pods"), ("resource.k8s.io", "resourceclaims")] {
        let counted = Counted {
            group: group.to_owned(),
            resource: resource.to_owned(),
        };
        let objects = objects(context, &counted, namespace).await?;
        lists.push(objects.unwrap_or_default());
    }
    let (claims, pods) = (lists.pop(), lists.pop());
    Ok(Devices::new(
        &classes,
        pods.unwrap_or_default(),
        claims.unwrap_or_default(),
    ))
}

async fn entries(
    context: &Context,
    resource: &Resource,
    namespace: &str,
) -> Outcome<Vec<Arc<Entry>>> {
    let prefix = context.writer.storage.prefix(resource, namespace);
    let page = context
        .writer
        .storage
        .store()
        .list(List::all(&prefix))
        .await;
    Ok(page.map_err(|error| read_failed(error, 0))?.entries)
}

/// The objects of a resource in a namespace; none if it is not served.
async fn objects(
    context: &Context,
    counted: &Counted,
    namespace: &str,
) -> Outcome<Option<Vec<Arc<Value>>>> {
    let snapshot = context.writer.registry.snapshot();
    let mut resources = snapshot.resources().iter();
    let found = resources.find(|resource| {
        resource.group() == counted.group
            && resource.plural() == counted.resource
            && resource.names.namespaced
            && resource.is_storage_version()
    });
    let Some(resource) = found else {
        return Ok(None);
    };
    let entries = entries(context, resource, namespace).await?;
    let key = context.writer.storage.prefix(resource, "");
    // For all others only the number of objects matters.
    let is_looked_at = SHRINKING.contains(&key.as_str());
    let mut objects = Vec::with_capacity(entries.len());
    for entry in &entries {
        objects.push(Arc::new(match is_looked_at {
            true => context.writer.storage.decode(entry, resource).await?,
            false => Value::Null,
        }));
    }
    Ok(Some(objects))
}

async fn write(
    context: &Context,
    quotas: &Arc<Resource>,
    quota: &Value,
    status: Value,
) -> Outcome<bool> {
    let path = ObjectPath {
        resource: quotas,
        namespace: metadata::text(quota, "namespace"),
        name: metadata::text(quota, "name"),
        subresource: "status",
    };
    let user = account("resourcequota-controller");
    let request = Request::internal(user, Verb::Update, path);
    let options = options();
    let mut object = quota.clone();
    object["status"] = status;
    let written = Change::new(&context.writer, &request, &options)
        .apply(|_| Ok(New::Object(object.clone())))
        .await;
    match written {
        Ok(_) => Ok(true),
        // The quota was deleted.
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_store::Revision;

    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry {
            key: key.into(),
            value: value.to_owned().into(),
            created: Revision(1),
            revision: Revision(1),
        }
    }

    fn put(key: &str, value: &str, previous: Option<&str>) -> Event {
        Event::Put {
            entry: entry(key, value),
            previous: previous.map(|value| entry(key, value)),
        }
    }

    #[test]
    fn counts_when_something_may_be_given_back() {
        let mut namespaces = Namespaces::default();
        let pod = "/core/pods/shop/p";
        assert_eq!(
            namespaces.observe(&put(pod, "{}", Some("{}"))),
            None,
            "no quota"
        );
        let quota = "/core/resourcequotas/shop/q";
        let of = |hard: &str, status: &str| {
            format!(r#"{{"metadata":{{}},"spec":{{"hard":{hard}}},"status":{{"hard":{status}}}}}"#)
        };
        let (one, two) = (r#"{"pods":"1"}"#, r#"{"pods":"2"}"#);
        let shop = Some(String::from("shop"));
        assert_eq!(namespaces.observe(&put(quota, &of(one, "{}"), None)), shop);
        let charged = put(quota, &of(one, one), Some(&of(one, one)));
        assert_eq!(namespaces.observe(&charged), None, "the plugin did that");
        let changed = put(quota, &of(two, one), Some(&of(one, one)));
        assert_eq!(namespaces.observe(&changed), shop);
        assert_eq!(
            namespaces.observe(&put(pod, "{}", None)),
            None,
            "charged already"
        );
        assert_eq!(namespaces.observe(&put(pod, "{}", Some("{}"))), shop);
        let map = "/core/configmaps/shop/m";
        assert_eq!(namespaces.observe(&put(map, "{}", Some("{}"))), None);
        assert_eq!(
            namespaces.observe(&put("/core/nodes/shop", "{}", Some("{}"))),
            None
        );
    }
}
