//! Mutating dispatch: patches, order, annotations, conversion.

use std::sync::Arc;

use lockgate_admission::audit::Level;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{
    BoxFuture, ConvertError, DecodeError, Equivalent, Host, Kinds, PlainKinds,
};
use lockgate_admission::object::Object;
use lockgate_admission::request::{Request, kind, resource};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::registration::{Webhook, hub};
use serde_json::{Value, json};

use super::support::*;

const H: &str = "h.example.com";

#[tokio::test]
async fn patches_are_applied_or_refused() {
    let add_label = json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]).to_string();
    let fcw = "failed calling webhook \"h.example.com\": ";
    // The last two columns: the error with `Fail`, and whether `Ignore` allows the request.
    for (name, response, request, want, ignorable) in [
        ("no patch", json!({"allowed": true}), create(), None, true),
        ("empty patch", patched("[]"), create(), None, true),
        ("null patch", patched("null"), create(), None, true),
        ("empty patch on DELETE", patched("[]"), delete(), None, true),
        ("a label", patched(&add_label), create(), None, true),
        (
            "not JSON",
            patched("[{"),
            create(),
            Some(format!(
                "{fcw}received undecodable patch in webhook response: unexpected end of JSON input"
            )),
            true,
        ),
        (
            "on DELETE",
            patched(&add_label),
            delete(),
            Some(String::from(
                "admission webhook \"h.example.com\" attempted to modify the object, which is not \
                 supported for this operation",
            )),
            false,
        ),
        (
            "unknown patch type",
            json!({"allowed": true, "patchType": "Foo", "patch": base64(add_label.as_bytes())}),
            create(),
            Some(format!("{fcw}unsupported patch type \"Foo\"")),
            true,
        ),
        (
            "unknown type of an empty patch",
            json!({"allowed": true, "patchType": "Foo", "patch": base64(b"[]")}),
            create(),
            None,
            true,
        ),
        (
            "removes what is not there",
            patched(r#"[{"op":"remove","path":"/metadata/labels/nope"}]"#),
            create(),
            Some(String::from(
                "error in remove for path: '/metadata/labels/nope': Unable to remove nonexistent \
                 key: nope: missing value",
            )),
            false,
        ),
        (
            "adds below what is not there",
            patched(r#"[{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#),
            create(),
            Some(String::from(
                "add operation does not apply: doc is missing path: \"/metadata/annotations/x\": \
                 missing value",
            )),
            false,
        ),
        (
            "patch without type",
            json!({"allowed": true, "patch": base64(b"[]")}),
            create(),
            Some(format!(
                "{fcw}received invalid webhook response: webhook returned response.patch but not \
                 response.patchType"
            )),
            true,
        ),
    ] {
        for hook in [webhook(H), ignoring(webhook(H))] {
            let world = World::new();
            let ignores = hook.failure_policy.as_deref() == Some("Ignore");
            world.hook_in(Mutating, "c", hook, Reply::Response(response.clone()));
            let outcome = world.run(Mutating, request.clone()).await;
            match &want {
                Some(want) if !(ignores && ignorable) => {
                    let message = format!("Internal error occurred: {want}");
                    let refusal = (500, "InternalError", message.as_str());
                    assert_eq!(outcome.refusal(), Some(refusal), "{name}");
                    if !ignorable {
                        assert!(
                            world.counters()[0].contains(
                                "error_type=\"apiserver_internal_error\",name=\"h.example.com\",\
                             operation=\"CREATE\",rejection_code=\"0\""
                            ) || name == "on DELETE",
                            "{name}"
                        );
                    }
                }
                _ => outcome.allowed(),
            }
            // Every attempt is annotated.
            let mutated = want.is_none() && name == "a label";
            let value = format!(
                "{{\"configuration\":\"c\",\"webhook\":\"h.example.com\",\"mutated\":{mutated}}}"
            );
            let key = String::from("mutation.webhook.admission.k8s.io/round_0_index_0");
            assert!(outcome.annotations().contains(&(key, value)), "{name}");
        }
    }
}

#[tokio::test]
async fn a_patch_is_annotated_even_when_it_changes_nothing() {
    let world = World::new();
    let patch = r#"[ {"value": {"z": "<&>", "a": 1}, "path": "/data", "op": "add"} ]"#;
    world.hook(Mutating, H, Reply::patch_text(patch));
    let same = json!([{"op": "replace", "path": "/metadata/labels/app", "value": "web"}]);
    world.hook(Mutating, "same.example.com", Reply::patch(&same));
    let outcome = world.run(Mutating, create()).await;
    outcome.allowed();
    let prefix = "mutation.webhook.admission.k8s.io/round_0_index_";
    let said = |n: usize, hook: &str, mutated: bool| {
        let value =
            format!("{{\"configuration\":\"c\",\"webhook\":\"{hook}\",\"mutated\":{mutated}}}");
        (format!("{prefix}{n}"), value)
    };
    let patch_key = |n: usize| format!("patch.webhook.admission.k8s.io/round_0_index_{n}");
    let mutations = [said(0, H, true), said(1, "same.example.com", false)];
    assert_eq!(outcome.annotations_at(Level::None), []);
    assert_eq!(outcome.annotations_at(Level::Metadata), mutations);
    let patches = [
        (
            patch_key(0),
            String::from(
                r#"{"configuration":"c","webhook":"h.example.com","patch":[{"op":"add","path":"/data","value":{"z":"\u003c\u0026\u003e","a":1}}],"patchType":"JSONPatch"}"#,
            ),
        ),
        (
            patch_key(1),
            String::from(
                r#"{"configuration":"c","webhook":"same.example.com","patch":[{"op":"replace","path":"/metadata/labels/app","value":"web"}],"patchType":"JSONPatch"}"#,
            ),
        ),
    ];
    assert_eq!(
        outcome.annotations_at(Level::Request),
        [mutations, patches].concat()
    );
}

#[tokio::test]
async fn configurations_run_in_order_of_name_and_each_sees_the_last() {
    let append = |word: &'static str| {
        Reply::With(Arc::new(move |review| {
            let before = review["request"]["object"]["data"]["k"]
                .as_str()
                .unwrap()
                .to_owned();
            let op = json!([{"op": "replace", "path": "/data/k", "value": before + word}]);
            patched(&op.to_string())
        }))
    };
    let world = World::new();
    world.hook_in(Mutating, "b", webhook("first.example.com"), append("-b1"));
    world.hook_in(Mutating, "b", webhook("second.example.com"), append("-b2"));
    world.hook_in(Mutating, "a", webhook("third.example.com"), append("-a"));
    let outcome = world.run(Mutating, create()).await;
    assert_eq!(outcome.object()["data"]["k"], "v-a-b1-b2");
}

