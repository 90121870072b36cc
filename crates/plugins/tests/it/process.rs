//! Plugins in the admission chain of the engine.

use std::sync::Arc;

use lockgate_admission::audit::Level;
use lockgate_admission::call::{Caller, Client, ClientError};
use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::registration::hub::ClientConfig;
use lockgate_plugins::lookup::{LIMIT_RANGES, Memory, NAMESPACES, POD_PRESETS};
use lockgate_plugins::{
    AlwaysPullImages, DefaultTolerationSeconds, InProcess, InTree, LimitRanger,
    NamespaceProtection, PodNodeSelector, PodPreset,
};
use lockgate_webhook::{Context, Registration, Response, Rule, Webhook, from_fn};
use serde_json::{Value, json};

use crate::kit::{named, pod, pod_with};

struct Nowhere;

impl Caller for Nowhere {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Err(ClientError::Other(String::from("nobody is called here")))
    }
}

fn host() -> Host {
    Host::new(Arc::new(Nowhere))
}

fn create(pod: Value) -> Request {
    let (kind, resource) = (kind("", "v1", "Pod"), resource("", "v1", "pods"));
    let mut request = Request::new(Operation::Create, kind, resource);
    request.name = String::from("x");
    request.namespace = String::from("shop");
    request.object = Some(pod.into());
    request
}

async fn admit(plugin: &dyn Plugin, request: Request) -> (Decision, Admission) {
    let mut admission = Admission::new(request);
    let decision = plugin.admit(&mut admission).await;
    (decision, admission)
}

fn told(decision: &Decision) -> Option<(i32, &str, &str)> {
    let status = decision.status()?;
    Some((status.code, &status.reason, &status.message))
}

fn limits() -> Memory {
    let memory = Memory::new();
    memory.put(
        LIMIT_RANGES,
        json!({"metadata": {"name": "l", "namespace": "shop"}, "spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}},
        ]}}),
    );
    memory
}

#[tokio::test]
async fn a_plugin_changes_and_refuses_as_if_it_were_compiled_in() {
    let plugin = InTree(LimitRanger::new(limits()));
    assert_eq!(plugin.name(), "LimitRanger");
    assert!(plugin.admits() && plugin.validates());
    assert!(plugin.handles(Operation::Update) && !plugin.handles(Operation::Delete));
    let (decision, admission) = admit(&plugin, create(pod())).await;
    assert_eq!(decision, Decision::Allow);
    let changed = admission.request().object.clone().unwrap();
    let limits = &changed.value()["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"cpu": "1"}));
    assert_eq!(changed.value()["unknown"], pod()["unknown"]);

    let much = json!([{"name": "app", "resources": {"limits": {"cpu": "2"}}}]);
    let request = create(pod_with(json!({"containers": much})));
    let decision = plugin.validate(&mut Admission::new(request)).await;
    let message = "pods \"x\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert_eq!(told(&decision), Some((403, "Forbidden", message)));
    let Decision::Deny(denial) = decision else {
        panic!("allowed")
    };
    assert_eq!(denial.cause, Cause::Plugin);
    let details = denial.status.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.kind.as_str()),
        ("x", "pods")
    );
}

#[tokio::test]
async fn only_what_a_webhook_is_registered_for_reaches_it() {
    let plugin = InTree(AlwaysPullImages);
    let mut request = create(pod());
    request.subresource = String::from("status");
    let (_, admission) = admit(&plugin, request).await;
    assert_eq!(admission.request().object.as_ref().unwrap().value(), &pod());

    let plugin = InTree(NamespaceProtection::default());
    for (name, want) in [
        (
            "kube-system",
            Some("namespaces \"kube-system\" is forbidden: this namespace may not be deleted"),
        ),
        ("shop", None),
    ] {
        let (kind, resource) = (
            kind("", "v1", "Namespace"),
            resource("", "v1", "namespaces"),
        );
        let mut request = Request::new(Operation::Delete, kind, resource);
        request.name = name.to_owned();
        request.namespace = name.to_owned();
        request.old_object = Some(json!({"metadata": {"name": name}}).into());
        let decision = plugin.validate(&mut Admission::new(request)).await;
        assert_eq!(told(&decision).map(|(_, _, message)| message), want);
    }
}

