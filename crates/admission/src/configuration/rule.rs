//! A compiled rule of a webhook.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/predicates/rules/rules.go

use lockgate_api::admission::GroupVersionResource;
use lockgate_api::registration::hub;
use lockgate_api::registration::policy::NamedRule;

use crate::object::same_text;
use crate::request::{Operation, Request};

/// A compiled rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    scope: Scope,
    /// One bit per operation.
    operations: u8,
    groups: Names,
    versions: Names,
    resources: Box<[ResourceName]>,
    /// The names of matching objects; empty means all.
    names: Box<[Box<str>]>,
}

/// A part of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RulePart {
    /// `operations`
    Operations,
    /// `apiGroups`
    ApiGroups,
    /// `apiVersions`
    ApiVersions,
    /// `resources`, with subresources
    Resources,
    /// `scope`
    Scope,
    /// `resourceNames`
    ResourceNames,
}

impl RulePart {
    /// The field name in the API.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::ApiGroups => "apiGroups",
            Self::ApiVersions => "apiVersions",
            Self::Resources => "resources",
            Self::Scope => "scope",
            Self::ResourceNames => "resourceNames",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Any,
    Namespaced,
    Cluster,
    /// An unknown value.
    Nowhere,
}

/// Names in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Names {
    /// `*`
    Any,
    /// A list of names.
    Listed(Box<[Box<str>]>),
}

/// A resource in a rule; `None` means `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceName {
    pub(crate) resource: Option<Box<str>>,
    subresource: Option<Box<str>>,
}

impl Rule {
    pub(crate) fn new(rule: &hub::Rule) -> Self {
        let scope = match rule.scope.as_deref() {
            None | Some("*") => Scope::Any,
            Some("Namespaced") => Scope::Namespaced,
            Some("Cluster") => Scope::Cluster,
            Some(_) => Scope::Nowhere,
        };
        let operations = rule.operations.iter().flatten();
        let operations = operations.fold(0, |bits, name| match name.as_str() {
            "*" => u8::MAX,
            name => bits | Operation::from_name(name).map_or(0, bit),
        });
        let resources = rule.resources.iter().flatten();
        Self {
            scope,
            operations,
            groups: Names::new(rule.api_groups.as_deref()),
            versions: Names::new(rule.api_versions.as_deref()),
            resources: resources.map(|entry| ResourceName::new(entry)).collect(),
            names: Box::default(),
        }
    }

    /// Compiles a rule of a policy, which may be restricted to object names.
    pub(crate) fn named(rule: &NamedRule) -> Self {
        let names = rule.resource_names.iter().flatten();
        Self {
            names: names.map(|name| name.as_str().into()).collect(),
            ..Self::new(&rule.rule)
        }
    }

    /// Returns true if the rule applies to objects of this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| **known == *name)
    }

    /// Returns `true` if the rule matches the request with the resource `resource`.
    pub(crate) fn matches(&self, request: &Request, resource: &GroupVersionResource) -> bool {
        self.covers(request.operation)
            && self.groups.has(&resource.group)
            && self.versions.has(&resource.version)
            && self
                .resources
                .iter()
                .any(|name| name.matches(&resource.resource, &request.subresource))
            && self.scope.matches(&request.namespace, resource)
    }

    /// The first part that does not match the request with the resource `resource`, and the compared value.
    pub(crate) fn first_miss(
        &self,
        request: &Request,
        resource: &GroupVersionResource,
    ) -> Option<(RulePart, String)> {
        let plural = &resource.resource;
        let has_resource = self
            .resources
            .iter()
            .any(|name| name.matches(plural, &request.subresource));
        let missed = if !self.covers(request.operation) {
            (RulePart::Operations, request.operation.name().to_owned())
        } else if !self.groups.has(&resource.group) {
            (RulePart::ApiGroups, resource.group.clone())
        } else if !self.versions.has(&resource.version) {
            (RulePart::ApiVersions, resource.version.clone())
        } else if !has_resource {
            let named = match request.subresource.as_str() {
                "" => plural.clone(),
                subresource => format!("{plural}/{subresource}"),
            };
            (RulePart::Resources, named)
        } else if !self.scope.matches(&request.namespace, resource) {
            let is_cluster = Scope::Cluster.matches(&request.namespace, resource);
            let scope = if is_cluster { "Cluster" } else { "Namespaced" };
            (RulePart::Scope, String::from(scope))
        } else if !self.has_name(&request.name) {
            (RulePart::ResourceNames, request.name.clone())
        } else {
            return None;
        };
        Some(missed)
    }

    pub(crate) fn covers(&self, operation: Operation) -> bool {
        self.operations & bit(operation) != 0
    }

    pub(crate) fn groups(&self) -> &Names {
        &self.groups
    }

    pub(crate) fn resources(&self) -> &[ResourceName] {
        &self.resources
    }
}

