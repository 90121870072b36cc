//! Deleting an object, at once or step by step.
//!
//! ```text
//!   nothing holds it            one pass of admission, then it is gone
//!   finalizers, or a period     one pass; it is marked and stays
//!   a period of nothing (pods)  two passes: it is marked, then it is gone
//! ```
//!
//! UPSTREAM: apiserver pkg/registry/rest/delete.go, pkg/registry/generic/registry/store.go

use lockgate_admission::object::Object;
use lockgate_admission::request::Operation;
use lockgate_api::meta::time::Time;
use lockgate_go::json as go_json;
use lockgate_kinds::protobuf;
use lockgate_kinds::strategy::grace_period;
use lockgate_store::{Entry, ReadAt, Revision, WriteError};
use serde_json::{Value, json};

use crate::call::Call;
use crate::decode::body::Parsed;
use crate::decode::options::DeleteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, bad_request, conflict, internal, read_failed};
use crate::http::negotiate;
use crate::metadata;
use crate::read::list;
use crate::read::selection::Selection;
use crate::registry::Resource;
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::{Attempt, Facts};
use crate::write::strategy;

/// Holds an object until its dependents are free of it.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Deletes the object a call is about.
pub(crate) async fn delete(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    let options = read_options(call)?;
    let (namespace, name) = (call.target.namespace.clone(), call.target.name.clone());
    let deletion = Deletion {
        server,
        resource,
        namespace,
        admission_name: Some(name.clone()),
        name,
    };
    let deleted = deletion.run(call, options.clone()).await?;
    let mut reply = deletion.reply(&deleted);
    if !deleted.gone && options.orphan_dependents == Some(false) {
        reply.code = 202;
    }
    Ok(reply)
}

