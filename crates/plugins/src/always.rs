//! `AlwaysAdmit` and `AlwaysDeny`.

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde_json::Value;

use crate::rules::{About, Refusal, Rules, Verdict};

const EVERYTHING: About = About {
    operations: &Operation::ALL,
    group: "*",
    resources: &["*/*"],
};

/// Allows every request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlwaysAdmit;

impl Rules for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::ALL
    }

    fn mutates(&self) -> &'static [About] {
        &[EVERYTHING]
    }

    fn validates(&self) -> &'static [About] {
        &[EVERYTHING]
    }
}

/// Denies every write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlwaysDeny;

fn deny() -> Verdict {
    Err(Refusal::forbidden(
        "admission control is denying all modifications",
    ))
}

impl Rules for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::ALL
    }

    fn mutates(&self) -> &'static [About] {
        &[EVERYTHING]
    }

    fn validates(&self) -> &'static [About] {
        &[EVERYTHING]
    }

    async fn mutate(&self, _: &mut Admission, _: &mut Value) -> Verdict {
        deny()
    }

    async fn validate(&self, _: &mut Admission) -> Verdict {
        deny()
    }
}
