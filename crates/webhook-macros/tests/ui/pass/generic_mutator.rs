use lockgate_webhook::{Context, Marked, Mutates, Verdict, Webhooks, webhook};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Thing<T>(T);

struct Hook<F, T>(F, T);

/// The trait may be a path, and other attributes may be present.
#[webhook(name = "things.policy.example.com", groups(core), versions(v1), resources(things), path = "/t")]
#[allow(clippy::all)]
impl<F, T> lockgate_webhook::Mutator<Thing<Vec<String>>> for Hook<F, T>
where
    F: Fn(&str) -> bool + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    async fn mutate(&self, _: &Context, _: &mut Thing<Vec<String>>) -> Verdict {
        Ok(())
    }
}

fn registered<M: Marked<Mutates<Thing<Vec<String>>>>>(_: &M) -> lockgate_webhook::Registration {
    M::registration()
}

fn main() {
    let hook = Hook(|_: &str| true, 1);
    let rule = &registered(&hook).webhook.rules.unwrap()[0];
    assert_eq!(rule.operations.as_ref().unwrap(), &["CREATE", "UPDATE"]);
    assert_eq!(rule.api_groups.as_ref().unwrap(), &[""]);
    let webhooks = Webhooks::new().mutating::<Thing<Vec<String>>, _>(hook);
    assert!(webhooks.at("/t").is_some());
}
