//! A minimal controller for Helm: Deployments become available, Jobs complete. Includes a webhook that rejects objects
//! labelled `refused`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

use base64::Engine as _;
use futures_util::TryStreamExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config, Resource as _, ResourceExt as _};
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The number of rejections before the webhook allows; more than the client retries.
const REFUSALS: usize = 20;

/// The controllers of a test cluster.
pub(crate) struct Cluster {
    tasks: JoinSet<()>,
    hooks: WebhookServer,
}

/// Returns a client for the server of a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

impl Cluster {
    /// Starts the controllers, and writes the webhook configuration to a file in this folder.
    pub(crate) async fn start(kubeconfig: &Path, folder: &Path) -> Self {
        let hooks = WebhookServer::start().await;
        hooks.script(
            "/refuse",
            std::iter::repeat_n(ScriptedResponse::deny("not on a Sunday"), REFUSALS),
        );
        let registration = registration(&hooks.url("/refuse"), hooks.ca_pem());
        std::fs::write(folder.join("hook.yaml"), registration.to_string()).unwrap();
        let client = client(kubeconfig).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(deployments(client.clone()));
        tasks.spawn(jobs(client));
        Self { tasks, hooks }
    }

    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.hooks.stop().await;
    }
}

fn registration(url: &str, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refusing"},
        "webhooks": [{
            "name": "refusing.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "objectSelector": {"matchLabels": {"refused": "yes"}},
            "clientConfig": {"url": url, "caBundle": base64::prelude::BASE64_STANDARD.encode(ca_pem)},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
        }],
    })
}

/// Creates the ReplicaSet of each Deployment, and reports all replicas as available.
async fn deployments(client: Client) {
    let events = watcher(
        Api::<Deployment>::all(client.clone()),
        watcher::Config::default(),
    );
    let mut events = std::pin::pin!(events.applied_objects());
    while let Ok(Some(deployment)) = events.try_next().await {
        let seen = deployment
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        if seen == deployment.metadata.generation
            || deployment.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let namespace = deployment.namespace().unwrap_or_default();
        let spec = serde_json::to_value(&deployment.spec).unwrap();
        let wanted = spec["replicas"].as_i64().unwrap_or(1);
        let mut hasher = DefaultHasher::new();
        spec["template"].to_string().hash(&mut hasher);
        let hash = format!("{:x}", hasher.finish());
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{hash}", deployment.name_any()),
                "labels": spec["template"]["metadata"]["labels"],
                "ownerReferences": [deployment.controller_owner_ref(&())],
            },
            "spec": {"replicas": wanted, "selector": spec["selector"], "template": spec["template"]},
        });
        for labels in [
            "/metadata/labels",
            "/spec/selector/matchLabels",
            "/spec/template/metadata/labels",
        ] {
            set.pointer_mut(labels).unwrap()["pod-template-hash"] = hash.clone().into();
        }
        let there = |generation: Option<i64>| {
            json!({"status": {
                "observedGeneration": generation, "replicas": wanted, "readyReplicas": wanted,
                "availableReplicas": wanted,
            }})
        };
        let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), &namespace);
        let name = format!("{}-{hash}", deployment.name_any());
        let apply = PatchParams::apply("cluster").force();
        let set = sets
            .patch(&name, &apply, &Patch::Apply(&set))
            .await
            .unwrap();
        let status = there(set.metadata.generation);
        sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        let mut status = there(deployment.metadata.generation);
        status["status"]["updatedReplicas"] = wanted.into();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        // It may already be deleted.
        let patch = Patch::Merge(status);
        let _ = deployments
            .patch_status(&deployment.name_any(), &PatchParams::default(), &patch)
            .await;
    }
}

/// Reports each Job as complete.
async fn jobs(client: Client) {
    let events = watcher(Api::<Job>::all(client.clone()), watcher::Config::default());
    let mut events = std::pin::pin!(events.applied_objects());
    while let Ok(Some(job)) = events.try_next().await {
        if job
            .status
            .as_ref()
            .is_some_and(|status| status.succeeded.is_some())
        {
            continue;
        }
        let start = serde_json::to_value(&job.metadata.creation_timestamp).unwrap();
        let condition =
            |ty: &str| json!({"type": ty, "status": "True", "reason": "CompletionsReached"});
        let status = json!({"status": {
            "startTime": start, "completionTime": start, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        let jobs: Api<Job> = Api::namespaced(client.clone(), &job.namespace().unwrap_or_default());
        let patch = Patch::Merge(status);
        let _ = jobs
            .patch_status(&job.name_any(), &PatchParams::default(), &patch)
            .await;
    }
}
