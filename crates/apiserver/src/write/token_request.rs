//! `TokenRequest`: issues a ServiceAccount token.
//!
//! UPSTREAM: kubernetes pkg/registry/core/serviceaccount/storage/token.go

use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::time::Time;
use lockgate_go::quote::quote;
use serde_json::{Value, json};

use crate::authn::service_account::{Bound, Claims, Reference, Signer};
use crate::decode::write::PartBody;
use crate::error::{Outcome, bad_request, conflict, internal, invalid, not_found};
use crate::metadata;
use crate::registry::split_api_version;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::managed_fields::track_part;
use crate::write::{Persisted, Recipe, Writer, run};

/// The default lifetime of a token.
const DEFAULT_SECONDS: i64 = 3600;
/// The range of token lifetimes.
const SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;
/// The audit annotation with the id of an issued token.
///
/// UPSTREAM: pkg/serviceaccount/util.go (IssuedCredentialIDAuditAnnotationKey)
const ISSUED_CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";
const KIND: &str = "TokenRequest";
const GROUP: &str = "authentication.k8s.io";

/// Issues a token for the requested ServiceAccount.
pub(crate) async fn create(
    writer: &Writer,
    signer: &Signer,
    request: &Request,
    body: PartBody,
) -> Outcome<Reply> {
    let PartBody {
        kind,
        object: mut token_request,
        options,
    } = body;
    metadata::match_namespace(&mut token_request, request.namespace())?;
    if let Some(warning) = metadata::drop_duplicate_owner_references(&mut token_request, false) {
        request.notes.warn(&warning);
    }
    apply_defaults(&mut token_request);
    let account = writer
        .storage
        .get(ObjectPath {
            resource: &request.resource,
            namespace: request.namespace(),
            name: request.name(),
            subresource: "",
        })
        .await;
    let tracked = track_part(request, &kind, options.manager(), token_request);
    let submission = Submission::create(request, &options)
        .kind(kind)
        .tracked(tracked);
    let mut recipe = Issue {
        writer,
        signer,
        request,
        account,
        now: metadata::now().unix_seconds(),
    };
    run(&writer.admitter, request, submission, &mut recipe).await
}

struct Issue<'i> {
    writer: &'i Writer,
    signer: &'i Signer,
    request: &'i Request,
    /// The service account. Its absence is reported after mutating admission.
    account: Outcome<Value>,
    now: i64,
}

fn apply_defaults(token_request: &mut Value) {
    let seconds = token_request.pointer("/spec/expirationSeconds");
    if seconds.is_none_or(Value::is_null) {
        token_request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
}

fn lifetime(token_request: &Value) -> i64 {
    let seconds = token_request.pointer("/spec/expirationSeconds");
    seconds.and_then(Value::as_i64).unwrap_or_default()
}

impl Issue<'_> {
    fn account_uid(&self) -> Outcome<&str> {
        match &self.account {
            Ok(account) => Ok(metadata::text(account, "uid")),
            Err(failure) => Err(failure.clone()),
        }
    }
}

