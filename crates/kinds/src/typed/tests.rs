//! Decoding of values by kind, compared with a Go program that uses upstream's decoder.

use serde_json::{Value, json};

use lockgate_api::document::json::parse;

use super::data::Shape;
use super::tables::{STRUCTS, TYPES};
use super::*;

/// Decodes a value; errors are compared by message.
fn decode(kind: &str, text: &str) -> Result<Decoded, String> {
    let (group, version, kind) = match kind.split('/').collect::<Vec<_>>()[..] {
        [group, version, kind] => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => ("", "v1", kind),
    };
    let ty = type_of(group, version, kind).unwrap();
    let document = parse(text.as_bytes()).unwrap();
    let decoded = ty.decode(document.root());
    // Without duplicate fields, a JSON value is decoded like the document.
    if let Ok(decoded) = &decoded {
        let again = ty.decode_value(&decoded.value).unwrap();
        assert_eq!(again.value, decoded.value);
        assert_eq!(again.findings, Vec::<String>::new());
    }
    decoded.map_err(|error| error.to_string())
}

fn value(kind: &str, text: &str) -> Value {
    decode(kind, text).unwrap().value
}

#[test]
fn writes_what_go_writes_for_an_empty_object() {
    assert_eq!(
        value("Pod", "{}"),
        json!({"metadata": {}, "spec": {"containers": null}, "status": {}})
    );
    assert_eq!(value("ConfigMap", "{}"), json!({"metadata": {}}));
    assert_eq!(
        value("rbac.authorization.k8s.io/v1/ClusterRole", "{}"),
        json!({"metadata": {}, "rules": null})
    );
}

#[test]
fn drops_zero_values_that_go_omits() {
    let pod = value(
        "Pod",
        r#"{"metadata":{"name":"","labels":{}},"spec":{"containers":[{"name":"a","env":[{"name":"E","value":""}],
            "ports":[],"stdin":false}],"hostNetwork":false,"terminationGracePeriodSeconds":0},"status":null}"#,
    );
    assert_eq!(
        pod,
        json!({"metadata": {}, "spec": {"containers": [{"name": "a", "env": [{"name": "E"}], "resources": {}}],
            "terminationGracePeriodSeconds": 0}, "status": {}})
    );
}

#[test]
fn writes_scalars_in_their_canonical_form() {
    let pod = value(
        "Pod",
        r#"{"metadata":{"creationTimestamp":"2024-01-02T03:04:05.9+02:00"},
            "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":0.5,"memory":"1024Ki"}},
            "livenessProbe":{"httpGet":{"port":"x"}},"readinessProbe":{"tcpSocket":{"port":80}}}]}}"#,
    );
    assert_eq!(pod["metadata"]["creationTimestamp"], "2024-01-02T01:04:05Z");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"]["limits"],
        json!({"cpu": "500m", "memory": "1Mi"})
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["port"], "x");
    assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], 80);
    let secret = value("Secret", r#"{"data":{"a":"aGk=","b":null,"c":[104,105]}}"#);
    assert_eq!(secret["data"], json!({"a": "aGk=", "b": null, "c": "aGk="}));
}

#[test]
fn names_unknown_and_repeated_members() {
    let decoded = decode(
        "Pod",
        r#"{"spec":{"bar":1,"containers":[{"name":"a","foo":2},{"name":"b","name":"c"}],"bar":3},
            "metadata":{"labels":{"a.b":"1","a.b":"2"}},"Kind":"x"}"#,
    )
    .unwrap();
    assert_eq!(
        decoded.findings,
        [
            r#"unknown field "spec.bar""#,
            r#"unknown field "spec.containers[0].foo""#,
            r#"duplicate field "spec.containers[1].name""#,
            r#"duplicate field "metadata.labels.a.b""#,
            r#"unknown field "Kind""#,
        ]
    );
    assert_eq!(decoded.value["spec"]["containers"][1]["name"], "c");
    assert_eq!(decoded.value["metadata"]["labels"]["a.b"], "2");
}

#[test]
fn keeps_at_most_a_hundred_findings() {
    let members: Vec<_> = (0..300).map(|number| format!("\"x{number}\":1")).collect();
    let decoded = decode("Pod", &format!("{{{}}}", members.join(","))).unwrap();
    assert_eq!(decoded.findings.len(), MAX_FINDINGS);
}

