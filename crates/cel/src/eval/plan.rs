//! Compiles a checked tree into a program.
//!
//! Constants are folded here, which is observable: an invalid constant conversion is rejected at
//! compile time, and folded steps cost nothing.
//!
//! UPSTREAM: cel-go interpreter/planner.go, interpreter/decorators.go

use std::fmt;
use std::sync::Arc;

use lockgate_go::regex::Regex;

use crate::check::{Checked, Environment, Reference, functions, overload};
use crate::eval::attribute::check_key;
use crate::eval::cost::{CallCost, tenth_of};
use crate::eval::direct::make_direct;
use crate::eval::functions as library;
use crate::eval::machine::{Limits, evaluate};
use crate::eval::program::{
    Arithmetic, Attribute, Call, Comparison, ConstSet, Loop, MapBody, MapEntry, Message,
    MessageField, Path, PatternCall, Program, Qualifier, QualifierKey, Root, Step, StepId, Target,
    Test, TextTest, TextTestKind,
};
use crate::source::Span;
use crate::syntax::ast::{Comprehension, Expr, Literal, NodeId, operators as op};
use crate::types::Type;
use crate::value::{Error, Value};

/// Plans a checked expression.
pub(crate) fn plan(checked: &Checked<'_>, env: &Environment) -> Result<Program, PlanError> {
    let mut planner = Planner {
        checked,
        env,
        steps: Vec::with_capacity(checked.ast.len()),
        spans: Vec::with_capacity(checked.ast.len()),
        scopes: Vec::new(),
        used: 0,
        variables: 0,
        depth: 0,
        deepest: 0,
    };
    let root = planner.node(checked.ast.root)?;
    specialise(&mut planner.steps, env);
    let (steps, spans) = (&mut planner.steps, &mut planner.spans);
    make_direct(steps, spans, root);
    Ok(Program {
        steps: planner.steps,
        spans: planner.spans,
        root,
        depth: planner.deepest,
        slots: planner.used,
        variables: planner.variables,
        output: checked.output().clone(),
    })
}

/// A well-typed expression that can never be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The tree has an unsupported node.
    Unsupported,
    /// A name used as a type is not a type.
    UndefinedType(String),
    /// A name used as a variable is not a variable.
    UndefinedVariable(String),
    /// A function has no implementation.
    NoSuchOverload(String),
    /// A loop does not have the form of any macro.
    UnknownComprehension,
    /// A constant subexpression fails.
    Constant(Error),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("unsupported expr"),
            Self::UndefinedType(name) => write!(f, "reference to undefined type: {name}"),
            Self::UndefinedVariable(name) => write!(f, "reference to undefined variable: {name}"),
            Self::NoSuchOverload(function) => write!(f, "no such overload: {function}"),
            Self::UnknownComprehension => f.write_str("unknown comprehension"),
            Self::Constant(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

type Planned<T> = Result<T, PlanError>;

struct Planner<'c, 's, 'e> {
    checked: &'c Checked<'s>,
    env: &'e Environment,
    steps: Vec<Step>,
    spans: Vec<Span>,
    /// Loop variables in scope with their slots, innermost last.
    scopes: Vec<(String, u16)>,
    used: usize,
    variables: u64,
    /// The current depth, and the maximum depth.
    depth: usize,
    deepest: usize,
}

