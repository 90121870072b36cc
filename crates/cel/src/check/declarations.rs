//! The environment of an expression: functions, variables, types.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use crate::syntax::identifier::KEYWORDS;
use crate::types::Type;
use crate::value::constructed::{JSON_PATCH, OBJECT, is_constructible};

/// The index of an overload in the table of all overloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OverloadId(pub(crate) u16);

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: OverloadId,
    pub(crate) name: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// The number of type parameters of the signature; they are numbered from zero.
    pub(crate) params: u32,
}

/// A function and its overloads, in order of declaration.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

/// All functions of the environment.
#[derive(Debug)]
pub(crate) struct Functions {
    by_name: HashMap<&'static str, Function>,
    /// For each overload, its name.
    overloads: Vec<&'static str>,
    /// Namespaces: the first components of function names with dots.
    namespaces: BTreeSet<&'static str>,
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| Functions::load(Libraries::default()));
static FUNCTIONS_BEFORE_LISTS: LazyLock<Functions> =
    LazyLock::new(|| Functions::load(Libraries::BeforeLists));
static FUNCTIONS_BEFORE_SEMVER: LazyLock<Functions> =
    LazyLock::new(|| Functions::load(Libraries::BeforeSemver));

/// The libraries that a release enables for new expressions: those of the previous release, so that stored
/// expressions compile after a rollback.
///
/// UPSTREAM: apiserver pkg/cel/environment/base.go
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Libraries {
    /// Up to 1.33: without semantic versions and cel-go's list functions.
    BeforeSemver,
    /// 1.34: without cel-go's list functions.
    BeforeLists,
    /// Since 1.35.
    #[default]
    All,
}

impl Libraries {
    fn has(self, overload: &str) -> bool {
        match self {
            Self::BeforeSemver => !is_of_lists(overload) && !is_of_semver(overload),
            Self::BeforeLists => !is_of_lists(overload),
            Self::All => true,
        }
    }

    fn functions(self) -> &'static Functions {
        match self {
            Self::BeforeSemver => &FUNCTIONS_BEFORE_SEMVER,
            Self::BeforeLists => &FUNCTIONS_BEFORE_LISTS,
            Self::All => &FUNCTIONS,
        }
    }
}

/// Returns true for the overloads of `ext.Lists`.
fn is_of_lists(overload: &str) -> bool {
    matches!(
        overload,
        "list_slice"
            | "list_flatten"
            | "list_flatten_int"
            | "lists_range"
            | "list_distinct"
            | "list_reverse"
    ) || (overload.starts_with("list_")
        && (overload.ends_with("_sort") || overload.ends_with("_sortByAssociatedKeys")))
}

/// Returns true for the overloads of `library.SemverLib`.
fn is_of_semver(overload: &str) -> bool {
    overload.starts_with("semver_")
        || overload.ends_with("_to_semver")
        || overload.starts_with("is_semver_")
}

/// The functions of every environment.
pub(crate) fn functions() -> &'static Functions {
    &FUNCTIONS
}

/// The name of an overload.
pub(crate) fn overload(id: OverloadId) -> &'static str {
    FUNCTIONS
        .overloads
        .get(id.0 as usize)
        .copied()
        .unwrap_or_default()
}

impl Functions {
    /// Overloads of excluded libraries keep their ids.
    fn load(libraries: Libraries) -> Self {
        let mut all = Self {
            by_name: HashMap::new(),
            overloads: Vec::new(),
            namespaces: BTreeSet::new(),
        };
        for line in include_str!("overloads.txt")
            .lines()
            .filter(|l| !l.starts_with('#'))
        {
            all.declare(line, libraries);
        }
        all
    }

    fn declare(&mut self, line: &'static str, libraries: Libraries) {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(overload), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let (member, rest) = match rest.strip_prefix('.') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let mut reader = Signature {
            rest,
            params: Vec::new(),
        };
        let args = reader.arguments();
        let result = reader.result();
        let id = OverloadId(self.overloads.len() as u16);
        self.overloads.push(overload);
        if !libraries.has(overload) {
            return;
        }
        if let Some((namespace, _)) = name.split_once('.') {
            self.namespaces.insert(namespace);
        }
        let params = reader.params.len() as u32;
        let function = self.by_name.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
        });
        function.overloads.push(Overload {
            id,
            name: overload,
            member,
            args,
            result,
            params,
        });
    }

    /// Finds a function by name, which may begin with a dot.
    pub(crate) fn find(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name.strip_prefix('.').unwrap_or(name))
    }

    /// Returns true if `first` is the namespace of a function.
    pub(crate) fn is_namespace(&self, first: &str) -> bool {
        self.namespaces
            .contains(first.strip_prefix('.').unwrap_or(first))
    }

    /// Every function, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.by_name.values()
    }
}

/// Parses the types of one line of the table.
struct Signature<'t> {
    rest: &'t str,
    params: Vec<&'t str>,
}

