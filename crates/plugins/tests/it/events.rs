//! Events, and their rate limits.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockgate_admission::host::Clock;
use lockgate_plugins::event_rate_limit::Configuration;
use lockgate_plugins::{EventRateLimit, config};
use serde_json::json;

use crate::kit::{Asked, validate};

/// A manual clock.
#[derive(Clone)]
pub(crate) struct Stopped(Arc<Mutex<Instant>>);

impl Stopped {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for Stopped {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

fn event(name: &str) -> Asked {
    Asked::new("CREATE", "events", "Event").object(json!({
        "metadata": {"name": "e"},
        "source": {"component": "kubelet", "host": "n1"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": name, "uid": "u", "apiVersion": "v1"},
    }))
}

fn limits(text: &str) -> (EventRateLimit, Stopped) {
    let clock = Stopped::new();
    let config: Configuration = config::read(text).unwrap();
    let plugin = EventRateLimit::with_clock(config, Arc::new(clock.clone())).unwrap();
    (plugin, clock)
}

fn over(what: &str) -> Result<(), (i32, String)> {
    Err((429, format!("Too many requests: {what}")))
}

#[tokio::test]
async fn a_burst_is_let_through_and_then_the_rate() {
    let (plugin, clock) = limits("limits: [{type: Server, qps: 2, burst: 3}]");
    let refused = over("limit reached on type Server for key ");
    for _ in 0..3 {
        assert_eq!(validate(&plugin, &event("a")).await, Ok(()));
    }
    assert_eq!(validate(&plugin, &event("a")).await, refused);
    clock.pass(Duration::from_millis(499));
    assert_eq!(validate(&plugin, &event("a")).await, refused);
    clock.pass(Duration::from_millis(1));
    assert_eq!(validate(&plugin, &event("a")).await, Ok(()));
    assert_eq!(validate(&plugin, &event("a")).await, refused);
    // A long idle period fills the bucket only to its capacity.
    clock.pass(Duration::from_secs(3600));
    for _ in 0..3 {
        assert_eq!(validate(&plugin, &event("a")).await, Ok(()));
    }
    assert_eq!(validate(&plugin, &event("a")).await, refused);
    let dry = Asked {
        dry_run: true,
        ..event("a")
    };
    assert_eq!(validate(&plugin, &dry).await, Ok(()));
}

#[tokio::test]
async fn every_key_has_a_bucket_of_its_own() {
    let namespace = |namespace| Asked {
        namespace,
        ..event("a")
    };
    let user = |user| Asked { user, ..event("a") };
    for (limit_type, one, other, key) in [
        ("Namespace", namespace("n1"), namespace("n2"), "n1"),
        ("User", user("jane"), user("joe"), "jane"),
        (
            "SourceAndObject",
            event("a"),
            event("b"),
            "kubeletn1Podshopauv1",
        ),
    ] {
        let (plugin, _) = limits(&format!(
            "limits: [{{type: {limit_type}, qps: 1, burst: 1}}]"
        ));
        let refused = over(&format!("limit reached on type {limit_type} for key {key}"));
        assert_eq!(validate(&plugin, &one).await, Ok(()));
        assert_eq!(validate(&plugin, &one).await, refused);
        assert_eq!(validate(&plugin, &other).await, Ok(()));
    }
}

#[tokio::test]
async fn a_forgotten_bucket_comes_back_full() {
    let (plugin, _) = limits("limits: [{type: User, qps: 1, burst: 1, cacheSize: 1}]");
    let user = |user| Asked { user, ..event("a") };
    for name in ["a", "b", "a", "b"] {
        assert_eq!(validate(&plugin, &user(name)).await, Ok(()));
    }
    let refused = over("limit reached on type User for key b");
    assert_eq!(validate(&plugin, &user("b")).await, refused);
}

#[tokio::test]
async fn every_limit_counts_and_all_of_them_are_named() {
    let text = "limits: [{type: Server, qps: 1, burst: 2}, {type: User, qps: 1, burst: 1}]";
    let (plugin, _) = limits(text);
    assert_eq!(validate(&plugin, &event("a")).await, Ok(()));
    let user = "limit reached on type User for key jane";
    assert_eq!(validate(&plugin, &event("a")).await, over(user));
    let both = format!("[limit reached on type Server for key , {user}]");
    assert_eq!(validate(&plugin, &event("a")).await, over(&both));
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for (text, want) in [
        (
            "limits: []",
            "limits: Invalid value: null: must not be empty",
        ),
        ("{}", "limits: Invalid value: null: must not be empty"),
        (
            "limits: [{type: User, qps: 0, burst: 1}]",
            "limits[0].qps: Invalid value: 0: must be positive",
        ),
        (
            "limits: [{type: User, qps: 1, burst: -1}]",
            "limits[0].burst: Invalid value: -1: must be positive",
        ),
        (
            "limits: [{type: User, qps: 1, burst: 1, cacheSize: -1}]",
            "limits[0].cacheSize: Invalid value: -1: must not be negative",
        ),
    ] {
        let error = EventRateLimit::new(config::read(text).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
    let unknown = config::read::<Configuration>("limits: [{type: Nobody, qps: 1, burst: 1}]");
    assert!(
        unknown
            .unwrap_err()
            .to_string()
            .contains("unknown variant `Nobody`")
    );
}
