//! Questions that are asked by creating an object, which is answered and not kept: who am I, may I,
//! may they, whose token is this.

use lockgate_admission::request::Operation;
use lockgate_api::access::{AccessObject, AccessRequest, User};
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::json as go_json;
use serde_json::{Value, json};

use crate::authz;
use crate::call::Call;
use crate::config::AuthorizationMode;
use crate::decode::body::Expected;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, bad_request, invalid};
use crate::metadata;
use crate::registry::Resource;
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::{Attempt, Facts};

/// Whether objects of a resource are answered and not kept.
pub(crate) fn is_review(resource: &Resource) -> bool {
    matches!(
        resource.group(),
        "authorization.k8s.io" | "authentication.k8s.io"
    ) && resource.names.verbs == ["create"]
        && !resource.is_custom()
}

/// Answers a question.
pub(crate) async fn create(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut object = call.read_object(Expected::of(resource), &options)?;
    metadata::wipe(&mut object);
    metadata::match_namespace(&mut object, &call.target.namespace)?;
    let mut facts = Facts::new(
        Operation::Create,
        call,
        resource,
        options.to_value("CreateOptions"),
        options.is_dry_run(),
    );
    metadata::text(&object, "name").clone_into(&mut facts.name);
    let name = facts.name.clone();
    let mut attempt = Attempt::new(server, call, resource, &facts, Some(object), None);
    let mut object = attempt.mutate(call).await?;
    validate(resource.kind(), &object)?;
    attempt.validate(call, Some(&object), &name).await?;
    attempt.finish(call);
    object["status"] = match resource.kind() {
        "TokenReview" => token_review(server, &object).await,
        "SelfSubjectReview" => json!({"userInfo": call.user}),
        "SelfSubjectAccessReview" => decide(server, &object, &authz::user(&call.user)),
        "SelfSubjectRulesReview" => {
            let namespace = object.pointer("/spec/namespace").and_then(Value::as_str);
            let rules = rules(
                server,
                &authz::user(&call.user),
                namespace.unwrap_or_default(),
            );
            // UPSTREAM: kubernetes pkg/registry/authorization/selfsubjectrulesreview/rest.go answers
            // with an object of its own.
            object["metadata"] = json!({});
            object["spec"] = json!({});
            rules
        }
        _ => {
            let spec = object.get("spec").cloned().unwrap_or_default();
            let user = User {
                name: text(&spec, "user").to_owned(),
                uid: text(&spec, "uid").to_owned(),
                groups: texts(spec.get("groups")),
                extra: Default::default(),
            };
            decide(server, &object, &user)
        }
    };
    Ok(Reply::object(object).created())
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// UPSTREAM: kubernetes pkg/apis/authorization/validation/validation.go
fn validate(kind: &str, review: &Value) -> Outcome<()> {
    let empty = json!({});
    let spec = review.get("spec").unwrap_or(&empty);
    match kind {
        "SelfSubjectRulesReview" if text(spec, "namespace").is_empty() => {
            return Err(bad_request("no namespace on request"));
        }
        "TokenReview" if text(spec, "token").is_empty() => {
            return Err(bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {}
        _ => return Ok(()),
    }
    let given = |member: &str| spec.get(member).filter(|value| !value.is_null());
    let (of_resource, of_path) = (given("resourceAttributes"), given("nonResourceAttributes"));
    let at = Path::root("spec");
    let mut errors = Vec::new();
    match (of_resource, of_path) {
        (Some(_), Some(path)) => errors.push(FieldError::invalid(
            &at.child("nonResourceAttributes"),
            Shown::Rendered(&shown_path(path)),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            &at.child("resourceAttributes"),
            Shown::Rendered("null"),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let is_own = kind == "SelfSubjectAccessReview";
    if !is_own && text(spec, "user").is_empty() && texts(spec.get("groups")).is_empty() {
        errors.push(FieldError::invalid(
            &at.child("user"),
            Shown::Text(""),
            "at least one of user or group must be specified",
        ));
    }
    for member in ["fieldSelector", "labelSelector"] {
        let selector = of_resource.and_then(|attributes| attributes.get(member));
        if let Some(selector) = selector.filter(|selector| !selector.is_null()) {
            let attributes = at.child("resourceAttributes");
            errors.extend(check_selector(&attributes.child(member), selector));
        }
    }
    let is_local = kind == "LocalSubjectAccessReview";
    let mut metadata = review.get("metadata").cloned().unwrap_or_default();
    if let Some(members) = metadata.as_object_mut() {
        members.retain(|key, value| key != "managedFields" && !value.is_null());
        let has_others = members.keys().any(|key| !is_local || key != "namespace");
        if has_others {
            let why = if is_local {
                "must be empty except for namespace"
            } else {
                "must be empty"
            };
            let shown = go_json::to_string(&metadata);
            let path = Path::root("metadata");
            errors.push(FieldError::invalid(&path, Shown::Rendered(&shown), why));
        }
    }
    if is_local {
        let own = metadata::text(review, "namespace");
        let asked = of_resource.map(|attributes| text(attributes, "namespace"));
        if let Some(asked) = asked.filter(|&asked| asked != own) {
            errors.push(FieldError::invalid(
                &Path::root("spec.resourceAttributes.namespace"),
                Shown::Text(asked),
                "must match metadata.namespace",
            ));
        }
        if let Some(path) = of_path {
            errors.push(FieldError::invalid(
                &Path::root("spec.nonResourceAttributes"),
                Shown::Rendered(&shown_path(path)),
                "disallowed on this kind of request",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // UPSTREAM: the kind is lost when the object is decoded, and the error shows it so.
    Err(invalid("", "authorization.k8s.io", "", &errors))
}

/// Attributes of a path as Go shows those that have no names on the wire.
fn shown_path(attributes: &Value) -> String {
    let (path, verb) = (text(attributes, "path"), text(attributes, "verb"));
    go_json::to_string(&json!({"Path": path, "Verb": verb}))
}

fn check_selector(path: &Path<'_>, selector: &Value) -> Option<FieldError> {
    let raw = text(selector, "rawSelector");
    let requirements = selector.get("requirements").and_then(Value::as_array);
    let has_requirements = requirements.is_some_and(|list| !list.is_empty());
    match (raw.is_empty(), has_requirements) {
        (false, true) => Some(FieldError::invalid(
            &path.child("rawSelector"),
            Shown::Text(raw),
            "may not specified at the same time as requirements",
        )),
        (true, false) => Some(FieldError::required(
            &path.child("requirements"),
            format!("when {path} is specified, requirements or rawSelector is required"),
        )),
        _ => None,
    }
}

async fn token_review(server: &Server, review: &Value) -> Value {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let audiences = texts(review.pointer("/spec/audiences"));
    match server.authenticator.token(token, &audiences).await {
        Ok(verified) => json!({
            "authenticated": true, "user": verified.user, "audiences": verified.audiences,
        }),
        Err(error) => json!({"user": {}, "error": format!("[{error}, unknown]")}),
    }
}

/// What a user may do in a namespace.
fn rules(server: &Server, user: &User, namespace: &str) -> Value {
    if server.settings.authorization_mode == AuthorizationMode::AlwaysAllow {
        return json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        });
    }
    let found = server.rbac.rules_for(user, namespace);
    let mut about_resources = Vec::new();
    let mut about_paths = Vec::new();
    for rule in &found.rules {
        let (resources, paths) = rule.shown();
        about_resources.extend(resources);
        about_paths.extend(paths);
    }
    let mut status = json!({
        "resourceRules": about_resources,
        "nonResourceRules": about_paths,
        "incomplete": false,
    });
    match found.errors.as_slice() {
        [] => {}
        [error] => status["evaluationError"] = error.clone().into(),
        errors => status["evaluationError"] = format!("[{}]", errors.join(", ")).into(),
    }
    status
}

fn decide(server: &Server, review: &Value, user: &User) -> Value {
    let path = review.pointer("/spec/nonResourceAttributes");
    let asked = review
        .pointer("/spec/resourceAttributes")
        .cloned()
        .unwrap_or_default();
    let (verb, object) = match path {
        Some(asked) => (text(asked, "verb"), AccessObject::Path(text(asked, "path"))),
        None => (
            text(&asked, "verb"),
            AccessObject::Resource {
                group: text(&asked, "group"),
                resource: text(&asked, "resource"),
                subresource: text(&asked, "subresource"),
                namespace: text(&asked, "namespace"),
                name: text(&asked, "name"),
                field_selector: "",
                label_selector: "",
            },
        ),
    };
    let decision = server
        .authorizer
        .authorize(&AccessRequest { user, verb, object });
    json!({"allowed": decision.allowed})
}
