//! Deadlines: of the webhook, of the request, and the time left for later webhooks.

use std::time::Duration;

use lockgate_admission::host::{Clock as _, SystemClock};
use lockgate_admission::plugin::Admission;
use lockgate_api::registration::Webhook;

use super::support::*;

fn with_timeout(name: &str, seconds: Option<i32>) -> Webhook {
    Webhook {
        timeout_seconds: seconds,
        ..webhook(name)
    }
}

fn timeouts(world: &World) -> Vec<Option<u64>> {
    let seen = world.seen();
    seen.iter()
        .map(|seen| seen.timeout.map(|timeout| timeout.as_secs()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_shorter_of_both_deadlines_counts() {
    let world = World::new();
    for kind in [Mutating, Validating] {
        for (name, seconds) in [
            ("a.example.com", Some(20)),
            ("b.example.com", Some(5)),
            ("c.example.com", None),
        ] {
            world.hook_in(kind, "c", with_timeout(name, seconds), Reply::allow());
        }
    }
    let request = within(create(), 10);
    let outcome = world.run(Mutating, request.clone()).await;
    outcome.allowed();
    world.run(Validating, request).await.allowed();
    let mut seen = timeouts(&world);
    seen[3..].sort();
    assert_eq!(
        seen,
        [Some(10), Some(5), Some(10), Some(5), Some(10), Some(10)]
    );
    let call = outcome.admission.trace().calls().next().unwrap().3;
    assert_eq!(call.allowed_time, Some(Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn without_any_deadline_a_call_still_ends() {
    let world = World::new();
    world.hook_in(
        Mutating,
        "c",
        with_timeout("a.example.com", None),
        Reply::allow().after(100),
    );
    let began = tokio::time::Instant::now();
    let outcome = world.run(Mutating, create()).await;
    // This caller has no timeout itself; it would have had the first quarter of a second of the grace period to return.
    assert_eq!(began.elapsed(), Duration::from_millis(30_250));
    assert_eq!(timeouts(&world), [None]);
    let message = "Internal error occurred: failed calling webhook \"a.example.com\": failed to call \
                   webhook: context deadline exceeded";
    assert_eq!(outcome.refusal(), Some((500, "InternalError", message)));
}

#[tokio::test(start_paused = true)]
async fn mutating_hooks_eat_from_one_budget() {
    let world = World::new();
    for (name, seconds) in [
        ("a.example.com", 20),
        ("b.example.com", 5),
        ("c.example.com", 20),
    ] {
        let hook = with_timeout(name, Some(seconds));
        world.hook_in(Mutating, "c", hook, Reply::allow().after(1));
    }
    for (name, seconds) in [
        ("x.example.com", 5),
        ("y.example.com", 10),
        ("z.example.com", 20),
    ] {
        world.hook_in(
            Validating,
            "c",
            with_timeout(name, Some(seconds)),
            Reply::allow(),
        );
    }
    let request = within(create(), 10);
    world.run(Mutating, request.clone()).await.allowed();
    world.run(Validating, request).await.allowed();
    let mut seen = timeouts(&world);
    seen[3..].sort();
    assert_eq!(seen, [10, 5, 8, 5, 7, 7].map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_up_calls_nobody_else() {
    let world = World::new();
    let slow = ignoring(with_timeout("a.example.com", Some(20)));
    world.hook_in(Mutating, "c", slow, Reply::allow().after(5));
    for name in ["b.example.com", "c.example.com"] {
        world.hook_in(Mutating, "c", ignoring(webhook(name)), Reply::allow());
    }
    let outcome = world.run(Mutating, within(create(), 3)).await;
    let message = "Timeout: request did not complete within requested timeout";
    assert_eq!(outcome.refusal(), Some((504, "Timeout", message)));
    assert_eq!(world.seen().len(), 1);
    let open = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0";
    assert!(outcome.annotations().iter().any(|(key, _)| key == open));
    assert!(
        world
            .counters()
            .iter()
            .any(|line| line.starts_with("webhook_fail_open_count"))
    );
}

#[tokio::test(start_paused = true)]
async fn validating_hooks_are_not_called_after_the_deadline() {
    let world = World::new();
    world.hook(Validating, "a.example.com", Reply::allow());
    let request = within(create(), 3);
    tokio::time::advance(Duration::from_secs(3)).await;
    let outcome = world.run(Validating, request.clone()).await;
    let message = "Timeout: request did not complete within requested timeout";
    assert_eq!(outcome.refusal(), Some((504, "Timeout", message)));
    assert!(world.seen().is_empty());
    // Without a matching webhook the deadline is irrelevant.
    World::new().run(Validating, request).await.allowed();
}

#[tokio::test(start_paused = true)]
async fn a_late_validating_hook_that_is_ignored_lets_the_request_pass() {
    let world = World::new();
    world.hook_in(
        Validating,
        "c",
        ignoring(webhook("a.example.com")),
        Reply::allow().after(9),
    );
    world.run(Validating, within(create(), 3)).await.allowed();
}

#[tokio::test(start_paused = true)]
async fn dropping_a_request_drops_its_calls() {
    let world = World::new();
    for name in ["a.example.com", "b.example.com"] {
        world.hook(
            Validating,
            name,
            Reply::Panics("nobody waits for this").after(2),
        );
    }
    let run = world.run(Validating, create());
    assert!(
        tokio::time::timeout(Duration::from_secs(1), run)
            .await
            .is_err()
    );
    let counted = world.counters();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Neither cancels the other, and nothing else is counted.
    assert_eq!(world.seen().len(), 2);
    assert_eq!(world.counters(), counted);
}

#[tokio::test(start_paused = true)]
async fn slow_requests_tell_where_the_time_went() {
    let world = World::new();
    for (kind, name, seconds) in [
        (Mutating, "a.example.com", 1),
        (Mutating, "b.example.com", 2),
        (Validating, "c.example.com", 3),
        (Validating, "d.example.com", 4),
    ] {
        world.hook(kind, name, Reply::allow().after(seconds));
    }
    let mut admission = Admission::new(create());
    assert!(world.engine.admit(&mut admission).await.is_allowed());
    assert!(world.engine.validate(&mut admission).await.is_allowed());
    let trace = admission.trace();
    assert!(
        trace
            .latency_annotations(Duration::from_millis(500))
            .is_empty()
    );
    assert_eq!(
        trace.latency_annotations(Duration::from_millis(501)),
        [
            (
                "apiserver.latency.k8s.io/mutating-webhook",
                String::from("3s")
            ),
            (
                "apiserver.latency.k8s.io/validating-webhook",
                String::from("4s")
            ),
        ]
    );
    let none = Admission::new(create());
    assert!(
        none.trace()
            .latency_annotations(Duration::from_secs(9))
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_went_away_is_not_held_against_webhooks() {
    for ignore in [false, true] {
        for kind in [Mutating, Validating] {
            let world = World::new();
            world.hook(kind, "a.example.com", Reply::allow());
            let mut slow = webhook("b.example.com");
            if ignore {
                slow = ignoring(slow);
            }
            world.hook_in(kind, "c", slow, Reply::allow().after(5));
            // As a server does when the connection is closed: it drops the request.
            let second = Duration::from_secs(1);
            let given_up = tokio::time::timeout(second, world.run(kind, create())).await;
            assert!(given_up.is_err());
            assert_eq!(world.seen().len(), 2);
            let (call, step) = match kind {
                Mutating => ("admit", "admit"),
                Validating => ("validating", "validate"),
            };
            let counted = |code: &str, name: &str, rejected: bool| {
                format!(
                    "webhook_request_total{{code=\"{code}\",name=\"{name}.example.com\",\
                     operation=\"CREATE\",rejected=\"{rejected}\",type=\"{call}\"}} 1"
                )
            };
            // Neither a rejection nor an ignored failure.
            let want = [counted("200", "a", false), counted("503", "b", !ignore)];
            assert_eq!(world.counters(), want);
            // Mutation fails in either case; validation continues if failures are ignored.
            let rejected = !ignore || kind == Mutating;
            let metrics = world.engine.metrics().render(SystemClock.now());
            // Policies are a separate plugin, which is counted too.
            for (family, plugin) in [
                ("step_admission", ""),
                ("controller_admission", "Webhook\""),
            ] {
                let counted = metrics.lines().filter(|line| {
                    line.starts_with(&format!(
                        "apiserver_admission_{family}_duration_seconds_count"
                    )) && line.contains(plugin)
                        && line.contains(&format!("rejected=\"{rejected}\",type=\"{step}\"}} 1"))
                });
                assert_eq!(counted.count(), 1, "{metrics}");
            }
            let seconds = format!(
                "apiserver_admission_webhook_admission_duration_seconds_sum{{name=\"b.example.com\",\
                 operation=\"CREATE\",rejected=\"{}\",type=\"{call}\"}} 1",
                !ignore
            );
            assert!(metrics.lines().any(|line| line == seconds), "{metrics}");
        }
    }
}
