//! Replaces an object; has the compare-and-swap loop of every update.
//!
//! ```text
//!   read ─► make the new object ─► stages 5 to 7 ─► done
//!    ▲                                  │
//!    └───────── changed meanwhile ──────┘
//! ```
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/update.go, pkg/registry/generic/registry/store.go

use lockgate_admission::object::Object;
use lockgate_kinds::kind;
use lockgate_kinds::managed_fields::ignore_timestamp_only_change;
use lockgate_store::{Entry, Revision};
use serde_json::Value;

use crate::allocate::{Allocation, Purpose};
use crate::decode::options::WriteOptions;
use crate::decode::write::Body;
use crate::encoding;
use crate::error::{Failure, Outcome, bad_request, check_key, internal, plain, timeout};
use crate::metadata;
use crate::persist::{PersistError, Storage};
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::create::{Cause, Inserted, Insertion, Written};
use crate::write::managed_fields::{Endpoint, Tracked, unreadable};
use crate::write::{Persisted, Recipe, Writer, run, strategy};

/// Replaces the requested object.
pub(crate) async fn update(writer: &Writer, request: &Request, body: Body) -> Outcome<Reply> {
    let Body {
        mut object,
        options,
    } = body;
    let namespace = if request.resource.is_namespace() {
        ""
    } else {
        request.namespace()
    };
    metadata::match_namespace(&mut object, namespace)?;
    check_name(&object, request.name())?;
    if let Some(warning) = metadata::drop_duplicate_owner_references(&mut object, false) {
        request.notes.warn(&warning);
    }
    let uid = metadata::text(&object, "uid").to_owned();
    let may_create = request.resource.rules.create_on_update && request.subresource().is_empty();
    let change = Change {
        uid: (!uid.is_empty()).then_some(uid.as_str()),
        create_when_missing: may_create,
        ..Change::new(writer, request, &options)
    };
    let changed = change.apply(|_| Ok(New::Object(object.clone()))).await?;
    Ok(changed.into_reply())
}

