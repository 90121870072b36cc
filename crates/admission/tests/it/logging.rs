//! Log events, and the feature gate of match conditions.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use lockgate_admission::engine::Engine;
use lockgate_admission::matching::ConditionsGate;
use lockgate_api::registration::Webhook;
use lockgate_api::registration::hub::MatchCondition;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use super::support::*;

/// Collects log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// The lines that are logged during a future, with `UID` in place of every uid.
fn log_of(run: impl AsyncFnOnce()) -> Vec<String> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(log.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tracing::subscriber::with_default(subscriber, || runtime.block_on(run()));
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines = text
        .lines()
        .filter(|line| line.contains("lockgate_admission"));
    let hide = |line: &str| match line.split_once(" uid=\"") {
        Some((before, after)) => format!("{before} uid=\"UID{}", &after[36..]),
        None => line.to_owned(),
    };
    lines.map(hide).collect()
}

fn conditional(name: &str, expression: &str) -> Webhook {
    Webhook {
        match_conditions: Some(vec![MatchCondition {
            name: String::from("only-some"),
            expression: expression.to_owned(),
        }]),
        ..webhook(name)
    }
}

#[test]
fn calls_are_told_within_their_step_and_plugin() {
    let lines = log_of(async || {
        let world = World::new();
        let label = json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]);
        world.hook(Mutating, "m.example.com", Reply::patch(&label));
        for name in ["v.example.com", "w.example.com"] {
            world.hook(Validating, name, Reply::allow());
        }
        world.run(Mutating, create()).await.allowed();
        world.run(Validating, create()).await.allowed();
    });
    let step = |step: &str| format!("DEBUG admission{{step=\"{step}\" operation=\"CREATE\"}}");
    let plugin = |name: &str| format!("plugin{{name=\"{name}AdmissionWebhook\" round=0}}");
    let call = |kind: &str, name: &str| {
        format!(
            "Call {kind} webhook{{configuration=\"c\" webhook=\"{name}.example.com\" \
             resource=\"configmaps\" subresource=\"\" operation=\"CREATE\" uid=\"UID\"}}"
        )
    };
    let target = "lockgate_admission::webhook";
    let admit = [step("admit"), plugin("Mutating"), call("mutating", "m")].join(":");
    let validate = |name: &str| {
        [
            step("validate"),
            plugin("Validating"),
            call("validating", name),
        ]
        .join(":")
    };
    let mut want = vec![
        format!("{admit}: {target}::round_trip: Request completed"),
        format!("{admit}: {target}::mutating: Patch applied"),
    ];
    want.extend(["v", "w"].map(|name| {
        format!(
            "{}: {target}::round_trip: Request completed",
            validate(name)
        )
    }));
    assert_eq!(lines, want);
}

#[test]
fn an_exclusion_by_match_conditions_is_told() {
    for kind in [Mutating, Validating] {
        let lines = log_of(async || {
            let world = World::new();
            for hook in [
                conditional("told.example.com", "object.data.k != 'v'"),
                ignoring(conditional("broken.example.com", "object.nope == 1")),
                conditional("called.example.com", "true"),
            ] {
                world.hook_in(kind, "c", hook, Reply::allow());
            }
            let mut request = create();
            request.name = String::from("two\nlines");
            world.run(kind, request).await.allowed();
            assert_eq!(world.seen().len(), 1);
        });
        let told: Vec<&str> = lines
            .iter()
            .filter_map(|line| Some(line.split_once("match conditions exclude the webhook ")?.1))
            .collect();
        let about = "operation=\"CREATE\" group=\"\" resource=\"configmaps\" subresource=\"\" \
                     namespace=\"shop\" name=\"two\\nlines\"";
        assert_eq!(
            told,
            [
                format!(
                    "configuration=\"c\" webhook=\"told.example.com\" condition=\"only-some\" {about}"
                ),
                format!(
                    "configuration=\"c\" webhook=\"broken.example.com\" error=\"expression \
                     'object.nope == 1' resulted in error: no such key: nope\" {about}"
                ),
            ]
        );
    }
}

#[tokio::test]
async fn stored_conditions_do_not_count_when_the_gate_is_closed() {
    for (gate, calls) in [(ConditionsGate::Enabled, 0), (ConditionsGate::Disabled, 2)] {
        for kind in [Mutating, Validating] {
            let world = World::with(|host| {
                let builder = Engine::builder(host).match_conditions(gate);
                builder.build().unwrap()
            });
            for hook in [
                conditional("a.example.com", "false"),
                ignoring(conditional("b.example.com", "object.nope == 1")),
            ] {
                world.hook_in(kind, "c", hook, Reply::allow());
            }
            let outcome = world.run(kind, create()).await;
            outcome.allowed();
            assert_eq!(world.seen().len(), calls);
            let plugins = &outcome.admission.trace().steps[0].plugins;
            let evaluated = plugins
                .iter()
                .flat_map(|plugin| &plugin.hooks)
                .filter(|hook| hook.conditions.is_some())
                .count();
            assert_eq!(evaluated, 2 - calls);
        }
    }
}
