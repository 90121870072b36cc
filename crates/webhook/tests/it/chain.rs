//! Chains of webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use lockgate_webhook::testing::Review;
use lockgate_webhook::{
    Context, Denial, Fault, Mutator, Mutators, Object, Registration, Validator, Validators,
    Verdict, Webhooks, mutating, validating,
};
use serde_json::json;

use crate::support::CONFIG_MAP;

/// Appends a letter to a key, which shows the order.
struct Append(&'static str);

impl Mutator<ConfigMap> for Append {
    async fn mutate(&self, _: &Context, object: &mut ConfigMap) -> Verdict {
        let data = object.data.get_or_insert_default();
        data.entry("order".into()).or_default().push_str(self.0);
        Ok(())
    }
}

struct Deny(&'static str);

impl Mutator<ConfigMap> for Deny {
    async fn mutate(&self, _: &Context, _: &mut ConfigMap) -> Verdict {
        Err(Denial::forbidden(self.0).into())
    }
}

impl Validator<ConfigMap> for Deny {
    async fn create(&self, _: &Context, _: &Object<ConfigMap>) -> Verdict {
        Err(Denial::forbidden(self.0)
            .cause("Why", self.0, "because")
            .into())
    }
}

struct Broken(Arc<AtomicUsize>);

impl Validator<ConfigMap> for Broken {
    async fn create(&self, _: &Context, _: &Object<ConfigMap>) -> Verdict {
        Err(Fault::new("away").into())
    }

    async fn delete(&self, _: &Context, _: &Object<ConfigMap>) -> Verdict {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn mutators(mutators: Mutators<ConfigMap>) -> Webhooks {
    let registration = Registration::mutating("a.b.c").path("/");
    Webhooks::new().with(registration, mutating::<ConfigMap, _>(mutators))
}

fn validators(validators: Validators<ConfigMap>) -> Webhooks {
    let registration = Registration::validating("a.b.c").path("/");
    Webhooks::new().with(registration, validating::<ConfigMap, _>(validators))
}

#[tokio::test]
async fn mutators_see_what_those_before_did_and_make_one_patch() {
    let webhooks = mutators(Mutators::new().then(Append("a")).then(Append("b")));
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    let add = json!([{"op": "add", "path": "/data", "value": {"order": "ab"}}]);
    outcome.accepts().patch(&add);
}

#[tokio::test]
async fn a_mutator_that_denies_ends_the_chain() {
    let webhooks = mutators(
        Mutators::new()
            .then(Append("a"))
            .then(Deny("no"))
            .then(Deny("later")),
    );
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    outcome.rejects_with("no").unpatched();
    assert_eq!(outcome.response()["status"]["message"], "no");
}

#[tokio::test]
async fn all_validators_are_heard() {
    let webhooks = validators(Validators::new().and(Deny("one")).and(Deny("two")));
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    outcome.rejects_with("one; two").rejects_with_code(403);
    let causes = &outcome.response()["status"]["details"]["causes"];
    assert_eq!(causes.as_array().map(Vec::len), Some(2), "{causes}");
    // Operations without a handler are allowed.
    let outcome = Review::update(CONFIG_MAP, CONFIG_MAP)
        .ask(&webhooks, "/")
        .await;
    outcome.accepts();
    let empty = validators(Validators::new());
    Review::create(CONFIG_MAP).ask(&empty, "/").await.accepts();
}

#[tokio::test]
async fn what_one_validator_cannot_decide_is_not_decided() {
    let asked = Arc::new(AtomicUsize::new(0));
    let chain = Validators::new()
        .and(Deny("no"))
        .and(Broken(Arc::clone(&asked)));
    let webhooks = validators(chain);
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    outcome.faults_with("away");
    Review::delete(CONFIG_MAP)
        .ask(&webhooks, "/")
        .await
        .accepts();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
