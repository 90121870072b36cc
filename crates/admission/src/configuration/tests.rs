use std::sync::atomic::AtomicUsize;

use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::Webhook;
use lockgate_api::registration::hub::{self, ClientConfig};

use super::*;
use crate::call::{Caller, Client, ClientError};
use crate::host::Equivalent;
use crate::request::{Operation, resource};

fn webhook(name: &str) -> Webhook {
    Webhook {
        name: name.to_owned(),
        ..Webhook::default()
    }
}

fn rule(operations: &[&str], groups: &[&str], resources: &[&str]) -> hub::Rule {
    let texts = |list: &[&str]| Some(list.iter().map(|text| String::from(*text)).collect());
    hub::Rule {
        operations: texts(operations),
        api_groups: texts(groups),
        api_versions: texts(&["*"]),
        resources: texts(resources),
        scope: None,
    }
}

fn configuration(name: &str, webhooks: Vec<Webhook>) -> Configuration {
    Configuration {
        kind: ConfigurationKind::Mutating,
        metadata: ObjectMeta {
            name: name.to_owned(),
            ..ObjectMeta::default()
        },
        webhooks: Some(webhooks),
    }
}

fn identities(configurations: &Configurations) -> Vec<String> {
    let snapshot = configurations.snapshot();
    snapshot
        .hooks()
        .iter()
        .map(|hook| hook.identity().to_owned())
        .collect()
}

#[test]
fn orders_by_configuration_name_and_counts_repeated_names() {
    let all = Configurations::new(ConfigurationKind::Mutating);
    all.upsert(&configuration(
        "b",
        vec![webhook("z"), webhook("y"), webhook("z")],
    ));
    all.upsert(&configuration("B", vec![webhook("x")]));
    all.upsert(&configuration("a-1", vec![webhook("x")]));
    all.upsert(&configuration("a", vec![webhook("x")]));
    all.replace_static(&[configuration("z.static.k8s.io", vec![webhook("s")])]);
    assert_eq!(
        identities(&all),
        [
            "manifest/z.static.k8s.io/s/0",
            "B/x/0",
            "a/x/0",
            "a-1/x/0",
            "b/z/0",
            "b/y/0",
            "b/z/1"
        ]
    );
    assert_eq!(all.snapshot().static_hooks().len(), 1);
    all.remove("b");
    assert_eq!(identities(&all).len(), 4);
}

#[test]
fn leaves_configurations_of_the_other_kind_alone() {
    let all = Configurations::new(ConfigurationKind::Validating);
    all.upsert(&configuration("a", vec![webhook("x")]));
    all.replace(&[configuration("b", vec![webhook("x")])]);
    assert!(all.snapshot().hooks().is_empty());
}

#[test]
fn a_snapshot_is_never_older_than_a_write_that_returned_and_stays_as_it_was() {
    let all = Configurations::new(ConfigurationKind::Mutating);
    all.upsert(&configuration("a", vec![webhook("x")]));
    let before = all.snapshot();
    assert!(Arc::ptr_eq(&before, &all.snapshot()));
    all.upsert(&configuration("b", vec![webhook("x")]));
    assert_eq!(before.hooks().len(), 1);
    assert_eq!(all.snapshot().hooks().len(), 2);
}

#[test]
fn unchanged_hooks_keep_their_compiled_form() {
    let all = Configurations::new(ConfigurationKind::Mutating);
    all.upsert(&configuration("a", vec![webhook("x"), webhook("y")]));
    let before = all.snapshot();
    let changed = Webhook {
        failure_policy: Some(String::from("Ignore")),
        ..webhook("y")
    };
    all.upsert(&configuration("a", vec![webhook("x"), changed]));
    let after = all.snapshot();
    assert!(Arc::ptr_eq(&before.hooks()[0], &after.hooks()[0]));
    assert!(!Arc::ptr_eq(&before.hooks()[1], &after.hooks()[1]));
}

struct Refusing(AtomicUsize);

impl Caller for Refusing {
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let url = config.url.as_deref().unwrap_or_default();
        Err(match url.strip_prefix("Unparsable URL: ") {
            Some(problem) => ClientError::UnparsableUrl(problem.to_owned()),
            None => ClientError::Other(url.to_owned()),
        })
    }
}

