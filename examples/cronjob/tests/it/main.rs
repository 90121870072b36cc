//! CronJobs in two versions: the webhooks alone, and behind an API server.

use cronjob_webhooks::{DEFINITION, schedule, webhooks};
use lockgate_webhook::testing::{ConversionReview, Review, round_trips};
use lockgate_webhook::{ManifestOptions, Webhooks};
use lockgate_webhook_test::Cluster;
use proptest::prelude::*;
use serde_json::{Value, json};

const MUTATE: &str = "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob";
const VALIDATE: &str = "/validate-batch-tutorial-kubebuilder-io-v1-cronjob";
const V1: &str = "batch.tutorial.kubebuilder.io/v1";
const V2: &str = "batch.tutorial.kubebuilder.io/v2";

fn v1(schedule: &str) -> String {
    json!({
        "apiVersion": V1, "kind": "CronJob",
        "metadata": {
            "name": "nightly", "namespace": "default", "uid": "1", "resourceVersion": "7",
            "labels": {"team": "red"}, "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "schedule": schedule, "suspend": true, "unknown": {"to": ["both", "versions"]},
            "jobTemplate": {"spec": {"template": {"spec": {"containers": [
                {"name": "job", "image": "job:1", "unknownToo": 1}
            ], "restartPolicy": "Never"}}}},
        },
        "status": {"active": [{"name": "a"}]},
    })
    .to_string()
}

fn v2(parts: &[&str; 5]) -> String {
    let mut object: Value = serde_json::from_str(&v1("")).expect("an object");
    object["apiVersion"] = V2.into();
    let [minute, hour, day_of_month, month, day_of_week] = parts;
    object["spec"]["schedule"] = json!({
        "minute": minute, "hour": hour, "dayOfMonth": day_of_month, "month": month,
        "dayOfWeek": day_of_week,
    });
    object.to_string()
}

#[tokio::test]
async fn v1_becomes_v2_and_back_in_both_versions_of_reviews() {
    let webhooks = webhooks();
    let (one, two) = (
        v1("30 2 * * mon-fri"),
        v2(&["30", "2", "*", "*", "mon-fri"]),
    );
    let there = ConversionReview::to(V2).object(&one).object(&one);
    there
        .ask(&webhooks, "/convert")
        .await
        .converts_to(&[&two, &two]);
    let back = ConversionReview::to(V1).v1beta1().object(&two).object(&one);
    back.ask(&webhooks, "/convert")
        .await
        .converts_to(&[&one, &one]);
    let none = ConversionReview::to(V1);
    none.ask(&webhooks, "/convert").await.converts_to(&[]);
}

#[tokio::test]
async fn an_object_that_v2_cannot_express_fails_the_whole_review() {
    let review = ConversionReview::to(V2)
        .object(&v1("0 1 * * *"))
        .object(&v1("@hourly"));
    let outcome = review.ask(&webhooks(), "/convert").await;
    outcome.fails_with("objects[1]: want minute, hour, day of month, month and day of week, got 1");
}

proptest! {
    #[test]
    fn nothing_is_lost_between_the_versions(parts in prop::array::uniform5("[*/0-9a-z,-]{1,8}")) {
        let webhooks = webhooks();
        round_trips(&webhooks, "/convert", &v1(&parts.join(" ")));
        round_trips(&webhooks, "/convert", &v2(&parts.each_ref().map(String::as_str)));
    }
}

