//! Creating an object.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/create.go, pkg/registry/generic/registry/store.go

use lockgate_kinds::kind;
use serde_json::Value;

use crate::allocate::{Allocation, Purpose};
use crate::decode::options::WriteOptions;
use crate::decode::write::Body;
use crate::encoding;
use crate::error::{Failure, Outcome, internal, plain};
use crate::metadata;
use crate::persist::PersistError;
use crate::request::Request;
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::managed_fields::Endpoint;
use crate::write::{Persisted, Recipe, Writer, run, strategy};

/// The maximum number of attempts to generate a free name.
const NAME_ATTEMPTS: usize = 8;

/// Creates an object.
pub(crate) async fn create(writer: &Writer, request: &Request, body: Body) -> Outcome<Reply> {
    let written = insert(writer, request, body).await?;
    Ok(written.into_reply().created())
}

/// Creates an object and returns it as stored.
pub(crate) async fn insert(writer: &Writer, request: &Request, body: Body) -> Outcome<Written> {
    let Body {
        mut object,
        options,
    } = body;
    let resource = &request.resource;
    resource.check_accepts_objects()?;
    let mut submission = Submission::create(request, &options);
    metadata::text(&object, "name").clone_into(&mut submission.name);
    let is_namespace = resource.is_namespace();
    if is_namespace {
        submission.namespace.clone_from(&submission.name);
    }
    metadata::wipe_system_fields(&mut object);
    let namespace = if is_namespace {
        ""
    } else {
        request.namespace()
    };
    metadata::match_namespace(&mut object, namespace)?;
    if let Some(warning) = metadata::drop_duplicate_owner_references(&mut object, false) {
        request.notes.warn(&warning);
    }
    let endpoint = Endpoint::of(writer, request);
    let tracked = endpoint.track(options.manager(), None, object).await;
    let mut insertion = Insertion::new(writer, request, &options, Cause::Create);
    let submission = submission.tracked(tracked);
    let created = run(&writer.admitter, request, submission, &mut insertion).await?;
    match created {
        Inserted::Created(written) => Ok(written),
        Inserted::Taken(failure) => Err(failure),
    }
}

/// A written object, and its encoded form if known.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    pub(crate) text: Option<String>,
}

impl From<Value> for Written {
    fn from(object: Value) -> Self {
        Self { object, text: None }
    }
}

impl Written {
    /// The response: the stored bytes, or the object if it must be encoded differently.
    pub(crate) fn into_reply(self) -> Reply {
        match self.text {
            Some(text) => Reply::text(text),
            None => Reply::object(self.object),
        }
    }
}

/// The outcome of an insertion.
#[derive(Debug)]
pub(crate) enum Inserted {
    Created(Written),
    /// The name exists.
    Taken(Failure),
}

/// The verb that creates an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Create,
    /// An update or patch of a missing object: the create permission must be checked.
    Update,
}

/// Stores a new object under its own or a generated name.
pub(crate) struct Insertion<'i> {
    writer: &'i Writer,
    request: &'i Request,
    options: &'i WriteOptions,
    cause: Cause,
    /// `None` before mutation.
    generates_name: Option<bool>,
    attempts: usize,
    /// The addresses and ports of a Service, released unless it is stored.
    allocated: Option<Allocation>,
    /// The error of storing metadata that a webhook made undecodable.
    spoiled: Option<Failure>,
}

impl<'i> Insertion<'i> {
    pub(crate) fn new(
        writer: &'i Writer,
        request: &'i Request,
        options: &'i WriteOptions,
        cause: Cause,
    ) -> Self {
        Self {
            writer,
            request,
            options,
            cause,
            generates_name: None,
            attempts: 0,
            spoiled: None,
            allocated: None,
        }
    }

    /// Validates the mutated object, as far as it does not depend on its name.
    fn begin(&self, object: &mut Value) -> Outcome<()> {
        if let Some(warning) = metadata::drop_duplicate_owner_references(object, true) {
            self.request.notes.warn(&warning);
        }
        self.writer
            .confirm_no_escalation(self.request, object, None)?;
        if self.cause == Cause::Update {
            let authorizer = self.writer.authorizer.as_ref();
            self.request.authorized.may_create(authorizer)?;
        }
        Ok(())
    }

    fn taken(&self, name: &str) -> Failure {
        if self.generates_name == Some(true) {
            self.request.resource.no_name_found(name)
        } else {
            self.request.resource.already_exists(name)
        }
    }

