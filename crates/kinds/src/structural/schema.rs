//! A parsed schema, which is shared.
//!
//! One tree is used for pruning, defaulting and validation. Upstream has two, one for structure and one for values;
//! separate fields represent their differences.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use lockgate_go::regex::{self, Regex};

use super::format::Format;
use super::json::copy;
use super::props::{Items, Props, SchemaOrBool};
use super::rules::Rules;

/// The maximum depth of a schema.
///
/// Upstream has no such limit; its schemas, like ours, are traversed recursively.
pub(crate) const MAX_DEPTH: usize = 128;

/// The maximum total number of schemas that are accessible to all validation rules of a schema.
///
/// Each rule has its own CEL type of the schemas below it, so rules on many levels of a large schema could take
/// unbounded memory. Upstream shares these types and has no limit.
const MAX_SEEN_BY_RULES: u64 = 250_000;

/// The schema of one version of a custom resource. Cloning is cheap and shares the tree.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) root: Arc<Node>,
}

/// The error of an invalid structural schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// A schema is not an object.
    NotAnObject,
    /// A keyword is not supported; the message is upstream's.
    Unsupported(&'static str),
    /// The schema exceeds the maximum depth.
    TooDeep,
    /// The schemas accessible to validation rules exceed the maximum number.
    RuleSchemaLimit,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("a schema must be an object"),
            Self::Unsupported(text) => f.write_str(text),
            Self::TooDeep => write!(f, "more than {MAX_DEPTH} levels"),
            Self::RuleSchemaLimit => {
                write!(
                    f,
                    "rules see more than {MAX_SEEN_BY_RULES} schemas together"
                )
            }
        }
    }
}

impl std::error::Error for SchemaError {}

/// The type of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// No type.
    Any,
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    /// A type that OpenAPI does not define.
    Other(Box<str>),
}

impl Type {
    fn read(text: &str) -> Self {
        match text {
            "" => Self::Any,
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "number" => Self::Number,
            "integer" => Self::Integer,
            "boolean" => Self::Boolean,
            other => Self::Other(other.into()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Other(name) => name,
        }
    }
}

/// The `additionalProperties` of an object.
#[derive(Debug)]
pub(crate) enum Additional {
    Unsaid,
    Bool(bool),
    Schema(Box<Node>),
}

/// How list elements are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map,
    Other,
}

/// A schema in the tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) int_or_string: bool,
    /// True if int-or-string is validated as a type.
    pub(crate) either_type: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    /// True if maps of this type are correlated with old values by entry.
    pub(crate) correlatable: bool,
    /// True if a map of this type is atomic.
    pub(crate) is_atomic_map: bool,
    /// True if strings of this type have a format other than `byte`.
    pub(crate) has_text_format: bool,
    /// True if this schema or a nested one has validation rules.
    pub(crate) has_rules: bool,
    /// True if this schema has validation rules that cannot access its values.
    pub(crate) has_blind_rules: bool,
    pub(crate) list_type: Option<ListType>,
    pub(crate) list_map_keys: Box<[String]>,
    pub(crate) default: Option<Box<Json>>,
    pub(crate) properties: BTreeMap<Box<str>, Box<Self>>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Option<Box<Rules>>,
}

/// The constraints of a schema other than its type. Most schemas have none.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<Format>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) allowed: Box<[Json]>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Box<[String]>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

/// A regular expression, compiled on first use.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Box<str>,
    regex: OnceLock<Result<Regex, regex::Error>>,
}

impl Pattern {
    pub(crate) fn regex(&self) -> &Result<Regex, regex::Error> {
        self.regex.get_or_init(|| Regex::new(&self.source))
    }
}

