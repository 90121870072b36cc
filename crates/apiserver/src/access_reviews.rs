//! Access reviews and token reviews, which are answered and not stored.

use std::sync::Arc;

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::names::{check_label_value, check_qualified_name};
use lockgate_api::meta::selector::Selector;
use lockgate_go::json as go_json;
use serde_json::{Map, Value, json};

use crate::authn::Authenticator;
use crate::authn::service_account::TokenError;
use crate::authz;
use crate::authz::rbac::Rbac;
use crate::config::AuthorizationMode;
use crate::decode::write::Body;
use crate::error::{Outcome, bad_request, invalid};
use crate::http::field_selector;
use crate::metadata;
use crate::request::Request;
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::managed_fields::Endpoint;
use crate::write::{Persisted, Recipe, Writer, run};

/// Answers reviews.
#[derive(Debug)]
pub(crate) struct Reviewer {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) rbac: Arc<Rbac>,
    pub(crate) mode: AuthorizationMode,
}

impl Reviewer {
    /// Answers a review.
    pub(crate) async fn review(
        &self,
        writer: &Writer,
        request: &Request,
        body: Body,
    ) -> Outcome<Reply> {
        let Body {
            object: mut review,
            options,
        } = body;
        metadata::wipe_system_fields(&mut review);
        metadata::match_namespace(&mut review, request.namespace())?;
        let mut submission = Submission::create(request, &options);
        metadata::text(&review, "name").clone_into(&mut submission.name);
        let mut recipe = ReviewWrite {
            reviewer: self,
            request,
            name: submission.name.clone(),
        };
        let endpoint = Endpoint::of(writer, request);
        let tracked = endpoint.track(options.manager(), None, review).await;
        let submission = submission.tracked(tracked);
        run(&writer.admitter, request, submission, &mut recipe).await
    }

    /// Reviews a token. Fields of the client's status are kept unless the review sets them.
    async fn token_review(&self, review: &Value) -> Value {
        let token = review.pointer("/spec/token").and_then(Value::as_str);
        let audiences = texts(review.pointer("/spec/audiences"));
        let verified = self
            .authenticator
            .token(token.unwrap_or_default(), &audiences)
            .await;
        match verified {
            Ok(verified) => json!({
                "authenticated": true, "user": verified.user, "audiences": verified.audiences,
            }),
            // Tokens with this server's issuer fail in two authenticators, others in one.
            Err(error) => {
                let error = match error {
                    TokenError::Unknown => error.to_string(),
                    _ => format!("[{error}, unknown]"),
                };
                let told = |member: &str| review.pointer("/status").and_then(|it| it.get(member));
                let mut status =
                    json!({"user": told("user").cloned().unwrap_or_else(|| json!({}))});
                if let Some(audiences) = told("audiences") {
                    status["audiences"] = audiences.clone();
                }
                status["error"] = error.into();
                status
            }
        }
    }

    /// The rules that apply to a user in a namespace.
    fn rules(&self, user: &User, namespace: &str) -> Value {
        if self.mode == AuthorizationMode::AlwaysAllow {
            return json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
        }
        let found = self.rbac.rules_for(user, namespace);
        let mut about_resources = Vec::new();
        let mut about_paths = Vec::new();
        for rule in &found.rules {
            let (resources, paths) = rule.to_review_rules();
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

    fn decide(&self, review: &Value, user: &User) -> Value {
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
        let decision = self
            .authorizer
            .authorize(&AccessRequest { user, verb, object });
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        let ignored = ["fieldSelector", "labelSelector"]
            .into_iter()
            .filter_map(|member| ignored_selector(&asked, member));
        let errors: Vec<String> = decision.error.into_iter().chain(ignored).collect();
        if !errors.is_empty() {
            status["evaluationError"] = errors.join("; ").into();
        }
        status
    }
}

/// The answer to one review.
struct ReviewWrite<'a> {
    reviewer: &'a Reviewer,
    request: &'a Request,
    name: String,
}

impl Recipe for ReviewWrite<'_> {
    type Output = Reply;

    fn prepare(&mut self, review: &mut Value) -> Outcome<()> {
        validate(self.request.resource.kind(), review)
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        &self.name
    }

