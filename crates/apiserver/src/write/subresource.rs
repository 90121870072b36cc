//! Parts of objects with a path of their own: `scale`, `binding`, `eviction`, `token` and others.
//!
//! `status`, `finalize`, `approval`, `ephemeralcontainers` and `resize` speak the kind of the object
//! itself and take the way of every update; which members they may change is a matter of strategy.

use lockgate_admission::object::Object;
use lockgate_admission::request::Operation;
use serde_json::{Value, json};

use crate::call::Call;
use crate::decode::body::Expected;
use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::error::{
    Outcome, bad_request, conflict, internal, invalid, method_not_allowed, no_such_resource,
};
use crate::http::negotiate::{self, PatchType};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::read::get;
use crate::registry::{Resource, Shape, Subresource, api_version};
use crate::respond::Reply;
use crate::server::Server;
use crate::write::admission::{Attempt, Facts};
use crate::write::delete::Deletion;
use crate::write::patch::Patch;
use crate::write::update::{Change, Changed};
use crate::write::{patch, scale, strategy, token_request, update};

/// Serves a part of an object.
pub(crate) async fn serve(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let speaks_parent = part.kind == resource.kind() && part.group == resource.group();
    match (call.target.verb, part.name.as_str()) {
        (Verb::Get, "scale") => {
            let object = get::get_value(server, call, resource).await?;
            Ok(Reply::object(scale::of(resource, &object)?))
        }
        (Verb::Update, "scale") => set_scale(server, call, resource, part, None).await,
        (Verb::Patch, "scale") => {
            let patch_type = negotiate::patch_type(&call.headers, resource.is_custom())?;
            set_scale(server, call, resource, part, Some(patch_type)).await
        }
        (Verb::Get, "log") => {
            get::get_value(server, call, resource).await?;
            Ok(Reply::plain(String::new()))
        }
        (Verb::Get, _) if speaks_parent => get::get(server, call, resource).await,
        (Verb::Update, _) if speaks_parent => update::update(server, call, resource).await,
        (Verb::Patch, _) if speaks_parent => patch::patch(server, call, resource).await,
        (Verb::Create, "eviction") => evict(server, call, resource, part).await,
        (Verb::Create, "binding") => bind(server, call, resource, part).await,
        (Verb::Create, "token") => token_request::create(server, call, resource, part).await,
        _ => Err(method_not_allowed()),
    }
}

/// Reads the body of a part that speaks a kind of its own.
pub(crate) fn read_body(
    call: &mut Call,
    part: &Subresource,
    options: &WriteOptions,
) -> Outcome<Value> {
    let row = lockgate_kinds::typed::type_of(&part.group, &part.version, &part.kind)
        .ok_or_else(|| internal("the type of the body is unknown"))?;
    let shape = Shape::Plain(row);
    let expected = Expected {
        group: &part.group,
        version: &part.version,
        kind: &part.kind,
        shape: &shape,
    };
    let mut object = call.read_object(expected, options)?;
    crate::encoding::set_type(
        &mut object,
        crate::encoding::TypeMeta {
            api_version: &api_version(&part.group, &part.version),
            kind: &part.kind,
        },
    );
    Ok(object)
}

/// The facts of a write to a part.
pub(crate) fn facts(
    operation: Operation,
    call: &Call,
    resource: &Resource,
    part: &Subresource,
    options: &WriteOptions,
) -> Facts {
    let kind = if operation == Operation::Create {
        "CreateOptions"
    } else {
        "UpdateOptions"
    };
    let mut facts = Facts::new(
        operation,
        call,
        resource,
        options.to_value(kind),
        options.is_dry_run(),
    );
    facts.kind = lockgate_admission::request::kind(&part.group, &part.version, &part.kind);
    facts
}

/// Changes how many replicas an object asks for. Webhooks see the scale, not the object.
async fn set_scale(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
    patch_type: Option<PatchType>,
) -> Outcome<Reply> {
    let (options, sent, patch) = match patch_type {
        None => {
            let options = WriteOptions::of_update(&call.query)?;
            let scale = read_body(call, part, &options)?;
            update::check_name(&scale, &call.target.name)?;
            (options, Some(scale), None)
        }
        Some(patch_type) => {
            let options = WriteOptions::of_patch(&call.query, patch_type)?;
            (options, None, Some(Patch::read(&call.body, patch_type)?))
        }
    };
    let ty = lockgate_kinds::typed::type_of(&part.group, &part.version, &part.kind)
        .ok_or_else(|| internal("the type of a scale is unknown"))?;
    let shape = Shape::Plain(ty);
    let replicas_owners = scale::managed_fields::Replicas::of(server, resource);
    loop {
        let old = get::get_value(server, call, resource).await?;
        let mut old_scale = scale::of(resource, &old)?;
        replicas_owners.show(&old, &mut old_scale)?;
        let wanted = match (&sent, &patch) {
            (Some(scale), _) => scale.clone(),
            (None, Some(patch)) => patch.apply(&old_scale, &shape)?.0,
            (None, None) => old_scale.clone(),
        };
        let version = metadata::text(&wanted, "resourceVersion");
        if !version.is_empty() && version != metadata::text(&old, "resourceVersion") {
            return Err(resource.modified(&call.target.name));
        }
        let wanted = scale::managed_fields::track(call, ty, &options, &old_scale, wanted);
        let facts = facts(Operation::Update, call, resource, part, &options);
        let mut attempt = Attempt::new(
            server,
            call,
            resource,
            &facts,
            Some(wanted),
            Some(Object::new(old_scale)),
        );
        let scale = attempt.mutate(call).await?;
        let replicas = scale
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        if replicas < 0 {
            attempt.finish(call);
            return Err(scale::negative(&call.target.name, replicas));
        }
        let name = call.target.name.clone();
        attempt.validate(call, Some(&scale), &name).await?;
        attempt.finish(call);
        if options.is_dry_run() {
            return Ok(Reply::object(scale));
        }
        let change = Change::new(resource, &options);
        let (user, gates) = (call.user.clone(), server.settings.feature_gates);
        let set = |object: &mut Value| {
            scale::take_over(resource, object, &scale)?;
            replicas_owners.take_over(object, &old, &scale, resource.api_version())?;
            strategy::prepare_update(resource, "", object, &old, &user, gates);
            strategy::check_update(resource, "", object, &old)
        };
        match change
            .set_without_admission(server, call, &old, set)
            .await?
        {
            Some(Changed { object, .. }) => {
                return Ok(Reply::object(scale::of(resource, &object)?));
            }
            None if call
                .deadline
                .is_some_and(|deadline| deadline <= std::time::Instant::now()) =>
            {
                return Err(crate::error::timeout());
            }
            None => {}
        }
    }
}

