//! The variables of an evaluation.

use crate::value::Value;

/// The variables of an evaluation, in order of declaration.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub(crate) values: &'a [Value<'a>],
    pub(crate) known: &'a [KnownField],
}

impl<'a> Inputs<'a> {
    /// The same with these fields, in the order of
    /// [`known_fields`](crate::check::Environment::known_fields).
    #[must_use]
    #[inline]
    pub fn with_known_fields(self, known: &'a [KnownField]) -> Self {
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

/// A field of a variable that is at hand, so that nobody has to search the variable for it. It is equal to
/// what a search finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownField {
    /// A text.
    Text(Box<str>),
    /// A list of texts.
    Texts(Vec<String>),
    /// Only a search finds out.
    Unknown,
}