    async fn persist(&mut self, mut review: Value) -> Outcome<Persisted<Reply>> {
        let reviewer = self.reviewer;
        let user = self.request.user();
        review["status"] = match self.request.resource.kind() {
            "TokenReview" => reviewer.token_review(&review).await,
            "SelfSubjectReview" => {
                // UPSTREAM: kubernetes pkg/registry/authentication/selfsubjectreview/rest.go answers
                // with a separate object.
                let now = metadata::now().to_string();
                review["metadata"] = json!({"creationTimestamp": now});
                json!({"userInfo": user})
            }
            "SelfSubjectAccessReview" => reviewer.decide(&review, &authz::user(user)),
            "SelfSubjectRulesReview" => {
                let namespace = review.pointer("/spec/namespace").and_then(Value::as_str);
                let rules = reviewer.rules(&authz::user(user), namespace.unwrap_or_default());
                // UPSTREAM: kubernetes pkg/registry/authorization/selfsubjectrulesreview/rest.go answers
                // with a separate object.
                review["metadata"] = json!({});
                review["spec"] = json!({});
                rules
            }
            _ => {
                let spec = review.get("spec").unwrap_or(&Value::Null);
                let user = User {
                    name: text(spec, "user").to_owned(),
                    uid: text(spec, "uid").to_owned(),
                    groups: texts(spec.get("groups")),
                    extra: Default::default(),
                };
                reviewer.decide(&review, &user)
            }
        };
        Ok(Persisted::Done(Reply::object(review).created()))
    }
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
            let path = attributes.child(member);
            errors.extend(check_selector(&path, selector));
            let requirements = selector.get("requirements").and_then(Value::as_array);
            for (index, requirement) in requirements.into_iter().flatten().enumerate() {
                let requirements = path.child("requirements");
                let path = requirements.index(index);
                check_requirement(&mut errors, &path, requirement, member == "labelSelector");
            }
        }
    }
    let is_local = kind == "LocalSubjectAccessReview";
    if let Some(metadata) = review.get("metadata").and_then(Value::as_object) {
        let mut others = metadata.iter().filter(|(_, value)| !value.is_null());
        let allowed = |key: &str| key == "managedFields" || is_local && key == "namespace";
        if others.any(|(key, _)| !allowed(key)) {
            let why = if is_local {
                "must be empty except for namespace"
            } else {
                "must be empty"
            };
            let shown = shown_metadata(metadata);
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
    // UPSTREAM: decoding drops the kind, which is therefore missing in the error.
    Err(invalid("", "authorization.k8s.io", "", &errors))
}

/// The metadata fields in the order of upstream's Go type.
const METADATA: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];
const OWNER: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
const MANAGED: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// Metadata in Go's format.
fn shown_metadata(metadata: &Map<String, Value>) -> String {
    let list = |member: &str, order: &[&str]| {
        let items = metadata.get(member)?.as_array()?;
        let items = items.iter().filter_map(Value::as_object);
        let items: Vec<String> = items.map(|item| in_order(item, order)).collect();
        Some(format!("[{}]", items.join(",")))
    };
    let mut parts = Vec::new();
    for name in METADATA.into_iter().chain(["managedFields"]) {
        let shown = match name {
            "ownerReferences" => list(name, &OWNER),
            "managedFields" => list(name, &MANAGED),
            _ => metadata
                .get(name)
                .filter(|value| !value.is_null())
                .map(go_json::to_string),
        };
        parts.extend(shown.map(|shown| format!("{}:{shown}", go_json::to_string(&name))));
    }
    format!("{{{}}}", parts.join(","))
}

fn in_order(object: &Map<String, Value>, order: &[&str]) -> String {
    let members = order.iter().filter_map(|name| {
        let value = object.get(*name).filter(|value| !value.is_null())?;
        Some(format!(
            "{}:{}",
            go_json::to_string(name),
            go_json::to_string(value)
        ))
    });
    let members: Vec<String> = members.collect();
    format!("{{{}}}", members.join(","))
}

/// The warning for an ignored invalid selector, with upstream's text.
///
/// UPSTREAM: kubernetes pkg/registry/authorization/util/helpers.go
fn ignored_selector(asked: &Value, member: &str) -> Option<String> {
    let selector = asked.get(member)?;
    let is_label = member == "labelSelector";
    let raw = text(selector, "rawSelector");
    let requirements = selector.get("requirements").and_then(Value::as_array);
    let requirements = requirements.filter(|list| !list.is_empty());
    let (kept, ignored) = match requirements {
        Some(requirements) => {
            let is_kept = |it: &&Value| match (is_label, text(it, "operator")) {
                (true, "In" | "NotIn" | "Exists" | "DoesNotExist") => true,
                (false, "In" | "NotIn") => texts(it.get("values")).len() == 1,
                _ => false,
            };
            let kept = requirements.iter().filter(is_kept).count();
            (kept, requirements.len() - kept)
        }
        None => {
            let is_read = match is_label {
                true => Selector::parse(raw).is_ok(),
                false => field_selector::parse(raw).is_ok(),
            };
            (0, usize::from(!raw.is_empty() && !is_read))
        }
    };
    let how = if kept > 0 {
        "partially ignored"
    } else {
        "ignored"
    };
    (ignored > 0).then(|| format!("spec.resourceAttributes.{member} {how} due to parse error"))
}

/// Attributes of a non-resource path, with Go's field names, as they have no JSON names.
fn shown_path(attributes: &Value) -> String {
    let (path, verb) = (text(attributes, "path"), text(attributes, "verb"));
    go_json::to_string(&json!({"Path": path, "Verb": verb}))
}

/// Unknown operators may be from newer clients.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/validation/validation.go
fn check_requirement(
    errors: &mut Vec<FieldError>,
    path: &Path<'_>,
    requirement: &Value,
    is_label: bool,
) {
    let (key, values) = (text(requirement, "key"), texts(requirement.get("values")));
    let at = path.child("values");
    if !is_label && key.is_empty() {
        errors.push(FieldError::required(
            &path.child("key"),
            "must be specified",
        ));
    }
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &at,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            &at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => {}
    }
    if !is_label {
        return;
    }
    for message in check_qualified_name(key) {
        errors.push(FieldError::invalid(
            &path.child("key"),
            Shown::Text(key),
            message,
        ));
    }
    for (index, value) in values.iter().enumerate() {
        for message in check_label_value(value) {
            errors.push(FieldError::invalid(
                &at.index(index),
                Shown::Text(value),
                message,
            ));
        }
    }
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
