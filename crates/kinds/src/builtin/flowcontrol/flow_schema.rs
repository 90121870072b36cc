//! FlowSchemas and PriorityLevelConfigurations.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::take_over;
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, cluster, sub};
use crate::object::{Object, at_mut, fill, fill_number, get_mut, open, with};
use serde_json::Value;

pub(super) const FLOW_SCHEMAS: Resource = cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "flowschemas",
    "flowschema",
    "FlowSchema",
    "FlowSchemaList",
    &FlowSchema,
)
.subresources(&[sub(
    "status",
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "FlowSchema",
    CHANGE,
)])
.generation(SPEC);

pub(super) const PRIORITY_LEVEL_CONFIGURATIONS: Resource = cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "prioritylevelconfigurations",
    "prioritylevelconfiguration",
    "PriorityLevelConfiguration",
    "PriorityLevelConfigurationList",
    &PriorityLevelConfiguration,
)
.subresources(&[sub(
    "status",
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    CHANGE,
)])
.generation(SPEC);

/// The kind `FlowSchema`.
#[derive(Debug)]
pub(super) struct FlowSchema;

impl Kind for FlowSchema {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, schema_defaults);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |object| keep_metadata(object, old));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        schema_row(object, common)
    }

    fn sort_key(&self, object: &Value) -> Option<(i64, String)> {
        // Schemas are shown in the order in which they are matched.
        let precedence = read::integer(object, "/spec/matchingPrecedence");
        Some((precedence, read::text(object, "/metadata/name").to_owned()))
    }
}

/// The kind `PriorityLevelConfiguration`.
#[derive(Debug)]
pub(super) struct PriorityLevelConfiguration;

impl Kind for PriorityLevelConfiguration {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, level_defaults);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |object| keep_metadata(object, old));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        level_row(object, common)
    }
}

fn schema_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill_number(spec, "matchingPrecedence", 1000);
    }
}

fn level_defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if let Some(exempt) = get_mut(spec, "exempt") {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = get_mut(spec, "limited") {
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(queuing) = at_mut(limited, &["limitResponse", "queuing"]) {
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    }
}

/// A status update changes no metadata but the managed fields.
fn keep_metadata(object: &mut Object, old: &Object) {
    let managed = at_mut(object, &["metadata"]).and_then(|meta| meta.remove("managedFields"));
    take_over(object, old, "metadata");
    if let (Some(managed), Some(metadata)) = (managed, open(object, "metadata")) {
        metadata.insert("managedFields".to_owned(), managed);
    }
}

fn schema_row(object: &Value, common: &Common<'_>) -> Row {
    let method = match object.pointer("/spec/distinguisherMethod") {
        Some(method) if method.is_object() => read::text(method, "/type"),
        _ => "<none>",
    };
    let dangling = read::condition(object, "Dangling");
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/priorityLevelConfiguration/name")),
        cell(read::integer(object, "/spec/matchingPrecedence")),
        cell(method),
        cell(common.age.as_str()),
        cell(dangling.map_or("?", |condition| read::text(condition, "/status"))),
    ])
}

fn level_row(object: &Value, common: &Common<'_>) -> Row {
    let limited = object
        .pointer("/spec/limited")
        .filter(|limited| limited.is_object());
    let queuing = limited
        .and_then(|limited| limited.pointer("/limitResponse/queuing"))
        .filter(|queuing| queuing.is_object());
    let amount = |holder: Option<&Value>, pointer: &str| match holder {
        Some(holder) => cell(read::integer(holder, pointer)),
        None => cell("<none>"),
    };
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/type")),
        amount(limited, "/nominalConcurrencyShares"),
        amount(queuing, "/queues"),
        amount(queuing, "/handSize"),
        amount(queuing, "/queueLengthLimit"),
        cell(common.age.as_str()),
    ])
}
