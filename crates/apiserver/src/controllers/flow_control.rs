//! Maintains the default FlowSchemas and priority levels, and the condition of schemas with a missing level. Part of
//! kube-apiserver, so it runs independently of the enabled controllers.
//!
//! UPSTREAM: kubernetes pkg/registry/flowcontrol/rest/storage_flowcontrol.go and ensurer, apiserver
//! pkg/util/flowcontrol/apf_controller.go (presyncFlowSchemaStatus)

use std::collections::HashSet;
use std::sync::Arc;

use lockgate_go::quote::quote;
use lockgate_kinds::flow_control::{
    self as suggested, AUTO_UPDATE, GROUP, LEVELS, SCHEMAS, Suggested,
};
use lockgate_store::List;
use serde_json::{Value, json};

use super::Context;
use crate::decode::body;
use crate::decode::options::WriteOptions;
use crate::decode::write::Body;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request, api_server};
use crate::write::create;
use crate::write::update::Change;

const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
const DANGLING: &str = "Dangling";

/// Reconciles all of them. Returns true if anything was changed.
pub(super) async fn reconcile(context: &Context) -> Outcome<bool> {
    let snapshot = context.writer.registry.snapshot();
    let (Some(levels), Some(schemas)) = (
        snapshot.find(GROUP, "v1", LEVELS),
        snapshot.find(GROUP, "v1", SCHEMAS),
    ) else {
        return Ok(false);
    };
    let mut changed = false;
    let stored_levels = stored(context, levels).await?;
    let stored_schemas = stored(context, schemas).await?;
    for suggested in suggested::all() {
        let (resource, stored) = match suggested.plural {
            LEVELS => (levels, &stored_levels),
            _ => (schemas, &stored_schemas),
        };
        changed |= ensure(context, resource, stored, suggested).await?;
    }
    if changed {
        // The levels are read again, including new ones.
        return Ok(true);
    }
    let known: HashSet<&str> = stored_levels
        .iter()
        .map(|level| metadata::text(level, "name"))
        .collect();
    for schema in &stored_schemas {
        let is_there = known.contains(level_of(schema));
        let mut wanted = schema.clone();
        if !set_condition(&mut wanted, is_there) {
            continue;
        }
        let request = request(
            schemas,
            Verb::Update,
            metadata::text(schema, "name"),
            "status",
        );
        let options = WriteOptions::of_program(CONSUMER);
        let uid = metadata::text(schema, "uid");
        let change = Change::new(&context.writer, &request, &options).edit(|object| {
            if metadata::text(object, "uid") == uid {
                set_condition(object, is_there);
            }
        });
        match change.await {
            Ok(_) => changed = true,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(changed)
}

async fn stored(context: &Context, resource: &Arc<Resource>) -> Outcome<Vec<Value>> {
    let storage = &context.writer.storage;
    let prefix = storage.prefix(resource, "");
    let page = storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    let entries = page.entries.iter();
    entries
        .map(|entry| encoding::parse_entry(entry, resource.type_meta()))
        .collect()
}

fn request(resource: &Arc<Resource>, verb: Verb, name: &str, subresource: &str) -> Request {
    let path = ObjectPath {
        resource,
        namespace: "",
        name,
        subresource,
    };
    Request::internal(api_server(), verb, path)
}

/// Creates a missing object, or corrects the spec of one that the server maintains.
async fn ensure(
    context: &Context,
    resource: &Arc<Resource>,
    stored: &[Value],
    suggested: Suggested,
) -> Outcome<bool> {
    let mut wanted = suggested.object;
    resource.shape.apply_defaults(&mut wanted);
    let name = metadata::text(&wanted, "name").to_owned();
    let options = WriteOptions::of_program(PRODUCER);
    let found = stored
        .iter()
        .find(|object| metadata::text(object, "name") == name);
    let Some(found) = found else {
        let body = Body {
            object: body::decode_value(wanted, resource)?,
            options,
        };
        let request = request(resource, Verb::Create, "", "");
        create::create(&context.writer, &request, body).await?;
        return Ok(true);
    };
    let is_kept = suggested.is_mandatory || is_auto_updated(found);
    if !is_kept || metadata::is_deleting(found) || found["spec"] == wanted["spec"] {
        return Ok(false);
    }
    let request = request(resource, Verb::Update, &name, "");
    Change::new(&context.writer, &request, &options)
        .edit(|object| object["spec"] = wanted["spec"].clone())
        .await?;
    Ok(true)
}

/// Returns true if the server maintains the spec of an object: by annotation, or if the object was never changed.
fn is_auto_updated(object: &Value) -> bool {
    let annotation = &object["metadata"]["annotations"][AUTO_UPDATE];
    match annotation.as_str() {
        Some("true") => true,
        Some("false") => false,
        _ => object["metadata"]["generation"] == 1,
    }
}

fn level_of(schema: &Value) -> &str {
    let name = schema.pointer("/spec/priorityLevelConfiguration/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

/// Sets the `Dangling` condition of a schema, by the existence of its level. Returns false if it was up to date.
pub(crate) fn set_condition(schema: &mut Value, is_there: bool) -> bool {
    let wanted = dangling(level_of(schema), is_there);
    let mut condition = json!({
        "type": DANGLING, "lastTransitionTime": metadata::now().to_string(),
    });
    for (member, text) in &wanted {
        condition[*member] = json!(text);
    }
    let Some(members) = schema.as_object_mut() else {
        return false;
    };
    let status = members.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    let Some(known) = conditions.as_array_mut() else {
        *conditions = json!([condition]);
        return true;
    };
    let Some(found) = known.iter_mut().find(|it| it["type"] == DANGLING) else {
        known.push(condition);
        return true;
    };
    if wanted.iter().all(|(member, text)| found[*member] == **text) {
        return false;
    }
    *found = condition;
    true
}

/// The `Dangling` condition of a schema: its status, reason and message.
fn dangling(level: &str, is_there: bool) -> [(&'static str, String); 3] {
    let (status, reason, rest) = if is_there {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {} {rest}",
        quote(level)
    );
    [
        ("status", status.to_owned()),
        ("reason", reason.to_owned()),
        ("message", message),
    ]
}
