//! The audit policy: the first rule that matches a request decides.

use lockgate_admission::audit::Level;
use lockgate_api::admission::UserInfo;
use lockgate_api::document::yaml;
use serde_json::Value;

use crate::http::request_info::Target;

/// An error in an audit policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// An unknown level.
#[derive(Debug, thiserror::Error)]
#[error("unknown level `{0}`, expected None, Metadata, Request or RequestResponse")]
struct UnknownLevel(String);

/// An audit policy.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
}

/// A rule of an audit policy.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

const LEVELS: [(&str, Level); 4] = [
    ("None", Level::None),
    ("Metadata", Level::Metadata),
    ("Request", Level::Request),
    ("RequestResponse", Level::RequestResponse),
];

/// The name of a level.
pub(super) fn level_name(level: Level) -> &'static str {
    LEVELS
        .iter()
        .find(|(_, known)| *known == level)
        .map_or("None", |(name, _)| name)
}

impl Policy {
    /// All requests at level Metadata: the default without a policy.
    pub(crate) fn metadata() -> Self {
        Self {
            rules: vec![Rule::new(Level::Metadata)],
            omit_stages: vec![String::from("RequestReceived")],
        }
    }

    /// Reads a policy file.
    pub(crate) fn parse(text: &str) -> Result<Self, PolicyError> {
        let document = yaml::parse(text).map_err(|error| PolicyError(error.message))?;
        let value: Value = serde_json::from_str(&document.root().to_json())
            .map_err(|error| PolicyError(error.to_string()))?;
        let of = |member: &str| {
            value
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        if of("kind") != "Policy" || of("apiVersion") != "audit.k8s.io/v1" {
            return Err(PolicyError(format!(
                "expected kind `Policy` of `audit.k8s.io/v1`, found `{}` of `{}`",
                of("kind"),
                of("apiVersion")
            )));
        }
        let omit_managed_fields = value
            .get("omitManagedFields")
            .and_then(Value::as_bool)
            .unwrap_or_default();
        let rules = value
            .get("rules")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if rules.is_empty() {
            return Err(PolicyError(String::from("there must be at least one rule")));
        }
        let rules = rules
            .iter()
            .enumerate()
            .map(|(index, rule)| {
                Rule::read(rule, omit_managed_fields)
                    .map_err(|why| PolicyError(format!("rules[{index}]: {why}")))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            rules,
            omit_stages: texts(&value, "omitStages"),
        })
    }

    /// Returns true if a stage is never logged.
    pub(super) fn omits(&self, stage: &str) -> bool {
        self.omit_stages.iter().any(|omitted| omitted == stage)
    }

    /// The rule for a request.
    pub(super) fn rule(
        &self,
        user: &UserInfo,
        verb: &str,
        target: Option<&Target>,
        path: &str,
    ) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| rule.matches(user, verb, target, path))
    }
}

fn texts(value: &Value, member: &str) -> Vec<String> {
    let items = value
        .get(member)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

impl Rule {
    fn new(level: Level) -> Self {
        Self {
            level,
            users: Vec::new(),
            groups: Vec::new(),
            verbs: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            paths: Vec::new(),
            omit_stages: Vec::new(),
            omit_managed_fields: false,
        }
    }

    fn read(value: &Value, omit_managed_fields: bool) -> Result<Self, UnknownLevel> {
        let name = value
            .get("level")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let level = LEVELS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, level)| *level);
        let level = level.ok_or_else(|| UnknownLevel(name.to_owned()))?;
        let resources = value
            .get("resources")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Ok(Self {
            level,
            users: texts(value, "users"),
            groups: texts(value, "userGroups"),
            verbs: texts(value, "verbs"),
            resources: resources
                .map(|item| GroupResources {
                    group: item
                        .get("group")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned(),
                    resources: texts(item, "resources"),
                    names: texts(item, "resourceNames"),
                })
                .collect(),
            namespaces: texts(value, "namespaces"),
            paths: texts(value, "nonResourceURLs"),
            omit_stages: texts(value, "omitStages"),
            omit_managed_fields: value
                .get("omitManagedFields")
                .and_then(Value::as_bool)
                .unwrap_or(omit_managed_fields),
        })
    }

    /// Returns true if a stage is not logged.
    pub(super) fn omits(&self, stage: &str) -> bool {
        self.omit_stages.iter().any(|omitted| omitted == stage)
    }

    /// A body for the log.
    pub(super) fn trim(&self, body: &Value) -> Value {
        let mut body = body.clone();
        if self.omit_managed_fields {
            let drop = |object: &mut Value| {
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            };
            drop(&mut body);
            let items = body.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(drop);
        }
        body
    }

    fn matches(&self, user: &UserInfo, verb: &str, target: Option<&Target>, path: &str) -> bool {
        let any = |list: &[String], wanted: &str| {
            list.is_empty() || list.iter().any(|item| item == wanted)
        };
        let groups = user.groups.as_deref().unwrap_or_default();
        if !any(&self.users, &user.username)
            || !any(&self.verbs, verb)
            || !(self.groups.is_empty() || self.groups.iter().any(|group| groups.contains(group)))
        {
            return false;
        }
        let only_paths = !self.paths.is_empty();
        let only_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        match target {
            None => {
                !only_resources
                    && (!only_paths || self.paths.iter().any(|pattern| is_path(pattern, path)))
            }
            Some(target) => {
                !only_paths
                    && any(&self.namespaces, &target.namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|rule| rule.matches(target)))
            }
        }
    }
}

