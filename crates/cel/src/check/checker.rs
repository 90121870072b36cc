//! The type checker.
//!
//! UPSTREAM: cel-go checker/checker.go, checker/errors.go

use std::borrow::Cow;

use super::declarations::{Environment, Function, OverloadId, functions};
use super::unify::{Substitution, instantiate, most_general};
use super::validators;
use crate::source::Issue;
use crate::syntax::ast::{
    Ast, Expr, Literal, MapEntry, Name, NodeId, StructField, operators as op,
};
use crate::types::{FIRST_FREE_PARAM, Type};

/// What a name or a call turned out to mean.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reference {
    /// Nothing is known; the node is no name and no call.
    None,
    /// A variable of the environment or of a loop, by full name.
    Variable,
    /// The name of a type.
    Type,
    /// A number given by a protobuf enum value.
    Constant(i64),
    /// A function, with the overloads that fit.
    Overloads(Vec<OverloadId>),
}

/// A tree whose every node has a type.
#[derive(Debug)]
pub(crate) struct Checked<'s> {
    pub(crate) ast: Ast<'s>,
    types: Vec<Type>,
    references: Vec<Reference>,
}

impl<'s> Checked<'s> {
    /// The type of a node.
    pub(crate) fn type_of(&self, id: NodeId) -> &Type {
        self.types.get(id.0 as usize).unwrap_or(&Type::Dyn)
    }

    /// What a node refers to.
    pub(crate) fn reference(&self, id: NodeId) -> &Reference {
        self.references
            .get(id.0 as usize)
            .unwrap_or(&Reference::None)
    }

    /// Whether a variable of this name is used, of the environment or of a loop.
    pub(crate) fn names(&self, variable: &str) -> bool {
        self.references.iter().enumerate().any(|(at, reference)| {
            let id = NodeId(at as u32);
            *reference == Reference::Variable
                && matches!(self.ast.expr(id), Expr::Ident(name) if *name == variable)
        })
    }

    /// The type of the whole expression.
    pub(crate) fn output(&self) -> &Type {
        self.type_of(self.ast.root)
    }
}

/// Checks a parsed tree against an environment.
pub(crate) fn check<'s>(ast: Ast<'s>, env: &Environment) -> Result<Checked<'s>, Vec<Issue>> {
    let size = ast.len();
    let root = ast.root;
    let mut checker = Checker {
        ast,
        env,
        types: vec![None; size],
        references: vec![Reference::None; size],
        scopes: Vec::new(),
        known: Substitution::default(),
        next_param: FIRST_FREE_PARAM,
        issues: Vec::new(),
    };
    checker.node(root);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let Checker {
        ast,
        types,
        references,
        known,
        ..
    } = checker;
    let types = types
        .into_iter()
        .map(|t| t.map_or(Type::Dyn, |t| known.apply(&t, true)))
        .collect();
    let checked = Checked {
        ast,
        types,
        references,
    };
    let issues = validators::validate(&checked);
    if issues.is_empty() {
        Ok(checked)
    } else {
        Err(issues)
    }
}

struct Checker<'s, 'e> {
    ast: Ast<'s>,
    env: &'e Environment,
    types: Vec<Option<Type>>,
    references: Vec<Reference>,
    /// Variables of the loops being checked, innermost last.
    scopes: Vec<(Name<'s>, Type)>,
    known: Substitution,
    next_param: u32,
    issues: Vec<Issue>,
}

impl<'s> Checker<'s, '_> {
    fn report(&mut self, at: u32, message: String) {
        self.issues.push(Issue::at(at, message));
    }

    fn set(&mut self, id: NodeId, t: Type) {
        if let Some(slot) = self.types.get_mut(id.0 as usize) {
            *slot = Some(t);
        }
    }

    fn refer(&mut self, id: NodeId, reference: Reference) {
        if let Some(slot) = self.references.get_mut(id.0 as usize) {
            *slot = reference;
        }
    }

    fn get(&self, id: NodeId) -> Type {
        self.types
            .get(id.0 as usize)
            .and_then(Clone::clone)
            .unwrap_or(Type::Error)
    }

    fn fresh(&mut self) -> Type {
        self.next_param += 1;
        Type::Param(self.next_param - 1)
    }

