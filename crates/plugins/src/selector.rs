//! Label selectors in configurations and in other objects.

use std::collections::BTreeMap;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::selector::{InvalidRequirement, Selector};
use serde::Deserialize;
use serde_json::Value;

use crate::fields::label;

/// A label selector in its serialised form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Labels {
    /// Labels with required values.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on single labels.
    #[serde(default)]
    pub match_expressions: Vec<Expression>,
}

/// A requirement on one label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for the operators `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

impl Labels {
    pub(crate) fn compile(&self) -> Result<Selector, InvalidRequirement> {
        let expressions = self.match_expressions.iter().cloned();
        let expressions = expressions.map(|expression| LabelSelectorRequirement {
            key: expression.key,
            operator: expression.operator,
            values: Some(expression.values),
        });
        LabelSelector {
            match_labels: Some(self.match_labels.clone()),
            match_expressions: Some(expressions.collect()),
        }
        .compile()
    }
}

/// Returns true if the labels of an object match the selector.
pub(crate) fn selects(selector: &Selector, object: &Value) -> bool {
    selector.matches_with(|key| label(object, key))
}
