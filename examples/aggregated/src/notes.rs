//! Notes: authorization, admission, and storage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{self, Operation, kind, resource};
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use lockgate_follow::{Delegated, DelegatedError, Identity, Permission};
use lockgate_listener::Service;
use lockgate_store::{Entry, Event, List, ReadAt, Revision, Store, WriteError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::answer::{self, Body, failure, object, refused};
use crate::secure::Peer;

const GROUP: &str = "notes.example.com";
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The timeout of a write, webhooks included.
const REQUEST_TIME: Duration = Duration::from_secs(34);

/// The number of events buffered for a slow client.
const BACKLOG: usize = 100;

/// The store of notes.
pub(crate) struct Notes {
    engine: Engine,
    delegated: Arc<Delegated>,
    store: Arc<dyn Store>,
}

/// A parsed request path.
enum Path<'p> {
    Discovery,
    Group,
    Health,
    /// All notes, the notes of a namespace, or one note.
    Notes {
        namespace: &'p str,
        name: &'p str,
    },
}

/// A write, from the request line and the body.
struct Write<'w> {
    operation: Operation,
    namespace: &'w str,
    name: &'w str,
    dry_run: bool,
    object: Option<Value>,
}

impl Service for Notes {
    type Peer = Peer;
    type Body = Body;

    async fn handle(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        match self.respond(&peer, request).await {
            Ok(response) => response,
            Err(status) => refused(&status),
        }
    }
}

impl Notes {
    pub(crate) fn new(engine: Engine, delegated: Arc<Delegated>, store: Arc<dyn Store>) -> Self {
        Self {
            engine,
            delegated,
            store,
        }
    }

