use lockgate_webhook::{Context, Mutator, Verdict, webhook};
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
impl Mutator<Thing> for Hook {
    async fn mutate(&self, _: &Context, _: &mut Thing) -> Verdict {
        Ok(())
    }
}

fn main() {}
