//! Two sample webhooks, written and served with `lockgate-webhook`.

use std::net::Ipv4Addr;
use std::time::Duration;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_certs::{Authority, Leaf};
use lockgate_webhook::server::{Certificates, Running, Server};
use lockgate_webhook::{
    Context, Denial, ManifestOptions, Mutator, Object, Operation, Registration, Rule, Validator,
    Verdict, Webhooks, mutating, validating,
};
use serde_json::{Value, json};

use crate::commands::CommandError;

/// The running webhooks; dropping this stops them.
#[derive(Debug)]
pub(super) struct Samples {
    running: Running,
    registrations: Vec<Value>,
}

impl Samples {
    /// Starts them on a free loopback port.
    pub(super) async fn start() -> Result<Self, CommandError> {
        let failed = |error: &dyn std::error::Error| {
            CommandError::failed(format!("cannot start the sample webhooks: {error}"))
        };
        let authority = Authority::new("lockgate demo").map_err(|error| failed(&error))?;
        let served = authority
            .issue(&Leaf::server("webhook", ["127.0.0.1"]))
            .map_err(|error| failed(&error))?;
        let webhooks = webhooks();
        let running = Server::new(webhooks.clone())
            .listen((Ipv4Addr::LOCALHOST, 0))
            .certificates(Certificates::pem(served.certificate_pem, served.key_pem))
            .shutdown_delay(Duration::ZERO)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        running.until_ready().await;
        let options = ManifestOptions::new()
            .mutating_name("owner")
            .validating_name("images")
            .url(format!("https://{}", running.address()))
            .ca_bundle(authority.pem());
        Ok(Self {
            running,
            registrations: webhooks.manifests(&options).to_values(),
        })
    }

    /// The configuration of a kind, as posted to the API server.
    pub(super) fn registration(&self, kind: &str) -> Value {
        let mut all = self.registrations.iter();
        all.find(|object| object["kind"] == kind)
            .cloned()
            .unwrap_or_default()
    }

    /// Drains calls and stops.
    pub(super) async fn stop(self) {
        self.running.stop().await;
    }
}

fn webhooks() -> Webhooks {
    let not_sandbox = LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: String::from("kubernetes.io/metadata.name"),
            operator: String::from("NotIn"),
            values: Some(vec![String::from("sandbox")]),
        }]),
    };
    Webhooks::new()
        .with(
            Registration::mutating("owner.demo.lockgate.io")
                .path("/owner")
                .rule(Rule::resources(["configmaps", "pods"]).operations([Operation::Create])),
            mutating::<Value, _>(Owner),
        )
        .with(
            Registration::validating("images.demo.lockgate.io")
                .path("/images")
                .rule(Rule::resources(["pods"]).operations([Operation::Create, Operation::Update]))
                .namespace_selector(not_sandbox)
                .match_condition(
                    "not-by-robots",
                    "!request.userInfo.username.startsWith('system:')",
                ),
            validating::<Value, _>(Images),
        )
}

/// Labels an object with the user who creates it.
struct Owner;

impl Mutator<Value> for Owner {
    async fn mutate(&self, ctx: &Context, object: &mut Value) -> Verdict {
        let labels = &mut object["metadata"]["labels"];
        if labels.get("owner").is_none() {
            labels["owner"] = json!(ctx.user().username);
            ctx.warn("the label owner was missing and has been set");
        }
        Ok(())
    }
}

/// Rejects pods with untagged images.
struct Images;

impl Validator<Value> for Images {
    async fn create_or_update(
        &self,
        ctx: &Context,
        _: Option<&Object<Value>>,
        pod: &Object<Value>,
    ) -> Verdict {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let images = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container.get("image")?.as_str());
        let untagged: Vec<&str> = images
            .filter(|image| !image.contains(':') || image.ends_with(":latest"))
            .collect();
        if untagged.is_empty() {
            ctx.annotate("images", "pinned");
            return Ok(());
        }
        let untagged = untagged.join(", ");
        Err(Denial::forbidden(format!("image {untagged} has no version")).into())
    }
}
