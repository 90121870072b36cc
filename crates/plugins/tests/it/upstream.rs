//! Recorded results of upstream's plugins on generated Pods, from k8s.io/kubernetes v1.36.4.
//!
//! Every line is a request with the result of the Go code. LimitRanges contain one resource each, since the order of
//! several is that of a Go map.

use lockgate_go::quantity::Quantity;
use lockgate_plugins::lookup::{LIMIT_RANGES, Memory, NAMESPACES};
use lockgate_plugins::{LimitRanger, PodTolerationRestriction, ReadyMade};
use serde_json::{Value, json};

use crate::kit::{Asked, mutate, validate};

const RECORDED: &str = include_str!("upstream.jsonl");

/// Quantities in canonical form; `null` if empty.
fn canonical(resources: &Value) -> Value {
    let mut all = json!({});
    for part in ["requests", "limits"] {
        for (name, amount) in resources[part].as_object().into_iter().flatten() {
            let amount = Quantity::parse(amount.as_str().unwrap()).unwrap();
            all[part][name] = json!(amount.to_string());
        }
    }
    all
}

fn plugin(line: &Value) -> Box<dyn ReadyMade> {
    let memory = Memory::new();
    if line["plugin"] == "LimitRanger" {
        memory.put(LIMIT_RANGES, line["range"].clone());
        return Box::new(LimitRanger::new(memory));
    }
    memory.put(NAMESPACES, line["namespace"].clone());
    let config = serde_json::from_value(line["config"].clone()).unwrap();
    Box::new(PodTolerationRestriction::new(config, memory))
}

#[tokio::test]
async fn pods_fare_as_they_do_upstream() {
    let (mut changed, mut refused) = (0, 0);
    for (n, line) in RECORDED.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (plugin, want) = (plugin(&line), &line["want"]);
        let operation = if line["operation"] == "CREATE" {
            "CREATE"
        } else {
            "UPDATE"
        };
        let asked = Asked::new(operation, "pods", "Pod").object(line["pod"].clone());
        let asked = asked.old(json!({}));
        let message = |key: &str| {
            let text = want[key].as_str().unwrap();
            let text = text
                .strip_prefix("pods \"x\" is forbidden: ")
                .unwrap_or(text);
            (!text.is_empty()).then(|| text.to_owned())
        };
        let said = match mutate(&*plugin, &asked).await {
            Err((_, said)) => {
                assert_eq!(Some(said), message("admit"), "line {n}");
                refused += 1;
                continue;
            }
            Ok(pod) => pod,
        };
        assert_eq!(message("admit"), None, "line {n}");
        changed += usize::from(said != line["pod"]);
        if line["plugin"] == "LimitRanger" {
            let annotations = &said["metadata"]["annotations"];
            let annotation = annotations["kubernetes.io/limit-ranger"]
                .as_str()
                .unwrap_or("");
            assert_eq!(annotation, want["annotation"], "line {n}");
            let lists = ["containers", "initContainers"].map(|list| said["spec"][list].as_array());
            let got: Vec<Value> = lists
                .into_iter()
                .flatten()
                .flatten()
                .map(|container| canonical(&container["resources"]))
                .collect();
            let wanted = want["containers"].as_array().unwrap();
            let wanted: Vec<Value> = wanted.iter().map(canonical).collect();
            assert_eq!(got, wanted, "line {n}");
        } else {
            let got = said["spec"]
                .get("tolerations")
                .cloned()
                .unwrap_or_else(|| json!([]));
            assert_eq!(got, want["tolerations"], "line {n}");
        }
        let got = validate(&*plugin, &asked.object(said)).await;
        refused += usize::from(got.is_err());
        assert_eq!(
            got.err().map(|(_, said)| said),
            message("validate"),
            "line {n}"
        );
    }
    // The recording covers every kind of result.
    assert!(
        changed > 40 && refused > 40,
        "{changed} changed, {refused} refused"
    );
}
