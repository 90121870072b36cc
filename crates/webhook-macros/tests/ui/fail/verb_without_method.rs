use lockgate_webhook::{Context, Object, Validator, Verdict, webhook};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Thing;

struct Hook;

#[webhook(
    name = "things.policy.example.com",
    verbs(create, delete),
    groups(example.com),
    versions(v1),
    resources(things),
    path = "/things",
)]
impl Validator<Thing> for Hook {
    async fn create(&self, _: &Context, _: &Object<Thing>) -> Verdict {
        Ok(())
    }
}

fn main() {}
