//! What a path and a method mean.
//!
//! ```text
//!   /api/v1/namespaces/shop/pods/web/log        /apis/apps/v1/deployments
//!        version    namespace  resource name sub      group version resource
//! ```
//!
//! UPSTREAM: apiserver pkg/endpoints/request/requestinfo.go

use http::Method;

use super::query::{Query, unescape};

/// What is asked of a resource. The words are those of authorization.
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
}

impl Verb {
    /// The word of the API.
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
        }
    }

    /// Whether it may change something.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestInfo {
    /// A resource.
    Resource(Target),
    /// Anything else, such as `/version`: the segments of the path.
    Other(Vec<String>),
}

/// A resource in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// What follows the subresource: the path given to a proxy.
    pub(crate) rest: Vec<String>,
}

/// Subresources that stand directly below a namespace.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Reads the path and the method. None if the path cannot be read at all.
    pub(crate) fn read(method: &Method, path: &str, query: &Query) -> Option<Self> {
        let raw = path.trim_start_matches('/');
        let segments: Vec<String> = raw
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| unescape(segment, false))
            .collect::<Option<_>>()?;
        let texts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match texts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Some(Self::Other(segments)),
        };
        let (namespace, rest) = match rest {
            ["namespaces", name] => (*name, rest),
            ["namespaces", name, sub, ..] if OF_NAMESPACES.contains(sub) => (*name, rest),
            ["namespaces", name, rest @ ..] if !rest.is_empty() => (*name, rest),
            _ => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default();
        let (resource, name, subresource) = (at(0), at(1), at(2));
        Some(Self::Resource(Target {
            verb: verb(method, name, query)?,
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            rest: rest.iter().skip(3).map(|&part| part.to_owned()).collect(),
        }))
    }
}

fn verb(method: &Method, name: &str, query: &Query) -> Option<Verb> {
    let watches = || query.flag("watch") == Some(true);
    Some(match *method {
        Method::POST => Verb::Create,
        Method::GET | Method::HEAD | Method::OPTIONS if !name.is_empty() => Verb::Get,
        Method::GET | Method::HEAD if watches() => Verb::Watch,
        Method::GET | Method::HEAD | Method::OPTIONS => Verb::List,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if name.is_empty() => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => return None,
    })
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
                Some(RequestInfo::Other(_))
            ));
        }
    }
}
