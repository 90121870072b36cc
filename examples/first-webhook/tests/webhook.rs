//! The tests of the tutorial's webhook.

use first_webhook::webhooks;
use lockgate_webhook::testing::Review;
use lockgate_webhook_test::Cluster;

const MUTATE: &str = "/mutate-apps-v1-deployment";
const VALIDATE: &str = "/validate-apps-v1-deployment";

fn shop(replicas: i32, labels: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: shop, namespace: sales, labels: {labels}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: shop}}}}
  template:
    metadata: {{labels: {{app: shop}}}}
    spec: {{containers: [{{name: shop, image: shop:1}}]}}
"
    )
}

#[tokio::test]
async fn a_deployment_gets_a_team() {
    let review = Review::create(&shop(3, "{}")).namespace("sales");
    let outcome = review.ask(&webhooks(10), MUTATE).await;
    outcome
        .accepts()
        .warns("team is set to sales")
        .patches_to(&shop(3, "{team: sales}"));
    outcome.idempotent().await;
    outcome.preserves_unknown_fields().await;
}

#[tokio::test]
async fn a_large_deployment_is_refused() {
    let webhooks = webhooks(10);
    let large = Review::create(&shop(11, "{}"))
        .ask(&webhooks, VALIDATE)
        .await;
    large
        .rejects_with_code(422)
        .rejects_with("spec.replicas: Invalid value: 11: a team has at most 10");
    let small = Review::create(&shop(10, "{}"))
        .ask(&webhooks, VALIDATE)
        .await;
    small.accepts();
}

#[tokio::test]
async fn an_api_server_asks_both() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::start(webhooks(10)).await?;
    cluster
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: sales}}")
        .await?;
    let applied = cluster.apply(&shop(3, "{}")).await?;
    assert_eq!(applied.objects[0]["metadata"]["labels"]["team"], "sales");
    assert_eq!(
        applied.warnings,
        ["team is set to sales, after the namespace"]
    );
    let refused = cluster.apply(&shop(11, "{}")).await.unwrap_err();
    assert_eq!(refused.status.code, 422);
    assert!(refused.to_string().contains("a team has at most 10"));
    Ok(())
}