impl Planner<'_, '_, '_> {
    fn add(&mut self, node: NodeId, step: Step) -> StepId {
        self.steps.push(step);
        self.spans.push(self.checked.ast.span(node));
        (self.steps.len() - 1) as StepId
    }

    fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.get(id as usize)
    }

    fn constant(&self, id: StepId) -> Option<&Value<'static>> {
        match self.step(id) {
            Some(Step::Const(value)) => Some(value),
            _ => None,
        }
    }

    fn is_constant(&self, id: StepId) -> bool {
        matches!(self.step(id), Some(Step::Const(_) | Step::Failed(_)))
    }

    fn declare(&mut self, name: &str) -> u16 {
        let slot = self.scopes.len() as u16;
        self.scopes.push((name.to_owned(), slot));
        self.used = self.used.max(self.scopes.len());
        slot
    }

    /// Plans a node and its descendants.
    ///
    /// This and its callees recurse for every level of the tree, so all other work is done in
    /// separate functions, whose frames are gone by then.
    fn node(&mut self, id: NodeId) -> Planned<StepId> {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let checked = self.checked;
        let planned = match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => self.leaf(id),
            Expr::Comprehension(c) => self.comprehension(id, c),
            _ => self.compound(id),
        };
        self.depth -= 1;
        planned
    }

    fn compound(&mut self, id: NodeId) -> Planned<StepId> {
        let mut planned = Vec::new();
        while let Some(child) = self.child(id, planned.len()) {
            planned.push(self.node(child)?);
        }
        self.composed(id, planned)
    }

    /// The child of a node at an index, in planning order.
    fn child(&self, id: NodeId, at: usize) -> Option<NodeId> {
        match self.checked.ast.expr(id) {
            Expr::Select { operand, .. } => (at == 0).then_some(*operand),
            Expr::Call { target, args, .. } => target.iter().chain(args).nth(at).copied(),
            Expr::List { elements, .. } => elements.get(at).copied(),
            Expr::Map { entries } => {
                let entry = entries.get(at / 2)?;
                Some(if at.is_multiple_of(2) {
                    entry.key
                } else {
                    entry.value
                })
            }
            Expr::Struct { fields, .. } => fields.get(at).map(|field| field.value),
            _ => None,
        }
    }

    /// Plans a node whose children are planned.
    fn composed(&mut self, id: NodeId, planned: Vec<StepId>) -> Planned<StepId> {
        match (self.checked.ast.expr(id), planned.as_slice()) {
            (Expr::Select { .. }, [operand]) => self.select(id, *operand),
            (Expr::List { .. }, _) => Ok(self.list(id, planned)),
            (Expr::Map { .. }, _) => Ok(self.map(id, &planned)),
            (Expr::Struct { .. }, _) => Ok(self.message(id, planned)),
            _ => self.call(id, planned),
        }
    }

    fn leaf(&mut self, id: NodeId) -> Planned<StepId> {
        match self.checked.ast.expr(id) {
            Expr::Literal(literal) => {
                let value = literal_value(literal);
                Ok(self.add(id, Step::Const(value)))
            }
            Expr::Ident(name) => self.ident(id, name),
            _ => Err(PlanError::Unsupported),
        }
    }

    fn select(&mut self, id: NodeId, operand: StepId) -> Planned<StepId> {
        let Expr::Select {
            field, test_only, ..
        } = self.checked.ast.expr(id)
        else {
            return Err(PlanError::Unsupported);
        };
        let qualifier = Qualifier {
            key: QualifierKey::Field(Arc::from(&**field)),
            optional: false,
            test: *test_only,
        };
        self.qualified(id, operand, qualifier)
    }

    fn list(&mut self, id: NodeId, planned: Vec<StepId>) -> StepId {
        let optional = match self.checked.ast.expr(id) {
            Expr::List { optional, .. } => optional.clone(),
            _ => Vec::new(),
        };
        let foldable = planned.iter().all(|e| self.is_constant(*e));
        let list = self.add(id, Step::List(planned, optional));
        if foldable { self.fold(list) } else { list }
    }

    fn map(&mut self, id: NodeId, planned: &[StepId]) -> StepId {
        let foldable = planned.iter().all(|e| self.is_constant(*e));
        let mut entries = Vec::new();
        if let Expr::Map { entries: written } = self.checked.ast.expr(id) {
            let (pairs, _) = planned.as_chunks();
            for (entry, [key, value]) in written.iter().zip(pairs) {
                entries.push(MapEntry {
                    key: *key,
                    value: *value,
                    optional: entry.optional,
                });
            }
        }
        let map = self.add(id, Step::Map(entries));
        if foldable { self.fold(map) } else { map }
    }

    fn message(&mut self, id: NodeId, planned: Vec<StepId>) -> StepId {
        let mut message = Message {
            type_name: Box::default(),
            fields: Vec::new(),
        };
        if let Expr::Struct { type_name, fields } = self.checked.ast.expr(id) {
            message.type_name = Box::from(&**type_name);
            let fields = fields.iter().zip(planned);
            message.fields = fields
                .map(|(field, value)| MessageField {
                    name: Box::from(&*field.name),
                    value,
                    optional: field.optional,
                })
                .collect();
        }
        self.add(id, Step::Message(Box::new(message)))
    }

    /// Replaces the last added step by its value.
    fn fold(&mut self, id: StepId) -> StepId {
        let folded = self.value_of(id);
        if let Some(step) = self.steps.get_mut(id as usize) {
            *step = match folded {
                Ok(value) => Step::Const(value),
                Err(error) => Step::Failed(error),
            };
        }
        id
    }

    /// Evaluates a step that depends on constants only.
    fn value_of(&mut self, id: StepId) -> Result<Value<'static>, Error> {
        let program = Program {
            steps: std::mem::take(&mut self.steps),
            spans: Vec::new(),
            root: id,
            depth: 0,
            slots: 0,
            variables: 0,
            output: Type::Dyn,
        };
        let limits = Limits {
            cost: u64::MAX,
            interrupt: None,
        };
        let value = evaluate(&program, &[] as &[Value<'_>], limits)
            .value
            .map(owned);
        self.steps = program.steps;
        value
    }

    fn ident(&mut self, id: NodeId, name: &str) -> Planned<StepId> {
        match self.checked.reference(id) {
            Reference::Constant(number) => {
                let number = *number;
                return Ok(self.add(id, Step::Const(Value::Int(number))));
            }
            // A node of a type of types is treated as the name of a type.
            _ if matches!(self.checked.type_of(id), Type::TypeOf(_)) => {
                if !is_type_value(name) {
                    return Err(PlanError::UndefinedType(name.to_string()));
                }
                return Ok(self.add(id, Step::Const(Value::Type(name.into()))));
            }
            _ => {}
        }
        let root = match self.scopes.iter().rev().find(|(n, _)| n == name) {
            Some((_, slot)) => Root::Local(*slot),
            None => match self.env.find_variable(name) {
                Some((nth, _)) => {
                    self.variables |= 1_u64.checked_shl(u32::from(nth)).unwrap_or(0);
                    Root::Variable(nth)
                }
                None => return Err(PlanError::UndefinedVariable(name.to_string())),
            },
        };
        let attribute = Attribute {
            root,
            qualifiers: Vec::new(),
            test: false,
        };
        Ok(self.add(id, Step::Attribute(attribute)))
    }

    /// Adds a selection to `operand`, extending it if it is an attribute.
    fn qualified(&mut self, id: NodeId, operand: StepId, qualifier: Qualifier) -> Planned<StepId> {
        let test = qualifier.test;
        if let Some(Step::Attribute(attribute)) = self.steps.get_mut(operand as usize) {
            push(attribute, &qualifier);
            attribute.test |= test;
            if let Some(span) = self.spans.get_mut(operand as usize) {
                *span = self.checked.ast.span(id);
            }
            return Ok(operand);
        }
        let attribute = Attribute {
            root: Root::Step(operand),
            qualifiers: vec![qualifier],
            test,
        };
        Ok(self.add(id, Step::Attribute(attribute)))
    }

    /// The result of a step as an attribute without a charge of its own.
    fn branch(&self, id: StepId) -> Attribute {
        match self.step(id) {
            Some(Step::Attribute(attribute)) => Attribute {
                test: false,
                ..attribute.clone()
            },
            _ => Attribute {
                root: Root::Step(id),
                qualifiers: Vec::new(),
                test: false,
            },
        }
    }

    fn index(
        &mut self,
        id: NodeId,
        operand: StepId,
        index: StepId,
        optional: bool,
    ) -> Planned<StepId> {
        let key = match self.step(index) {
            Some(Step::Const(value)) => {
                check_key(value, false).map_err(PlanError::Constant)?;
                match value.as_str() {
                    Some(text) => QualifierKey::Field(text.into()),
                    None => QualifierKey::Constant(value.clone()),
                }
            }
            Some(Step::Attribute(attribute)) => QualifierKey::Attribute(Box::new(Attribute {
                test: false,
                ..attribute.clone()
            })),
            _ => QualifierKey::Step(index),
        };
        self.qualified(
            id,
            operand,
            Qualifier {
                key,
                optional,
                test: false,
            },
        )
    }

    fn call(&mut self, id: NodeId, planned: Vec<StepId>) -> Planned<StepId> {
        let checked = self.checked;
        let Expr::Call { function, .. } = checked.ast.expr(id) else {
            return Err(PlanError::Unsupported);
        };
        let function: &str = function;
        let overloads = match self.checked.reference(id) {
            Reference::Overloads(overloads) => overloads.as_slice(),
            _ => &[],
        };
        let single = match overloads {
            [only] => Some(*only),
            _ => None,
        };
        let name = single.map(overload);
        let cost = CallCost::of(function, name);
        let step = match (function, planned.as_slice()) {
            (op::AND, [a, b]) => Step::Test(Test::And(*a, *b)),
            (op::OR, [a, b]) => Step::Test(Test::Or(*a, *b)),
            (op::CONDITIONAL, [condition, yes, no]) => Step::Attribute(Attribute {
                root: Root::Conditional(
                    *condition,
                    Box::new(self.branch(*yes)),
                    Box::new(self.branch(*no)),
                ),
                qualifiers: Vec::new(),
                test: false,
            }),
            (op::EQUALS, [a, b]) => Step::Test(Test::Equals(*a, *b)),
            (op::NOT_EQUALS, [a, b]) => Step::Test(Test::NotEquals(*a, *b)),
            (op::INDEX, [a, b]) => return self.index(id, *a, *b, false),
            (op::OPT_INDEX | op::OPT_SELECT, [a, b]) => return self.index(id, *a, *b, true),
            (op::NOT, [a]) => Step::Test(Test::Not(*a)),
            (op::NEGATE, [a]) => Step::Negate(*a),
            (op::ADD, [a, b]) => Step::Arithmetic(Arithmetic::Add, *a, *b, cost),
            (op::SUBTRACT, [a, b]) => Step::Arithmetic(Arithmetic::Subtract, *a, *b, cost),
            (op::MULTIPLY, [a, b]) => Step::Arithmetic(Arithmetic::Multiply, *a, *b, cost),
            (op::DIVIDE, [a, b]) => Step::Arithmetic(Arithmetic::Divide, *a, *b, cost),
            (op::MODULO, [a, b]) => Step::Arithmetic(Arithmetic::Modulo, *a, *b, cost),
            (op::LESS, [a, b]) => Step::Test(Test::Ordered(Comparison::Less, *a, *b, cost)),
            (op::LESS_EQUALS, [a, b]) => {
                Step::Test(Test::Ordered(Comparison::LessEquals, *a, *b, cost))
            }
            (op::GREATER, [a, b]) => Step::Test(Test::Ordered(Comparison::Greater, *a, *b, cost)),
            (op::GREATER_EQUALS, [a, b]) => {
                Step::Test(Test::Ordered(Comparison::GreaterEquals, *a, *b, cost))
            }
            (op::IN | "_in_", [a, b]) => self.membership(*a, *b, name, cost),
            ("or", [a, b]) => Step::OptionalOr(*a, *b),
            ("orValue", [a, b]) => Step::OptionalOrValue(*a, *b),
            _ => return self.function(id, function, single, planned, cost),
        };
        Ok(self.add(id, step))
    }

    fn membership(
        &mut self,
        operand: StepId,
        list: StepId,
        overload: Option<&str>,
        cost: CallCost,
    ) -> Step {
        if overload == Some("in_list")
            && let Some(list) = self.constant(list)
            && list.is_list()
        {
            if list.list_len() == Some(0) {
                return Step::Const(Value::Bool(false));
            }
            if let Some(set) = ConstSet::new(list.elements()) {
                return Step::Test(Test::InSet(operand, Box::new(set)));
            }
        }
        Step::Test(Test::In(operand, list, cost))
    }

    fn function(
        &mut self,
        id: NodeId,
        function: &str,
        single: Option<crate::check::OverloadId>,
        args: Vec<StepId>,
        cost: CallCost,
    ) -> Planned<StepId> {
        let declared = functions().find(function);
        let Some(declared) = declared else {
            return Err(PlanError::NoSuchOverload(function.to_owned()));
        };
        let mut stops_early = args.len() > 2;
        let target = if let Some(pattern) = self.pattern(function, &args)? {
            stops_early = true;
            pattern
        } else if let Some(any) = library::singleton(function) {
            Target::Any(any)
        } else if let Some(overload) = single {
            stops_early |= function == "format";
            Target::Overload(overload, library::implementation(overload))
        } else {
            stops_early = true;
            Target::Dispatch(declared)
        };
        let conversion = library::is_conversion(function)
            && matches!(args.as_slice(), [arg] if self.is_constant(*arg));
        let name = declared.name;
        let call = Call {
            function: name,
            args,
            target,
            cost,
            stops_early,
        };
        let step = self.add(id, Step::Call(Box::new(call)));
        if conversion {
            self.fold(step);
            if let Some(Step::Failed(error)) = self.step(step) {
                return Err(PlanError::Constant(error.clone()));
            }
        }
        Ok(step)
    }

    /// A search for a constant pattern, compiled at plan time.
    fn pattern(&self, function: &str, args: &[StepId]) -> Planned<Option<Target>> {
        let kind = match (function, args.len()) {
            ("matches", 2) => PatternCall::Matches,
            ("find", 2) => PatternCall::Find,
            ("findAll", 2 | 3) => PatternCall::FindAll,
            _ => return Ok(None),
        };
        let pattern = args
            .get(1)
            .and_then(|p| self.constant(*p))
            .and_then(Value::as_str);
        match pattern.map(Regex::new) {
            None => Ok(None),
            Some(Ok(regex)) => Ok(Some(Target::Pattern(regex, kind))),
            Some(Err(error)) => Err(PlanError::Constant(Error::text(error))),
        }
    }

    fn comprehension(&mut self, id: NodeId, c: &Comprehension<'_>) -> Planned<StepId> {
        if c.accu != op::ACCUMULATOR {
            let value = self.node(c.init)?;
            let outer = self.scopes.len();
            let slot = self.declare(&c.accu);
            if matches!(self.checked.type_of(c.step), Type::TypeOf(_)) && !is_type_value(&c.accu) {
                return Err(PlanError::UndefinedType(c.accu.to_string()));
            }
            let result = self.node(c.result)?;
            self.scopes.truncate(outer);
            return Ok(self.add(
                id,
                Step::Bind {
                    slot,
                    value,
                    result,
                },
            ));
        }
        let range = self.node(c.range)?;
        let outer = self.scopes.len();
        let slot = self.declare(&c.var);
        let slot2 = c.var2.as_ref().map(|name| self.declare(name));
        let step = self.looping(c, range, slot, slot2)?;
        self.scopes.truncate(outer);
        Ok(self.add(id, step))
    }

    /// Recognises the expansion of a macro and plans only its arguments.
    fn looping(
        &mut self,
        c: &Comprehension<'_>,
        range: StepId,
        slot: u16,
        slot2: Option<u16>,
    ) -> Planned<Step> {
        let unknown = || Err(PlanError::UnknownComprehension);
        let ast = &self.checked.ast;
        let Expr::Call { function, args, .. } = ast.expr(c.step) else {
            return unknown();
        };
        let looped = |body| {
            Box::new(Loop {
                range,
                slot,
                slot2,
                body,
            })
        };
        match (ast.expr(c.init), args.as_slice()) {
            (Expr::Literal(Literal::Bool(all)), [_, body]) => {
                let body = self.node(*body)?;
                Ok(if *all {
                    Step::Test(Test::All(looped(body)))
                } else {
                    Step::Test(Test::Exists(looped(body)))
                })
            }
            (Expr::Literal(Literal::Int(_)), [test, _, _]) => {
                Ok(Step::Test(Test::ExistsOne(looped(self.node(*test)?))))
            }
            (Expr::List { .. }, [filter, step, _]) if function == op::CONDITIONAL => {
                let Expr::Call { args, .. } = ast.expr(*step) else {
                    return unknown();
                };
                let [_, element] = args.as_slice() else {
                    return unknown();
                };
                let filter = self.node(*filter)?;
                Ok(Step::Collect(looped(self.node(*element)?), Some(filter)))
            }
            (Expr::List { .. }, [_, element]) => {
                Ok(Step::Collect(looped(self.node(*element)?), None))
            }
            (Expr::Map { .. }, [filter, step, _]) if function == op::CONDITIONAL => {
                let Expr::Call { args, .. } = ast.expr(*step) else {
                    return unknown();
                };
                let args = args.clone();
                let filter = self.node(*filter)?;
                let (body, kind) = self.map_body(&args)?;
                Ok(Step::CollectMap(looped(body), Some(filter), kind))
            }
            (Expr::Map { .. }, args) => {
                let args = args.to_vec();
                let (body, kind) = self.map_body(&args)?;
                Ok(Step::CollectMap(looped(body), None, kind))
            }
            _ => unknown(),
        }
    }

    fn map_body(&mut self, args: &[NodeId]) -> Planned<(StepId, MapBody)> {
        match args {
            [_, _, value] => Ok((self.node(*value)?, MapBody::Value)),
            [_, entries] => Ok((self.node(*entries)?, MapBody::Entries)),
            _ => Err(PlanError::UnknownComprehension),
        }
    }
}

