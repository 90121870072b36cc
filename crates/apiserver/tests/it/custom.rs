//! Custom resources: schemas, multiple versions, conversion, and deletion.

use http::Method;
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn strict_version() -> Value {
    json!({
        "name": "v1", "served": true, "storage": true,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "max": {"type": "integer"},
                        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        "replicas": {"type": "integer"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "fixed": {"type": "string", "x-kubernetes-validations": [
                            {"rule": "self == oldSelf", "message": "fixed is fixed"},
                        ]},
                    },
                    "x-kubernetes-validations": [
                        {"rule": "!has(self.max) || self.size <= self.max", "message": "size is over max"},
                    ],
                },
                "status": {
                    "type": "object",
                    "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
                },
            },
        }},
    })
}

async fn defined() -> (lockgate_apiserver::TestServer, Client) {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client
        .create(DEFINITIONS, definition(json!([strict_version()])))
        .await;
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    (server, client)
}

#[tokio::test]
async fn are_served_when_the_definition_is_created() {
    let (server, client) = defined().await;
    client
        .create(WIDGETS, widget("a", json!({"size": 1})))
        .await;
    let definition = client
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .expect(200);
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    for kind in ["NamesAccepted", "Established"] {
        let condition = conditions
            .iter()
            .find(|condition| condition["type"] == kind);
        assert_eq!(condition.unwrap()["status"], "True", "{kind}");
    }
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let list = client.get(WIDGETS).await.expect(200);
    assert_eq!(list["kind"], "WidgetList");
    assert_eq!(list["items"][0]["kind"], "Widget", "items of custom kinds");
    assert_eq!(list["metadata"]["continue"], "");
    server.stop().await;
}

#[tokio::test]
async fn are_pruned_defaulted_and_checked() {
    let (server, client) = defined().await;
    let answer = client
        .post(
            WIDGETS,
            &widget("a", json!({"size": 2, "odd": 1, "free": {"x": {"y": 1}}})),
        )
        .await;
    assert_eq!(answer.warnings(), ["unknown field \"spec.odd\""]);
    let made = answer.expect(201);
    assert_eq!(
        made["spec"],
        json!({"size": 2, "color": "red", "free": {"x": {"y": 1}}})
    );
    assert_eq!(made["metadata"]["generation"], 1);
    for (spec, message) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": "big"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"size": 5, "max": 4}),
            "spec: Invalid value: size is over max",
        ),
    ] {
        let answer = client.post(WIDGETS, &widget("b", spec.clone())).await;
        let status = answer.json();
        assert_eq!(answer.code, 422, "{spec}: {status}");
        let found = status["message"].as_str().unwrap();
        assert!(
            found.starts_with("Widget.example.com \"b\" is invalid: "),
            "{found}"
        );
        assert!(found.contains(message), "{found}\n  has not\n{message}");
    }
    // Transition rules.
    client
        .patch(
            &format!("{WIDGETS}/a"),
            "merge",
            &json!({"spec": {"fixed": "x"}}),
        )
        .await
        .expect(200);
    let answer = client
        .patch(
            &format!("{WIDGETS}/a"),
            "merge",
            &json!({"spec": {"fixed": "y"}}),
        )
        .await;
    assert_eq!(answer.code, 422);
    assert_eq!(
        answer.json()["message"],
        "Widget.example.com \"a\" is invalid: spec.fixed: Invalid value: \"y\": fixed is fixed"
    );
    // Kind and apiVersion are required.
    let answer = client
        .post(
            WIDGETS,
            &json!({"metadata": {"name": "c"}, "spec": {"size": 1}}),
        )
        .await;
    assert_eq!(answer.code, 400);
    server.stop().await;
}

