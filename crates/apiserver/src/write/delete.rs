//! Deletes an object, immediately or in steps.
//!
//! ```text
//!   no finalizers               one admission pass, then it is removed
//!   finalizers, grace period    one pass; it is marked and kept
//!   no grace period (Pods)      two passes: it is marked, then removed
//! ```
//!
//! UPSTREAM: apiserver pkg/registry/rest/delete.go, pkg/registry/generic/registry/store.go

use std::time::Duration;

use lockgate_admission::object::Object;
use lockgate_api::meta::time::Time;
use lockgate_go::json as go_json;
use lockgate_kinds::strategy::grace_period;
use lockgate_store::{Entry, Revision};
use serde_json::{Value, json};

use crate::decode::options::{DeleteOptions, Preconditions};
use crate::encoding;
use crate::error::{Outcome, check_key, conflict, timeout};
use crate::http::query::Query;
use crate::metadata;
use crate::persist::PersistError;
use crate::read::list;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::{Writer, strategy};

/// The finalizer that blocks the deletion until dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer that blocks the deletion until all dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The time between the write that marks an object and the one that removes it, where the grace period is zero. Controllers act on
/// Pods with a deletionTimestamp, which their caches have to receive first; upstream, a transaction of etcd takes as long.
const MARK_SEEN: Duration = Duration::from_millis(2);

/// Deletes the requested object.
pub(crate) async fn delete(
    writer: &Writer,
    request: &Request,
    options: DeleteOptions,
) -> Outcome<Reply> {
    warn_of_orphans(request, &options);
    let orphans = options.orphan_dependents;
    let deletion = Deletion::of(writer, request);
    let deleted = deletion.run(options).await?;
    let mut reply = deletion.reply(&deleted);
    if !deleted.gone && orphans == Some(false) {
        reply.code = 202;
    }
    Ok(reply)
}

/// Warns clients that delete Jobs without a propagation policy.
///
/// UPSTREAM: kubernetes pkg/registry/batch/job/storage/storage.go
fn warn_of_orphans(request: &Request, options: &DeleteOptions) {
    let says = options.propagation_policy.is_some() || options.orphan_dependents.is_some();
    if request.resource.is("batch", "jobs") && !says {
        request.notes.warn(
            "child pods are preserved by default when jobs are deleted; set \
             propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
             this warning",
        );
    }
}

/// Deletes the objects of a collection sequentially.
pub(crate) async fn delete_collection(
    writer: &Writer,
    request: &Request,
    options: &DeleteOptions,
    query: &Query,
) -> Outcome<Reply> {
    warn_of_orphans(request, options);
    let resource = &request.resource;
    let storage = &writer.storage;
    let prefix = storage.prefix(resource, request.namespace());
    let found = list::find(storage, request, query, true).await?;
    let mut items = Vec::with_capacity(found.entries.len());
    for entry in &found.entries {
        let mut object = storage.decode(entry, resource).await?;
        let deletion = Deletion {
            name: metadata::text(&object, "name").to_owned(),
            // Webhooks get no name, as the request has none.
            admission_name: Some(""),
            of_collection: true,
            ..Deletion::of(writer, request)
        };
        match deletion.run(options.clone()).await {
            Ok(_) => {}
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
        if !resource.is_custom()
            && let Some(members) = object.as_object_mut()
        {
            members.remove("apiVersion");
            members.remove("kind");
        }
        items.push(object);
    }
    let mut metadata = found.metadata(&prefix);
    if resource.is_custom() && metadata.get("continue").is_none() {
        metadata["continue"] = "".into();
    }
    Ok(Reply::list(go_json::to_string(&json!({
        "kind": resource.names.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items,
    }))))
}

/// The deletion of one object.
#[derive(Debug)]
pub(crate) struct Deletion<'d> {
    pub(crate) writer: &'d Writer,
    pub(crate) request: &'d Request,
    pub(crate) name: String,
    /// The name in the admission request; without it, admission does not run.
    pub(crate) admission_name: Option<&'d str>,
    /// True for an object of a deleted collection.
    ///
    /// UPSTREAM: apiserver pkg/registry/generic/registry/store.go (DeleteCollection): each object gets a copy of the options,
    /// and admission sees those that were sent.
    pub(crate) of_collection: bool,
}

/// The object of a deletion, which may only be marked.
#[derive(Debug)]
pub(crate) struct Deleted {
    pub(crate) object: Value,
    pub(crate) gone: bool,
}

