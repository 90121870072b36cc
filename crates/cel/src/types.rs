//! Static types.

use std::fmt;
use std::sync::Arc;

/// The name of a message or opaque type.
pub type TypeName = Arc<str>;

/// The type of an expression.
#[derive(Debug, Clone)]
pub enum Type {
    /// Dynamic: checked at evaluation.
    Dyn,
    /// A protobuf `Any`; behaves like [`Type::Dyn`].
    Any,
    /// The type of an expression with an error.
    Error,
    /// `null`.
    Null,
    /// A boolean.
    Bool,
    /// Signed 64-bit integer.
    Int,
    /// Unsigned 64-bit integer.
    Uint,
    /// 64-bit floating point number.
    Double,
    /// A string.
    String,
    /// Bytes.
    Bytes,
    /// A duration.
    Duration,
    /// A timestamp.
    Timestamp,
    /// A list, with its element type.
    List(Arc<Self>),
    /// A map, with its key and value types.
    Map(Arc<(Self, Self)>),
    /// The type of a type.
    TypeOf(Option<Arc<Self>>),
    /// An opaque type, handled by functions only.
    Opaque(TypeName, Arc<[Self]>),
    /// A message with fields.
    Object(TypeName),
    /// A nullable scalar: a protobuf wrapper message.
    Wrapper(Arc<Self>),
    /// A type parameter.
    Param(u32),
}

impl Type {
    /// A list of `element`.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map from `key` to `value`.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// A message type by name.
    #[must_use]
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// An optional value of type `of`.
    #[must_use]
    pub fn optional(of: Self) -> Self {
        Self::Opaque("optional_type".into(), Arc::new([of]))
    }

    /// Returns true for a type that accepts any value.
    #[must_use]
    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// The inner type of an optional type.
    pub(crate) fn optional_inner(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if &**name == "optional_type" => params.first(),
            _ => None,
        }
    }

    /// The wrapped scalar of a wrapper type; other types are unchanged.
    pub(crate) fn unwrapped(&self) -> &Self {
        match self {
            Self::Wrapper(inner) => inner,
            other => other,
        }
    }

    pub(crate) fn params(&self) -> &[Self] {
        match self.unwrapped() {
            Self::List(element) => std::slice::from_ref(element),
            Self::TypeOf(Some(of)) => std::slice::from_ref(of),
            Self::Opaque(_, params) => params,
            _ => &[],
        }
    }

    /// Returns true if both are the same type, with the same name.
    #[must_use]
    pub fn is_exactly(&self, other: &Self) -> bool {
        self.same(other, true)
    }

    /// Like [`Self::is_exactly`], but all type parameters are equal.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        self.same(other, false)
    }

    fn same(&self, other: &Self, names: bool) -> bool {
        match (self.unwrapped(), other.unwrapped()) {
            (Self::Map(a), Self::Map(b)) => a.0.same(&b.0, names) && a.1.same(&b.1, names),
            (Self::Param(a), Self::Param(b)) => !names || a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Opaque(a, _), Self::Opaque(b, _)) if a != b => false,
            (a, b) => {
                std::mem::discriminant(a) == std::mem::discriminant(b)
                    && a.params().len() == b.params().len()
                    && a.params()
                        .iter()
                        .zip(b.params())
                        .all(|(x, y)| x.same(y, names))
            }
        }
    }

    /// The name of the type without its parameters.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.unwrapped() {
            Self::Dyn => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "*error*",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::TypeOf(_) => "type",
            Self::Opaque(name, _) | Self::Object(name) => name,
            Self::Wrapper(_) | Self::Param(_) => "",
        }
    }

    /// The type as in the checker's error messages.
    ///
    /// UPSTREAM: cel-go checker/format.go
    pub(crate) fn in_message(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::Error => "!error!".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Param(n) => param_name(*n),
            Self::Wrapper(inner) => format!("wrapper({})", inner.name()),
            Self::Map(kv) => format!("map({}, {})", kv.0.in_message(), kv.1.in_message()),
            _ if self.params().is_empty() => self.name().to_owned(),
            _ => {
                let params: Vec<_> = self.params().iter().map(Self::in_message).collect();
                format!("{}({})", self.name(), params.join(", "))
            }
        }
    }
}

/// Type parameters below this number are those of the names `list` and `map`.
pub(crate) const FIRST_FREE_PARAM: u32 = 2;

fn param_name(n: u32) -> String {
    match n.checked_sub(FIRST_FREE_PARAM) {
        Some(n) => format!("_var{n}"),
        None if n == 0 => "A".to_owned(),
        None => "B".to_owned(),
    }
}

/// Formats the type as Kubernetes names the result of an expression.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Param(n) => write!(f, "<{}>", param_name(*n)),
            Self::Wrapper(inner) => write!(f, "wrapper({})", inner.name()),
            Self::Map(kv) => write!(f, "map({}, {})", kv.0, kv.1),
            _ => {
                f.write_str(self.name())?;
                for (nth, param) in self.params().iter().enumerate() {
                    write!(f, "{}{param}", if nth == 0 { "(" } else { ", " })?;
                }
                f.write_str(if self.params().is_empty() { "" } else { ")" })
            }
        }
    }
}