#[tokio::test]
async fn hooks_match_the_object_as_earlier_ones_left_it() {
    let world = World::new();
    let remove = json!([{"op": "remove", "path": "/metadata/labels/app"}]);
    let add = json!([{"op": "add", "path": "/metadata/labels/new", "value": "yes"}]);
    world.hook(Mutating, "remove.example.com", Reply::patch(&remove));
    let gone = selecting(webhook("gone.example.com"), "app", "web");
    world.hook_in(Mutating, "c", gone, Reply::allow());
    world.hook(Mutating, "add.example.com", Reply::patch(&add));
    let come = selecting(webhook("come.example.com"), "new", "yes");
    world.hook_in(Mutating, "c", come, Reply::allow());
    world.run(Mutating, create()).await.allowed();
    assert_eq!(
        (
            world.calls("gone.example.com"),
            world.calls("come.example.com")
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn failed_open_hooks_are_numbered_among_all() {
    let failing = || Reply::Raw(500, Some("text/plain"), "no");
    let world = World::new();
    let unmatched = selecting(webhook("unmatched.example.com"), "app", "other");
    world.hook_in(Mutating, "c", unmatched, Reply::allow());
    for name in ["x.example.com", "y.example.com", "z.example.com"] {
        world.hook_in(Mutating, "c", ignoring(webhook(name)), failing());
    }
    let outcome = world.run(Mutating, create()).await;
    outcome.allowed();
    let open: Vec<String> = outcome
        .annotations()
        .into_iter()
        .filter(|(key, _)| key.starts_with("failed-open."))
        .map(|(key, _)| key)
        .collect();
    let key = |n| format!("failed-open.mutation.webhook.admission.k8s.io/round_0_index_{n}");
    assert_eq!(open, [key(1), key(2), key(3)]);
}

#[tokio::test]
async fn the_review_says_what_was_asked() {
    let world = World::new();
    world.hook(Mutating, H, Reply::allow());
    let mut request = create();
    request.user.username = String::from("ann");
    request.options = Some(json!({"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}).into());
    world.run(Mutating, request).await.allowed();
    let mut review = world.seen().remove(0).review;
    let uid = review["request"]["uid"].take();
    assert_eq!(uid.as_str().unwrap().len(), 36);
    assert_eq!(
        review,
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": null,
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
                "name": "cm",
                "namespace": "shop",
                "operation": "CREATE",
                "userInfo": {"username": "ann"},
                "object": config_map(),
                "oldObject": null,
                "dryRun": false,
                "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            },
        })
    );
}

/// `things` in `v1`, `v2` and `v3`; only conversion to `v3` fails.
struct Things;

impl Kinds for Things {
    fn equivalents(&self, resource: &GroupVersionResource, _: &str) -> Arc<[Equivalent]> {
        if resource.resource != "things" {
            return Arc::default();
        }
        let versions = ["v1", "v2", "v3"].map(|version| Equivalent {
            resource: lockgate_admission::request::resource("example.com", version, "things"),
            kind: Some(kind("example.com", version, "Thing")),
        });
        Arc::from(versions)
    }

    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>> {
        Box::pin(async move {
            if to.version == "v3" || to.kind != "Thing" {
                return Err(ConvertError::failed("no such version"));
            }
            let mut value = object.value().clone();
            value["apiVersion"] = json!(format!("example.com/{}", to.version));
            Ok(value.into())
        })
    }

    fn decode(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        PlainKinds.decode(value, kind)
    }

    fn apply_defaults(&self, value: &mut Value, _: &GroupVersionKind) {
        if value["spec"].get("size").is_none() {
            value["spec"]["size"] = json!(1);
        }
    }

    fn semantically_equal(&self, _: &GroupVersionKind, one: &Value, other: &Value) -> bool {
        lockgate_admission::equality::custom(one, other)
    }
}

fn things() -> World {
    World::with(|host| {
        Engine::new(Host {
            kinds: Arc::new(Things),
            ..host
        })
    })
}

fn thing(version: &str) -> Request {
    let mut request = Request::new(
        lockgate_admission::request::Operation::Create,
        kind("example.com", version, "Thing"),
        resource("example.com", version, "things"),
    );
    request.namespace = String::from("shop");
    let object = json!({
        "apiVersion": format!("example.com/{version}"),
        "kind": "Thing",
        "metadata": {"generateName": "t-"},
        "spec": {"size": 1, "log": ""},
    });
    request.object = Some(object.into());
    request
}

fn for_version(name: &str, version: &str) -> Webhook {
    let rule = hub::Rule {
        operations: Some(vec![String::from("*")]),
        api_groups: Some(vec![String::from("example.com")]),
        api_versions: Some(vec![version.to_owned()]),
        resources: Some(vec![String::from("things")]),
        scope: None,
    };
    Webhook {
        rules: Some(vec![rule]),
        ..webhook(name)
    }
}

#[tokio::test]
async fn hooks_get_the_version_they_asked_for_and_changes_come_back() {
    let log = || {
        Reply::With(Arc::new(|review: &Value| {
            let object = &review["request"]["object"];
            let log = object["spec"]["log"].as_str().unwrap().to_owned();
            let value = log + object["apiVersion"].as_str().unwrap() + ";";
            let op = json!([{"op": "replace", "path": "/spec/log", "value": value}]);
            patched(&op.to_string())
        }))
    };
    for version in ["v1", "v2"] {
        let world = things();
        world.hook_in(Mutating, "c", for_version("two.example.com", "v2"), log());
        world.hook_in(Mutating, "c", for_version("one.example.com", "v1"), log());
        let outcome = world.run(Mutating, thing(version)).await;
        outcome.allowed();
        assert_eq!(
            outcome.object()["apiVersion"],
            format!("example.com/{version}")
        );
        assert_eq!(
            outcome.object()["spec"]["log"],
            "example.com/v2;example.com/v1;"
        );
        for (seen, sent) in world.seen().iter().zip(["v2", "v1"]) {
            let request = &seen.review["request"];
            assert_eq!(request["kind"]["version"], sent);
            assert_eq!(request["resource"]["version"], sent);
            assert_eq!(request["requestKind"]["version"], version);
            assert_eq!(request["requestResource"]["version"], version);
            assert!(request.get("name").is_none());
        }
    }
}

#[tokio::test]
async fn conversion_failures_are_told_with_each_phase_s_prefix() {
    for (which, prefix) in [
        (
            Mutating,
            "Internal error occurred: Internal error occurred: ",
        ),
        (Validating, "Internal error occurred: "),
    ] {
        let condition = hub::MatchCondition {
            name: String::from("c"),
            expression: String::from("true"),
        };
        for conditions in [None, Some(vec![condition])] {
            let world = things();
            let hook = Webhook {
                match_conditions: conditions,
                ..ignoring(for_version(H, "v3"))
            };
            world.hook_in(which, "c", hook, Reply::allow());
            let outcome = world.run(which, thing("v1")).await;
            let message = format!("{prefix}no such version");
            assert_eq!(
                outcome.refusal(),
                Some((500, "InternalError", message.as_str()))
            );
            assert_eq!(world.calls(H), 0);
        }
    }
}

#[tokio::test]
async fn defaults_come_back_after_a_patch_and_count_as_a_change() {
    let world = things();
    let drop = json!([{"op": "remove", "path": "/spec/size"}]);
    world.hook_in(Mutating, "c", for_version(H, "v1"), Reply::patch(&drop));
    let outcome = world.run(Mutating, thing("v1")).await;
    outcome.allowed();
    assert_eq!(outcome.object()["spec"]["size"], 1);
    let (_, value) = outcome.annotations().remove(0);
    assert!(value.ends_with("\"mutated\":true}"), "{value}");
}

#[tokio::test]
async fn a_changed_kind_fails_raw_at_the_end() {
    let world = World::new();
    let rename = json!([{"op": "replace", "path": "/kind", "value": "Secret"}]);
    world.hook(Mutating, H, Reply::patch(&rename));
    let outcome = world.run(Mutating, create()).await;
    let message = "converting (v1.Secret) to (v1.ConfigMap): unknown conversion";
    assert_eq!(outcome.refusal(), Some((500, "", message)));
}

#[tokio::test]
async fn v1beta1_answers_are_taken_as_they_come() {
    let world = World::new();
    let hook = Webhook {
        admission_review_versions: Some(vec![String::from("v1beta1"), String::from("v1")]),
        ..webhook(H)
    };
    let patch = json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]).to_string();
    let response = json!({"uid": "another", "allowed": true, "patch": base64(patch.as_bytes())});
    world.hook_in(Mutating, "c", hook, Reply::Response(response));
    let outcome = world.run(Mutating, create()).await;
    outcome.allowed();
    assert_eq!(outcome.object()["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn conditions_see_the_object_as_earlier_hooks_left_it() {
    let world = World::new();
    let unlabelled = |name: &str| Webhook {
        match_conditions: Some(vec![hub::MatchCondition {
            name: String::from("unlabelled"),
            expression: String::from("!has(object.metadata.labels.done)"),
        }]),
        ..webhook(name)
    };
    let done = json!([{"op": "add", "path": "/metadata/labels/done", "value": "yes"}]);
    for (name, reply) in [
        ("first", Reply::allow()),
        ("second", Reply::allow()),
        ("third", Reply::patch(&done)),
        ("fourth", Reply::allow()),
    ] {
        world.hook_in(Mutating, "c", unlabelled(name), reply);
    }
    world.run(Mutating, create()).await.allowed();
    let calls = ["first", "second", "third", "fourth"].map(|name| world.calls(name));
    assert_eq!(calls, [1, 1, 1, 0]);
}

#[tokio::test]
async fn conditions_see_the_version_of_each_hook_in_turn() {
    let world = things();
    let conditional = |name: &str, version: &str, expression: &str| Webhook {
        match_conditions: Some(vec![hub::MatchCondition {
            name: String::from("c"),
            expression: expression.to_owned(),
        }]),
        ..for_version(name, version)
    };
    let is_in = |version: &str| {
        format!(
            "request.kind.version == '{version}' && object.apiVersion == 'example.com/{version}'"
        )
    };
    let untouched = "object.spec.log == ''";
    let touch = json!([{"op": "replace", "path": "/spec/log", "value": "x"}]);
    for (name, version, expression, reply) in [
        ("a", "v2", is_in("v2"), Reply::allow()),
        ("b", "v1", is_in("v1"), Reply::allow()),
        ("c", "v2", is_in("v2"), Reply::allow()),
        ("d", "v2", untouched.to_owned(), Reply::allow()),
        ("e", "v1", is_in("v1"), Reply::patch(&touch)),
        ("f", "v2", is_in("v2"), Reply::allow()),
        ("g", "v2", untouched.to_owned(), Reply::allow()),
    ] {
        let hook = conditional(name, version, &expression);
        world.hook_in(Mutating, "c", hook, reply);
    }
    world.run(Mutating, thing("v1")).await.allowed();
    let calls = ["a", "b", "c", "d", "e", "f", "g"].map(|name| world.calls(name));
    assert_eq!(calls, [1, 1, 1, 1, 1, 1, 0]);
}
