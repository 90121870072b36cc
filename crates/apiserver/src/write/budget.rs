//! Disruption budgets in evictions.
//!
//! UPSTREAM: kubernetes pkg/registry/core/pod/storage/eviction.go

use std::sync::Arc;

use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::selector::Selector;
use lockgate_store::List;
use serde_json::{Value, json};

use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, budget_exhausted, forbidden, plain, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request, api_server};
use crate::write::Writer;
use crate::write::update::{Change, New};

/// The maximum number of disrupted Pods in a budget.
const DISRUPTED_MAX: usize = 2000;

/// Returns true if a Pod can be evicted regardless of its budget: it has not started, or has finished.
pub(super) fn can_ignore_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    matches!(phase, Some("Succeeded" | "Failed" | "Pending")) || metadata::is_deleting(pod)
}

fn number(object: &Value, member: &str) -> i64 {
    let found = object.get("status").and_then(|status| status.get(member));
    found.and_then(Value::as_i64).unwrap_or_default()
}

fn condition<'o>(object: &'o Value, of: &str) -> Option<&'o Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == of)
}

fn compile(selector: &Value) -> Option<Selector> {
    LabelSelector::read(selector)?.compile().ok()
}

/// The disruption budgets of a Pod.
async fn budgets(writer: &Writer, resource: &Arc<Resource>, pod: &Value) -> Outcome<Vec<Value>> {
    let prefix = writer
        .storage
        .prefix(resource, metadata::text(pod, "namespace"));
    let page = writer.storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    let labels = pod.pointer("/metadata/labels");
    let mut found = Vec::new();
    for entry in &page.entries {
        let budget = encoding::parse_entry(entry, resource.type_meta())?;
        let selector = budget.pointer("/spec/selector").and_then(compile);
        let selects = |selector: Selector| selector.matches_with(|key| labels?.get(key)?.as_str());
        if selector.is_some_and(selects) {
            found.push(budget);
        }
    }
    Ok(found)
}

/// Charges the eviction of a Pod to its budget, if any.
pub(super) async fn charge(writer: &Writer, pod: &Value, dry_run: bool) -> Outcome<()> {
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find("policy", "v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let budgets = budgets(writer, resource, pod).await?;
    let budget = match &budgets[..] {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                           subresource does not support.";
            return Err(plain(message));
        }
    };
    let is_ready = condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
    if !is_ready {
        let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy");
        let (healthy, desired) = (
            number(budget, "currentHealthy"),
            number(budget, "desiredHealthy"),
        );
        let always = policy.and_then(Value::as_str) == Some("AlwaysAllow");
        if always || healthy >= desired && desired > 0 {
            return Ok(());
        }
    }
    if dry_run {
        return decrement(budget, metadata::text(pod, "name")).map(drop);
    }
    let path = ObjectPath {
        resource,
        namespace: metadata::text(budget, "namespace"),
        name: metadata::text(budget, "name"),
        subresource: "status",
    };
    let request = Request::internal(api_server(), Verb::Update, path);
    let options = WriteOptions::of_program("kube-apiserver");
    let charged = Change::new(writer, &request, &options).apply(|stored| {
        let stored = stored.unwrap_or(budget);
        Ok(New::Object(decrement(stored, metadata::text(pod, "name"))?))
    });
    match charged.await {
        // A budget that was deleted concurrently no longer applies.
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// The budget after an eviction, or the error if it is exhausted.
fn decrement(budget: &Value, pod: &str) -> Result<Value, Failure> {
    let name = metadata::text(budget, "name");
    if number(budget, "observedGeneration") < metadata::number(budget, "generation").unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(budget_exhausted(&why, 10));
    }
    let refused = |why: &str| Err(forbidden("policy", "poddisruptionbudget", name, why));
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return refused("pdb disruptions allowed is negative");
    }
    let disrupted = budget.pointer("/status/disruptedPods");
    if disrupted
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
        > DISRUPTED_MAX
    {
        return refused(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(budget_exhausted(&exhausted(budget, name), 0));
    }
    let mut changed = budget.clone();
    let status = &mut changed["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    let now = metadata::now().to_string();
    status["disruptedPods"][pod] = now.as_str().into();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let allows = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "DisruptionAllowed");
    if let Some(condition) = allows.filter(|_| allowed == 1) {
        condition["status"] = "False".into();
        condition["reason"] = "InsufficientPods".into();
        condition["lastTransitionTime"] = now.into();
    }
    Ok(changed)
}

fn exhausted(budget: &Value, name: &str) -> String {
    let found = condition(budget, "DisruptionAllowed").filter(|one| one["status"] == "False");
    let text = |member: &str| {
        let text = found.and_then(|one| one.get(member)?.as_str());
        text.unwrap_or_default()
    };
    let (reason, message) = (text("reason"), text("message"));
    let (healthy, desired) = (
        number(budget, "currentHealthy"),
        number(budget, "desiredHealthy"),
    );
    if !message.is_empty() && reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    if healthy <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
    }
    if !message.is_empty() {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        );
    }
    format!("The disruption budget {name} does not allow evicting pods currently")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(failure: &Failure) -> String {
        let details = failure.0.details.as_ref().unwrap();
        details.causes.as_ref().unwrap()[0].message.clone()
    }

    #[test]
    fn a_budget_is_charged_until_it_is_exhausted() {
        let budget = json!({
            "metadata": {"name": "web", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3,
                "desiredHealthy": 2, "conditions": [{"type": "DisruptionAllowed", "status": "True"}]},
        });
        let charged = decrement(&budget, "a").unwrap();
        assert_eq!(charged["status"]["disruptionsAllowed"], 0);
        assert!(charged["status"]["disruptedPods"]["a"].is_string());
        assert_eq!(charged["status"]["conditions"][0]["status"], "False");
        let mut exhausted = charged;
        exhausted["status"]["currentHealthy"] = 2.into();
        let failure = decrement(&exhausted, "b").unwrap_err();
        assert_eq!(failure.0.code, 429);
        assert_eq!(
            cause(&failure),
            "The disruption budget web needs 2 healthy pods and has 2 currently"
        );
    }

    #[test]
    fn a_budget_that_nobody_counted_allows_nothing() {
        let budget = json!({"metadata": {"name": "web", "generation": 1}, "status": {}});
        let failure = decrement(&budget, "a").unwrap_err();
        assert_eq!(
            cause(&failure),
            "The disruption budget web is still being processed by the server."
        );
        assert_eq!(failure.0.details.unwrap().retry_after_seconds, 10);
    }
}
