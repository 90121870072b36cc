//! `lockgate demo`: a server, two webhooks and a dozen requests in one process.

mod client;
mod show;
mod webhooks;

use std::sync::{Arc, Mutex, PoisonError};

use lockgate_apiserver::{Controllers, Observer, Running, Settings, store_options};
use lockgate_store::MemoryStore;
use serde_json::{Value, json};

use super::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::output::{Printer, trace};
use client::Client;
use webhooks::Samples;

/// A request with its caption.
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
    super::run_async(run_demo(printer))
}

async fn run_demo(printer: &mut Printer) -> Result<ExitCode, Stop> {
    let webhooks = Samples::start().await?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&told);
    let observer = Observer::new(move |admission| {
        let mut told = ear.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(admission.trace().clone());
    });
    let settings = Settings {
        secure_port: 0,
        observer: Some(observer),
        // The output contains only the requests of the demo.
        controllers: Controllers::all(false),
        // No controller creates the default service account that Pods would need.
        disable_plugins: vec![String::from("ServiceAccount")],
        ..Settings::default()
    };
    let running = Running::start(
        settings,
        Arc::new(MemoryStore::with_options(store_options())),
    )
    .await
    .map_err(|error| CommandError::failed(error.to_string()))?;
    printer.line(&format!(
        "API server ready in {:.1} ms, with two webhooks:\n\
         \n  \
         owner.demo.lockgate.io    mutating     labels ConfigMaps and Pods with the user who created them\n  \
         images.demo.lockgate.io   validating   rejects untagged images, except in namespace `sandbox`\n",
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
    printer.line("Each row is a webhook or plugin: the outcome of the call, or the first reason it was not called.")?;
    drop(client);
    running.stop().await;
    webhooks.stop().await;
    Ok(ExitCode::Done)
}

fn acts(webhooks: &Samples) -> Vec<Act> {
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
            "Register the mutating webhook",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            webhooks.registration("MutatingWebhookConfiguration"),
        ),
        post(
            "Register the validating webhook; both take effect at once",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            webhooks.registration("ValidatingWebhookConfiguration"),
        ),
        post(
            "A ConfigMap without an owner: labeled by the webhook, with a warning",
            "/api/v1/namespaces/default/configmaps",
            config_map("a", json!({"app": "shop"})),
        ),
        post(
            "A ConfigMap with an owner: left unchanged",
            "/api/v1/namespaces/default/configmaps",
            config_map("b", json!({"owner": "ann"})),
        ),
        post(
            "A dry run: webhooks are called, nothing is stored",
            "/api/v1/namespaces/default/configmaps?dryRun=All",
            config_map("c", json!({})),
        ),
        post(
            "A Secret: no rule matches",
            "/api/v1/namespaces/default/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        ),
        post(
            "A Pod with a tagged image: mutated, then allowed",
            "/api/v1/namespaces/default/pods",
            pod("good", "shop:1.2"),
        ),
        post(
            "A Pod with an untagged image: denied",
            "/api/v1/namespaces/default/pods",
            pod("bad", "shop:latest"),
        ),
        post(
            "Create another namespace",
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sandbox"}}),
        ),
        post(
            "The same Pod there: excluded by namespaceSelector",
            "/api/v1/namespaces/sandbox/pods",
            pod("bad", "shop:latest"),
        ),
        Act {
            why: "PATCH: an image that loses its tag is denied too",
            method: "PATCH",
            path: "/api/v1/namespaces/default/pods/good",
            content_type: "application/strategic-merge-patch+json",
            body: json!({"spec": {"containers": [{"name": "c", "image": "shop"}]}}),
        },
        Act {
            why: "DELETE: no webhook registered for it",
            method: "DELETE",
            path: "/api/v1/namespaces/default/pods/good",
            content_type: JSON,
            body: Value::Null,
        },
    ]
}
