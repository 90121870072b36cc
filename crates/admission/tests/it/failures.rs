//! The failure table: both kinds of webhooks, both failure policies, with and without dry run.

use lockgate_admission::decision::Cause;
use lockgate_api::registration::{ConfigurationKind, Webhook};
use serde_json::json;

use super::support::*;

const H: &str = "h.example.com";

/// The expected result of a failed call with `Fail`: the text after `failed calling webhook …: `, and the code in
/// metrics.
struct Failed {
    name: &'static str,
    webhook: fn(Webhook) -> Webhook,
    reply: Reply,
    dry_run: bool,
    reason: &'static str,
    code: i32,
}

fn as_is(webhook: Webhook) -> Webhook {
    webhook
}

fn call_failures() -> Vec<Failed> {
    let raw = |name, code, content_type, body, reason, metric| Failed {
        name,
        webhook: as_is,
        reply: Reply::Raw(code, content_type, body),
        dry_run: false,
        reason,
        code: metric,
    };
    let json_type = Some("application/json");
    vec![
        Failed {
            name: "unreachable",
            webhook: as_is,
            reply: Reply::Unreachable("dial tcp 127.0.0.1:1: connect: connection refused"),
            dry_run: false,
            reason: "failed to call webhook: Post \"https://h.example.com/?timeout=10s\": dial tcp \
                     127.0.0.1:1: connect: connection refused",
            code: 503,
        },
        raw(
            "server error",
            500,
            Some("text/plain"),
            "boom",
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from \
             succeeding",
            500,
        ),
        raw(
            "unavailable",
            503,
            None,
            "",
            "failed to call webhook: the server is currently unable to handle the request",
            503,
        ),
        raw(
            "not found",
            404,
            None,
            "",
            "failed to call webhook: the server could not find the requested resource",
            404,
        ),
        raw(
            "redirected",
            302,
            None,
            "",
            "failed to call webhook: the server responded with the status code 302 but did not return \
             more information",
            302,
        ),
        raw(
            "failed with a status of its own",
            500,
            json_type,
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"tired","code":418}"#,
            "failed to call webhook: tired",
            418,
        ),
        raw(
            "bad content type",
            200,
            Some("a/b/c"),
            "{}",
            "failed to call webhook: Internal error occurred: mime: unexpected content after media \
             subtype",
            500,
        ),
        raw(
            "empty",
            200,
            json_type,
            "",
            "failed to call webhook: 0-length response with status code: 200 and content type: \
             application/json",
            503,
        ),
        raw(
            "no response",
            200,
            json_type,
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
            "received invalid webhook response: webhook response was absent",
            503,
        ),
        raw(
            "another version",
            200,
            json_type,
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{}}"#,
            "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): \
             unknown conversion",
            503,
        ),
        Failed {
            name: "no known review version",
            webhook: |webhook| Webhook {
                admission_review_versions: Some(vec![String::from("v2")]),
                ..webhook
            },
            reply: Reply::allow(),
            dry_run: false,
            reason: "could not create admission objects: webhook does not accept known \
                     AdmissionReview versions (v1, v1beta1)",
            code: 400,
        },
        Failed {
            name: "nowhere to call",
            webhook: |mut webhook| {
                webhook.client_config.url = None;
                webhook
            },
            reply: Reply::allow(),
            dry_run: false,
            reason: "could not get REST client: failed calling webhook \"h.example.com\": webhook \
                     configuration must have either service or URL",
            code: 500,
        },
        Failed {
            name: "no client",
            webhook: |mut webhook| {
                webhook.client_config.url = Some(String::from("bad-ca"));
                webhook
            },
            reply: Reply::allow(),
            dry_run: false,
            reason: "could not get REST client: unable to load root certificates: unable to parse \
                     bytes as PEM block",
            code: 500,
        },
        Failed {
            name: "dry run with unsaid side effects",
            webhook: |webhook| Webhook {
                side_effects: None,
                ..webhook
            },
            reply: Reply::allow(),
            dry_run: true,
            reason: "Webhook SideEffects is nil",
            code: 400,
        },
        Failed {
            name: "late",
            webhook: |webhook| Webhook {
                timeout_seconds: Some(1),
                ..webhook
            },
            reply: Reply::allow().after(5),
            dry_run: false,
            reason: "failed to call webhook: Post \"https://h.example.com/?timeout=1s\": context \
                     deadline exceeded",
            code: 503,
        },
    ]
}