/// Replaces steps by specialised ones, which fall back to the general step.
fn specialise(steps: &mut [Step], env: &Environment) {
    for at in 0..steps.len() {
        let texts: Vec<_> = match steps.get(at) {
            Some(Step::Test(Test::Equals(a, b) | Test::NotEquals(a, b))) => vec![*a, *b],
            Some(Step::Call(call)) => call.args.clone(),
            _ => Vec::new(),
        };
        let constants: Vec<Option<Arc<str>>> = texts
            .iter()
            .map(|id| match steps.get(*id as usize) {
                Some(Step::Const(Value::String(text))) => Some(text.clone()),
                _ => None,
            })
            .collect();
        let Some(step) = steps.get_mut(at) else {
            continue;
        };
        let quicker = match std::mem::replace(step, Step::Const(Value::Null)) {
            Step::Attribute(attribute) => path(attribute, env),
            step => text_test(step, &texts, &constants),
        };
        *step = quicker;
    }
}

/// Converts an attribute to a path, if it selects only fields of a variable.
fn path(attribute: Attribute, env: &Environment) -> Step {
    let simple = matches!(attribute.root, Root::Variable(_) | Root::Local(_));
    let count = attribute.qualifiers.len();
    let mut fields = Vec::with_capacity(count);
    for (nth, qualifier) in attribute.qualifiers.iter().enumerate() {
        match &qualifier.key {
            // Only the last one may be a presence test.
            QualifierKey::Field(field)
                if !qualifier.optional
                    && qualifier.test == (attribute.test && nth + 1 == count) =>
            {
                fields.push(Box::from(&**field));
            }
            _ => return Step::Attribute(attribute),
        }
    }
    if !simple || count == 0 {
        return Step::Attribute(attribute);
    }
    let test = attribute.test;
    let known = match attribute.root {
        Root::Variable(nth) => env.known_field(nth, &fields),
        _ => None,
    };
    let path = Box::new(Path {
        fields,
        known,
        attribute,
    });
    if test {
        Step::Test(Test::Has(path))
    } else {
        Step::Path(path)
    }
}

