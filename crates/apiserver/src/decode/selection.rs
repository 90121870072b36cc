//! Label and field selectors of lists and watches.

use lockgate_api::meta::selector::Selector;
use serde_json::Value;

use crate::error::{Outcome, bad_request};
use crate::http::field_selector::{self, Term};
use crate::http::query::Query;
use crate::registry::Resource;

/// The label and field selectors of a request.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    labels: Selector,
    fields: Vec<Term>,
}

impl Selection {
    /// Reads the selectors of a query.
    pub(crate) fn read(query: &Query, resource: &Resource) -> Outcome<Self> {
        let labels = Selector::parse(query.text("labelSelector"))
            .map_err(|error| bad_request(error.to_string()))?;
        let fields = field_selector::parse(query.text("fieldSelector"))
            .map_err(|error| bad_request(error.to_string()))?;
        for term in &fields {
            if !resource.shape.knows_field(&term.field) {
                return Err(bad_request(resource.shape.unknown_field(&term.field)));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Returns true without any selector.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if an object matches the selectors.
    pub(crate) fn includes(&self, resource: &Resource, object: &Value) -> bool {
        let labels = object
            .get("metadata")
            .and_then(|metadata| metadata.get("labels"));
        let by_label = self.labels.matches_with(|key| labels?.get(key)?.as_str());
        by_label
            && self.fields.iter().all(|term| {
                let found = resource.shape.read_field(&term.field, object);
                (found == term.value) == term.equal
            })
    }
}
