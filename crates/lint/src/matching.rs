//! Matching without a server: rules, selectors and conditions against sample requests.

use std::collections::BTreeMap;

use lockgate_api::registration::hub::Rule;
use lockgate_cel::admission::{
    GroupVersionKind, GroupVersionResource, MatchConditions, Outcome, Request, Variables,
};
use serde_json::{Value as Json, json};

use crate::resource::{self, Resource};

/// The name label that the server sets on every namespace.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// An operation, as one bit of [`Operations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create = 1,
    Update = 2,
    Delete = 4,
    Connect = 8,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Operations(u8);

impl Operations {
    pub(crate) fn of(rule: &Rule) -> Self {
        let mut bits = 0;
        for name in rule.operations.iter().flatten() {
            for operation in Operation::ALL {
                if name == "*" || name == operation.name() {
                    bits |= operation as u8;
                }
            }
        }
        Self(bits)
    }

    pub(crate) fn has(self, operation: Operation) -> bool {
        self.0 & operation as u8 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL
            .into_iter()
            .filter(move |operation| self.has(*operation))
    }
}

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A controller in kube-system, as for the Pods of a Deployment.
    Controller,
    /// A kubelet.
    Kubelet,
}

/// A sample request.
#[derive(Debug, Clone)]
pub(crate) struct Target<'t> {
    pub(crate) operation: Operation,
    pub(crate) group: &'t str,
    pub(crate) version: &'t str,
    pub(crate) resource: &'t str,
    pub(crate) subresource: &'t str,
    pub(crate) kind: &'t str,
    /// The namespace with its labels; `None` for cluster-scoped objects.
    pub(crate) namespace: Option<(&'t str, &'t Labels)>,
    /// The object's labels.
    pub(crate) labels: &'t Labels,
    pub(crate) annotations: Option<&'t Labels>,
    pub(crate) sender: Sender,
}

static NO_LABELS: Labels = Labels::new();

impl<'t> Target<'t> {
    /// A request about a built-in resource, sent by a controller.
    pub(crate) fn of(
        resource: &'static Resource,
        operation: Operation,
        namespace: Option<(&'t str, &'t Labels)>,
    ) -> Self {
        Self {
            operation,
            group: resource.group,
            version: resource.versions.first().copied().unwrap_or_default(),
            resource: resource.plural,
            subresource: "",
            kind: resource.kind,
            namespace,
            labels: &NO_LABELS,
            annotations: None,
            sender: Sender::Controller,
        }
    }

    /// The same for an object with these labels.
    pub(crate) fn labelled(self, labels: &'t Labels) -> Self {
        Self { labels, ..self }
    }

    fn object(&self) -> Json {
        let mut metadata = json!({ "name": "example", "labels": self.labels });
        if let Some((namespace, _)) = self.namespace {
            metadata["namespace"] = json!(namespace);
        }
        if let Some(annotations) = self.annotations {
            metadata["annotations"] = json!(annotations);
        }
        let api_version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        json!({ "apiVersion": api_version, "kind": self.kind, "metadata": metadata })
    }

    /// The variable `request` of conditions.
    pub(crate) fn request(&self) -> Request {
        let kind = GroupVersionKind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
        };
        let resource = GroupVersionResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
        };
        let (username, groups) = match self.sender {
            Sender::Controller => (
                "system:serviceaccount:kube-system:replicaset-controller",
                ["system:serviceaccounts", "system:authenticated"],
            ),
            Sender::Kubelet => (
                "system:node:node-1",
                ["system:nodes", "system:authenticated"],
            ),
        };
        Request {
            kind: kind.clone(),
            resource: resource.clone(),
            sub_resource: self.subresource.to_owned(),
            request_kind: kind,
            request_resource: resource,
            request_sub_resource: self.subresource.to_owned(),
            name: String::from("example"),
            namespace: self
                .namespace
                .map(|(name, _)| name.to_owned())
                .unwrap_or_default(),
            operation: self.operation.name().to_owned(),
            username: username.to_owned(),
            groups: groups.map(String::from).to_vec(),
            ..Request::default()
        }
    }

    /// Returns false if the conditions definitely exclude the request. A condition that cannot be evaluated here
    /// may match on a server.
    pub(crate) fn passes(&self, conditions: &MatchConditions) -> bool {
        if conditions.is_empty() {
            return true;
        }
        let request = self.request().to_json();
        let object = self.object();
        let (new, old) = match self.operation {
            Operation::Create | Operation::Connect => (Some(&object), None),
            Operation::Update => (Some(&object), Some(&object)),
            Operation::Delete => (None, Some(&object)),
        };
        let variables = Variables::new(&request)
            .object(new)
            .old_object(old)
            .without_authorizer();
        let evaluated = conditions.evaluate(&variables.evaluator());
        !matches!(evaluated.outcome, Outcome::NoMatch(_))
    }
}

/// Returns true if an entry of a list is `*` or the text.
pub(crate) fn lists(list: Option<&[String]>, text: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|entry| entry == "*" || entry == text))
}

/// Returns true if an entry of `resources` covers the resource.
pub(crate) fn covers_resource(entries: Option<&[String]>, resource: &str, sub: &str) -> bool {
    entries.into_iter().flatten().any(|entry| {
        let (main, below) = entry.split_once('/').unwrap_or((entry, ""));
        let main_covers = main == "*" || main == resource;
        let below_covers = below == sub || below == "*";
        // `*` alone has no subresources, `*/*` and `pods/*` have the resource itself as well.
        main_covers && below_covers
    })
}

/// Returns true if the rule's scope has namespaced or cluster-scoped resources.
pub(crate) fn covers_scope(rule: &Rule, namespaced: bool) -> bool {
    match rule.scope.as_deref() {
        Some("Namespaced") => namespaced,
        Some("Cluster") => !namespaced,
        _ => true,
    }
}

/// The operations of a rule on a resource; empty if the rule does not cover it.
pub(crate) fn operations_on(
    rule: &Rule,
    group: &str,
    versions: Option<&[&str]>,
    resource: &str,
    sub: &str,
) -> Operations {
    let covers_version = versions.is_none_or(|versions| {
        versions
            .iter()
            .any(|version| lists(rule.api_versions.as_deref(), version))
    });
    let covered = covers_version
        && lists(rule.api_groups.as_deref(), group)
        && covers_resource(rule.resources.as_deref(), resource, sub);
    if covered {
        Operations::of(rule)
    } else {
        Operations::default()
    }
}

/// The groups and plurals named by a rule, without wildcards and subresources.
pub(crate) fn named(rule: &Rule) -> impl Iterator<Item = (&str, &str)> {
    let groups = rule
        .api_groups
        .iter()
        .flatten()
        .filter(|group| *group != "*");
    groups.flat_map(|group| {
        let resources = rule.resources.iter().flatten();
        resources
            .filter(|entry| !entry.contains('/') && *entry != "*")
            .map(move |entry| (group.as_str(), entry.as_str()))
    })
}

/// Returns true if the rule can be about a group that every cluster serves.
pub(crate) fn reaches_builtin_group(rule: &Rule) -> bool {
    rule.api_groups
        .iter()
        .flatten()
        .any(|group| group == "*" || resource::is_builtin_group(group))
}