#[tokio::test]
async fn obey_the_rules_of_updates() {
    let (server, client) = defined().await;
    let made = client
        .create(WIDGETS, widget("a", json!({"size": 1})))
        .await;
    let a = format!("{WIDGETS}/a");
    client
        .put(&a, &widget("a", json!({"size": 2})))
        .await
        .refused(
            422,
            "Invalid",
            "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must \
             be specified for an update",
        );
    let mut changed = made;
    changed["spec"]["size"] = 2.into();
    let changed = client.put(&a, &changed).await.expect(200);
    assert_eq!(changed["metadata"]["generation"], 2);
    client
        .patch(&a, "strategic", &json!({"spec": {"size": 3}}))
        .await
        .refused(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        );
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let answer = client.request(Method::GET, &a, &accept, "").await;
    assert_eq!(answer.code, 406);

    // Status is separate from spec, and scale uses its declared paths.
    let both = json!({"spec": {"size": 9}, "status": {"replicas": 4, "selector": "a=b"}});
    let after = client
        .patch(&format!("{a}/status"), "merge", &both)
        .await
        .expect(200);
    assert_eq!(after["spec"]["size"], 2);
    assert_eq!(after["status"]["replicas"], 4);
    assert_eq!(after["metadata"]["generation"], 2);
    let scaled = client
        .patch(
            &format!("{a}/scale"),
            "merge",
            &json!({"spec": {"replicas": 6}}),
        )
        .await
        .expect(200);
    assert_eq!(scaled["kind"], "Scale");
    assert_eq!(scaled["spec"]["replicas"], 6);
    assert_eq!(scaled["status"], json!({"replicas": 4, "selector": "a=b"}));
    let object = client.get(&a).await.expect(200);
    assert_eq!(object["spec"]["replicas"], 6);

    // Declared selectable fields can be selected by.
    for (color, want) in [("red", vec!["a"]), ("blue", vec![])] {
        let list = client
            .get(&format!("{WIDGETS}?fieldSelector=spec.color%3D{color}"))
            .await
            .expect(200);
        assert_eq!(names(&list), want);
    }
    client
        .get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1"))
        .await
        .refused(400, "BadRequest", "field label not supported: spec.size");
    server.stop().await;
}

#[tokio::test]
async fn show_every_version_without_conversion() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(
            DEFINITIONS,
            definition(json!([open_version("v1", true), open_version("v2", false)])),
        )
        .await;
    client.create(WIDGETS, widget("a", json!({"x": 1}))).await;
    let other = WIDGETS.replace("/v1/", "/v2/");
    let shown = client.get(&format!("{other}/a")).await.expect(200);
    assert_eq!(shown["apiVersion"], "example.com/v2");
    assert_eq!(shown["spec"], json!({"x": 1}));
    let mut watch = client.watch(&other).await;
    let (_, object) = watch.next().await;
    assert_eq!(object["apiVersion"], "example.com/v2");
    client
        .patch(&format!("{other}/a"), "merge", &json!({"spec": {"x": 2}}))
        .await
        .expect(200);
    let shown = client.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]["x"]),
        (&json!("example.com/v1"), &json!(2))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_version_keeps_what_the_stored_one_knows() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let version = |name: &str, own: &str, default: &str| {
        let mut version = open_version(name, name == "v1");
        version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {
            "type": "object", "properties": {
                "both": {"type": "string"},
                "choice": {"type": "string", "default": default},
                own: {"type": "string", "default": "x"},
            },
        }}});
        version
    };
    let versions = json!([version("v1", "first", "a"), version("v2", "second", "b")]);
    client.create(DEFINITIONS, definition(versions)).await;
    let other = WIDGETS.replace("/v1/", "/v2/");
    // Fields and defaults of the request's version are pruned when the object is stored as v1, which has a different
    // default; that one is pruned when the object is returned as v2.
    let mut object = widget("a", json!({"both": "y", "second": "z"}));
    object["apiVersion"] = "example.com/v2".into();
    let shown = json!({"both": "y", "choice": "b"});
    for query in ["?dryRun=All", ""] {
        let made = client
            .create(&format!("{other}{query}"), object.clone())
            .await;
        assert_eq!(made["spec"], shown, "{query}");
    }
    let read = client.get(&format!("{other}/a")).await.expect(200);
    assert_eq!(read["spec"], shown);
    let list = client.get(&other).await.expect(200);
    assert_eq!(list["items"][0]["spec"], shown);
    let stored = json!({"both": "y", "choice": "b", "first": "x"});
    let read = client.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(read["spec"], stored);
    let patch = json!({"spec": {"both": "yy", "second": "zz"}});
    let changed = client.patch(&format!("{other}/a"), "merge", &patch).await;
    assert_eq!(
        changed.expect(200)["spec"],
        json!({"both": "yy", "choice": "b"})
    );
    server.stop().await;
}

