//! The admission chain of a cluster from manifests: the engine of the server, with simulated webhooks.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_admission::configuration::Configurations;
use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::access::Authorizer;
use lockgate_api::meta::time::Time;
use lockgate_api::registration::ConfigurationKind;
use lockgate_kinds::resource as rows;
use lockgate_kinds::strategy::{self, Context, Requester};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Lookup};
use crate::hooks::{Hook, Hooks};

/// The engine of a cluster.
#[derive(Debug)]
pub struct Chain {
    engine: Engine,
    hooks: Arc<Hooks>,
    lookup: Arc<Lookup>,
}

/// The level of detail of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// Webhooks and policies that may match.
    Verdicts,
    /// All registered ones, with the values of subexpressions.
    Explained,
}

/// The result of running a request through the chain.
#[derive(Debug)]
pub struct Run {
    /// The request with its trace.
    pub admission: Admission,
    /// The decision.
    pub decision: Decision,
    /// The object after mutating admission; `None` for a deletion.
    pub object: Option<Value>,
}

impl Chain {
    /// Creates the chain of a cluster.
    #[must_use]
    pub fn new(cluster: &Cluster, hooks: Hooks) -> Self {
        Self::with_authorizer(cluster, hooks, Arc::clone(&cluster.rbac))
    }

    /// The same with another authorizer for expressions.
    #[must_use]
    pub fn with_authorizer(
        cluster: &Cluster,
        hooks: Hooks,
        authorizer: Arc<impl Authorizer + 'static>,
    ) -> Self {
        let hooks = Arc::new(hooks);
        let lookup = Arc::new(cluster.lookup());
        let host = Host {
            namespaces: Arc::clone(&lookup) as _,
            kinds: Arc::clone(&cluster.kinds) as _,
            params: Arc::clone(&lookup) as _,
            authorizer,
            ..Host::new(Arc::clone(&hooks) as _)
        };
        let engine = Engine::new(host);
        for configuration in &cluster.configurations {
            engine.register(&hooks.addressed(configuration));
        }
        for policy in &cluster.policies {
            engine.policies(policy.kind).upsert_policy(policy);
        }
        for binding in &cluster.bindings {
            engine.policies(binding.kind).upsert_binding(binding);
        }
        Self {
            engine,
            hooks,
            lookup,
        }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The behaviour of a webhook.
    #[must_use]
    pub fn hook(&self, configuration: &str, webhook: &str) -> &Hook {
        self.hooks.of(configuration, webhook)
    }

    /// The namespaces of requests without a manifest.
    #[must_use]
    pub fn assumed_namespaces(&self) -> Vec<String> {
        self.lookup.assumed()
    }

    /// The webhooks of a kind, in calling order.
    #[must_use]
    pub fn configurations(&self, kind: ConfigurationKind) -> &Arc<Configurations> {
        self.engine.configurations(kind)
    }

    /// Submits a request to both steps of admission. Between them, the server's fields are set.
    pub async fn run(&self, request: Request, tracing: Tracing) -> Run {
        let mut admission = match tracing {
            Tracing::Verdicts => Admission::new(request),
            Tracing::Explained => Admission::explained(request),
        };
        let decision = self.engine.admit(&mut admission).await;
        let object = admission.request().object.clone();
        let decision = match decision {
            Decision::Allow => {
                complete(admission.request_mut());
                self.engine.validate(&mut admission).await
            }
            denied => denied,
        };
        Run {
            admission,
            decision,
            object: object.map(Object::into_value),
        }
    }
}

/// Sets the fields that the server sets between the steps: identity, timestamps, generation and those of the kind's
/// strategy.
fn complete(request: &mut Request) {
    let Some(mut object) = request.object.take().map(Object::into_value) else {
        return;
    };
    let is_create = request.operation == Operation::Create && request.subresource.is_empty();
    if is_create {
        name(&mut object, request);
    }
    if let (Some(old), Operation::Update, "scale") = (
        &request.old_object,
        request.operation,
        request.subresource.as_str(),
    ) {
        object = updated_scale(old.value(), &object);
    }
    let resource = &request.resource;
    let row = rows::find(&resource.group, &resource.version, &resource.resource);
    if let Some(row) = row.filter(|row| row.kind == request.kind.kind) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map(|since| since.as_secs()).unwrap_or_default();
        let groups = request.user.groups.clone().unwrap_or_default();
        let extra = request.user.extra.clone().unwrap_or_default();
        let requester = Requester {
            name: &request.user.username,
            uid: &request.user.uid,
            groups: &groups,
            extra: &extra,
        };
        let now = Time::from_unix_seconds(i64::try_from(now).unwrap_or_default());
        let context = Context::new(now, requester);
        match (&request.old_object, request.operation) {
            (None, Operation::Create) if is_create => {
                strategy::prepare_create(row, &mut object, &context);
            }
            (Some(old), Operation::Update) => {
                let part = &request.subresource;
                strategy::prepare_update(row, part, &mut object, old.value(), &context);
            }
            _ => {}
        }
    }
    request.object = Some(Object::new(object));
}

/// The scale of the updated object: the old scale with the admitted replicas.
///
/// UPSTREAM: pkg/registry/apps/deployment/storage/storage.go (toScaleUpdateValidation)
fn updated_scale(old: &Value, admitted: &Value) -> Value {
    let mut scale = old.clone();
    if let Some(members) = scale.as_object_mut() {
        members.insert(String::from("spec"), admitted["spec"].clone());
    }
    scale
}

/// Sets the name, UID and creation timestamp of a new object.
fn name(object: &mut Value, request: &mut Request) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let has_name = metadata.get("name").is_some_and(|name| name != "");
    if !has_name && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) {
        let name = format!("{prefix}xxxxx");
        metadata.insert(String::from("name"), name.into());
    }
    if let Some(name) = metadata.get("name").and_then(Value::as_str) {
        name.clone_into(&mut request.name);
    }
    let identity = "00000000-0000-4000-8000-000000000000";
    metadata.insert(String::from("uid"), identity.into());
    metadata
        .entry("creationTimestamp")
        .or_insert_with(|| "2001-01-01T00:00:00Z".into());
}
