//! Validation rules of custom resources: expressions with `self` and `oldSelf`.

use std::path::Path;

use lockgate_api::document::yaml;
use lockgate_cel::crd::{Inputs, OldSelf, RuleError, Scope, rule_too_costly};
use lockgate_cel::eval::{Limits, evaluate_recorded};
use lockgate_cel::program::CompileError;
use lockgate_cel::schema::Schema;
use lockgate_go::json::to_string_plain;
use serde_json::{Map, Value as Json, json};

use super::{Known, Outcome, OutputFormat, explained, explanation, outcome};
use crate::commands::{CommandError, Stop};
use crate::exit_code::ExitCode;
use crate::input;
use crate::output::{Printer, table};
use crate::text::Source;

/// The maximum number of schema nodes to search for rules.
const MAX_PLACES: usize = 100_000;

/// A CustomResourceDefinition.
pub(super) struct Definition(Json);

impl Definition {
    /// Reads the first CustomResourceDefinition in a file.
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let Source { text, .. } = input::read(path)?;
        let invalid =
            |error: String| CommandError::invalid_input(format!("`{}`: {error}", path.display()));
        let documents = yaml::parse_all(&text).map_err(|error| invalid(error.to_string()))?;
        for document in documents {
            let object: Json = serde_json::from_str(&document.root().to_json())
                .map_err(|error| invalid(error.to_string()))?;
            if object["kind"] == "CustomResourceDefinition" {
                return Ok(Self(object));
            }
        }
        Err(invalid(String::from("no CustomResourceDefinition found")))
    }

    /// The schemas of its versions.
    fn schemas(&self) -> impl Iterator<Item = (&str, &Json)> {
        let versions = self.0["spec"]["versions"].as_array().into_iter().flatten();
        versions.filter_map(|version| {
            let schema = version.pointer("/schema/openAPIV3Schema")?;
            Some((version["name"].as_str()?, schema))
        })
    }

    /// The schema of the storage version, or of an object's version.
    fn schema_for(&self, object: Option<&Json>) -> Result<&Json, CommandError> {
        let version = object.and_then(|object| object["apiVersion"].as_str());
        let version = version.and_then(|version| version.rsplit('/').next());
        let all: Vec<_> = self.schemas().collect();
        let found = all
            .iter()
            .find(|(name, _)| Some(*name) == version)
            .or_else(|| all.first());
        found.map(|(_, schema)| *schema).ok_or_else(|| {
            CommandError::invalid_input("the CustomResourceDefinition has no schema")
        })
    }
}

/// A field path in a schema and in objects: `spec.ports[0]`.
fn segments(path: &str) -> Vec<&str> {
    let split = path.split(['.', '[', ']']);
    split.filter(|segment| !segment.is_empty()).collect()
}

fn schema_at<'s>(schema: &'s Json, path: &str) -> Result<&'s Json, CommandError> {
    let mut place = schema;
    for segment in segments(path) {
        let member = place
            .get("properties")
            .and_then(|properties| properties.get(segment));
        let below = member
            .or_else(|| place.get("items"))
            .or_else(|| place.get("additionalProperties"));
        place = below.filter(|below| below.is_object()).ok_or_else(|| {
            CommandError::invalid_input(format!("the schema has no `{segment}` of `{path}`"))
        })?;
    }
    Ok(place)
}

fn value_at<'v>(value: &'v Json, path: &str) -> Option<&'v Json> {
    segments(path)
        .into_iter()
        .try_fold(value, |place, segment| match place {
            Json::Array(items) => items.get(segment.parse::<usize>().ok()?),
            other => other.get(segment),
        })
}

/// The values that a rule validates, with their schema.
pub(super) struct Subject {
    schema: Schema,
    scope: Scope,
    value: Option<Json>,
    old: Option<Json>,
    old_self: OldSelf,
}

