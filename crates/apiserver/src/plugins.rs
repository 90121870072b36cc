//! The objects that admission plugins read and write, and the resources of kinds.
//!
//! Lookups read the store itself, so that plugins never use stale objects; parsed objects are cached while their
//! revision is the latest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lockgate_admission::host::BoxFuture;
use lockgate_api::meta::status::Status;
use lockgate_plugins::lookup::{Found, LookupError, Resource as Known, Writes};
use lockgate_plugins::{Lookup, Mapper, Mapping};
use lockgate_store::{Entry, List, ReadAt, Revision};
use serde_json::Value;

use crate::decode::body;
use crate::decode::options::WriteOptions;
use crate::decode::write::Body;
use crate::error::{Outcome, internal};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Registry, Resource};
use crate::request::{ObjectPath, Request, api_server};
use crate::write::update::{Change, New};
use crate::write::{Writer, create};

/// The field manager of writes by plugins.
const PROGRAM: &str = "kube-controller-manager";

/// The maximum number of cached parsed objects: LimitRanges, quotas, classes, accounts, namespaces.
const MAX_CACHED: usize = 4096;

/// The server's objects, for its plugins.
#[derive(Debug)]
pub(crate) struct Objects {
    registry: Arc<Registry>,
    /// Set when the engine is complete: plugins are part of the engine that admits their writes.
    writer: OnceLock<Weak<Writer>>,
    parsed: Mutex<HashMap<String, (Revision, Arc<Value>)>>,
}

impl Objects {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            writer: OnceLock::new(),
            parsed: Mutex::default(),
        }
    }

    /// Sets the writer for reads and writes.
    pub(crate) fn use_writer(&self, writer: &Arc<Writer>) {
        let _ = self.writer.set(Arc::downgrade(writer));
    }

    fn writer(&self) -> Result<Arc<Writer>, LookupError> {
        let writer = self.writer.get().and_then(Weak::upgrade);
        writer.ok_or_else(|| LookupError(String::from("the server is stopping")))
    }

    fn resource(&self, known: Known) -> Option<Arc<Resource>> {
        let snapshot = self.registry.snapshot();
        snapshot
            .find(known.group, known.version, known.plural)
            .cloned()
    }

    async fn parse(
        &self,
        writer: &Writer,
        resource: &Resource,
        entry: &Entry,
    ) -> Result<Arc<Value>, LookupError> {
        let kept = || self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((revision, object)) = kept().get(&*entry.key)
            && *revision == entry.revision
        {
            return Ok(Arc::clone(object));
        }
        let object = writer.storage.decode(entry, resource).await;
        let object = Arc::new(object.map_err(|failure| LookupError(failure.0.message))?);
        let mut kept = kept();
        if kept.len() >= MAX_CACHED {
            kept.clear();
        }
        kept.insert(entry.key.to_string(), (entry.revision, Arc::clone(&object)));
        Ok(object)
    }

    async fn find(
        &self,
        known: Known,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, LookupError> {
        let writer = self.writer()?;
        let Some(resource) = self.resource(known) else {
            return Ok(None);
        };
        // An invalid name has no object, and is not part of a key.
        if name.is_empty() || name.contains('/') || namespace.contains('/') {
            return Ok(None);
        }
        let key = writer.storage.key(&resource, namespace, name);
        let found = writer.storage.store().get(&key, ReadAt::Latest).await;
        match found.map_err(|error| LookupError(error.to_string()))? {
            (Some(entry), _) => Ok(Some(self.parse(&writer, &resource, &entry).await?)),
            (None, _) => Ok(None),
        }
    }

    async fn find_all(
        &self,
        known: Known,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, LookupError> {
        let writer = self.writer()?;
        let Some(resource) = self.resource(known) else {
            return Ok(Vec::new());
        };
        let prefix = writer.storage.prefix(&resource, namespace);
        let page = writer.storage.store().list(List::all(&prefix)).await;
        let page = page.map_err(|error| LookupError(error.to_string()))?;
        let mut objects = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            objects.push(self.parse(&writer, &resource, entry).await?);
        }
        Ok(objects)
    }

    async fn make(&self, known: Known, namespace: &str, object: Value) -> Outcome<()> {
        let (writer, resource) = self.target(known)?;
        let path = ObjectPath {
            resource: &resource,
            namespace,
            name: "",
            subresource: "",
        };
        let request = Request::internal(api_server(), Verb::Create, path);
        let body = Body {
            object: body::decode_value(object, &resource)?,
            options: WriteOptions::of_program(PROGRAM),
        };
        create::create(&writer, &request, body).await?;
        Ok(())
    }

    async fn set_status(&self, known: Known, object: &Value) -> Outcome<Arc<Value>> {
        let (writer, resource) = self.target(known)?;
        let path = ObjectPath {
            resource: &resource,
            namespace: metadata::text(object, "namespace"),
            name: metadata::text(object, "name"),
            subresource: "status",
        };
        let request = Request::internal(api_server(), Verb::Update, path);
        let options = WriteOptions::of_program(PROGRAM);
        let changed = Change::new(&writer, &request, &options)
            .apply(|_| Ok(New::Object(object.clone())))
            .await?;
        Ok(Arc::new(changed.into_object()))
    }

    fn target(&self, known: Known) -> Outcome<(Arc<Writer>, Arc<Resource>)> {
        let writer = self.writer();
        let writer = writer.map_err(|error| internal(&error.to_string()))?;
        let missing = || internal("a resource that plugins write is not served");
        let resource = self.resource(known).ok_or_else(missing)?;
        Ok((writer, resource))
    }
}

impl Lookup for Objects {
    fn get<'f>(
        &'f self,
        resource: Known,
        namespace: &'f str,
        name: &'f str,
    ) -> Found<'f, Option<Arc<Value>>> {
        Box::pin(self.find(resource, namespace, name))
    }

    fn list<'f>(&'f self, resource: Known, namespace: &'f str) -> Found<'f, Vec<Arc<Value>>> {
        Box::pin(self.find_all(resource, namespace))
    }
}

impl Writes for Objects {
    fn create<'f>(
        &'f self,
        resource: Known,
        namespace: &'f str,
        object: Value,
    ) -> BoxFuture<'f, Result<(), Box<Status>>> {
        Box::pin(async move {
            let made = self.make(resource, namespace, object).await;
            made.map_err(|failure| Box::new(*failure.0))
        })
    }

    fn update_status<'f>(
        &'f self,
        resource: Known,
        object: &'f Value,
    ) -> BoxFuture<'f, Result<Arc<Value>, Box<Status>>> {
        Box::pin(async move {
            let changed = self.set_status(resource, object).await;
            changed.map_err(|failure| Box::new(*failure.0))
        })
    }
}

impl Mapper for Objects {
    fn resource_of(&self, group: &str, version: &str, kind: &str) -> Option<Mapping> {
        let snapshot = self.registry.snapshot();
        let resource = snapshot.by_kind(group, version, kind)?;
        Some(Mapping {
            plural: resource.plural().to_owned(),
            namespaced: resource.names.namespaced,
        })
    }
}