impl Schema {
    /// Parses the `openAPIV3Schema` of a version, and compiles its validation rules.
    ///
    /// ```
    /// use lockgate_kinds::structural::Schema;
    /// let schema = Schema::parse(&serde_json::json!({
    ///     "type": "object",
    ///     "properties": { "spec": {
    ///         "type": "object",
    ///         "properties": { "size": { "type": "integer", "default": 1, "maximum": 5 } },
    ///     } },
    /// })).unwrap();
    /// let mut object = serde_json::json!({ "spec": { "other": 7 } });
    /// assert_eq!(schema.prune(&mut object), ["spec.other"]);
    /// schema.default(&mut object);
    /// assert_eq!(object, serde_json::json!({ "spec": { "size": 1 } }));
    /// object["spec"]["size"] = 6.into();
    /// assert_eq!(
    ///     schema.validate(&object).errors[0].to_string(),
    ///     "spec.size: Invalid value: 6: spec.size in body should be less than or equal to 5",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// [`SchemaError`]. Whether the schema is structural is not validated here, but in the `crd` module.
    pub fn parse(schema: &Json) -> Result<Self, SchemaError> {
        let props = Props::new(schema).ok_or(SchemaError::NotAnObject)?;
        let mut root = Node::read(props)?;
        check_rule_schema_limit(props)?;
        root.compile_rules(props, true);
        root.prune_defaults(&super::defaults::Place::Root);
        Ok(Self {
            root: Arc::from(root),
        })
    }

    /// The schema of a property, such as that of `status`.
    pub(crate) fn property(&self, name: &str) -> Option<&Node> {
        self.root.properties.get(name).map(|property| &**property)
    }
}

/// The position of a schema: defaults and validation rules are used outside of `allOf`, `anyOf`, `oneOf` and `not`
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Structure,
    Junctor,
}

/// Upstream converts schemas into validators in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Values,
    Defaults,
}

impl Node {
    /// Parses a schema for the validation of objects.
    pub(crate) fn read(props: Props<'_>) -> Result<Box<Self>, SchemaError> {
        Self::read_as(props, 0, Place::Structure, Dialect::Values)
    }

    /// Parses a schema as upstream does to validate defaults: int-or-string is not a type of its own, and unknown
    /// formats are kept.
    pub(crate) fn read_unfolded(props: Props<'_>) -> Result<Box<Self>, SchemaError> {
        Self::read_as(props, 0, Place::Structure, Dialect::Defaults)
    }

    fn read_as(
        props: Props<'_>,
        depth: usize,
        place: Place,
        dialect: Dialect,
    ) -> Result<Box<Self>, SchemaError> {
        if depth >= MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        check_supported(props)?;
        let mut node = Self::leaf(props, place, dialect);
        for (name, schema) in props.schema_map("properties") {
            let child = Self::read_as(schema, depth + 1, place, dialect)?;
            node.properties.insert(name.into(), child);
        }
        match props.schema_or_bool("additionalProperties") {
            SchemaOrBool::Absent => {}
            SchemaOrBool::Bool(allows) => node.additional = Additional::Bool(allows),
            SchemaOrBool::Schema(schema) => {
                let child = Self::read_as(schema, depth + 1, place, dialect)?;
                node.additional = Additional::Schema(child);
            }
        }
        match props.items() {
            Items::Absent => {}
            Items::All(schema) => {
                node.items = Some(Self::read_as(schema, depth + 1, place, dialect)?);
            }
            Items::Each(_) => {
                return Err(SchemaError::Unsupported(
                    "OpenAPIV3Schema 'items' must be a schema, but is an array",
                ));
            }
        }
        if let Some(checks) = &mut node.checks {
            for (keyword, nodes) in [
                ("allOf", &mut checks.all_of),
                ("anyOf", &mut checks.any_of),
                ("oneOf", &mut checks.one_of),
            ] {
                for schema in props.schemas(keyword) {
                    let child = Self::read_as(schema, depth + 1, Place::Junctor, dialect)?;
                    nodes.push(*child);
                }
            }
            if let Some(schema) = props.schema("not") {
                let child = Self::read_as(schema, depth + 1, Place::Junctor, dialect)?;
                checks.not = Some(child);
            }
        }
        Ok(node)
    }

