use lockgate_webhook::{Context, Object, Validator, Verdict, Webhooks, webhook};
use serde::{Deserialize, Serialize};

macro_rules! hook {
    ($kind:ident, $name:literal, $path:expr) => {
        #[derive(Deserialize, Serialize)]
        struct $kind;

        #[webhook(name = $name, groups(example.com), versions(v1), resources(things), path = $path)]
        impl Validator<$kind> for Hook {
            async fn delete(&self, _: &Context, _: &Object<$kind>) -> Verdict {
                Ok(())
            }
        }
    };
}

struct Hook;

hook!(Thing, "things.policy.example.com", "/things");

fn main() {
    assert!(Webhooks::new().validating::<Thing, _>(Hook).at("/things").is_some());
}
