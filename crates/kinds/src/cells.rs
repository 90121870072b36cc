//! Table rows: cells, and the fields that they print.

mod duration;
pub(crate) mod read;

use lockgate_api::meta::time::Time;
use lockgate_go::json;
use serde_json::{Value, json};

pub use duration::human_duration;
pub use duration::since;
use read::{text, text_or};

/// A cell that is copied from the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// The name.
    Name,
    /// The age.
    Age,
    /// A string field of the object.
    Text(&'static str),
    /// The total number of entries in these fields.
    Count(&'static [&'static str]),
}

impl Cell {
    fn value(self, object: &Value, common: &Common<'_>) -> Value {
        match self {
            Self::Name => cell(common.name),
            Self::Age => cell(common.age.as_str()),
            Self::Text(member) => cell(
                object
                    .get(member)
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            ),
            Self::Count(members) => {
                let counts = members
                    .iter()
                    .map(|member| read::entries(object.get(member)));
                count_cell(counts.sum())
            }
        }
    }
}

/// The cells of an object and the conditions of its row.
#[derive(Debug)]
pub struct Row {
    cells: Vec<Value>,
    conditions: Option<Value>,
}

impl Row {
    /// A row of these cells.
    #[must_use]
    pub fn of(cells: Vec<Value>) -> Self {
        Self {
            cells,
            conditions: None,
        }
    }

    /// A row with conditions, such as that of a completed Pod.
    pub(crate) fn with_conditions(cells: Vec<Value>, conditions: Option<Value>) -> Self {
        Self { cells, conditions }
    }

    /// The name, some cells, the age.
    pub(crate) fn plain(common: &Common<'_>, middle: impl IntoIterator<Item = Value>) -> Self {
        let mut cells = vec![cell(common.name)];
        cells.extend(middle);
        cells.push(cell(common.age.as_str()));
        Self::of(cells)
    }

    /// The row of a kind with declared cells.
    pub(crate) fn with_cells(cells: &[Cell], object: &Value, common: &Common<'_>) -> Self {
        Self::of(
            cells
                .iter()
                .map(|cell| cell.value(object, common))
                .collect(),
        )
    }

    /// The row of kinds without their own columns.
    pub(crate) fn created_at(object: &Value, common: &Common<'_>) -> Self {
        let created = text_or(
            object,
            "/metadata/creationTimestamp",
            "0001-01-01T00:00:00Z",
        );
        Self::of(vec![cell(common.name), cell(created)])
    }

    /// The row as JSON without its closing brace, so that the object can be appended.
    pub(crate) fn into_open_text(self) -> String {
        let mut text = b"{\"cells\":".to_vec();
        json::append_value(&mut text, &Value::Array(self.cells));
        if let Some(conditions) = &self.conditions {
            text.extend_from_slice(b",\"conditions\":");
            json::append_value(&mut text, conditions);
        }
        // Serialized JSON is valid UTF-8.
        String::from_utf8(text).unwrap_or_default()
    }

    pub(crate) fn into_json(self) -> Value {
        let mut row = json!({"cells": self.cells});
        if let Some(conditions) = self.conditions {
            row["conditions"] = conditions;
        }
        row
    }
}

/// Creates a cell.
pub(crate) fn cell(value: impl Into<Value>) -> Value {
    value.into()
}

/// Creates a cell with a count.
pub(crate) fn count_cell(count: usize) -> Value {
    Value::from(count)
}

/// Name and age, which nearly every row has, and the current time.
#[derive(Debug)]
pub struct Common<'v> {
    /// The name of the object.
    pub name: &'v str,
    /// The human-readable age.
    pub age: String,
    /// The time at which the table is printed.
    pub now: Time,
}

impl<'v> Common<'v> {
    pub(crate) fn of(object: &'v Value, now: Time) -> Self {
        Self {
            name: text(object, "/metadata/name"),
            age: since(text(object, "/metadata/creationTimestamp"), now),
            now,
        }
    }
}
