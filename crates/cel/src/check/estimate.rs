//! Estimates the minimum and maximum cost of an expression, without evaluating it.
//!
//! Kubernetes rejects validation rules of custom resources by this estimate. Match conditions are
//! not estimated, only charged at runtime.
//!
//! UPSTREAM: cel-go checker/cost.go

mod calls;

use std::collections::HashMap;

use super::checker::{Checked, Reference};
use super::declarations::overload;
use crate::strings::code_points;
use crate::syntax::ast::{Comprehension, Expr, Literal, MapEntry, NodeId, operators as op};
use crate::types::Type;

/// A range of sizes or costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The lower bound.
    pub min: u64,
    /// The upper bound.
    pub max: u64,
}

impl Estimate {
    /// Unbounded.
    pub const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    const ZERO: Self = Self::exactly(0);
    const ONE: Self = Self::exactly(1);

    /// An exact number.
    #[must_use]
    pub const fn exactly(n: u64) -> Self {
        Self { min: n, max: n }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

fn scale(n: u64, factor: f64) -> u64 {
    let n = n as f64;
    if n > 0.0 && factor > 0.0 && n > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    let scaled = (n * factor).ceil();
    if scaled >= u64::MAX as f64 {
        u64::MAX
    } else {
        scaled as u64
    }
}

/// Provides the sizes of inputs by path.
///
/// A path starts with a variable; `@items`, `@keys` and `@values` denote the contents of a list or
/// map.
pub trait Sizes {
    /// The size of the value at a path, if it is bounded.
    fn size(&self, path: &[String], of: &Type) -> Option<Estimate>;
}

/// Provides no sizes.
#[derive(Debug, Clone, Copy)]
pub struct UnknownSizes;

impl Sizes for UnknownSizes {
    fn size(&self, _: &[String], _: &Type) -> Option<Estimate> {
        None
    }
}

/// The minimum and maximum cost of a checked expression.
pub(crate) fn estimate(checked: &Checked<'_>, sizes: &dyn Sizes) -> Estimate {
    let mut coster = Coster {
        checked,
        sizes,
        paths: HashMap::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    coster.cost(checked.ast.root)
}

/// The sizes of the contents of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Estimate,
    value: Estimate,
}

impl Entry {
    fn union(left: Option<Self>, right: Option<Self>) -> Option<Self> {
        let (left, right) = (left?, right?);
        Some(Self {
            is_list: left.is_list,
            key: left.key.union(right.key),
            value: left.value.union(right.value),
        })
    }
}

/// A loop variable, or a bound variable.
#[derive(Debug, Clone)]
struct Local {
    name: String,
    path: Vec<String>,
    size: Option<Estimate>,
    entry: Option<Entry>,
}

/// The cost of a call and the size of its result.
struct CallEstimate {
    cost: Estimate,
    result: Option<Estimate>,
}

/// An operand of a call, for the cost rules.
struct Operand {
    id: NodeId,
    path: Vec<String>,
    size: Option<Estimate>,
}

struct Coster<'c, 's, 'z> {
    checked: &'c Checked<'s>,
    sizes: &'z dyn Sizes,
    paths: HashMap<NodeId, Vec<String>>,
    computed: HashMap<NodeId, Estimate>,
    entries: HashMap<NodeId, Entry>,
    locals: Vec<Local>,
}

impl Coster<'_, '_, '_> {
    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, id: NodeId) -> Vec<String> {
        if let Expr::Ident(name) = self.checked.ast.expr(id)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn extended(&self, id: NodeId, part: &str) -> Vec<String> {
        let mut path = self.path(id);
        path.push(part.to_owned());
        path
    }

    fn size(&mut self, id: NodeId) -> Option<Estimate> {
        if let Some(size) = self.computed.get(&id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(self.checked.ast.expr(id)) {
            return Some(Estimate::exactly(size));
        }
        let t = self.checked.type_of(id);
        if let Some(size) = self.sizes.size(&self.path(id), t) {
            self.computed.insert(id, size);
            return Some(size);
        }
        if is_scalar(t) {
            return Some(Estimate::ONE);
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, id: NodeId) -> Estimate {
        self.size(id).unwrap_or(Estimate::UNKNOWN)
    }

    fn entry(&self, id: NodeId) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&id) {
            return Some(*entry);
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn set_size(&mut self, id: NodeId, size: Option<Estimate>) {
        if let Some(size) = size {
            self.computed.insert(id, size);
        }
    }

    fn set_entry(&mut self, id: NodeId, entry: Option<Entry>) {
        if let Some(entry) = entry {
            self.entries.insert(id, entry);
        }
    }

    /// The cost of a node and its descendants.
    ///
    /// This and its callees recurse for every level of the tree, so all other work is done in
    /// separate functions, whose frames are gone by then.
    fn cost(&mut self, id: NodeId) -> Estimate {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) => Estimate::ZERO,
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select {
                operand,
                test_only: true,
                ..
            } => self.cost(*operand),
            Expr::Select { operand, field, .. } => {
                let cost = self.cost(*operand);
                cost.plus(self.select(id, *operand, field))
            }
            Expr::Call { args, .. } => {
                let costs = self.costs(args.iter().copied());
                self.call(id, &costs)
            }
            Expr::List { elements, .. } => self.list(id, elements),
            Expr::Map { entries } => self.map(id, entries),
            Expr::Struct { fields, .. } => {
                let costs = self.costs(fields.iter().map(|field| field.value));
                let sum = costs.into_iter().fold(Estimate::ZERO, Estimate::plus);
                sum.plus(Estimate::exactly(40))
            }
            Expr::Comprehension(c) if self.is_bind(c) => self.bind(id, c),
            Expr::Comprehension(c) => self.comprehension(id, c),
        }
    }

    fn ident(&mut self, id: NodeId, name: &str) -> Estimate {
        let path = match self.local(name) {
            Some(local) => local.path.clone(),
            None => vec![name.to_owned()],
        };
        self.paths.insert(id, path);
        Estimate::ONE
    }

    /// The cost of a selection, without that of its operand.
    fn select(&mut self, id: NodeId, operand: NodeId, field: &str) -> Estimate {
        let path = self.extended(operand, field);
        self.paths.insert(id, path);
        match self.checked.type_of(operand) {
            Type::Map(_) | Type::Object(_) | Type::Param(_) => Estimate::ONE,
            _ => Estimate::ZERO,
        }
    }

    fn list(&mut self, id: NodeId, elements: &[NodeId]) -> Estimate {
        let mut sum = Estimate::ZERO;
        let mut items = Estimate {
            min: if elements.is_empty() { 0 } else { u64::MAX },
            max: 0,
        };
        for element in elements {
            sum = sum.plus(self.cost(*element));
            items = items.union(self.size_or_unknown(*element));
        }
        self.set_entry(
            id,
            Some(Entry {
                is_list: true,
                key: Estimate::ONE,
                value: items,
            }),
        );
        sum.plus(Estimate::exactly(10))
    }

    fn map(&mut self, id: NodeId, entries: &[MapEntry]) -> Estimate {
        let mut sum = Estimate::ZERO;
        let empty = Estimate {
            min: if entries.is_empty() { 0 } else { u64::MAX },
            max: 0,
        };
        let (mut keys, mut values) = (empty, empty);
        for entry in entries {
            sum = sum.plus(self.cost(entry.key)).plus(self.cost(entry.value));
            keys = keys.union(self.size_or_unknown(entry.key));
            values = values.union(self.size_or_unknown(entry.value));
        }
        self.set_entry(
            id,
            Some(Entry {
                is_list: false,
                key: keys,
                value: values,
            }),
        );
        sum.plus(Estimate::exactly(30))
    }

    fn is_bind(&self, c: &Comprehension<'_>) -> bool {
        let ast = &self.checked.ast;
        matches!(ast.expr(c.range), Expr::List { elements, .. } if elements.is_empty())
            && matches!(ast.expr(c.condition), Expr::Literal(Literal::Bool(false)))
    }

    fn push_value(&mut self, name: &str, id: NodeId) {
        let (path, size, entry) = (self.path(id), self.size(id), self.entry(id));
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entry,
        });
    }

    /// Binds a loop variable to the keys or values of the range.
    fn push_item(&mut self, name: &str, range: NodeId, values: bool) {
        let entry = self.entry(range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        };
        let part = match (is_list, values) {
            (true, true) => "@items",
            (true, false) => "@indices",
            (false, true) => "@values",
            (false, false) => "@keys",
        };
        let size = entry.map(|e| if values { e.value } else { e.key });
        let path = self.extended(range, part);
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entry: None,
        });
    }

    fn bind(&mut self, id: NodeId, c: &Comprehension<'_>) -> Estimate {
        let sum = self.cost(c.range).plus(self.cost(c.init));
        self.push_value(&c.accu, c.init);
        let sum = sum.plus(self.cost(c.result));
        self.locals.pop();
        let (size, entry) = (self.size(c.result), self.entry(c.result));
        self.set_size(id, size);
        self.set_entry(id, entry);
        sum
    }

    fn comprehension(&mut self, id: NodeId, c: &Comprehension<'_>) -> Estimate {
        let mut sum = self.cost(c.range).plus(self.cost(c.init));
        self.push_value(&c.accu, c.init);
        let outer = self.locals.len();
        match &c.var2 {
            Some(var2) => {
                self.push_item(&c.var, c.range, false);
                self.push_item(var2, c.range, true);
            }
            None => {
                let is_list = match self.entry(c.range) {
                    Some(entry) => entry.is_list,
                    None => matches!(self.checked.type_of(c.range), Type::List(_)),
                };
                self.push_item(&c.var, c.range, is_list);
            }
        }
        let round = self.cost(c.condition).plus(self.cost(c.step));
        self.locals.truncate(outer);
        sum = sum.plus(self.cost(c.result));
        self.locals.truncate(outer - 1);
        let count = self.size_or_unknown(c.range);
        sum = sum.plus(count.times(round));
        match self.checked.ast.expr(c.init) {
            Expr::Literal(_) => {
                let size = self.size(c.init);
                self.set_size(id, size);
            }
            Expr::List { .. } | Expr::Map { .. } => {
                self.set_size(id, Some(count));
                let entry = self.entry(c.step);
                self.set_entry(id, entry);
            }
            _ => {}
        }
        sum
    }

    fn costs(&mut self, ids: impl Iterator<Item = NodeId>) -> Vec<Estimate> {
        let mut costs = Vec::new();
        for id in ids {
            costs.push(self.cost(id));
        }
        costs
    }

    /// The cost of a call, with the given costs of its arguments.
    fn call(&mut self, id: NodeId, costs: &[Estimate]) -> Estimate {
        let checked = self.checked;
        let Expr::Call {
            function,
            target,
            args,
        } = checked.ast.expr(id)
        else {
            return Estimate::UNKNOWN;
        };
        if let ("dyn", [arg], [cost]) = (&**function, args.as_slice(), costs) {
            self.copy_sizes(*arg, id);
            return cost.plus(Estimate::ONE);
        }
        let operands = self.operands(args);
        // UPSTREAM: cel-go checker/cost.go (costCall): a call without overloads costs nothing.
        if function != op::OPT_SELECT && !matches!(checked.reference(id), Reference::Overloads(_)) {
            return Estimate::ZERO;
        }
        let Some(target) = *target else {
            return self.call_cost(id, None, &operands, costs);
        };
        let cost = self.cost(target);
        let target = self.operand(target);
        cost.plus(self.call_cost(id, Some(&target), &operands, costs))
    }

    fn operands(&mut self, args: &[NodeId]) -> Vec<Operand> {
        args.iter().map(|arg| self.operand(*arg)).collect()
    }

    /// Copies the sizes of one node to another.
    fn copy_sizes(&mut self, from: NodeId, to: NodeId) {
        let (size, entry) = (self.size(from), self.entry(from));
        self.set_size(to, size);
        self.set_entry(to, entry);
    }

    /// The cost of a call, without that of its receiver.
    fn call_cost(
        &mut self,
        id: NodeId,
        target: Option<&Operand>,
        operands: &[Operand],
        costs: &[Estimate],
    ) -> Estimate {
        let checked = self.checked;
        let Expr::Call { function, args, .. } = checked.ast.expr(id) else {
            return Estimate::UNKNOWN;
        };
        let function: &str = function;
        let overloads = match checked.reference(id) {
            Reference::Overloads(overloads) => overloads.as_slice(),
            _ => &[],
        };
        let names: Vec<&str> = if function == op::OPT_SELECT {
            vec!["select_optional_field"]
        } else {
            overloads.iter().map(|o| overload(*o)).collect()
        };
        let mut cost = Estimate {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Estimate> = None;
        for name in names {
            let estimated = self.function(id, function, name, target, operands, costs);
            cost = cost.union(estimated.cost);
            if let Some(size) = estimated.result {
                result = Some(result.map_or(size, |r| r.union(size)));
            }
            if let ("index_list" | "index_map", Some(list)) = (name, args.first()) {
                result = self.entry(*list).map(|entry| entry.value);
                let part = if name == "index_list" {
                    "@items"
                } else {
                    "@values"
                };
                let path = self.extended(*list, part);
                self.paths.insert(id, path);
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        self.set_size(id, result);
        cost
    }

    fn operand(&mut self, id: NodeId) -> Operand {
        let mut path = self.path(id);
        if path
            .first()
            .is_some_and(|p| p == op::ACCUMULATOR || p == op::OLD_ACCUMULATOR)
        {
            path.clear();
        }
        Operand {
            id,
            path,
            size: self.size(id),
        }
    }
}

fn literal_size(expr: &Expr<'_>) -> Option<u64> {
    let size = match expr {
        Expr::Literal(Literal::String(text)) => code_points(text),
        Expr::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Expr::Literal(_) => 1,
        Expr::List { elements, .. } => elements.len(),
        Expr::Map { entries } => entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

fn is_scalar(t: &Type) -> bool {
    match t.unwrapped() {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.optional_inner().is_some_and(is_scalar),
    }
}