#[test]
fn schedules_are_those_of_cron() {
    for good in [
        "* * * * *",
        "*/5 0-6/2 1,15 jan,3 Sun-5",
        "59 23 31 12 7",
        "0 0 ? * *",
    ] {
        assert_eq!(schedule::check(good), Ok(()), "{good}");
    }
    for (bad, problem) in [
        (
            "",
            "want minute, hour, day of month, month and day of week, got 0 fields",
        ),
        (
            "* * * *",
            "want minute, hour, day of month, month and day of week, got 4 fields",
        ),
        ("60 * * * *", "minute cannot be `60`"),
        ("* 5-3 * * *", "hour cannot be `5-3`"),
        ("* * 0 * *", "dayOfMonth cannot be `0`"),
        ("* * * nov-jan *", "month cannot be `nov-jan`"),
        ("* * * * */0", "dayOfWeek cannot be `*/0`"),
        ("* * * * 1,,2", "dayOfWeek cannot be `1,,2`"),
    ] {
        assert_eq!(
            schedule::check(bad).unwrap_err().to_string(),
            problem,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn defaults_and_validation_are_those_of_the_tutorial() {
    let webhooks = webhooks();
    let job = |more: &str| {
        format!(
            "{{apiVersion: {V1}, kind: CronJob, metadata: {{name: a, namespace: b}}, spec: {{{more}}}}}"
        )
    };
    let outcome = Review::create(&job("schedule: ' 0  1 * * * '"))
        .ask(&webhooks, MUTATE)
        .await;
    outcome.accepts().patches_to(&job(
        "schedule: 0 1 * * *, concurrencyPolicy: Allow, suspend: false, \
         successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1",
    ));
    outcome.idempotent().await;
    outcome.preserves_unknown_fields().await;
    let refused = Review::create(&job("schedule: 0 99 * * *"))
        .ask(&webhooks, VALIDATE)
        .await;
    refused
        .rejects_with_code(422)
        .rejects_with("spec.schedule: Invalid value: \"0 99 * * *\": hour cannot be `99`");
}

#[test]
fn the_manifests_say_where_it_is_converted_and_who_injects_the_ca() {
    let options = ManifestOptions::new()
        .service("tutorial", "cronjob-webhooks")
        .port(8443)
        .inject_ca_from("tutorial/serving-cert");
    let manifests = webhooks().manifests(&options);
    let yaml = manifests.definition_patches_yaml();
    assert_eq!(
        yaml,
        "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    cert-manager.io/inject-ca-from: tutorial/serving-cert
  name: cronjobs.batch.tutorial.kubebuilder.io
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: cronjob-webhooks
          namespace: tutorial
          path: /convert
          port: 8443
      conversionReviewVersions:
      - v1
"
    );
    let mut definition = json!({
        "metadata": {"name": "cronjobs.batch.tutorial.kubebuilder.io"},
        "spec": {"scope": "Namespaced", "conversion": {"strategy": "None"}},
    });
    assert!(manifests.complete(&mut definition));
    assert_eq!(definition["spec"]["scope"], "Namespaced");
    assert_eq!(definition["spec"]["conversion"]["strategy"], "Webhook");
    assert!(!manifests.complete(&mut json!({"metadata": {"name": "other"}})));
    assert!(
        Webhooks::new()
            .manifests(&options)
            .definition_patches()
            .is_empty()
    );
}

#[tokio::test]
async fn an_api_server_defaults_validates_and_converts() -> Result<(), Box<dyn std::error::Error>> {
    let webhooks = webhooks();
    let cluster = Cluster::start(webhooks.clone()).await?;
    cluster.define(&webhooks, DEFINITION).await?;
    let job = |version: &str, spec: &str| {
        format!("apiVersion: {version}\nkind: CronJob\nmetadata: {{name: nightly}}\n{spec}")
    };
    let text = job(V2, "spec: {schedule: {minute: '30', hour: '2'}}");
    let applied = cluster.apply(&text).await?;
    // Created in v2, converted to v1 for both webhooks, stored in v1, returned in v2.
    assert_eq!(
        applied.objects[0]["spec"],
        json!({
            "schedule": {
                "minute": "30", "hour": "2", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*",
            },
            "concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        })
    );
    let refused = cluster
        .apply(&job(V2, "spec: {schedule: {hour: '99'}}"))
        .await
        .unwrap_err();
    assert_eq!(refused.status.code, 422);
    assert!(
        refused.to_string().contains("hour cannot be `99`"),
        "{refused}"
    );

    // Updated in v1, and then one field in v2.
    let text = job(V1, "spec: {schedule: 31 2 * * *, suspend: true}");
    let applied = cluster.apply(&text).await?;
    assert_eq!(applied.objects[0]["spec"]["schedule"], "31 2 * * *");
    let text = job(V2, "spec: {schedule: {hour: '3'}}");
    let applied = cluster.apply(&text).await?;
    let spec = &applied.objects[0]["spec"];
    assert_eq!(
        (&spec["schedule"]["minute"], &spec["schedule"]["hour"]),
        (&json!("31"), &json!("3"))
    );
    assert_eq!(spec["suspend"], true);
    let text = cluster.webhooks().metrics_text();
    let series =
        format!("conversion_webhook_objects_total{{kind=\"CronJob\",from=\"{V2}\",to=\"{V1}\"}}");
    assert!(text.contains(&series), "{text}");
    cluster.stop().await;
    Ok(())
}
