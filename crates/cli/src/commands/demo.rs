//! `lockgate demo`: a server, two webhooks and a dozen requests in one process.

mod client;
mod show;
mod webhooks;

use std::sync::{Arc, Mutex, PoisonError};

use lockgate_apiserver::{Controllers, Observer, Running, Settings};
use lockgate_store::MemoryStore;
use serde_json::{Value, json};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::{Printer, trace};
use client::Client;
use webhooks::Webhooks;

/// A request, and why it is made.
struct Act {
    why: &'static str,
    method: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: Value,
}

const JSON: &str = "application/json";

/// Runs the demo.
///
/// # Errors
///
/// The server or the webhooks cannot start, or standard output cannot be written.
pub fn run(printer: &mut Printer) -> Result<ExitCode, Stop> {
    super::run_async(play(printer))
}

async fn play(printer: &mut Printer) -> Result<ExitCode, Stop> {
    let webhooks = Webhooks::start().await?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&told);
    let observer = Observer::new(move |admission| {
        let mut told = ear.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(admission.trace().clone());
    });
    let settings = Settings {
        secure_port: 0,
        observer: Some(observer),
        // What is shown is what was asked for, and nothing besides.
        controllers: Controllers::all(false),
        // Nobody makes the account that pods would need.
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    };
    let running = Running::start(settings, Arc::new(MemoryStore::new()))
        .await
        .map_err(|error| CommandError::failed(error.to_string()))?;
    printer.line(&format!(
        "An API server is ready after {:.1} ms, and two webhooks are waiting:\n\
         \n  \
         owner.demo.lockgate.io    mutating     labels config maps and pods with who made them\n  \
         images.demo.lockgate.io   validating   refuses images without a version, outside of namespace sandbox\n",
        running.took().as_secs_f64() * 1000.0
    ))?;
    let mut client = Client::connect(&running).await?;
    for (number, act) in acts(&webhooks).into_iter().enumerate() {
        let answer = client
            .send(act.method, act.path, act.content_type, &act.body)
            .await?;
        let traces = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
        printer.line(&format!("── {}. {}", number + 1, act.why))?;
        printer.line(&format!("   {} {}", act.method, act.path))?;
        printer.line(&format!("   {}", show::answer(&answer)))?;
        printer.text(&trace::table(&traces))?;
        printer.line("")?;
    }
    printer.line("Every row is one webhook or plugin, with the first reason why it was not called, or what came of the call.")?;
    drop(client);
    running.stop().await;
    Ok(ExitCode::Done)
}

fn acts(webhooks: &Webhooks) -> Vec<Act> {
    let registration = |kind: &str, name: &str, webhook: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [webhook],
        })
    };
    let rule = |operations: Value, resources: Value| json!([{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]);
    let owner = json!({
        "name": "owner.demo.lockgate.io",
        "clientConfig": webhooks.client_config("/owner"),
        "rules": rule(json!(["CREATE"]), json!(["configmaps", "pods"])),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let images = json!({
        "name": "images.demo.lockgate.io",
        "clientConfig": webhooks.client_config("/images"),
        "rules": rule(json!(["CREATE", "UPDATE"]), json!(["pods"])),
        "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["sandbox"]}]},
        "matchConditions": [{"name": "not-by-robots", "expression": "!request.userInfo.username.startsWith('system:')"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let config_map = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"k": "v"}});
    let pod = |name: &str, image: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]}});
    let post = |why, path, body| Act {
        why,
        method: "POST",
        path,
        content_type: JSON,
        body,
    };
    vec![
        post(
            "Register the webhook that changes objects",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            registration("MutatingWebhookConfiguration", "owner", owner),
        ),
        post(
            "Register the webhook that refuses objects; both are in force at once",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            registration("ValidatingWebhookConfiguration", "images", images),
        ),
        post(
            "A config map nobody owns: it is labelled on the way in, with a warning",
            "/api/v1/namespaces/default/configmaps",
            config_map("a", json!({"app": "shop"})),
        ),
        post(
            "One that has an owner: the webhook has nothing to do",
            "/api/v1/namespaces/default/configmaps",
            config_map("b", json!({"owner": "ann"})),
        ),
        post(
            "A dry run: webhooks are asked, nothing is stored",
            "/api/v1/namespaces/default/configmaps?dryRun=All",
            config_map("c", json!({})),
        ),
        post(
            "A secret: no rule matches",
            "/api/v1/namespaces/default/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        ),
        post(
            "A pod with a version: changed by one, allowed by the other",
            "/api/v1/namespaces/default/pods",
            pod("good", "shop:1.2"),
        ),
        post(
            "A pod without: refused",
            "/api/v1/namespaces/default/pods",
            pod("bad", "shop:latest"),
        ),
        post(
            "A namespace of its own",
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sandbox"}}),
        ),
        post(
            "The same pod there: the namespace selector spares it",
            "/api/v1/namespaces/sandbox/pods",
            pod("bad", "shop:latest"),
        ),
        Act {
            why: "An update through a patch: an image that loses its version is refused too",
            method: "PATCH",
            path: "/api/v1/namespaces/default/pods/good",
            content_type: "application/strategic-merge-patch+json",
            body: json!({"spec": {"containers": [{"name": "c", "image": "shop"}]}}),
        },
        Act {
            why: "A deletion: no webhook asked to be told",
            method: "DELETE",
            path: "/api/v1/namespaces/default/pods/good",
            content_type: JSON,
            body: Value::Null,
        },
    ]
}