fn type_label(kind: ConfigurationKind) -> &'static str {
    match kind {
        Mutating => "admit",
        Validating => "validating",
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_meets_the_failure_policy() {
    for case in call_failures() {
        for kind in [Mutating, Validating] {
            let request = || {
                if case.dry_run {
                    dry_run(create())
                } else {
                    create()
                }
            };
            let label = type_label(kind);
            let Failed {
                name, reason, code, ..
            } = &case;

            let world = World::new();
            world.hook_in(kind, "c", (case.webhook)(webhook(H)), case.reply.clone());
            let outcome = world.run(kind, request()).await;
            let message =
                format!("Internal error occurred: failed calling webhook \"{H}\": {reason}");
            let refusal = (500, "InternalError", message.as_str());
            assert_eq!(outcome.refusal(), Some(refusal), "{name} {kind:?}");
            let status = outcome.decision.status().unwrap();
            let causes = status.details.as_ref().unwrap().causes.as_ref().unwrap();
            assert_eq!(
                causes[0].message,
                format!("failed calling webhook \"{H}\": {reason}")
            );
            assert_eq!(
                world.counters(),
                [
                    format!(
                        "webhook_rejection_count{{error_type=\"calling_webhook_error\",name=\"{H}\",\
                         operation=\"CREATE\",rejection_code=\"{code}\",type=\"{label}\"}} 1"
                    ),
                    format!(
                        "webhook_request_total{{code=\"{code}\",name=\"{H}\",operation=\"CREATE\",\
                         rejected=\"true\",type=\"{label}\"}} 1"
                    ),
                ],
                "{name} {kind:?}"
            );

            let world = World::new();
            let hook = ignoring((case.webhook)(webhook(H)));
            world.hook_in(kind, "c", hook, case.reply.clone());
            let outcome = world.run(kind, request()).await;
            outcome.allowed();
            let prefix = if kind == Mutating {
                "mutation"
            } else {
                "validating"
            };
            let failed_open = (
                format!("failed-open.{prefix}.webhook.admission.k8s.io/round_0_index_0"),
                H.to_owned(),
            );
            assert!(
                outcome.annotations().contains(&failed_open),
                "{name} {kind:?}"
            );
            assert_eq!(
                world.counters(),
                [
                    format!("webhook_fail_open_count{{name=\"{H}\",type=\"{label}\"}} 1"),
                    format!(
                        "webhook_request_total{{code=\"{code}\",name=\"{H}\",operation=\"CREATE\",\
                         rejected=\"false\",type=\"{label}\"}} 1"
                    ),
                ],
                "{name} {kind:?}"
            );
        }
    }
}

#[tokio::test]
async fn side_effects_and_dry_runs() {
    for (side_effects, is_dry_run, called) in [
        ("None", true, true),
        ("NoneOnDryRun", true, true),
        ("Some", true, false),
        ("Unknown", true, false),
        ("Some", false, true),
        ("Unknown", false, true),
    ] {
        for kind in [Mutating, Validating] {
            for policy in ["Fail", "Ignore"] {
                let world = World::new();
                let hook = Webhook {
                    side_effects: Some(side_effects.to_owned()),
                    failure_policy: Some(policy.to_owned()),
                    ..webhook(H)
                };
                world.hook_in(kind, "c", hook, Reply::allow());
                let request = if is_dry_run {
                    dry_run(create())
                } else {
                    create()
                };
                let outcome = world.run(kind, request).await;
                assert_eq!(
                    world.calls(H),
                    usize::from(called),
                    "{side_effects} {kind:?}"
                );
                if called {
                    outcome.allowed();
                    assert_eq!(
                        world.seen()[0].review["request"]["dryRun"],
                        json!(is_dry_run)
                    );
                    continue;
                }
                let message = format!("admission webhook \"{H}\" does not support dry run");
                assert_eq!(
                    outcome.refusal(),
                    Some((400, "BadRequest", message.as_str()))
                );
                let label = type_label(kind);
                assert_eq!(
                    world.counters(),
                    [
                        format!(
                            "webhook_rejection_count{{error_type=\"apiserver_internal_error\",\
                             name=\"{H}\",operation=\"CREATE\",rejection_code=\"0\",\
                             type=\"{label}\"}} 1"
                        ),
                        format!(
                            "webhook_request_total{{code=\"0\",name=\"{H}\",operation=\"CREATE\",\
                             rejected=\"true\",type=\"{label}\"}} 1"
                        ),
                    ]
                );
            }
        }
    }
}

#[tokio::test]
async fn a_denial_is_never_softened() {
    for kind in [Mutating, Validating] {
        for hook in [webhook(H), ignoring(webhook(H))] {
            let world = World::new();
            let reply = Reply::Response(json!({
                "allowed": false,
                "status": {"code": 1000, "message": "you shall not pass"},
                "warnings": ["careful"],
                "auditAnnotations": {"key1": "value1", "invalid*key": "x"},
            }));
            world.hook_in(kind, "c", hook, reply);
            let outcome = world.run(kind, create()).await;
            let message =
                "admission webhook \"h.example.com\" denied the request: you shall not pass";
            assert_eq!(outcome.refusal(), Some((999, "", message)));
            assert_eq!(outcome.admission.warnings().texts(), ["careful"]);
            let annotated = (String::from("h.example.com/key1"), String::from("value1"));
            assert!(outcome.annotations().contains(&annotated));
            assert!(
                !outcome
                    .annotations()
                    .iter()
                    .any(|(key, _)| key.contains('*'))
            );
            let label = type_label(kind);
            assert_eq!(
                world.counters(),
                [
                    format!(
                        "webhook_rejection_count{{error_type=\"no_error\",name=\"{H}\",\
                         operation=\"CREATE\",rejection_code=\"600\",type=\"{label}\"}} 1"
                    ),
                    format!(
                        "webhook_request_total{{code=\"600\",name=\"{H}\",operation=\"CREATE\",\
                         rejected=\"true\",type=\"{label}\"}} 1"
                    ),
                ]
            );
        }
    }
}

#[tokio::test]
async fn a_panic_is_contained() {
    for (kind, plugin) in [
        (Mutating, "MutatingAdmissionWebhook"),
        (Validating, "ValidatingAdmissionWebhook"),
    ] {
        let world = World::new();
        world.hook(kind, H, Reply::Panics("oops"));
        world.hook(kind, "other.example.com", Reply::allow());
        let outcome = world.run(kind, create()).await;
        let message = format!("Internal error occurred: {plugin}/{H} has panicked: oops");
        assert_eq!(
            outcome.refusal(),
            Some((500, "InternalError", message.as_str()))
        );

        let world = World::new();
        world.hook_in(kind, "c", ignoring(webhook(H)), Reply::Panics("oops"));
        world.hook(kind, "other.example.com", Reply::allow());
        world.run(kind, create()).await.allowed();
        let label = type_label(kind);
        let fail_open = format!("webhook_fail_open_count{{name=\"{H}\",type=\"{label}\"}} 1");
        assert!(world.counters().contains(&fail_open));
    }
}

#[tokio::test]
async fn match_conditions_are_no_calls() {
    for kind in [Mutating, Validating] {
        let with = |expression: &str| Webhook {
            match_conditions: Some(vec![lockgate_api::registration::hub::MatchCondition {
                name: String::from("c"),
                expression: expression.to_owned(),
            }]),
            ..webhook(H)
        };
        let label = type_label(kind);
        let exclusion_label = if kind == Mutating {
            "admit"
        } else {
            "validate"
        };
        let exclusions = [
            format!(
                "match_condition_exclusions_total{{kind=\"webhook\",name=\"{H}\",\
                 operation=\"CREATE\",type=\"{exclusion_label}\"}} 1"
            ),
            format!(
                "webhook_admission_match_condition_exclusions_total{{name=\"{H}\",\
                 operation=\"CREATE\",type=\"{exclusion_label}\"}} 1"
            ),
        ];
        let error = format!(
            "match_condition_evaluation_errors_total{{kind=\"webhook\",name=\"{H}\",\
             operation=\"CREATE\",type=\"{label}\"}} 1"
        );

        let world = World::new();
        world.hook_in(
            kind,
            "c",
            with("request.namespace != 'shop'"),
            Reply::allow(),
        );
        world.run(kind, create()).await.allowed();
        assert_eq!((world.calls(H), world.counters()), (0, exclusions.to_vec()));

        let world = World::new();
        world.hook_in(kind, "c", with("object.zzz == 1"), Reply::allow());
        let outcome = world.run(kind, create()).await;
        let message = "configmaps \"cm\" is forbidden: expression 'object.zzz == 1' resulted in \
                       error: no such key: zzz";
        assert_eq!(outcome.refusal(), Some((403, "Forbidden", message)));
        assert_eq!((world.calls(H), world.counters()), (0, vec![error.clone()]));
        assert!(outcome.annotations().is_empty());

        let world = World::new();
        world.hook_in(kind, "c", ignoring(with("object.zzz == 1")), Reply::allow());
        world.run(kind, create()).await.allowed();
        let [shipped, early] = exclusions;
        assert_eq!(
            (world.calls(H), world.counters()),
            (0, vec![error, shipped, early])
        );

        let world = World::new();
        world.hook_in(kind, "c", with("object.data.k == 'v'"), Reply::allow());
        world.run(kind, create()).await.allowed();
        assert_eq!(world.calls(H), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_ten_seconds_for_configurations() {
    use lockgate_admission::configuration::Configurations;
    use lockgate_admission::engine::Engine;
    use std::sync::Arc;
    use std::time::Duration;

    for kind in [Mutating, Validating] {
        let configurations = Arc::new(Configurations::unsynced(kind));
        let shared = Arc::clone(&configurations);
        let world = World::with(|host| {
            Engine::builder(host)
                .configurations(shared)
                .build()
                .unwrap()
        });
        let began = tokio::time::Instant::now();
        let outcome = world.run(kind, within(create(), 1)).await;
        assert_eq!(began.elapsed().as_secs(), 10);
        let message = "configmaps \"cm\" is forbidden: not yet ready to handle request";
        assert_eq!(outcome.refusal(), Some((403, "Forbidden", message)));
        assert!(
            matches!(outcome.decision, lockgate_admission::decision::Decision::Deny(denial)
                if denial.cause == Cause::NotReady)
        );

        let (outcome, ()) = tokio::join!(world.run(kind, create()), async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            configurations.set_synced();
        });
        outcome.allowed();
    }
}

#[tokio::test]
async fn what_configures_admission_is_asked_of_static_hooks_only() {
    use lockgate_admission::request::{kind as kind_of, resource};

    for kind in [Mutating, Validating] {
        let request = || {
            let mut request = create();
            let group = "admissionregistration.k8s.io";
            request.kind = kind_of(group, "v1", "ValidatingWebhookConfiguration");
            request.resource = resource(group, "v1", "validatingwebhookconfigurations");
            request.namespace.clear();
            request.object = Some(json!({"metadata": {"name": "x"}}).into());
            request
        };
        let world = World::new();
        world.hook(kind, H, Reply::deny("no"));
        world.run(kind, request()).await.allowed();
        assert_eq!(world.calls(H), 0);

        let configurations = world.engine.configurations(kind);
        configurations.expect_static();
        let message = "validatingwebhookconfigurations.admissionregistration.k8s.io \"cm\" is \
                       forbidden: not yet ready to handle request";
        let outcome = world.run(kind, request()).await;
        assert_eq!(outcome.refusal(), Some((403, "Forbidden", message)));

        configurations.replace_static(&[lockgate_api::registration::Configuration {
            kind,
            metadata: lockgate_api::meta::object::ObjectMeta {
                name: String::from("s.static.k8s.io"),
                ..Default::default()
            },
            webhooks: Some(vec![webhook("static.example.com")]),
        }]);
        world.run(kind, request()).await.allowed();
        assert_eq!((world.calls(H), world.calls("static.example.com")), (0, 1));
        assert!(!world.run(kind, create()).await.decision.is_allowed());
        assert_eq!(world.calls("static.example.com"), 2);
    }
}
