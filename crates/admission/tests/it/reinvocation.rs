//! Every row of the reinvocation table: the number of calls, and the annotations.

use std::sync::Arc;

use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Clock as _, SystemClock};
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::Operation;
use lockgate_api::registration::Webhook;
use lockgate_api::registration::hub::MatchCondition;
use serde_json::json;

use super::support::*;

const A: &str = "a.example.com";
const B: &str = "b.example.com";
const C: &str = "c.example.com";

/// Sets a label to a value that depends on the webhook.
fn set(key: &str, value: &str) -> Reply {
    let path = format!("/metadata/labels/{key}");
    Reply::patch(&json!([{"op": "add", "path": path, "value": value}]))
}

/// Sets a label, in the first round only.
fn set_once(key: &'static str) -> Reply {
    Reply::With(Arc::new(move |review| {
        let labels = &review["request"]["object"]["metadata"]["labels"];
        if labels.get(key).is_some() {
            return json!({"allowed": true});
        }
        let path = format!("/metadata/labels/{key}");
        patched(&json!([{"op": "add", "path": path, "value": "x"}]).to_string())
    }))
}

struct Row {
    name: &'static str,
    hooks: Vec<(Webhook, Reply)>,
    calls: &'static [(&'static str, usize)],
    /// `round_<r>_index_<i>` and whether the call mutated the object.
    mutations: &'static [(&'static str, bool)],
}

fn rows() -> Vec<Row> {
    let again = |name| if_needed(webhook(name));
    vec![
        Row {
            name: "A no-op",
            hooks: vec![(again(A), Reply::allow())],
            calls: &[(A, 1)],
            mutations: &[("round_0_index_0", false)],
        },
        Row {
            name: "A mutates",
            hooks: vec![(again(A), set("a", "1"))],
            calls: &[(A, 1)],
            mutations: &[("round_0_index_0", true)],
        },
        Row {
            name: "A mutates, B mutates",
            hooks: vec![(again(A), set("a", "1")), (again(B), set("b", "1"))],
            calls: &[(A, 2), (B, 1)],
            mutations: &[
                ("round_0_index_0", true),
                ("round_0_index_1", true),
                ("round_1_index_0", false),
            ],
        },
        Row {
            name: "A and B overwrite each other",
            hooks: vec![(again(A), set("x", "a")), (again(B), set("x", "b"))],
            calls: &[(A, 2), (B, 2)],
            mutations: &[
                ("round_0_index_0", true),
                ("round_0_index_1", true),
                ("round_1_index_0", true),
                ("round_1_index_1", true),
            ],
        },
        Row {
            name: "A skipped by selector, B makes it match",
            hooks: vec![
                (selecting(again(A), "b", "1"), Reply::allow()),
                (again(B), set("b", "1")),
            ],
            calls: &[(A, 0), (B, 1)],
            mutations: &[("round_0_index_1", true)],
        },
        Row {
            name: "A adds a label, B selects on it",
            hooks: vec![
                (again(A), set("a", "1")),
                (selecting(again(B), "a", "1"), Reply::allow()),
            ],
            calls: &[(A, 1), (B, 1)],
            mutations: &[("round_0_index_0", true), ("round_0_index_1", false)],
        },
        Row {
            name: "A no-op, B (Never) mutates",
            hooks: vec![(again(A), Reply::allow()), (webhook(B), set("b", "1"))],
            calls: &[(A, 2), (B, 1)],
            mutations: &[
                ("round_0_index_0", false),
                ("round_0_index_1", true),
                ("round_1_index_0", false),
            ],
        },
        Row {
            name: "A fails open, B (Never) mutates",
            hooks: vec![
                (ignoring(again(A)), Reply::Unreachable("no")),
                (webhook(B), set("b", "1")),
            ],
            calls: &[(A, 2), (B, 1)],
            mutations: &[
                ("round_0_index_0", false),
                ("round_0_index_1", true),
                ("round_1_index_0", false),
            ],
        },
        Row {
            name: "A, B, C overwrite one value",
            hooks: vec![
                (again(A), set("x", "a")),
                (again(B), set("x", "b")),
                (again(C), set("x", "c")),
            ],
            calls: &[(A, 2), (B, 2), (C, 2)],
            mutations: &[
                ("round_0_index_0", true),
                ("round_0_index_1", true),
                ("round_0_index_2", true),
                ("round_1_index_0", true),
                ("round_1_index_1", true),
                ("round_1_index_2", true),
            ],
        },
        Row {
            name: "both Never",
            hooks: vec![(webhook(A), set("x", "a")), (webhook(B), set("x", "b"))],
            calls: &[(A, 1), (B, 1)],
            mutations: &[("round_0_index_0", true), ("round_0_index_1", true)],
        },
        Row {
            name: "a patch that changes nothing is no reason",
            hooks: vec![(again(A), Reply::allow()), (again(B), set("app", "web"))],
            calls: &[(A, 1), (B, 1)],
            mutations: &[("round_0_index_0", false), ("round_0_index_1", false)],
        },
        Row {
            name: "A no longer matches in the second round",
            hooks: vec![
                (selecting(again(A), "app", "web"), Reply::allow()),
                (again(B), set("app", "b")),
            ],
            calls: &[(A, 1), (B, 1)],
            mutations: &[("round_0_index_0", false), ("round_0_index_1", true)],
        },
    ]
}

