//! Default values must be valid, and must not be pruned.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/defaulting/validation.go

use serde_json::Value as Json;

use lockgate_api::field::{FieldErrors, aggregate};
use lockgate_cel::limits::VALIDATION_RULES_BUDGET;

use crate::structural::defaults::{self, Step};
use crate::structural::error;
use crate::structural::json::{copy, equal, shown};
use crate::structural::metadata::{self, Malformed};
use crate::structural::path::Path;
use crate::structural::props::Props;
use crate::structural::rules;
use crate::structural::schema::Node;
use crate::structural::validate as values;

/// Validates all defaults of a schema that is structural otherwise.
pub(super) fn validate(schema: Props<'_>, must_be_pruned: bool, place: &Path<'_>) -> FieldErrors {
    let Ok(mut root) = Node::read_unfolded(schema) else {
        return FieldErrors::new();
    };
    root.compile_rules(schema, true);
    let mut checker = Checker {
        must_be_pruned,
        errors: FieldErrors::new(),
        budget: VALIDATION_RULES_BUDGET,
    };
    let enclosing = Enclosing {
        resource: &root,
        steps: None,
        in_metadata: false,
    };
    // Stops once the CEL cost budget is exhausted.
    let _ = checker.check(&root, true, &enclosing, place);
    checker.errors
}

/// Returns true if a schema has defaults that pruning would change.
pub(super) fn has_unpruned(schema: Props<'_>) -> bool {
    let (Ok(plain), Ok(mut pruned)) = (Node::read(schema), Node::read(schema)) else {
        return false;
    };
    if !super::structure::validate(schema, &Path::ROOT).is_empty() {
        return false;
    }
    pruned.prune_defaults(&defaults::Place::Root);
    !same_defaults(&plain, &pruned)
}

