//! Replacing an object, and the loop that every change of an object goes through.
//!
//! ```text
//!   read ─► make the new object ─► mutate ─► version ─► prepare, check ─► validate ─► swap
//!    ▲                                                                                 │
//!    └───────────────────────── somebody else was faster ──────────────────────────────┘
//! ```
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/update.go, pkg/registry/generic/registry/store.go

use lockgate_admission::object::Object;
use lockgate_admission::request::Operation;
use lockgate_kinds::managed_fields::ignore_timestamp_only_change;
use lockgate_store::{Entry, ReadAt, Revision, WriteError};
use serde_json::Value;

use crate::call::Call;
use crate::decode::body::Expected;
use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, bad_request, internal, read_failed};
use crate::metadata;
use crate::read::list;
use crate::registry::Resource;
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::{Attempt, Facts};
use crate::write::create::insert_new;
use crate::write::managed_fields::Tracked;
use crate::write::{managed_fields, strategy};

/// Replaces the object a call is about with the one in its body.
pub(crate) async fn update(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_update(&call.query)?;
    let mut object = call.read_object(Expected::of(resource), &options)?;
    let expected = if strategy::is_namespace(resource) {
        ""
    } else {
        &call.target.namespace
    };
    metadata::match_namespace(&mut object, expected)?;
    check_name(&object, &call.target.name)?;
    if let Some(warning) = metadata::drop_duplicate_owners(&mut object, false) {
        call.notes.warn(&warning);
    }
    let uid = metadata::text(&object, "uid").to_owned();
    let change = Change {
        resource,
        options: &options,
        uid: (!uid.is_empty()).then_some(uid.as_str()),
        create_when_missing: resource.rules.create_on_update && call.target.subresource.is_empty(),
    };
    let changed = change
        .apply(server, call, |_, _| Ok(New::Object(object.clone())))
        .await?;
    Ok(changed.into_reply())
}

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

/// A change of one object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'c> {
    pub(crate) resource: &'c Resource,
    pub(crate) options: &'c WriteOptions,
    /// The object must be this very one.
    pub(crate) uid: Option<&'c str>,
    pub(crate) create_when_missing: bool,
}

/// What a change makes of an object.
#[derive(Debug)]
pub(crate) enum New {
    /// An object whose owners are still to be noted.
    Object(Value),
    /// One whose owners are noted.
    Tracked(Tracked),
}

/// An object that was changed, or made.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) object: Value,
    pub(crate) created: bool,
}

impl Changed {
    pub(crate) fn into_reply(self) -> Reply {
        let reply = Reply::object(self.object);
        if self.created { reply.created() } else { reply }
    }
}

/// What one attempt came to.
enum Round {
    Done(Changed),
    /// Somebody else was faster.
    Lost,
}

impl<'c> Change<'c> {
    /// A change of whatever is there under a name.
    pub(crate) fn new(resource: &'c Resource, options: &'c WriteOptions) -> Self {
        Self {
            resource,
            options,
            uid: None,
            create_when_missing: false,
        }
    }

    /// Changes the object the call is about. `make` gets the stored object, if there is one, and
    /// returns the new one; it is asked again whenever somebody else was faster.
    pub(crate) async fn apply(
        self,
        server: &Server,
        call: &mut Call,
        make: impl Fn(&Call, Option<&Value>) -> Outcome<New>,
    ) -> Outcome<Changed> {
        let target = &call.target;
        let key = server.key(self.resource, &target.namespace, &target.name);
        loop {
            let (entry, _) = server
                .store
                .get(&key, ReadAt::Latest)
                .await
                .map_err(|error| read_failed(error, 0))?;
            let round = match entry {
                Some(entry) => {
                    self.change_existing(server, call, &key, &entry, &make)
                        .await?
                }
                None if self.create_when_missing => {
                    self.create_missing(server, call, &make).await?
                }
                None => return Err(self.resource.not_found(&call.target.name)),
            };
            if let Round::Done(changed) = round {
                return Ok(changed);
            }
            if call
                .deadline
                .is_some_and(|deadline| deadline <= std::time::Instant::now())
            {
                return Err(crate::error::timeout());
            }
        }
    }

