//! `TokenRequest`: a token for a service account, made on demand.

use std::sync::Arc;

use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::meta::time::Time;
use serde_json::{Value, json};

use crate::authn::service_account::{ISSUER, Signer};
use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request, internal};
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::{Persisted, Recipe, Writer, run};

/// The lifetime of a token whose request names none.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest and the longest lifetime of a token.
const SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// Makes a token for the service account a request is about.
pub(crate) async fn create(
    writer: &Writer,
    signer: &Arc<Signer>,
    request: &Request,
    body: PartBody,
) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut token_request,
        options,
    } = body;
    let path = ObjectPath {
        resource: &request.resource,
        namespace: request.namespace(),
        name: request.name(),
        subresource: "",
    };
    let account = writer.storage.get(path).await?;
    metadata::wipe(&mut token_request);
    metadata::match_namespace(&mut token_request, request.namespace())?;
    let named = metadata::text(&token_request, "name");
    if !named.is_empty() && named != request.name() {
        return Err(bad_request(
            "name in URL does not match name in TokenRequest object",
        ));
    }
    let seconds = token_request.pointer("/spec/expirationSeconds");
    if seconds.is_none_or(Value::is_null) {
        token_request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let submission = Submission::create(request, &options)
        .kind(kind)
        .object(token_request);
    let mut recipe = Issue {
        signer,
        request,
        account_uid: metadata::text(&account, "uid"),
    };
    run(&writer.admitter, request, submission, &mut recipe).await
}

struct Issue<'i> {
    signer: &'i Signer,
    request: &'i Request,
    account_uid: &'i str,
}

impl Recipe for Issue<'_> {
    type Output = Reply;

    fn prepare(&mut self, token_request: &mut Value) -> Outcome<()> {
        metadata::set(token_request, "name", self.request.name());
        metadata::fill(token_request);
        Ok(())
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        self.request.name()
    }

    async fn persist(&mut self, mut token_request: Value) -> Outcome<Persisted<Reply>> {
        let (namespace, name) = (self.request.namespace(), self.request.name());
        let seconds = token_request.pointer("/spec/expirationSeconds");
        let seconds = seconds.and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
        let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
        let audiences = token_request
            .pointer("/spec/audiences")
            .filter(|list| list.as_array().is_some_and(|list| !list.is_empty()))
            .cloned()
            .unwrap_or_else(|| json!([ISSUER]));
        let now = metadata::now().unix_seconds();
        let claims = json!({
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "iss": ISSUER,
            "jti": RandomIds.uid(),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": self.account_uid},
            },
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        });
        let token = self
            .signer
            .sign(&claims)
            .ok_or_else(|| internal("the token could not be signed"))?;
        metadata::change(&mut token_request, |metadata| {
            metadata.remove("uid");
        });
        token_request["spec"]["expirationSeconds"] = seconds.into();
        token_request["spec"]["audiences"] = audiences;
        token_request["status"] = json!({
            "token": token,
            "expirationTimestamp": Time::from_unix_seconds(now + seconds).to_string(),
        });
        Ok(Persisted::Done(Reply::object(token_request).created()))
    }
}
