//! The variables of match conditions: the request, the objects and the authorizer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value as Json, json};

use crate::eval::{
    Evaluation, Inputs, Limits, PrecomputedField, Program, RecordedExpression, evaluate,
    evaluate_recorded,
};
use crate::ext::authorizer::AuthorizerValue;
use crate::value::{Error, Opaque, Value};

/// A group, version and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// A group, version and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
}

/// The variable `request`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// The kind of the object sent to the webhook.
    pub kind: GroupVersionKind,
    /// The resource sent to the webhook.
    pub resource: GroupVersionResource,
    /// The subresource; may be empty.
    pub sub_resource: String,
    /// The kind of the original request.
    pub request_kind: GroupVersionKind,
    /// The resource of the original request.
    pub request_resource: GroupVersionResource,
    /// The subresource of the original request; may be empty.
    pub request_sub_resource: String,
    /// The name of the object; may be empty.
    pub name: String,
    /// The namespace; may be empty.
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The username.
    pub username: String,
    /// The user's UID.
    pub user_uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The user's extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
    /// True for a dry run.
    pub dry_run: bool,
    /// The options of the operation, if any.
    pub options: Option<Json>,
}

impl Request {
    /// The variable as a map; most empty fields are omitted.
    ///
    /// UPSTREAM: k8s.io/api/admission/v1 AdmissionRequest (omitempty), admission/plugin/cel
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut request = Map::new();
        let mut put = |name: &str, value: Json| request.insert(name.to_owned(), value);
        put("uid", json!(""));
        put("kind", kind(&self.kind));
        put("resource", resource(&self.resource));
        put("requestKind", kind(&self.request_kind));
        put("requestResource", resource(&self.request_resource));
        put("operation", json!(self.operation));
        put("dryRun", json!(self.dry_run));
        put("object", Json::Null);
        put("oldObject", Json::Null);
        put("options", self.options.clone().unwrap_or(Json::Null));
        put("userInfo", self.user_info());
        for (name, text) in [
            ("subResource", &self.sub_resource),
            ("requestSubResource", &self.request_sub_resource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                put(name, json!(text));
            }
        }
        Json::Object(request)
    }

    /// Parses the variable, or the `request` of an AdmissionReview. Fields that are missing or of
    /// another type are left empty.
    #[must_use]
    pub fn from_json(request: &Json) -> Self {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let kind = |value: &Json| GroupVersionKind {
            group: text(&value["group"]),
            version: text(&value["version"]),
            kind: text(&value["kind"]),
        };
        let resource = |value: &Json| GroupVersionResource {
            group: text(&value["group"]),
            version: text(&value["version"]),
            resource: text(&value["resource"]),
        };
        let texts = |value: &Json| -> Vec<String> {
            value.as_array().into_iter().flatten().map(text).collect()
        };
        let user = &request["userInfo"];
        let extra = user["extra"].as_object().into_iter().flatten();
        let options = request.get("options").filter(|options| !options.is_null());
        Self {
            kind: kind(&request["kind"]),
            resource: resource(&request["resource"]),
            sub_resource: text(&request["subResource"]),
            request_kind: kind(&request["requestKind"]),
            request_resource: resource(&request["requestResource"]),
            request_sub_resource: text(&request["requestSubResource"]),
            name: text(&request["name"]),
            namespace: text(&request["namespace"]),
            operation: text(&request["operation"]),
            username: text(&user["username"]),
            user_uid: text(&user["uid"]),
            groups: texts(&user["groups"]),
            extra: extra
                .map(|(key, values)| (key.clone(), texts(values)))
                .collect(),
            dry_run: request["dryRun"].as_bool().unwrap_or_default(),
            options: options.cloned(),
        }
    }

    fn user_info(&self) -> Json {
        let mut user = Map::new();
        for (name, text) in [("username", &self.username), ("uid", &self.user_uid)] {
            if !text.is_empty() {
                user.insert(name.to_owned(), json!(text));
            }
        }
        if !self.groups.is_empty() {
            user.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            user.insert("extra".to_owned(), json!(self.extra));
        }
        Json::Object(user)
    }
}