/// Converts by moving `spec.size` (v1) to `spec.length` (v2) and back.
fn convert(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].clone();
    let (from, to) = if wanted == "example.com/v2" {
        ("size", "length")
    } else {
        ("length", "size")
    };
    let objects: Vec<Value> = review["request"]["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let mut object = object.clone();
            object["apiVersion"] = wanted.clone();
            let spec = object["spec"].as_object_mut().unwrap();
            if let Some(value) = spec.remove(from) {
                spec.insert(to.to_owned(), value);
            }
            object
        })
        .collect();
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {
            "uid": review["request"]["uid"], "convertedObjects": objects,
            "result": {"status": "Success"},
        },
    })
}

#[tokio::test]
async fn are_converted_by_a_webhook() {
    use base64::Engine as _;
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script("/convert", [Script::review(convert)]);
    let mut object = definition(json!([open_version("v1", true), open_version("v2", false)]));
    object["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "url": hooks.url("/convert"),
                "caBundle": base64::prelude::BASE64_STANDARD.encode(hooks.ca_pem()),
            },
        },
    });
    client.create(DEFINITIONS, object).await;
    client
        .create(WIDGETS, widget("a", json!({"size": 7})))
        .await;
    let other = WIDGETS.replace("/v1/", "/v2/");
    let shown = client.get(&format!("{other}/a")).await.expect(200);
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]),
        (&json!("example.com/v2"), &json!({"length": 7}))
    );
    let request = hooks.requests()[0].json();
    assert_eq!(request["kind"], "ConversionReview");
    assert_eq!(request["request"]["desiredAPIVersion"], "example.com/v2");

    let patched = client
        .patch(
            &format!("{other}/a"),
            "merge",
            &json!({"spec": {"length": 8}}),
        )
        .await
        .expect(200);
    assert_eq!(patched["spec"], json!({"length": 8}));
    let shown = client.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(shown["spec"], json!({"size": 8}));
    let made = client
        .create(
            &other,
            json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"length": 1}}),
        )
        .await;
    assert_eq!(made["spec"], json!({"length": 1}));
    let shown = client.get(&format!("{WIDGETS}/b")).await.expect(200);
    assert_eq!(shown["spec"], json!({"size": 1}));
    let list = client.get(&other).await.expect(200);
    assert_eq!(
        list["items"][0]["spec"],
        json!({"length": 8}),
        "lists are converted too"
    );

    hooks.script("/convert", [Script::http(500, "broken")]);
    let answer = client.get(&format!("{other}/a")).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("conversion webhook for example.com/v1, Kind=Widget failed"),
        "{message}"
    );
    // The storage version needs no conversion.
    client.get(&format!("{WIDGETS}/a")).await.expect(200);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn go_with_their_definition() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    for index in 0..5 {
        client
            .create(WIDGETS, widget(&format!("w{index}"), json!({})))
            .await;
    }
    let mut watch = client.watch(WIDGETS).await;
    let going = client
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .expect(200);
    assert_eq!(going["kind"], "CustomResourceDefinition");
    client
        .wait_until_gone(DEFINITIONS, "widgets.example.com")
        .await;
    assert_eq!(client.get(WIDGETS).await.code, 404);
    let mut deleted = 0;
    while deleted < 5 {
        let (kind, _) = watch.next().await;
        deleted += usize::from(kind == "DELETED");
    }
    // A later CustomResourceDefinition of the same name starts without objects.
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let list = client.get(WIDGETS).await.expect(200);
    assert_eq!(names(&list), Vec::<&str>::new());
    server.stop().await;
}

