//! Connections to Pods, Services and nodes: admission runs, and then the request fails, because this server has no
//! nodes.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/rest.go (ConnectResource), kubernetes
//! pkg/registry/core/pod/strategy.go (ResourceLocation and friends)

use lockgate_api::meta::status::Status;
use lockgate_go::quote::quote;
use serde_json::{Map, Value};

use crate::decode::write::part_kind;
use crate::error::{Failure, Outcome, bad_request, plain};
use crate::http::query::Query;
use crate::registry::{Resource, Subresource};
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::Writer;
use crate::write::admission::Submission;

/// The fields of each kind of connect options, and their types in the query.
const OPTIONS: [(&str, &[(&str, Kind)]); 6] = [
    (
        "PodExecOptions",
        &[
            ("stdin", Kind::Flag),
            ("stdout", Kind::Flag),
            ("stderr", Kind::Flag),
            ("tty", Kind::Flag),
            ("container", Kind::Text),
            ("command", Kind::Texts),
        ],
    ),
    (
        "PodAttachOptions",
        &[
            ("stdin", Kind::Flag),
            ("stdout", Kind::Flag),
            ("stderr", Kind::Flag),
            ("tty", Kind::Flag),
            ("container", Kind::Text),
        ],
    ),
    ("PodPortForwardOptions", &[("ports", Kind::Numbers)]),
    ("PodProxyOptions", &[]),
    ("ServiceProxyOptions", &[]),
    ("NodeProxyOptions", &[]),
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Flag,
    Text,
    Texts,
    Numbers,
}

/// Returns true for a connect subresource.
pub(crate) fn is_connection(part: &Subresource) -> bool {
    OPTIONS.iter().any(|(kind, _)| *kind == part.kind)
}

/// The options of a connect request, from the query and from the rest of the path.
pub(crate) fn decode(part: &Subresource, query: &Query, rest: &[String]) -> Outcome<Value> {
    if query.all("dryRun").next().is_some() {
        return Err(bad_request("dryRun is not supported"));
    }
    options(part, query, rest)
}

/// Runs admission for a connect request, which then fails as there is no node.
pub(crate) async fn connect(
    writer: &Writer,
    request: &Request,
    part: &Subresource,
    options: Value,
) -> Outcome<Reply> {
    let submission = Submission::connect(request)
        .kind(part_kind(part))
        .object(options);
    writer.admitter.decide(request, submission).await?;
    let object = writer
        .storage
        .get(ObjectPath {
            resource: &request.resource,
            namespace: request.namespace(),
            name: request.name(),
            subresource: "",
        })
        .await?;
    if request.resource.plural() == "services" {
        check_endpoints(writer, request).await?;
    }
    Err(unreachable_target(
        &request.resource,
        request.name(),
        &object,
    ))
}

/// A Service without Endpoints is reported like a missing one.
///
/// UPSTREAM: kubernetes pkg/registry/core/service/storage/storage.go (ResourceLocation)
async fn check_endpoints(writer: &Writer, request: &Request) -> Outcome<()> {
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find("", "v1", "endpoints") else {
        return Ok(());
    };
    let path = ObjectPath {
        resource,
        namespace: request.namespace(),
        name: request.name(),
        subresource: "",
    };
    match writer.storage.get(path).await {
        Err(failure) if failure.0.code == 404 => Err(request.resource.not_found(request.name())),
        _ => Ok(()),
    }
}

fn options(part: &Subresource, query: &Query, rest: &[String]) -> Outcome<Value> {
    let mut members = Map::from_iter([
        (
            String::from("apiVersion"),
            Value::from(part.version.as_str()),
        ),
        (String::from("kind"), Value::from(part.kind.as_str())),
    ]);
    let fields = OPTIONS
        .iter()
        .find(|(kind, _)| *kind == part.kind)
        .map_or(&[][..], |(_, fields)| *fields);
    for (name, kind) in fields {
        let value = match kind {
            Kind::Flag => query.flag(name).filter(|&set| set).map(Value::from),
            Kind::Text => query
                .first(name)
                .filter(|text| !text.is_empty())
                .map(Value::from),
            Kind::Texts => {
                let texts: Vec<&str> = query.all(name).collect();
                (!texts.is_empty()).then(|| texts.into())
            }
            Kind::Numbers => {
                let numbers = query
                    .all(name)
                    .flat_map(|text| text.split(','))
                    .map(|text| {
                        text.parse::<i32>().map_err(|_| {
                            bad_request(format!(
                                "strconv.ParseInt: parsing {}: invalid syntax",
                                quote(text)
                            ))
                        })
                    });
                let numbers = numbers.collect::<Outcome<Vec<_>>>()?;
                (!numbers.is_empty()).then(|| numbers.into())
            }
        };
        if let Some(value) = value {
            members.insert((*name).to_owned(), value);
        }
    }
    if part.name == "proxy" && !rest.is_empty() {
        members.insert(String::from("path"), format!("/{}", rest.join("/")).into());
    }
    Ok(Value::Object(members))
}

fn unreachable_target(resource: &Resource, name: &str, object: &Value) -> Failure {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match resource.plural() {
        "pods" => match text("/spec/nodeName") {
            "" => bad_request(format!("pod {name} does not have a host assigned")),
            node => plain(format!("dial tcp: lookup {node}: no such host")),
        },
        "services" => Status {
            kind: String::from("Status"),
            api_version: String::from("v1"),
            status: String::from("Failure"),
            message: format!("no endpoints available for service {}", quote(name)),
            reason: String::from("ServiceUnavailable"),
            code: 503,
            ..Status::default()
        }
        .into(),
        _ => bad_request("no preferred addresses found; known addresses: []"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(name: &str, kind: &str) -> Subresource {
        Subresource {
            name: name.to_owned(),
            group: String::new(),
            version: String::from("v1"),
            kind: kind.to_owned(),
            verbs: Vec::new(),
        }
    }

    #[test]
    fn reads_options_from_the_query() {
        let query = Query::parse("command=sh&command=-c&stdin=true&tty=false&container=c");
        assert_eq!(
            options(&part("exec", "PodExecOptions"), &query, &[]).unwrap(),
            json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh", "-c"], "stdin": true, "container": "c"})
        );
        let rest = [String::from("a"), String::from("b")];
        assert_eq!(
            options(&part("proxy", "PodProxyOptions"), &Query::default(), &rest).unwrap(),
            json!({"apiVersion": "v1", "kind": "PodProxyOptions", "path": "/a/b"})
        );
        assert!(
            options(
                &part("portforward", "PodPortForwardOptions"),
                &Query::parse("ports=x"),
                &[]
            )
            .is_err()
        );
    }
}