fn kind(kind: &GroupVersionKind) -> Json {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn resource(resource: &GroupVersionResource) -> Json {
    json!({
        "group": resource.group,
        "version": resource.version,
        "resource": resource.resource,
    })
}

/// The fields of `request` with precomputed values.
pub(super) const KNOWN_FIELDS: [&str; 18] = [
    "request.kind.group",
    "request.kind.version",
    "request.kind.kind",
    "request.resource.group",
    "request.resource.version",
    "request.resource.resource",
    "request.requestKind.group",
    "request.requestKind.version",
    "request.requestKind.kind",
    "request.requestResource.group",
    "request.requestResource.version",
    "request.requestResource.resource",
    "request.operation",
    "request.subResource",
    "request.name",
    "request.namespace",
    "request.userInfo.username",
    "request.userInfo.groups",
];

/// The values of [`KNOWN_FIELDS`]. Fields that are omitted when empty are unknown then.
fn known_fields(request: Request) -> [PrecomputedField; KNOWN_FIELDS.len()] {
    let text = |text: String| PrecomputedField::Text(text.into());
    let some_text = |text: String| match text.is_empty() {
        true => PrecomputedField::Unknown,
        false => PrecomputedField::Text(text.into()),
    };
    let groups = match request.groups.is_empty() {
        true => PrecomputedField::Unknown,
        false => PrecomputedField::Texts(request.groups),
    };
    let Request {
        kind,
        resource,
        request_kind,
        request_resource,
        ..
    } = request;
    [
        text(kind.group),
        text(kind.version),
        text(kind.kind),
        text(resource.group),
        text(resource.version),
        text(resource.resource),
        text(request_kind.group),
        text(request_kind.version),
        text(request_kind.kind),
        text(request_resource.group),
        text(request_resource.version),
        text(request_resource.resource),
        text(request.operation),
        some_text(request.sub_resource),
        some_text(request.name),
        some_text(request.namespace),
        some_text(request.username),
        groups,
    ]
}

/// The variable `request`, with precomputed values of the most used fields.
#[derive(Debug, Clone)]
pub struct RequestVariable {
    json: Json,
    known: [PrecomputedField; KNOWN_FIELDS.len()],
}

impl RequestVariable {
    /// Creates the variable of a request.
    #[must_use]
    pub fn new(request: Request) -> Self {
        let json = request.to_json();
        let known = known_fields(request);
        Self { json, known }
    }

    /// The variable as a map.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.json
    }
}

/// The values of the variables for one request.
#[derive(Debug, Clone)]
pub struct Variables<'a> {
    inputs: [Value<'a>; 8],
    known: &'a [PrecomputedField],
    interrupt: Option<&'a AtomicBool>,
}

impl<'a> Variables<'a> {
    /// Creates the variables of a request without objects, from the output of [`Request::to_json`].
    #[must_use]
    #[inline]
    pub fn new(request: &'a Json) -> Self {
        let null = || Value::Null;
        Self {
            inputs: [
                null(),
                null(),
                null(),
                Value::from(request),
                null(),
                null(),
                null(),
                null(),
            ],
            known: &[],
            interrupt: None,
        }
    }

    /// Creates the variables of a request without objects.
    #[must_use]
    #[inline]
    pub fn of(request: &'a RequestVariable) -> Self {
        Self {
            known: &request.known,
            ..Self::new(&request.json)
        }
    }

    #[inline]
    fn with(mut self, nth: usize, value: Value<'a>) -> Self {
        if let Some(input) = self.inputs.get_mut(nth) {
            *input = value;
        }
        self
    }

    /// Sets the object, if any.
    #[must_use]
    #[inline]
    pub fn object(self, object: Option<&'a Json>) -> Self {
        self.with(0, object.map_or(Value::Null, Value::from))
    }

    /// Sets the old object, if any.
    #[must_use]
    #[inline]
    pub fn old_object(self, object: Option<&'a Json>) -> Self {
        self.with(1, object.map_or(Value::Null, Value::from))
    }

    /// Sets the authorizer, and `authorizer.requestResource` for the resource of the request.
    #[must_use]
    pub fn authorizer(self, authorizer: AuthorizerValue, request: &Request) -> Self {
        let resource = &request.resource;
        let check = authorizer.request_resource(
            &resource.group,
            &resource.resource,
            &request.sub_resource,
            &request.namespace,
            &request.name,
        );
        let check = Value::Opaque(Arc::new(Opaque::ResourceCheck(check)));
        self.with(4, Opaque::Authorizer(authorizer).into())
            .with(5, check)
    }

    /// Unsets the authorizer: expressions that use it fail.
    #[must_use]
    pub fn without_authorizer(self) -> Self {
        let unbound = |name: &str| {
            let error = Error::text(format_args!("no such attribute(s): {name}"));
            Value::Failed(Arc::new(error))
        };
        self.with(4, unbound("authorizer"))
            .with(5, unbound("authorizer.requestResource"))
    }

    /// Sets the parameters of a policy, if any.
    #[must_use]
    pub fn params(self, params: Option<&'a Json>) -> Self {
        self.with(7, params.map_or(Value::Null, Value::from))
    }

