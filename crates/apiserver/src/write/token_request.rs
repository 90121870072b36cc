//! `TokenRequest`: a token for a service account, made on demand.

use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_admission::request::Operation;
use lockgate_api::meta::time::Time;
use serde_json::{Value, json};

use crate::authn::service_account::ISSUER;
use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, bad_request, internal};
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

/// Makes a token for a service account.
pub(crate) async fn create(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut request = subresource::read_body(call, part, &options)?;
    let account = get::get_value(server, call, resource).await?;
    metadata::wipe(&mut request);
    metadata::match_namespace(&mut request, &call.target.namespace)?;
    let named = metadata::text(&request, "name");
    if !named.is_empty() && named != call.target.name {
        return Err(bad_request(
            "name in URL does not match name in TokenRequest object",
        ));
    }
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
    metadata::set(&mut request, "name", name.clone());
    metadata::fill(&mut request);
    attempt.validate(call, Some(&request), &name).await?;
    attempt.finish(call);

    let seconds = request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(DEFAULT_SECONDS);
    let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
    let mut audiences = request
        .pointer("/spec/audiences")
        .cloned()
        .unwrap_or_default();
    if audiences.as_array().is_none_or(Vec::is_empty) {
        audiences = json!([ISSUER]);
    }
    let now = metadata::now().unix_seconds();
    let claims = json!({
        "aud": audiences,
        "exp": now + seconds,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "jti": RandomIds.uid(),
        "kubernetes.io": {
            "namespace": call.target.namespace,
            "serviceaccount": {"name": name, "uid": metadata::text(&account, "uid")},
        },
        "sub": format!("system:serviceaccount:{}:{name}", call.target.namespace),
    });
    let token = server
        .signer
        .sign(&claims)
        .ok_or_else(|| internal("the token could not be signed"))?;
    metadata::change(&mut request, |metadata| {
        metadata.remove("uid");
    });
    request["spec"]["expirationSeconds"] = seconds.into();
    request["spec"]["audiences"] = audiences;
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": Time::from_unix_seconds(now + seconds).to_string(),
    });
    Ok(Reply::object(request).created())
}
