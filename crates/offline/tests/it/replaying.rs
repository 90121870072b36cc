//! Replays of captures.

use lockgate_api::kube_version::KubeVersion;
use lockgate_offline::capture::{Capture, Record, RecordedCall, RecordedDecision, header};
use lockgate_offline::replay::{Change, Replay, Report};
use serde_json::{Value, json};

use super::cluster;

fn policy(limit: usize) -> String {
    format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: limit}}
spec:
  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}}]}}
  validations: [{{expression: 'object.data.size() <= {limit}', message: 'at most {limit}'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: limit}}
spec: {{policyName: limit, validationActions: [Deny]}}
"
    )
}

fn record(keys: usize, decision: Option<RecordedDecision>) -> Record {
    let data: Value = (0..keys)
        .map(|key| (format!("k{key}"), json!("v")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    Record {
        request: json!({"operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "m", "namespace": "shop",
            "userInfo": {"username": "ann"},
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}}),
        decision,
        ..Record::default()
    }
}

fn allowed() -> Option<RecordedDecision> {
    Some(RecordedDecision {
        allowed: true,
        ..RecordedDecision::default()
    })
}

async fn report(replay: &Replay, capture: &Capture) -> Report {
    let mut report = Report::default();
    for (number, record) in (1..).zip(&capture.records) {
        report.add(replay.one(number, record).await);
    }
    report
}

#[tokio::test]
async fn shows_what_a_policy_would_change() {
    let denied = RecordedDecision {
        allowed: false,
        code: Some(422),
        message: String::from(
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'limit' with binding 'limit' denied request: at most 3",
        ),
        warnings: Vec::new(),
    };
    let capture = Capture {
        header: header("serve"),
        records: vec![
            record(1, allowed()),
            record(3, allowed()),
            record(5, Some(denied)),
        ],
    };
    let same = Replay::on_cluster(&cluster(&policy(3)), None, &capture);
    assert!(report(&same, &capture).await.changed.is_empty());
    let tighter = Replay::on_cluster(&cluster(&policy(2)), None, &capture);
    let found = report(&tighter, &capture).await;
    assert_eq!(
        (found.requests, found.newly_denied, found.newly_allowed),
        (3, 1, 0)
    );
    assert_eq!(
        found.changed.iter().map(|it| it.record).collect::<Vec<_>>(),
        [2, 3]
    );
    assert!(matches!(
        found.changed[1].changes[0],
        Change::Message { .. }
    ));
    let text = found.to_text();
    assert!(
        text.contains("#2 CREATE configmaps shop/m by ann\n- allowed\n+ denied: "),
        "{text}"
    );
    let looser = Replay::on_cluster(&cluster(&policy(9)), None, &capture);
    assert_eq!(report(&looser, &capture).await.newly_allowed, 1);
    let baseline = cluster(&policy(2));
    let compared = Replay::on_cluster(&cluster(&policy(4)), Some(&baseline), &capture);
    assert_eq!(report(&compared, &capture).await.newly_allowed, 1);
}

#[tokio::test]
async fn resources_that_a_version_does_not_serve_are_shown() {
    let mut claim = record(1, allowed());
    let resource =
        json!({"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"});
    claim.request["resource"] = resource.clone();
    claim.request["kind"] =
        json!({"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"});
    claim.request["object"]["apiVersion"] = json!("resource.k8s.io/v1");
    claim.request["object"]["kind"] = json!("ResourceClaim");
    // The webhook received another version than that of the request.
    let mut converted = record(1, allowed());
    converted.request["requestResource"] = resource;
    let capture = Capture {
        header: header("serve"),
        records: vec![record(1, allowed()), claim, converted],
    };
    let of = |version| Replay::on_cluster(&cluster(&policy(3)), None, &capture).at(version);
    let current = report(&of(KubeVersion::V1_36), &capture).await;
    assert_eq!(current.not_served, 0, "{}", current.to_text());
    let older = report(&of(KubeVersion::V1_33), &capture).await;
    assert_eq!((older.requests, older.not_served), (3, 2));
    let numbers: Vec<_> = older.changed.iter().map(|it| it.record).collect();
    assert_eq!(numbers, [2, 3]);
    let text = older.to_text();
    assert!(
        text.contains("+ resourceclaims.v1.resource.k8s.io is not served by 1.33\n"),
        "{text}"
    );
    assert!(
        text.ends_with("3 requests, 2 changed: 0 denied now, 0 allowed now, 2 not served\n"),
        "{text}"
    );
}

#[tokio::test]
async fn webhooks_answer_as_recorded_and_mutations_are_diffed() {
    let patch = lockgate_go::base64::encode(br#"[{"op":"add","path":"/data/added","value":"x"}]"#);
    let call = RecordedCall {
        webhook: String::from("a.example.com"),
        response: Some(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})),
        ..RecordedCall::default()
    };
    let capture = Capture {
        header: header("serve"),
        records: vec![Record {
            calls: vec![call],
            ..record(1, allowed())
        }],
    };
    let registered = |resources: &str| {
        cluster(&format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: a}}
webhooks:
- name: a.example.com
  clientConfig: {{url: 'https://a.example.com/'}}
  rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [{resources}]}}]
  sideEffects: None
  admissionReviewVersions: [v1]
"
        ))
    };
    let baseline = registered("configmaps");
    let replay = Replay::on_cluster(&registered("secrets"), Some(&baseline), &capture);
    let found = report(&replay, &capture).await;
    let Change::Object { diff } = &found.changed[0].changes[0] else {
        panic!("{found:?}");
    };
    assert!(diff.contains("-  added: x"), "{diff}");
}

#[tokio::test]
async fn a_request_that_cannot_be_made_is_a_change() {
    let capture = Capture {
        header: header("serve"),
        records: vec![Record {
            request: json!({"operation": "SHOUT"}),
            ..Record::default()
        }],
    };
    let replay = Replay::on_cluster(&cluster(&policy(1)), None, &capture);
    let found = report(&replay, &capture).await;
    assert!(
        matches!(&found.changed[0].changes[0], Change::Error { message } if message.contains("SHOUT"))
    );
}
