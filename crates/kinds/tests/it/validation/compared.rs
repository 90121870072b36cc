//! Regression tests of writes whose results differed from upstream's strategies.

use serde_json::{Value, json};

use super::write::{End, in_context, run};

const NOW: &str = "2025-10-09T08:53:20Z";

fn end(case: Value) -> End {
    in_context(|context| run(&case, context))
}

/// The causes of a rejection, as `field: message`.
fn causes(case: Value) -> Vec<String> {
    match end(case) {
        End::Refused(causes) => causes
            .into_iter()
            .map(|[_, field, message]| format!("{field}: {message}"))
            .collect(),
        other => vec![format!("{other:?}")],
    }
}

fn stored(case: Value) -> Option<Value> {
    match end(case) {
        End::Stored(object, _) => Some(object),
        End::Malformed(_) | End::Refused(_) => None,
    }
}

fn slice(taint: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com", "allNodes": true, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "a", "taints": [taint]}]}})
}

#[test]
fn taints_of_devices_tell_since_when() {
    let given = "2025-01-01T00:00:00Z";
    for (taint, since) in [
        (json!({"key": "a", "effect": "NoSchedule"}), NOW),
        (
            json!({"key": "a", "effect": "NoSchedule", "timeAdded": null}),
            NOW,
        ),
        (
            json!({"key": "a", "effect": "NoSchedule", "timeAdded": given}),
            given,
        ),
    ] {
        let case = json!({"op": "create", "kind": "ResourceSlice", "object": slice(taint)});
        let object = stored(case).unwrap();
        assert_eq!(
            object["spec"]["devices"][0]["taints"][0]["timeAdded"],
            since
        );
    }
}

#[test]
fn classes_of_devices_keep_their_names() {
    let class = |metadata: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": {}});
    let required = "metadata.name: Required value: name or generateName is required";
    let fixed = "metadata.name: Invalid value: \"\": field is immutable";
    let generated = "metadata.name: Internal error: generateName was specified (\"x\"), but no name was generated";
    for (metadata, wanted) in [
        (
            json!({"generateName": "x"}),
            vec![required, fixed, generated, required, fixed],
        ),
        (json!({}), vec![required, fixed, required, fixed]),
    ] {
        let case = json!({"op": "update", "kind": "DeviceClass", "object": class(metadata), "old": class(json!({"name": "c"}))});
        assert_eq!(causes(case), wanted);
    }
}

#[test]
fn printed_templates_have_pointers_to_zero() {
    let template = |metadata: Value, config: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "default"},
            "spec": {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "a"}}], "config": config}}}})
    };
    for (metadata, printed) in [
        (
            json!({"deletionGracePeriodSeconds": 0}),
            r#"{"deletionGracePeriodSeconds":0,"Spec":"#,
        ),
        (
            json!({"deletionGracePeriodSeconds": 5}),
            r#"{"deletionGracePeriodSeconds":5,"Spec":"#,
        ),
        (json!({"generation": 0, "labels": {}}), r#"{"Spec":"#),
    ] {
        let config = json!([{"requests": ["g"], "opaque": {"driver": "x", "parameters": {}}}]);
        let case = json!({"op": "update", "kind": "ResourceClaimTemplate", "namespace": "default",
            "object": template(metadata.clone(), config), "old": template(metadata, json!([]))});
        let causes = causes(case);
        let found = causes
            .iter()
            .any(|cause| cause.starts_with(&format!("spec: Invalid value: {printed}")));
        assert!(found, "{causes:?}");
    }
}

#[test]
fn services_keep_addresses_that_are_none() {
    let service = |addresses: &[&str]| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}, "spec": {
            "clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80}]}})
    };
    let one_family = |shown: &str| {
        format!(
            "spec.clusterIPs: Invalid value: {shown}: may specify no more than one IP for each IP family"
        )
    };
    for (addresses, wanted) in [
        (
            ["10.96.0.10", "*"],
            vec![
                String::from(
                    "spec.clusterIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: *",
                ),
                one_family(r#"["10.96.0.10","*"]"#),
            ],
        ),
        (
            ["10.96.0.10", "10.96.0.11"],
            vec![one_family(r#"["10.96.0.10","10.96.0.11"]"#)],
        ),
    ] {
        let case = json!({"op": "update", "kind": "Service", "namespace": "default",
            "object": service(&addresses), "old": service(&addresses)});
        assert_eq!(causes(case), wanted);
    }
}

#[test]
fn jobs_without_labels_have_those_of_their_template() {
    let generated = [
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
    ];
    let job = |labels: Value, of_template: Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": labels}, "spec": {
            "template": {"metadata": {"labels": of_template}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    let (none, given) = (Value::Null, json!({"a": "b"}));
    for (labels, of_template, wanted, has_generated) in [
        (&none, &none, vec![], true),
        (&none, &given, vec!["a"], true),
        (&json!({}), &given, vec!["a"], true),
        // Equal labels in a separate map are unchanged.
        (&given, &given, vec!["a"], false),
        (&json!({"c": "d"}), &given, vec!["c"], false),
    ] {
        let case = json!({"op": "create", "kind": "Job", "namespace": "default", "object": job(labels.clone(), of_template.clone())});
        let object = stored(case).unwrap();
        let labels = object["metadata"]["labels"].as_object().unwrap();
        let mut expected = wanted;
        if has_generated {
            expected.extend(generated);
        }
        let found: Vec<&str> = labels.keys().map(String::as_str).collect();
        expected.sort_unstable();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected, "{labels:?} {of_template}");
        let template = object["spec"]["template"]["metadata"]["labels"].as_object();
        assert!(
            generated
                .iter()
                .all(|key| template.unwrap().contains_key(*key))
        );
    }
}

#[test]
fn an_empty_completion_mode_is_not_that_without_indexes() {
    let fields = |mode: &str| -> Vec<String> {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
            "completions": 4, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2, "completionMode": mode,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        let case = json!({"op": "create", "kind": "Job", "namespace": "default", "object": job});
        let causes = causes(case);
        let field = |cause: &String| cause.split(':').next().unwrap_or_default().to_owned();
        causes.iter().map(field).collect()
    };
    let by_index = ["spec.backoffLimitPerIndex", "spec.maxFailedIndexes"];
    assert_eq!(fields("NonIndexed"), by_index);
    assert_eq!(fields(""), ["spec.completionMode"]);
}

#[test]
fn an_empty_range_was_in_no_policy_without_blocks() {
    let policy = |peer: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
            "spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}})
    };
    let old = policy(json!({"podSelector": {}}));
    let new = policy(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": [""]}}));
    let case = json!({"op": "update", "kind": "NetworkPolicy", "namespace": "default", "object": new, "old": old});
    assert_eq!(
        causes(case),
        [
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"\": must be a valid CIDR value, \
             (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        ]
    );
}
