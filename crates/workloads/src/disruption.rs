//! The status of PodDisruptionBudgets: the number of allowed disruptions.
//!
//! UPSTREAM: kubernetes pkg/controller/disruption/disruption.go

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::Author;
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, count, is_deleting, now, number, scaled, selects, set_condition, text,
};
use crate::pod;
use crate::queue::Next;

const AUTHOR: Author = Author::Controller {
    account: "disruption-controller",
    component: "controllermanager",
};
/// The time after which an evicted Pod that is not terminating counts as not disrupted.
const DELETION_TIMEOUT: i64 = 120;

/// Updates the status of a PodDisruptionBudget.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(budget) = context.cache.at(Kind::PodDisruptionBudget, path) else {
        return Ok(Next::Done);
    };
    let selector = budget.pointer("/spec/selector");
    let mut pods = context.cache.in_namespace(Kind::Pod, budget.namespace());
    pods.retain(|pod| selects(selector, pod) && !pod::is_finished(pod));
    let (expected, desired) = counts(context, &budget, &pods);
    let (disrupted, next) = disrupted(&budget, &pods);
    let healthy = pods.iter().filter(|pod| {
        pod::is_ready(pod) && !is_deleting(pod) && !disrupted.contains_key(pod.name())
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let mut conditions = crate::object::conditions(&budget);
    let (status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    set_condition(&mut conditions, "DisruptionAllowed", status, reason, "");
    for condition in &mut conditions {
        condition["observedGeneration"] = count(&budget, "/metadata/generation").into();
        if condition.get("message").is_none() {
            condition["message"] = "".into();
        }
    }
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": count(&budget, "/metadata/generation"),
        "conditions": conditions,
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    context.set_status(&AUTHOR, &budget, status).await?;
    Ok(next)
}

/// The number of expected Pods, and of healthy Pods required.
fn counts(context: &Context, budget: &Value, pods: &[Arc<Object>]) -> (i64, i64) {
    let many = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    if let Some(most) = budget.pointer("/spec/maxUnavailable") {
        let expected = expected(context, pods);
        let most = scaled(Some(most), expected, true).unwrap_or_default();
        return (expected, (expected - most).max(0));
    }
    match budget.pointer("/spec/minAvailable") {
        Some(Value::String(percent)) => {
            let expected = expected(context, pods);
            let least = scaled(Some(&percent.as_str().into()), expected, true);
            (expected, least.unwrap_or_default())
        }
        Some(least) => (many, least.as_i64().unwrap_or_default()),
        None => (many, 1),
    }
}

/// The total scale of the Pods' controllers.
fn expected(context: &Context, pods: &[Arc<Object>]) -> i64 {
    let mut sizes = BTreeMap::new();
    for pod in pods {
        if let Some((uid, size)) = size(context, pod) {
            sizes.insert(uid, size);
        }
    }
    sizes.values().sum()
}

/// The controller of a Pod with its scale, if it has one.
fn size(context: &Context, pod: &Object) -> Option<(String, i64)> {
    let owner = pod.controller()?;
    let kind = Kind::of_reference(text(owner, "/apiVersion"), text(owner, "/kind"))?;
    let owner = context
        .cache
        .get(kind, pod.namespace(), text(owner, "/name"))?;
    let of_deployment = owner
        .controller()
        .filter(|one| text(one, "/kind") == "Deployment");
    let deployment = of_deployment.and_then(|one| {
        context
            .cache
            .get(Kind::Deployment, pod.namespace(), text(one, "/name"))
    });
    let sized = deployment.unwrap_or(owner);
    let size = number(&sized, "/spec/replicas")?;
    Some((sized.uid().to_owned(), size))
}

/// The evicted Pods that are not terminating yet, and when the first entry expires.
fn disrupted(budget: &Value, pods: &[Arc<Object>]) -> (Map<String, Value>, Next) {
    let mut next = Next::Done;
    let known = budget
        .pointer("/status/disruptedPods")
        .and_then(Value::as_object);
    let mut kept = Map::new();
    for (name, since) in known.into_iter().flatten() {
        let pod = pods.iter().find(|pod| pod.name() == name);
        if pod.is_none_or(|pod| is_deleting(pod)) {
            continue;
        }
        let since_seconds = crate::object::time(since, "").unwrap_or_default();
        let left = since_seconds + DELETION_TIMEOUT - now();
        if left > 0 {
            next = next.or(Next::After(Duration::from_secs(left.unsigned_abs())));
            kept.insert(name.clone(), since.clone());
        }
    }
    (kept, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::now_text;

    #[test]
    fn an_eviction_is_remembered_while_the_pod_is_there() {
        let pod = Arc::new(Object {
            kind: Kind::Pod,
            key: "/core/pods/n/a".into(),
            created: 1,
            value: json!({"metadata": {"name": "a"}}),
        });
        let budget = json!({"status": {"disruptedPods": {
            "a": now_text(), "gone": now_text(), "b": "2000-01-01T00:00:00Z"}}});
        let (kept, next) = disrupted(&budget, &[pod]);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["a"]);
        assert!(matches!(next, Next::After(_)));
    }
}