    async fn insert(&self, object: Value) -> Outcome<Inserted> {
        let resource = &self.request.resource;
        let storage = &self.writer.storage;
        let name = metadata::text(&object, "name").to_owned();
        let key = storage.key(resource, self.request.object_namespace(), &name);
        let forms = storage.forms(object, resource).await?;
        if self.options.is_dry_run() {
            return Ok(match storage.entry(&key).await? {
                Some(_) => Inserted::Taken(self.taken(&name)),
                None => Inserted::Created(forms.shown.into()),
            });
        }
        let ttl = encoding::time_to_live(&key);
        let (stored_as, object) = forms.stored(resource);
        match storage.insert(stored_as, &key, object, ttl).await {
            Ok(stored) => {
                let text = stored.text(resource);
                let mut object = forms.shown;
                encoding::set_version(&mut object, stored.revision);
                Ok(Inserted::Created(Written { object, text }))
            }
            Err(PersistError::AlreadyExists(entry)) => {
                let mut failure = self.taken(&name);
                let current = encoding::parse_entry(&entry, resource.type_meta())?;
                if metadata::is_deleting(&current) {
                    failure.0.message = format!("object is being deleted: {}", failure.0.message);
                }
                Ok(Inserted::Taken(failure))
            }
            Err(error) => Err(error.about(resource, &name)),
        }
    }
}

impl Recipe for Insertion<'_> {
    type Output = Inserted;

    fn may_repeat(&self, object: &Value) -> bool {
        let generates = metadata::text(object, "name").is_empty()
            && !metadata::text(object, "generateName").is_empty();
        generates && self.attempts < NAME_ATTEMPTS
    }

    fn prepare(&mut self, object: &mut Value) -> Outcome<()> {
        let resource = &self.request.resource;
        let notes = &self.request.notes;
        if self.generates_name.is_none() {
            self.generates_name = Some(self.may_repeat(object));
            self.begin(object)?;
        } else {
            metadata::drop_duplicate_owner_references(object, true);
        }
        self.attempts += 1;
        if resource.is_custom() {
            self.spoiled = self
                .writer
                .storage
                .metadata_conversion_failure(object, resource);
            metadata::drop_invalid(object)
                .map_err(|_| internal("system metadata was not initialized"))?;
        }
        if resource.shape.kind().generates_plain_names() {
            metadata::name_plainly(object);
        }
        metadata::fill(object);
        metadata::match_namespace(object, self.request.object_namespace())?;
        notes.restore_empties(object);
        strategy::begin(resource, object, None)?;
        let purpose = Purpose {
            is_dry_run: self.options.is_dry_run(),
            is_new: true,
            is_shared: self.writer.storage.store().is_shared(),
        };
        // Allocations of the previous attempt are released.
        self.allocated = None;
        self.allocated = self
            .writer
            .addresses
            .allocate(resource, object, None, purpose)?;
        let gates = self.writer.gates;
        for warning in resource.shape.kind().warnings_on_prepare(object) {
            notes.warn(&warning);
        }
        strategy::prepare_create(resource, object, self.request.user(), gates);
        if notes.shares_labels() {
            resource.shape.kind().follow_template(object);
        }
        let admin_access = self
            .writer
            .grants_admin_access(self.request.object_namespace());
        let new = kind::Written::new(object, resource.names.namespaced);
        strategy::check_create(resource, &new, gates, admin_access)?;
        let (access, user) = (self.writer.access(), self.request.user());
        strategy::authorize(&access, resource, object, None, user)?;
        for warning in strategy::warnings_on_create(resource, &new) {
            notes.warn(&warning);
        }
        strategy::canonicalize(resource, object);
        Ok(())
    }

    fn name<'n>(&'n self, object: &'n Value) -> &'n str {
        metadata::text(object, "name")
    }

    async fn persist(&mut self, mut object: Value) -> Outcome<Persisted<Inserted>> {
        // UPSTREAM: apiserver pkg/storage/etcd3/store.go (Create): a dry run does not come as far, and what
        // is no number counts as absent.
        let told = metadata::text(&object, "resourceVersion").parse::<u64>();
        if told.is_ok_and(|version| version != 0) && !self.options.is_dry_run() {
            return Err(plain(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(spoiled) = self.spoiled.take() {
            return Err(spoiled);
        }
        if !self.options.is_dry_run() {
            metadata::clear_self_link(&mut object);
        }
        let shape = &self.request.resource.shape;
        shape
            .complete(&mut object)
            .map_err(|error| plain(error.to_string()))?;
        if let Some(allocation) = &self.allocated
            && !self.options.is_dry_run()
        {
            let claimed = allocation.claim(&**self.writer.storage.store()).await;
            claimed.map_err(|error| internal(&error.to_string()))?;
        }
        let inserted = self.insert(object).await?;
        if matches!(inserted, Inserted::Created(_)) && !self.options.is_dry_run() {
            Allocation::commit(&mut self.allocated);
        }
        match inserted {
            Inserted::Taken(_)
                if self.generates_name == Some(true) && self.attempts < NAME_ATTEMPTS =>
            {
                Ok(Persisted::NameTaken)
            }
            inserted => Ok(Persisted::Done(inserted)),
        }
    }
}
