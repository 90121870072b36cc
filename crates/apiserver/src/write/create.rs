//! Creating an object.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/create.go, pkg/registry/generic/registry/store.go

use std::time::Duration;

use lockgate_admission::request::Operation;
use lockgate_store::{ReadAt, WriteError};
use serde_json::Value;

use crate::call::Call;
use crate::controllers::namespace_defaults::Settling;
use crate::decode::body::Expected;
use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Outcome, internal, plain, terminating};
use crate::metadata;
use crate::registry::{Resource, Shape};
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::{Attempt, Facts};
use crate::write::{managed_fields, strategy};

/// How often a name is made up before giving in.
const NAME_ATTEMPTS: usize = 8;
/// How long events are kept.
const EVENT_TTL: Duration = Duration::from_secs(3600);

/// Creates the object in the body of a call.
pub(crate) async fn create(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    if let Shape::Custom(custom) = &resource.shape
        && custom.is_terminating()
    {
        return Err(terminating(resource.group(), resource.plural()));
    }
    let options = WriteOptions::of_create(&call.query)?;
    let mut object = call.read_object(Expected::of(resource), &options)?;
    let mut facts = Facts::new(
        Operation::Create,
        call,
        resource,
        options.to_value("CreateOptions"),
        options.is_dry_run(),
    );
    metadata::text(&object, "name").clone_into(&mut facts.name);
    let is_namespace = strategy::is_namespace(resource);
    if is_namespace {
        facts.namespace.clone_from(&facts.name);
    }
    metadata::wipe(&mut object);
    let expected = if is_namespace {
        ""
    } else {
        &call.target.namespace
    };
    metadata::match_namespace(&mut object, expected)?;
    if let Some(warning) = metadata::drop_duplicate_owners(&mut object, false) {
        call.notes.warn(&warning);
    }
    let tracked = managed_fields::track(server, call, resource, &options, None, object);
    let mut attempt = Attempt::tracked(server, call, resource, &facts, tracked, None);
    let mut object = attempt.mutate(call).await?;
    if let Some(warning) = metadata::drop_duplicate_owners(&mut object, true) {
        call.notes.warn(&warning);
    }
    let granted = server.confirm_no_escalation(call, &object, None);
    let created = match granted {
        Ok(()) => insert_new(server, call, resource, &mut attempt, object, facts.dry_run).await,
        Err(failure) => Err(failure),
    };
    attempt.finish(call);
    Ok(Reply::object(created?).created())
}

/// Gives the object its identity, has it validated and stores it. With a name that is made up this is
/// tried again when the name is taken.
pub(crate) async fn insert_new(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    attempt: &mut Attempt<'_>,
    object: Value,
    dry_run: bool,
) -> Outcome<Value> {
    let makes_name = metadata::text(&object, "name").is_empty()
        && !metadata::text(&object, "generateName").is_empty();
    if !makes_name {
        return insert_once(server, call, resource, attempt, object, dry_run, false).await;
    }
    let mut last = None;
    for _ in 0..NAME_ATTEMPTS {
        let result = insert_once(
            server,
            call,
            resource,
            attempt,
            object.clone(),
            dry_run,
            true,
        )
        .await;
        match result {
            Err(failure) if failure.0.reason == "AlreadyExists" => last = Some(failure),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| internal("no attempt was made")))
}

async fn insert_once(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    attempt: &mut Attempt<'_>,
    mut object: Value,
    dry_run: bool,
    makes_name: bool,
) -> Outcome<Value> {
    metadata::fill(&mut object);
    let expected = if resource.names.namespaced {
        call.target.namespace.clone()
    } else {
        String::new()
    };
    metadata::match_namespace(&mut object, &expected)?;
    server.allocate(resource, &mut object);
    strategy::prepare_create(
        resource,
        &mut object,
        &call.user,
        server.settings.feature_gates,
    );
    strategy::check_create(resource, &object, server.settings.feature_gates)?;
    for warning in strategy::warnings_on_create(resource, &object) {
        call.notes.warn(&warning);
    }
    strategy::canonicalize(resource, &mut object);
    let name = metadata::text(&object, "name").to_owned();
    attempt.validate(call, Some(&object), &name).await?;
    if !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(plain(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    resource.shape.complete(&mut object);
    let key = server.key(resource, &expected, &name);
    let taken = || {
        if makes_name {
            resource.no_name_found(&name)
        } else {
            resource.already_exists(&name)
        }
    };
    if dry_run {
        let (existing, _) = server
            .store
            .get(&key, ReadAt::Latest)
            .await
            .map_err(|error| crate::error::read_failed(error, 0))?;
        return if existing.is_some() {
            Err(taken())
        } else {
            Ok(object)
        };
    }
    let ttl = (!resource.is_custom() && resource.storage.1 == "events").then_some(EVENT_TTL);
    let kept = server.to_storage(&object, resource).await?;
    let settling = if strategy::is_namespace(resource) {
        Settling::new(server, &name)
    } else {
        None
    };
    match server.insert(resource, &key, &kept, ttl).await {
        Ok(revision) => {
            if let Some(settling) = settling {
                settling.settle().await;
            }
            encoding::set_version(&mut object, revision);
            Ok(object)
        }
        Err(WriteError::AlreadyExists(entry)) => {
            let mut failure = taken();
            let current = encoding::parse_entry(&entry, resource.type_meta());
            if metadata::is_deleting(&current) {
                failure.0.message = format!("object is being deleted: {}", failure.0.message);
            }
            Err(failure)
        }
        Err(WriteError::Unavailable(error)) => Err(error.into()),
        Err(error @ WriteError::TooLarge) => Err(plain(error.to_string())),
        Err(error) => Err(internal(&error.to_string())),
    }
}