impl<'t> Signature<'t> {
    fn accept(&mut self, prefix: &str) -> bool {
        let found = self.rest.strip_prefix(prefix);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn arguments(&mut self) -> Vec<Type> {
        self.accept("(");
        let args = if self.accept(")") {
            Vec::new()
        } else {
            self.list()
        };
        self.accept(" ");
        args
    }

    fn result(&mut self) -> Type {
        self.one()
    }

    fn list(&mut self) -> Vec<Type> {
        let mut types = vec![self.one()];
        while self.accept(", ") {
            types.push(self.one());
        }
        self.accept(")");
        types
    }

    fn one(&mut self) -> Type {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        if let Some(param) = name.strip_prefix('<') {
            let nth = self
                .params
                .iter()
                .position(|p| *p == param)
                .unwrap_or_else(|| {
                    self.params.push(param);
                    self.params.len() - 1
                });
            return Type::Param(nth as u32);
        }
        let params = if self.accept("(") {
            self.list()
        } else {
            Vec::new()
        };
        named(name, params)
    }
}

fn named(name: &str, params: Vec<Type>) -> Type {
    match (name, params.as_slice()) {
        ("dyn", _) => Type::Dyn,
        ("null_type", _) => Type::Null,
        ("bool", _) => Type::Bool,
        ("int", _) => Type::Int,
        ("uint", _) => Type::Uint,
        ("double", _) => Type::Double,
        ("string", _) => Type::String,
        ("bytes", _) => Type::Bytes,
        ("google.protobuf.Duration", _) => Type::Duration,
        ("google.protobuf.Timestamp", _) => Type::Timestamp,
        ("list", [element]) => Type::list(element.clone()),
        ("map", [key, value]) => Type::map(key.clone(), value.clone()),
        ("type", [of]) => Type::TypeOf(Some(Arc::new(of.clone()))),
        ("type", _) => Type::TypeOf(None),
        ("optional_type" | "net.IP" | "net.CIDR", _) => Type::Opaque(name.into(), params.into()),
        _ => Type::object(name),
    }
}

/// The variables and message types of one kind of expression.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    /// Shared, as the environment is cloned for many expressions.
    objects: BTreeMap<String, Arc<BTreeMap<String, Type>>>,
    /// Namespaces: the first components of variable names with dots.
    namespaces: BTreeSet<String>,
    /// True if field names may be keywords, escaped as `__name__` in the schema.
    pub(crate) keyword_fields: bool,
    /// True if expressions can construct objects and patches.
    constructs: bool,
    libraries: Libraries,
    /// The precomputed fields of inputs, as paths from the variable.
    known_fields: &'static [&'static str],
}

impl Environment {
    /// Creates an environment with all functions and no variables.
    #[must_use]
    pub fn new() -> Self {
        Self {
            keyword_fields: true,
            ..Self::default()
        }
    }

    /// Enables the construction of objects and patches, and the function for it.
    #[must_use]
    pub fn with_construction(mut self) -> Self {
        self.constructs = true;
        self
    }

