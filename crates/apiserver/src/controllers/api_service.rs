//! The availability of APIServices, and the documents of their servers. APIServices of CustomResourceDefinitions are
//! created and deleted with them.
//!
//! Each is checked when it, its Service or the endpoints change, periodically, and more often while it fails. Checks
//! run in parallel: an unresponsive server delays only its own check.
//!
//! UPSTREAM: kube-aggregator pkg/controllers/status/{local,remote}, pkg/controllers/autoregister

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::admission::UserInfo;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Context;
use crate::aggregation::{self, Aggregator, ApiService, Managed, Remote};
use crate::decode::body;
use crate::decode::options::{DeleteOptions, Preconditions, WriteOptions};
use crate::decode::patch::Patch;
use crate::decode::write::{Body, PatchBody};
use crate::error::Outcome;
use crate::http::request_info::Verb;
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::services::Readiness;
use crate::write::delete::Deletion;
use crate::write::update::Change;
use crate::write::{create, patch};

/// The interval of availability checks of an available server.
///
/// UPSTREAM: kube-aggregator pkg/apiserver/apiserver.go (resync of thirty seconds)
const RESYNC: Duration = Duration::from_secs(30);
/// The initial backoff after a failure; it doubles up to the resync interval.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The delay that batches consecutive changes.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// The number of concurrent availability checks.
const MAX_CONCURRENT_CHECKS: usize = 20;

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";

/// The time of the next check of an APIService, and the number of failures.
#[derive(Debug, Clone, Copy)]
struct NextCheck {
    at: Instant,
    failures: u32,
}

