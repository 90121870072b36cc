//! The mandatory and suggested FlowSchemas and PriorityLevelConfigurations.
//!
//! UPSTREAM: apiserver pkg/apis/flowcontrol/bootstrap/default.go

use serde_json::{Value, json};

/// The group of both kinds.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The plural of FlowSchemas.
pub const SCHEMAS: &str = "flowschemas";
/// The plural of PriorityLevelConfigurations.
pub const LEVELS: &str = "prioritylevelconfigurations";

/// The annotation of objects whose spec the server maintains.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The mandatory level of exempt requests, and its FlowSchema.
pub const EXEMPT: &str = "exempt";
/// The mandatory level of requests that match no other FlowSchema, and its FlowSchema.
pub const CATCH_ALL: &str = "catch-all";

const EVERYBODY: [&str; 2] = ["system:unauthenticated", "system:authenticated"];
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

/// An object that the server creates and maintains.
#[derive(Debug)]
pub struct Suggested {
    /// The plural of its kind.
    pub plural: &'static str,
    /// The object.
    pub object: Value,
    /// True for an immutable, mandatory object.
    pub is_mandatory: bool,
}

/// All mandatory and suggested objects, levels first.
#[must_use]
pub fn all() -> Vec<Suggested> {
    let of = |plural, is_mandatory| {
        move |object| Suggested {
            plural,
            object,
            is_mandatory,
        }
    };
    let levels = mandatory_levels().into_iter().map(of(LEVELS, true));
    levels
        .chain(suggested_levels().into_iter().map(of(LEVELS, false)))
        .chain(mandatory_schemas().into_iter().map(of(SCHEMAS, true)))
        .chain(suggested_schemas().into_iter().map(of(SCHEMAS, false)))
        .collect()
}

/// The mandatory priority levels.
#[must_use]
pub fn mandatory_levels() -> Vec<Value> {
    let exempt = json!({
        "type": "Exempt",
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
    });
    let catch_all = limited(5, 0, json!({"type": "Reject"}));
    vec![
        object("PriorityLevelConfiguration", EXEMPT, exempt),
        object("PriorityLevelConfiguration", CATCH_ALL, catch_all),
    ]
}

fn suggested_levels() -> Vec<Value> {
    // name, shares, lendable percent, queues, hand size
    [
        ("system", 30, 33, 64, 6),
        ("node-high", 40, 25, 64, 6),
        ("leader-election", 10, 0, 16, 4),
        ("workload-high", 40, 50, 128, 6),
        ("workload-low", 100, 90, 128, 6),
        ("global-default", 20, 50, 128, 6),
    ]
    .into_iter()
    .map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let response = json!({"type": "Queue", "queuing": queuing});
        let spec = limited(shares, lendable, response);
        object("PriorityLevelConfiguration", name, spec)
    })
    .collect()
}

fn limited(shares: i32, lendable: i32, response: Value) -> Value {
    json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": response,
        },
    })
}

/// The mandatory FlowSchemas.
#[must_use]
pub fn mandatory_schemas() -> Vec<Value> {
    vec![
        schema(
            (EXEMPT, EXEMPT, 1, ""),
            groups(&["system:masters"]),
            &everything(),
        ),
        schema(
            (CATCH_ALL, CATCH_ALL, 10_000, "ByUser"),
            groups(&EVERYBODY),
            &everything(),
        ),
    ]
}

fn suggested_schemas() -> Vec<Value> {
    let accounts = vec![json!({
        "kind": "ServiceAccount",
        "serviceAccount": {"name": "*", "namespace": "kube-system"},
    })];
    let leases = |verbs: &[&str]| {
        json!({
            "verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"],
        })
    };
    let probes = json!({
        "nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
        ],
    });
    let mut electors = users(&[CONTROLLER_MANAGER, SCHEDULER]);
    electors.extend(accounts.clone());
    let elections = json!({"resourceRules": [leases(&["get", "create", "update"])]});
    let of_nodes = json!({
        "resourceRules": [
            {
                "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
                "clusterScope": true, "namespaces": ["*"],
            },
            leases(&["*"]),
        ],
    });
    let nodes = || groups(&["system:nodes"]);
    let all = everything();
    // name, level, precedence, distinguisher
    vec![
        schema(("probes", "exempt", 2, ""), groups(&EVERYBODY), &probes),
        schema(
            ("system-leader-election", "leader-election", 100, "ByUser"),
            electors,
            &elections,
        ),
        schema(
            ("system-node-high", "node-high", 400, "ByUser"),
            nodes(),
            &of_nodes,
        ),
        schema(("system-nodes", "system", 500, "ByUser"), nodes(), &all),
        schema(
            (
                "kube-controller-manager",
                "workload-high",
                800,
                "ByNamespace",
            ),
            users(&[CONTROLLER_MANAGER]),
            &all,
        ),
        schema(
            ("kube-scheduler", "workload-high", 800, "ByNamespace"),
            users(&[SCHEDULER]),
            &all,
        ),
        schema(
            (
                "kube-system-service-accounts",
                "workload-high",
                900,
                "ByNamespace",
            ),
            accounts,
            &all,
        ),
        schema(
            ("service-accounts", "workload-low", 9000, "ByUser"),
            groups(&["system:serviceaccounts"]),
            &all,
        ),
        schema(
            ("global-default", "global-default", 9900, "ByUser"),
            groups(&EVERYBODY),
            &all,
        ),
    ]
}

fn everything() -> Value {
    json!({
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
            "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn groups(names: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "Group", "group": {"name": name}});
    names.iter().map(subject).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "User", "user": {"name": name}});
    names.iter().map(subject).collect()
}

fn schema(
    (name, level, precedence, distinguisher): (&str, &str, i32, &str),
    subjects: Vec<Value>,
    rules: &Value,
) -> Value {
    let mut rule = rules.clone();
    rule["subjects"] = subjects.into();
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object("FlowSchema", name, spec)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
    })
}
