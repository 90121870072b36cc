//! What is there from the start: namespaces, the roles everybody relies on, the server's own service.
//! And what was stored before: everything the server is made from is read again.

mod roles;

use std::collections::HashMap;
use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_kinds::crd;
use lockgate_store::{Entry, List, ReadAt, ReadError, Revision, Unavailable, WriteError};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::{self, namespace_defaults, role_aggregation};
use crate::encoding;
use crate::metadata;
use crate::persist::effects;
use crate::registry::{Resource, Snapshot};
use crate::server::Server;
use crate::write::strategy;

/// Namespaces that are always there.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Makes what is missing, and takes note of what is there.
pub(crate) async fn load(server: &Server) -> Result<(), Unavailable> {
    move_custom_objects(server).await?;
    let snapshot = server.registry.snapshot();
    let mut resources: Vec<_> = snapshot
        .resources()
        .iter()
        .filter(|resource| effects::has_any(server, resource) && resource.is_storage_version())
        .collect();
    // One that is being deleted goes on being emptied, of custom resources too: those come first.
    resources.sort_by_key(|resource| resource.is("", "namespaces"));
    for resource in resources {
        for entry in &everything(server, resource).await? {
            let object = encoding::parse_entry(entry, resource.type_meta());
            effects::written(server, resource, &object);
            // A definition may have been stored by a server that ended before it was established.
            if strategy::is_definition(resource) && !is_settled(&object) {
                controllers::settle_definition_later(server, metadata::text(&object, "name"));
            }
        }
    }
    let mut writes = missing_objects(server, &snapshot).await?;
    writes.extend(roles(server, &snapshot).await?);
    store(server, writes).await
}

/// Moves custom objects to the keys of their own, from where they once shared those of the built-in
/// resources. What a definition shares a name with stays: it cannot be told from the built-in objects.
async fn move_custom_objects(server: &Server) -> Result<(), Unavailable> {
    let snapshot = server.registry.snapshot();
    let resources = snapshot.resources().iter();
    let definitions = resources.filter(|resource| strategy::is_definition(resource));
    let Some(definitions) = definitions.into_iter().find(|it| it.is_storage_version()) else {
        return Ok(());
    };
    for entry in everything(server, definitions).await? {
        let object = encoding::parse_entry(&entry, definitions.type_meta());
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (Some(group), Some(plural)) = (text("/spec/group"), text("/spec/names/plural")) else {
            continue;
        };
        let storage = (group.to_owned(), plural.to_owned());
        if group.is_empty() || plural.is_empty() || snapshot.stored_in(&storage).is_some() {
            continue;
        }
        let from = encoding::prefix(group, plural, None);
        let to = encoding::prefix(&encoding::custom_space(group), plural, None);
        let page = server.store.list(List::all(&from)).await.map_err(failed)?;
        for entry in &page.entries {
            let rest = entry.key.strip_prefix(&from).unwrap_or_default();
            let key = format!("{to}{rest}");
            match server.store.create(&key, entry.value.clone(), None).await {
                // One that is there was moved by a server that ended before the old one was gone.
                Ok(_) | Err(WriteError::AlreadyExists(_)) => {}
                Err(error) => return Err(Unavailable(error.to_string())),
            }
            match server.store.delete(&entry.key, entry.revision).await {
                Ok(_) | Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
                Err(error) => return Err(Unavailable(error.to_string())),
            }
        }
        if !page.entries.is_empty() {
            let count = page.entries.len();
            tracing::info!(
                group,
                plural,
                count,
                "custom objects have keys of their own now"
            );
        }
    }
    Ok(())
}

async fn everything(server: &Server, resource: &Resource) -> Result<Vec<Entry>, Unavailable> {
    let prefix = server.prefix(resource, "");
    let page = server.store.list(List::all(&prefix)).await;
    Ok(page.map_err(failed)?.entries)
}

fn failed(error: ReadError) -> Unavailable {
    Unavailable(error.to_string())
}

/// An object to store, in place of what is there.
struct Write {
    resource: Arc<Resource>,
    key: String,
    object: Value,
    expected: Option<Revision>,
}

