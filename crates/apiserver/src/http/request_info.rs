//! Derives the verb and the target from path and method.
//!
//! ```text
//!   /api/v1/namespaces/shop/pods/web/log        /apis/apps/v1/deployments
//!        version    namespace  resource name sub      group version resource
//! ```
//!
//! UPSTREAM: apiserver pkg/endpoints/request/requestinfo.go

use http::Method;
use lockgate_api::meta::selector::Selector;

use super::field_selector;
use super::query::{Query, unescape};

/// An authorization verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// A method without a verb, such as `OPTIONS`. Only a rule with all verbs allows it, and only connect subresources
    /// serve it.
    Unknown,
    /// The verb of the removed proxy paths, which are not served any more.
    Proxy,
}

impl Verb {
    /// The name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Unknown => "",
            Self::Proxy => "proxy",
        }
    }

    /// Returns true for verbs that may change objects.
    pub(crate) fn writes(self) -> bool {
        !matches!(
            self,
            Self::Get | Self::List | Self::Watch | Self::Unknown | Self::Proxy
        )
    }

    /// Returns true if label and field selectors select its objects.
    fn selects(self) -> bool {
        matches!(self, Self::List | Self::Watch | Self::DeleteCollection)
    }
}

/// The interpretation of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestInfo {
    /// A resource.
    Resource(Target),
    /// A resource at an unserved path. It is authorized like any other, so that the response reveals nothing to
    /// unauthorized users.
    Unrouted(Target),
    /// Anything else, such as `/version`.
    NonResource {
        /// The path for authorization.
        path: String,
        /// The segments of the path.
        segments: Vec<String>,
    },
}

/// The target of a resource request. Authorization, the verb and the audit event all use it, so that they always agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The path after the subresource, for proxies.
    pub(crate) rest: Vec<String>,
}

/// Subresources directly below a namespace.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];
/// Verbs that were once part of paths: `/api/v1/watch/pods`.
const IN_PATHS: [&str; 2] = ["proxy", "watch"];

/// Subresources with long-running requests.
///
/// UPSTREAM: kubernetes pkg/controlplane/apiserver/config.go (BasicLongRunningRequestCheck)
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

impl RequestInfo {
    /// Returns true for a long-running request.
    pub(crate) fn is_long_running(&self) -> bool {
        match self {
            Self::Resource(target) | Self::Unrouted(target) => {
                matches!(target.verb, Verb::Watch | Verb::Proxy) || target.is_connection()
            }
            Self::NonResource { .. } => false,
        }
    }

    /// Parses the path and the method. `None` if the path cannot be decoded.
    pub(crate) fn read(method: &Method, path: &str, query: &Query) -> Option<Self> {
        // Decoded before splitting: an escaped slash separates segments like any other.
        let path = unescape(path, false)?;
        let texts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match texts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => {
                let own = path.strip_prefix('/').unwrap_or(&path);
                let own = own.strip_suffix('/').unwrap_or(own);
                let segments = match path.as_ref() {
                    "/" => Vec::new(),
                    _ => own.split('/').map(str::to_owned).collect(),
                };
                return Some(Self::NonResource { path, segments });
            }
        };
        let (verb_in_path, rest) = match rest {
            [verb, rest @ ..] if IN_PATHS.contains(verb) && !rest.is_empty() => (Some(*verb), rest),
            _ => (None, rest),
        };
        let (namespace, nested, rest) = match rest {
            ["namespaces", name] => (*name, false, rest),
            ["namespaces", name, sub, ..] if OF_NAMESPACES.contains(sub) => (*name, false, rest),
            ["namespaces", name, rest @ ..] if !rest.is_empty() => (*name, true, rest),
            _ => ("", false, rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default();
        let (resource, name) = (at(0), at(1));
        // The rest after the name is the path of the proxy.
        let subresource = if verb_in_path == Some("proxy") {
            ""
        } else {
            at(2)
        };
        let verb = match verb_in_path {
            Some("watch") => Verb::Watch,
            Some(_) => Verb::Proxy,
            None => verb(method, name, query),
        };
        let target = Target {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            rest: rest.iter().skip(3).map(|&part| part.to_owned()).collect(),
        };
        // `/namespaces/NAME` is a namespace, which cannot be inside another.
        let is_namespace_in_namespace = nested && group.is_empty() && resource == "namespaces";
        let is_served =
            verb_in_path.is_none() && !is_namespace_in_namespace && !path.starts_with("//");
        Some(if is_served {
            Self::Resource(target)
        } else {
            Self::Unrouted(target)
        })
    }
}

impl Target {
    /// Returns true for a subresource with long-running requests.
    pub(crate) fn is_connection(&self) -> bool {
        LONG_RUNNING.contains(&self.subresource.as_str())
    }

    /// The name for authorization and audit: from the path, or the only name that the field selector of a list or
    /// watch admits.
    pub(crate) fn asked_name(&self, query: &Query) -> String {
        if self.name.is_empty() && matches!(self.verb, Verb::List | Verb::Watch) {
            return selected_name(query).unwrap_or_default();
        }
        self.name.clone()
    }

