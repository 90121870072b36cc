//! Patches by rule, compared with a Go program that uses upstream's package.

use serde_json::{Value, json};

use crate::typed::type_of;

use super::{MAX_DEPTH, PatchErrorClass, patch};

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}, "finalizers": ["x/a", "x/b"]},
        "spec": {
            "containers": [{"name": "a", "image": "1", "resources": {}}, {"name": "b", "image": "2", "resources": {}}],
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
            "tolerations": [{"key": "k"}],
            "nodeSelector": {"x": "y"},
        },
    })
}

fn apply(change: &Value) -> Result<Value, String> {
    patch(&pod(), change, type_of("", "v1", "Pod").unwrap()).map_err(|error| error.message)
}

/// The value at `pointer` in the patched Pod.
fn patched(change: &Value, pointer: &str) -> Value {
    apply(change)
        .unwrap()
        .pointer(pointer)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn merges_maps_and_removes_nulls() {
    let change = json!({"metadata": {"labels": {"a": null, "c": "3"}, "annotations": {"x": null, "y": "z"}}});
    assert_eq!(
        patched(&change, "/metadata/labels"),
        json!({"b": "2", "c": "3"})
    );
    assert_eq!(patched(&change, "/metadata/annotations"), json!({"y": "z"}));
}

#[test]
fn merges_lists_by_key_and_replaces_others() {
    let change = json!({"spec": {"containers": [{"name": "b", "image": "3"}, {"name": "c"}], "tolerations": [{"key": "z"}]}});
    let containers = json!([
        {"name": "a", "image": "1", "resources": {}},
        {"name": "b", "image": "3", "resources": {}},
        {"name": "c"},
    ]);
    assert_eq!(patched(&change, "/spec/containers"), containers);
    assert_eq!(patched(&change, "/spec/tolerations"), json!([{"key": "z"}]));
}

#[test]
fn obeys_directives() {
    let names = |change: &Value| -> Vec<Value> {
        let list = patched(change, "/spec/containers");
        list.as_array()
            .unwrap()
            .iter()
            .map(|container| container["name"].clone())
            .collect()
    };
    assert_eq!(
        names(&json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}})),
        ["b"]
    );
    assert_eq!(
        names(&json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}})),
        ["z"]
    );
    assert_eq!(
        names(&json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}})),
        ["b", "a"]
    );
    assert_eq!(
        names(
            &json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c"}]}})
        ),
        ["c", "a", "b"]
    );
    let replaced = json!({"spec": {"nodeSelector": {"$patch": "replace", "q": "r"}}});
    assert_eq!(patched(&replaced, "/spec/nodeSelector"), json!({"q": "r"}));
    let gone = json!({"spec": {"nodeSelector": {"$patch": "delete"}}});
    assert_eq!(patched(&gone, "/spec/nodeSelector"), json!({}));
    let finalizers = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"], "finalizers": ["x/c"]}});
    assert_eq!(
        patched(&finalizers, "/metadata/finalizers"),
        json!(["x/c", "x/b"])
    );
    let volumes = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}});
    assert_eq!(
        patched(&volumes, "/spec/volumes"),
        json!([{"name": "v", "hostPath": {"path": "/"}}])
    );
}

#[test]
fn refuses_in_upstreams_words() {
    for (change, want) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"$patch": "x"}),
            "unknown patch type: x in map: map[$patch:x]",
        ),
        (
            json!({"spec": {"containers": ["a"]}}),
            "list element types are not identical: [[map[image:1 name:a resources:map[]] map[image:2 name:b resources:map[]]] [a]]",
        ),
        (
            json!({"spec": {"containers": [{"$patch": "merge"}]}}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"metadata": {"$retainKeys": "x"}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}),
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "x"}}),
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}}),
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ] {
        assert_eq!(apply(&change), Err(want.to_owned()), "{change}");
    }
    let ty = type_of("", "v1", "Pod").unwrap();
    let class = |change: Value| patch(&pod(), &change, ty).unwrap_err().class;
    assert_eq!(
        class(json!({"metadata": {"$retainKeys": 1}})),
        PatchErrorClass::BadRequest
    );
    assert_eq!(
        class(json!({"spec": {"containers": [{}]}})),
        PatchErrorClass::Other
    );
    assert_eq!(class(json!([])), PatchErrorClass::BadRequest);
}

#[test]
fn depth_is_bounded_where_types_are_recursive() {
    let ty = type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let schema = ty
        .field("spec")
        .unwrap()
        .ty()
        .field("versions")
        .unwrap()
        .ty()
        .element()
        .unwrap();
    let schema = schema
        .field("schema")
        .unwrap()
        .ty()
        .field("openAPIV3Schema")
        .unwrap()
        .ty();
    let nested = |levels: usize| {
        let mut value = json!({"type": "object"});
        for _ in 0..levels {
            value = json!({"not": value});
        }
        value
    };
    assert!(patch(&nested(100), &nested(100), schema).is_ok());
    let deep = nested(MAX_DEPTH + 10);
    let error = patch(&deep, &deep, schema).unwrap_err();
    assert!(error.message.contains("levels deep"), "{error}");
    let list = format!("{}{}", "[".repeat(9_000), "]".repeat(9_000));
    let document = lockgate_api::document::json::parse(list.as_bytes()).unwrap();
    let deep = crate::tree::from_document(document.root());
    let error = patch(&pod(), &deep, schema).unwrap_err();
    assert_eq!(error.message, "exceeded max depth");
    crate::tree::dismantle(deep);
}

#[test]
fn long_lists_stay_cheap() {
    let ty = type_of("", "v1", "Pod").unwrap();
    let list = |prefix: &str| -> Value {
        (0..20_000)
            .map(|number| format!("{prefix}{number}"))
            .collect()
    };
    let original = json!({"metadata": {"finalizers": list("a")}});
    let change =
        json!({"metadata": {"finalizers": list("b"), "$setElementOrder/finalizers": list("b")}});
    let merged = patch(&original, &change, ty).unwrap();
    assert_eq!(
        merged["metadata"]["finalizers"].as_array().unwrap().len(),
        40_000
    );
    let containers = |suffix: &str| -> Value {
        (0..5_000)
            .map(|number| json!({"name": format!("c{number}"), "image": suffix}))
            .collect()
    };
    let original = json!({"spec": {"containers": containers("a")}});
    let merged = patch(
        &original,
        &json!({"spec": {"containers": containers("b")}}),
        ty,
    )
    .unwrap();
    assert_eq!(merged["spec"]["containers"], containers("b"));
}
