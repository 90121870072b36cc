//! FlowSchemas and their matching.
//!
//! UPSTREAM: apiserver pkg/util/flowcontrol/rule.go

use lockgate_api::admission::UserInfo;
use serde_json::Value;

use crate::http::request_info::Target;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestDigest<'r> {
    Resource(&'r Target),
    Path { verb: &'r str, path: &'r str },
}

impl RequestDigest<'_> {
    /// The namespace of the request; empty if not namespaced.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Resource(target) => &target.namespace,
            Self::Path { .. } => "",
        }
    }
}

/// The request attribute that distinguishes the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distinguisher {
    None,
    User,
    Namespace,
}

/// A FlowSchema.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) level: String,
    precedence: i64,
    pub(super) distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    Everybody,
    User(String),
    Group(String),
    /// Without a name, all ServiceAccounts of the namespace.
    ServiceAccount(String, Option<String>),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    in_cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Vec<PathPattern>,
}

#[derive(Debug)]
enum PathPattern {
    All,
    /// The path itself, and all paths below it.
    Below {
        path: String,
        prefix: String,
    },
}

/// A list of names, or the wildcard.
#[derive(Debug)]
enum Names {
    All,
    These(Vec<String>),
}

impl Names {
    fn read(rule: &Value, member: &str) -> Self {
        let names = texts(rule, member);
        match names.as_slice() {
            [one] if one == "*" => Self::All,
            _ => Self::These(names),
        }
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|known| known == name),
        }
    }

    /// Returns true if they contain a resource, or the subresource of one.
    fn contains_resource(&self, resource: &str, subresource: &str) -> bool {
        let is = |known: &String| match subresource {
            "" => known == resource,
            _ => known
                .strip_prefix(resource)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| rest == subresource),
        };
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(is),
        }
    }
}

impl Schema {
    pub(super) fn read(name: &str, object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let method = spec.pointer("/distinguisherMethod/type");
        let precedence = spec.get("matchingPrecedence").and_then(Value::as_i64);
        let level = spec.pointer("/priorityLevelConfiguration/name");
        Self {
            name: name.to_owned(),
            level: level.and_then(Value::as_str).unwrap_or_default().to_owned(),
            precedence: precedence.unwrap_or(1000),
            distinguisher: match method.and_then(Value::as_str) {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: items(spec, "rules").iter().map(Rule::read).collect(),
        }
    }

    /// The matching order: by precedence, then by name.
    pub(super) fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }

    pub(super) fn has_resource_rules(&self) -> bool {
        self.rules.iter().any(|rule| !rule.resources.is_empty())
    }

    pub(super) fn has_path_rules(&self) -> bool {
        self.rules.iter().any(|rule| !rule.paths.is_empty())
    }

    pub(super) fn matches(&self, user: &UserInfo, digest: &RequestDigest<'_>) -> bool {
        self.rules.iter().any(|rule| {
            rule.matches_request(digest) && rule.subjects.iter().any(|subject| subject.is(user))
        })
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let subjects = items(rule, "subjects").iter();
        let resources = items(rule, "resourceRules").iter();
        let paths = items(rule, "nonResourceRules").iter();
        Self {
            subjects: subjects.filter_map(Subject::read).collect(),
            resources: resources.map(ResourceRule::read).collect(),
            paths: paths.map(PathRule::read).collect(),
        }
    }

    fn matches_request(&self, digest: &RequestDigest<'_>) -> bool {
        match digest {
            RequestDigest::Resource(target) => {
                self.resources.iter().any(|rule| rule.matches(target))
            }
            RequestDigest::Path { verb, path } => {
                self.paths.iter().any(|rule| rule.matches(verb, path))
            }
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            let text = subject.pointer(pointer).and_then(Value::as_str);
            text.map(str::to_owned)
        };
        let name_or_all = |name: String, make: fn(String) -> Self| match &*name {
            "*" => Self::Everybody,
            _ => make(name),
        };
        match subject.get("kind")?.as_str()? {
            "User" => Some(name_or_all(text("/user/name")?, Self::User)),
            "Group" => Some(name_or_all(text("/group/name")?, Self::Group)),
            "ServiceAccount" => {
                let namespace = text("/serviceAccount/namespace")?;
                let name = text("/serviceAccount/name")?;
                let name = (name != "*").then_some(name);
                Some(Self::ServiceAccount(namespace, name))
            }
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::Everybody => true,
            Self::User(name) => user.username == *name,
            Self::Group(name) => {
                let mut groups = user.groups.iter().flatten();
                groups.any(|group| group == name)
            }
            Self::ServiceAccount(namespace, name) => {
                let account = user.username.strip_prefix(SERVICE_ACCOUNT);
                let own = account
                    .and_then(|account| account.strip_prefix(namespace.as_str()))
                    .and_then(|rest| rest.strip_prefix(':'));
                own.is_some_and(|own| name.as_ref().is_none_or(|name| own == name))
            }
        }
    }
}

impl ResourceRule {
    fn read(rule: &Value) -> Self {
        Self {
            verbs: Names::read(rule, "verbs"),
            groups: Names::read(rule, "apiGroups"),
            resources: Names::read(rule, "resources"),
            namespaces: Names::read(rule, "namespaces"),
            in_cluster: rule.get("clusterScope").and_then(Value::as_bool) == Some(true),
        }
    }

    fn matches(&self, target: &Target) -> bool {
        let has_scope = || match &*target.namespace {
            "" => self.in_cluster,
            namespace => self.namespaces.contains(namespace),
        };
        self.verbs.contains(target.verb.name())
            && self
                .resources
                .contains_resource(&target.resource, &target.subresource)
            && self.groups.contains(&target.group)
            && has_scope()
    }
}

impl PathRule {
    fn read(rule: &Value) -> Self {
        let pattern = |path: String| {
            if path == "*" {
                return PathPattern::All;
            }
            let mut prefix = path.strip_suffix('*').unwrap_or(&path).to_owned();
            if !prefix.ends_with('/') {
                prefix.push('/');
            }
            PathPattern::Below { path, prefix }
        };
        let paths = texts(rule, "nonResourceURLs").into_iter();
        Self {
            verbs: Names::read(rule, "verbs"),
            paths: paths.map(pattern).collect(),
        }
    }

    fn matches(&self, verb: &str, asked: &str) -> bool {
        self.verbs.contains(verb)
            && self.paths.iter().any(|pattern| match pattern {
                PathPattern::All => true,
                PathPattern::Below { path, prefix } => path == asked || asked.starts_with(prefix),
            })
    }
}

fn items<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    let items = value.get(member).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, member: &str) -> Vec<String> {
    let texts = items(value, member).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
