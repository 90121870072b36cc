//! `DefaultTolerationSeconds`: pods tolerate a node that is away for a while.
//!
//! The rules are those of the plugin that is compiled into the engine; this is its form as a webhook.

use lockgate_admission::plugins;
use lockgate_webhook::{Context, Mutator, Verdict};
use serde_json::Value;

use crate::ready::{Hook, PODS, ReadyMade, mutates};

/// Adds tolerations for nodes that are not ready or not reachable, unless the pod has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultTolerationSeconds(pub plugins::DefaultTolerationSeconds);

impl ReadyMade for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn webhooks(&self) -> Vec<Hook> {
        vec![mutates("default-toleration-seconds", *self, &[PODS])]
    }
}

impl Mutator<Value> for DefaultTolerationSeconds {
    async fn mutate(&self, _: &Context, pod: &mut Value) -> Verdict {
        self.0.add_missing(pod);
        Ok(())
    }
}