/// A comparison or search with a constant string.
fn text_test(step: Step, operands: &[StepId], constants: &[Option<Arc<str>>]) -> Step {
    let (&[first, second], [first_text, second_text]) = (operands, constants) else {
        return step;
    };
    let kind = match &step {
        Step::Test(Test::Equals(..)) => TextTestKind::Equal,
        Step::Test(Test::NotEquals(..)) => TextTestKind::NotEqual,
        Step::Call(call) => match (call.function, &call.target) {
            ("startsWith", Target::Overload(..)) => TextTestKind::StartsWith,
            ("endsWith", Target::Overload(..)) => TextTestKind::EndsWith,
            ("contains", Target::Overload(..)) => TextTestKind::Contains,
            _ => return step,
        },
        _ => return step,
    };
    let symmetric = matches!(kind, TextTestKind::Equal | TextTestKind::NotEqual);
    let (operand, text) = match (first_text, second_text) {
        (None, Some(text)) => (first, text),
        (Some(text), None) if symmetric => (second, text),
        _ => return step,
    };
    let units = tenth_of(text);
    Step::Test(Test::Text(Box::new(TextTest {
        kind,
        operand,
        text: text.clone(),
        units,
        general: step,
    })))
}

/// Adds a qualifier to every branch of an attribute.
fn push(attribute: &mut Attribute, qualifier: &Qualifier) {
    match &mut attribute.root {
        Root::Conditional(_, yes, no) => {
            push(yes, qualifier);
            push(no, qualifier);
        }
        _ => attribute.qualifiers.push(qualifier.clone()),
    }
}