    /// Stores what `set` makes of the object that was read as `old`, where webhooks were asked about
    /// something else already. None if somebody else was faster.
    pub(crate) async fn set_without_admission(
        self,
        server: &Server,
        call: &Call,
        old: &Value,
        set: impl FnOnce(&mut Value) -> Outcome<()>,
    ) -> Outcome<Option<Changed>> {
        let name = &call.target.name;
        let mut object = old.clone();
        set(&mut object)?;
        let expected = list::revision(metadata::text(old, "resourceVersion"))
            .map_err(|error| internal(&error))?;
        let key = server.key(self.resource, &call.target.namespace, name);
        let kept = server.to_storage(&object, self.resource).await?;
        match server.swap(self.resource, &key, expected, &kept).await {
            Ok(revision) => {
                encoding::set_version(&mut object, revision);
                Ok(Some(Changed {
                    object,
                    created: false,
                }))
            }
            Err(error) => match lost_or(error, self.resource, name)? {
                Round::Done(changed) => Ok(Some(changed)),
                Round::Lost => Ok(None),
            },
        }
    }

    fn facts(&self, operation: Operation, call: &Call) -> Facts {
        let kind = if operation == Operation::Create {
            "CreateOptions"
        } else {
            "UpdateOptions"
        };
        let mut facts = Facts::new(
            operation,
            call,
            self.resource,
            self.options.to_value(kind),
            self.options.is_dry_run(),
        );
        if strategy::is_namespace(self.resource) {
            facts.namespace.clone_from(&facts.name);
        }
        facts
    }

    fn track(&self, server: &Server, call: &Call, old: Option<&Value>, new: New) -> Tracked {
        match new {
            New::Tracked(tracked) => tracked,
            New::Object(object) => {
                managed_fields::track(server, call, self.resource, self.options, old, object)
            }
        }
    }

    async fn create_missing(
        &self,
        server: &Server,
        call: &mut Call,
        make: &impl Fn(&Call, Option<&Value>) -> Outcome<New>,
    ) -> Outcome<Round> {
        let new = make(call, None)?;
        let facts = self.facts(Operation::Create, call);
        let tracked = self.track(server, call, None, new);
        let mut attempt = Attempt::tracked(server, call, self.resource, &facts, tracked, None);
        let mut object = attempt.mutate(call).await?;
        if let Some(warning) = metadata::drop_duplicate_owners(&mut object, true) {
            call.notes.warn(&warning);
        }
        server.confirm_no_escalation(call, &object, None)?;
        server.authorize_create(call)?;
        let created = insert_new(
            server,
            call,
            self.resource,
            &mut attempt,
            object,
            facts.dry_run,
        )
        .await;
        attempt.finish(call);
        match created {
            Ok(object) => Ok(Round::Done(Changed {
                object,
                created: true,
            })),
            Err(failure) if failure.0.reason == "AlreadyExists" => Ok(Round::Lost),
            Err(failure) => Err(failure),
        }
    }

