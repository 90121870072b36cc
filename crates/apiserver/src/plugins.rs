//! What plugins ask of the server: the objects that are stored, writes in its name, and which resource is
//! meant by a kind.
//!
//! Lookups read the store itself, so that a plugin never decides by what was true a moment ago; what was
//! parsed once is kept as long as its revision is the newest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lockgate_admission::host::BoxFuture;
use lockgate_api::meta::status::Status;
use lockgate_plugins::lookup::{Found, LookupError, Resource as Known, Writes};
use lockgate_plugins::{Lookup, Mapper, Mapping};
use lockgate_store::{Entry, List, ReadAt, Revision};
use serde_json::Value;

use crate::controllers;
use crate::decode::options::WriteOptions;
use crate::error::Outcome;
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Registry, Resource};
use crate::server::Server;
use crate::write::create;
use crate::write::update::{Change, New};

/// How many parsed objects are kept. They are few: limits, quotas, classes, accounts, namespaces.
const MAX_KEPT: usize = 4096;

/// The objects of a server, for its plugins.
#[derive(Debug)]
pub(crate) struct Objects {
    registry: Arc<Registry>,
    /// Set when the server is complete.
    server: OnceLock<Weak<Server>>,
    parsed: Mutex<HashMap<String, (Revision, Arc<Value>)>>,
}

impl Objects {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            server: OnceLock::new(),
            parsed: Mutex::default(),
        }
    }

    /// Whose objects these are.
    pub(crate) fn belong_to(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    fn server(&self) -> Result<Arc<Server>, LookupError> {
        let server = self.server.get().and_then(Weak::upgrade);
        server.ok_or_else(|| LookupError(String::from("the server stops")))
    }

    fn resource(&self, known: Known) -> Option<Arc<Resource>> {
        let snapshot = self.registry.snapshot();
        snapshot
            .find(known.group, known.version, known.plural)
            .cloned()
    }

    async fn parse(
        &self,
        server: &Server,
        resource: &Resource,
        entry: &Entry,
    ) -> Result<Arc<Value>, LookupError> {
        let kept = || self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((revision, object)) = kept().get(&*entry.key)
            && *revision == entry.revision
        {
            return Ok(Arc::clone(object));
        }
        let object = server.show(entry, resource).await;
        let object = Arc::new(object.map_err(|failure| LookupError(failure.0.message))?);
        let mut kept = kept();
        if kept.len() >= MAX_KEPT {
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
        let server = self.server()?;
        let Some(resource) = self.resource(known) else {
            return Ok(None);
        };
        // What is not a name is nobody's, and no part of a key.
        if name.is_empty() || name.contains('/') || namespace.contains('/') {
            return Ok(None);
        }
        let key = server.key(&resource, namespace, name);
        let found = server.store.get(&key, ReadAt::Latest).await;
        match found.map_err(|error| LookupError(error.to_string()))? {
            (Some(entry), _) => Ok(Some(self.parse(&server, &resource, &entry).await?)),
            (None, _) => Ok(None),
        }
    }

    async fn find_all(
        &self,
        known: Known,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, LookupError> {
        let server = self.server()?;
        let Some(resource) = self.resource(known) else {
            return Ok(Vec::new());
        };
        let prefix = server.prefix(&resource, namespace);
        let page = server.store.list(List::all(&prefix)).await;
        let page = page.map_err(|error| LookupError(error.to_string()))?;
        let mut objects = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            objects.push(self.parse(&server, &resource, entry).await?);
        }
        Ok(objects)
    }

    async fn make(&self, known: Known, namespace: &str, object: Value) -> Outcome<()> {
        let (server, resource) = self.writer(known)?;
        let json = "application/json";
        let who = controllers::api_server();
        let target = (namespace, "");
        let mut call = controllers::request(who, Verb::Create, &resource, target, json, &object);
        create::create(&server, &mut call, &resource).await?;
        Ok(())
    }

    async fn set_status(&self, known: Known, object: &Value) -> Outcome<Arc<Value>> {
        let (server, resource) = self.writer(known)?;
        let (namespace, name) = (
            metadata::text(object, "namespace"),
            metadata::text(object, "name"),
        );
        let who = controllers::api_server();
        let mut call = controllers::call(who, Verb::Update, &resource, namespace, name, "status");
        let options = WriteOptions::default();
        let change = Change::new(&resource, &options);
        let changed = change
            .apply(&server, &mut call, |_, _| Ok(New::Object(object.clone())))
            .await?;
        Ok(Arc::new(changed.object))
    }

    fn writer(&self, known: Known) -> Outcome<(Arc<Server>, Arc<Resource>)> {
        let server = self.server();
        let server = server.map_err(|error| crate::error::internal(&error.to_string()))?;
        let missing = || crate::error::internal("a resource that plugins write is not served");
        let resource = self.resource(known).ok_or_else(missing)?;
        Ok((server, resource))
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