enum AttemptOutcome {
    Done(Deleted),
    Lost,
}

impl AttemptOutcome {
    fn stays(object: Value) -> Self {
        Self::Done(Deleted {
            object,
            gone: false,
        })
    }
}

impl<'d> Deletion<'d> {
    /// The deletion of the requested object.
    pub(crate) fn of(writer: &'d Writer, request: &'d Request) -> Self {
        Self {
            writer,
            request,
            name: request.name().to_owned(),
            admission_name: Some(request.name()),
            of_collection: false,
        }
    }

    fn resource(&self) -> &'d Resource {
        &self.request.resource
    }

    /// Deletes the object, retrying on conflicts.
    pub(crate) async fn run(&self, options: DeleteOptions) -> Outcome<Deleted> {
        let storage = &self.writer.storage;
        check_key(&self.name)?;
        let key = storage.key(self.resource(), self.request.namespace(), &self.name);
        loop {
            let entry = storage.entry(&key).await?;
            let entry = entry.ok_or_else(|| self.resource().not_found(&self.name))?;
            if let AttemptOutcome::Done(deleted) =
                self.attempt(&key, entry, options.clone()).await?
            {
                return Ok(deleted);
            }
            if self.request.is_past_deadline() {
                return Err(timeout());
            }
        }
    }

    async fn attempt(
        &self,
        key: &str,
        entry: Entry,
        mut options: DeleteOptions,
    ) -> Outcome<AttemptOutcome> {
        let object = self.writer.storage.decode(&entry, self.resource()).await?;
        let sent = self.of_collection.then(|| options.clone());
        if strategy::is_deleted_in_steps(self.resource()) {
            if self.of_collection {
                self.check_preconditions(&options, &object)?;
            } else {
                self.require_uid(&mut options, &object)?;
            }
            if !metadata::is_deleting(&object) {
                return self.begin(key, &entry, object, options).await;
            }
            if !strategy::namespace_finalizers(&object).is_empty() {
                return Ok(AttemptOutcome::stays(object));
            }
        }
        let mut marked = object.clone();
        let manner = self.before(&mut marked, &mut options)?;
        if manner == Manner::Pending {
            return Ok(AttemptOutcome::stays(object));
        }
        let finalizers = self.finalizers_after(&marked, &options);
        let unchanged = metadata::finalizers(&marked) == finalizers;
        let held = !finalizers.is_empty();
        let mut current = (entry.revision, object);
        let mut is_marked = false;
        if manner == Manner::Graceful || held || !unchanged {
            self.admit(&current.1, sent.as_ref().unwrap_or(&options))
                .await?;
            set_finalizers(&mut marked, finalizers);
            if manner == Manner::AtOnce && held {
                mark(&mut marked);
            }
            if manner == Manner::Graceful || held {
                let Some(revision) = self
                    .store(key, current.0, &mut marked, options.is_dry_run())
                    .await?
                else {
                    return Ok(AttemptOutcome::Lost);
                };
                let waits = manner == Manner::Graceful
                    && options.grace_period_seconds.unwrap_or_default() > 0;
                if held || waits {
                    return Ok(AttemptOutcome::stays(marked));
                }
                if options.is_dry_run() {
                    return Ok(AttemptOutcome::Done(Deleted {
                        object: marked,
                        gone: true,
                    }));
                }
                current = (revision, marked);
                is_marked = true;
                tokio::time::sleep(MARK_SEEN).await;
            }
        }
        self.admit(&current.1, sent.as_ref().unwrap_or(&options))
            .await?;
        let removed = self.remove(key, current.0, &mut current.1, options.is_dry_run());
        match removed.await {
            Ok(()) => {}
            // The kubelet may remove a marked Pod first.
            // UPSTREAM: apiserver pkg/registry/generic/registry/store.go (ignoreNotFound)
            Err(PersistError::NotFound) if is_marked => {}
            Err(PersistError::Conflict) => return Ok(AttemptOutcome::Lost),
            Err(error) => return Err(error.about(self.resource(), &self.name)),
        }
        Ok(AttemptOutcome::Done(Deleted {
            object: current.1,
            gone: true,
        }))
    }

    /// Namespaces and CustomResourceDefinitions are marked first, and deleted when their contents are gone.
    async fn begin(
        &self,
        key: &str,
        entry: &Entry,
        mut object: Value,
        options: DeleteOptions,
    ) -> Outcome<AttemptOutcome> {
        self.admit(&object, &options).await?;
        metadata::set(
            &mut object,
            "deletionTimestamp",
            metadata::now().to_string(),
        );
        strategy::mark_deleted_in_steps(self.resource(), &mut object);
        let finalizers = self.finalizers_after(&object, &options);
        set_finalizers(&mut object, finalizers);
        match self
            .store(key, entry.revision, &mut object, options.is_dry_run())
            .await?
        {
            Some(_) => Ok(AttemptOutcome::stays(object)),
            None => Ok(AttemptOutcome::Lost),
        }
    }

    fn require_uid(&self, options: &mut DeleteOptions, object: &Value) -> Outcome<()> {
        let preconditions = options.preconditions.get_or_insert_default();
        let uid = metadata::text(object, "uid");
        let wanted = preconditions.uid.get_or_insert_with(|| uid.to_owned());
        let differs = |what: &str, wanted: &str, found: &str| {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            Err(self.resource().conflict(&self.name, &why))
        };
        if wanted != uid {
            return differs("UID", wanted, uid);
        }
        let version = metadata::text(object, "resourceVersion");
        match &preconditions.resource_version {
            Some(wanted) if wanted != version => differs("ResourceVersion", wanted, version),
            _ => Ok(()),
        }
    }

    async fn admit(&self, object: &Value, options: &DeleteOptions) -> Outcome<()> {
        let Some(name) = self.admission_name else {
            return Ok(());
        };
        let old = Object::new(object.clone());
        let mut submission = Submission::delete(self.request, options, old);
        name.clone_into(&mut submission.name);
        if self.resource().is_namespace() {
            name.clone_into(&mut submission.namespace);
        }
        self.writer.admitter.decide(self.request, submission).await
    }

    /// Stores the marked object. `None` on a conflict.
    async fn store(
        &self,
        key: &str,
        expected: Revision,
        object: &mut Value,
        dry_run: bool,
    ) -> Outcome<Option<Revision>> {
        if dry_run {
            return Ok(Some(expected));
        }
        let resource = &self.request.resource;
        let swapped = self.writer.storage.swap(resource, key, expected, object);
        match swapped.await {
            Ok(stored) => {
                encoding::set_version(object, stored.revision);
                Ok(Some(stored.revision))
            }
            Err(PersistError::Conflict) => Ok(None),
            Err(error) => Err(error.about(resource, &self.name)),
        }
    }

    async fn remove(
        &self,
        key: &str,
        expected: Revision,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), PersistError> {
        if !dry_run {
            let resource = &self.request.resource;
            let revision = self.writer.storage.remove(resource, key, expected).await?;
            encoding::set_version(object, revision);
        }
        Ok(())
    }

    fn check_preconditions(&self, options: &DeleteOptions, object: &Value) -> Outcome<()> {
        let Some(preconditions) = &options.preconditions else {
            return Ok(());
        };
        let path = ObjectPath {
            resource: &self.request.resource,
            namespace: self.request.namespace(),
            name: &self.name,
            subresource: "",
        };
        check_preconditions(path, preconditions, object)
    }

    /// Checks the preconditions, and determines the grace period.
    fn before(&self, object: &mut Value, options: &mut DeleteOptions) -> Outcome<Manner> {
        self.check_preconditions(options, object)?;
        if options
            .grace_period_seconds
            .is_some_and(|seconds| seconds < 0)
        {
            options.grace_period_seconds = Some(1);
        }
        if !self.resource().rules.graceful {
            return Ok(Manner::AtOnce);
        }
        if metadata::is_deleting(object) {
            return Ok(shorten_grace_period(object, options));
        }
        let period = grace_period(object, options.grace_period_seconds);
        options.grace_period_seconds = Some(period);
        let end = metadata::now().unix_seconds() + within_duration(period);
        metadata::set(
            object,
            "deletionTimestamp",
            Time::from_unix_seconds(end).to_string(),
        );
        metadata::set(object, "deletionGracePeriodSeconds", period);
        bump_generation(object);
        Ok(Manner::Graceful)
    }

    /// The finalizers for the propagation policy of the request.
    fn finalizers_after(&self, object: &Value, options: &DeleteOptions) -> Vec<String> {
        let had = metadata::finalizers(object);
        let policy = options.propagation_policy.as_deref();
        let (orphan, foreground) = match (options.orphan_dependents, policy) {
            _ if strategy::has_no_dependents(self.resource()) => (false, false),
            (Some(orphan), _) => (orphan, false),
            (None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
            (None, None) => match had
                .iter()
                .find(|&&name| name == ORPHAN || name == FOREGROUND)
            {
                Some(&name) => (name == ORPHAN, name == FOREGROUND),
                None => (strategy::orphans_by_default(self.resource()), false),
            },
        };
        let wanted = |name: &str| match name {
            ORPHAN => orphan,
            FOREGROUND => foreground,
            _ => true,
        };
        let mut finalizers: Vec<&str> = had.into_iter().filter(|&name| wanted(name)).collect();
        for name in [ORPHAN, FOREGROUND] {
            if wanted(name) && !finalizers.contains(&name) {
                finalizers.push(name);
            }
        }
        finalizers.into_iter().map(str::to_owned).collect()
    }

    /// The object if it is still stored or its kind returns it, and a `Status` otherwise.
    fn reply(&self, deleted: &Deleted) -> Reply {
        if !deleted.gone || strategy::returns_deleted(self.resource()) {
            return Reply::object(deleted.object.clone());
        }
        let mut details = json!({
            "name": self.name,
            "kind": self.resource().plural(),
            "uid": metadata::text(&deleted.object, "uid"),
        });
        if !self.resource().group().is_empty() {
            details["group"] = self.resource().group().into();
        }
        Reply::object(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }))
    }
}

