//! Creates the initial objects: namespaces, default roles, the server's own Service. Restores the effects of stored
//! objects.

mod roles;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_kinds::flow_control as suggested;
use lockgate_store::{Entry, List, Revision};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::aggregation;
use crate::allocate::Purpose;
use crate::config::Controllers;
use crate::controllers::{flow_control, namespace_defaults, role_aggregation};
use crate::encoding;
use crate::error::{Outcome, internal, read_failed};
use crate::metadata;
use crate::persist::{PersistError, Storage};
use crate::registry::{Resource, Snapshot};
use crate::write::{Writer, strategy};

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// The certificates that the server publishes.
#[derive(Debug)]
pub(crate) struct Published {
    /// The CA certificates with which clients verify the server.
    pub(crate) ca_pem: String,
    /// The authentication configuration for aggregated servers.
    pub(crate) authentication: BTreeMap<&'static str, String>,
}

/// Applies the effects of stored objects, and creates missing ones.
pub(crate) async fn load(
    writer: &Writer,
    controllers: Controllers,
    published: &Published,
) -> Outcome<()> {
    let snapshot = writer.registry.snapshot();
    let flow_control = &writer.storage.effects().flow_control;
    flow_control.hold();
    move_custom_objects(&writer.storage, &snapshot).await?;
    let resources = snapshot.resources().iter();
    for resource in resources.filter(|it| writer.storage.has_effects(it) && it.is_storage_version())
    {
        for entry in &everything(&writer.storage, resource).await? {
            let object = encoding::parse_entry(entry, resource.type_meta())?;
            writer.storage.restore(resource, object)?;
        }
    }
    // CustomResourceDefinitions are served now, so that the versions of their objects are known.
    add_versions(&writer.storage, &writer.registry.snapshot()).await?;
    let mut writes = missing_objects(writer, &snapshot, controllers, &published.ca_pem).await?;
    writes.extend(authentication(&writer.storage, &snapshot, published).await?);
    writes.extend(roles(&writer.storage, &snapshot, controllers).await?);
    store(&writer.storage, writes).await?;
    flow_control.release();
    Ok(())
}

/// Moves custom objects to separate keys, out of the keys of built-in resources. Objects whose
/// CustomResourceDefinition shares a name with a built-in resource are not moved: they cannot be distinguished from
/// built-in objects.
async fn move_custom_objects(storage: &Storage, snapshot: &Snapshot) -> Outcome<()> {
    let resources = snapshot.resources().iter();
    let mut definitions = resources.filter(|it| it.is_definition() && it.is_storage_version());
    let Some(definitions) = definitions.next() else {
        return Ok(());
    };
    for entry in everything(storage, definitions).await? {
        let definition = encoding::parse_entry(&entry, definitions.type_meta())?;
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
        let (Some(group), Some(plural)) = (text("/spec/group"), text("/spec/names/plural")) else {
            continue;
        };
        let built_in = (group.to_owned(), plural.to_owned());
        if group.is_empty() || plural.is_empty() || snapshot.stored_in(&built_in).is_some() {
            continue;
        }
        let from = encoding::prefix(group, plural, None);
        let to = encoding::prefix(&encoding::custom_space(group), plural, None);
        let count = storage.rename(&from, &to).await?;
        if count > 0 {
            tracing::info!(
                group,
                plural,
                count,
                "custom resources migrated to their own keys"
            );
        }
    }
    Ok(())
}

/// Adds the apiVersion to stored objects in the previous format: that of their resource, as the
/// CustomResourceDefinition has not changed since.
async fn add_versions(storage: &Storage, snapshot: &Snapshot) -> Outcome<()> {
    let mut count = 0_usize;
    for resource in snapshot.storage_versions() {
        let mut writes = JoinSet::new();
        for entry in everything(storage, resource).await? {
            let Some(bytes) = encoding::with_version(&entry.value, resource.api_version()) else {
                continue;
            };
            let storage = storage.clone();
            writes.spawn(async move { storage.rewrite(&entry, bytes).await });
        }
        while let Some(ended) = writes.join_next().await {
            ended.map_err(|error| internal(&error.to_string()))??;
            count += 1;
        }
    }
    if count > 0 {
        tracing::info!(count, "stored objects migrated to include their apiVersion");
    }
    Ok(())
}

async fn everything(storage: &Storage, resource: &Resource) -> Outcome<Vec<Arc<Entry>>> {
    let prefix = storage.prefix(resource, "");
    let page = storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    Ok(page.entries)
}

/// An object to store, replacing an existing one.
struct Write {
    resource: Arc<Resource>,
    key: String,
    object: Value,
    expected: Option<Revision>,
}

impl Write {
    fn new(storage: &Storage, resource: &Arc<Resource>, object: Value) -> Self {
        Self {
            resource: Arc::clone(resource),
            key: storage.key(
                resource,
                metadata::text(&object, "namespace"),
                metadata::text(&object, "name"),
            ),
            object,
            expected: None,
        }
    }
}

/// Stores all of them concurrently: on disk they share an fsync.
async fn store(storage: &Storage, writes: Vec<Write>) -> Outcome<()> {
    let mut stores = JoinSet::new();
    for Write {
        resource,
        key,
        object,
        expected,
    } in writes
    {
        let storage = storage.clone();
        stores.spawn(async move { storage.bootstrap(&resource, &key, expected, object).await });
    }
    while let Some(ended) = stores.join_next().await {
        let ended = ended.map_err(|error| internal(&error.to_string()))?;
        // Other errors mean that another server on the same store wrote it first.
        if let Err(PersistError::Failed(failure)) = ended {
            return Err(failure);
        }
    }
    Ok(())
}