    /// A schema without nested schemas.
    // Separate from the recursive function, to keep its stack frames small.
    #[inline(never)]
    fn leaf(props: Props<'_>, place: Place, dialect: Dialect) -> Box<Self> {
        let default = match place {
            Place::Structure => props.get("default").map(|value| Box::new(copy(value))),
            Place::Junctor => None,
        };
        let kind = Type::read(props.text("type"));
        let int_or_string = props.flag("x-kubernetes-int-or-string");
        Box::new(Self {
            checks: Checks::read(props, &kind, dialect),
            either_type: int_or_string && dialect == Dialect::Values,
            kind,
            int_or_string,
            nullable: props.flag("nullable"),
            preserve_unknown: props.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: props.flag("x-kubernetes-embedded-resource"),
            correlatable: matches!(
                props.opt_text("x-kubernetes-map-type"),
                None | Some("granular" | "atomic")
            ),
            is_atomic_map: props.text("x-kubernetes-map-type") == "atomic",
            has_text_format: !matches!(props.text("format"), "" | "byte"),
            has_rules: false,
            has_blind_rules: false,
            list_type: props
                .opt_text("x-kubernetes-list-type")
                .map(|text| match text {
                    "" | "atomic" => ListType::Atomic,
                    "set" => ListType::Set,
                    "map" => ListType::Map,
                    _ => ListType::Other,
                }),
            list_map_keys: props
                .texts("x-kubernetes-list-map-keys")
                .map(str::to_owned)
                .collect(),
            default,
            properties: BTreeMap::new(),
            additional: Additional::Unsaid,
            items: None,
            rules: None,
        })
    }

    /// The schema of map entries.
    pub(crate) fn entries(&self) -> Option<&Self> {
        match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::Unsaid | Additional::Bool(_) => None,
        }
    }

    /// The schema of a field, or of map entries.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match self.properties.get(name) {
            Some(property) => Some(property),
            None => self.entries(),
        }
    }

    /// Returns true if validation rules can access values of this schema.
    // UPSTREAM: apiserver pkg/cel/common/schemas.go (SchemaDeclType)
    pub(crate) fn is_visible_to_rules(&self) -> bool {
        if self.int_or_string {
            return true;
        }
        match &self.kind {
            Type::Any | Type::Other(_) => false,
            Type::Array => self
                .items
                .as_ref()
                .is_some_and(|items| items.is_visible_to_rules()),
            Type::Object => self.entries().is_none_or(Self::is_visible_to_rules),
            Type::String | Type::Number | Type::Integer | Type::Boolean => true,
        }
    }

    /// Compiles the validation rules of this schema and nested ones.
    pub(crate) fn compile_rules(&mut self, props: Props<'_>, is_root: bool) {
        self.rules = Rules::compile(props, is_root);
        self.has_rules = self.rules.is_some();
        let hides_metadata = (is_root || self.embedded) && !self.declares_metadata();
        for (name, schema) in props.schema_map("properties") {
            let Some(child) = self.properties.get_mut(name) else {
                continue;
            };
            let has_rules = child.compile_rules_if_visible(schema);
            self.has_rules |= match name {
                "metadata" if hides_metadata => child.forget_rules_of_metadata(),
                _ => has_rules,
            };
        }
        if let (Additional::Schema(child), SchemaOrBool::Schema(schema)) = (
            &mut self.additional,
            props.schema_or_bool("additionalProperties"),
        ) {
            self.has_rules |= child.compile_rules_if_visible(schema);
        }
        if let (Some(child), Items::All(schema)) = (&mut self.items, props.items()) {
            self.has_rules |= child.compile_rules_if_visible(schema);
        }
    }

    /// Returns true if the schema of a resource declares type and metadata itself.
    // UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/cel/model/schemas.go
    fn declares_metadata(&self) -> bool {
        let is = |schema: &Self, name: &str, kind: Type| {
            let property = schema.properties.get(name);
            property.is_some_and(|property| property.kind == kind)
        };
        let metadata = self.properties.get("metadata");
        is(self, "kind", Type::String)
            && is(self, "apiVersion", Type::String)
            && is(self, "metadata", Type::Object)
            && metadata.is_some_and(|metadata| {
                is(metadata, "name", Type::String) && is(metadata, "generateName", Type::String)
            })
    }

    /// In metadata, validation rules can access the names only.
    fn forget_rules_of_metadata(&mut self) -> bool {
        self.has_rules = self.rules.is_some();
        for (name, property) in &mut self.properties {
            if matches!(&**name, "name" | "generateName") {
                self.has_rules |= property.has_rules;
            } else {
                property.has_rules = false;
            }
        }
        self.has_rules
    }

    /// Like [`Self::compile_rules`]. If validation rules cannot access values of this schema, its rules and nested
    /// ones are not evaluated on objects; rules of nested schemas are still used for their own defaults.
    fn compile_rules_if_visible(&mut self, props: Props<'_>) -> bool {
        self.compile_rules(props, false);
        if !self.is_visible_to_rules() {
            self.has_blind_rules = !props.list("x-kubernetes-validations").is_empty();
            self.has_rules = false;
        }
        self.has_rules
    }
}