fn with_url(url: &str) -> Webhook {
    let mut webhook = webhook("h.example.com");
    webhook.client_config.url = Some(url.to_owned());
    webhook
}

#[test]
fn a_client_that_cannot_be_made_stays_so_until_the_configuration_is_written_again() {
    let all = Configurations::new(ConfigurationKind::Mutating);
    let caller = Refusing(AtomicUsize::new(0));
    all.upsert(&configuration("a", vec![with_url("x")]));
    for _ in 0..3 {
        assert!(all.snapshot().hooks()[0].client(&caller).is_err());
    }
    assert_eq!(caller.0.load(Ordering::Relaxed), 1);
    all.upsert(&configuration("a", vec![with_url("x")]));
    assert!(all.snapshot().hooks()[0].client(&caller).is_err());
    assert_eq!(caller.0.load(Ordering::Relaxed), 2);
}

#[test]
fn names_the_webhook_where_upstream_does() {
    for (webhook, want) in [
        (
            webhook("h.example.com"),
            "failed calling webhook \"h.example.com\": webhook configuration must have either \
             service or URL",
        ),
        (
            with_url("Unparsable URL: no"),
            "failed calling webhook \"h.example.com\": Unparsable URL: no",
        ),
        (
            with_url("unable to load root certificates: no"),
            "unable to load root certificates: no",
        ),
    ] {
        let all = Configurations::new(ConfigurationKind::Mutating);
        all.upsert(&configuration("a", vec![webhook]));
        let snapshot = all.snapshot();
        let error = snapshot.hooks()[0]
            .client(&Refusing(AtomicUsize::new(0)))
            .err()
            .unwrap();
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn is_synced_when_everything_expected_was_told() {
    let all = Configurations::unsynced(ConfigurationKind::Mutating);
    assert!(!all.synced());
    all.set_synced();
    assert!(all.synced());
    all.expect_static();
    assert!(!all.synced() && !all.statics_synced());
    all.replace_static(&[]);
    assert!(all.synced());
}

#[test]
fn the_index_finds_what_can_match_in_order() {
    let hook = |rules| Webhook {
        rules: Some(rules),
        ..webhook("h")
    };
    let all = Configurations::new(ConfigurationKind::Mutating);
    all.upsert(&configuration(
        "a",
        vec![
            hook(vec![rule(&["CREATE"], &[""], &["pods"])]),
            hook(vec![rule(&["*"], &["*"], &["*/*"])]),
            hook(vec![rule(
                &["CREATE"],
                &["*"],
                &["pods/exec", "pods", "nodes"],
            )]),
            hook(vec![rule(&["CREATE"], &["", "apps"], &["*"])]),
            hook(vec![
                rule(&["UPDATE"], &[""], &["pods"]),
                rule(&["CREATE"], &["apps"], &["x"]),
            ]),
            hook(vec![]),
        ],
    ));
    let snapshot = all.snapshot();
    for (operation, group, plural, want) in [
        (Operation::Create, "", "pods", vec![0, 1, 2, 3]),
        (Operation::Create, "apps", "deployments", vec![1, 3]),
        (Operation::Create, "apps", "x", vec![1, 3, 4]),
        (Operation::Update, "", "pods", vec![1, 4]),
        (Operation::Delete, "", "pods", vec![1]),
        (Operation::Create, "batch", "pods", vec![1, 2]),
        (Operation::Connect, "batch", "jobs", vec![1]),
    ] {
        let resource = resource(group, "v1", plural);
        let found = snapshot.index().candidates(operation, &resource, &[]);
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            want,
            "{operation:?} {group} {plural}"
        );
    }
    let equivalents = [Equivalent {
        resource: resource("apps", "v1", "x"),
        kind: None,
    }];
    let core = resource("core", "v1", "x");
    let found = snapshot
        .index()
        .candidates(Operation::Create, &core, &equivalents);
    assert_eq!(found.iter().collect::<Vec<_>>(), [1, 3, 4]);
    let pods = Configurations::new(ConfigurationKind::Mutating);
    let rules = vec![rule(&["UPDATE"], &[""], &["pods"])];
    pods.upsert(&configuration("a", vec![hook(rules)]));
    let pods = pods.snapshot();
    assert!(pods.index().concerns("", "pods"));
    assert!(!pods.index().concerns("", "configmaps"));
    assert!(!pods.index().concerns("apps", "pods"));
}