#[test]
fn reads_a_repeated_member_over_the_earlier_one() {
    let pod = value(
        "Pod",
        r#"{"metadata":{"name":"a","labels":{"x":"1"}},"metadata":{"namespace":"n","labels":{"y":"2"}},
            "spec":{"containers":[{"name":"a"},{"name":"b"}],"containers":[{"image":"i"}]}}"#,
    );
    assert_eq!(
        pod["metadata"],
        json!({"name": "a", "namespace": "n", "labels": {"x": "1", "y": "2"}})
    );
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "a", "image": "i", "resources": {}}])
    );
}

#[test]
fn reports_values_of_the_wrong_type_in_upstreams_words() {
    for (kind, text, want) in [
        (
            "Pod",
            r#"{"metadata":{"name":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            "Pod",
            r#"{"kind":1}"#,
            "json: cannot unmarshal number into Go struct field Pod.TypeMeta.kind of type string",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":{}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":["a"]}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"volumes":[{"emptyDir":{"medium":true}}]}}"#,
            "json: cannot unmarshal bool into Go struct field EmptyDirVolumeSource.spec.volumes.VolumeSource.emptyDir.medium of type v1.StorageMedium",
        ),
        (
            "ConfigMap",
            r#"{"data":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "Secret",
            r#"{"data":{"a":"%"}}"#,
            "illegal base64 data at input byte 0",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":"x"},"metadata":{"creationTimestamp":"x"}}"#,
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#,
            "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            "Pod",
            "[]",
            "json: cannot unmarshal array into Go value of type v1.Pod",
        ),
    ] {
        assert_eq!(decode(kind, text), Err(want.to_owned()), "{text}");
    }
}

