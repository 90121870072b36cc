//! Maps created by an expression.

use std::collections::HashMap;

use super::Value;

/// Larger maps have an index.
const SMALL: usize = 8;

/// Entries in insertion order, with unique keys.
#[derive(Debug, Clone, Default)]
pub struct Map<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    index: HashMap<Key, usize>,
}

/// A key for lookups; keys of other types only occur in iterations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    Text(String),
}

impl Key {
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Self::Bool(*b),
            Value::Int(i) => Self::Int(*i),
            Value::Uint(u) => Self::Uint(*u),
            Value::Double(d) => Self::Double(d.to_bits()),
            _ => Self::Text(value.as_str()?.to_owned()),
        })
    }
}

/// Returns true for equal keys, without numeric conversions.
fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) => x == y,
        (Value::Uint(x), Value::Uint(y)) => x == y,
        (Value::Double(x), Value::Double(y)) => x == y,
        (Value::Null, Value::Null) => true,
        (Value::Duration(x), Value::Duration(y)) => x == y,
        (Value::Timestamp(x), Value::Timestamp(y)) => x == y,
        (Value::Type(x), Value::Type(y)) => x == y,
        _ => matches!((a.as_str(), b.as_str()), (Some(x), Some(y)) if x == y),
    }
}

impl<'a> Map<'a> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true for a map without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, in insertion order.
    pub fn entries(&self) -> impl Iterator<Item = &(Value<'a>, Value<'a>)> {
        self.entries.iter()
    }

    fn position(&self, key: &Value<'_>) -> Option<usize> {
        if self.entries.len() <= SMALL {
            return self.entries.iter().position(|(k, _)| same(k, key));
        }
        match Key::of(key) {
            Some(found) => self.index.get(&found).copied(),
            None => self.entries.iter().position(|(k, _)| same(k, key)),
        }
    }

    /// The value of a key; integers match across numeric types.
    ///
    /// UPSTREAM: cel-go common/types/map.go refValMapAccessor.Find
    #[must_use]
    pub fn get(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let position = self.position(key).or_else(|| match key {
            Value::Double(d) => {
                let int = lockgate_go::number::double_to_int(*d)
                    .ok()
                    .filter(|i| *i as f64 == *d);
                let uint = lockgate_go::number::double_to_uint(*d)
                    .ok()
                    .filter(|u| *u as f64 == *d);
                int.and_then(|i| self.position(&Value::Int(i)))
                    .or_else(|| uint.and_then(|u| self.position(&Value::Uint(u))))
            }
            Value::Int(i) => u64::try_from(*i)
                .ok()
                .and_then(|u| self.position(&Value::Uint(u))),
            Value::Uint(u) => i64::try_from(*u)
                .ok()
                .and_then(|i| self.position(&Value::Int(i))),
            _ => None,
        })?;
        self.entries.get(position).map(|(_, value)| value)
    }

    /// Inserts an entry, replacing one with the same key.
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        if let Some(at) = self.position(&key) {
            if let Some(entry) = self.entries.get_mut(at) {
                entry.1 = value;
            }
            return;
        }
        self.entries.push((key, value));
        match self.entries.len().checked_sub(SMALL + 1) {
            None => {}
            Some(0) => {
                for (at, (key, _)) in self.entries.iter().enumerate() {
                    if let Some(key) = Key::of(key) {
                        self.index.insert(key, at);
                    }
                }
            }
            Some(_) => {
                let at = self.entries.len() - 1;
                if let Some(key) = self.entries.last().and_then(|(key, _)| Key::of(key)) {
                    self.index.insert(key, at);
                }
            }
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &Value<'_>) {
        let Some(at) = self.position(key) else { return };
        self.entries.remove(at);
        let kept = std::mem::take(&mut self.entries);
        self.index.clear();
        for (key, value) in kept {
            self.insert(key, value);
        }
    }
}