/// Evicts a pod: webhooks are asked about the eviction, and not again about the deletion.
async fn evict(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut eviction = read_body(call, part, &options)?;
    metadata::wipe(&mut eviction);
    metadata::match_namespace(&mut eviction, &call.target.namespace)?;
    let named = metadata::text(&eviction, "name");
    if !named.is_empty() && named != call.target.name {
        return Err(bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let facts = facts(Operation::Create, call, resource, part, &options);
    let mut attempt = Attempt::new(server, call, resource, &facts, Some(eviction), None);
    let eviction = attempt.mutate(call).await?;
    let name = call.target.name.clone();
    attempt.validate(call, Some(&eviction), &name).await?;
    attempt.finish(call);
    let told = eviction.get("deleteOptions").cloned().unwrap_or_default();
    let mut delete = DeleteOptions::from_value(&told)?;
    if options.is_dry_run() && delete.dry_run.is_empty() {
        delete.dry_run.clone_from(&options.dry_run);
    }
    let deletion = Deletion {
        server,
        resource,
        namespace: call.target.namespace.clone(),
        admission_name: None,
        name,
    };
    deletion.run(call, delete).await?;
    Ok(done())
}

/// Binds a pod to a node, by the path that bindings had before pods had parts.
pub(crate) async fn bind_by_name(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
) -> Outcome<Reply> {
    let snapshot = server.registry.snapshot();
    let pods = snapshot
        .find("", "v1", "pods")
        .ok_or_else(no_such_resource)?;
    let part = pods.subresource("binding").ok_or_else(no_such_resource)?;
    bind(server, call, resource, part).await
}

/// Binds a pod to a node.
async fn bind(
    server: &Server,
    call: &mut Call,
    resource: &Resource,
    part: &Subresource,
) -> Outcome<Reply> {
    let options = WriteOptions::of_create(&call.query)?;
    let mut binding = read_body(call, part, &options)?;
    metadata::match_namespace(&mut binding, &call.target.namespace)?;
    if call.target.name.is_empty() {
        metadata::text(&binding, "name").clone_into(&mut call.target.name);
    }
    let facts = facts(Operation::Create, call, resource, part, &options);
    let mut attempt = Attempt::new(server, call, resource, &facts, Some(binding), None);
    let binding = attempt.mutate(call).await?;
    let name = call.target.name.clone();
    attempt.validate(call, Some(&binding), &name).await?;
    attempt.finish(call);
    let target = binding.get("target").cloned().unwrap_or_default();
    let text = |member: &str| {
        target
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, node) = (text("kind"), text("name"));
    let path = lockgate_api::field::Path::root("target");
    if !matches!(kind.as_str(), "" | "Node") {
        let error = lockgate_api::field::FieldError::not_supported(
            &path.child("kind"),
            lockgate_api::field::Shown::Text(&kind),
            &["Node", "<empty>"],
        );
        return Err(invalid("Binding", "", &name, &[error]));
    }
    if node.is_empty() {
        let error = lockgate_api::field::FieldError::required(&path.child("name"), "");
        return Err(invalid("Binding", "", &name, &[error]));
    }
    if options.is_dry_run() {
        return Ok(done());
    }
    loop {
        let pods = server.registry.snapshot();
        let pods = pods.find("", "v1", "pods").ok_or_else(no_such_resource)?;
        let old = get::get_value(server, call, pods).await?;
        let refused = |why: String| Err(conflict("", "pods/binding", &name, &why));
        if metadata::is_deleting(&old) {
            return refused(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let current = old
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !current.is_empty() {
            return refused(format!(
                "pod {name} is already assigned to node {}",
                lockgate_go::quote::quote(current)
            ));
        }
        if let Some(uid) = Some(metadata::text(&binding, "uid")).filter(|uid| !uid.is_empty())
            && uid != metadata::text(&old, "uid")
        {
            return refused(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                metadata::text(&old, "uid")
            ));
        }
        let change = Change::new(pods, &options);
        let annotations = binding
            .pointer("/metadata/annotations")
            .and_then(Value::as_object)
            .cloned();
        let set = |object: &mut Value| {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert(String::from("nodeName"), node.clone().into());
            }
            strategy::mark_scheduled(object);
            for (key, value) in annotations.clone().into_iter().flatten() {
                metadata::change(object, |metadata| {
                    let all = metadata.entry("annotations").or_insert_with(|| json!({}));
                    all[key] = value;
                });
            }
            Ok(())
        };
        if change
            .set_without_admission(server, call, &old, set)
            .await?
            .is_some()
        {
            return Ok(done());
        }
    }
}

/// What is answered when there is nothing to show.
fn done() -> Reply {
    Reply::object(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})).created()
}
