//! An aggregated API server: it stores notes, and every write passes through the webhooks registered for them.
//!
//! ```text
//!   cargo run -p lockgate-admission --example aggregated -- 127.0.0.1:8080 webhooks.yaml
//!   curl -d '{"metadata":{"name":"a"},"text":"buy milk"}' \
//!     127.0.0.1:8080/apis/notes.example.com/v1/namespaces/home/notes
//! ```
//!
//! The main server proxies requests here after authentication, with the user in headers. A real server would verify its
//! client certificate before trusting them; this one listens on loopback.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{Host, Ids as _, RandomIds};
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{self, Operation, kind, resource};
use lockgate_api::document::yaml;
use lockgate_api::meta::status::Status;
use lockgate_api::registration::codec;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const GROUP: &str = "notes.example.com";
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The timeout of a write, webhooks included.
const REQUEST_TIME: Duration = Duration::from_secs(34);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| String::from("127.0.0.1:0"));
    let engine = Engine::new(Host::new(Arc::new(HttpsCaller::new(Settings::default()))));
    for file in arguments {
        register(&engine, &std::fs::read_to_string(file)?)?;
    }
    let listener = TcpListener::bind(address).await?;
    println!(
        "notes are at http://{}/apis/{GROUP}/v1",
        listener.local_addr()?
    );
    serve(listener, engine).await;
    Ok(())
}

/// Registers the webhook configurations of a manifest.
pub(crate) fn register(engine: &Engine, manifest: &str) -> Result<(), Box<dyn Error>> {
    for document in yaml::parse_all(manifest).map_err(|error| error.to_string())? {
        let root = document.root();
        let member = |name: &str| root.get(name).and_then(|value| value.as_str());
        let api_version = member("apiVersion").unwrap_or_default();
        let (kind, version) = codec::identify(api_version, member("kind").unwrap_or_default())
            .ok_or("not a webhook configuration")?;
        let decoded = codec::decode(root, kind, version).map_err(|error| error.message)?;
        engine.register(&decoded.value);
    }
    Ok(())
}

