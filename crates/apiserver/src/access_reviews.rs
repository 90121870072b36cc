//! Access reviews and token reviews: objects that are answered and not stored.

use std::sync::Arc;

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;
use serde_json::{Value, json};

use crate::authn::Authenticator;
use crate::authz;
use crate::authz::rbac::Rbac;
use crate::config::AuthorizationMode;
use crate::decode::write::Body;
use crate::error::{Outcome, bad_request};
use crate::metadata;
use crate::request::Request;
use crate::respond::Reply;
use crate::write::admission::{Admitter, Submission};
use crate::write::{Persisted, Recipe, run};

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
        admitter: &Admitter,
        request: &Request,
        body: Body,
    ) -> Outcome<Reply> {
        let Body {
            object: mut review,
            options,
        } = body;
        metadata::wipe(&mut review);
        metadata::match_namespace(&mut review, request.namespace())?;
        let mut submission = Submission::create(request, &options);
        metadata::text(&review, "name").clone_into(&mut submission.name);
        let mut recipe = Answer {
            reviewer: self,
            request,
            name: submission.name.clone(),
        };
        let submission = submission.object(review);
        run(admitter, request, submission, &mut recipe).await
    }

    fn token_review(&self, review: &Value) -> Value {
        let token = review.pointer("/spec/token").and_then(Value::as_str);
        let user: Option<UserInfo> = self.authenticator.token(token.unwrap_or_default());
        match user {
            Some(user) => json!({"authenticated": true, "user": user}),
            None => json!({"user": {}, "error": "[invalid bearer token, unknown]"}),
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
        json!({"allowed": decision.allowed})
    }
}

/// The answer to one review.
struct Answer<'a> {
    reviewer: &'a Reviewer,
    request: &'a Request,
    name: String,
}

impl Recipe for Answer<'_> {
    type Output = Reply;

    fn prepare(&mut self, review: &mut Value) -> Outcome<()> {
        let namespace = review.pointer("/spec/namespace");
        if self.request.resource.kind() == "SelfSubjectRulesReview"
            && namespace.is_none_or(|namespace| namespace == "")
        {
            return Err(bad_request("no namespace on request"));
        }
        Ok(())
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        &self.name
    }

    async fn persist(&mut self, mut review: Value) -> Outcome<Persisted<Reply>> {
        let reviewer = self.reviewer;
        let user = self.request.user();
        review["status"] = match self.request.resource.kind() {
            "TokenReview" => reviewer.token_review(&review),
            "SelfSubjectReview" => json!({"userInfo": user}),
            "SelfSubjectAccessReview" => reviewer.decide(&review, &authz::user(user)),
            "SelfSubjectRulesReview" => {
                let namespace = review.pointer("/spec/namespace").and_then(Value::as_str);
                let rules = reviewer.rules(&authz::user(user), namespace.unwrap_or_default());
                // UPSTREAM: kubernetes pkg/registry/authorization/selfsubjectrulesreview/rest.go answers
                // with an object of its own.
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
