//! Evaluates CEL on recorded requests.

use std::sync::Arc;

use lockgate_api::access::{Authorizer, User};
use lockgate_api::document::json as document;
use lockgate_api::registration::policy::{Policy, Registered, decode_policy};
use lockgate_cel::admission::{Composition, Request, Variables, compile_expression};
use lockgate_cel::eval::{
    Evaluation, Limits, Named, Program, Recorded, RecordedOutcome, Recording, evaluate_recorded,
};
use lockgate_cel::ext::authorizer::AuthorizerValue;
use lockgate_cel::program::CompileError;
use serde::Deserialize;
use serde_json::{Value, json};

/// The maximum number of displayed evaluation steps.
const MAX_STEPS: usize = 500;

/// A request of the page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvaluationRequest {
    /// The number of the request.
    pub(crate) request: u64,
    pub(crate) expression: String,
    /// Evaluates as a policy does, not as a match condition.
    #[serde(default)]
    pub(crate) as_policy: bool,
    /// The policy whose variables are defined.
    #[serde(default)]
    pub(crate) policy: String,
    /// The variable `params` of a policy.
    #[serde(default)]
    pub(crate) params: Value,
    /// Uses the object of the validating phase, not the original one.
    #[serde(default)]
    pub(crate) final_object: bool,
}

/// The cluster state for an evaluation.
pub(crate) struct ClusterState {
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The current namespace of the request.
    pub(crate) namespace: Option<Value>,
    /// The policy.
    pub(crate) policy: Option<Value>,
}

/// Evaluates an expression on a record.
pub(crate) fn evaluate_request(
    eval_request: &EvaluationRequest,
    record: &Value,
    cluster: &ClusterState,
) -> Value {
    let request = &record["request"];
    let facts = Request::from_json(request);
    let variable = facts.to_json();
    let user = User {
        name: facts.username.clone(),
        uid: facts.user_uid.clone(),
        groups: facts.groups.clone(),
        extra: facts.extra.clone(),
    };
    let authorizer = AuthorizerValue::new(Arc::new(user), Arc::clone(&cluster.authorizer));
    let object = if eval_request.final_object {
        "finalObject"
    } else {
        "object"
    };
    let present = |name: &str| record.get(name).filter(|value| !value.is_null());
    let variables = Variables::new(&variable)
        .object(present(object))
        .old_object(present("oldObject"))
        .authorizer(authorizer, &facts);
    let expression = eval_request.expression.as_str();
    if !eval_request.as_policy {
        return match compile_expression(expression) {
            Err(error) => refused(expression, &error),
            Ok(program) => {
                let done = evaluate_recorded(&program, variables.inputs(), Limits::default());
                evaluation_json(expression, &program, done, 0)
            }
        };
    }
    let policy = cluster.policy.as_ref().and_then(decode);
    let has_params = policy
        .as_ref()
        .is_some_and(|policy| policy.param_kind.is_some());
    let named = policy
        .iter()
        .flat_map(|policy| policy.variables.iter().flatten());
    let composition = Composition::compile(
        has_params || !eval_request.params.is_null(),
        named.map(|variable| (variable.name.as_str(), variable.expression.as_str())),
    );
    let program = match composition.compile_expression(expression, None) {
        Ok(program) => program,
        Err(error) => return refused(expression, &error),
    };
    let params = Some(&eval_request.params).filter(|params| !params.is_null());
    let inputs = variables.policy_inputs(cluster.namespace.as_ref(), params);
    let named = composition.named();
    let named = Named::new(&named, &inputs, Limits::default());
    let done = named.evaluate_recorded(&program);
    let cost = named.take_cost();
    evaluation_json(expression, &program, done, cost)
}

fn decode(policy: &Value) -> Option<Policy> {
    let text = policy.to_string();
    let parsed = document::parse(text.as_bytes()).ok()?;
    let (version, kind) = (policy["apiVersion"].as_str()?, policy["kind"].as_str()?);
    match Registered::identify(version, kind)? {
        Registered::Policy(kind) => Some(decode_policy(parsed.root(), kind).ok()?.value),
        Registered::Binding(_) => None,
    }
}

/// Converts a byte offset to an offset in UTF-16 units, as JavaScript uses.
fn place(text: &str, byte: u32) -> usize {
    let before = text.get(..byte as usize).unwrap_or(text);
    before.encode_utf16().count()
}

