//! No decision allocates memory.

use std::sync::Arc;

use lockgate_admission::configuration::Configurations;
use lockgate_admission::host::{BoxFuture, Host, Namespace, NamespaceError, Namespaces};
use lockgate_admission::matching::{Matcher, Selection};
use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::{Configuration, Webhook, hub};

use super::support::*;

struct One(Arc<Namespace>);

impl Namespaces for One {
    fn cached(&self, _: &str) -> Option<Arc<Namespace>> {
        Some(Arc::clone(&self.0))
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move { Err(NamespaceError::not_found(name)) })
    }
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
    let values = values.iter().map(|value| String::from(*value)).collect();
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values).filter(|values: &Vec<String>| !values.is_empty()),
    }
}

#[test]
fn deciding_allocates_nothing() {
    let selector = |requirement| {
        Some(LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![requirement]),
        })
    };
    let texts = |list: &[&str]| Some(list.iter().map(|text| String::from(*text)).collect());
    let rule = |resources: &[&str]| hub::Rule {
        operations: texts(&["CREATE", "UPDATE"]),
        api_groups: texts(&["", "apps"]),
        api_versions: texts(&["v1"]),
        resources: texts(resources),
        scope: Some(String::from("Namespaced")),
    };
    let hooks = vec![
        webhook("everything"),
        selecting(webhook("label"), "app", "web"),
        selecting(webhook("other label"), "app", "api"),
        Webhook {
            namespace_selector: selector(requirement("tier", "NotIn", &["system"])),
            ..webhook("namespace")
        },
        Webhook {
            namespace_selector: selector(requirement("tier", "Exists", &[])),
            ..webhook("other namespace")
        },
        Webhook {
            rules: Some(vec![rule(&["pods"]), rule(&["secrets", "configmaps/*"])]),
            object_selector: selector(requirement("skip", "DoesNotExist", &[])),
            ..webhook("rules")
        },
        Webhook {
            rules: Some(vec![rule(&["pods"])]),
            ..webhook("other rules")
        },
    ];
    let configurations = Configurations::new(Validating);
    configurations.upsert(&Configuration {
        kind: Validating,
        metadata: ObjectMeta::default(),
        webhooks: Some(hooks),
    });
    let snapshot = configurations.snapshot();
    let mut host = World::host();
    host.namespaces = Arc::new(One(Arc::default()));
    let host: Host = host;
    let request = create();
    let mut matcher = Matcher::new(&host, &request);
    let mut called = [false; 7];
    let counted = allocation_counter::measure(|| {
        for (called, hook) in called.iter_mut().zip(snapshot.hooks()) {
            let verdicts = matcher.decide_from_cache(hook, &request, request.object.as_ref());
            *called =
                verdicts.is_ok_and(|verdicts| matches!(verdicts.selection(), Selection::Call(_)));
        }
    });
    assert_eq!(called, [true, true, false, true, false, true, false]);
    assert_eq!(counted.count_total, 0);
}