/// The missing initial objects.
async fn missing_objects(
    writer: &Writer,
    snapshot: &Snapshot,
    controllers: Controllers,
    ca_pem: &str,
) -> Outcome<Vec<Write>> {
    let mut missing = Vec::new();
    let mut wanted = objects();
    for namespace in NAMESPACES {
        let defaults = namespace_defaults::objects(controllers, namespace, ca_pem).into_iter();
        wanted.extend(defaults.map(|(plural, _, object)| ("", "v1", plural, object)));
    }
    let flows = suggested::all().into_iter();
    wanted.extend(flows.map(|it| (suggested::GROUP, "v1", it.plural, it.object)));
    let services = aggregation::local::built_in(snapshot).into_iter();
    wanted.extend(services.map(|it| ("apiregistration.k8s.io", "v1", "apiservices", it)));
    for (group, version, plural, object) in wanted {
        let resource = find(snapshot, group, version, plural)?;
        let mut write = Write::new(&writer.storage, resource, object);
        if writer.storage.entry(&write.key).await?.is_some() {
            continue;
        }
        let object = &mut write.object;
        resource.shape.apply_defaults(object);
        metadata::fill(object);
        writer
            .addresses
            .allocate(resource, object, None, Purpose::default())?;
        strategy::prepare_create(resource, object, &UserInfo::default(), writer.gates);
        strategy::canonicalize(resource, object);
        if plural == suggested::SCHEMAS {
            flow_control::set_condition(object, true);
        }
        missing.push(write);
    }
    Ok(missing)
}

/// The ConfigMap for aggregated servers to authenticate clients. The CAs may have changed since the last start.
async fn authentication(
    storage: &Storage,
    snapshot: &Snapshot,
    published: &Published,
) -> Outcome<Option<Write>> {
    let resource = find(snapshot, "", "v1", "configmaps")?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": published.authentication,
    });
    let mut write = Write::new(storage, resource, object);
    match storage.entry(&write.key).await? {
        None => metadata::fill(&mut write.object),
        Some(entry) => {
            let mut stored = encoding::parse_entry(&entry, resource.type_meta())?;
            if stored["data"] == write.object["data"] {
                return Ok(None);
            }
            stored["data"] = write.object["data"].take();
            write.object = stored;
            write.expected = Some(entry.revision);
        }
    }
    Ok(Some(write))
}

fn find<'s>(
    snapshot: &'s Snapshot,
    group: &str,
    version: &str,
    plural: &str,
) -> Outcome<&'s Arc<Resource>> {
    let found = snapshot.find(group, version, plural);
    found.ok_or_else(|| internal(&format!("{plural}.{version}.{group} is not served")))
}

/// Default roles and bindings that are missing or incomplete.
async fn roles(
    storage: &Storage,
    snapshot: &Snapshot,
    controllers: Controllers,
) -> Outcome<Vec<Write>> {
    let mut writes = Vec::new();
    let mut wanted = roles::wanted()?;
    for plural in roles::PLURALS {
        let resource = find(snapshot, role_aggregation::GROUP, "v1", plural)?;
        let found = everything(storage, resource).await?;
        let found: HashMap<&str, &Entry> =
            found.iter().map(|entry| (&*entry.key, &**entry)).collect();
        for object in wanted.remove(plural).unwrap_or_default() {
            let mut write = Write::new(storage, resource, object);
            match found.get(write.key.as_str()) {
                None => metadata::fill(&mut write.object),
                Some(entry) => {
                    let is = encoding::parse_entry(entry, resource.type_meta())?;
                    write.expected = Some(entry.revision);
                    if roles::is_for_another_role(&is, &write.object) {
                        // It replaces an object of the same name.
                        metadata::fill(&mut write.object);
                    } else {
                        match roles::reconciled(&is, &write.object) {
                            None => continue,
                            Some(object) => write.object = object,
                        }
                    }
                }
            }
            writes.push(write);
        }
    }
    if controllers.role_aggregation {
        aggregate(&mut writes);
    }
    Ok(writes)
}

/// Sets the rules of new aggregated roles. The controller updates existing ones.
fn aggregate(writes: &mut [Write]) {
    // `admin` aggregates `edit`, which aggregates `view`.
    for _ in 0..3 {
        let roles = writes
            .iter()
            .filter(|write| write.resource.plural() == "clusterroles")
            .map(|write| &write.object);
        let made: Vec<Option<Vec<Value>>> = writes
            .iter()
            .map(|write| match write.expected {
                None => role_aggregation::rules(&write.object, roles.clone()),
                Some(_) => None,
            })
            .collect();
        for (write, rules) in writes.iter_mut().zip(made) {
            if let Some(rules) = rules {
                write.object["rules"] = rules.into();
            }
        }
    }
}

fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let mut objects = Vec::new();
    for name in NAMESPACES {
        objects.push((
            "",
            "v1",
            "namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        ));
    }
    objects.push((
        "",
        "v1",
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}], "type": "ClusterIP", "sessionAffinity": "None"},
        }),
    ));
    for (name, value, what) in [
        (
            "system-cluster-critical",
            2_000_000_000_i64,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        objects.push((
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "preemptionPolicy": "PreemptLowerPriority", "description": what,
            }),
        ));
    }
    objects
}
