//! What goes on when nobody asks: what is in a namespace that is deleted goes, definitions are
//! established, and what they defined goes with them. Below: what nobody owns is collected,
//! namespaces have what every namespace has, roles are made from others.
//!
//! UPSTREAM: kubernetes pkg/controller/namespace, apiextensions-apiserver pkg/controller

mod garbage_collector;
pub(crate) mod namespace_defaults;
mod owner_graph;
mod resource_quota;
pub(crate) mod role_aggregation;
mod run;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use lockgate_admission::host::BoxFuture;
use lockgate_api::admission::UserInfo;
use lockgate_go::json;
use lockgate_kinds::crd;
use lockgate_store::{Entry, List, ReadAt};
use serde_json::Value;

use crate::call::{Call, Notes};
use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::encoding;
use crate::error::Outcome;
use crate::http::query::Query;
use crate::http::request_info::{Target, Verb};
use crate::metadata;
use crate::registry::Resource;
use crate::server::Server;
use crate::write::delete::Deletion;
use crate::write::strategy;
use crate::write::update::{Change, New};

pub(crate) use run::start;

/// Who the server is when it writes on its own.
fn system(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        username: name.to_owned(),
        groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
        ..UserInfo::default()
    }
}

/// Who the server is when it writes for its plugins.
pub(crate) fn api_server() -> UserInfo {
    system(
        "system:apiserver",
        &["system:masters", "system:authenticated"],
    )
}