/// The effect of a deletion request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    AtOnce,
    Graceful,
    /// It is already being deleted, and the grace period is not shortened.
    Pending,
}

fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    metadata::change(object, |metadata| {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert(String::from("finalizers"), finalizers.into());
        }
    });
}

/// The grace period of a terminating object can only be shortened.
fn shorten_grace_period(object: &mut Value, options: &mut DeleteOptions) -> Manner {
    let given = metadata::number(object, "deletionGracePeriodSeconds").unwrap_or_default();
    if given == 0 {
        return Manner::AtOnce;
    }
    let Some(mut period) = options.grace_period_seconds else {
        options.grace_period_seconds = Some(given);
        return Manner::Pending;
    };
    if period >= given {
        return Manner::Pending;
    }
    let marked =
        Time::parse(metadata::text(object, "deletionTimestamp")).map_or(0, Time::unix_seconds);
    let mut end = marked - within_duration(given) + within_duration(period);
    let now = metadata::now().unix_seconds();
    if end < now {
        end = now;
        period = period.min(1);
    }
    metadata::set(
        object,
        "deletionTimestamp",
        Time::from_unix_seconds(end).to_string(),
    );
    metadata::set(object, "deletionGracePeriodSeconds", period);
    Manner::Graceful
}

/// Marks an object with finalizers.
fn mark(object: &mut Value) {
    let now = metadata::now();
    let known = Time::parse(metadata::text(object, "deletionTimestamp")).ok();
    if known.is_none() {
        bump_generation(object);
    }
    if known.is_none_or(|time| time > now) {
        metadata::set(object, "deletionTimestamp", now.to_string());
    }
    metadata::set(object, "deletionGracePeriodSeconds", 0);
}

