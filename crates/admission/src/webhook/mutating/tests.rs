use super::*;
use crate::configuration::Candidates;
use crate::testing::{NoCaller, create, ignoring};

fn hooks(webhooks: &[&str]) -> Hooks {
    let configurations = Configurations::new(ConfigurationKind::Mutating);
    configurations.upsert(&ignoring(ConfigurationKind::Mutating, webhooks));
    Hooks::new(Host::new(Arc::new(NoCaller)), Arc::new(configurations))
}

fn pass<'p>(hooks: &'p Hooks, request: &Request) -> Pass<'p> {
    Pass {
        hooks,
        host: &hooks.host,
        matcher: Matcher::new(&hooks.host, request),
        versioned: None,
        facts: Vec::new(),
        dirty: false,
        reviews: Reviews::default(),
        calls: 0,
    }
}

#[track_caller]
fn assert_internal(decision: &Decision, message: &str) {
    let Decision::Deny(denial) = decision else {
        panic!("allowed");
    };
    assert_eq!(denial.status.code, 500);
    assert_eq!(
        denial.status.message,
        format!("Internal error occurred: {message}")
    );
}

#[tokio::test]
async fn a_webhook_that_is_indexed_and_gone_is_a_denial() {
    let hooks = hooks(&["a.example.com"]);
    let relevant = Relevant {
        snapshot: hooks.configurations.snapshot(),
        candidates: Candidates::all(2),
    };
    let mut admission = Admission::new(create());
    let mut pass = pass(&hooks, admission.request());
    let decision = pass.run(&mut admission, &relevant).await;
    assert_internal(&decision, "webhook 1 is indexed but not registered");
}

#[tokio::test]
async fn a_webhook_without_objects_to_be_asked_about_is_a_denial() {
    let hooks = hooks(&["a.example.com"]);
    let snapshot = hooks.configurations.snapshot();
    let hook = &snapshot.hooks()[0];
    assert_eq!(hook.failure_policy(), FailurePolicy::Ignore);
    let request = create();
    let (resource, kind) = (request.resource.clone(), request.kind.clone());
    let mut pass = pass(&hooks, &request);
    let call = pass
        .call(hook, &request, Target::Requested, resource, kind)
        .await;
    assert_internal(
        &pass.conclude(hook, &request, &call),
        "webhook \"a.example.com\" was called without objects",
    );
}

#[test]
fn an_equivalent_that_the_request_does_not_have_is_not_taken_for_the_requested_resource() {
    let request = create();
    let host = Host::new(Arc::new(NoCaller));
    let matcher = Matcher::new(&host, &request);
    assert!(matcher.resolve(Target::Requested, &request).is_some());
    assert!(matcher.resolve(Target::Equivalent(7), &request).is_none());
}