/// Deletes all objects a call is about, one after the other.
pub(crate) async fn delete_collection(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    let options = read_options(call)?;
    let selection = Selection::read(&call.query, resource)?;
    let prefix = server.prefix(resource, &call.target.namespace);
    let found = list::everything(server, resource, &selection, &prefix).await?;
    let mut items = Vec::with_capacity(found.entries.len());
    for entry in &found.entries {
        let mut object = server.show(entry, resource).await?;
        let deletion = Deletion {
            server,
            resource,
            namespace: metadata::text(&object, "namespace").to_owned(),
            name: metadata::text(&object, "name").to_owned(),
            // Webhooks are told no name, as the request has none.
            admission_name: Some(String::new()),
        };
        match deletion.run(call, options.clone()).await {
            Ok(_) => {}
            Err(failure) if failure.0.code == 404 => {}
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
    let mut metadata = json!({"resourceVersion": found.revision.to_string()});
    if resource.is_custom() {
        metadata["continue"] = "".into();
    }
    Ok(Reply::list(go_json::to_string(&json!({
        "kind": resource.names.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items,
    }))))
}

/// The options, from the body if there is one.
fn read_options(call: &Call) -> Outcome<DeleteOptions> {
    if call.body.is_empty() {
        return DeleteOptions::from_query(&call.query);
    }
    let sent = negotiate::sent(&call.headers, &negotiate::ACCEPTED)?;
    let parsed = Parsed::read(&call.body, sent).map_err(bad_request)?;
    let found = parsed.type_meta().map_err(bad_request)?;
    if !found.kind.is_empty() && found.kind != "DeleteOptions" {
        return Err(bad_request(
            "decoded object cannot be converted to DeleteOptions",
        ));
    }
    let ty = lockgate_kinds::typed::type_of("meta.k8s.io", "v1", "DeleteOptions")
        .ok_or_else(|| internal("the type of options is unknown"))?;
    let options = match &parsed {
        Parsed::Document(document) => ty.decode(document.root()).map(|decoded| decoded.value),
        Parsed::Protobuf(envelope) => protobuf::decode(ty, envelope.raw),
    };
    DeleteOptions::from_value(&options.map_err(bad_request)?)
}

/// The deletion of one object.
pub(crate) struct Deletion<'d> {
    pub(crate) server: &'d Server,
    pub(crate) resource: &'d Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The name that webhooks are told; without one they are not asked.
    pub(crate) admission_name: Option<String>,
}

/// What became of an object.
#[derive(Debug)]
pub(crate) struct Deleted {
    pub(crate) object: Value,
    pub(crate) gone: bool,
}

enum Round {
    Done(Deleted),
    Lost,
}

impl Round {
    fn stays(object: Value) -> Self {
        Self::Done(Deleted {
            object,
            gone: false,
        })
    }
}

impl Deletion<'_> {
    /// Deletes the object, again and again while others change it.
    pub(crate) async fn run(&self, call: &mut Call, options: DeleteOptions) -> Outcome<Deleted> {
        let key = self.server.key(self.resource, &self.namespace, &self.name);
        loop {
            let (entry, _) = self
                .server
                .store
                .get(&key, ReadAt::Latest)
                .await
                .map_err(|error| read_failed(error, 0))?;
            let entry = entry.ok_or_else(|| self.resource.not_found(&self.name))?;
            if let Round::Done(deleted) = self.attempt(call, &key, entry, options.clone()).await? {
                return Ok(deleted);
            }
            if call
                .deadline
                .is_some_and(|deadline| deadline <= std::time::Instant::now())
            {
                return Err(crate::error::timeout());
            }
        }
    }

    async fn attempt(
        &self,
        call: &mut Call,
        key: &str,
        entry: Entry,
        mut options: DeleteOptions,
    ) -> Outcome<Round> {
        let object = self.server.show(&entry, self.resource).await?;
        if strategy::is_deleted_in_steps(self.resource) {
            self.require_uid(&mut options, &object)?;
            if !metadata::is_deleting(&object) {
                return self.begin(call, key, &entry, object, options).await;
            }
            if !strategy::namespace_finalizers(&object).is_empty() {
                return Ok(Round::stays(object));
            }
        }
        let mut marked = object.clone();
        let manner = self.before(&mut marked, &mut options)?;
        if manner == Manner::Pending {
            return Ok(Round::stays(object));
        }
        let finalizers = self.finalizers_after(&marked, &options);
        let unchanged = metadata::finalizers(&marked) == finalizers;
        let held = !finalizers.is_empty();
        let mut current = (entry.revision, object);
        if manner == Manner::Graceful || held || !unchanged {
            self.admit(call, &current.1, &options).await?;
            set_finalizers(&mut marked, finalizers);
            if manner == Manner::AtOnce && held {
                mark(&mut marked);
            }
            if manner == Manner::Graceful || held {
                let Some(revision) = self
                    .store(key, current.0, &mut marked, options.is_dry_run())
                    .await?
                else {
                    return Ok(Round::Lost);
                };
                let waits = manner == Manner::Graceful
                    && options.grace_period_seconds.unwrap_or_default() > 0;
                if held || waits {
                    return Ok(Round::stays(marked));
                }
                if options.is_dry_run() {
                    return Ok(Round::Done(Deleted {
                        object: marked,
                        gone: true,
                    }));
                }
                current = (revision, marked);
            }
        }
        self.admit(call, &current.1, &options).await?;
        self.take_away(key, current.0, current.1, options.is_dry_run())
            .await
    }

    /// Namespaces and definitions are marked first, and go when what is in them is gone.
    async fn begin(
        &self,
        call: &mut Call,
        key: &str,
        entry: &Entry,
        mut object: Value,
        options: DeleteOptions,
    ) -> Outcome<Round> {
        self.admit(call, &object, &options).await?;
        metadata::set(
            &mut object,
            "deletionTimestamp",
            metadata::now().to_string(),
        );
        strategy::mark_deleted_in_steps(self.resource, &mut object);
        let finalizers = self.finalizers_after(&object, &options);
        set_finalizers(&mut object, finalizers);
        match self
            .store(key, entry.revision, &mut object, options.is_dry_run())
            .await?
        {
            Some(_) => Ok(Round::stays(object)),
            None => Ok(Round::Lost),
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
            Err(self.resource.conflict(&self.name, &why))
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

    async fn admit(&self, call: &mut Call, object: &Value, options: &DeleteOptions) -> Outcome<()> {
        let Some(admission_name) = &self.admission_name else {
            return Ok(());
        };
        let mut facts = Facts::new(
            Operation::Delete,
            call,
            self.resource,
            options.to_value(),
            options.is_dry_run(),
        );
        facts.name.clone_from(admission_name);
        let is_namespace = strategy::is_namespace(self.resource);
        facts.namespace.clone_from(if is_namespace {
            admission_name
        } else {
            &self.namespace
        });
        let old = Some(Object::new(object.clone()));
        Attempt::new(self.server, call, self.resource, &facts, None, old)
            .decide(call)
            .await
    }

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
        let kept = self.server.to_storage(object, self.resource).await?;
        match self.server.swap(self.resource, key, expected, &kept).await {
            Ok(revision) => {
                encoding::set_version(object, revision);
                Ok(Some(revision))
            }
            Err(WriteError::Conflict(_)) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn take_away(
        &self,
        key: &str,
        expected: Revision,
        mut object: Value,
        dry_run: bool,
    ) -> Outcome<Round> {
        if !dry_run {
            match self.server.remove(self.resource, key, expected).await {
                Ok(revision) => encoding::set_version(&mut object, revision),
                Err(WriteError::Conflict(_)) => return Ok(Round::Lost),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(Round::Done(Deleted { object, gone: true }))
    }

    fn failed(&self, error: WriteError) -> Failure {
        match error {
            WriteError::NotFound => self.resource.not_found(&self.name),
            WriteError::Unavailable(error) => error.into(),
            WriteError::TooLarge => crate::error::plain(WriteError::TooLarge.to_string()),
            other => internal(&other.to_string()),
        }
    }

    /// Checks what must hold, and how much time the object gets.
    fn before(&self, object: &mut Value, options: &mut DeleteOptions) -> Outcome<Manner> {
        if let Some(preconditions) = &options.preconditions {
            // UPSTREAM: apiserver pkg/registry/rest/delete.go names the kind, not the resource.
            let differs = |what: &str, wanted: &str, found: &str, hint: &str| {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record \
                     ({found}). The object might have been {hint}"
                );
                Err(conflict(
                    self.resource.group(),
                    self.resource.kind(),
                    &self.name,
                    &why,
                ))
            };
            let uid = metadata::text(object, "uid");
            if let Some(wanted) = preconditions.uid.as_deref().filter(|&wanted| wanted != uid) {
                return differs("UID", wanted, uid, "deleted and then recreated");
            }
            let version = metadata::text(object, "resourceVersion");
            if let Some(wanted) = preconditions
                .resource_version
                .as_deref()
                .filter(|&wanted| wanted != version)
            {
                return differs("ResourceVersion", wanted, version, "modified");
            }
        }
        if options
            .grace_period_seconds
            .is_some_and(|seconds| seconds < 0)
        {
            options.grace_period_seconds = Some(1);
        }
        if !self.resource.rules.graceful {
            return Ok(Manner::AtOnce);
        }
        if metadata::is_deleting(object) {
            return Ok(shorten(object, options));
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

    /// The finalizers an object is to have, as its dependents are to be treated.
    fn finalizers_after(&self, object: &Value, options: &DeleteOptions) -> Vec<String> {
        let had = metadata::finalizers(object);
        if strategy::has_no_dependents(self.resource) {
            return had.into_iter().map(str::to_owned).collect();
        }
        let policy = options.propagation_policy.as_deref();
        let (orphan, foreground) = match (options.orphan_dependents, policy) {
            (Some(orphan), _) => (orphan, false),
            (None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
            (None, None) => match had
                .iter()
                .find(|&&name| name == ORPHAN || name == FOREGROUND)
            {
                Some(&name) => (name == ORPHAN, name == FOREGROUND),
                None => (strategy::orphans_by_default(self.resource), false),
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

    /// What is there still is shown; what is gone is said to be, or shown a last time.
    fn reply(&self, deleted: &Deleted) -> Reply {
        if !deleted.gone || strategy::returns_deleted(self.resource) {
            return Reply::object(deleted.object.clone());
        }
        let mut details = json!({
            "name": self.name,
            "kind": self.resource.plural(),
            "uid": metadata::text(&deleted.object, "uid"),
        });
        if !self.resource.group().is_empty() {
            details["group"] = self.resource.group().into();
        }
        Reply::object(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }))
    }
}

/// How an object goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    AtOnce,
    Graceful,
    /// It is on its way out, and in no more hurry than before.
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

/// The period of an object that is on its way out can only get shorter.
fn shorten(object: &mut Value, options: &mut DeleteOptions) -> Manner {
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

/// Marks an object that finalizers hold.
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

/// Seconds as the durations of Go hold them: those beyond 292 years wrap around. The time that is
/// stored stays one that clients can read.
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
