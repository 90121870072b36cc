//! The type checker.
//!
//! UPSTREAM: cel-go checker/checker.go, checker/errors.go

use std::borrow::Cow;

use super::declarations::{Environment, Function, OverloadId};
use super::unify::{Substitution, instantiate, most_general};
use super::validators;
use crate::source::Issue;
use crate::syntax::ast::{
    Ast, Comprehension, Expr, Literal, Name, NodeId, StructField, operators as op,
};
use crate::types::{FIRST_FREE_PARAM, Type};

/// The resolution of a name or a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reference {
    /// Unresolved: the node is neither a name nor a call.
    None,
    /// A variable of the environment or of a loop, by full name.
    Variable,
    /// The name of a type.
    Type,
    /// An integer from a protobuf enum value.
    Constant(i64),
    /// A function, with its matching overloads.
    Overloads(Vec<OverloadId>),
}

/// A tree with a type for every node.
#[derive(Debug)]
pub(crate) struct Checked<'s> {
    pub(crate) ast: Ast<'s>,
    /// `None` only for detached nodes, which others replaced in the tree.
    types: Vec<Option<Type>>,
    references: Vec<Reference>,
}

impl<'s> Checked<'s> {
    /// The type of a node of the tree.
    pub(crate) fn type_of(&self, id: NodeId) -> &Type {
        self.known_type(id)
            .expect("validation refuses a tree with a node that has no type")
    }

    /// The type of a node; `None` means a bug in the checker.
    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree, which does not grow while it is checked"
    )]
    pub(super) fn known_type(&self, id: NodeId) -> Option<&Type> {
        self.types[id.0 as usize].as_ref()
    }

    /// The resolution of a node.
    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree, which does not grow while it is checked"
    )]
    pub(crate) fn reference(&self, id: NodeId) -> &Reference {
        &self.references[id.0 as usize]
    }

    /// Returns true if a variable of this name is used, whether of the environment or of a loop.
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
        .map(|t| t.map(|t| known.apply(&t, true)))
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
    /// Variables of the enclosing loops, innermost last.
    scopes: Vec<(Name<'s>, Type)>,
    known: Substitution,
    next_param: u32,
    issues: Vec<Issue>,
}