fn is_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

impl GroupResources {
    fn matches(&self, target: &Target) -> bool {
        if self.group != target.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.names.is_empty() || self.names.contains(&target.name);
        let whole = if target.subresource.is_empty() {
            target.resource.clone()
        } else {
            format!("{}/{}", target.resource, target.subresource)
        };
        named
            && self.resources.iter().any(|rule| {
                rule == "*"
                    || *rule == whole
                    || rule
                        .strip_prefix("*/")
                        .is_some_and(|sub| sub == target.subresource)
                    || rule.strip_suffix("/*").is_some_and(|resource| {
                        resource == target.resource && !target.subresource.is_empty()
                    })
            })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::http::query::Query;
    use crate::http::request_info::RequestInfo;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [robot]}
- {level: None, nonResourceURLs: ['/healthz*']}
- {level: Metadata, resources: [{group: '', resources: [secrets, pods/log]}]}
- {level: Request, verbs: [create], namespaces: [shop]}
- {level: RequestResponse, resources: [{group: apps}], userGroups: [dev]}
- {level: Metadata}
";

    fn level(method: Method, path: &str, user: &str, group: &str) -> Level {
        let policy = Policy::parse(POLICY).unwrap();
        let user = UserInfo {
            username: user.to_owned(),
            groups: Some(vec![group.to_owned()]),
            ..UserInfo::default()
        };
        let (verb, target) = match RequestInfo::read(&method, path, &Query::default()).unwrap() {
            RequestInfo::Resource(target) | RequestInfo::Unrouted(target) => {
                (target.verb.name(), Some(target))
            }
            RequestInfo::NonResource { .. } => ("get", None),
        };
        policy
            .rule(&user, verb, target.as_ref(), path)
            .unwrap()
            .level
    }

    #[test]
    fn lets_the_first_rule_decide() {
        for (method, path, user, group, want) in [
            (Method::GET, "/api/v1/pods", "robot", "", Level::None),
            (Method::GET, "/healthz/etcd", "ann", "", Level::None),
            (Method::GET, "/version", "ann", "", Level::Metadata),
            (
                Method::POST,
                "/api/v1/namespaces/shop/secrets",
                "ann",
                "",
                Level::Metadata,
            ),
            (
                Method::GET,
                "/api/v1/namespaces/shop/pods/p/log",
                "ann",
                "",
                Level::Metadata,
            ),
            (
                Method::POST,
                "/api/v1/namespaces/shop/pods",
                "ann",
                "",
                Level::Request,
            ),
            (
                Method::PUT,
                "/apis/apps/v1/namespaces/shop/deployments/d",
                "ann",
                "dev",
                Level::RequestResponse,
            ),
            (
                Method::PUT,
                "/apis/apps/v1/namespaces/shop/deployments/d",
                "ann",
                "ops",
                Level::Metadata,
            ),
        ] {
            assert_eq!(
                level(method, path, user, group),
                want,
                "{path} {user} {group}"
            );
        }
        assert!(Policy::parse(POLICY).unwrap().omits("RequestReceived"));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, want) in [
            (
                "kind: Pod",
                "expected kind `Policy` of `audit.k8s.io/v1`, found `Pod` of ``",
            ),
            (
                "{kind: Policy, apiVersion: audit.k8s.io/v1}",
                "there must be at least one rule",
            ),
            (
                "{kind: Policy, apiVersion: audit.k8s.io/v1, rules: [{level: Everything}]}",
                "rules[0]: unknown level `Everything`, expected None, Metadata, Request or RequestResponse",
            ),
        ] {
            assert_eq!(Policy::parse(text).unwrap_err().to_string(), want);
        }
    }
}
