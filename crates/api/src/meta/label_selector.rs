//! `metav1.LabelSelector`, the selector in API objects.

use std::collections::BTreeMap;

use lockgate_go::quote::quote;

use super::names;
use super::selector::{InvalidRequirement, Operator, Requirement, Selector};
use super::validation::{invalid_each, validate_labels};
use crate::decode::{decode_value, wire_struct};
use crate::document::tree;
use crate::field::{FieldError, FieldErrors, Path, Shown};

wire_struct! {
    /// A label query: all of `matchLabels` and all of `matchExpressions` must match.
    pub struct LabelSelector = "v1.LabelSelector" {
        /// Required label values.
        match_labels: Option<BTreeMap<String, String>> = "matchLabels", omit_empty, string_map;
        /// Requirements on labels.
        match_expressions: Option<Vec<LabelSelectorRequirement>> = "matchExpressions", omit_empty, objects;
    }
}

wire_struct! {
    /// A requirement on a label.
    pub struct LabelSelectorRequirement = "v1.LabelSelectorRequirement" {
        /// The label key.
        key: String = "key", always, text("string");
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: String = "operator", always, text("v1.LabelSelectorOperator");
        /// The values to compare with.
        values: Option<Vec<String>> = "values", omit_empty, strings("string");
    }
}

/// The validation of values in expressions. Objects stored before it existed may keep invalid values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionValues {
    /// Values are validated.
    Checked,
    /// Values are not validated.
    Unchecked,
}

impl LabelSelector {
    /// Returns true for an empty selector, which matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }

    /// Validates the selector.
    #[must_use]
    pub fn validate(&self, values: ExpressionValues, path: &Path<'_>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_labels(
            &mut errors,
            self.match_labels.as_ref(),
            &path.child("matchLabels"),
        );
        let expressions_path = path.child("matchExpressions");
        for (index, requirement) in self.match_expressions.iter().flatten().enumerate() {
            requirement.validate(&mut errors, values, &expressions_path.index(index));
        }
        errors
    }

    /// Parses the selector of a JSON value; `None` if it is invalid.
    #[must_use]
    pub fn read(tree: &serde_json::Value) -> Option<Self> {
        let decoded = decode_value(tree::read(tree).root()).ok()?;
        Some(decoded.value)
    }

    /// Compiles the selector.
    ///
    /// # Errors
    ///
    /// A requirement that [`Self::validate`] would also reject.
    pub fn compile(&self) -> Result<Selector, InvalidRequirement> {
        let mut requirements = Vec::new();
        for (key, value) in self.match_labels.iter().flatten() {
            requirements.push(Requirement::new(
                key,
                Operator::Equals,
                vec![value.clone()],
            )?);
        }
        for requirement in self.match_expressions.iter().flatten() {
            let operator = match requirement.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let message =
                        format!("{} is not a valid label selector operator", quote(other));
                    return Err(InvalidRequirement(message));
                }
            };
            let values = requirement.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&requirement.key, operator, values)?);
        }
        Ok(Selector::from(requirements))
    }
}

impl LabelSelectorRequirement {
    fn validate(&self, errors: &mut FieldErrors, checked: ExpressionValues, path: &Path<'_>) {
        let values = self.values.as_deref().unwrap_or_default();
        let values_path = path.child("values");
        match self.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &path.child("operator"),
                Shown::Named(other),
                "not a valid selector operator",
            )),
        }
        invalid_each(
            errors,
            &path.child("key"),
            &self.key,
            names::check_qualified_name(&self.key),
        );
        if checked == ExpressionValues::Checked {
            for (index, value) in values.iter().enumerate() {
                let path = values_path.index(index);
                invalid_each(errors, &path, value, names::check_label_value(value));
            }
        }
    }
}
