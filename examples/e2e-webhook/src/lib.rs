//! The webhook of the upstream end-to-end tests, endpoint by endpoint.
//!
//! Messages, patches and even unusual responses are those that upstream's e2e tests expect.
//!
//! UPSTREAM: kubernetes test/images/agnhost/webhook

use std::time::Duration;

use lockgate_webhook::patch::{Patch, Pointer};
use lockgate_webhook::{
    Context, Denial, Fault, GroupVersionResource, Handler, Operation, Refusal, Registration,
    Response, Webhooks, from_fn,
};
use serde_json::{Value, json};

/// The result of a handler.
type HandlerResult = Result<Response, Refusal>;

/// A handler.
type Endpoint = fn(&Context) -> HandlerResult;

/// The label and data key by which tests select a behaviour.
const KEY: &str = "webhook-e2e-test";

/// All endpoints. Without an image no sidecar is injected.
#[must_use]
pub fn webhooks(sidecar_image: Option<String>) -> Webhooks {
    let plain: [(&str, Endpoint); 9] = [
        ("/always-deny", |_| deny("this webhook denies all requests")),
        ("/add-label", add_label),
        ("/pods/attach", attach),
        ("/mutating-pods", mutate_pods),
        ("/configmaps", config_maps),
        ("/mutating-configmaps", mutate_config_maps),
        ("/custom-resource", custom_resources),
        ("/mutating-custom-resource", mutate_data),
        ("/crd", definitions),
    ];
    let inject =
        from_fn(async move |ctx: &Context| respond(sidecar(ctx, sidecar_image.as_deref())));
    let webhooks = Webhooks::new()
        .with(registration("/always-allow-delay-5s"), later())
        .with(registration("/pods"), pods())
        .with(registration("/mutating-pods-sidecar"), inject);
    plain
        .into_iter()
        .fold(webhooks, |webhooks, (path, handle)| {
            let handler = from_fn(async move |ctx: &Context| respond(handle(ctx)));
            webhooks.with(registration(path), handler)
        })
}

/// Every endpoint may mutate objects, and supports both review versions.
fn registration(path: &str) -> Registration {
    let name = path.trim_start_matches('/').replace('/', "-");
    Registration::mutating(format!("{name}.e2e.lockgate.io"))
        .path(path)
        .admission_review_versions(&["v1", "v1beta1"])
}

fn respond(answer: HandlerResult) -> Result<Response, Fault> {
    match answer {
        Ok(response) => Ok(response),
        Err(Refusal::Denied(denial)) => Ok(Response::deny(*denial)),
        Err(Refusal::Fault(fault)) => Err(fault),
    }
}

/// Allows everything, after five seconds.
fn later() -> impl Handler {
    from_fn(async |_: &Context| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(Response::allow())
    })
}

/// Denies Pods by label and by container name, and never responds for some.
fn pods() -> impl Handler {
    from_fn(async |ctx: &Context| {
        let pod = match pod_of(ctx) {
            Ok(pod) => pod,
            Err(refusal) => return respond(Err(refusal)),
        };
        let label = pod.pointer(&format!("/metadata/labels/{KEY}"));
        let label = label.and_then(Value::as_str);
        if label == Some("wait-forever") {
            std::future::pending::<()>().await;
        }
        let mut message = String::new();
        if label == Some("webhook-disallow") {
            message.push_str("the pod contains unwanted label; ");
        }
        for name in names(&pod, "containers") {
            if name.contains("webhook-disallow") {
                message.push_str("the pod contains unwanted container name; ");
            }
        }
        if message.is_empty() {
            return Ok(Response::allow());
        }
        respond(deny(message.trim()))
    })
}

/// A denial without code and reason: the API server sets its defaults.
fn deny(message: &str) -> HandlerResult {
    Ok(Response::deny(Denial::new(400, "", message)))
}

/// A denial with the message in the reason.
fn deny_by_reason(reason: &str) -> HandlerResult {
    Ok(Response::deny(Denial::new(400, reason, "")))
}

fn targets(ctx: &Context, plural: &str) -> bool {
    let wanted = GroupVersionResource {
        group: String::new(),
        version: String::from("v1"),
        resource: plural.to_owned(),
    };
    *ctx.resource() == wanted
}

fn object_of(ctx: &Context) -> Result<Value, Refusal> {
    let object = match ctx.operation() {
        Operation::Delete => ctx.old_object::<Value>()?,
        _ => ctx.object::<Value>()?,
    };
    Ok(object.map(|object| object.into_inner()).unwrap_or_default())
}

fn pod_of(ctx: &Context) -> Result<Value, Refusal> {
    if !targets(ctx, "pods") {
        let message = "expect resource to be {\"\" \"v1\" \"pods\"}";
        return Err(Denial::new(400, "", message).into());
    }
    object_of(ctx)
}

fn names<'v>(pod: &'v Value, list: &str) -> impl Iterator<Item = &'v str> {
    let containers = pod.pointer(&format!("/spec/{list}"));
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    containers.filter_map(|container| container.get("name")?.as_str())
}