    /// Excludes the functions of newer libraries.
    #[must_use]
    pub fn with_libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self
    }

    /// Hides a variable and its fields. The positions of other variables do not change.
    #[must_use]
    pub fn without_variable(mut self, name: &str) -> Self {
        for (known, _) in &mut self.variables {
            let rest = known.strip_prefix(name);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                known.clear();
            }
        }
        self.namespaces.remove(name);
        self
    }

    /// Finds a function by name, if this kind of expression has it.
    pub(crate) fn function(&self, name: &str) -> Option<&'static Function> {
        let found = self.libraries.functions().find(name)?;
        let is_known = self.constructs || !found.name.starts_with("jsonpatch.");
        is_known.then_some(found)
    }

    /// Returns true if `first` is the namespace of a function.
    pub(crate) fn is_function_namespace(&self, first: &str) -> bool {
        self.libraries.functions().is_namespace(first) && (self.constructs || first != "jsonpatch")
    }

    /// The names of all functions, without operators.
    pub fn function_names(&self) -> impl Iterator<Item = &'static str> {
        let is_word = |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
        let functions = self.libraries.functions().by_name.values();
        let names = functions.map(|function| function.name);
        let constructs = self.constructs;
        names
            .filter(is_word)
            .filter(move |name| constructs || !name.starts_with("jsonpatch."))
    }

    /// The field names of all message types; names in several types are repeated.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let objects = self.objects.values().flat_map(|fields| fields.keys());
        objects.map(String::as_str)
    }

    /// Declares a variable; its name may contain dots.
    #[must_use]
    pub fn variable(mut self, name: &str, of: Type) -> Self {
        if let Some((namespace, _)) = name.split_once('.') {
            self.namespaces.insert(namespace.to_owned());
        }
        self.variables.push((name.to_owned(), of));
        self
    }

    /// Declares fields that inputs may precompute, as paths from their variables: `request.resource.group`.
    #[must_use]
    pub fn known_fields(mut self, paths: &'static [&'static str]) -> Self {
        self.known_fields = paths;
        self
    }

    /// The position of a path among the precomputed fields.
    pub(crate) fn known_field(&self, variable: u16, fields: &[Box<str>]) -> Option<usize> {
        let (name, _) = self.variables.get(variable as usize)?;
        let is_path = |path: &&str| {
            let mut parts = path.split('.');
            parts.next() == Some(name) && parts.eq(fields.iter().map(|field| &**field))
        };
        self.known_fields.iter().position(is_path)
    }

    /// Declares a message type with its fields.
    #[must_use]
    pub fn object<'f>(
        mut self,
        name: &str,
        fields: impl IntoIterator<Item = (&'f str, Type)>,
    ) -> Self {
        let fields = fields.into_iter().map(|(n, t)| (n.to_owned(), t)).collect();
        self.objects.insert(name.to_owned(), Arc::new(fields));
        if let Some((namespace, _)) = name.split_once('.') {
            self.namespaces.insert(namespace.to_owned());
        }
        self
    }

    /// Declares a field of a message type, replacing one of the same name.
    pub(crate) fn declare_field(&mut self, object: &str, name: &str, of: Type) {
        if let Some(fields) = self.objects.get_mut(object) {
            Arc::make_mut(fields).insert(name.to_owned(), of);
        }
    }

    /// The fields of a message type.
    pub(crate) fn fields(&self, object: &str) -> Option<&BTreeMap<String, Type>> {
        self.objects.get(object).map(Arc::as_ref)
    }

    /// The position and type of a variable.
    pub(crate) fn find_variable(&self, name: &str) -> Option<(u16, &Type)> {
        let nth = self.variables.iter().position(|(n, _)| n == name)?;
        self.variables.get(nth).map(|(_, t)| (nth as u16, t))
    }

    /// Names and types of the variables, in order of declaration.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.variables.iter().map(|(n, t)| (n.as_str(), t))
    }

    pub(crate) fn is_namespace(&self, first: &str) -> bool {
        self.namespaces.contains(first)
            || matches!(first, "google" | "net")
            || (self.constructs && first == OBJECT)
    }

    /// The type of a type name.
    ///
    /// UPSTREAM: cel-go checker/env.go LookupIdent, apiserver pkg/cel/types.go findScalar
    pub(crate) fn find_type(&self, name: &str) -> Option<Type> {
        let scalar = match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "null_type" => Type::Null,
            "google.protobuf.Duration" | "duration" => Type::Duration,
            "google.protobuf.Timestamp" | "timestamp" => Type::Timestamp,
            // The parameters below are substituted when the name is used.
            "list" => Type::list(Type::Param(0)),
            "map" => Type::map(Type::Param(0), Type::Param(1)),
            "type" => return Some(Type::TypeOf(Some(Arc::new(Type::TypeOf(None))))),
            "optional_type" | "net.IP" | "net.CIDR" => Type::Opaque(name.into(), Arc::new([])),
            "google.protobuf.Any" => Type::Any,
            "google.protobuf.Value" => Type::Dyn,
            "google.protobuf.Struct" => Type::map(Type::String, Type::Dyn),
            "google.protobuf.ListValue" => Type::list(Type::Dyn),
            _ => match wrapper(name) {
                Some(wrapped) => wrapped,
                None if self.has_object(name) => Type::object(name),
                None => return None,
            },
        };
        Some(Type::TypeOf(Some(Arc::new(scalar))))
    }

    /// Returns true if the fields of this message type are known.
    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.objects.contains_key(name) || (self.constructs && is_constructible(name))
    }

    /// The type of a field of a message type.
    pub(crate) fn field(&self, object: &str, field: &str) -> Option<&Type> {
        if self.constructs && is_constructible(object) {
            // Fields of constructed objects are checked when the object is merged.
            return match (object, field) {
                (JSON_PATCH, "op" | "path" | "from") => Some(&Type::String),
                (JSON_PATCH, "value") => Some(&Type::Dyn),
                (JSON_PATCH, _) => None,
                _ => Some(&Type::Dyn),
            };
        }
        let fields = self.objects.get(object)?;
        fields.get(field).or_else(|| {
            let keyword = self.keyword_fields && KEYWORDS.contains(&field);
            if keyword {
                fields.get(&format!("__{field}__"))
            } else {
                None
            }
        })
    }
}

/// The type of a protobuf wrapper message.
fn wrapper(name: &str) -> Option<Type> {
    let scalar = match name.strip_prefix("google.protobuf.")? {
        "BoolValue" => Type::Bool,
        "BytesValue" => Type::Bytes,
        "DoubleValue" | "FloatValue" => Type::Double,
        "Int64Value" | "Int32Value" => Type::Int,
        "UInt64Value" | "UInt32Value" => Type::Uint,
        "StringValue" => Type::String,
        _ => return None,
    };
    Some(Type::Wrapper(Arc::new(scalar)))
}