fn bit(operation: Operation) -> u8 {
    1 << operation as u8
}

impl Scope {
    /// A Namespace is cluster-scoped, although its request has a namespace: its own name.
    fn matches(self, namespace: &str, resource: &GroupVersionResource) -> bool {
        let is_namespaced = || {
            let is_namespace = resource.resource == "namespaces"
                && resource.group.is_empty()
                && resource.version == "v1";
            !is_namespace && !namespace.is_empty()
        };
        match self {
            Self::Any => true,
            Self::Namespaced => is_namespaced(),
            Self::Cluster => !is_namespaced(),
            Self::Nowhere => false,
        }
    }
}

impl Names {
    fn new(names: Option<&[String]>) -> Self {
        let names = names.unwrap_or_default();
        if names.iter().any(|name| name == "*") {
            Self::Any
        } else {
            Self::Listed(names.iter().map(|name| name.as_str().into()).collect())
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names) => names.iter().any(|known| same_text(known, name)),
        }
    }
}

impl ResourceName {
    fn new(entry: &str) -> Self {
        let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
        let part = |name: &str| (name != "*").then(|| name.into());
        Self {
            resource: part(resource),
            subresource: part(subresource),
        }
    }

    fn matches(&self, resource: &str, subresource: &str) -> bool {
        let fits = |part: &Option<Box<str>>, name: &str| {
            part.as_deref().is_none_or(|part| same_text(part, name))
        };
        fits(&self.resource, resource) && fits(&self.subresource, subresource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{kind, resource};

    fn texts(list: &[&str]) -> Option<Vec<String>> {
        Some(list.iter().map(|text| String::from(*text)).collect())
    }

    fn everything() -> hub::Rule {
        hub::Rule {
            operations: texts(&["*"]),
            api_groups: texts(&["*"]),
            api_versions: texts(&["*"]),
            resources: texts(&["*/*"]),
            scope: None,
        }
    }

    fn request(group: &str, version: &str, plural: &str, sub: &str, namespace: &str) -> Request {
        let resource = resource(group, version, plural);
        let mut request = Request::new(Operation::Create, kind(group, version, "K"), resource);
        request.subresource = sub.to_owned();
        request.namespace = namespace.to_owned();
        request
    }

    fn matches(rule: &hub::Rule, request: &Request) -> bool {
        Rule::new(rule).matches(request, &request.resource)
    }

    #[test]
    fn resources_match_with_their_subresources() {
        for (entries, plural, sub, want) in [
            (&["*"][..], "pods", "", true),
            (&["*"], "pods", "status", false),
            (&["pods"], "pods", "", true),
            (&["pods"], "pods", "status", false),
            (&["pods"], "services", "", false),
            (&["pods/*"], "pods", "", true),
            (&["pods/*"], "pods", "status", true),
            (&["pods/*"], "services", "", false),
            (&["*/*"], "pods", "", true),
            (&["*/*"], "pods", "exec", true),
            (&["*/scale"], "deployments", "scale", true),
            (&["*/scale"], "deployments", "", false),
            (&["*/scale"], "deployments", "status", false),
            (&["pods/status"], "pods", "status", true),
            (&["pods/status"], "pods", "", false),
            (&["services", "pods/exec"], "pods", "exec", true),
            (&["pods/a/b"], "pods", "a/b", true),
            (&[], "pods", "", false),
        ] {
            let rule = hub::Rule {
                resources: texts(entries),
                ..everything()
            };
            let request = request("", "v1", plural, sub, "ns");
            assert_eq!(matches(&rule, &request), want, "{entries:?} {plural}/{sub}");
        }
    }

    #[test]
    fn groups_and_versions_match_by_letter() {
        for (groups, versions, group, version, want) in [
            (&[""][..], &["v1"][..], "", "v1", true),
            (&[""], &["v1"], "apps", "v1", false),
            (&["*"], &["*"], "apps", "v1", true),
            (&["apps", "*"], &["v2", "v1"], "batch", "v1", true),
            (&["Apps"], &["v1"], "apps", "v1", false),
            (&["apps"], &["V1"], "apps", "v1", false),
            (&["apps"], &["v1beta1"], "apps", "v1", false),
            (&[], &["*"], "", "v1", false),
        ] {
            let rule = hub::Rule {
                api_groups: texts(groups),
                api_versions: texts(versions),
                ..everything()
            };
            let request = request(group, version, "things", "", "ns");
            assert_eq!(matches(&rule, &request), want, "{groups:?} {versions:?}");
        }
    }

    #[test]
    fn operations_match_by_letter() {
        for (operations, want) in [
            (&["*"][..], [true; 4]),
            (&["CREATE"], [true, false, false, false]),
            (&["UPDATE", "CONNECT"], [false, true, false, true]),
            (&["DELETE", "*"], [true; 4]),
            (&["create", "PATCH"], [false; 4]),
            (&[], [false; 4]),
        ] {
            let rule = hub::Rule {
                operations: texts(operations),
                ..everything()
            };
            for (operation, want) in Operation::ALL.into_iter().zip(want) {
                let mut request = request("", "v1", "pods", "", "ns");
                request.operation = operation;
                assert_eq!(
                    matches(&rule, &request),
                    want,
                    "{operations:?} {operation:?}"
                );
            }
        }
    }

    #[test]
    fn scope_follows_the_namespace_except_for_namespaces() {
        // The columns: no scope, `*`, `Namespaced`, `Cluster`, an unknown value.
        for (group, version, plural, sub, namespace, want) in [
            ("", "v1", "pods", "", "ns", [true, true, true, false, false]),
            (
                "",
                "v1",
                "pods",
                "status",
                "ns",
                [true, true, true, false, false],
            ),
            ("", "v1", "nodes", "", "", [true, true, false, true, false]),
            (
                "",
                "v1",
                "nodes",
                "proxy",
                "",
                [true, true, false, true, false],
            ),
            (
                "",
                "v1",
                "namespaces",
                "",
                "ns",
                [true, true, false, true, false],
            ),
            (
                "",
                "v1",
                "namespaces",
                "finalize",
                "ns",
                [true, true, false, true, false],
            ),
            (
                "",
                "v1",
                "namespaces",
                "",
                "",
                [true, true, false, true, false],
            ),
            (
                "",
                "v2",
                "namespaces",
                "",
                "ns",
                [true, true, true, false, false],
            ),
            (
                "example.com",
                "v1",
                "namespaces",
                "",
                "ns",
                [true, true, true, false, false],
            ),
        ] {
            let scopes = [
                None,
                Some("*"),
                Some("Namespaced"),
                Some("Cluster"),
                Some("Odd"),
            ];
            for (scope, want) in scopes.into_iter().zip(want) {
                let rule = hub::Rule {
                    scope: scope.map(String::from),
                    ..everything()
                };
                let request = request(group, version, plural, sub, namespace);
                assert_eq!(
                    matches(&rule, &request),
                    want,
                    "{scope:?} {group} {plural} {namespace}"
                );
            }
        }
    }
}