fn add_label(ctx: &Context) -> HandlerResult {
    let object = object_of(ctx)?;
    let labels = Pointer::root().child("metadata").child("labels");
    let known = object.pointer(labels.as_str()).and_then(Value::as_object);
    let known = known.filter(|labels| !labels.is_empty());
    let label = labels.child("added-label");
    let patch = match known.map(|labels| labels.get("added-label")) {
        None => Patch::default().add(labels, json!({"added-label": "yes"})),
        Some(None) => Patch::default().add(label, "yes"),
        Some(Some(value)) if value != "yes" => Patch::default().replace(label, "yes"),
        Some(Some(_)) => Patch::default(),
    };
    Ok(Response::patch(patch))
}

/// Denies `kubectl attach to-be-attached-pod -i -c=container1`.
fn attach(ctx: &Context) -> HandlerResult {
    if ctx.name() != "to-be-attached-pod" {
        return Ok(Response::allow());
    }
    if ctx.sub_resource() != "attach" {
        let found = ctx.sub_resource();
        return deny(&format!("expect subresource to be attach, got {found}"));
    }
    let options = pod_of(ctx)?;
    if options["stdin"] != true || options["container"] != "container1" {
        return Ok(Response::allow());
    }
    deny("attaching to pod 'to-be-attached-pod' is not allowed")
}

fn mutate_pods(ctx: &Context) -> HandlerResult {
    let pod = pod_of(ctx)?;
    let has = names(&pod, "initContainers").any(|name| name == "webhook-added-init-container");
    if pod["metadata"]["name"] != "webhook-to-be-mutated" || has {
        return Ok(Response::allow());
    }
    let containers = json!([{
        "image": "webhook-added-image",
        "name": "webhook-added-init-container",
        "resources": {},
    }]);
    let path = Pointer::root().child("spec").child("initContainers");
    Ok(Response::patch(Patch::default().add(path, containers)))
}

fn sidecar(ctx: &Context, image: Option<&str>) -> HandlerResult {
    let Some(image) = image else {
        let message = "No image specified by the sidecar-image parameter";
        return Ok(Response::deny(Denial::new(500, "", message)));
    };
    let pod = pod_of(ctx)?;
    if names(&pod, "containers").any(|name| name == "webhook-added-sidecar") {
        return Ok(Response::allow());
    }
    let container = json!({"image": image, "name": "webhook-added-sidecar", "resources": {}});
    let path = Pointer::root().child("spec").child("containers").end();
    Ok(Response::patch(Patch::default().add(path, container)))
}

fn config_maps(ctx: &Context) -> HandlerResult {
    if !targets(ctx, "configmaps") {
        return Err(Fault::new("expect resource to be configmaps").into());
    }
    by_data(
        ctx,
        "the configmap contains unwanted key and value",
        "the configmap cannot be deleted because it contains unwanted key and value",
    )
}

fn custom_resources(ctx: &Context) -> HandlerResult {
    by_data(
        ctx,
        "the custom resource contains unwanted data",
        "the custom resource cannot be deleted because it contains unwanted key and value",
    )
}

/// Denies by the value of the test's data key.
fn by_data(ctx: &Context, on_write: &str, on_delete: &str) -> HandlerResult {
    let object = object_of(ctx)?;
    let wish = object["data"][KEY].as_str().unwrap_or_default();
    match (ctx.operation(), wish) {
        (Operation::Create | Operation::Update, "webhook-disallow") => deny_by_reason(on_write),
        (Operation::Delete, "webhook-nondeletable") => deny_by_reason(on_delete),
        _ => Ok(Response::allow()),
    }
}

fn mutate_config_maps(ctx: &Context) -> HandlerResult {
    if !targets(ctx, "configmaps") {
        return Err(Fault::new("expect resource to be configmaps").into());
    }
    mutate_data(ctx)
}

/// Two stages, each of which enables the next.
fn mutate_data(ctx: &Context) -> HandlerResult {
    let object = object_of(ctx)?;
    let is_set = |key: &str| object["data"][key] == "yes";
    let next = match (is_set("mutation-start"), is_set("mutation-stage-1")) {
        (_, true) => "mutation-stage-2",
        (true, false) => "mutation-stage-1",
        (false, false) => return Ok(Response::allow()),
    };
    let path = Pointer::root().child("data").child(next);
    Ok(Response::patch(Patch::default().add(path, "yes")))
}

fn definitions(ctx: &Context) -> HandlerResult {
    let resource = ctx.resource();
    let is_known = resource.group == "apiextensions.k8s.io"
        && matches!(resource.version.as_str(), "v1" | "v1beta1")
        && resource.resource == "customresourcedefinitions";
    if !is_known {
        return deny(&format!(
            "expect resource to be one of [{{apiextensions.k8s.io v1beta1 customresourcedefinitions}}, \
             {{apiextensions.k8s.io v1 customresourcedefinitions}}] but got {{{} {} {}}}",
            resource.group, resource.version, resource.resource
        ));
    }
    let object = object_of(ctx)?;
    if object["metadata"]["labels"][KEY] == "webhook-disallow" {
        return deny("the crd contains unwanted label");
    }
    Ok(Response::allow())
}