    /// The field and label selectors for authorization.
    pub(crate) fn selectors<'q>(&self, query: &'q Query) -> (&'q str, &'q str) {
        if self.verb.selects() {
            (query.text("fieldSelector"), query.text("labelSelector"))
        } else {
            ("", "")
        }
    }
}

/// The only name that can match, if the list options are valid.
fn selected_name(query: &Query) -> Option<String> {
    let readable = ["limit", "timeoutSeconds"].into_iter().all(|number| {
        let text = query.text(number);
        text.is_empty() || text.parse::<i64>().is_ok()
    });
    if !readable || Selector::parse(query.text("labelSelector")).is_err() {
        return None;
    }
    let terms = field_selector::parse(query.text("fieldSelector")).ok()?;
    let term = terms
        .into_iter()
        .find(|term| term.equal && term.field == "metadata.name")?;
    let is_segment = !matches!(term.value.as_str(), "." | "..") && !term.value.contains(['/', '%']);
    is_segment.then_some(term.value)
}

fn verb(method: &Method, name: &str, query: &Query) -> Verb {
    let watches = || query.flag("watch") == Some(true);
    match *method {
        Method::POST => Verb::Create,
        Method::GET | Method::HEAD if !name.is_empty() => Verb::Get,
        Method::GET | Method::HEAD if watches() => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if name.is_empty() => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => Verb::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, path: &str, query: &str) -> Target {
        match RequestInfo::read(&method, path, &Query::parse(query)) {
            Some(RequestInfo::Resource(target)) => target,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_what_a_path_means() {
        for (method, path, query, want) in [
            (Method::GET, "/api/v1/pods", "", "list|||pods||"),
            (Method::GET, "/api/v1/pods", "watch=1", "watch|||pods||"),
            (Method::GET, "/api/v1/pods", "watch=false", "list|||pods||"),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods",
                "",
                "create||a|pods||",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                "",
                "get||a|namespaces|a|",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "",
                "update||a|namespaces|a|finalize",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "",
                "patch|apps|a|deployments|d|scale",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "",
                "deletecollection|apps|a|deployments||",
            ),
            (
                Method::DELETE,
                "/api/v1/nodes/n%201",
                "",
                "delete|||nodes|n 1|",
            ),
        ] {
            let target = read(method, path, query);
            let got = format!(
                "{}|{}|{}|{}|{}|{}",
                target.verb.name(),
                target.group,
                target.namespace,
                target.resource,
                target.name,
                target.subresource
            );
            assert_eq!(got, want, "{path}");
        }
    }

    #[test]
    fn keeps_the_path_of_a_proxy() {
        let target = read(Method::GET, "/api/v1/namespaces/a/pods/p/proxy/x/y", "");
        assert_eq!(target.rest, ["x", "y"]);
    }

    #[test]
    fn leaves_other_paths_alone() {
        for path in ["/version", "/api", "/api/v1", "/apis/apps/v1", "/"] {
            assert!(matches!(
                RequestInfo::read(&Method::GET, path, &Query::default()),
                Some(RequestInfo::NonResource { .. })
            ));
        }
    }

    #[test]
    fn serves_no_namespace_within_another() {
        for path in [
            "/api/v1/namespaces/team-a/namespaces",
            "/api/v1/namespaces/team-a/namespaces/victim",
            "/api/v1/namespaces/team-a/namespaces/team-a",
            "/api/v1/namespaces/team-a/namespaces/victim/finalize",
            "/api/v1/namespaces/team-a%2Fnamespaces%2Fvictim",
            "//api/v1/namespaces/victim",
            "/api/v1/watch/namespaces/team-a/pods",
        ] {
            let info = RequestInfo::read(&Method::DELETE, path, &Query::default()).unwrap();
            assert!(matches!(info, RequestInfo::Unrouted(_)), "{path}: {info:?}");
        }
        let nested = "/apis/example.com/v1/namespaces/a/namespaces/b";
        let target = read(Method::GET, nested, "");
        assert_eq!(
            (target.namespace.as_str(), target.name.as_str()),
            ("a", "b")
        );
    }

    #[test]
    fn asks_about_the_name_that_a_field_selector_requires() {
        for (method, query, want) in [
            (Method::GET, "fieldSelector=metadata.name%3Da", "a"),
            (
                Method::GET,
                "fieldSelector=metadata.name%3D%3Da,status.phase%3Db",
                "a",
            ),
            (Method::GET, "watch=1&fieldSelector=metadata.name%3Da", "a"),
            (Method::GET, "fieldSelector=metadata.name!%3Da", ""),
            (Method::GET, "fieldSelector=metadata.name%3Da%2Fb", ""),
            (Method::GET, "fieldSelector=metadata.name%3Da&limit=x", ""),
            (Method::DELETE, "fieldSelector=metadata.name%3Da", ""),
        ] {
            let query = Query::parse(query);
            let path = "/api/v1/namespaces/shop/secrets";
            match RequestInfo::read(&method, path, &query) {
                Some(RequestInfo::Resource(target)) => {
                    assert_eq!(target.asked_name(&query), want, "{query:?}");
                    assert_eq!(target.name, "");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
