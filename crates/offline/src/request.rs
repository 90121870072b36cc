//! Requests, from an object, an operation and a user, or from a captured AdmissionReview.

use std::collections::BTreeMap;

use lockgate_admission::host::{DecodeError, Kinds as _};
use lockgate_admission::object::Object;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, UserInfo};
use lockgate_kinds::tree;
use serde_json::{Map, Value, json};

use crate::kinds::{OfflineKinds, Placement};
use crate::manifest::split_api_version;

/// The metadata fields that clients cannot set.
const SYSTEM_METADATA: [&str; 5] = [
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// The default user of a request.
pub const DEFAULT_USER: &str = "kubernetes-admin";

/// An invalid request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request has no object.
    #[error("{0} requires an object")]
    NoObject(&'static str),
    /// The object has no apiVersion or kind.
    #[error("the object has no {0}")]
    NoType(&'static str),
    /// The object is invalid for its kind.
    #[error("the object is not a valid {kind}: {error}")]
    Decode {
        /// The kind.
        kind: String,
        /// The error.
        error: DecodeError,
    },
    /// The operation is unknown.
    #[error("unknown operation `{0}`, expected CREATE, UPDATE, DELETE or CONNECT")]
    Operation(String),
    /// The review is invalid.
    #[error("not an AdmissionReview with a request: {0}")]
    Review(&'static str),
}

/// The description of a request. Missing values are derived from the objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestSpec {
    /// The operation; by default UPDATE if there are two objects, DELETE if there is only an old one, else CREATE.
    pub operation: Option<Operation>,
    /// The new object.
    pub object: Option<Value>,
    /// The stored object.
    pub old_object: Option<Value>,
    /// The requesting user.
    pub user: UserInfo,
    /// The namespace of the request.
    pub namespace: Option<String>,
    /// The name in the URL.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: String,
    /// The kind of the object, if it differs from the resource's.
    pub kind: Option<GroupVersionKind>,
    /// The resource, if it cannot be derived from the kind.
    pub resource: Option<GroupVersionResource>,
    /// The options of the operation.
    pub options: Option<Value>,
    /// True for a dry run.
    pub dry_run: bool,
    /// True to submit objects without decoding them as their kind, like tools without kinds.
    pub as_is: bool,
}

/// A request, with the warnings of decoding it.
#[derive(Debug, Clone)]
pub struct BuiltRequest {
    /// The request.
    pub request: Request,
    /// Unknown fields, which are dropped.
    pub findings: Vec<String>,
    /// Facts that were assumed in the absence of information.
    pub assumptions: Vec<String>,
}

/// The user in command-line flags.
#[must_use]
pub fn user(name: Option<&str>, groups: &[String]) -> UserInfo {
    let (name, mut groups) = match name {
        Some(name) => (name, groups.to_vec()),
        None if groups.is_empty() => (DEFAULT_USER, vec![String::from("system:masters")]),
        None => (DEFAULT_USER, groups.to_vec()),
    };
    if let Some(account) = name.strip_prefix("system:serviceaccount:") {
        let namespace = account.split(':').next().unwrap_or_default();
        groups.push(String::from("system:serviceaccounts"));
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    if !groups.iter().any(|group| group == "system:authenticated") && name != "system:anonymous" {
        groups.push(String::from("system:authenticated"));
    }
    UserInfo {
        username: name.to_owned(),
        groups: Some(groups),
        ..UserInfo::default()
    }
}

impl RequestSpec {
    /// Creates the request as an API server would submit it to admission: objects with their defaults, without fields
    /// that clients cannot set.
    ///
    /// # Errors
    ///
    /// Fails without an object, or with an object of another kind.
    pub fn make(&self, kinds: &OfflineKinds) -> Result<BuiltRequest, RequestError> {
        let operation = self
            .operation
            .unwrap_or(match (&self.object, &self.old_object) {
                (Some(_), Some(_)) => Operation::Update,
                (None, Some(_)) => Operation::Delete,
                _ => Operation::Create,
            });
        let shown = self.object.as_ref().or(self.old_object.as_ref());
        let object_kind = match (&self.kind, shown) {
            (Some(kind), _) => Some(kind.clone()),
            (None, Some(object)) => Some(kind_of(object)?),
            (None, None) => None,
        };
        let object_kind = match (object_kind, &self.resource) {
            (Some(kind), _) => kind,
            (None, Some(resource)) => kinds
                .of_resource(resource)
                .map(|known| known.kind)
                .ok_or(RequestError::NoObject(operation.name()))?,
            (None, None) => return Err(RequestError::NoObject(operation.name())),
        };
        let known = kinds.of_kind(&object_kind);
        let mut assumptions = Vec::new();
        let plural = match &self.resource {
            Some(resource) => resource.clone(),
            None => {
                if known.placement == Placement::Unknown {
                    assumptions.push(format!(
                        "{} is not defined: the resource is assumed to be `{}`",
                        object_kind.kind, known.resource.resource
                    ));
                }
                known.resource.clone()
            }
        };
        // A subresource may have its own kind; the resource identifies the parent.
        let request_kind = match (&self.kind, self.subresource.as_str()) {
            (None, part) if !part.is_empty() => {
                let own = kinds.of_subresource(&plural, part);
                own.unwrap_or_else(|| object_kind.clone())
            }
            _ => object_kind,
        };
        let mut request = Request::new(operation, request_kind.clone(), plural);
        request.subresource.clone_from(&self.subresource);
        request.user.clone_from(&self.user);
        request.dry_run = self.dry_run;
        let text = |member: &str| {
            let text = shown.and_then(|object| object["metadata"][member].as_str());
            text.unwrap_or_default().to_owned()
        };
        request.name = self.name.clone().unwrap_or_else(|| text("name"));
        request.namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => text("namespace"),
        };
        let is_namespace =
            request.resource.group.is_empty() && request.resource.resource == "namespaces";
        match known.placement {
            _ if is_namespace => request.namespace.clone_from(&request.name),
            Placement::Cluster => request.namespace.clear(),
            Placement::Namespaced if request.namespace.is_empty() => {
                request.namespace = String::from("default");
            }
            _ => {}
        }
        let mut findings = Vec::new();
        let is_create = operation == Operation::Create && self.subresource.is_empty();
        let own_namespace = if is_namespace {
            ""
        } else {
            request.namespace.as_str()
        };
        if let Some(object) = &self.object {
            let mut object = object.clone();
            if is_create {
                wipe(&mut object);
            }
            place(&mut object, own_namespace);
            let of = kind_of(&object).unwrap_or_else(|_| request_kind.clone());
            let (object, found) = match self.as_is {
                true => (object, Vec::new()),
                false => read(kinds, object, &of)?,
            };
            findings = found;
            request.object = Some(Object::new(object));
        }
        if let Some(old) = &self.old_object {
            let mut old = old.clone();
            place(&mut old, own_namespace);
            let of = kind_of(&old).unwrap_or_else(|_| request_kind.clone());
            let (old, _) = read(kinds, old, &of)?;
            request.old_object = Some(Object::new(old));
        }
        match operation {
            Operation::Delete => request.object = None,
            Operation::Create => request.old_object = None,
            Operation::Update | Operation::Connect => {}
        }
        request.options = Some(self.options(operation).into());
        if operation == Operation::Connect {
            request.options = None;
        }
        request.fine_times = kinds.is_built_in(&request.kind) && is_tracked(&request);
        Ok(BuiltRequest {
            request,
            findings,
            assumptions,
        })
    }

    fn options(&self, operation: Operation) -> Value {
        if let Some(options) = &self.options {
            return options.clone();
        }
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete | Operation::Connect => "DeleteOptions",
        };
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}

/// Returns true if the write adds an entry to the managed fields, whose timestamp then has a higher resolution than its
/// JSON.
fn is_tracked(request: &Request) -> bool {
    match (&request.object, &request.old_object) {
        (Some(new), Some(old)) => !tree::equal(new.value(), old.value()),
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn read(
    kinds: &OfflineKinds,
    object: Value,
    of: &GroupVersionKind,
) -> Result<(Value, Vec<String>), RequestError> {
    kinds
        .read(object, of)
        .map_err(|error| RequestError::Decode {
            kind: of.kind.clone(),
            error,
        })
}

/// The kind of an object.
///
/// # Errors
///
/// Fails if the object has none.
pub fn kind_of(object: &Value) -> Result<GroupVersionKind, RequestError> {
    let text = |member: &'static str| {
        let text = object[member].as_str().filter(|text| !text.is_empty());
        text.ok_or(RequestError::NoType(member))
    };
    let (group, version) = split_api_version(text("apiVersion")?);
    Ok(kind(group, version, text("kind")?))
}

fn wipe(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for member in SYSTEM_METADATA {
            metadata.remove(member);
        }
    }
}

/// Sets the namespace of an object to the request's.
fn place(object: &mut Value, namespace: &str) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    let metadata = members
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut()
        && !namespace.is_empty()
    {
        metadata
            .entry("namespace")
            .or_insert_with(|| namespace.into());
    }
}

/// The original request of an AdmissionReview, or of its `request`.
///
/// # Errors
///
/// Fails if it is not a review, or its operation is unknown.
pub fn from_review(review: &Value, kinds: &OfflineKinds) -> Result<Request, RequestError> {
    let request = match review.get("request") {
        Some(request) => request,
        None if review.get("operation").is_some() => review,
        None => return Err(RequestError::Review("missing `request`")),
    };
    if !request.is_object() {
        return Err(RequestError::Review("`request` is not an object"));
    }
    let text = |member: &str| request[member].as_str().unwrap_or_default();
    let operation = text("operation");
    let operation = Operation::from_name(operation)
        .ok_or_else(|| RequestError::Operation(operation.to_owned()))?;
    let member = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let shown_kind = match &request["kind"] {
        Value::Object(_) => read_kind(&request["kind"]),
        // Handwritten reviews omit what the object contains.
        _ => [&request["object"], &request["oldObject"]]
            .into_iter()
            .find_map(|object| kind_of(object).ok())
            .ok_or(RequestError::Review("missing `kind`"))?,
    };
    // The requested kind; webhooks may have received a converted one.
    let asked_kind = match &request["requestKind"] {
        Value::Object(_) => read_kind(&request["requestKind"]),
        _ => shown_kind.clone(),
    };
    let asked = match &request["requestResource"] {
        Value::Object(_) => &request["requestResource"],
        _ => &request["resource"],
    };
    let asked = match asked {
        Value::Object(_) => resource(
            &member(asked, "group"),
            &member(asked, "version"),
            &member(asked, "resource"),
        ),
        _ => kinds.of_kind(&asked_kind).resource,
    };
    let mut made = Request::new(operation, asked_kind.clone(), asked);
    made.subresource = match text("requestSubResource") {
        "" => text("subResource").to_owned(),
        asked => asked.to_owned(),
    };
    text("name").clone_into(&mut made.name);
    text("namespace").clone_into(&mut made.namespace);
    made.user = read_user(&request["userInfo"]);
    made.dry_run = request["dryRun"].as_bool().unwrap_or_default();
    let object = |member: &str| {
        let object = request.get(member).filter(|object| object.is_object())?;
        let object = Object::new(object.clone());
        if shown_kind == asked_kind {
            return Some(object);
        }
        kinds.convert_now(&object, &asked_kind).or(Some(object))
    };
    made.object = object("object");
    made.old_object = object("oldObject");
    let options = request.get("options").filter(|options| options.is_object());
    made.options = options.cloned().map(Object::new);
    made.fine_times = kinds.is_built_in(&made.kind) && is_tracked(&made);
    Ok(made)
}

fn read_kind(value: &Value) -> GroupVersionKind {
    let text = |member: &str| value[member].as_str().unwrap_or_default();
    kind(text("group"), text("version"), text("kind"))
}

/// Decodes the user of a review.
#[must_use]
pub fn read_user(value: &Value) -> UserInfo {
    let text = |member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let groups = value["groups"].as_array();
    let extra = value["extra"].as_object();
    UserInfo {
        username: text("username"),
        uid: text("uid"),
        groups: groups.map(|_| texts(&value["groups"])),
        extra: extra.map(|extra| {
            let pairs = extra.iter();
            let pairs = pairs.map(|(key, value)| (key.clone(), texts(value)));
            pairs.collect::<BTreeMap<_, _>>()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": "x"},
            "spec": {"containers": [{"name": "c", "image": "i", "sice": 1}]}})
    }

    #[test]
    fn makes_what_an_api_server_submits() {
        let wanted = RequestSpec {
            object: Some(pod()),
            namespace: Some(String::from("shop")),
            ..RequestSpec::default()
        };
        let made = wanted.make(&OfflineKinds::default()).unwrap();
        let request = made.request;
        assert_eq!(request.operation, Operation::Create);
        assert_eq!(request.resource.resource, "pods");
        let object = request.object.unwrap();
        assert_eq!(object.value()["spec"]["restartPolicy"], "Always");
        assert_eq!(object.value()["metadata"]["namespace"], "shop");
        assert!(object.value()["metadata"].get("uid").is_none());
        assert_eq!(made.findings, ["unknown field \"spec.containers[0].sice\""]);
    }

    #[test]
    fn a_deletion_has_the_old_object_alone() {
        let wanted = RequestSpec {
            old_object: Some(pod()),
            ..RequestSpec::default()
        };
        let request = wanted.make(&OfflineKinds::default()).unwrap().request;
        assert_eq!(request.operation, Operation::Delete);
        assert!(request.object.is_none());
        assert_eq!(request.namespace, "default");
        assert!(request.old_object.is_some());
    }

    #[test]
    fn reads_back_the_request_of_a_review() {
        let review = json!({"request": {
            "uid": "u", "operation": "UPDATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "status",
            "name": "web", "namespace": "shop", "userInfo": {"username": "ann", "groups": ["dev"]},
            "object": pod(), "oldObject": pod(), "dryRun": true}});
        let request = from_review(&review, &OfflineKinds::default()).unwrap();
        assert_eq!(request.subresource, "status");
        assert_eq!(request.user.username, "ann");
        assert!(request.dry_run);
        let error = from_review(&json!({"a": 1}), &OfflineKinds::default()).unwrap_err();
        assert!(error.to_string().starts_with("not an AdmissionReview"));
    }
}