/// Serves notes until the task is dropped.
pub(crate) async fn serve(listener: TcpListener, engine: Engine) {
    let notes = Arc::new(Notes {
        engine,
        stored: Mutex::default(),
    });
    // Connections are closed when the server is dropped.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let notes = Arc::clone(&notes);
        connections.spawn(async move {
            let service = service_fn(|request| {
                let notes = Arc::clone(&notes);
                async move { Ok::<_, Infallible>(notes.respond(request).await) }
            });
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The storage of the example, with its admission chain.
struct Notes {
    engine: Engine,
    stored: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    /// By namespace and name.
    notes: BTreeMap<(String, String), Value>,
    version: u64,
}

/// A write, from the request line and the headers.
struct Write {
    operation: Operation,
    namespace: String,
    name: String,
    dry_run: bool,
}

impl Notes {
    async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let Some((namespace, name)) = address(head.uri.path()) else {
            return refuse(&failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ));
        };
        let operation = match (&head.method, name.is_empty()) {
            (&Method::GET, _) => return self.read(namespace, name),
            (&Method::POST, true) => Operation::Create,
            (&Method::PUT, false) => Operation::Update,
            (&Method::DELETE, false) => Operation::Delete,
            _ => {
                let message = "the server does not allow this method on the requested resource";
                return refuse(&failure(405, "MethodNotAllowed", message));
            }
        };
        let object = if operation == Operation::Delete {
            None
        } else {
            let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
                return refuse(&failure(
                    413,
                    "RequestEntityTooLarge",
                    "the body is too large",
                ));
            };
            match serde_json::from_slice::<Value>(&body.to_bytes()) {
                Ok(object) if object.is_object() => Some(object),
                _ => return refuse(&Status::bad_request("the body is not a JSON object")),
            }
        };
        let write = Write {
            operation,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            dry_run: head
                .uri
                .query()
                .is_some_and(|query| query.contains("dryRun=All")),
        };
        self.write(write, &head.headers, object).await
    }

    fn read(&self, namespace: &str, name: &str) -> Response<Full<Bytes>> {
        let store = self.lock();
        if name.is_empty() {
            let items: Vec<&Value> = store
                .notes
                .iter()
                .filter(|((found, _), _)| found == namespace)
                .map(|(_, note)| note)
                .collect();
            let list = json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": "NoteList",
                "metadata": {"resourceVersion": store.version.to_string()},
                "items": items,
            });
            return answer(StatusCode::OK, &list);
        }
        match store.notes.get(&(namespace.to_owned(), name.to_owned())) {
            Some(note) => answer(StatusCode::OK, note),
            None => refuse(&not_found(name)),
        }
    }

    /// A write in steps: facts, mutating admission, own fields and validation, validating admission, storage.
    async fn write(
        &self,
        write: Write,
        headers: &HeaderMap,
        object: Option<Value>,
    ) -> Response<Full<Bytes>> {
        let mut facts = request::Request::new(
            write.operation,
            kind(GROUP, "v1", "Note"),
            resource(GROUP, "v1", "notes"),
        );
        facts.namespace.clone_from(&write.namespace);
        facts.name.clone_from(&write.name);
        facts.dry_run = write.dry_run;
        facts.deadline = Instant::now().checked_add(REQUEST_TIME);
        facts.user.username = text(headers, "x-remote-user")
            .unwrap_or("system:anonymous")
            .to_owned();
        let groups = headers.get_all("x-remote-group").iter();
        let groups = groups.filter_map(|group| group.to_str().ok().map(str::to_owned));
        facts.user.groups = Some(groups.collect());
        let options = match write.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete | Operation::Connect => "DeleteOptions",
        };
        let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": options});
        facts.options = Some(options.into());
        if write.operation != Operation::Create {
            let key = (write.namespace.clone(), write.name.clone());
            let Some(stored) = self.lock().notes.get(&key).cloned() else {
                return refuse(&not_found(&write.name));
            };
            facts.old_object = Some(stored.into());
        }
        facts.object = object.map(|mut object| {
            object["apiVersion"] = json!(format!("{GROUP}/v1"));
            object["kind"] = json!("Note");
            object.into()
        });
        if write.operation == Operation::Create {
            let name = facts
                .object
                .as_ref()
                .and_then(|object| object.metadata_text("name"));
            facts.name = name.unwrap_or_default().to_owned();
        }

        let mut admission = Admission::new(facts);
        let mut decision = self.engine.admit(&mut admission).await;
        if decision.is_allowed() {
            if let Err(problem) = complete(&mut admission, &write) {
                return refuse(&Status::bad_request(problem));
            }
            decision = self.engine.validate(&mut admission).await;
        }
        let mut response = match &decision {
            Decision::Deny(denial) => refuse(&denial.status),
            Decision::Allow => self.store(&admission, &write),
        };
        for warning in admission.warnings().headers() {
            if let Ok(value) = HeaderValue::from_str(&warning) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }

    /// Stores the admitted object, unless it has been changed since it was read.
    fn store(&self, admission: &Admission, write: &Write) -> Response<Full<Bytes>> {
        let request = admission.request();
        let key = (write.namespace.clone(), request.name.clone());
        let mut store = self.lock();
        let stored = store.notes.get(&key);
        let code = match (write.operation, stored) {
            (Operation::Create, Some(_)) => {
                let message = format!("notes.{GROUP} \"{}\" already exists", request.name);
                return refuse(&failure(409, "AlreadyExists", &message));
            }
            (Operation::Create, None) => StatusCode::CREATED,
            (_, stored) if stored != request.old_object.as_ref().map(|object| object.value()) => {
                let message = "the object has been modified; please apply your changes to the \
                               latest version and try again";
                return refuse(&failure(409, "Conflict", message));
            }
            _ => StatusCode::OK,
        };
        let object = request.object.as_ref().or(request.old_object.as_ref());
        let mut note = object.map_or(Value::Null, |object| object.value().clone());
        if !write.dry_run {
            store.version += 1;
            if write.operation == Operation::Delete {
                store.notes.remove(&key);
            } else {
                note["metadata"]["resourceVersion"] = json!(store.version.to_string());
                store.notes.insert(key, note.clone());
            }
        }
        answer(code, &note)
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the server's fields and validates the object after mutation.
fn complete(admission: &mut Admission, write: &Write) -> Result<(), String> {
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
    let uid = RandomIds.uid();
    let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if write.operation == Operation::Create {
        if name.is_empty() {
            let start = metadata["generateName"].as_str().unwrap_or_default();
            let end: String = uid.chars().take(5).collect();
            name = format!("{start}{end}");
        }
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(write.namespace);
        metadata["uid"] = json!(uid);
    } else if name != write.name {
        return Err(format!(
            "the name of the object ({name}) does not match the name on the URL"
        ));
    }
    admission.request_mut().name = name;
    admission.set_object(object);
    Ok(())
}

/// The namespace and the name in a path; `None` for the name of a collection.
fn address(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/apis/notes.example.com/v1/namespaces/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let name = match rest {
        "notes" => "",
        rest => rest.strip_prefix("notes/")?,
    };
    let is_plain = !namespace.is_empty() && !name.contains('/');
    is_plain.then_some((namespace, name))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn failure(code: i32, reason: &str, message: &str) -> Status {
    Status {
        code,
        reason: reason.to_owned(),
        ..Status::bad_request(message)
    }
}

fn not_found(name: &str) -> Status {
    failure(
        404,
        "NotFound",
        &format!("notes.{GROUP} \"{name}\" not found"),
    )
}

fn refuse(status: &Status) -> Response<Full<Bytes>> {
    let code = u16::try_from(status.code).ok();
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let body = serde_json::to_value(status).unwrap_or_default();
    answer(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body)
}

fn answer(code: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