/// Checks that the name in an object matches the path.
pub(crate) fn check_name(object: &Value, name: &str) -> Outcome<()> {
    let found = metadata::text(object, "name");
    if found.is_empty() {
        return Err(bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != name {
        return Err(bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// An update of the requested object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'c> {
    pub(crate) writer: &'c Writer,
    pub(crate) request: &'c Request,
    pub(crate) options: &'c WriteOptions,
    /// The required UID of the object.
    pub(crate) uid: Option<&'c str>,
    pub(crate) create_when_missing: bool,
}

/// The result of an update function.
#[derive(Debug)]
pub(crate) enum New {
    /// An object whose managed fields have not been updated.
    Object(Value),
    /// An apply configuration.
    Configuration(Value),
}

/// An updated or created object.
#[derive(Debug)]
pub(crate) struct Changed {
    written: Written,
    created: bool,
}

impl Changed {
    pub(crate) fn into_object(self) -> Value {
        self.written.object
    }

    pub(crate) fn into_reply(self) -> Reply {
        let reply = self.written.into_reply();
        if self.created { reply.created() } else { reply }
    }
}

/// The outcome of one attempt.
#[derive(Debug)]
enum AttemptOutcome {
    Done(Changed),
    /// The object was changed concurrently.
    Lost,
}

impl AttemptOutcome {
    fn updated(written: impl Into<Written>) -> Self {
        Self::Done(Changed {
            written: written.into(),
            created: false,
        })
    }
}

impl<'c> Change<'c> {
    /// Creates an update of the object with any UID.
    pub(crate) fn new(writer: &'c Writer, request: &'c Request, options: &'c WriteOptions) -> Self {
        Self {
            writer,
            request,
            options,
            uid: None,
            create_when_missing: false,
        }
    }

    /// Updates the object. `make` gets the stored object, if any, and returns the new one; it is called again on
    /// conflicts.
    pub(crate) async fn apply(
        self,
        make: impl Fn(Option<&Value>) -> Outcome<New> + Sync,
    ) -> Outcome<Changed> {
        let request = self.request;
        let storage = &self.writer.storage;
        check_key(request.name())?;
        let key = storage.key(&request.resource, request.namespace(), request.name());
        loop {
            let round = match storage.entry(&key).await? {
                Some(entry) => self.change_existing(&key, entry, &make).await?,
                None if self.create_when_missing => self.create_missing(&make).await?,
                None => return Err(request.resource.not_found(request.name())),
            };
            if let AttemptOutcome::Done(changed) = round {
                return Ok(changed);
            }
            if request.is_past_deadline() {
                return Err(timeout());
            }
        }
    }

    /// Changes the stored object in place.
    pub(crate) async fn edit(self, edit: impl Fn(&mut Value) + Sync) -> Outcome<Changed> {
        self.apply(|old| {
            let mut object = old.cloned().ok_or_else(|| {
                internal("an object that does not exist cannot be changed in place")
            })?;
            edit(&mut object);
            Ok(New::Object(object))
        })
        .await
    }

    async fn track(&self, old: Option<&Value>, new: New) -> Outcome<Tracked> {
        let endpoint = Endpoint::of(self.writer, self.request);
        match new {
            New::Object(mut object) => {
                if self.request.notes.resets_managed_fields() {
                    metadata::set(&mut object, "managedFields", Vec::<Value>::new());
                }
                Ok(endpoint.track(self.options.manager(), old, object).await)
            }
            New::Configuration(configuration) => {
                let applied = endpoint.apply(self.options, old, &configuration).await?;
                let namespace = metadata::text(&configuration, "namespace");
                self.complete_applied(old, applied, namespace)
            }
        }
    }

    /// The object built from an apply configuration, in its version.
    fn complete_applied(
        &self,
        old: Option<&Value>,
        mut applied: Tracked,
        namespace: &str,
    ) -> Outcome<Tracked> {
        let (resource, name) = (&self.request.resource, self.request.name());
        let uid = metadata::text(&applied.object, "uid");
        if old.is_none() && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(resource.conflict(name, &why));
        }
        let decoded = resource.shape.decode_merged(applied.object);
        let (mut object, _) = decoded.map_err(|error| {
            if resource.is_custom() {
                return bad_request(error.to_string());
            }
            let kind = (resource.api_version(), resource.kind());
            unreadable((namespace, name), kind, &error)
        })?;
        let empties = resource.shape.complete_decoded(&mut object);
        self.request.notes.sent_with(empties);
        metadata::match_namespace(&mut object, self.request.object_namespace())?;
        check_name(&object, name)?;
        applied.object = object;
        Ok(applied)
    }

    /// In admission, the name of a namespace is also its namespace.
    fn submission(&self, mut submission: Submission, tracked: Tracked) -> Submission {
        if self.request.resource.is_namespace() {
            submission.namespace.clone_from(&submission.name);
        }
        submission.tracked(tracked)
    }

    async fn create_missing(
        &self,
        make: &(impl Fn(Option<&Value>) -> Outcome<New> + Sync),
    ) -> Outcome<AttemptOutcome> {
        let tracked = self.track(None, make(None)?).await?;
        // UPSTREAM: apiserver pkg/registry/generic/registry/store.go (Update) reads the object first.
        let told = metadata::text(&tracked.object, "resourceVersion");
        if !told.is_empty() {
            parse_version(told)?;
        }
        let submission = Submission::create(self.request, self.options);
        let submission = self.submission(submission, tracked);
        let mut recipe = Insertion::new(self.writer, self.request, self.options, Cause::Update);
        match run(&self.writer.admitter, self.request, submission, &mut recipe).await? {
            Inserted::Created(written) => Ok(AttemptOutcome::Done(Changed {
                written,
                created: true,
            })),
            Inserted::Taken(_) => Ok(AttemptOutcome::Lost),
        }
    }

    async fn change_existing(
        &self,
        key: &str,
        entry: Entry,
        make: &(impl Fn(Option<&Value>) -> Outcome<New> + Sync),
    ) -> Outcome<AttemptOutcome> {
        let old = self
            .writer
            .storage
            .decode(&entry, &self.request.resource)
            .await?;
        self.check_uid(key, &old)?;
        let tracked = self.track(Some(&old), make(Some(&old))?).await?;
        let old = Object::new(old);
        let submission = Submission::update(self.request, self.options, old.clone());
        let submission = self.submission(submission, tracked);
        let mut recipe = Replacement {
            change: self,
            key,
            entry,
            old,
            allocated: None,
            spoiled: None,
        };
        run(&self.writer.admitter, self.request, submission, &mut recipe).await
    }

    fn check_uid(&self, key: &str, old: &Value) -> Outcome<()> {
        let path = ObjectPath {
            resource: &self.request.resource,
            namespace: self.request.namespace(),
            name: self.request.name(),
            subresource: "",
        };
        self.uid.map_or(Ok(()), |wanted| {
            let dry_run = self.options.is_dry_run();
            check_stored_uid(path, key, wanted, old, dry_run)
        })
    }

    /// Checks that the object has the stored resourceVersion, or none if that is allowed.
    fn check_version(&self, object: &mut Value, current: Revision) -> Outcome<()> {
        let (resource, name) = (&self.request.resource, self.request.name());
        let told = match metadata::text(object, "resourceVersion") {
            "" | "0" => None,
            text => Some(parse_version(text)?),
        };
        match told {
            None if resource.rules.unconditional_update => {}
            None => return Err(resource.version_required(name)),
            Some(told) if told != current.0 => return Err(resource.modified(name)),
            Some(_) => {}
        }
        encoding::set_version(object, current);
        Ok(())
    }
}

/// Stores an updated object, replacing the one that was read.
struct Replacement<'r> {
    change: &'r Change<'r>,
    key: &'r str,
    entry: Entry,
    old: Object,
    /// The addresses and ports of a Service, released unless it is stored.
    allocated: Option<Allocation>,
    /// The error of storing metadata that a webhook made undecodable.
    spoiled: Option<Failure>,
}

impl Recipe for Replacement<'_> {
    type Output = AttemptOutcome;

    fn prepare(&mut self, object: &mut Value) -> Outcome<()> {
        let Change {
            writer, request, ..
        } = self.change;
        let (resource, subresource) = (&request.resource, request.subresource());
        let old = self.old.value();
        if resource.is_custom() {
            self.spoiled = writer.storage.metadata_conversion_failure(object, resource);
            // Without metadata the object has no version, which is reported below.
            let _ = metadata::drop_invalid(object);
        }
        if let Some(warning) = metadata::drop_duplicate_owner_references(object, true) {
            request.notes.warn(&warning);
        }
        writer.confirm_no_escalation(request, object, Some(old))?;
        self.change.check_version(object, self.entry.revision)?;
        metadata::match_namespace(object, request.object_namespace())?;
        request.notes.restore_empties(object);
        if subresource.is_empty() {
            strategy::begin(resource, object, Some(old))?;
        }
        strategy::prepare_update(
            resource,
            subresource,
            object,
            old,
            request.user(),
            writer.gates,
        );
        if subresource.is_empty() {
            // A changed type may need addresses and ports that the old one did not.
            let purpose = Purpose {
                is_dry_run: self.change.options.is_dry_run(),
                is_new: false,
                is_shared: writer.storage.store().is_shared(),
            };
            self.allocated = writer
                .addresses
                .allocate(resource, object, Some(old), purpose)?;
        }
        let namespaced = resource.names.namespaced;
        let [new, before] = [&*object, old].map(|object| kind::Written::new(object, namespaced));
        strategy::check_update(resource, subresource, &new, &before, writer.gates)?;
        if subresource.is_empty() {
            let (access, user) = (writer.access(), request.user());
            strategy::authorize(&access, resource, object, Some(old), user)?;
        }
        for warning in strategy::warnings_on_update(resource, subresource, &new, &before) {
            request.notes.warn(&warning);
        }
        strategy::canonicalize(resource, object);
        ignore_timestamp_only_change(object, old);
        Ok(())
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        self.change.request.name()
    }

    async fn persist(&mut self, mut object: Value) -> Outcome<Persisted<AttemptOutcome>> {
        let Change {
            writer,
            request,
            options,
            ..
        } = self.change;
        let (storage, resource) = (&writer.storage, &request.resource);
        if let Some(spoiled) = self.spoiled.take() {
            return Err(spoiled);
        }
        if !options.is_dry_run() {
            metadata::clear_self_link(&mut object);
        }
        let completed = resource.shape.complete(&mut object);
        completed.map_err(|error| plain(error.to_string()))?;
        let revision = self.entry.revision;
        let deletes = is_deleted_by(resource, &object, self.old.value());
        let mut forms = storage.forms(object, resource).await?;
        if options.is_dry_run() {
            let (stored_as, object) = forms.stored(resource);
            if !deletes && storage.encode(object, stored_as).await? == self.entry.value {
                encoding::set_version(&mut forms.shown, revision);
            }
            return Ok(Persisted::Done(AttemptOutcome::updated(forms.shown)));
        }
        if let Some(allocation) = &self.allocated {
            let claimed = allocation.claim(&**storage.store()).await;
            claimed.map_err(|error| internal(&error.to_string()))?;
        }
        let written = if deletes {
            let removed = storage.remove(resource, self.key, revision).await;
            removed.map(|_| Written::from(forms.shown))
        } else {
            let (stored_as, object) = forms.stored(resource);
            let swapped = storage.swap(stored_as, self.key, revision, object).await;
            swapped.map(|stored| {
                let text = stored.text(resource);
                let mut object = forms.shown;
                encoding::set_version(&mut object, stored.revision);
                Written { object, text }
            })
        };
        match written {
            Ok(written) => {
                Allocation::commit(&mut self.allocated);
                Ok(Persisted::Done(AttemptOutcome::updated(written)))
            }
            Err(PersistError::Conflict) => Ok(Persisted::Done(AttemptOutcome::Lost)),
            Err(error) => Err(error.about(resource, request.name())),
        }
    }
}

/// Stores the result of `set` for the object read as `old`; admission ran for another object: a scale, or a binding.
/// `None` on a conflict.
pub(crate) async fn set_without_admission(
    storage: &Storage,
    path: ObjectPath<'_>,
    old: &Value,
    set: impl FnOnce(&mut Value) -> Outcome<()> + Send,
) -> Outcome<Option<Value>> {
    let mut object = old.clone();
    set(&mut object)?;
    // UPSTREAM: apiserver pkg/storage/etcd3/store.go (GuaranteedUpdate): an unchanged object is not written.
    if object == *old {
        return Ok(Some(object));
    }
    let expected = encoding::version(old)
        .ok_or_else(|| internal("the object that was read has no resourceVersion"))?;
    let key = storage.key(path.resource, path.namespace, path.name);
    match storage.swap(path.resource, &key, expected, &object).await {
        Ok(stored) => {
            encoding::set_version(&mut object, stored.revision);
            Ok(Some(object))
        }
        Err(PersistError::Conflict) => Ok(None),
        Err(error) => Err(error.about(path.resource, path.name)),
    }
}

/// Parses a `resourceVersion`.
fn parse_version(text: &str) -> Outcome<u64> {
    text.parse().map_err(|_| {
        let quoted = lockgate_go::quote::quote(text);
        plain(format!(
            "strconv.ParseUint: parsing {quoted}: invalid syntax"
        ))
    })
}

/// Checks the UID of the stored object against the client's.
pub(crate) fn check_stored_uid(
    path: ObjectPath<'_>,
    key: &str,
    wanted: &str,
    old: &Value,
    dry_run: bool,
) -> Outcome<()> {
    let found = metadata::text(old, "uid");
    if wanted == found {
        return Ok(());
    }
    let key = upstream_key(path.resource, key);
    // UPSTREAM: apiserver pkg/registry/generic/registry/dryrun.go checks preconditions with unprefixed keys.
    let prefix = if dry_run { "/registry" } else { "" };
    let key = key.strip_prefix(prefix).unwrap_or(&key);
    let why = precondition_failed(key, "UID", wanted, found);
    Err(path.resource.conflict(path.name, &why))
}

/// The error of a failed precondition, with upstream's message.
///
/// UPSTREAM: apiserver pkg/storage/interfaces.go (Preconditions.Check)
pub(crate) fn precondition_failed(key: &str, what: &str, wanted: &str, found: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    )
}

/// The key of an object in upstream's storage, which its errors contain.
fn upstream_key(resource: &Resource, key: &str) -> String {
    let (group, plural) = (resource.storage.0.as_str(), resource.storage.1.as_str());
    let prefix = encoding::prefix(group, plural, None);
    let rest = key.strip_prefix(&prefix).unwrap_or(key);
    format!("/registry/{}/{rest}", resource.etcd_prefix())
}

/// Returns true if the update removed the last finalizer of a terminating object.
///
/// UPSTREAM: apiserver pkg/registry/generic/registry/store.go (ShouldDeleteDuringUpdate)
fn is_deleted_by(resource: &Resource, object: &Value, old: &Value) -> bool {
    let held = !metadata::finalizers(object).is_empty()
        || resource.is_namespace() && !strategy::namespace_finalizers(object).is_empty();
    let grace = metadata::number(old, "deletionGracePeriodSeconds").unwrap_or_default();
    !held && metadata::is_deleting(old) && grace == 0
}