impl Subject {
    /// Values at a path of custom resources.
    pub(super) fn of_definition(
        definition: &Definition,
        path: &str,
        object: Option<&Json>,
        old: Option<&Json>,
        old_self: OldSelf,
    ) -> Result<Self, CommandError> {
        let schema = schema_at(definition.schema_for(object)?, path)?;
        let value = object.and_then(|object| value_at(object, path));
        let missing = || CommandError::invalid_input(format!("the object has no `{path}`"));
        if object.is_some() && value.is_none() {
            return Err(missing());
        }
        let old = old.and_then(|old| value_at(old, path));
        Self::new(
            schema,
            path.is_empty(),
            value.cloned(),
            old.cloned(),
            old_self,
        )
    }

    /// Values without a schema; their types are inferred.
    pub(super) fn of_values(
        value: Json,
        old: Option<Json>,
        old_self: OldSelf,
    ) -> Result<Self, CommandError> {
        Self::new(&inferred(&value), false, Some(value), old, old_self)
    }

    fn new(
        schema: &Json,
        is_root: bool,
        value: Option<Json>,
        old: Option<Json>,
        old_self: OldSelf,
    ) -> Result<Self, CommandError> {
        let untyped =
            || CommandError::invalid_input("values of this schema are not accessible to rules");
        let schema = Schema::from_json(schema).map_err(|_| untyped())?;
        let schema = if is_root {
            schema.into_resource_root()
        } else {
            schema
        };
        let scope = Scope::new(&schema).ok_or_else(untyped)?;
        Ok(Self {
            schema,
            scope,
            value,
            old,
            old_self,
        })
    }

    /// The names in scope of rules.
    pub(super) fn known(&self) -> Known<'_> {
        let values = [("self", &self.value), ("oldSelf", &self.old)];
        let values = values.into_iter();
        Known {
            names: self.scope.environment(self.old_self),
            variables: values
                .filter_map(|(name, value)| Some((name, value.as_ref()?)))
                .collect(),
        }
    }

    /// Compiles a rule, and evaluates it if a value is given.
    pub(super) fn describe(&self, text: &str, explains: bool) -> Result<Outcome, CompileError> {
        let rule = match self.scope.compile_rule(text, self.old_self) {
            Ok(rule) => rule,
            Err(RuleError::Rule(error) | RuleError::Message(error)) => return Err(error),
            Err(other) => {
                return Err(CompileError::Type {
                    expected: String::from("bool"),
                    found: other.to_string(),
                });
            }
        };
        let mut told = match &self.value {
            None => Outcome::default(),
            Some(_)
                if rule.uses_old_self()
                    && self.old.is_none()
                    && self.old_self == OldSelf::Value =>
            {
                Outcome::failed(String::from(
                    "the rule uses oldSelf and is skipped: no old value",
                ))
            }
            Some(value) => {
                let inputs = Inputs::new(&self.schema, value, self.old.as_ref(), self.old_self);
                let (evaluation, recording) =
                    evaluate_recorded(rule.program(), inputs.values(), Limits::default());
                let mut told = outcome(evaluation);
                if explains {
                    let steps = recording.steps.iter().map(|step| explained(text, step));
                    told.fields.insert(String::from("explain"), steps.collect());
                    told.explanation = Some(explanation(text, &recording));
                }
                told
            }
        };
        told.fields.insert(String::from("OutType"), json!("bool"));
        told.fields
            .insert(String::from("MaxCost"), json!(rule.max_cost()));
        Ok(told)
    }
}

/// The schema of a value.
fn inferred(value: &Json) -> Json {
    match value {
        Json::Object(members) => {
            let properties = members
                .iter()
                .map(|(name, value)| (name.clone(), inferred(value)));
            json!({"type": "object", "properties": properties.collect::<Map<_, _>>()})
        }
        Json::Array(items) => {
            let items = items
                .first()
                .map_or_else(|| json!({"type": "string"}), inferred);
            json!({"type": "array", "items": items})
        }
        Json::Bool(_) => json!({"type": "boolean"}),
        Json::Number(number) if number.is_f64() => json!({"type": "number"}),
        Json::Number(_) => json!({"type": "integer"}),
        Json::String(_) => json!({"type": "string"}),
        Json::Null => json!({"type": "string", "nullable": true}),
    }
}