#[tokio::test]
async fn hooks_run_again_when_the_object_changed_after_them() {
    for row in rows() {
        let world = World::new();
        for (hook, reply) in row.hooks {
            world.hook_in(Mutating, "cfg", hook, reply);
        }
        let outcome = world.run(Mutating, create()).await;
        outcome.allowed();
        for (name, times) in row.calls {
            assert_eq!(world.calls(name), *times, "{}: {name}", row.name);
        }
        let prefix = "mutation.webhook.admission.k8s.io/";
        let annotations = outcome.annotations();
        let mutations: Vec<(&str, bool)> = annotations
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, value)))
            .map(|(key, value)| (key, value.contains("\"mutated\":true")))
            .collect();
        assert_eq!(mutations, row.mutations, "{}", row.name);
    }
}

#[tokio::test]
async fn the_last_of_those_that_disagree_wins() {
    let world = World::new();
    for (name, value) in [(A, "a"), (B, "b"), (C, "c")] {
        world.hook_in(Mutating, "cfg", if_needed(webhook(name)), set("x", value));
    }
    let outcome = world.run(Mutating, create()).await;
    assert_eq!(outcome.object()["metadata"]["labels"]["x"], "c");
}

#[tokio::test]
async fn failing_open_twice_is_annotated_twice() {
    let world = World::new();
    let failing = ignoring(if_needed(webhook(A)));
    world.hook_in(Mutating, "cfg", failing, Reply::Unreachable("no"));
    world.hook_in(Mutating, "cfg", webhook(B), set("b", "1"));
    let outcome = world.run(Mutating, create()).await;
    outcome.allowed();
    for round in [0, 1] {
        let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_0");
        assert!(outcome.annotations().contains(&(key, A.to_owned())));
    }
    let counted = format!("webhook_fail_open_count{{name=\"{A}\",type=\"admit\"}} 2");
    assert!(world.counters().contains(&counted));
}

/// Match conditions are evaluated in both rounds, also those of webhooks that are not reinvoked.
#[tokio::test]
async fn match_conditions_count_in_both_rounds() {
    let when = |hook: Webhook, expression: &str| Webhook {
        match_conditions: Some(vec![MatchCondition {
            name: String::from("c"),
            expression: expression.to_owned(),
        }]),
        ..hook
    };
    let world = World::new();
    let excluded = when(webhook(A), "false");
    let called = when(webhook(B), "true");
    world.hook_in(Mutating, "cfg", if_needed(webhook(C)), Reply::allow());
    world.hook_in(Mutating, "cfg", excluded, Reply::allow());
    world.hook_in(Mutating, "cfg", called, set("b", "1"));
    world.run(Mutating, create()).await.allowed();
    assert_eq!((world.calls(A), world.calls(B), world.calls(C)), (0, 1, 2));
    let exclusions = format!(
        "match_condition_exclusions_total{{kind=\"webhook\",name=\"{A}\",operation=\"CREATE\",\
         type=\"admit\"}} 2"
    );
    let counters = world.counters();
    assert!(counters.contains(&exclusions), "{counters:?}");
    let metrics = world.engine.metrics().render(SystemClock.now());
    // The duration is recorded for conditions that are not all true.
    let evaluations = format!(
        "apiserver_admission_match_condition_evaluation_seconds_count{{kind=\"webhook\",name=\"{A}\",\
         operation=\"CREATE\",type=\"admit\"}} 2"
    );
    assert!(metrics.lines().any(|line| line == evaluations), "{metrics}");
}

