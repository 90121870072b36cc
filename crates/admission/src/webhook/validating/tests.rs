use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::*;
use crate::configuration::Candidates;
use crate::host::{Clock, SystemClock};
use crate::testing::{NoCaller, create, ignoring};

fn webhooks(host: Host, webhooks: &[&str]) -> ValidatingWebhooks {
    let plugin = ValidatingWebhooks::new(host);
    let configuration = ignoring(ConfigurationKind::Validating, webhooks);
    plugin.configurations().upsert(&configuration);
    plugin
}

#[tokio::test]
async fn a_webhook_that_is_indexed_and_gone_is_a_denial() {
    let host = Host::new(Arc::new(NoCaller));
    let plugin = webhooks(host.clone(), &["a.example.com"]);
    let relevant = Relevant {
        snapshot: plugin.configurations().snapshot(),
        candidates: Candidates::all(2),
    };
    let mut admission = Admission::new(create());
    let mut matcher = Matcher::new(&host, admission.request());
    let selected = plugin.select(&mut admission, &relevant, &mut matcher).await;
    let Err(decision) = selected else {
        panic!("selected");
    };
    let status = decision.status().unwrap();
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            500,
            "Internal error occurred: webhook 1 is indexed but not registered"
        )
    );
}

/// A clock that panics after a number of readings.
struct Breaks {
    after: AtomicIsize,
}

impl Clock for Breaks {
    fn now(&self) -> Instant {
        assert!(self.after.fetch_sub(1, Relaxed) > 0, "the clock is broken");
        SystemClock.now()
    }
}

#[tokio::test]
async fn a_call_that_is_lost_is_a_denial_though_failures_are_ignored() {
    let mut host = Host::new(Arc::new(NoCaller));
    let names = ["a.example.com", "b.example.com"];
    let mut admission = Admission::new(create());
    let ignored = webhooks(host.clone(), &names);
    assert!(ignored.validate(&mut admission).await.is_allowed());

    // It is read twice before the calls start.
    host.clock = Arc::new(Breaks {
        after: AtomicIsize::new(2),
    });
    let plugin = webhooks(host, &names);
    let mut admission = Admission::new(create());
    let Decision::Deny(denial) = plugin.validate(&mut admission).await else {
        panic!("allowed");
    };
    assert_eq!((denial.status.code, denial.cause), (500, Cause::Internal));
    assert!(
        denial.status.message.ends_with(".example.com\" was lost"),
        "{}",
        denial.status.message
    );
    assert!(admission.in_progress.calls.is_empty());
    let recorded = admission.running.hooks.iter().filter_map(|hook| {
        let call = hook.call.as_ref()?;
        Some(matches!(call.outcome, CallOutcome::Refused(_)))
    });
    assert_eq!(recorded.collect::<Vec<_>>(), [true, true]);
}
