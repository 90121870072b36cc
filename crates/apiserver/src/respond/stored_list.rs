//! Lists that are encoded from stored bytes: objects, their metadata, or table rows.

use std::sync::Arc;

use bytes::Bytes;
use lockgate_go::json;
use lockgate_kinds::table::{self, Include};
use lockgate_store::Entry;
use serde_json::Value;

use super::Tables;
use crate::encoding::{self, TypeMeta};
use crate::error::{Outcome, internal};
use crate::http::body::Chunks;
use crate::registry::Resource;

/// A list of stored objects. It shares the bytes with the store, so that a slowly read list uses hardly any memory.
#[derive(Debug)]
pub(crate) struct StoredList {
    resource: Arc<Resource>,
    /// The metadata of the list.
    metadata: Value,
    entries: Vec<Arc<Entry>>,
    form: Form,
    /// The number of written items; `None` before the head.
    written: Option<usize>,
    /// The remaining stored bytes of the last item: large objects are not copied for each reader.
    rest: Box<Bytes>,
}

/// The form of the items.
#[derive(Debug, Clone, Copy)]
enum Form {
    Objects,
    /// Metadata, in this version of `meta.k8s.io`.
    Metadata(&'static str),
    /// Table rows, with ages relative to one point in time.
    Rows(table::Options<'static>),
}

impl StoredList {
    pub(crate) fn new(resource: &Arc<Resource>, metadata: Value, entries: Vec<Arc<Entry>>) -> Self {
        Self {
            resource: Arc::clone(resource),
            metadata,
            entries,
            form: Form::Objects,
            written: None,
            rest: Box::default(),
        }
    }

    /// Converts it to a list of metadata.
    pub(super) fn of_metadata(mut self, version: &'static str) -> Self {
        self.form = Form::Metadata(version);
        self
    }

    /// Returns true if table rows can be encoded one by one. Kinds with a custom row order need all objects at once.
    pub(super) fn has_rows(&self) -> bool {
        let row = self.resource.shape.row();
        row.is_some_and(|row| row.rules.sort_key(&Value::Null).is_none())
    }

    /// Converts it to a table.
    pub(super) fn into_table(mut self, tables: Tables) -> Self {
        self.form = Form::Rows(tables.options());
        self
    }

    /// The approximate size of the list in bytes.
    pub(super) fn size(&self) -> usize {
        let items = self.entries.iter().map(|entry| entry.value.len() + 128);
        256 + items.sum::<usize>()
    }

    /// The entire encoded list.
    pub(super) fn text(&self) -> Outcome<String> {
        let mut text = String::with_capacity(self.size());
        self.write_head(&mut text);
        for index in 0..self.entries.len() {
            self.write_item(&mut text, index)?;
        }
        // UPSTREAM: apiserver pkg/endpoints/handlers/response.go (asPartialObjectMetadataList): an empty list is nil.
        if matches!(self.form, Form::Metadata(_))
            && self.entries.is_empty()
            && let Some(head) = text.strip_suffix('[')
        {
            return Ok(format!("{head}null}}"));
        }
        text.push_str("]}");
        Ok(text)
    }

    fn write_head(&self, text: &mut String) {
        let type_meta = match self.form {
            Form::Objects => self.resource.list_type(),
            Form::Metadata(version) => TypeMeta {
                api_version: match version {
                    "v1beta1" => "meta.k8s.io/v1beta1",
                    _ => "meta.k8s.io/v1",
                },
                kind: "PartialObjectMetadataList",
            },
            Form::Rows(options) => {
                let head = table::head(self.resource.table_kind(), &self.metadata, options);
                text.push_str(&head);
                return;
            }
        };
        text.push_str(&list_head(type_meta, &self.metadata));
    }

    /// Encodes an item, or the start of an item larger than the limit; returns the rest.
    fn begin_item(&self, text: &mut String, index: usize, size: usize) -> Outcome<Bytes> {
        match self.entries.get(index) {
            Some(entry) if matches!(self.form, Form::Objects) && entry.value.len() > size => {
                if index > 0 {
                    text.push(',');
                }
                encoding::render_head(text, entry)
            }
            _ => self.write_item(text, index).map(|()| Bytes::new()),
        }
    }

    fn write_item(&self, text: &mut String, index: usize) -> Outcome<()> {
        if index > 0 {
            text.push(',');
        }
        let Some(entry) = self.entries.get(index) else {
            return Ok(());
        };
        match self.form {
            Form::Objects => encoding::render(text, entry, None),
            Form::Metadata(version) => render_partial(text, entry, None, version),
            Form::Rows(options) => self.write_row(text, entry, options),
        }
    }

    fn write_row(
        &self,
        text: &mut String,
        entry: &Entry,
        options: table::Options<'_>,
    ) -> Outcome<()> {
        let Some(row) = self.resource.shape.row() else {
            return Err(internal("the resource has no columns"));
        };
        let before = text.len();
        text.push_str("{\"cells\":");
        let found = row
            .rules
            .cells()
            .map(|cells| encoding::render_cells(text, &entry.value, cells, options.now));
        let metadata = match found {
            Some(Ok(metadata)) => Some(metadata),
            // Rows of other kinds need the parsed object.
            _ => {
                text.truncate(before);
                let object = encoding::parse_without_managed_fields(entry)?;
                text.push_str(&table::cells(row, &object, options.now));
                None
            }
        };
        text.push_str(",\"object\":");
        match options.include {
            Include::Metadata => render_partial(text, entry, metadata, options.version)?,
            Include::Object => encoding::render(text, entry, Some(self.resource.type_meta()))?,
            Include::None => text.push_str("null"),
        }
        text.push('}');
        Ok(())
    }
}

/// Appends the metadata of a stored object as a PartialObjectMetadata of a version of `meta.k8s.io`. It is scanned for
/// unless its text is known.
pub(crate) fn render_partial(
    text: &mut String,
    entry: &Entry,
    metadata: Option<&str>,
    version: &str,
) -> Outcome<()> {
    text.push_str("{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    text.push_str(version);
    text.push_str("\",\"metadata\":");
    encoding::render_metadata(text, entry, metadata)?;
    text.push('}');
    Ok(())
}

/// The start of a list, up to its items.
pub(crate) fn list_head(type_meta: TypeMeta<'_>, metadata: &Value) -> String {
    format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        json::to_string(type_meta.kind),
        json::to_string(type_meta.api_version),
        json::to_string(metadata),
    )
}

impl Chunks for StoredList {
    fn next(&mut self, size: usize) -> Option<Bytes> {
        if !self.rest.is_empty() {
            return Some(self.rest.split_to(self.rest.len().min(size)));
        }
        let mut text = String::with_capacity(size + 4096);
        let mut at = match self.written {
            None => {
                self.write_head(&mut text);
                0
            }
            Some(written) if written > self.entries.len() => return None,
            Some(written) => written,
        };
        while at < self.entries.len() && text.len() < size && self.rest.is_empty() {
            match self.begin_item(&mut text, at, size) {
                Ok(rest) => *self.rest = rest,
                // The response has started: a truncated list is invalid JSON to any client.
                Err(_) => {
                    tracing::error!("cannot encode a stored object, list response truncated");
                    self.written = Some(self.entries.len() + 1);
                    return None;
                }
            }
            at += 1;
        }
        if at == self.entries.len() && self.rest.is_empty() {
            text.push_str("]}");
            at += 1;
        }
        self.written = Some(at);
        Some(text.into())
    }
}