#[tokio::test]
async fn a_denial_in_the_second_round_counts() {
    let world = World::new();
    let moody = Reply::With(Arc::new(|review| {
        let labels = &review["request"]["object"]["metadata"]["labels"];
        json!({"allowed": labels.get("b").is_none()})
    }));
    world.hook_in(Mutating, "cfg", if_needed(webhook(A)), moody);
    world.hook_in(Mutating, "cfg", webhook(B), set("b", "1"));
    let outcome = world.run(Mutating, create()).await;
    let message = format!("admission webhook \"{A}\" denied the request without explanation");
    assert_eq!(outcome.refusal(), Some((400, "", message.as_str())));
}

/// A plugin that runs before webhooks. In the second round it changes the object, or rejects it.
struct InTree(SecondRound);

#[derive(Clone, Copy, PartialEq)]
enum SecondRound {
    Nothing,
    Changes,
    Refuses,
}

impl Plugin for InTree {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, _: Operation) -> bool {
        true
    }

    fn admits(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async move {
            if !admission.is_reinvocation() {
                return Decision::Allow;
            }
            match self.0 {
                SecondRound::Nothing => Decision::Allow,
                SecondRound::Changes => {
                    let object = admission.request().object.as_ref().unwrap();
                    let mut value = object.value().clone();
                    value["metadata"]["labels"]["priority"] = json!("set");
                    admission.set_object(value);
                    Decision::Allow
                }
                SecondRound::Refuses => {
                    let status = lockgate_api::meta::status::Status::bad_request(
                        "no PriorityClass with name invalid was found",
                    );
                    Decision::deny(status, lockgate_admission::decision::Cause::Plugin)
                }
            }
        })
    }
}

#[tokio::test]
async fn plugins_run_again_and_what_they_change_is_a_reason_too() {
    for (second, mutates, calls, refused) in [
        (SecondRound::Nothing, true, 1, None),
        (SecondRound::Changes, true, 2, None),
        (SecondRound::Changes, false, 1, None),
        (
            SecondRound::Refuses,
            true,
            1,
            Some("no PriorityClass with name invalid was found"),
        ),
        (SecondRound::Refuses, false, 1, None),
    ] {
        let world = World::with(|host| {
            Engine::builder(host)
                .plugin(InTree(second))
                .build()
                .unwrap()
        });
        let reply = if mutates {
            set_once("a")
        } else {
            Reply::allow()
        };
        world.hook_in(Mutating, "cfg", if_needed(webhook(A)), reply);
        let outcome = world.run(Mutating, create()).await;
        assert_eq!(outcome.refusal().map(|refusal| refusal.2), refused);
        assert_eq!(world.calls(A), calls, "{mutates} {calls}");
        let trace = outcome.admission.trace();
        let plugins: Vec<(&str, u8)> = trace
            .plugins()
            .map(|(_, plugin)| (plugin.name, plugin.round))
            .filter(|(name, _)| *name != "MutatingAdmissionPolicy")
            .collect();
        let webhooks = "MutatingAdmissionWebhook";
        let want = match (mutates, refused.is_some()) {
            (false, _) => vec![("Priority", 0), (webhooks, 0)],
            (true, true) => vec![("Priority", 0), (webhooks, 0), ("Priority", 1)],
            (true, false) => {
                vec![
                    ("Priority", 0),
                    (webhooks, 0),
                    ("Priority", 1),
                    (webhooks, 1),
                ]
            }
        };
        assert_eq!(plugins, want);
    }
}