#[test]
fn reads_schemas_with_a_reader_of_their_own() {
    let crd = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let wrap = |schema: &str| {
        format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#)
    };
    let schema = |text: &str| {
        decode(crd, &wrap(text)).map(|decoded| {
            (
                decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone(),
                decoded.findings,
            )
        })
    };
    let (value, findings) = schema(
        r#"{"items":{"type":"string","x":1},"additionalProperties":true,"dependencies":{"a":["b"],"c":[]},
            "properties":{"p":{"default":{"z":1.5},"y":1}},"minimum":1}"#,
    )
    .unwrap();
    assert_eq!(
        value,
        json!({"items": {"type": "string"}, "additionalProperties": true,
            "dependencies": {"a": ["b"], "c": null},
            "properties": {"p": {"default": {"z": 1.5}}}, "minimum": 1})
    );
    let at = "spec.versions[0].schema.openAPIV3Schema";
    assert_eq!(
        findings,
        [format!(r#"unknown field "{at}.properties.p.y""#)]
    );
    for neither in [r#""a""#, "1", "true", "[]"] {
        let (value, findings) = schema(&format!(r#"{{"items":{neither},"minimum":1}}"#)).unwrap();
        assert_eq!(
            (value, findings),
            (json!({"minimum": 1}), vec![]),
            "{neither}"
        );
    }
    assert_eq!(
        schema(r#"{"additionalProperties":1}"#),
        Err("boolean or JSON schema expected".to_owned())
    );
    assert_eq!(
        schema(r#"{"items":{"externalDocs":{"url":1}}}"#),
        Err("json: cannot unmarshal number into Go struct field \
             JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.externalDocs.url of type string"
            .to_owned())
    );
}

#[test]
fn a_pointer_to_nothing_is_written_as_null() {
    let ty = type_of("", "v1", "Pod").unwrap();
    let text = br#"{"metadata":{"deletionTimestamp":"0001-01-01T00:00:00Z","creationTimestamp":"0001-01-01T00:00:00Z"}}"#;
    let document = parse(text).unwrap();
    let decoded = ty.decode(document.root()).unwrap();
    assert_eq!(
        decoded.value["metadata"],
        json!({"deletionTimestamp": null})
    );
}

#[test]
fn depth_costs_no_stack() {
    let deep = |open: &str, close: &str, inner: &str, levels: usize| {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    let too_deep = Err(String::from("exceeded max depth"));
    let crd = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let schema = |levels| {
        let schema = deep(r#"{"items":"#, "}", "{}", levels);
        format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#)
    };
    assert_eq!(decode(crd, &schema(9_000)), too_deep);
    assert!(decode(crd, &schema(200)).is_ok());
    let raw = |levels| format!(r#"{{"data":{}}}"#, deep("[", "]", "", levels));
    assert_eq!(decode("apps/v1/ControllerRevision", &raw(9_000)), too_deep);
    assert!(decode("apps/v1/ControllerRevision", &raw(400)).is_ok());
    // Values that are not kept may be as deep as a document.
    let unknown = format!(r#"{{"unknown":{}}}"#, deep("[", "]", "", 9_000));
    assert_eq!(decode("Pod", &unknown).unwrap().findings.len(), 1);
}

#[test]
fn repeated_findings_far_down_stay_cheap() {
    let levels = 200;
    let inner = format!(
        r#"{{"properties":{{{}"z":{{}}}}}}"#,
        r#""a":{"q":1},"#.repeat(20_000)
    );
    let schema = format!(
        "{}{inner}{}",
        r#"{"properties":{"a":"#.repeat(levels),
        "}}".repeat(levels)
    );
    let text =
        format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
    let ty = type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let document = parse(text.as_bytes()).unwrap();
    let decoded = ty.decode(document.root()).unwrap();
    assert_eq!(decoded.findings.len(), 2);
    crate::tree::dismantle(decoded.value);
}

#[test]
fn options_are_found_in_every_group() {
    let options = type_of("meta.k8s.io", "v1", "DeleteOptions");
    assert!(options.is_some());
    assert_eq!(type_of("", "v1", "DeleteOptions"), options);
    assert_eq!(type_of("apps", "v1", "DeleteOptions"), options);
    assert_eq!(type_of("", "v1", "Nothing"), None);
    for (group, version, kind) in [
        ("autoscaling", "v1", "Scale"),
        ("policy", "v1", "Eviction"),
        ("policy", "v1beta1", "Eviction"),
        ("", "v1", "Binding"),
        ("", "v1", "PodExecOptions"),
        ("", "v1", "Status"),
        ("authentication.k8s.io", "v1", "TokenRequest"),
        ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
        ("admission.k8s.io", "v1", "AdmissionReview"),
        (
            "admissionregistration.k8s.io",
            "v1beta1",
            "MutatingWebhookConfiguration",
        ),
    ] {
        assert!(type_of(group, version, kind).is_some(), "{kind}");
    }
}

#[test]
fn every_resource_has_a_type() {
    for resource in crate::resource::resources() {
        let ty = type_of(resource.group, resource.version, resource.kind).unwrap();
        assert_eq!(ty.form(), Form::Struct);
        for part in resource.subresources {
            assert!(
                type_of(part.group, part.version, part.kind).is_some(),
                "{part:?}"
            );
        }
    }
}

#[test]
fn fields_carry_their_rules() {
    let pod = type_of("", "v1", "Pod").unwrap();
    let spec = pod.field("spec").unwrap().ty();
    let containers = spec.field("containers").unwrap();
    assert_eq!(containers.patch_merge_key(), "name");
    assert_eq!(containers.list_type(), "map");
    assert_eq!(containers.list_map_keys(), ["name"]);
    assert_eq!(
        (
            containers.protobuf_number(),
            containers.protobuf_wire_type()
        ),
        (2, 2)
    );
    assert!(!containers.omits_empty());
    let volume = spec.field("volumes").unwrap();
    assert_eq!(
        volume.patch_strategies().collect::<Vec<_>>(),
        ["merge", "retainKeys"]
    );
    let empty_dir = volume.ty().element().unwrap().field("emptyDir").unwrap();
    assert!(empty_dir.is_pointer());
    assert_eq!(
        empty_dir.embedded_in().collect::<Vec<_>>(),
        [("VolumeSource", 2)]
    );
    assert!(spec.fields().len() > 30);
}

#[test]
fn tables_hold_together() {
    for (at, (name, shape)) in TYPES.iter().enumerate() {
        let inside = match *shape {
            Shape::Pointer(target) => {
                assert!(!matches!(Type(target).shape(), Shape::Pointer(_)), "{name}");
                target
            }
            Shape::List(target) | Shape::Map(target) => target,
            _ => 0,
        };
        assert!(usize::from(inside) < TYPES.len(), "{at}");
    }
    for row in &STRUCTS {
        let fields = struct_fields(row);
        // The decoder marks fields in a 128-bit set.
        assert!(fields.len() <= 128, "{}", row.0);
        assert!(fields.is_sorted_by_key(|field| field.0));
        // Embedded structs nest at most twice.
        for field in fields {
            assert!(embeds(row, field).count() <= 2);
        }
    }
}