#[tokio::test]
async fn other_denials_and_faults_are_told_as_they_are() {
    let config = lockgate_plugins::config::read("{}").unwrap();
    let plugin = InTree(PodNodeSelector::new(config, Memory::new()));
    let (decision, _) = admit(&plugin, create(pod())).await;
    assert_eq!(
        told(&decision),
        Some((404, "NotFound", "namespaces \"shop\" not found"))
    );

    let memory = Memory::new();
    let broken = json!({"scheduler.alpha.kubernetes.io/node-selector": "broken"});
    memory.put(NAMESPACES, named("", "shop", broken));
    let plugin = InTree(PodNodeSelector::new(Default::default(), memory));
    let (decision, _) = admit(&plugin, create(pod())).await;
    let message = "invalid selector: [broken]";
    assert_eq!(told(&decision), Some((500, "", message)));
}

#[tokio::test]
async fn warnings_and_annotations_reach_the_client_and_the_log() {
    let answers = from_fn(async |ctx: &Context| {
        ctx.annotate("seen", "yes");
        Ok(Response::allow().warning("mind the gap"))
    });
    let registration = Registration::validating("gap.example.com")
        .rule(Rule::resources(["pods"]).operations([lockgate_webhook::Operation::Create]));
    let webhook = Webhook::new(registration.clone(), answers);
    let plugin = InProcess::new("Gap", [webhook], host()).unwrap();
    let engine = Engine::builder(host()).plugin(plugin).build().unwrap();
    let mut admission = Admission::new(create(pod()));
    assert!(engine.admit(&mut admission).await.is_allowed());
    assert!(engine.validate(&mut admission).await.is_allowed());
    let warnings = admission.warnings();
    assert!(
        warnings
            .headers()
            .any(|header| header.contains("mind the gap"))
    );
    let annotations = admission.annotations();
    let told: Vec<_> = annotations.at(Level::Metadata).collect();
    assert!(told.contains(&("gap.example.com/seen", "yes")), "{told:?}");

    // Options that would be ignored are rejected at once.
    let registration = registration.match_condition("never", "false");
    let webhook = Webhook::new(
        registration,
        from_fn(async |_: &Context| Ok(Response::allow())),
    );
    let error = InProcess::new("Gap", [webhook], host()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "webhook gap.example.com has match conditions, which are not evaluated in process"
    );
}

#[tokio::test]
async fn a_second_round_finds_nothing_left_to_do() {
    let memory = limits();
    memory.put(
        POD_PRESETS,
        json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"env": [{"name": "A", "value": "1"}]}}),
    );
    let plugins: [Arc<dyn Plugin>; 3] = [
        Arc::new(InTree(LimitRanger::new(memory.clone()))),
        Arc::new(InTree(PodPreset::new(memory))),
        Arc::new(InTree(AlwaysPullImages)),
    ];
    let mut admission = Admission::new(create(pod()));
    let mut rounds = Vec::new();
    for _ in 0..2 {
        for plugin in &plugins {
            assert_eq!(plugin.admit(&mut admission).await, Decision::Allow);
        }
        rounds.push(admission.request().object.clone().unwrap());
    }
    assert_eq!(rounds[0], rounds[1]);
    let container = &rounds[0].value()["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["env"], json!([{"name": "A", "value": "1"}]));
}

#[tokio::test]
async fn what_is_not_shaped_like_a_pod_is_refused() {
    let tolerations = InTree(DefaultTolerationSeconds::default());
    let images = InTree(AlwaysPullImages);
    let plugins: [&dyn Plugin; 2] = [&images, &tolerations];
    for plugin in plugins {
        let mut requests: Vec<Request> = [
            json!({"spec": []}),
            json!({"spec": {"containers": {}}}),
            json!({"spec": {"initContainers": ["app"]}}),
            json!({"spec": {"containers": [], "tolerations": "all"}}),
        ]
        .into_iter()
        .map(create)
        .collect();
        let mut nothing = create(Value::Null);
        nothing.object = None;
        requests.push(nothing);
        for request in requests {
            let shown = format!("{} {:?}", plugin.name(), request.object);
            let (decision, _) = admit(plugin, request).await;
            let status = decision.status().expect(&shown);
            assert_eq!(
                (status.code, &*status.reason),
                (400, "BadRequest"),
                "{shown}"
            );
        }
    }
}