    async fn change_existing(
        &self,
        server: &Server,
        call: &mut Call,
        key: &str,
        entry: &Entry,
        make: &impl Fn(&Call, Option<&Value>) -> Outcome<New>,
    ) -> Outcome<Round> {
        let old = server.show(entry, self.resource).await?;
        self.check_uid(key, &old, &call.target.name)?;
        let new = make(call, Some(&old))?;
        let facts = self.facts(Operation::Update, call);
        let tracked = self.track(server, call, Some(&old), new);
        let old = Object::new(old);
        let mut attempt = Attempt::tracked(
            server,
            call,
            self.resource,
            &facts,
            tracked,
            Some(old.clone()),
        );
        let object = attempt.mutate(call).await?;
        let result = match server.confirm_no_escalation(call, &object, Some(old.value())) {
            Ok(()) => {
                self.finish_existing(server, call, key, entry, &mut attempt, object, old.value())
                    .await
            }
            Err(failure) => Err(failure),
        };
        attempt.finish(call);
        result
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one attempt, used once"
    )]
    async fn finish_existing(
        &self,
        server: &Server,
        call: &mut Call,
        key: &str,
        entry: &Entry,
        attempt: &mut Attempt<'_>,
        mut object: Value,
        old: &Value,
    ) -> Outcome<Round> {
        let name = call.target.name.clone();
        if let Some(warning) = metadata::drop_duplicate_owners(&mut object, true) {
            call.notes.warn(&warning);
        }
        self.check_version(&mut object, entry.revision, &name)?;
        let namespace = if self.resource.names.namespaced {
            call.target.namespace.clone()
        } else {
            String::new()
        };
        metadata::match_namespace(&mut object, &namespace)?;
        strategy::prepare_update(
            self.resource,
            &call.target.subresource,
            &mut object,
            old,
            &call.user,
            server.settings.feature_gates,
        );
        strategy::check_update(self.resource, &call.target.subresource, &object, old)?;
        for warning in strategy::warnings_on_update(self.resource, &object, old) {
            call.notes.warn(&warning);
        }
        strategy::canonicalize(self.resource, &mut object);
        ignore_timestamp_only_change(&mut object, old);
        attempt.validate(call, Some(&object), &name).await?;
        self.resource.shape.complete(&mut object);
        let dry_run = self.options.is_dry_run();
        if is_deleted_by(self.resource, &object, old) {
            if !dry_run && let Err(error) = server.remove(self.resource, key, entry.revision).await
            {
                return lost_or(error, self.resource, &name);
            }
            return Ok(Round::Done(Changed {
                object,
                created: false,
            }));
        }
        let kept = server.to_storage(&object, self.resource).await?;
        if dry_run {
            if encoding::encode(&kept) == entry.value {
                encoding::set_version(&mut object, entry.revision);
            }
            return Ok(Round::Done(Changed {
                object,
                created: false,
            }));
        }
        match server.swap(self.resource, key, entry.revision, &kept).await {
            Ok(revision) => {
                encoding::set_version(&mut object, revision);
                Ok(Round::Done(Changed {
                    object,
                    created: false,
                }))
            }
            Err(error) => lost_or(error, self.resource, &name),
        }
    }

    fn check_uid(&self, key: &str, old: &Value, name: &str) -> Outcome<()> {
        let found = metadata::text(old, "uid");
        match self.uid {
            Some(wanted) if wanted != found => {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, \
                     AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in \
                     object meta: {found}",
                    upstream_key(self.resource, key)
                );
                Err(self.resource.conflict(name, &why))
            }
            _ => Ok(()),
        }
    }

    /// The object must be of the version that is stored, or of none where that is allowed.
    fn check_version(&self, object: &mut Value, current: Revision, name: &str) -> Outcome<()> {
        let told = metadata::text(object, "resourceVersion");
        let told = match told {
            "" | "0" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                let quoted = lockgate_go::quote::quote(text);
                let detail = format!("strconv.ParseUint: parsing {quoted}: invalid syntax");
                let error = lockgate_api::field::FieldError::invalid(
                    &lockgate_api::field::Path::root("resourceVersion"),
                    lockgate_api::field::Shown::Text(text),
                    detail,
                );
                crate::error::plain(error.to_string())
            })?),
        };
        match told {
            None if self.resource.rules.unconditional_update => {}
            None => return Err(self.resource.version_required(name)),
            Some(told) if told != current.0 => return Err(self.resource.modified(name)),
            Some(_) => {}
        }
        encoding::set_version(object, current);
        Ok(())
    }
}

/// The key of an object as upstream stores it, which its error texts show.
///
/// UPSTREAM: kubernetes pkg/kubeapiserver/default_storage_factory_builder.go
fn upstream_key(resource: &Resource, key: &str) -> String {
    let (group, plural) = (resource.storage.0.as_str(), resource.storage.1.as_str());
    let prefix = encoding::prefix(group, plural, None);
    let rest = key.strip_prefix(&prefix).unwrap_or(key);
    match (group, plural) {
        ("", "services") => format!("/registry/services/specs/{rest}"),
        ("", "endpoints") => format!("/registry/services/endpoints/{rest}"),
        ("", "nodes") => format!("/registry/minions/{rest}"),
        ("", "replicationcontrollers") => format!("/registry/controllers/{rest}"),
        ("networking.k8s.io", "ingresses") => format!("/registry/ingress/{rest}"),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => {
            format!("/registry/{group}/{plural}/{rest}")
        }
        _ if resource.is_custom() => format!("/registry/{}/{plural}/{rest}", resource.group()),
        _ => format!("/registry/{plural}/{rest}"),
    }
}

/// A race that was lost is run again; anything else is a failure.
fn lost_or(error: WriteError, resource: &Resource, name: &str) -> Outcome<Round> {
    match error {
        WriteError::Conflict(_) => Ok(Round::Lost),
        WriteError::NotFound => Err(resource.not_found(name)),
        WriteError::Unavailable(error) => Err(Failure::from(error)),
        WriteError::TooLarge => Err(crate::error::plain(WriteError::TooLarge.to_string())),
        other => Err(internal(&other.to_string())),
    }
}

/// Whether the change took the last finalizer from an object that is on its way out.
///
/// UPSTREAM: apiserver pkg/registry/generic/registry/store.go (ShouldDeleteDuringUpdate)
fn is_deleted_by(resource: &Resource, object: &Value, old: &Value) -> bool {
    let held = !metadata::finalizers(object).is_empty()
        || strategy::is_namespace(resource) && !strategy::namespace_finalizers(object).is_empty();
    let grace = metadata::number(old, "deletionGracePeriodSeconds").unwrap_or_default();
    !held && metadata::is_deleting(old) && grace == 0
}