/// Checks every rule of a CustomResourceDefinition.
pub(super) fn check_all(
    definition: &Definition,
    output: OutputFormat,
    printer: &mut Printer,
) -> Result<ExitCode, Stop> {
    let mut rows: Vec<Map<String, Json>> = Vec::new();
    for (version, schema) in definition.schemas() {
        let mut open = vec![(version.to_owned(), schema, true)];
        let mut seen = 0;
        while let Some((place, schema, is_root)) = open.pop() {
            seen += 1;
            if seen > MAX_PLACES {
                break;
            }
            for (name, below) in schema["properties"].as_object().into_iter().flatten() {
                open.push((format!("{place}.{name}"), below, false));
            }
            for name in ["items", "additionalProperties"] {
                if schema[name].is_object() {
                    open.push((format!("{place}[]"), &schema[name], false));
                }
            }
            let rules = schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten();
            for (index, rule) in rules.enumerate() {
                let field = format!("{place} [{index}]");
                rows.push(check_one(&field, schema, is_root, rule));
            }
        }
    }
    rows.sort_by_key(|row| row["Field"].as_str().unwrap_or_default().to_owned());
    let is_wrong = rows.iter().any(|row| row.contains_key("CompileError"));
    match output {
        OutputFormat::Json => {
            let name = &definition.0["metadata"]["name"];
            printer.line(&to_string_plain(
                &json!({"definition": name, "rules": rows}),
            ))?;
        }
        OutputFormat::Table => {
            let text = |row: &Map<String, Json>, name: &str| match row.get(name) {
                Some(Json::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
            let cells = |row: &Map<String, Json>| {
                let problem = text(row, "CompileError");
                let shown = if problem.is_empty() {
                    text(row, "Rule")
                } else {
                    problem
                };
                vec![
                    text(row, "Field"),
                    text(row, "MaxCost"),
                    super::one_line(&shown),
                ]
            };
            let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
            printer.text(&table::render(&["FIELD", "MAX COST", "RULE"], &cells))?;
        }
    }
    Ok(if is_wrong {
        ExitCode::InvalidInput
    } else {
        ExitCode::Done
    })
}

fn check_one(field: &str, schema: &Json, is_root: bool, rule: &Json) -> Map<String, Json> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let mut row = Map::from_iter([
        (String::from("Field"), json!(field)),
        (String::from("Rule"), json!(text)),
    ]);
    let old_self = match rule["optionalOldSelf"] == true {
        true => OldSelf::Optional,
        false => OldSelf::Value,
    };
    let compiled = Schema::from_json(schema).ok().and_then(|schema| {
        let schema = if is_root {
            schema.into_resource_root()
        } else {
            schema
        };
        Scope::new(&schema)
    });
    let problem = match compiled.ok_or(RuleError::NoType) {
        Err(error) => Some(error.to_string()),
        Ok(scope) => match scope.compile_rule(text, old_self) {
            Err(error) => Some(error.to_string()),
            Ok(compiled) => {
                row.insert(String::from("MaxCost"), json!(compiled.max_cost()));
                let message = rule["messageExpression"]
                    .as_str()
                    .filter(|text| !text.is_empty());
                let message = message.map(|text| scope.compile_message(text, old_self));
                let message = message.and_then(Result::err).map(|error| error.to_string());
                message.or_else(|| rule_too_costly(compiled.max_cost()))
            }
        },
    };
    if let Some(problem) = problem {
        row.insert(String::from("CompileError"), json!(problem));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_places_in_schemas_and_in_objects() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"ports": {"type": "array", "items": {"type": "integer"}}}}}});
        assert_eq!(
            schema_at(&schema, ".spec.ports[1]").unwrap()["type"],
            "integer"
        );
        assert_eq!(schema_at(&schema, "").unwrap(), &schema);
        assert!(schema_at(&schema, "spec.nothing").is_err());
        let object = json!({"spec": {"ports": [80, 443]}});
        assert_eq!(value_at(&object, "spec.ports[1]"), Some(&json!(443)));
        assert_eq!(value_at(&object, "spec.ports[2]"), None);
    }
}