impl Recipe for Issue<'_> {
    type Output = Reply;

    fn prepare(&mut self, token_request: &mut Value) -> Outcome<()> {
        if let Some(warning) = metadata::drop_duplicate_owner_references(token_request, true) {
            self.request.notes.warn(&warning);
        }
        // A webhook may have removed defaulted fields.
        apply_defaults(token_request);
        let (name, namespace) = (self.request.name(), self.request.namespace());
        for (member, wanted) in [("name", name), ("namespace", namespace)] {
            let named = metadata::text(token_request, member);
            if !named.is_empty() && named != wanted {
                let why = format!("must match the service account {member} if specified");
                let metadata = Path::root("metadata");
                let error = FieldError::invalid(&metadata.child(member), Shown::Text(named), &why);
                return Err(invalid(KIND, GROUP, name, &[error]));
            }
        }
        let uid = self.account_uid()?;
        let wanted = metadata::text(token_request, "uid");
        if !wanted.is_empty() && wanted != uid {
            let why = format!(
                "the UID in the token request ({wanted}) does not match the UID of the service \
                 account ({uid})"
            );
            return Err(conflict(GROUP, KIND, name, &why));
        }
        if texts(token_request, "/spec/audiences").is_empty() {
            token_request["spec"]["audiences"] = json!(self.signer.audiences());
        }
        let created = Time::from_unix_seconds(self.now).to_string();
        metadata::change(token_request, |metadata| {
            metadata.insert(String::from("name"), name.into());
            metadata.insert(String::from("namespace"), namespace.into());
            metadata.insert(String::from("uid"), uid.into());
            metadata.insert(String::from("creationTimestamp"), created.into());
        });
        token_request["status"] = json!({"token": "", "expirationTimestamp": null});
        check_lifetime(lifetime(token_request))
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        self.request.name()
    }

    async fn persist(&mut self, mut token_request: Value) -> Outcome<Persisted<Reply>> {
        let (namespace, name) = (self.request.namespace(), self.request.name());
        let mut bound = bind(self.writer, self.request, &token_request).await?;
        namespace.clone_into(&mut bound.namespace);
        bound.account = Reference {
            name: name.to_owned(),
            uid: self.account_uid()?.to_owned(),
        };
        let expires = self.now.saturating_add(lifetime(&token_request));
        let claims = Claims {
            audiences: texts(&token_request, "/spec/audiences"),
            expires: Some(expires),
            issued: Some(self.now),
            issuer: self.signer.issuer().to_owned(),
            id: RandomIds.uid(),
            kubernetes: bound,
            not_before: Some(self.now),
            subject: format!("system:serviceaccount:{namespace}:{name}"),
        };
        let token = self
            .signer
            .sign(&claims)
            .ok_or_else(|| internal("the token could not be signed"))?;
        let credential = format!("JTI={}", claims.id);
        self.request.notes.annotate(ISSUED_CREDENTIAL, &credential);
        token_request["status"] = json!({
            "token": token,
            "expirationTimestamp": Time::from_unix_seconds(expires).to_string(),
        });
        Ok(Persisted::Done(Reply::object(token_request).created()))
    }
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

/// Finds the object that the token is bound to.
async fn bind(writer: &Writer, request: &Request, token_request: &Value) -> Outcome<Bound> {
    let mut bound = Bound::default();
    let reference = token_request.pointer("/spec/boundObjectRef");
    let Some(reference) = reference.filter(|reference| !reference.is_null()) else {
        return Ok(bound);
    };
    let text = |member: &str| {
        let found = reference.get(member).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let (group, version) = split_api_version(text("apiVersion"));
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let namespace = request.namespace();
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
    let object = read(writer, plural, place, name)
        .await?
        .ok_or_else(|| not_found("", plural, name))?;
    let found = Reference {
        name: name.to_owned(),
        uid: metadata::text(&object, "uid").to_owned(),
    };
    let is_theirs = object
        .pointer("/spec/serviceAccountName")
        .and_then(Value::as_str)
        == Some(request.name());
    if kind == "Pod" && !is_theirs {
        return Err(bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount \
             name.",
            quote(request.name())
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
            bound.node = node_of(writer, &object).await?;
            bound.pod = Some(found);
        }
        "Secret" => bound.secret = Some(found),
        _ => bound.node = Some(found),
    }
    Ok(bound)
}

/// The node of a Pod, which need not exist.
async fn node_of(writer: &Writer, pod: &Value) -> Outcome<Option<Reference>> {
    let name = pod.pointer("/spec/nodeName").and_then(Value::as_str);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let node = read(writer, "nodes", "", name).await?;
    let uid = node.map(|node| metadata::text(&node, "uid").to_owned());
    Ok(Some(Reference {
        name: name.to_owned(),
        uid: uid.unwrap_or_default(),
    }))
}

async fn read(
    writer: &Writer,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Outcome<Option<Value>> {
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find("", "v1", plural) else {
        return Ok(None);
    };
    let storage = &writer.storage;
    match storage
        .entry(&storage.key(resource, namespace, name))
        .await?
    {
        Some(entry) => storage.decode(&entry, resource).await.map(Some),
        None => Ok(None),
    }
}
