//! Connects the workload controllers to the write recipes: their writes are ordinary requests, and pass admission.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockgate_api::admission::GroupVersionKind;
use lockgate_certs::{Authority, SigningProfile};
use lockgate_workloads::{Api, Author, Edit, Kind, Rejected, Settings, SigningTerms, Target};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::decode::body;
use crate::decode::options::{DeleteOptions, Preconditions, WriteOptions};
use crate::decode::write::{Body, PartBody};
use crate::error::{Failure, Outcome, internal};
use crate::http::request_info::Verb;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::write::delete::Deletion;
use crate::write::update::Change;
use crate::write::{Writer, bind, create};

/// Runs the workload controllers and the simulated cluster until it is dropped. On a shared store, the leader does.
pub(crate) async fn simulate(
    writer: Writer,
    authority: Authority,
    settings: Settings,
    mut leads: watch::Receiver<bool>,
) {
    let store = Arc::clone(writer.storage.store());
    let api = Arc::new(Recipes { writer, authority });
    loop {
        until(&mut leads, true).await;
        let (api, store) = (Arc::clone(&api), Arc::clone(&store));
        tokio::select! {
            () = lockgate_workloads::run(api, store, settings.clone()) => {}
            // Work in progress is abandoned: another server does it.
            () = until(&mut leads, false) => {}
        }
    }
}

async fn until(leads: &mut watch::Receiver<bool>, wanted: bool) {
    if leads.wait_for(|leads| *leads == wanted).await.is_err() {
        // The sender is dropped: the value is final.
        std::future::pending().await
    }
}

/// The write recipes for controllers.
struct Recipes {
    writer: Writer,
    authority: Authority,
}

fn refused(Failure(status): Failure) -> Rejected {
    Rejected(status)
}

impl Recipes {
    fn resource(&self, kind: Kind) -> Outcome<Arc<Resource>> {
        let snapshot = self.writer.registry.snapshot();
        let found = snapshot.find(kind.group(), "v1", kind.plural());
        found
            .cloned()
            .ok_or_else(|| internal("the kind of the object is not served"))
    }

    fn request(&self, by: &Author, verb: Verb, at: Target<'_>) -> Outcome<Request> {
        let resource = self.resource(at.kind)?;
        let path = ObjectPath {
            resource: &resource,
            namespace: at.namespace,
            name: at.name,
            subresource: at.subresource,
        };
        Ok(Request::internal(by.user(), verb, path))
    }

    async fn insert(&self, by: &Author, kind: Kind, object: Value) -> Outcome<Value> {
        let namespace = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        let at = Target {
            kind,
            namespace: namespace.unwrap_or_default(),
            name: "",
            uid: "",
            subresource: "",
        };
        let request = self.request(by, Verb::Create, at)?;
        let body = Body {
            object: body::decode_value(object.clone(), &request.resource)?,
            options: WriteOptions::of_program(by.program()),
        };
        Ok(create::insert(&self.writer, &request, body).await?.object)
    }

    async fn change(&self, by: &Author, at: Target<'_>, edit: Edit<'_>) -> Outcome<Value> {
        let request = self.request(by, Verb::Update, at)?;
        let options = WriteOptions::of_program(by.program());
        let change = Change {
            uid: Some(at.uid).filter(|uid| !uid.is_empty()),
            ..Change::new(&self.writer, &request, &options)
        };
        Ok(change.edit(edit).await?.into_object())
    }

    async fn remove(&self, by: &Author, at: Target<'_>, grace: Option<i64>) -> Outcome<()> {
        let request = self.request(by, Verb::Delete, at)?;
        let uid = Some(at.uid.to_owned()).filter(|uid| !uid.is_empty());
        let options = DeleteOptions {
            grace_period_seconds: grace,
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            propagation_policy: Some(String::from("Background")),
            ..DeleteOptions::default()
        };
        Deletion::of(&self.writer, &request).run(options).await?;
        Ok(())
    }

    async fn assign(&self, pod: Target<'_>, node: &str) -> Outcome<()> {
        let at = Target {
            subresource: "binding",
            ..pod
        };
        let by = Author::Scheduler;
        let request = self.request(&by, Verb::Create, at)?;
        let body = PartBody {
            kind: GroupVersionKind {
                group: String::new(),
                version: String::from("v1"),
                kind: String::from("Binding"),
            },
            object: json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "target": {"kind": "Node", "name": node},
            }),
            options: WriteOptions::of_program(by.program()),
        };
        bind::bind(&self.writer, &request, body).await?;
        Ok(())
    }
}

#[async_trait]
impl Api for Recipes {
    async fn create(&self, by: &Author, kind: Kind, object: Value) -> Result<Value, Rejected> {
        self.insert(by, kind, object).await.map_err(refused)
    }

    async fn edit(&self, by: &Author, at: Target<'_>, edit: Edit<'_>) -> Result<Value, Rejected> {
        self.change(by, at, edit).await.map_err(refused)
    }

    async fn delete(
        &self,
        by: &Author,
        at: Target<'_>,
        grace: Option<i64>,
    ) -> Result<(), Rejected> {
        self.remove(by, at, grace).await.map_err(refused)
    }

    async fn bind(&self, pod: Target<'_>, node: &str) -> Result<(), Rejected> {
        self.assign(pod, node).await.map_err(refused)
    }

    fn sign(&self, request_pem: &str, terms: SigningTerms<'_>) -> Option<String> {
        let has = |usage: &str| terms.usages.iter().any(|one| one == usage);
        let terms = SigningProfile {
            server: has("server auth"),
            client: has("client auth"),
            lifetime: Duration::from_secs(u64::try_from(terms.seconds).ok()?),
        };
        let signed = self.authority.sign(request_pem, &terms);
        signed
            .inspect_err(|error| tracing::warn!(%error, "certificate signing request not signed"))
            .ok()
    }

    async fn effects_applied(&self) {
        // A check that is too early is repeated.
        let _ = self.writer.storage.effects_applied().await;
    }
}