fn refused(expression: &str, error: &CompileError) -> Value {
    let issues = match error {
        CompileError::Issues { issues, .. } => issues
            .iter()
            .map(|issue| json!({"at": issue.offset.map(|at| place(expression, at)), "message": issue.message}))
            .collect(),
        other => vec![json!({"at": null, "message": other.to_string()})],
    };
    json!({ "issues": issues })
}

fn evaluation_json(
    expression: &str,
    program: &Program,
    (evaluation, recording): (Evaluation<'_>, Recording),
    more: u64,
) -> Value {
    let step = |step: &Recorded| {
        let (name, text) = match &step.outcome {
            RecordedOutcome::Value(value) => ("value", value),
            RecordedOutcome::Error(error) => ("error", error),
        };
        json!({
            "start": place(expression, step.span.start),
            "end": place(expression, step.span.end),
            "depth": step.depth,
            "text": step.span.of(expression),
            "cost": step.cost,
            name: text,
        })
    };
    let steps = recording.steps.iter().take(MAX_STEPS).map(step);
    let steps: Vec<Value> = steps.collect();
    let omitted = recording.omitted + (recording.steps.len() - steps.len()) as u64;
    let mut told = json!({
        "type": program.output_type().to_string(),
        "cost": evaluation.cost.saturating_add(more),
        "steps": steps,
        "omitted": omitted,
    });
    match evaluation.value {
        Ok(value) => told["value"] = json!(value.to_string()),
        Err(error) => told["error"] = json!(error.to_string()),
    }
    told
}

#[cfg(test)]
mod tests {
    use lockgate_api::access::FixedAuthorizer;

    use super::*;

    fn ask(eval_request: Value, policy: Option<Value>) -> Value {
        let record = json!({
            "request": {"operation": "CREATE", "namespace": "shop", "userInfo": {"username": "ann"}, "resource": {"resource": "pods"}},
            "object": {"spec": {"replicas": 3}, "metadata": {"name": "é"}},
            "finalObject": {"spec": {"replicas": 4}},
        });
        let cluster = ClusterState {
            authorizer: Arc::new(FixedAuthorizer::AllowAll),
            namespace: Some(json!({"metadata": {"labels": {"team": "a"}}})),
            policy,
        };
        evaluate_request(
            &serde_json::from_value(eval_request).unwrap(),
            &record,
            &cluster,
        )
    }

    #[test]
    fn evaluates_as_a_match_condition() {
        let told = ask(
            json!({"request": 1, "expression": "object.spec.replicas > 2 && request.userInfo.username == 'ann'"}),
            None,
        );
        assert_eq!(
            (&told["value"], &told["type"]),
            (&json!("true"), &json!("bool"))
        );
        let steps = told["steps"].as_array().unwrap();
        let found = steps
            .iter()
            .find(|step| step["text"] == "object.spec.replicas");
        assert_eq!(found.unwrap()["value"], "3");
        let told = ask(
            json!({"request": 1, "expression": "object.spec.replicas", "finalObject": true}),
            None,
        );
        assert_eq!(told["value"], "4");
        let told = ask(
            json!({"request": 1, "expression": "namespaceObject.metadata.name"}),
            None,
        );
        assert!(told["error"].is_string(), "{told}");
    }

    #[test]
    fn evaluates_with_the_variables_of_a_policy() {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "variables": [{"name": "n", "expression": "object.spec.replicas"}], "validations": []}
        });
        let expression =
            "variables.n <= params.limit && namespaceObject.metadata.labels.team == 'a'";
        let told = ask(
            json!({"request": 1, "asPolicy": true, "policy": "p", "params": {"limit": 2}, "expression": expression}),
            Some(policy),
        );
        assert_eq!(told["value"], "false", "{told}");
        let told = ask(
            json!({"request": 1, "asPolicy": true, "expression": "variables.n"}),
            None,
        );
        assert!(told["issues"].is_array(), "{told}");
    }

    #[test]
    fn places_issues_as_a_page_counts() {
        let told = ask(json!({"request": 1, "expression": "'😀' == nothing"}), None);
        assert_eq!(told["issues"][0]["at"], 8, "{told}");
    }
}