fn literal_value(literal: &Literal<'_>) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(i) => Value::Int(*i),
        Literal::Uint(u) => Value::Uint(*u),
        Literal::Double(d) => Value::Double(*d),
        Literal::String(text) => Value::String(text.as_ref().into()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

/// Returns true for the name of a type that is a value.
fn is_type_value(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "bytes"
            | "double"
            | "google.protobuf.Duration"
            | "google.protobuf.Timestamp"
            | "int"
            | "list"
            | "map"
            | "null_type"
            | "string"
            | "type"
            | "uint"
            | "optional_type"
            | "net.IP"
            | "net.CIDR"
    )
}

/// Converts a value to one without borrows.
pub(crate) fn owned(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Null => Value::Null,
        Value::Variables => Value::Variables,
        Value::Bool(b) => Value::Bool(b),
        Value::Int(i) => Value::Int(i),
        Value::Uint(u) => Value::Uint(u),
        Value::Double(d) => Value::Double(d),
        Value::Str(text) => Value::String(text.into()),
        Value::String(text) => Value::String(text),
        Value::Bytes(bytes) => Value::Bytes(bytes),
        Value::Duration(d) => Value::Duration(d),
        Value::Timestamp(t) => Value::Timestamp(t),
        Value::Type(name) => Value::Type(name),
        Value::Optional(inner) => {
            Value::Optional(inner.map(|value| Arc::new(owned((*value).clone()))))
        }
        Value::Opaque(opaque) => Value::Opaque(opaque),
        Value::Failed(error) => Value::Failed(error),
        ref list if list.is_list() => list.elements().map(owned).collect::<Vec<_>>().into(),
        ref map => {
            let mut copy = crate::value::Map::default();
            for (key, value) in map.entries() {
                copy.insert(owned(key), owned(value));
            }
            Value::Map(Arc::new(copy))
        }
    }
}