/// Checks APIServices until it is dropped.
pub(super) async fn run(context: Arc<Context>) {
    let aggregator = Arc::clone(&context.writer.storage.effects().aggregator);
    let mut due: HashMap<String, NextCheck> = HashMap::new();
    let mut looking: JoinSet<(String, bool)> = JoinSet::new();
    let mut busy: Vec<String> = Vec::new();
    forget(&context, &aggregator.services()).await;
    loop {
        let now = Instant::now();
        let services = aggregator.services();
        register(&context, &services).await;
        due.retain(|name, _| services.contains_key(name));
        for (name, service) in services.iter() {
            let is_due = due.get(name).is_none_or(|due| due.at <= now);
            if !is_due || busy.contains(name) || looking.len() >= MAX_CONCURRENT_CHECKS {
                continue;
            }
            busy.push(name.clone());
            let (context, aggregator) = (Arc::clone(&context), Arc::clone(&aggregator));
            let (name, service) = (name.clone(), service.clone());
            looking.spawn(async move {
                let passed = reconcile(&context, &aggregator, &name, &service).await;
                (name, passed)
            });
        }
        let next = due.values().map(|due| due.at).min();
        let next = next.unwrap_or(now + RESYNC).max(now + DEBOUNCE);
        tokio::select! {
            () = aggregator.changed() => {
                tokio::time::sleep(DEBOUNCE).await;
                // Any change may affect all of them.
                for due in due.values_mut() {
                    due.at = due.at.min(Instant::now());
                }
            }
            Some(ended) = looking.join_next() => {
                let Ok((name, passed)) = ended else {
                    // A check whose task panicked is repeated.
                    busy.clear();
                    continue;
                };
                busy.retain(|other| *other != name);
                let failures = match (passed, due.get(&name)) {
                    (true, _) => 0,
                    (false, before) => before.map_or(0, |due| due.failures) + 1,
                };
                let pause = match failures {
                    0 => RESYNC,
                    failures => RESYNC.min(INITIAL_BACKOFF * 2_u32.saturating_pow(failures - 1)),
                };
                let at = Instant::now() + pause;
                due.insert(name, NextCheck { at, failures });
            }
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Creates, corrects and deletes the APIServices of CustomResourceDefinitions. APIServices without the managed label
/// are left to their owners, and so are those of built-in versions after startup.
async fn register(context: &Context, services: &BTreeMap<String, ApiService>) {
    let wanted = aggregation::local::custom(&context.writer.registry.snapshot());
    for (name, object) in &wanted {
        let step = match services.get(name) {
            None => Step::Create(object),
            Some(it) if it.registration.managed != Some(Managed::Always) => continue,
            Some(it) if it.remote.is_none() && it.registration.is_custom() => continue,
            Some(_) => Step::Correct(object),
        };
        take(context, name, step).await;
    }
    for (name, service) in services {
        let registration = &service.registration;
        if registration.managed == Some(Managed::Always) && !wanted.contains_key(name) {
            take(context, name, Step::Delete(&registration.uid)).await;
        }
    }
}

/// Deletes the APIServices of built-in versions that an earlier release served, and this one does not.
async fn forget(context: &Context, services: &BTreeMap<String, ApiService>) {
    let served = aggregation::local::built_in(&context.writer.registry.snapshot());
    let served: Vec<&str> = served.iter().map(|it| metadata::text(it, "name")).collect();
    for (name, service) in services {
        let registration = &service.registration;
        if registration.managed == Some(Managed::OnStart) && !served.contains(&name.as_str()) {
            take(context, name, Step::Delete(&registration.uid)).await;
        }
    }
}

/// The next step for the APIService of a CustomResourceDefinition.
#[derive(Debug, Clone, Copy)]
enum Step<'s> {
    Create(&'s Value),
    /// Sets its spec.
    Correct(&'s Value),
    /// Deletes the one with this UID.
    Delete(&'s str),
}

async fn take(context: &Context, name: &str, step: Step<'_>) {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find(GROUP, "v1", PLURAL) else {
        return;
    };
    let request = |verb, name| {
        let path = ObjectPath {
            resource,
            namespace: "",
            name,
            subresource: "",
        };
        Request::internal(user(), verb, path)
    };
    let options = WriteOptions::of_program("kube-apiserver");
    let taken = match step {
        Step::Create(object) => match body::decode_value(object.clone(), resource) {
            Ok(object) => {
                let body = Body { object, options };
                let request = request(Verb::Create, "");
                create::create(writer, &request, body).await.map(|_| ())
            }
            Err(failure) => Err(failure),
        },
        Step::Correct(object) => {
            let request = request(Verb::Update, name);
            let change = Change::new(writer, &request, &options);
            let edited = change.edit(|changed| changed["spec"] = object["spec"].clone());
            edited.await.map(|_| ())
        }
        Step::Delete(uid) => {
            let request = request(Verb::Delete, name);
            let options = DeleteOptions {
                preconditions: Some(Preconditions {
                    uid: Some(uid.to_owned()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            };
            let deletion = Deletion::of(writer, &request);
            deletion.run(options).await.map(|_| ())
        }
    };
    // On a conflict, the other writer's change triggers a check.
    if let Err(failure) = taken {
        let error = &failure.0.message;
        tracing::debug!(
            name,
            ?step,
            error,
            "APIService of a CustomResourceDefinition not written"
        );
    }
}

/// Checks an APIService. Returns false if it should be checked again soon.
async fn reconcile(
    context: &Context,
    aggregator: &Aggregator,
    name: &str,
    service: &ApiService,
) -> bool {
    let (status, reason, message) = match &service.remote {
        None => (
            "True",
            "Local",
            String::from("Local APIServices are always available"),
        ),
        Some(remote) => check(aggregator, remote).await,
    };
    let stored = store(context, name, status, reason, &message).await;
    if let Err(failure) = &stored {
        let error = &failure.0.message;
        tracing::debug!(name, error, "APIService availability not written");
    }
    stored.is_ok() && status == "True"
}

/// The status, the reason and the message of the condition `Available`.
async fn check(aggregator: &Aggregator, remote: &Remote) -> (&'static str, &'static str, String) {
    let (service, namespace) = (&remote.service.name, &remote.service.namespace);
    let of = format!("service/{service} in {namespace:?}");
    match aggregator.readiness(remote) {
        Readiness::NoService => ("False", "ServiceNotFound", format!("{of} is not present")),
        Readiness::NoPort => (
            "False",
            "ServicePortError",
            format!("{of} is not listening on port {}", remote.service.port),
        ),
        Readiness::NoSlices => (
            "False",
            "EndpointsNotFound",
            format!("cannot find endpointslices for {of}"),
        ),
        Readiness::NoEndpoints(port) => (
            "False",
            "MissingEndpoints",
            format!("endpointslices for {of} have no addresses with port name {port:?}"),
        ),
        Readiness::Ready => match aggregation::fetch(aggregator, remote).await {
            Ok(()) => ("True", "Passed", String::from("all checks passed")),
            Err(error) => ("False", "FailedDiscoveryCheck", error.to_string()),
        },
    }
}

/// Stores the condition, if it has changed.
async fn store(
    context: &Context,
    name: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Outcome<()> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find(GROUP, "v1", PLURAL) else {
        return Ok(());
    };
    let path = |subresource| ObjectPath {
        resource,
        namespace: "",
        name,
        subresource,
    };
    let stored = match writer.storage.get(path("")).await {
        Ok(stored) => stored,
        Err(failure) if failure.is_not_found() => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let conditions = stored
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions: Vec<Value> = conditions.cloned().unwrap_or_default();
    let is_available = |condition: &&mut Value| condition["type"] == "Available";
    let before = conditions.iter_mut().find(is_available);
    let mut condition = json!({
        "type": "Available", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": metadata::now().to_string(),
    });
    match before {
        Some(before) => {
            if before["status"] == status {
                condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
            }
            if *before == condition {
                return Ok(());
            }
            *before = condition;
        }
        None => conditions.push(condition),
    }
    let uid = metadata::text(&stored, "uid");
    let changed = json!({
        // The UID excludes a recreated object of the same name.
        "metadata": {"uid": uid},
        "status": {"conditions": conditions},
    });
    let request = Request::internal(user(), Verb::Patch, path("status"));
    let body = PatchBody {
        patch: Patch::Merge(changed),
        findings: Vec::new(),
        options: WriteOptions::of_program("kube-apiserver"),
    };
    match patch::patch(writer, &request, body).await {
        Ok(_) => {
            tracing::info!(
                name,
                status,
                reason,
                message,
                "APIService availability changed"
            );
            Ok(())
        }
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The user of the server itself, which runs this controller.
fn user() -> UserInfo {
    let groups = ["system:masters", "system:authenticated"];
    UserInfo {
        username: String::from("system:apiserver"),
        groups: Some(groups.map(String::from).to_vec()),
        ..UserInfo::default()
    }
}