/// Seconds with the range of Go's durations: values beyond 292 years wrap around. The stored time remains valid for
/// clients.
///
/// UPSTREAM: apiserver pkg/registry/rest/delete.go (BeforeDelete)
fn within_duration(seconds: i64) -> i64 {
    seconds
        .wrapping_mul(1_000_000_000)
        .div_euclid(1_000_000_000)
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) =
        metadata::number(object, "generation").filter(|&generation| generation > 0)
    {
        metadata::set(object, "generation", generation + 1);
    }
}

/// Checks the preconditions of a deletion.
///
/// UPSTREAM: apiserver pkg/registry/rest/delete.go: errors contain the kind, not the resource.
pub(super) fn check_preconditions(
    path: ObjectPath<'_>,
    preconditions: &Preconditions,
    object: &Value,
) -> Outcome<()> {
    let ObjectPath { resource, name, .. } = path;
    let differs = |what: &str, wanted: &str, found: &str, hint: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
             The object might have been {hint}"
        );
        Err(conflict(resource.group(), resource.kind(), name, &why))
    };
    let uid = metadata::text(object, "uid");
    if let Some(wanted) = preconditions.uid.as_deref().filter(|&wanted| wanted != uid) {
        return differs("UID", wanted, uid, "deleted and then recreated");
    }
    let version = metadata::text(object, "resourceVersion");
    let wanted = preconditions.resource_version.as_deref();
    if let Some(wanted) = wanted.filter(|&wanted| wanted != version) {
        return differs("ResourceVersion", wanted, version, "modified");
    }
    Ok(())
}
