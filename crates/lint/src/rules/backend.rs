//! Rules about the Service behind a webhook. They need its manifests.

use lockgate_api::meta::label_selector::LabelSelector;
use serde_json::Value as Json;

use super::{ERROR, NOTE, OFF, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::{Labels, Operation, Sender, Target};
use crate::resource::BUILTIN;
use crate::rule::{Reporter, Rule};
use crate::set::{Hook, Manifest, Set, labels_at};

/// The default port of `clientConfig.service`.
const DEFAULT_PORT: i64 = 443;

pub(super) static W012: Rule = Rule {
    id: "W012",
    title: "backend unavailable or not redundant",
    summary: "A webhook is as available as the Pods behind its Service. If the Service lacks the port, or its selector matches no \
              Pod, every call fails. With a single replica, every rollout and node drain is an outage.",
    advice: "Run at least two replicas on different nodes (topology spread constraint or Pod anti-affinity) with a \
             PodDisruptionBudget, behind a Service whose selector and port match.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: widgets}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: widgets}
spec:
  replicas: 1
  selector: {matchLabels: {app: webhook}}
  template:
    metadata: {labels: {app: webhook}}
    spec: {containers: [{name: webhook, image: example.com/webhook:1}]}
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: widgets}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: widgets}
spec:
  replicas: 2
  selector: {matchLabels: {app: webhook}}
  template:
    metadata: {labels: {app: webhook}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: webhook}}}
      containers: [{name: webhook, image: example.com/webhook:1}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: webhook, namespace: widgets}
spec: {minAvailable: 1, selector: {matchLabels: {app: webhook}}}
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        for hook in &context.set.hooks {
            let service = hook.service().and_then(|(namespace, name)| context.set.service(namespace, name));
            if let Some(service) = service {
                backend(context.set, hook, service, report);
            }
        }
    },
};

fn backend(set: &Set, hook: &Hook, service: &Manifest, report: &mut Reporter<'_>) {
    let Manifest {
        name, namespace, ..
    } = service;
    let port = hook
        .webhook
        .client_config
        .service
        .as_ref()
        .and_then(|service| service.port);
    let port = port.map_or(DEFAULT_PORT, i64::from);
    let ports: Vec<i64> = service
        .at("/spec/ports")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("port").and_then(Json::as_i64))
        .collect();
    if !ports.contains(&port) {
        let known: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let message = format!(
            "service `{namespace}/{name}` has no port {port}: its ports are {}",
            list(&known, 8)
        );
        report.graded(Grade::Higher, hook, "clientConfig.service", message);
    }
    let has_selector = !labels_at(&service.json, "/spec/selector").is_empty();
    if !has_selector || set.workloads(namespace).next().is_none() {
        return;
    }
    let backends = set.backends(service);
    if backends.is_empty() {
        let message = format!(
            "the selector of service `{namespace}/{name}` matches no workload in `{namespace}`"
        );
        report.graded(Grade::Higher, hook, "clientConfig.service", message);
        return;
    }
    for (workload, labels) in backends {
        let title = format!("{} `{namespace}/{}`", workload.kind, workload.name);
        if workload.kind == "DaemonSet" {
            continue;
        }
        let replicas = replicas(set, workload);
        if replicas < 2 {
            let grade = if hook.fails_closed() {
                Grade::Usual
            } else {
                Grade::Lower
            };
            let message = format!(
                "{title} runs {replicas} replica{}: every restart is an outage of the webhook",
                if replicas == 1 { "" } else { "s" }
            );
            report.graded(grade, hook, "clientConfig.service", message);
            continue;
        }
        if !hook.fails_closed() {
            continue;
        }
        let mut missing = Vec::new();
        if !has_budget(set, namespace, &labels) {
            missing.push(String::from("no PodDisruptionBudget"));
        }
        let pod = workload.at("/spec/template/spec");
        let spread = ["/topologySpreadConstraints", "/affinity/podAntiAffinity"];
        if spread.iter().all(|pointer| pod.pointer(pointer).is_none()) {
            missing.push(String::from(
                "neither topology spread constraints nor Pod anti-affinity",
            ));
        }
        if !missing.is_empty() {
            let message = format!(
                "{title} has {}: all replicas can be evicted at once",
                list(&missing, 2)
            );
            report.graded(Grade::Lower, hook, "clientConfig.service", message);
        }
    }
}

/// The minimum number of replicas: the autoscaler's minReplicas, or spec.replicas.
fn replicas(set: &Set, workload: &Manifest) -> i64 {
    let scaler = set
        .of_kind("autoscaling", "HorizontalPodAutoscaler")
        .find(|scaler| {
            scaler.namespace == workload.namespace
                && scaler.at("/spec/scaleTargetRef/kind") == workload.kind.as_str()
                && scaler.at("/spec/scaleTargetRef/name") == workload.name.as_str()
        });
    let of_scaler = scaler.and_then(|scaler| scaler.at("/spec/minReplicas").as_i64());
    let own = workload.at("/spec/replicas").as_i64();
    of_scaler.or(own).unwrap_or(1)
}