fn same_defaults(one: &Node, other: &Node) -> bool {
    let same_here = match (&one.default, &other.default) {
        (Some(one), Some(other)) => equal(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    let same = |one: Option<&Node>, other: Option<&Node>| match (one, other) {
        (Some(one), Some(other)) => same_defaults(one, other),
        _ => true,
    };
    same_here
        && same(one.items.as_deref(), other.items.as_deref())
        && same(one.entries(), other.entries())
        && one.properties.iter().all(|(name, property)| {
            let other = other.properties.get(name);
            same(Some(property), other.map(|other| &**other))
        })
}

/// The resource that contains a schema, and the path of the schema in it.
#[derive(Debug, Clone, Copy)]
struct Enclosing<'a> {
    resource: &'a Node,
    /// The last step of the path, and the previous ones.
    steps: Option<(&'a Self, Step<'a>)>,
    in_metadata: bool,
}

impl<'a> Enclosing<'a> {
    fn below(&'a self, step: Step<'a>) -> Self {
        Self {
            steps: Some((self, step)),
            ..*self
        }
    }

    /// An otherwise empty resource with a value at this path.
    fn wrap(&self, value: &Json) -> Json {
        let mut value = copy(value);
        let mut enclosing = self;
        while let Some((parent, step)) = enclosing.steps {
            value = match step {
                Step::Field(name) => Json::Object([(name.to_owned(), value)].into_iter().collect()),
                Step::Index => Json::Array(vec![value]),
            };
            enclosing = parent;
        }
        if let Some(entries) = value.as_object_mut() {
            entries.entry("kind").or_insert_with(|| "Validation".into());
            entries
                .entry("apiVersion")
                .or_insert_with(|| "validation/v1".into());
        }
        value
    }
}

/// The CEL cost budget is exhausted.
struct Exhausted;

struct Checker {
    must_be_pruned: bool,
    errors: FieldErrors,
    budget: u64,
}

impl Checker {
    fn check(
        &mut self,
        schema: &Node,
        is_root: bool,
        enclosing: &Enclosing<'_>,
        place: &Path<'_>,
    ) -> Result<(), Exhausted> {
        let is_resource = is_root || schema.embedded;
        let own = Enclosing {
            resource: schema,
            steps: None,
            in_metadata: false,
        };
        let enclosing = if is_resource { &own } else { enclosing };
        if let Some(default) = &schema.default {
            let place = place.child("default");
            if enclosing.in_metadata {
                self.check_in_metadata(schema, default, enclosing, &place)?;
            } else {
                self.check_default(schema, default, is_resource, &place)?;
            }
        }
        if let Some(items) = &schema.items {
            let enclosing = enclosing.below(Step::Index);
            self.check(items, false, &enclosing, &place.child("items"))?;
        }
        let properties = place.child("properties");
        for (name, property) in &schema.properties {
            let mut enclosing = enclosing.below(Step::Field(name));
            enclosing.in_metadata |=
                is_resource && matches!(&**name, "metadata" | "apiVersion" | "kind");
            self.check(property, false, &enclosing, &properties.key(name))?;
        }
        Ok(())
    }

    fn check_default(
        &mut self,
        schema: &Node,
        default: &Json,
        is_resource: bool,
        place: &Path<'_>,
    ) -> Result<(), Exhausted> {
        let mut is_pruned = true;
        if self.must_be_pruned {
            let mut pruned = copy(default);
            schema.prune(&mut pruned, is_resource);
            is_pruned = equal(&pruned, default);
        }
        let mut value = copy(default);
        let coerced = if is_resource {
            metadata::coerce_resource(schema, &mut value, Malformed::Refuse, place)
        } else {
            metadata::coerce(schema, &mut value, Malformed::Refuse, place).map(drop)
        };
        if !is_pruned {
            // Upstream prints the pruned default.
            let detail = "must not have unknown fields";
            self.errors
                .push(error::invalid(place, &shown(&value), detail));
        }
        if let Err(error) = coerced {
            self.errors.push(*error);
            return Ok(());
        }
        let mut found = FieldErrors::new();
        if is_resource {
            metadata::validate_resource(schema, &value, place, &mut found);
        } else {
            metadata::validate(schema, &value, place, &mut found);
        }
        if !found.is_empty() {
            self.errors.extend(found);
            return Ok(());
        }
        self.check_value(schema, &value, place)
    }

    fn check_in_metadata(
        &mut self,
        schema: &Node,
        default: &Json,
        enclosing: &Enclosing<'_>,
        place: &Path<'_>,
    ) -> Result<(), Exhausted> {
        let mut object = enclosing.wrap(default);
        let root = Path::ROOT;
        let coerced =
            metadata::coerce_resource(enclosing.resource, &mut object, Malformed::Refuse, &root);
        let reason = match coerced {
            Err(error) => Some(error.to_string()),
            Ok(()) => {
                let mut found = FieldErrors::new();
                metadata::validate_resource(enclosing.resource, &object, &root, &mut found);
                (!found.is_empty()).then(|| aggregate(&found))
            }
        };
        if let Some(reason) = reason {
            let detail = format!("must result in valid metadata: {reason}");
            self.errors
                .push(error::invalid(place, &shown(default), detail));
            return Ok(());
        }
        self.check_value(schema, default, place)
    }

    fn check_value(
        &mut self,
        schema: &Node,
        value: &Json,
        place: &Path<'_>,
    ) -> Result<(), Exhausted> {
        let printed = place.to_string();
        let found = values::validate(schema, value, Some(&printed));
        if !found.is_empty() {
            self.errors.extend(found);
            return Ok(());
        }
        if schema.has_blind_rules {
            let detail = "rule compiler initialization error: failed to convert to declType for \
                          CEL validation rules";
            let kind = schema.kind.name();
            self.errors.push(error::invalid_text(place, kind, detail));
        }
        if !schema.has_rules {
            return Ok(());
        }
        let place = Path::printed(&printed);
        let (outcome, left) = rules::run(schema, value, Some(value), None, &place, self.budget);
        let has_errors = !outcome.errors.is_empty();
        self.errors.extend(outcome.errors);
        let mut left = left.ok_or(Exhausted)?;
        if !has_errors {
            // A default must be valid on create, too, without an old value.
            let (outcome, without) = rules::run(schema, value, None, None, &place, self.budget);
            self.errors.extend(outcome.errors);
            left = left.min(without.ok_or(Exhausted)?);
        }
        self.budget = left;
        Ok(())
    }
}