    async fn respond(
        &self,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let not_found = || {
            failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        };
        let path = read_path(head.uri.path()).ok_or_else(not_found)?;
        if matches!(path, Path::Health) {
            return Ok(object(StatusCode::OK, &json!("ok")));
        }
        let identity = Identity {
            certificates: &peer.0,
            headers: &head.headers,
        };
        let user = self
            .delegated
            .authenticate(identity)
            .await
            .map_err(status_of)?;
        let query = head.uri.query().unwrap_or_default();
        let has = |pair: &str| query.split('&').any(|found| found == pair);
        let is_watch = has("watch=true") || has("watch=1");
        let (namespace, name) = match path {
            Path::Notes { namespace, name } => (namespace, name),
            Path::Health | Path::Group | Path::Discovery => {
                let wanted = Permission {
                    verb: "get",
                    path: head.uri.path(),
                    ..Permission::default()
                };
                self.delegated
                    .authorize(&user, &wanted)
                    .await
                    .map_err(status_of)?;
                let document = match path {
                    Path::Group => group(),
                    _ => discovery(),
                };
                return Ok(object(StatusCode::OK, &document));
            }
        };
        let verb = match (&head.method, name.is_empty()) {
            (&Method::GET, true) if is_watch => "watch",
            (&Method::GET, true) => "list",
            (&Method::GET, false) => "get",
            (&Method::POST, true) if !namespace.is_empty() => "create",
            (&Method::PUT, false) => "update",
            (&Method::DELETE, false) => "delete",
            _ => {
                let message = "the server does not allow this method on the requested resource";
                return Err(failure(405, "MethodNotAllowed", message));
            }
        };
        let wanted = Permission {
            verb,
            group: GROUP,
            version: "v1",
            resource: "notes",
            namespace,
            name,
            ..Permission::default()
        };
        self.delegated
            .authorize(&user, &wanted)
            .await
            .map_err(status_of)?;
        let operation = match verb {
            "get" => return self.get(namespace, name).await,
            "list" => return self.list(namespace).await,
            "watch" => {
                let since = query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("resourceVersion="));
                return self.watch(namespace, since).await;
            }
            "create" => Operation::Create,
            "update" => Operation::Update,
            _ => Operation::Delete,
        };
        let object = match operation {
            Operation::Delete => None,
            _ => Some(read_object(body).await?),
        };
        let write = Write {
            operation,
            namespace,
            name,
            dry_run: has("dryRun=All"),
            object,
        };
        self.write(write, user).await
    }

    async fn entry(&self, namespace: &str, name: &str) -> Result<Entry, Status> {
        let read = self.store.get(&key(namespace, name), ReadAt::Latest).await;
        let (entry, _) = read.map_err(|error| failure(500, "InternalError", error.to_string()))?;
        entry.ok_or_else(|| {
            let message = format!("notes.{GROUP} {name:?} not found");
            failure(404, "NotFound", message)
        })
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Response<Body>, Status> {
        let entry = self.entry(namespace, name).await?;
        Ok(object(StatusCode::OK, &note(&entry)))
    }

    async fn list(&self, namespace: &str) -> Result<Response<Body>, Status> {
        let page = self.store.list(List::all(&prefix(namespace))).await;
        let page = page.map_err(|error| failure(500, "InternalError", error.to_string()))?;
        let items: Vec<Value> = page.entries.iter().map(|entry| note(entry)).collect();
        let list = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "NoteList",
            "metadata": {"resourceVersion": page.revision.to_string()}, "items": items,
        });
        Ok(object(StatusCode::OK, &list))
    }

    async fn watch(&self, namespace: &str, since: Option<&str>) -> Result<Response<Body>, Status> {
        let since = match since.and_then(|since| since.parse().ok()) {
            Some(since) => Revision(since),
            None => {
                let newest = self.store.revision().await;
                newest.map_err(|error| failure(500, "InternalError", error.to_string()))?
            }
        };
        let gone = |error: &dyn ToString| failure(410, "Expired", error.to_string());
        let watch = self.store.watch(&prefix(namespace), since).await;
        let mut watch = watch.map_err(|error| gone(&error))?;
        let (sender, events) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            // It ends when the client disconnects, or its history is compacted.
            while let Some(Ok(event)) = tokio::select! {
                event = watch.next() => Some(event),
                () = sender.closed() => None,
            } {
                let (kind, object) = match &event {
                    Event::Put {
                        entry,
                        previous: None,
                    } => ("ADDED", note(entry)),
                    Event::Put { entry, .. } => ("MODIFIED", note(entry)),
                    Event::Delete { previous, revision } => {
                        let mut object = note(previous);
                        object["metadata"]["resourceVersion"] = revision.to_string().into();
                        ("DELETED", object)
                    }
                };
                let line = format!("{}\n", json!({"type": kind, "object": object}));
                if sender.send(line.into()).await.is_err() {
                    break;
                }
            }
        });
        Ok(answer::with(StatusCode::OK, Body::Events(events)))
    }

    /// A write in steps: facts, mutating admission, own fields and validation, validating admission, storage.
    async fn write(&self, write: Write<'_>, user: UserInfo) -> Result<Response<Body>, Status> {
        let mut facts = request::Request::new(
            write.operation,
            kind(GROUP, "v1", "Note"),
            resource(GROUP, "v1", "notes"),
        );
        facts.namespace = write.namespace.to_owned();
        facts.name = write.name.to_owned();
        facts.dry_run = write.dry_run;
        facts.deadline = Instant::now().checked_add(REQUEST_TIME);
        facts.user = user;
        let options = match write.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete | Operation::Connect => "DeleteOptions",
        };
        facts.options = Some(json!({"apiVersion": "meta.k8s.io/v1", "kind": options}).into());
        let mut stored = None;
        if write.operation != Operation::Create {
            let entry = self.entry(write.namespace, write.name).await?;
            facts.old_object = Some(note(&entry).into());
            stored = Some(entry);
        }
        facts.object = write.object.clone().map(|mut object| {
            object["apiVersion"] = json!(format!("{GROUP}/v1"));
            object["kind"] = json!("Note");
            object.into()
        });
        let mut admission = Admission::new(facts);
        let mut decision = self.engine.admit(&mut admission).await;
        if decision.is_allowed() {
            complete(&mut admission, &write, stored.as_ref()).map_err(Status::bad_request)?;
            decision = self.engine.validate(&mut admission).await;
        }
        let mut response = match &decision {
            Decision::Deny(denial) => refused(&denial.status),
            Decision::Allow => self.persist(&admission, &write, stored).await?,
        };
        for warning in admission.warnings().headers() {
            if let Ok(value) = HeaderValue::from_str(&warning) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        Ok(response)
    }

    async fn persist(
        &self,
        admission: &Admission,
        write: &Write<'_>,
        stored: Option<Entry>,
    ) -> Result<Response<Body>, Status> {
        let request = admission.request();
        let of = request.object.as_ref().or(request.old_object.as_ref());
        let mut note = of.map_or(Value::Null, |object| object.value().clone());
        let code = match write.operation {
            Operation::Create => StatusCode::CREATED,
            _ => StatusCode::OK,
        };
        if write.dry_run {
            return Ok(object(code, &note));
        }
        let key = key(write.namespace, &request.name);
        let bytes = Bytes::from(note.to_string());
        // The object may have changed since it was read, which is a conflict.
        let written = match (write.operation, stored) {
            (Operation::Create, _) | (_, None) => self.store.create(&key, bytes, None).await,
            (Operation::Delete, Some(stored)) => {
                let deleted = self.store.delete(&key, stored.revision).await;
                deleted.map(|(revision, _)| revision)
            }
            (_, Some(stored)) => self.store.update(&key, stored.revision, bytes).await,
        };
        let name = &request.name;
        let revision = written.map_err(|error| match error {
            WriteError::AlreadyExists(_) => {
                let message = format!("notes.{GROUP} {name:?} already exists");
                failure(409, "AlreadyExists", message)
            }
            WriteError::Conflict(_) | WriteError::NotFound => failure(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            other => failure(500, "InternalError", other.to_string()),
        })?;
        note["metadata"]["resourceVersion"] = revision.to_string().into();
        Ok(object(code, &note))
    }
}