fn has_budget(set: &Set, namespace: &str, labels: &Labels) -> bool {
    set.of_kind("policy", "PodDisruptionBudget").any(|budget| {
        let selector = LabelSelector {
            match_labels: Some(labels_at(&budget.json, "/spec/selector/matchLabels")),
            match_expressions: None,
        };
        let has_expressions = budget.at("/spec/selector/matchExpressions").is_array();
        let selects = selector
            .compile()
            .is_ok_and(|selector| selector.matches(labels));
        budget.namespace == namespace && (has_expressions || selects)
    })
}

pub(super) static W041: Rule = Rule {
    id: "W041",
    title: "Service of the webhook does not exist",
    summary: "A webhook configuration left behind without its Service, for example after an uninstall, fails every matching request \
              and can keep namespaces in Terminating.",
    advice: "Delete the configuration, or correct the namespace and name of its Service.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhok}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: widgets}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: widgets}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
",
    captured: None,
    fix: None,
    levels: levels(ERROR, ERROR, ERROR),
    check: |context, report| {
        let set = context.set;
        for hook in &set.hooks {
            let Some((namespace, name)) = hook.service() else {
                continue;
            };
            // Without any Service in the namespace, its manifests are not part of the set.
            let mut services = set
                .of_kind("", "Service")
                .filter(|service| service.namespace == namespace);
            let names: Vec<&str> = services
                .by_ref()
                .map(|service| service.name.as_str())
                .collect();
            if names.is_empty() || names.contains(&name) {
                continue;
            }
            let nearest = names.iter().max_by(|a, b| {
                strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b))
            });
            let hint = nearest
                .map(|nearest| format!(" (did you mean `{nearest}`?)"))
                .unwrap_or_default();
            let grade = if hook.fails_closed() {
                Grade::Usual
            } else {
                Grade::Lower
            };
            let message = format!("no Service `{name}` in `{namespace}`{hint}");
            report.graded(grade, hook, "clientConfig.service", message);
        }
    },
};

pub(super) static W042: Rule = Rule {
    id: "W042",
    title: "configuration is applied before its backend",
    summary: "`kubectl apply` creates objects in file order. A webhook configuration that fails closed and precedes its backend \
              rejects the matching objects that follow, including its own Deployment.",
    advice: "Put the configuration last, apply it when the backend is ready, or let the backend register itself.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: workloads}
webhooks:
- name: workloads.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: hooks}
spec:
  selector: {matchLabels: {app: webhook}}
  template: {metadata: {labels: {app: webhook}}, spec: {containers: [{name: webhook, image: example.com/webhook:1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: hooks}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
",
    good: "
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: hooks}
spec:
  selector: {matchLabels: {app: webhook}}
  template: {metadata: {labels: {app: webhook}}, spec: {containers: [{name: webhook, image: example.com/webhook:1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: hooks}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: workloads}
webhooks:
- name: workloads.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, OFF),
    check: |context, report| {
        let set = context.set;
        for hook in set.hooks.iter().filter(|hook| hook.fails_closed() && !is_helm_hook(set, hook)) {
            let service = hook.service().and_then(|(namespace, name)| set.service(namespace, name));
            let Some(service) = service else {
                continue;
            };
            let backends = set.backends(service);
            let last = backends.iter().map(|(workload, _)| workload.object).max();
            if last.is_none_or(|last| last < hook.object) {
                continue;
            }
            let later = set.manifests.iter().filter(|manifest| manifest.object > hook.object);
            let Some(rejected) = later.into_iter().find(|manifest| matches_create(set, hook, manifest)) else {
                continue;
            };
            let message = format!(
                "{} `{}` comes later and matches: it is rejected until the backend of `{}/{}` is ready",
                rejected.kind, rejected.name, service.namespace, service.name
            );
            report.hook(hook, "", message);
        }
    },
};

fn is_helm_hook(set: &Set, hook: &Hook) -> bool {
    set.info(hook.object)
        .is_some_and(|info| info.annotations.contains_key("helm.sh/hook"))
}

fn matches_create(set: &Set, hook: &Hook, manifest: &Manifest) -> bool {
    let known = BUILTIN
        .iter()
        .find(|known| known.group == manifest.group && known.kind == manifest.kind);
    let Some(known) = known else {
        return false;
    };
    let namespace = if manifest.namespace.is_empty() {
        "default"
    } else {
        &manifest.namespace
    };
    let namespace_labels = set.namespace_labels(namespace);
    let labels = labels_at(&manifest.json, "/metadata/labels");
    let target = Target {
        sender: Sender::Controller,
        ..Target::of(
            known,
            Operation::Create,
            known.namespaced.then_some((namespace, &namespace_labels)),
        )
    };
    hook.matches(&target.labelled(&labels))
}
