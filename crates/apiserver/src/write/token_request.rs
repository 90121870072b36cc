//! `TokenRequest`: a token for a service account, made on demand.
//!
//! UPSTREAM: kubernetes pkg/registry/core/serviceaccount/storage/token.go

use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_admission::request::Operation;
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::time::Time;
use lockgate_go::quote::quote;
use lockgate_store::ReadAt;
use serde_json::{Value, json};

use crate::authn::service_account::{Bound, Claims, ISSUER, Reference};
use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, bad_request, conflict, internal, invalid, not_found, read_failed};
use crate::metadata;
use crate::read::get;
use crate::registry::{Resource, Subresource};
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::Attempt;
use crate::write::subresource;

/// The lifetime of a token whose request names none.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest and the longest lifetime of a token.
const SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;
const KIND: &str = "TokenRequest";
const GROUP: &str = "authentication.k8s.io";

/// Makes a token for a service account.
pub(crate) async fn create(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut request = subresource::read_body(call, part, &options)?;
    metadata::match_namespace(&mut request, &call.target.namespace)?;
    if request
        .pointer("/spec/expirationSeconds")
        .is_none_or(Value::is_null)
    {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let facts = subresource::facts(Operation::Create, call, resource, part, &options);
    let mut attempt = Attempt::new(server, call, resource, &facts, Some(request), None);
    let mut request = attempt.mutate(call).await?;
    let name = call.target.name.clone();
    let named = metadata::text(&request, "name");
    if !named.is_empty() && named != name {
        let why = "must match the service account name if specified";
        let metadata = Path::root("metadata");
        let error = FieldError::invalid(&metadata.child("name"), Shown::Text(named), why);
        return Err(invalid(KIND, GROUP, &name, &[error]));
    }
    let account = get::get_value(server, call, resource).await?;
    let uid = metadata::text(&account, "uid").to_owned();
    let wanted = metadata::text(&request, "uid");
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the token request ({wanted}) does not match the UID of the service account \
             ({uid})"
        );
        return Err(conflict(GROUP, KIND, &name, &why));
    }
    if texts(&request, "/spec/audiences").is_empty() {
        request["spec"]["audiences"] = json!([ISSUER]);
    }
    let now = metadata::now().unix_seconds();
    metadata::change(&mut request, |metadata| {
        metadata.insert(String::from("name"), name.as_str().into());
        metadata.insert(String::from("uid"), uid.as_str().into());
        let created = Time::from_unix_seconds(now).to_string();
        metadata.insert(String::from("creationTimestamp"), created.into());
    });
    request["status"] = json!({"token": "", "expirationTimestamp": null});
    let seconds = request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    check_lifetime(seconds)?;
    attempt.validate(call, Some(&request), &name).await?;
    attempt.finish(call);
    let mut bound = bind(server, call, &request).await?;
    bound.namespace.clone_from(&call.target.namespace);
    bound.account = Reference {
        name: name.clone(),
        uid,
    };
    let claims = Claims {
        audiences: texts(&request, "/spec/audiences"),
        expires: Some(now.saturating_add(seconds)),
        issued: Some(now),
        issuer: ISSUER.to_owned(),
        id: RandomIds.uid(),
        kubernetes: bound,
        not_before: Some(now),
        subject: format!("system:serviceaccount:{}:{name}", call.target.namespace),
    };
    let token = server
        .signer
        .sign(&claims)
        .ok_or_else(|| internal("the token could not be signed"))?;
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": Time::from_unix_seconds(now.saturating_add(seconds)).to_string(),
    });
    Ok(Reply::object(request).created())
}

fn texts(object: &Value, pointer: &str) -> Vec<String> {
    let items = object.pointer(pointer).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// UPSTREAM: kubernetes pkg/apis/authentication/validation/validation.go
fn check_lifetime(seconds: i64) -> Outcome<()> {
    let why = if seconds < *SECONDS.start() {
        "may not specify a duration less than 10 minutes"
    } else if seconds > *SECONDS.end() {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let spec = Path::root("spec");
    let path = spec.child("expirationSeconds");
    let error = FieldError::invalid(&path, Shown::Integer(seconds), why);
    Err(invalid(KIND, GROUP, "", &[error]))
}

/// Finds what the token is to be bound to.
async fn bind(server: &Server, call: &Call, request: &Value) -> Outcome<Bound> {
    let mut bound = Bound::default();
    let reference = request.pointer("/spec/boundObjectRef");
    let Some(reference) = reference.filter(|reference| !reference.is_null()) else {
        return Ok(bound);
    };
    let text = |member: &str| {
        let found = reference.get(member).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let (group, version) = match text("apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text("apiVersion")),
    };
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let namespace = call.target.namespace.as_str();
    let (plural, place) = match kind {
        "Pod" if group.is_empty() => ("pods", namespace),
        "Secret" if group.is_empty() => ("secrets", namespace),
        "Node" if group.is_empty() => ("nodes", ""),
        _ => {
            return Err(bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let object = read(server, plural, place, name)
        .await?
        .ok_or_else(|| not_found("", plural, name))?;
    let found = Reference {
        name: name.to_owned(),
        uid: metadata::text(&object, "uid").to_owned(),
    };
    let is_theirs = object
        .pointer("/spec/serviceAccountName")
        .and_then(Value::as_str)
        == Some(call.target.name.as_str());
    if kind == "Pod" && !is_theirs {
        return Err(bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount \
             name.",
            quote(&call.target.name)
        )));
    }
    if !uid.is_empty() && uid != found.uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The \
             object might have been deleted and then recreated"
        );
        return Err(conflict("", kind, name, &why));
    }
    match kind {
        "Pod" => {
            bound.node = node_of(server, &object).await?;
            bound.pod = Some(found);
        }
        "Secret" => bound.secret = Some(found),
        _ => bound.node = Some(found),
    }
    Ok(bound)
}

/// The node a pod runs on, which need not exist.
async fn node_of(server: &Server, pod: &Value) -> Outcome<Option<Reference>> {
    let name = pod.pointer("/spec/nodeName").and_then(Value::as_str);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let node = read(server, "nodes", "", name).await?;
    let uid = node.map(|node| metadata::text(&node, "uid").to_owned());
    Ok(Some(Reference {
        name: name.to_owned(),
        uid: uid.unwrap_or_default(),
    }))
}

async fn read(
    server: &Server,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Outcome<Option<Value>> {
    let snapshot = server.registry.snapshot();
    let Some(resource) = snapshot.find("", "v1", plural) else {
        return Ok(None);
    };
    let key = server.key(resource, namespace, name);
    let (entry, _) = server
        .store
        .get(&key, ReadAt::Latest)
        .await
        .map_err(|error| read_failed(error, 0))?;
    match entry {
        Some(entry) => server.show(&entry, resource).await.map(Some),
        None => Ok(None),
    }
}
