//! Label and field selectors of lists and watches.

use std::borrow::{Borrow, Cow};
use std::cell::Cell;
use std::collections::BTreeMap;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::selector::Selector;
use lockgate_go::number::int;
use lockgate_store::{Bloom, Entry};
use serde::Deserialize;
use serde_json::Value;

use crate::encoding::scan::{ScanError, plain_text};
use crate::encoding::{self, labels};
use crate::error::{Outcome, bad_request, corrupt, invalid};
use crate::http::field_selector::{self, Term};
use crate::http::query::Query;
use crate::registry::Resource;

/// The metadata fields that selectors use.
#[derive(Deserialize)]
struct Metadata<'e> {
    #[serde(borrow, default)]
    labels: BTreeMap<Text<'e>, Text<'e>>,
    #[serde(borrow, default)]
    name: Cow<'e, str>,
    #[serde(borrow, default)]
    namespace: Cow<'e, str>,
}

/// A string, borrowed if it is stored without escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'e>(#[serde(borrow)] Cow<'e, str>);

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The label and field selectors of a request.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    labels: Selector,
    fields: Vec<Term>,
}

impl Selection {
    /// Parses the selectors of a query, and validates the other list options.
    ///
    /// UPSTREAM: apiserver pkg/endpoints/handlers/get.go (ListResource) for the order
    pub(crate) fn read(query: &Query, resource: &Resource) -> Outcome<Self> {
        for option in ["timeoutSeconds", "limit"] {
            if let Some(text) = query.first(option) {
                int(text).map_err(|error| bad_request(error.to_string()))?;
            }
        }
        let labels = Selector::parse(query.text("labelSelector"))
            .map_err(|error| bad_request(error.to_string()))?;
        let fields = field_selector::parse(query.text("fieldSelector"))
            .map_err(|error| bad_request(error.to_string()))?;
        check_options(query)?;
        for term in &fields {
            if !resource.shape.supports_field_label(&term.field) {
                return Err(bad_request(resource.shape.unknown_field(&term.field)));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Returns true without any selector.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if only the metadata is selected by.
    pub(crate) fn is_about_metadata(&self) -> bool {
        let mut fields = self.fields.iter().map(|term| term.field.as_str());
        fields.all(|field| matches!(field, "metadata.name" | "metadata.namespace"))
    }

    /// The Bloom filter that is contained in that of every matching object.
    pub(crate) fn bloom(&self) -> Bloom {
        labels::selected(&self.labels)
    }

    /// Returns true if a stored object matches metadata selectors. Only the required metadata fields are parsed.
    pub(crate) fn includes_stored(&self, entry: &Entry) -> Outcome<bool> {
        if self.fields.is_empty()
            && let Ok(is_included) = self.scan_labels(&entry.value)
        {
            return Ok(is_included);
        }
        let metadata: Metadata<'_> = encoding::read_metadata(&entry.value)
            .ok_or_else(|| corrupt(&entry.key, entry.revision.0))?;
        let label = |key: &str| metadata.labels.get(key).map(|value| &*value.0);
        Ok(self.labels.matches_with(label)
            && self.fields.iter().all(|term| {
                let found = match term.field.as_str() {
                    "metadata.namespace" => &metadata.namespace,
                    _ => &metadata.name,
                };
                (*found == term.value) == term.equal
            }))
    }

    /// Returns true if the labels of a stored object match; they are scanned without parsing.
    fn scan_labels(&self, value: &[u8]) -> Result<bool, ScanError> {
        let labels = labels::scan(value)?;
        let is_unclear = Cell::new(false);
        let is_included = self.labels.matches_with(|key| {
            let found = labels.clone().find(key.as_bytes());
            let found = found.and_then(|value| value.map(plain_text).transpose());
            found.unwrap_or_else(|ScanError| {
                is_unclear.set(true);
                None
            })
        });
        if is_unclear.get() {
            return Err(ScanError);
        }
        Ok(is_included)
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

/// Rejects incompatible options.
fn check_options(query: &Query) -> Outcome<()> {
    let mut errors = FieldErrors::new();
    let matches = query.text("resourceVersionMatch");
    let path = Path::root("resourceVersionMatch");
    let watches = query.flag("watch") == Some(true);
    let initial_events = query.first("sendInitialEvents");
    let mut forbid =
        |path: &Path<'_>, detail: &str| errors.push(FieldError::forbidden(path, detail));
    if watches {
        if initial_events.is_some() && matches != "NotOlderThan" {
            forbid(
                &path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if !matches.is_empty() {
            if initial_events.is_none() {
                forbid(
                    &path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if matches != "NotOlderThan" {
                errors.push(FieldError::not_supported(
                    &path,
                    Shown::Named(matches),
                    &["NotOlderThan"],
                ));
            }
            if !query.text("continue").is_empty() {
                errors.push(FieldError::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
        }
    } else {
        if !matches.is_empty() {
            if query.text("resourceVersion").is_empty() {
                forbid(
                    &path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !query.text("continue").is_empty() {
                forbid(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            if matches != "Exact" && matches != "NotOlderThan" {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::not_supported(
                    &path,
                    Shown::Named(matches),
                    &supported,
                ));
            }
            if matches == "Exact" && query.text("resourceVersion") == "0" {
                errors.push(FieldError::forbidden(
                    &path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if initial_events.is_some() {
            let path = Path::root("sendInitialEvents");
            errors.push(FieldError::forbidden(
                &path,
                "sendInitialEvents is forbidden for list",
            ));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(invalid("ListOptions", "meta.k8s.io", "", &errors))
    }
}
