//! The variables of an evaluation.

use crate::value::Value;

/// The variables of an evaluation, in order of declaration.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub(crate) values: &'a [Value<'a>],
    pub(crate) known: &'a [PrecomputedField],
}

impl<'a> Inputs<'a> {
    /// Sets the precomputed fields, in the order of
    /// [`known_fields`](crate::check::Environment::known_fields).
    #[must_use]
    #[inline]
    pub fn with_known_fields(self, known: &'a [PrecomputedField]) -> Self {
        Self { known, ..self }
    }
}

impl<'a> From<&'a [Value<'a>]> for Inputs<'a> {
    #[inline]
    fn from(values: &'a [Value<'a>]) -> Self {
        Self { values, known: &[] }
    }
}

impl<'a, const N: usize> From<&'a [Value<'a>; N]> for Inputs<'a> {
    #[inline]
    fn from(values: &'a [Value<'a>; N]) -> Self {
        Self::from(values.as_slice())
    }
}

impl<'a> From<&'a Vec<Value<'a>>> for Inputs<'a> {
    #[inline]
    fn from(values: &'a Vec<Value<'a>>) -> Self {
        Self::from(values.as_slice())
    }
}

/// A precomputed field of a variable, equal to the result of a lookup in the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrecomputedField {
    /// A string.
    Text(Box<str>),
    /// A list of strings.
    Texts(Vec<String>),
    /// Requires a lookup.
    Unknown,
}