/// Sets the server's fields and validates the object after mutation.
fn complete(
    admission: &mut Admission,
    write: &Write<'_>,
    stored: Option<&Entry>,
) -> Result<(), String> {
    let Some(object) = &admission.request().object else {
        return Ok(());
    };
    let mut object = object.value().clone();
    if !object["text"].is_string() {
        return Err(String::from("text: Required value"));
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
    match stored {
        None => {
            let uid = RandomIds.uid();
            if name.is_empty() {
                let start = metadata["generateName"].as_str().unwrap_or_default();
                let end: String = uid.chars().take(5).collect();
                name = format!("{start}{end}");
            }
            metadata["name"] = json!(name);
            metadata["namespace"] = json!(write.namespace);
            metadata["uid"] = json!(uid);
        }
        Some(_) if name != write.name => {
            return Err(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                write.name
            ));
        }
        Some(stored) => metadata["uid"] = note(stored)["metadata"]["uid"].clone(),
    }
    if name.is_empty() || name.contains('/') {
        return Err(format!("metadata.name: Invalid value: {name:?}"));
    }
    if let Some(members) = metadata.as_object_mut() {
        members.remove("resourceVersion");
    }
    admission.request_mut().name = name;
    admission.set_object(object);
    Ok(())
}

fn prefix(namespace: &str) -> String {
    match namespace {
        "" => String::from("/notes/"),
        namespace => format!("/notes/{namespace}/"),
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("/notes/{namespace}/{name}")
}

fn note(entry: &Entry) -> Value {
    let mut note: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    note["metadata"]["resourceVersion"] = entry.revision.to_string().into();
    note
}

fn read_path(path: &str) -> Option<Path<'_>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    Some(match segments.as_slice() {
        ["healthz" | "livez" | "readyz"] => Path::Health,
        ["apis", GROUP] => Path::Group,
        ["apis", GROUP, "v1"] => Path::Discovery,
        ["apis", GROUP, "v1", "notes"] => Path::Notes {
            namespace: "",
            name: "",
        },
        ["apis", GROUP, "v1", "namespaces", namespace, "notes"] => Path::Notes {
            namespace,
            name: "",
        },
        ["apis", GROUP, "v1", "namespaces", namespace, "notes", name] => {
            Path::Notes { namespace, name }
        }
        _ => return None,
    })
}

fn discovery() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
        "resources": [{
            "name": "notes", "singularName": "note", "namespaced": true, "kind": "Note",
            "verbs": ["create", "delete", "get", "list", "update", "watch"], "shortNames": ["nt"],
        }],
    })
}

fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

async fn read_object(body: Incoming) -> Result<Value, Status> {
    let too_large = |_| failure(413, "RequestEntityTooLarge", "the body is too large");
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map_err(too_large)?;
    match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(object) if object.is_object() => Ok(object),
        _ => Err(Status::bad_request("the body is not a JSON object")),
    }
}

fn status_of(error: DelegatedError) -> Status {
    let text = error.to_string();
    match error {
        DelegatedError::Unauthorized => failure(401, "Unauthorized", text),
        DelegatedError::Forbidden(why) => failure(
            403,
            "Forbidden",
            format!("notes.{GROUP} is forbidden: {why}"),
        ),
        _ => failure(500, "InternalError", text),
    }
}