    /// Sets a flag that interrupts loops.
    #[must_use]
    pub fn interrupted_by(mut self, flag: &'a AtomicBool) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// The values in order of declaration.
    #[must_use]
    #[inline]
    pub fn inputs(&self) -> Inputs<'_> {
        self.with_known_fields(&self.inputs)
    }

    /// The inputs of [`Self::policy_inputs`], with the known fields of the request.
    #[must_use]
    #[inline]
    pub fn with_known_fields<'i>(&self, inputs: &'i [Value<'i>; 8]) -> Inputs<'i>
    where
        'a: 'i,
    {
        Inputs::from(inputs).with_known_fields(self.known)
    }

    /// The values in order of declaration in a policy's environment.
    ///
    /// A policy adds `namespaceObject`, `variables` and, with parameters, `params`.
    #[must_use]
    pub fn policy_inputs(
        &self,
        namespace: Option<&'a Json>,
        params: Option<&'a Json>,
    ) -> [Value<'a>; 8] {
        let [object, old_object, _, request, authorizer, check, ..] = self.inputs.clone();
        let namespace = namespace.map_or(Value::Null, Value::from);
        let params = params.map_or(Value::Null, Value::from);
        [
            object,
            old_object,
            namespace,
            request,
            authorizer,
            check,
            Value::Variables,
            params,
        ]
    }

    /// Creates an evaluator for this request.
    #[must_use]
    pub fn evaluator(&'a self) -> Evaluator<'a> {
        Evaluator { variables: self }
    }
}

/// The result and the cost of an evaluation.
type Known = (Result<bool, Error>, u64);

/// Evaluates conditions for one request.
#[derive(Debug)]
pub struct Evaluator<'a> {
    variables: &'a Variables<'a>,
}

impl Evaluator<'_> {
    /// The result of a program and its cost.
    pub(crate) fn condition(&self, program: &Arc<Program>) -> Known {
        let limits = Limits {
            interrupt: self.variables.interrupt,
            ..Limits::default()
        };
        let Evaluation { value, cost } = evaluate(program, self.variables.inputs(), limits);
        (value.map(|value| matches!(value, Value::Bool(true))), cost)
    }

    /// Like [`Self::condition`], and records every part.
    pub(crate) fn condition_recorded(
        &self,
        program: &Arc<Program>,
        name: &str,
    ) -> (Known, RecordedExpression) {
        let limits = Limits {
            interrupt: self.variables.interrupt,
            ..Limits::default()
        };
        let (evaluation, recording) = evaluate_recorded(program, self.variables.inputs(), limits);
        let Evaluation { value, cost } = evaluation;
        let outcome = value.as_ref().map_err(ToString::to_string);
        let record = RecordedExpression {
            recording,
            ..RecordedExpression::new(name, outcome, cost)
        };
        let known = (value.map(|value| matches!(value, Value::Bool(true))), cost);
        (known, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_fields() -> Request {
        let kind = |kind: &str| GroupVersionKind {
            group: format!("group of {kind}"),
            version: format!("version of {kind}"),
            kind: kind.to_owned(),
        };
        let resource = |resource: &str| GroupVersionResource {
            group: format!("group of {resource}"),
            version: format!("version of {resource}"),
            resource: resource.to_owned(),
        };
        Request {
            kind: kind("kind"),
            resource: resource("resource"),
            sub_resource: "subresource".to_owned(),
            request_kind: kind("request kind"),
            request_resource: resource("request resource"),
            request_sub_resource: "request subresource".to_owned(),
            name: "name".to_owned(),
            namespace: "namespace".to_owned(),
            operation: "CREATE".to_owned(),
            username: "username".to_owned(),
            user_uid: "uid".to_owned(),
            groups: vec!["one".to_owned(), "two".to_owned()],
            ..Request::default()
        }
    }

    #[test]
    fn known_fields_are_those_of_the_variable() {
        for (request, unknown) in [(all_fields(), 0), (Request::default(), 5)] {
            let RequestVariable { json, known } = RequestVariable::new(request);
            for (path, known) in KNOWN_FIELDS.iter().zip(&known) {
                let pointer = path.trim_start_matches("request").replace('.', "/");
                let expected = match known {
                    PrecomputedField::Text(text) => Some(json!(text)),
                    PrecomputedField::Texts(texts) => Some(json!(texts)),
                    PrecomputedField::Unknown => None,
                };
                assert_eq!(json.pointer(&pointer), expected.as_ref(), "{path}");
            }
            let count = known
                .iter()
                .filter(|known| **known == PrecomputedField::Unknown);
            assert_eq!(count.count(), unknown);
        }
    }
}
