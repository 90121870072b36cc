use lockgate_webhook::{Validator, webhook};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Thing;

struct Hook;

#[webhook(
    name = "things.policy.example.com",
    groups(example.com),
    versions(v1),
    resources(things),
    path = "/things",
)]
impl Validator<Thing> for Hook {}

fn main() {}