impl Write {
    fn new(server: &Server, resource: &Arc<Resource>, object: Value) -> Self {
        Self {
            resource: Arc::clone(resource),
            key: server.key(
                resource,
                metadata::text(&object, "namespace"),
                metadata::text(&object, "name"),
            ),
            object,
            expected: None,
        }
    }
}

/// Stores all of them at once: on a disk that costs hardly more than one. Nobody is served yet, so
/// what they change besides may change afterwards.
async fn store(server: &Server, writes: Vec<Write>) -> Result<(), Unavailable> {
    let mut stores = JoinSet::new();
    for Write {
        resource,
        key,
        object,
        expected,
    } in writes
    {
        let store = Arc::clone(&server.store);
        let bytes = encoding::encode(&object);
        stores.spawn(async move {
            let result = match expected {
                None => store.create(&key, bytes, None).await,
                Some(expected) => store.update(&key, expected, bytes).await,
            };
            (resource, object, result)
        });
    }
    while let Some(ended) = stores.join_next().await {
        let (resource, object, result) = ended.map_err(|error| Unavailable(error.to_string()))?;
        match result {
            Ok(_) => effects::written(server, &resource, &object),
            Err(WriteError::Unavailable(error)) => return Err(error),
            // Somebody else may be faster, which is as good.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Those objects that are to be there and are not.
async fn missing_objects(server: &Server, snapshot: &Snapshot) -> Result<Vec<Write>, Unavailable> {
    let mut missing = Vec::new();
    let mut wanted = objects();
    for namespace in NAMESPACES {
        let of_namespace =
            namespace_defaults::objects(server.settings.controllers, namespace, &server.ca_pem);
        let of_namespace = of_namespace.into_iter();
        wanted.extend(of_namespace.map(|(plural, _, object)| ("", "v1", plural, object)));
    }
    for (group, version, plural, mut object) in wanted {
        let Some(resource) = snapshot.find(group, version, plural) else {
            continue;
        };
        let key = Write::new(server, resource, object.clone()).key;
        let (found, _) = server
            .store
            .get(&key, ReadAt::Latest)
            .await
            .map_err(failed)?;
        if found.is_some() {
            continue;
        }
        resource.shape.apply_defaults(&mut object);
        metadata::fill(&mut object);
        server.allocate(resource, &mut object);
        strategy::prepare_create(
            resource,
            &mut object,
            &UserInfo::default(),
            server.settings.feature_gates,
        );
        strategy::canonicalize(resource, &mut object);
        missing.push(Write::new(server, resource, object));
    }
    Ok(missing)
}

/// Roles and bindings that are missing, or that miss something.
async fn roles(server: &Server, snapshot: &Snapshot) -> Result<Vec<Write>, Unavailable> {
    let mut writes = Vec::new();
    let mut wanted = roles::wanted();
    for plural in roles::PLURALS {
        let Some(resource) = snapshot.find(role_aggregation::GROUP, "v1", plural) else {
            continue;
        };
        let found = everything(server, resource).await?;
        let found: HashMap<&str, &Entry> = found.iter().map(|entry| (&*entry.key, entry)).collect();
        for object in wanted.remove(plural).unwrap_or_default() {
            let mut write = Write::new(server, resource, object);
            match found.get(write.key.as_str()) {
                None => metadata::fill(&mut write.object),
                Some(entry) => {
                    let is = encoding::parse_entry(entry, resource.type_meta());
                    write.expected = Some(entry.revision);
                    if roles::is_for_another_role(&is, &write.object) {
                        // Another object of the same name.
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
    if server.settings.controllers.role_aggregation {
        aggregate(&mut writes);
    }
    Ok(writes)
}

/// Gives new roles that are made from others their rules. Those that are there already are brought
/// up to date while the server runs.
fn aggregate(writes: &mut [Write]) {
    // `admin` has what `edit` has, which has what `view` has.
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

/// Whether a definition is served and to stay.
fn is_settled(definition: &Value) -> bool {
    crd::has_status(definition, "Established", "True") && !metadata::is_deleting(definition)
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
