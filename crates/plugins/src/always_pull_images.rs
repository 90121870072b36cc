//! `AlwaysPullImages`: images are pulled anew for every pod.
//!
//! The rules are those of the plugin that is compiled into the engine; this is its form as a webhook.

use lockgate_admission::plugins;
use lockgate_api::field::aggregate;
use lockgate_webhook::{Context, Denial, Mutator, Object, Refusal, Validator, Verdict};
use serde_json::Value;

use crate::ready::{Hook, PODS, ReadyMade, mutates, validates};

/// Sets every pull policy to `Always`, and refuses pods that have another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlwaysPullImages;

impl ReadyMade for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn webhooks(&self) -> Vec<Hook> {
        let word = "always-pull-images";
        vec![
            mutates(word, *self, &[PODS]),
            validates(word, *self, &[PODS]),
        ]
    }
}

impl Mutator<Value> for AlwaysPullImages {
    async fn mutate(&self, ctx: &Context, pod: &mut Value) -> Verdict {
        let old = ctx.old_object::<Value>()?;
        if plugins::AlwaysPullImages::concerns(pod, old.as_deref()) {
            plugins::AlwaysPullImages::set_policies(pod);
        }
        Ok(())
    }
}

impl Validator<Value> for AlwaysPullImages {
    async fn create(&self, _: &Context, pod: &Object<Value>) -> Verdict {
        check(pod, None)
    }

    async fn update(&self, _: &Context, old: &Object<Value>, pod: &Object<Value>) -> Verdict {
        check(pod, Some(old))
    }
}

fn check(pod: &Value, old: Option<&Value>) -> Verdict {
    if !plugins::AlwaysPullImages::concerns(pod, old) {
        return Ok(());
    }
    match plugins::AlwaysPullImages::wrong_policies(pod) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(Refusal::from(Denial::forbidden(aggregate(&wrong)))),
    }
}