#[tokio::test]
async fn definitions_are_checked() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (change, part) in [
        (
            json!({"metadata": {"name": "wrong.example.com"}}),
            "metadata.name: Invalid value: \"wrong.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            json!({"spec": {"versions": []}}),
            "spec.versions: Invalid value",
        ),
        (
            json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true}]}}),
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            json!({"spec": {"versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"properties": {"spec": {}}}},
            }]}}),
            "openAPIV3Schema.type: Required value: must not be empty at the root",
        ),
        (
            json!({"spec": {"versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-validations": [{"rule": "self.nope"}]}},
            }]}}),
            "x-kubernetes-validations[0].rule: Invalid value",
        ),
    ] {
        let mut object = definition(json!([open_version("v1", true)]));
        let target = change.as_object().unwrap();
        for (key, value) in target {
            for (member, value) in value.as_object().unwrap() {
                object[key][member] = value.clone();
            }
        }
        let answer = client.post(DEFINITIONS, &object).await;
        let status = answer.json();
        let message = status["message"].as_str().unwrap();
        assert_eq!(answer.code, 422, "{message}");
        assert!(message.contains(part), "{message}\n  has not\n{part}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_definition_of_pod_presets_is_one() {
    let server = start().await;
    let definition = include_str!("../../../../examples/plugins/pod-presets.yaml");
    server.apply(definition).await.unwrap();
    let preset = "
apiVersion: settings.k8s.io/v1alpha1
kind: PodPreset
metadata: {name: database, namespace: default}
spec:
  selector: {matchLabels: {app: shop}}
  env: [{name: DATABASE, value: db.example.com}, {name: KEY, valueFrom: {secretKeyRef: {name: db, key: key}}}]
  volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]
  volumes: [{name: cache, emptyDir: {}}]
";
    let applied = server.apply(preset).await.unwrap();
    let spec = &applied.objects[0]["spec"];
    assert_eq!(spec["env"][1]["valueFrom"]["secretKeyRef"]["key"], "key");
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(spec["volumeMounts"][0]["readOnly"], true);
    let wrong = preset.replace("app: shop", "app: 7");
    assert_eq!(server.apply(&wrong).await.unwrap_err().status.code, 422);
    server.stop().await;
}

/// Nulls in a body are dropped, those of an applied configuration are validated.
#[tokio::test]
async fn applied_nulls_are_refused() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut version = open_version("v1", true);
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "nullable": true},
            "c": {"type": "string", "default": "x"},
        },
    }}});
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let path = format!("{widgets}/w?fieldManager=t&dryRun=All");
    client
        .patch(&path, "apply", &widget(json!({"a": null})))
        .await
        .refused(
            422,
            "Invalid",
            "Widget.example.com \"w\" is invalid: spec.a: Invalid value: \"null\": spec.a in body must \
             be of type integer: \"null\"",
        );
    let made = client
        .patch(&path, "apply", &widget(json!({"b": null, "c": null})))
        .await
        .expect(201);
    assert_eq!(made["spec"], json!({"b": null, "c": "x"}));
    let made = client.create(widgets, widget(json!({"a": null}))).await;
    assert_eq!(made["spec"], json!({"c": "x"}));
    server.stop().await;
}

/// Replicas at a path that the schema does not have are pruned.
#[tokio::test]
async fn scales_show_what_is_stored() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut version = open_version("v1", true);
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
    }});
    version["subresources"] = json!({"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"text": "a"}});
    client.create(widgets, widget).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 3}});
    for query in ["?dryRun=All", ""] {
        let path = format!("{widgets}/w/scale{query}");
        let scaled = client.put(&path, &scale).await.expect(200);
        assert_eq!(scaled["spec"], json!({}), "{query}");
    }
    let stored = client.get(&format!("{widgets}/w")).await.expect(200);
    assert_eq!(stored["spec"], json!({"text": "a"}));
    server.stop().await;
}