/// Who a controller is.
fn account(name: &str) -> UserInfo {
    system(
        &format!("system:serviceaccount:kube-system:{name}"),
        &[
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    )
}

/// A request with a body. The object is told by its namespace and its name.
pub(crate) fn request(
    user: UserInfo,
    verb: Verb,
    resource: &Resource,
    (namespace, name): (&str, &str),
    content_type: &'static str,
    body: &Value,
) -> Call {
    let mut call = call(user, verb, resource, namespace, name, "");
    let content_type = HeaderValue::from_static(content_type);
    call.headers
        .insert(http::header::CONTENT_TYPE, content_type);
    call.body = json::to_string(body).into();
    call
}

pub(crate) fn call(
    user: UserInfo,
    verb: Verb,
    resource: &Resource,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> Call {
    Call {
        target: Target {
            verb,
            group: resource.group().to_owned(),
            version: resource.version.clone(),
            namespace: namespace.to_owned(),
            resource: resource.plural().to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            rest: Vec::new(),
        },
        query: Query::default(),
        headers: HeaderMap::from_iter([(
            http::header::USER_AGENT,
            HeaderValue::from_static("kube-controller-manager"),
        )]),
        user,
        body: bytes::Bytes::new(),
        deadline: None,
        notes: Notes::default(),
    }
}

/// Group and plural of definitions.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// How long to wait before what could not be removed is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Empties a namespace after a moment, and lets it go.
pub(crate) fn namespace_deleted(server: &Server, name: &str) {
    let Some(server) = server.shared() else {
        return;
    };
    if !server.settings.controllers.namespace {
        return;
    }
    if !server.terminating.begin(name) {
        return;
    }
    let name = name.to_owned();
    let keeper = Arc::clone(&server);
    server.spawn(async move {
        tokio::time::sleep(keeper.settings.namespace_grace).await;
        if let Err(failure) = empty_namespace(&keeper, &name).await {
            tracing::debug!(
                namespace = name,
                error = failure.0.message,
                "the namespace is not gone yet"
            );
        }
        keeper.terminating.end(&name);
    });
}

async fn empty_namespace(server: &Server, namespace: &str) -> Outcome<()> {
    let user = || account("namespace-controller");
    let mut pause = FIRST_PAUSE;
    loop {
        let snapshot = server.registry.snapshot();
        let Some(namespaces) = snapshot.find("", "v1", "namespaces") else {
            return Ok(());
        };
        let key = server.key(namespaces, "", namespace);
        let (Some(entry), _) = server
            .store
            .get(&key, ReadAt::Latest)
            .await
            .map_err(|error| crate::error::read_failed(error, 0))?
        else {
            return Ok(());
        };
        let object = encoding::parse_entry(&entry, namespaces.type_meta());
        if !metadata::is_deleting(&object) {
            return Ok(());
        }
        let mut left = 0;
        for resource in snapshot
            .resources()
            .iter()
            .filter(|resource| resource.names.namespaced && resource.is_storage_version())
        {
            let prefix = server.prefix(resource, namespace);
            let page = server
                .store
                .list(List::all(&prefix))
                .await
                .map_err(|error| crate::error::read_failed(error, 0))?;
            for entry in &page.entries {
                let name = entry.key.rsplit('/').next().unwrap_or_default().to_owned();
                let mut call = call(user(), Verb::Delete, resource, namespace, &name, "");
                let deletion = Deletion {
                    server,
                    resource,
                    namespace: namespace.to_owned(),
                    admission_name: Some(String::new()),
                    name,
                };
                let options = DeleteOptions {
                    propagation_policy: Some(String::from("Background")),
                    ..DeleteOptions::default()
                };
                match deletion.run(&mut call, options).await {
                    Ok(deleted) if deleted.gone => {}
                    _ => left += 1,
                }
            }
        }
        if left == 0 {
            return finalize(server, namespaces, namespace, user()).await;
        }
        // Finalizers, or a webhook that refuses: try again, less and less often.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn finalize(
    server: &Server,
    namespaces: &Resource,
    name: &str,
    user: UserInfo,
) -> Outcome<()> {
    let mut call = call(user, Verb::Update, namespaces, name, name, "finalize");
    let options = WriteOptions::default();
    let change = Change::new(namespaces, &options);
    let emptied = change
        .apply(server, &mut call, |_, old| {
            let mut object = old.cloned().unwrap_or_default();
            // Finalizers of others are theirs to take away.
            let mut finalizers: Vec<Value> = strategy::namespace_finalizers(&object)
                .into_iter()
                .map(Value::from)
                .collect();
            finalizers.retain(|finalizer| finalizer != "kubernetes");
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                if finalizers.is_empty() {
                    spec.remove("finalizers");
                } else {
                    spec.insert(String::from("finalizers"), finalizers.into());
                }
            }
            Ok(New::Object(object))
        })
        .await;
    match emptied {
        Ok(_) => Ok(()),
        Err(failure) if failure.0.code == 404 => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Does what a definition that was just written is waiting for: its names are accepted and it is
/// established, or what it defined goes with it.
pub(crate) async fn settle_definition(server: &Server, name: &str) {
    let snapshot = server.registry.snapshot();
    let Some(definitions) = snapshot.find(DEFINITIONS.0, "v1", DEFINITIONS.1) else {
        return;
    };
    // Each step is a write of its own, as upstream's controllers make them.
    for _ in 0..4 {
        let key = server.key(definitions, "", name);
        let Ok((Some(entry), _)) = server.store.get(&key, ReadAt::Latest).await else {
            return;
        };
        let object = encoding::parse_entry(&entry, definitions.type_meta());
        if metadata::is_deleting(&object) {
            if !remove_instances(server, definitions, &object).await {
                retry_definition(server, name);
            }
            return;
        }
        let others = other_definitions(server, definitions, name).await;
        let mut next = object;
        let now = metadata::now();
        let changed = crd::accept_names(&mut next, &others, now)
            || crd::establish(&mut next, now)
            || crd::api_approval(&mut next, now)
            || crd::non_structural_schema(&mut next, now);
        if !changed {
            return;
        }
        let status = next.get("status").cloned().unwrap_or_default();
        let user = api_server();
        let mut call = call(user, Verb::Update, definitions, "", name, "status");
        let options = WriteOptions::default();
        let change = Change::new(definitions, &options);
        let changed = change
            .apply(server, &mut call, |_, old| {
                let mut object = old.cloned().unwrap_or_default();
                object["status"] = status.clone();
                Ok(New::Object(object))
            })
            .await;
        if let Err(failure) = changed {
            tracing::warn!(
                definition = name,
                error = failure.0.message,
                "the definition cannot be established"
            );
            return;
        }
    }
}

/// Does the same when nobody waits for it. Not an `async fn`: what settles writes, and a write may settle.
pub(crate) fn settle_definition_later(server: &Server, name: &str) {
    let Some(server) = server.shared() else {
        return;
    };
    let name = name.to_owned();
    let keeper = Arc::clone(&server);
    let settling: BoxFuture<'static, ()> =
        Box::pin(async move { settle_definition(&keeper, &name).await });
    server.spawn(settling);
}

/// Goes on removing the objects of a definition, less and less often, until they are gone.
fn retry_definition(server: &Server, name: &str) {
    let Some(server) = server.shared() else {
        return;
    };
    // No namespace has a slash in its name.
    let key = format!("customresourcedefinitions/{name}");
    if !server.terminating.begin(&key) {
        return;
    }
    let (name, keeper) = (name.to_owned(), Arc::clone(&server));
    server.spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let snapshot = keeper.registry.snapshot();
            let Some(definitions) = snapshot.find(DEFINITIONS.0, "v1", DEFINITIONS.1) else {
                break;
            };
            let at = keeper.key(definitions, "", &name);
            let Ok((Some(entry), _)) = keeper.store.get(&at, ReadAt::Latest).await else {
                break;
            };
            let object = encoding::parse_entry(&entry, definitions.type_meta());
            if !metadata::is_deleting(&object)
                || remove_instances(&keeper, definitions, &object).await
            {
                break;
            }
        }
        keeper.terminating.end(&key);
    });
}

async fn other_definitions(server: &Server, definitions: &Resource, name: &str) -> Vec<Value> {
    let prefix = server.prefix(definitions, "");
    let Ok(page) = server.store.list(List::all(&prefix)).await else {
        return Vec::new();
    };
    let objects = page
        .entries
        .iter()
        .map(|entry| encoding::parse_entry(entry, definitions.type_meta()));
    objects
        .filter(|object| metadata::text(object, "name") != name)
        .collect()
}

/// Removes the objects of a definition, without asking webhooks, and then its finalizer. Returns
/// whether all of them are gone.
async fn remove_instances(server: &Server, definitions: &Resource, definition: &Value) -> bool {
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let storage = (
        encoding::custom_space(text("/spec/group")),
        text("/spec/names/plural").to_owned(),
    );
    let prefix = encoding::prefix(&storage.0, &storage.1, None);
    let resource = server.registry.snapshot().stored_in(&storage).cloned();
    let mut left = 0_usize;
    let mut last: Option<Arc<str>> = None;
    loop {
        let page = server.store.list(List {
            limit: Some(1000),
            after: last.as_deref(),
            ..List::all(&prefix)
        });
        let Ok(page) = page.await else {
            return false;
        };
        let Some(end) = page.entries.last() else {
            break;
        };
        for entry in &page.entries {
            if !remove_instance(server, resource.as_deref(), &prefix, entry).await {
                left += 1;
            }
        }
        last = Some(Arc::clone(&end.key));
    }
    if left > 0 {
        return false;
    }
    let name = metadata::text(definition, "name").to_owned();
    let user = api_server();
    let mut call = call(user, Verb::Update, definitions, "", &name, "status");
    let options = WriteOptions::default();
    let change = Change::new(definitions, &options);
    let removed = change
        .apply(server, &mut call, |_, old| {
            let mut object = old.cloned().unwrap_or_default();
            let finalizers: Vec<String> = metadata::finalizers(&object)
                .into_iter()
                .filter(|&finalizer| finalizer != strategy::CLEANUP_FINALIZER)
                .map(str::to_owned)
                .collect();
            metadata::change(&mut object, |metadata| {
                if finalizers.is_empty() {
                    metadata.remove("finalizers");
                } else {
                    metadata.insert(String::from("finalizers"), finalizers.into());
                }
            });
            Ok(New::Object(object))
        })
        .await;
    if let Err(failure) = removed {
        tracing::warn!(
            definition = name,
            error = failure.0.message,
            "the definition cannot be removed"
        );
    }
    true
}

/// Removes one object of a definition as any deletion does: finalizers hold it, and what depends on it
/// is collected. Returns whether it is gone.
async fn remove_instance(
    server: &Server,
    resource: Option<&Resource>,
    prefix: &str,
    entry: &Entry,
) -> bool {
    let Some(resource) = resource else {
        // Of a definition that was never served: nobody can have put a finalizer on it since.
        return server
            .store
            .delete(&entry.key, entry.revision)
            .await
            .is_ok();
    };
    let rest = entry.key.strip_prefix(prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let user = system(
        "system:apiserver",
        &["system:masters", "system:authenticated"],
    );
    let mut call = call(user, Verb::Delete, resource, namespace, name, "");
    let deletion = Deletion {
        server,
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        admission_name: None,
    };
    match deletion.run(&mut call, DeleteOptions::default()).await {
        Ok(deleted) => deleted.gone,
        Err(failure) => failure.0.code == 404,
    }
}

/// Namespaces that are being emptied, so that each is emptied once.
#[derive(Debug, Default)]
pub(crate) struct Terminating(std::sync::Mutex<std::collections::HashSet<String>>);

impl Terminating {
    fn begin(&self, name: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(name.to_owned())
    }

    fn end(&self, name: &str) {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(name);
    }
}