/// Limits the schemas accessible to validation rules. The depth of the schema was checked before.
pub(crate) fn check_rule_schema_limit(props: Props<'_>) -> Result<(), SchemaError> {
    /// Counts the schemas accessible to a rule, and sums them up for all rules.
    fn count(props: Props<'_>, seen: &mut u64) -> u64 {
        let mut size = 1;
        for (_, property) in props.schema_map("properties") {
            size += count(property, seen);
        }
        if let SchemaOrBool::Schema(entry) = props.schema_or_bool("additionalProperties") {
            size += count(entry, seen);
        }
        if let Items::All(items) = props.items() {
            size += count(items, seen);
        }
        if !props.list("x-kubernetes-validations").is_empty() {
            *seen += size;
        }
        size
    }
    let mut seen = 0;
    count(props, &mut seen);
    if seen > MAX_SEEN_BY_RULES {
        return Err(SchemaError::RuleSchemaLimit);
    }
    Ok(())
}

/// UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/convert.go (validateUnsupportedFields)
fn check_supported(props: Props<'_>) -> Result<(), SchemaError> {
    let has_entries = |keyword| {
        let value = props.get(keyword);
        value.is_some_and(|value| value.as_object().is_some_and(|map| !map.is_empty()))
    };
    let unsupported = if !props.text("id").is_empty() {
        "OpenAPIV3Schema 'id' is not supported"
    } else if !props.text("$schema").is_empty() {
        "OpenAPIV3Schema 'schema' is not supported"
    } else if !props.text("$ref").is_empty() {
        "OpenAPIV3Schema '$ref' is not supported"
    } else if has_entries("patternProperties") {
        "OpenAPIV3Schema 'patternProperties' is not supported"
    } else if has_entries("dependencies") {
        "OpenAPIV3Schema 'dependencies' is not supported"
    } else if props.has("additionalItems") {
        "OpenAPIV3Schema 'additionalItems' is not supported"
    } else if has_entries("definitions") {
        "OpenAPIV3Schema 'definitions' is not supported"
    } else if props.opt_flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    } else {
        return Ok(());
    };
    Err(SchemaError::Unsupported(unsupported))
}

impl Checks {
    fn read(props: Props<'_>, kind: &Type, dialect: Dialect) -> Option<Box<Self>> {
        const KEYWORDS: [&str; 18] = [
            "format",
            "maximum",
            "minimum",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "uniqueItems",
            "multipleOf",
            "enum",
            "maxProperties",
            "minProperties",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !KEYWORDS.iter().any(|keyword| props.has(keyword)) {
            return None;
        }
        let pattern = props.text("pattern");
        Some(Box::new(Self {
            format: match dialect {
                Dialect::Values => {
                    let either = props.flag("x-kubernetes-int-or-string");
                    Format::read(props.text("format"), kind, either)
                }
                Dialect::Defaults => Format::read_any(props.text("format")),
            },
            maximum: props.number("maximum"),
            exclusive_maximum: props.flag("exclusiveMaximum"),
            minimum: props.number("minimum"),
            exclusive_minimum: props.flag("exclusiveMinimum"),
            max_length: props.integer("maxLength"),
            min_length: props.integer("minLength"),
            pattern: (!pattern.is_empty()).then(|| Pattern {
                source: pattern.into(),
                regex: OnceLock::new(),
            }),
            max_items: props.integer("maxItems"),
            min_items: props.integer("minItems"),
            unique_items: props.flag("uniqueItems"),
            multiple_of: props.number("multipleOf"),
            allowed: props.list("enum").iter().map(copy).collect(),
            max_properties: props.integer("maxProperties"),
            min_properties: props.integer("minProperties"),
            required: props.texts("required").map(str::to_owned).collect(),
            ..Self::default()
        }))
    }
}
