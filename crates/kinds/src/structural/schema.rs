//! A schema as it is used: parsed once, then shared.
//!
//! One tree serves pruning, defaulting and validating. Upstream has two, one for structure and one
//! for values; where they differ, a field says so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use lockgate_cel::crd::MAX_SCHEMA_DEPTH;
use lockgate_cel::go_regex::{self, Regex};

use super::format::Format;
use super::props::{Items, Props, SchemaOrBool};
use super::rules::Rules;

/// The schema of one version of a custom resource. Cloning is cheap and shares the tree.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) root: Arc<Node>,
}

/// Why a document is no structural schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// A schema is no object.
    NotAnObject,
    /// A keyword is not supported, in upstream's words.
    Unsupported(&'static str),
    /// There are more levels than anybody needs.
    ///
    /// Upstream walks schemas by recursion and has no limit of its own.
    TooDeep,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("a schema must be an object"),
            Self::Unsupported(text) => f.write_str(text),
            Self::TooDeep => write!(f, "more than {MAX_SCHEMA_DEPTH} levels"),
        }
    }
}

impl std::error::Error for SchemaError {}

/// The type a schema names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// None.
    Any,
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    /// One that OpenAPI does not know.
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

/// What an object may hold besides its properties.
#[derive(Debug)]
pub(crate) enum Additional {
    Unsaid,
    Bool(bool),
    Schema(Box<Node>),
}

/// How the elements of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map,
    Other,
}

/// One schema of the tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    /// Whether maps of this type can be compared entry by entry with what they replace.
    pub(crate) correlatable: bool,
    /// Whether a map of this type has one owner.
    pub(crate) is_atomic_map: bool,
    /// Whether text of this type has a format, other than that of bytes.
    pub(crate) has_text_format: bool,
    /// Whether this schema or one below it has rules.
    pub(crate) has_rules: bool,
    pub(crate) list_type: Option<ListType>,
    pub(crate) list_map_keys: Box<[String]>,
    pub(crate) default: Option<Box<Json>>,
    pub(crate) properties: BTreeMap<Box<str>, Self>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Option<Box<Rules>>,
}

/// What a schema asks of a value besides its type. Most schemas ask nothing.
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
    pub(crate) all_of: Box<[Node]>,
    pub(crate) any_of: Box<[Node]>,
    pub(crate) one_of: Box<[Node]>,
    pub(crate) not: Option<Box<Node>>,
}

/// A regular expression, compiled when it is first asked for.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Box<str>,
    regex: OnceLock<Result<Regex, go_regex::Error>>,
}

impl Pattern {
    pub(crate) fn regex(&self) -> &Result<Regex, go_regex::Error> {
        self.regex.get_or_init(|| Regex::new(&self.source))
    }
}

impl Schema {
    /// Reads the `openAPIV3Schema` of a version and compiles its rules.
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
    /// [`SchemaError`]. Whether the schema keeps the rules of structural schemas is not looked at:
    /// the `crd` module does that.
    pub fn parse(schema: &Json) -> Result<Self, SchemaError> {
        let props = Props::new(schema).ok_or(SchemaError::NotAnObject)?;
        let mut root = Node::read(props, 0, Place::Structure)?;
        root.compile_rules(props, true);
        root.prune_defaults(&super::defaults::Place::Root);
        Ok(Self {
            root: Arc::new(root),
        })
    }

    /// The schema of a property, such as that of `status`.
    pub(crate) fn property(&self, name: &str) -> Option<&Node> {
        self.root.properties.get(name)
    }
}

/// Where a schema stands: only on the spine do defaults and rules count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Structure,
    Junctor,
}

impl Node {
    pub(crate) fn read(props: Props<'_>, depth: usize, place: Place) -> Result<Self, SchemaError> {
        if depth >= MAX_SCHEMA_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        check_supported(props)?;
        let child = |props| Self::read(props, depth + 1, place);
        let properties = props
            .schema_map("properties")
            .map(|(name, schema)| Ok((name.into(), child(schema)?)))
            .collect::<Result<_, SchemaError>>()?;
        let additional = match props.schema_or_bool("additionalProperties") {
            SchemaOrBool::Absent => Additional::Unsaid,
            SchemaOrBool::Bool(allows) => Additional::Bool(allows),
            SchemaOrBool::Schema(schema) => Additional::Schema(Box::new(child(schema)?)),
        };
        let items = match props.items() {
            Items::Absent => None,
            Items::All(schema) => Some(Box::new(child(schema)?)),
            Items::Each(_) => {
                return Err(SchemaError::Unsupported(
                    "OpenAPIV3Schema 'items' must be a schema, but is an array",
                ));
            }
        };
        let default = match place {
            Place::Structure => props.get("default").cloned().map(Box::new),
            Place::Junctor => None,
        };
        let kind = Type::read(props.text("type"));
        let int_or_string = props.flag("x-kubernetes-int-or-string");
        Ok(Self {
            checks: Checks::read(props, depth, &kind, int_or_string)?,
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
            properties,
            additional,
            items,
            rules: None,
        })
    }

    /// The schema of the entries of a map.
    pub(crate) fn entries(&self) -> Option<&Self> {
        match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::Unsaid | Additional::Bool(_) => None,
        }
    }

    /// The schema of a field or, failing that, of an entry.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.entries())
    }

    /// Whether rules can see values of this schema.
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

    /// Compiles the rules here and below. What rules cannot see has none, nor does anything in it.
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

    /// Whether the schema of a resource says itself what its type and its names are.
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

    /// Of metadata, rules see nothing but the names.
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

    fn compile_rules_if_visible(&mut self, props: Props<'_>) -> bool {
        if self.is_visible_to_rules() {
            self.compile_rules(props, false);
        }
        self.has_rules
    }
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
    fn read(
        props: Props<'_>,
        depth: usize,
        kind: &Type,
        int_or_string: bool,
    ) -> Result<Option<Box<Self>>, SchemaError> {
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
            return Ok(None);
        }
        let junctor = |keyword| {
            props
                .schemas(keyword)
                .map(|schema| Node::read(schema, depth + 1, Place::Junctor))
                .collect::<Result<Box<[_]>, SchemaError>>()
        };
        let not = props.schema("not");
        let not = not.map(|schema| Node::read(schema, depth + 1, Place::Junctor));
        let pattern = props.text("pattern");
        Ok(Some(Box::new(Self {
            format: Format::read(props.text("format"), kind, int_or_string),
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
            allowed: props.list("enum").into(),
            max_properties: props.integer("maxProperties"),
            min_properties: props.integer("minProperties"),
            required: props.texts("required").map(str::to_owned).collect(),
            all_of: junctor("allOf")?,
            any_of: junctor("anyOf")?,
            one_of: junctor("oneOf")?,
            not: not.transpose()?.map(Box::new),
        })))
    }
}
