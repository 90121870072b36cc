//! Introspection endpoints: flags and status.

use serde_json::json;

use crate::support::*;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

#[tokio::test]
async fn policies_in_force_are_listed() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let listed = || async {
        let configz = client.get("/configz").await.expect(200);
        let of = |kind: &str| configz["lockgate"][kind].clone();
        (of("mutatingPolicies"), of("validatingPolicies"))
    };
    assert_eq!(listed().await, (json!([]), json!([])));
    assert_eq!(
        server.policies(),
        ["mutating policies: none", "validating policies: none"]
    );
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let policy = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]},
        })
    };
    let bound = |name: &str| json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    client.create(&policies, policy("first")).await;
    client.create(&policies, policy("unbound")).await;
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    client.create(&bindings, bound("first")).await;
    assert_eq!(listed().await, (json!([]), json!(["first"])));
    for number in 0..30 {
        let name = format!("p{number:02}");
        client.create(&policies, policy(&name)).await;
        client.create(&bindings, bound(&name)).await;
    }
    let told = server.policies();
    assert!(
        told[1].starts_with("validating policies: first,p00,"),
        "{told:?}"
    );
    assert!(told[1].ends_with(",p18 of 31"), "{told:?}");
    server.stop().await;
}