    fn undeclared(&mut self, at: u32, name: &str) {
        self.report(
            at,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    fn mismatch(&mut self, at: u32, expected: &Type, found: &Type) {
        let (expected, found) = (expected.in_message(), found.in_message());
        self.report(
            at,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    /// Gives `id` and everything below it a type.
    fn node(&mut self, id: NodeId) {
        let offset = self.ast.offset(id);
        match self.ast.expr(id) {
            Expr::Unspecified => self.set(id, Type::Error),
            Expr::Literal(literal) => {
                let t = literal_type(literal);
                self.set(id, t);
            }
            Expr::Ident(name) => {
                let name = name.clone();
                match self.lookup(&name) {
                    Some((t, reference)) => {
                        self.set(id, t);
                        self.refer(id, reference);
                        if let Some(bare) = name.strip_prefix('.') {
                            let bare = bare.to_owned();
                            self.ast.replace(id, Expr::Ident(Cow::Owned(bare)));
                        }
                    }
                    None => {
                        self.set(id, Type::Error);
                        self.undeclared(offset, &name);
                    }
                }
            }
            Expr::Select {
                operand,
                field,
                test_only,
            } => {
                let (operand, field, test_only) = (*operand, field.clone(), *test_only);
                self.select(id, operand, &field, test_only);
            }
            Expr::Call {
                function,
                target,
                args,
            } => {
                let (function, target, args) = (function.clone(), *target, args.clone());
                self.call(id, function, target, &args);
            }
            Expr::List { elements, optional } => {
                let (elements, optional) = (elements.clone(), optional.clone());
                self.list(id, &elements, &optional);
            }
            Expr::Map { entries } => {
                let entries = entries.clone();
                self.map(id, &entries);
            }
            Expr::Struct { type_name, fields } => {
                let (type_name, fields) = (type_name.clone(), fields.clone());
                self.message(id, &type_name, &fields);
            }
            Expr::Comprehension(_) => self.comprehension(id),
        }
    }

    /// The type and meaning of a name, which may have dots in it.
    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        let global = name.strip_prefix('.');
        let name = global.unwrap_or(name);
        if let Some((_, t)) = self.scopes.iter().rev().find(|(n, _)| n == name) {
            return Some((t.clone(), Reference::Variable));
        }
        if let Some((_, t)) = self.env.find_variable(name) {
            return Some((t.clone(), Reference::Variable));
        }
        if let Some(t) = self.env.find_type(name) {
            return Some((t, Reference::Type));
        }
        (name == "google.protobuf.NullValue.NULL_VALUE")
            .then_some((Type::Int, Reference::Constant(0)))
    }

    /// The name a chain of selections begins with.
    fn first_name(&self, mut id: NodeId) -> Option<&str> {
        loop {
            match self.ast.expr(id) {
                Expr::Ident(name) => return Some(name.strip_prefix('.').unwrap_or(name)),
                Expr::Select {
                    operand,
                    test_only: false,
                    ..
                } => id = *operand,
                _ => return None,
            }
        }
    }

    fn select(&mut self, id: NodeId, operand: NodeId, field: &str, test_only: bool) {
        // A chain of names may be one variable with dots in its name.
        let qualified = !test_only
            && self
                .first_name(operand)
                .is_some_and(|first| self.env.is_namespace(first));
        if qualified
            && let Some(name) = self.ast.qualified_name(id)
            && let Some((t, reference)) = self.lookup(&name)
        {
            let name = name.strip_prefix('.').map(str::to_owned).unwrap_or(name);
            self.set(id, t);
            self.refer(id, reference);
            self.ast.replace(id, Expr::Ident(Cow::Owned(name)));
            return;
        }
        let field_type = self.field(id, operand, field, false);
        let t = if test_only {
            Type::Bool
        } else {
            self.known.apply(&field_type, false)
        };
        self.set(id, t);
    }

    /// The type of a field of `operand`, reported at `id` if there is none.
    fn field(&mut self, id: NodeId, operand: NodeId, field: &str, optional: bool) -> Type {
        self.node(operand);
        let offset = self.ast.offset(id);
        let operand_type = self.known.apply(&self.get(operand), false);
        let (target, is_optional) = match operand_type.optional_inner() {
            Some(inner) => (inner, true),
            None => (&operand_type, false),
        };
        let result = match target {
            Type::Map(kv) => kv.1.clone(),
            Type::Object(name) => self.object_field(offset, name, field),
            Type::Param(_) => {
                // What it is stays open, so nothing later may narrow it.
                self.known.assign(&Type::Dyn, target);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    let t = target.in_message();
                    self.report(
                        offset,
                        format!("type '{t}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if is_optional || optional {
            Type::optional(result)
        } else {
            result
        }
    }

    fn object_field(&mut self, offset: u32, object: &str, field: &str) -> Type {
        if !self.env.has_object(object) {
            self.report(
                offset,
                format!("unexpected failed resolution of '{object}'"),
            );
            return Type::Error;
        }
        if let Some(t) = self.env.field(object, field) {
            return t.clone();
        }
        self.report(offset, format!("undefined field '{field}'"));
        Type::Error
    }

    fn call(&mut self, id: NodeId, function: Name<'s>, target: Option<NodeId>, args: &[NodeId]) {
        if function == op::OPT_SELECT {
            self.optional_select(id, args);
            return;
        }
        for arg in args {
            self.node(*arg);
        }
        let offset = self.ast.offset(id);
        let Some(target) = target else {
            let Some(found) = functions().find(&function) else {
                self.undeclared(offset, &function);
                self.set(id, Type::Error);
                return;
            };
            if function.starts_with('.') {
                self.rename(id, found.name, args);
            }
            self.resolve(id, found, None, args);
            return;
        };
        // `a.b.c()` may be a function `a.b.c` before it is a method of `a.b`.
        let namespaced = self
            .first_name(target)
            .is_some_and(|n| functions().is_namespace(n));
        if namespaced
            && let Some(prefix) = self.ast.qualified_name(target)
            && let Some(found) = functions().find(&format!("{prefix}.{function}"))
        {
            self.rename(id, found.name, args);
            self.resolve(id, found, None, args);
            return;
        }
        self.node(target);
        match functions().find(&function) {
            Some(found) => self.resolve(id, found, Some(target), args),
            None => {
                self.set(id, Type::Error);
                self.undeclared(offset, &function);
            }
        }
    }

    fn rename(&mut self, id: NodeId, name: &'static str, args: &[NodeId]) {
        let call = Expr::Call {
            function: Cow::Borrowed(name),
            target: None,
            args: args.to_vec(),
        };
        self.ast.replace(id, call);
    }

    fn optional_select(&mut self, id: NodeId, args: &[NodeId]) {
        let [operand, field] = args else { return };
        let Expr::Literal(Literal::String(field)) = self.ast.expr(*field) else {
            return;
        };
        let field = field.to_string();
        let t = self.field(id, *operand, &field, true);
        let t = self.known.apply(&t, false);
        self.set(id, t);
    }

    fn resolve(
        &mut self,
        id: NodeId,
        function: &'static Function,
        target: Option<NodeId>,
        args: &[NodeId],
    ) {
        match self.resolution(id, function, target, args) {
            Some((t, overloads)) => {
                self.set(id, t);
                self.refer(id, Reference::Overloads(overloads));
            }
            None => self.set(id, Type::Error),
        }
    }

    fn resolution(
        &mut self,
        id: NodeId,
        function: &'static Function,
        target: Option<NodeId>,
        args: &[NodeId],
    ) -> Option<(Type, Vec<OverloadId>)> {
        let arg_types: Vec<Type> = target
            .iter()
            .chain(args)
            .map(|arg| self.get(*arg))
            .collect();
        if matches!(function.name, op::AND | op::OR) {
            return self.logical(function, args, &arg_types);
        }
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in function
            .overloads
            .iter()
            .filter(|o| o.member == target.is_some())
        {
            let base = self.next_param;
            self.next_param += overload.params;
            if overload.args.len() != arg_types.len() {
                continue;
            }
            let fits = if overload.params == 0 {
                self.known.assign_all(&arg_types, &overload.args)
            } else {
                let expected: Vec<_> = overload.args.iter().map(|t| instantiate(t, base)).collect();
                self.known.assign_all(&arg_types, &expected)
            };
            if !fits {
                continue;
            }
            fitting.push(overload.id);
            let found = self
                .known
                .apply(&instantiate(&overload.result, base), false);
            result = Some(match result {
                None => found,
                Some(t) if !t.is_dyn() && !found.is_exactly(&t) => Type::Dyn,
                Some(t) => t,
            });
        }
        if result.is_none() {
            let signature = self.signature(&arg_types, target.is_some());
            let name = function.name;
            let offset = self.ast.offset(id);
            self.report(
                offset,
                format!("found no matching overload for '{name}' applied to '{signature}'"),
            );
        }
        Some((result?, fitting))
    }

    fn logical(
        &mut self,
        function: &'static Function,
        args: &[NodeId],
        arg_types: &[Type],
    ) -> Option<(Type, Vec<OverloadId>)> {
        let mut fits = true;
        for (arg, t) in args.iter().zip(arg_types) {
            if !self.known.assign(t, &Type::Bool) {
                self.mismatch(self.ast.offset(*arg), &Type::Bool, t);
                fits = false;
            }
        }
        let overloads = function.overloads.iter().map(|o| o.id).collect();
        fits.then_some((Type::Bool, overloads))
    }

    fn signature(&self, arg_types: &[Type], member: bool) -> String {
        let mut types = arg_types
            .iter()
            .map(|t| self.known.apply(t, true).in_message());
        let receiver = if member {
            types.next().map(|t| t + ".")
        } else {
            None
        };
        let args: Vec<_> = types.collect();
        format!("{}({})", receiver.unwrap_or_default(), args.join(", "))
    }

    /// The type an element contributes, unwrapped if it is marked optional.
    fn contributed(&mut self, id: NodeId, optional: bool) -> Type {
        let t = self.get(id);
        if !optional {
            return t;
        }
        match t.optional_inner() {
            Some(inner) => inner.clone(),
            None => {
                if !t.is_dyn() {
                    self.mismatch(self.ast.offset(id), &Type::optional(t.clone()), &t);
                }
                t
            }
        }
    }

    /// The type of elements so far and one more; a later check refuses mixtures.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.known.assign(&previous, &current) => {
                most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn list(&mut self, id: NodeId, elements: &[NodeId], optional: &[bool]) {
        let mut joined = None;
        for (element, optional) in elements.iter().zip(optional) {
            self.node(*element);
            let t = self.contributed(*element, *optional);
            joined = Some(self.join(joined, t));
        }
        let element = match joined {
            Some(t) => t,
            None => self.fresh(),
        };
        self.set(id, Type::list(element));
    }

    fn map(&mut self, id: NodeId, entries: &[MapEntry]) {
        let mut keys = None;
        let mut values = None;
        for entry in entries {
            self.node(entry.key);
            let key = self.get(entry.key);
            keys = Some(self.join(keys, key));
            self.node(entry.value);
            let value = self.contributed(entry.value, entry.optional);
            values = Some(self.join(values, value));
        }
        let (key, value) = match (keys, values) {
            (Some(key), Some(value)) => (key, value),
            _ => (self.fresh(), self.fresh()),
        };
        self.set(id, Type::map(key, value));
    }

    fn message(&mut self, id: NodeId, type_name: &str, fields: &[StructField<'s>]) {
        let offset = self.ast.offset(id);
        let Some((declared, _)) = self.lookup(type_name) else {
            self.undeclared(offset, type_name);
            self.set(id, Type::Error);
            return;
        };
        let name = type_name.strip_prefix('.').unwrap_or(type_name).to_owned();
        let result = match &declared {
            Type::TypeOf(Some(of)) if well_known(of).is_some() => (**of).clone(),
            Type::TypeOf(Some(of)) if matches!(**of, Type::Object(_)) => (**of).clone(),
            Type::TypeOf(of) => {
                let of = of.as_ref().map_or("type", |t| t.name());
                self.report(offset, format!("'{of}' is not a message type"));
                Type::Error
            }
            Type::Error => Type::Error,
            other => {
                let other = other.to_string();
                self.report(offset, format!("'{other}' is not a type"));
                Type::Error
            }
        };
        self.ast.replace(
            id,
            Expr::Struct {
                type_name: Cow::Owned(name.clone()),
                fields: fields.to_vec(),
            },
        );
        self.set(id, result.clone());
        let name = match well_known(&result) {
            Some(well_known) => well_known.to_owned(),
            None => name,
        };
        for field in fields {
            self.node(field.value);
            let field_type = self.message_field(field.offset, &name, &field.name);
            let value = self.contributed(field.value, field.optional);
            if !self.known.assign(&field_type, &value) {
                let (expected, found) = (field_type.in_message(), value.in_message());
                self.report(
                    field.offset,
                    format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{found}'",
                        field.name
                    ),
                );
            }
        }
    }

    fn message_field(&mut self, offset: u32, message: &str, field: &str) -> Type {
        if let Some(t) = well_known_field(message, field) {
            return t;
        }
        if message.starts_with("google.protobuf.") {
            self.report(offset, format!("undefined field '{field}'"));
            return Type::Error;
        }
        self.object_field(offset, message, field)
    }

    fn comprehension(&mut self, id: NodeId) {
        let Expr::Comprehension(comprehension) = self.ast.expr(id) else {
            return;
        };
        let c = comprehension.clone();
        self.node(c.range);
        self.node(c.init);
        let range = self.known.apply(&self.get(c.range), false);
        let accu = self.get(c.init);
        self.scopes.push((c.accu.clone(), accu.clone()));
        let two = c.var2.is_some();
        let (var, var2) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(kv) => kv.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.known.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let t = range.in_message();
                let offset = self.ast.offset(c.range);
                self.report(
                    offset,
                    format!(
                        "expression of type '{t}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let outer = self.scopes.len();
        self.scopes.push((c.var.clone(), var));
        if let Some(name) = &c.var2 {
            self.scopes.push((name.clone(), var2));
        }
        self.node(c.condition);
        self.assert(c.condition, &Type::Bool);
        self.node(c.step);
        self.assert(c.step, &accu);
        self.scopes.truncate(outer);
        self.node(c.result);
        self.scopes.truncate(outer - 1);
        let t = self.known.apply(&self.get(c.result), false);
        self.set(id, t);
    }

    fn assert(&mut self, id: NodeId, expected: &Type) {
        let found = self.get(id);
        if !self.known.assign(expected, &found) {
            self.mismatch(self.ast.offset(id), expected, &found);
        }
    }
}

fn literal_type(literal: &Literal<'_>) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The message a type is known by when it is written as a message literal.
fn well_known(t: &Type) -> Option<&'static str> {
    Some(match t {
        Type::Any => "google.protobuf.Any",
        Type::Dyn => "google.protobuf.Value",
        Type::Null => "google.protobuf.NullValue",
        Type::Duration => "google.protobuf.Duration",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::List(element) if matches!(**element, Type::Dyn) => "google.protobuf.ListValue",
        Type::Map(kv) if matches!(**kv, (Type::String, Type::Dyn)) => "google.protobuf.Struct",
        Type::Wrapper(of) => match **of {
            Type::Bool => "google.protobuf.BoolValue",
            Type::Bytes => "google.protobuf.BytesValue",
            Type::Double => "google.protobuf.DoubleValue",
            Type::Int => "google.protobuf.Int64Value",
            Type::Uint => "google.protobuf.UInt64Value",
            Type::String => "google.protobuf.StringValue",
            _ => return None,
        },
        _ => return None,
    })
}

/// The fields of the protobuf messages that have a meaning in the language.
fn well_known_field(message: &str, field: &str) -> Option<Type> {
    Some(match (message.strip_prefix("google.protobuf.")?, field) {
        ("BoolValue", "value") => Type::Bool,
        ("BytesValue", "value") => Type::Bytes,
        ("DoubleValue", "value") => Type::Double,
        ("Int64Value", "value") => Type::Int,
        ("UInt64Value", "value") => Type::Uint,
        ("StringValue", "value") => Type::String,
        ("Duration" | "Timestamp", "seconds" | "nanos") => Type::Int,
        ("Any", "type_url") => Type::String,
        ("Any", "value") => Type::Bytes,
        ("Struct", "fields") => Type::map(Type::String, Type::Dyn),
        ("ListValue", "values") => Type::list(Type::Dyn),
        ("Value", "null_value") => Type::Int,
        ("Value", "number_value") => Type::Double,
        ("Value", "string_value") => Type::String,
        ("Value", "bool_value") => Type::Bool,
        ("Value", "struct_value") => Type::map(Type::String, Type::Dyn),
        ("Value", "list_value") => Type::list(Type::Dyn),
        _ => return None,
    })
}
