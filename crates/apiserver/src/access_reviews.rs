//! Questions that are asked by creating an object, which is answered and not kept: who am I, may I,
//! may they, whose token is this.

use lockgate_admission::request::Operation;
use lockgate_api::access::{AccessObject, AccessRequest, User};
use lockgate_api::admission::UserInfo;
use serde_json::{Value, json};

use crate::authz;
use crate::call::Call;
use crate::config::AuthorizationMode;
use crate::decode::body::Expected;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, bad_request};
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
    if resource.kind() == "SelfSubjectRulesReview"
        && object
            .pointer("/spec/namespace")
            .is_none_or(|namespace| namespace == "")
    {
        return Err(bad_request("no namespace on request"));
    }
    attempt.validate(call, Some(&object), &name).await?;
    attempt.finish(call);
    object["status"] = match resource.kind() {
        "TokenReview" => token_review(server, &object),
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

fn token_review(server: &Server, review: &Value) -> Value {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let user: Option<UserInfo> = server.authenticator.token(token);
    match user {
        Some(user) => json!({"authenticated": true, "user": user}),
        None => json!({"user": {}, "error": "[invalid bearer token, unknown]"}),
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