impl<'s> Checker<'s, '_> {
    fn report(&mut self, at: u32, message: String) {
        self.issues.push(Issue::at(at, message));
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree, which does not grow while it is checked"
    )]
    fn set(&mut self, id: NodeId, t: Type) {
        self.types[id.0 as usize] = Some(t);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree, which does not grow while it is checked"
    )]
    fn refer(&mut self, id: NodeId, reference: Reference) {
        self.references[id.0 as usize] = reference;
    }

    /// The type of a visited node. An untyped node remains untyped, and is rejected by the
    /// validation of the tree.
    fn get(&self, id: NodeId) -> Type {
        let known = self.types.get(id.0 as usize).and_then(Clone::clone);
        known.unwrap_or(Type::Error)
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

    /// Infers the types of `id` and its descendants.
    ///
    /// This and its callees recurse for every level of the tree, so all other work is done in
    /// separate functions, whose frames are gone by then.
    fn node(&mut self, id: NodeId) {
        match self.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => self.leaf(id),
            Expr::Select { operand, .. } => {
                let operand = *operand;
                if !self.qualified(id, operand) {
                    self.node(operand);
                    self.select(id);
                }
            }
            Expr::Call { .. } => self.call(id),
            Expr::List { .. } => self.list(id),
            Expr::Map { .. } => self.map(id),
            Expr::Struct { .. } => self.message(id),
            Expr::Comprehension(_) => self.comprehension(id),
        }
    }

    fn leaf(&mut self, id: NodeId) {
        match self.ast.expr(id) {
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
                        self.undeclared(self.ast.offset(id), &name);
                    }
                }
            }
            _ => self.set(id, Type::Error),
        }
    }

    /// The type and resolution of a name, which may contain dots.
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

    /// The first name of a chain of selections.
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

    /// Replaces a selection that is a qualified variable name; returns true if it was.
    fn qualified(&mut self, id: NodeId, operand: NodeId) -> bool {
        let tests = matches!(
            self.ast.expr(id),
            Expr::Select {
                test_only: true,
                ..
            }
        );
        let namespaced = !tests
            && self
                .first_name(operand)
                .is_some_and(|first| self.env.is_namespace(first));
        if namespaced
            && let Some(name) = self.ast.qualified_name(id)
            && let Some((t, reference)) = self.lookup(&name)
        {
            let name = name.strip_prefix('.').map(str::to_owned).unwrap_or(name);
            self.set(id, t);
            self.refer(id, reference);
            self.ast.replace(id, Expr::Ident(Cow::Owned(name)));
            return true;
        }
        false
    }

    /// Types a selection whose operand is typed.
    fn select(&mut self, id: NodeId) {
        let Expr::Select {
            operand,
            field,
            test_only,
        } = self.ast.expr(id)
        else {
            return;
        };
        let (operand, field, test_only) = (*operand, field.clone(), *test_only);
        let field_type = self.field(id, operand, &field, false);
        let t = if test_only {
            Type::Bool
        } else {
            self.known.apply(&field_type, false)
        };
        self.set(id, t);
    }

    /// The type of a field of `operand`; reports an undefined field at `id`.
    fn field(&mut self, id: NodeId, operand: NodeId, field: &str, optional: bool) -> Type {
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
                // The type remains open, so no later constraint may narrow it.
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

    fn call(&mut self, id: NodeId) {
        if self.is_optional_select(id) {
            if let Some(operand) = self.argument(id, 0) {
                self.node(operand);
                self.optional_select(id, operand);
            }
            return;
        }
        let mut at = 0;
        while let Some(arg) = self.argument(id, at) {
            self.node(arg);
            at += 1;
        }
        if let Some(target) = self.receiver(id) {
            self.node(target);
            self.method(id, target);
        }
    }

    fn is_optional_select(&self, id: NodeId) -> bool {
        matches!(self.ast.expr(id), Expr::Call { function, .. } if function == op::OPT_SELECT)
    }

    fn argument(&self, id: NodeId, at: usize) -> Option<NodeId> {
        match self.ast.expr(id) {
            Expr::Call { args, .. } => args.get(at).copied(),
            _ => None,
        }
    }

    /// Types the receiver of a call; a function without one is resolved here.
    fn receiver(&mut self, id: NodeId) -> Option<NodeId> {
        let Expr::Call {
            function,
            target,
            args,
        } = self.ast.expr(id)
        else {
            return None;
        };
        let (function, args) = (function.clone(), args.clone());
        let Some(target) = *target else {
            let Some(found) = self.env.function(&function) else {
                self.undeclared(self.ast.offset(id), &function);
                self.set(id, Type::Error);
                return None;
            };
            if function.starts_with('.') {
                self.rename(id, found.name, &args);
            }
            self.resolve(id, found, None, &args);
            return None;
        };
        // `a.b.c()` is resolved as a function `a.b.c` first, then as a method of `a.b`.
        let namespaced = self
            .first_name(target)
            .is_some_and(|n| self.env.is_function_namespace(n));
        if namespaced
            && let Some(prefix) = self.ast.qualified_name(target)
            && let Some(found) = self.env.function(&format!("{prefix}.{function}"))
        {
            self.rename(id, found.name, &args);
            self.resolve(id, found, None, &args);
            return None;
        }
        Some(target)
    }

    /// Resolves a call whose receiver and arguments are typed.
    fn method(&mut self, id: NodeId, target: NodeId) {
        let Expr::Call { function, args, .. } = self.ast.expr(id) else {
            return;
        };
        let (function, args) = (function.clone(), args.clone());
        match self.env.function(&function) {
            Some(found) => self.resolve(id, found, Some(target), &args),
            None => {
                self.set(id, Type::Error);
                self.undeclared(self.ast.offset(id), &function);
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

    fn optional_select(&mut self, id: NodeId, operand: NodeId) {
        let Some(name) = self.argument(id, 1) else {
            return;
        };
        let Expr::Literal(Literal::String(field)) = self.ast.expr(name) else {
            return;
        };
        let field = field.to_string();
        self.set(name, Type::String);
        let t = self.field(id, operand, &field, true);
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

    /// The type of an element in its list or map, unwrapped if it is marked optional.
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

    /// Joins the type of one more element with that of the previous ones; a later check rejects
    /// mixed types.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.known.assign(&previous, &current) => {
                most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn list(&mut self, id: NodeId) {
        let mut joined = None;
        let mut at = 0;
        while let Some((element, optional)) = self.element(id, at) {
            self.node(element);
            self.add(&mut joined, element, optional);
            at += 1;
        }
        self.set_list(id, joined);
    }

    fn element(&self, id: NodeId, at: usize) -> Option<(NodeId, bool)> {
        match self.ast.expr(id) {
            Expr::List { elements, optional } => Some((*elements.get(at)?, *optional.get(at)?)),
            _ => None,
        }
    }

    /// Joins the type of one more element into the accumulated one.
    fn add(&mut self, joined: &mut Option<Type>, element: NodeId, optional: bool) {
        let t = self.contributed(element, optional);
        *joined = Some(self.join(joined.take(), t));
    }

    fn set_list(&mut self, id: NodeId, joined: Option<Type>) {
        let element = match joined {
            Some(t) if self.known.is_large(&[&t]) => Type::Dyn,
            Some(t) => t,
            None => self.fresh(),
        };
        self.set(id, Type::list(element));
    }

    fn map(&mut self, id: NodeId) {
        let mut keys = None;
        let mut values = None;
        let mut at = 0;
        while let Some((key, value, optional)) = self.map_entry(id, at) {
            self.node(key);
            self.add(&mut keys, key, false);
            self.node(value);
            self.add(&mut values, value, optional);
            at += 1;
        }
        self.set_map(id, keys, values);
    }

    fn map_entry(&self, id: NodeId, at: usize) -> Option<(NodeId, NodeId, bool)> {
        match self.ast.expr(id) {
            Expr::Map { entries } => {
                let entry = entries.get(at)?;
                Some((entry.key, entry.value, entry.optional))
            }
            _ => None,
        }
    }

    fn set_map(&mut self, id: NodeId, keys: Option<Type>, values: Option<Type>) {
        let (key, value) = match (keys, values) {
            (Some(key), Some(value)) if self.known.is_large(&[&key, &value]) => {
                (Type::Dyn, Type::Dyn)
            }
            (Some(key), Some(value)) => (key, value),
            _ => (self.fresh(), self.fresh()),
        };
        self.set(id, Type::map(key, value));
    }

    fn message(&mut self, id: NodeId) {
        let Some(name) = self.message_type(id) else {
            return;
        };
        let mut at = 0;
        while let Some(value) = self.struct_field(id, at).map(|field| field.value) {
            self.node(value);
            self.assigned(id, at, &name);
            at += 1;
        }
    }

    fn struct_field(&self, id: NodeId, at: usize) -> Option<&StructField<'s>> {
        match self.ast.expr(id) {
            Expr::Struct { fields, .. } => fields.get(at),
            _ => None,
        }
    }

    /// The name of the constructed message type, if it exists.
    fn message_type(&mut self, id: NodeId) -> Option<String> {
        let Expr::Struct { type_name, fields } = self.ast.expr(id) else {
            return None;
        };
        let (type_name, fields) = (type_name.clone(), fields.clone());
        let offset = self.ast.offset(id);
        let Some((declared, _)) = self.lookup(&type_name) else {
            self.undeclared(offset, &type_name);
            self.set(id, Type::Error);
            return None;
        };
        let name = type_name.strip_prefix('.').unwrap_or(&type_name).to_owned();
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
                fields,
            },
        );
        self.set(id, result.clone());
        Some(match well_known(&result) {
            Some(well_known) => well_known.to_owned(),
            None => name,
        })
    }

    /// Checks a field of a message whose value is typed.
    fn assigned(&mut self, id: NodeId, at: usize, message: &str) {
        let Some(field) = self.struct_field(id, at).cloned() else {
            return;
        };
        let field_type = self.message_field(field.offset, message, &field.name);
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
        let outer = self.open(&c);
        self.node(c.condition);
        self.assert(c.condition, &Type::Bool);
        self.node(c.step);
        let accu = self.get(c.init);
        self.assert(c.step, &accu);
        self.scopes.truncate(outer);
        self.node(c.result);
        self.scopes.truncate(outer - 1);
        let t = self.known.apply(&self.get(c.result), false);
        self.set(id, t);
    }

    /// Declares the variables of a loop; returns the number of variables outside an iteration.
    fn open(&mut self, c: &Comprehension<'s>) -> usize {
        let range = self.known.apply(&self.get(c.range), false);
        let accu = self.get(c.init);
        self.scopes.push((c.accu.clone(), accu));
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
        outer
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

/// The message name of a well-known type in a message literal.
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

/// The fields of protobuf messages with a native CEL type.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_type_is_refused() {
        let ast = crate::syntax::parse("1 + 2").expect("is an expression");
        let checked = check(ast, &Environment::new()).expect("has a type");
        assert_eq!(validators::validate(&checked), []);
        let nodes = checked.types.len();
        for lost in 0..nodes {
            let mut types = checked.types.clone();
            types[lost] = None;
            let broken = Checked {
                ast: crate::syntax::parse("1 + 2").expect("is an expression"),
                types,
                references: checked.references.clone(),
            };
            let issues = validators::validate(&broken);
            assert_eq!(issues.len(), 1, "node {lost}");
            assert_eq!(issues[0].message, "internal error: expression has no type");
        }
    }
}
