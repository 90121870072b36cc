use lockgate_webhook::{Context, Object, Validator, Verdict, Webhooks, webhook};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Thing;

struct Hook;

#[webhook(
    name = "things.policy.example.com",
    groups(example.com),
    versions = v1,
    resources = [things, things/status],
    path = /validate-things,
    alias = "/things",
    scope = namespaced,
    failure_policy = Ignore,
    webhook_versions(v1),
    mutating = false,
)]
impl Validator<Thing> for Hook {
    async fn create(&self, _: &Context, _: &Object<Thing>) -> Verdict {
        Ok(())
    }
}

fn main() {
    let webhooks = Webhooks::new().validating::<Thing, _>(Hook);
    assert!(webhooks.at("/things").is_some());
    let registration = webhooks.at("/validate-things").unwrap().registration();
    let rule = &registration.webhook.rules.as_ref().unwrap()[0];
    assert_eq!(rule.operations.as_ref().unwrap(), &["CREATE"]);
    assert_eq!(rule.api_groups.as_ref().unwrap(), &["example.com"]);
    assert_eq!(rule.resources.as_ref().unwrap(), &["things", "things/status"]);
    assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
    assert_eq!(registration.webhook.failure_policy.as_deref(), Some("Ignore"));
}
