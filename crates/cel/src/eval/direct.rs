//! Evaluates the most common tests on documents directly, without the machine or values.
//!
//! There are no errors here. Anything unusual (a missing field, another type, an exceeded limit, an
//! interrupt) is `None`, and the machine then evaluates the same steps from the start. The evaluation
//! has no side effects, so the first attempt is not observable; and since cost only increases, a total
//! within the limit was within it at every step.

use std::sync::atomic::Ordering;

use serde_json::Value as Json;

use crate::eval::attribute::{member, walk};
use crate::eval::cost::{CallCost, tenth_of};
use crate::eval::inputs::{Inputs, PrecomputedField};
use crate::eval::machine::{INTERRUPT_EVERY, Limits};
use crate::eval::operators::{holds, ints};
use crate::eval::program::{
    Attribute, Call, Loop, Path, PatternCall, Program, Root, Step, StepId, Target, Test,
};
use crate::source::Span;
use crate::value::Value;

/// The maximum number of loop variables, enclosing loops included.
pub(crate) const LOCALS: usize = 4;

/// An operand of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand<'a> {
    Bool(bool),
    Int(i64),
    Text(&'a str),
    Texts(&'a [String]),
    /// Any other JSON value.
    Json(&'a Json),
}

impl<'a> From<&'a Json> for Operand<'a> {
    #[inline]
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Bool(b) => Self::Bool(*b),
            Json::String(text) => Self::Text(text),
            Json::Number(number) => number.as_i64().map_or(Self::Json(json), Self::Int),
            _ => Self::Json(json),
        }
    }
}

impl<'a> Operand<'a> {
    /// Converts a value, if it is supported.
    pub(crate) fn of(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(b) => Some(Self::Bool(*b)),
            Value::Int(int) => Some(Self::Int(*int)),
            Value::Str(text) => Some(Self::Text(text)),
            Value::Json(json) => Some(Self::Json(json)),
            _ => None,
        }
    }
}

/// The operands of a step that [`Direct`] can evaluate if it can evaluate its operands.
pub(crate) fn parts(step: &Step) -> Option<[Option<StepId>; 2]> {
    let one = |part| Some([Some(part), None]);
    let two = |first, second| Some([Some(first), Some(second)]);
    match step {
        Step::Const(Value::String(_) | Value::Int(_) | Value::Bool(_)) | Step::Path(_) => {
            Some([None; 2])
        }
        Step::Attribute(Attribute {
            root: Root::Variable(_) | Root::Local(_),
            qualifiers,
            ..
        }) if qualifiers.is_empty() => Some([None; 2]),
        Step::Arithmetic(_, left, right, CallCost::Fixed(_)) => two(*left, *right),
        Step::Call(call) => match (&call.target, call.args.as_slice()) {
            (Target::Pattern(_, PatternCall::Matches), [text, pattern]) => two(*text, *pattern),
            _ => None,
        },
        Step::Test(test) => match test {
            Test::And(left, right)
            | Test::Or(left, right)
            | Test::Equals(left, right)
            | Test::NotEquals(left, right)
            | Test::Ordered(_, left, right, CallCost::Fixed(_))
            | Test::In(left, right, CallCost::Fixed(_) | CallCost::SecondLength) => {
                two(*left, *right)
            }
            Test::Not(operand) | Test::InSet(operand, _) => one(*operand),
            Test::Text(test) => one(test.operand),
            Test::Has(_) => Some([None; 2]),
            Test::All(l) | Test::Exists(l) if l.slot2.is_none() && (l.slot as usize) < LOCALS => {
                two(l.range, l.body)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Wraps the outermost supported tests in [`Test::Direct`].
pub(crate) fn make_direct(steps: &mut Vec<Step>, spans: &mut Vec<Span>, root: StepId) {
    let mut is_direct = Vec::with_capacity(steps.len());
    let mut is_inner = vec![false; steps.len()];
    for step in &*steps {
        let parts = parts(step).map(|parts| parts.into_iter().flatten());
        // Operands precede the step.
        let can = |part: StepId| is_direct.get(part as usize) == Some(&true);
        let parts = parts.filter(|parts| parts.clone().all(can));
        is_direct.push(parts.is_some());
        for part in parts.into_iter().flatten() {
            if let Some(place) = is_inner.get_mut(part as usize) {
                *place = true;
            }
        }
    }
    for (at, (is_direct, is_inner)) in is_direct.into_iter().zip(is_inner).enumerate() {
        let end = steps.len() as StepId;
        let Some(step) = steps.get_mut(at) else {
            continue;
        };
        let is_test = match step {
            Step::Test(_) => true,
            Step::Call(_) => at == root as usize,
            _ => false,
        };
        if is_direct && is_test && !is_inner {
            let test = std::mem::replace(step, Step::Test(Test::Direct(end)));
            steps.push(test);
            // The wrapping step is the recorded one.
            spans.push(Span::default());
        }
    }
}

/// One attempt to evaluate a test.
pub(crate) struct Direct<'a, 'l> {
    program: &'a Program,
    inputs: &'l Inputs<'a>,
    limits: Limits<'l>,
    /// The loop variables with values, those of enclosing loops included.
    pub(crate) locals: [Option<Operand<'a>>; LOCALS],
    pub(crate) cost: u64,
    rounds: u32,
}

impl<'a, 'l> Direct<'a, 'l> {
    #[inline]
    pub(crate) fn new(program: &'a Program, inputs: &'l Inputs<'a>, limits: Limits<'l>) -> Self {
        Self {
            program,
            inputs,
            limits,
            locals: [None; LOCALS],
            cost: 0,
            rounds: 0,
        }
    }

    /// The result of a test, and its cost.
    #[inline]
    pub(crate) fn attempt(mut self, id: StepId) -> Option<(bool, u64)> {
        let answer = self.truth(id)?;
        (self.cost <= self.limits.cost).then_some((answer, self.cost))
    }

    /// The boolean result of a step.
    ///
    /// Recurses only into the left side of an operator.
    fn truth(&mut self, mut id: StepId) -> Option<bool> {
        let mut negated = false;
        loop {
            let test = match self.program.step(id) {
                Step::Test(test) => test,
                Step::Call(call) => return Some(self.call(call)? != negated),
                _ => return Some(self.flag(id)? != negated),
            };
            let answer = match test {
                Test::Not(operand) => {
                    self.cost += 1;
                    negated = !negated;
                    id = *operand;
                    continue;
                }
                Test::And(left, right) | Test::Or(left, right) => {
                    let settles = matches!(test, Test::Or(..));
                    if self.truth(*left)? != settles {
                        id = *right;
                        continue;
                    }
                    settles
                }
                Test::Text(test) => {
                    let (found, units) = test.compare(self.text(test.operand)?);
                    self.cost += units;
                    found
                }
                other => self.other_test(other)?,
            };
            return Some(answer != negated);
        }
    }

    fn other_test(&mut self, test: &'a Test) -> Option<bool> {
        match test {
            Test::Equals(left, right) => self.equal(*left, *right),
            Test::NotEquals(left, right) => self.equal(*left, *right).map(|equal| !equal),
            Test::Ordered(op, left, right, CallCost::Fixed(units)) => {
                let (left, right) = (self.int(*left)?, self.int(*right)?);
                self.cost += units;
                Some(holds(*op, left.cmp(&right)))
            }
            Test::In(text, collection, cost) => self.contained(*text, *collection, *cost),
            Test::InSet(text, set) => Some(set.contains_text(self.text(*text)?)),
            Test::Has(path) => self.has(path),
            Test::All(l) => self.quantifier(l, false),
            Test::Exists(l) => self.quantifier(l, true),
            _ => None,
        }
    }

    fn call(&mut self, call: &'a Call) -> Option<bool> {
        let (Target::Pattern(regex, _), [text, pattern]) = (&call.target, call.args.as_slice())
        else {
            return None;
        };
        let (text, pattern) = (self.text(*text)?, self.text(*pattern)?);
        let args = [Ok(Value::Str(text)), Ok(Value::Str(pattern))];
        self.cost += call.cost.charge(&args, None).ok()?;
        Some(regex.is_match(text))
    }

    #[inline]
    fn flag(&mut self, id: StepId) -> Option<bool> {
        match self.operand(id)? {
            Operand::Bool(b) => Some(b),
            _ => None,
        }
    }

    #[inline]
    fn text(&mut self, id: StepId) -> Option<&'a str> {
        match self.operand(id)? {
            Operand::Text(text) => Some(text),
            _ => None,
        }
    }

    #[inline]
    fn int(&mut self, id: StepId) -> Option<i64> {
        match self.operand(id)? {
            Operand::Int(int) => Some(int),
            _ => None,
        }
    }

    #[inline(always)]
    fn operand(&mut self, id: StepId) -> Option<Operand<'a>> {
        let step = self.program.step(id);
        let Step::Path(path) = step else {
            return self.other_operand(id, step);
        };
        self.cost += path.fields.len() as u64 + 1;
        match path.known.and_then(|at| self.inputs.known.get(at)) {
            Some(PrecomputedField::Text(text)) => Some(Operand::Text(text)),
            Some(PrecomputedField::Texts(texts)) => Some(Operand::Texts(texts)),
            _ => self.search(path),
        }
    }

    #[inline(never)]
    fn search(&self, path: &Path) -> Option<Operand<'a>> {
        walk(self.start(path)?, &path.fields).map(Operand::from)
    }

    fn other_operand(&mut self, id: StepId, step: &'a Step) -> Option<Operand<'a>> {
        match step {
            Step::Const(value) => match value {
                Value::String(text) => Some(Operand::Text(text)),
                Value::Int(int) => Some(Operand::Int(*int)),
                Value::Bool(b) => Some(Operand::Bool(*b)),
                _ => None,
            },
            Step::Attribute(attribute) => {
                self.cost += 1;
                self.root(&attribute.root)
            }
            Step::Arithmetic(op, left, right, CallCost::Fixed(units)) => {
                let (left, right) = (self.int(*left)?, self.int(*right)?);
                self.cost += units;
                match ints(*op, left, right) {
                    Ok(Value::Int(int)) => Some(Operand::Int(int)),
                    _ => None,
                }
            }
            Step::Test(_) => self.truth(id).map(Operand::Bool),
            _ => None,
        }
    }

    #[inline]
    fn root(&self, root: &Root) -> Option<Operand<'a>> {
        match root {
            Root::Variable(nth) => Operand::of(self.inputs.values.get(*nth as usize)?),
            Root::Local(slot) => *self.locals.get(*slot as usize)?,
            _ => None,
        }
    }

    #[inline]
    fn start(&self, path: &Path) -> Option<&'a Json> {
        match self.root(&path.attribute.root)? {
            Operand::Json(json) => Some(json),
            _ => None,
        }
    }

    fn has(&mut self, path: &'a Path) -> Option<bool> {
        let (last, fields) = path.fields.split_last()?;
        let entries = walk(self.start(path)?, fields)?.as_object()?;
        self.cost += path.fields.len() as u64;
        Some(member(entries, last).is_some())
    }

    fn equal(&mut self, left: StepId, right: StepId) -> Option<bool> {
        let (equal, units) = match (self.operand(left)?, self.operand(right)?) {
            (Operand::Int(left), Operand::Int(right)) => (left == right, 1),
            (Operand::Bool(left), Operand::Bool(right)) => (left == right, 1),
            (Operand::Text(left), Operand::Text(right)) => {
                (left == right, tenth_of(left).min(tenth_of(right)))
            }
            _ => return None,
        };
        self.cost += units;
        Some(equal)
    }

    fn contained(&mut self, text: StepId, collection: StepId, cost: CallCost) -> Option<bool> {
        let text = self.text(text)?;
        let (found, size) = match self.operand(collection)? {
            Operand::Texts(texts) => (texts.iter().any(|other| other == text), texts.len()),
            Operand::Json(Json::Array(elements)) => {
                let is_equal = |element: &Json| matches!(element, Json::String(s) if s == text);
                (elements.iter().any(is_equal), elements.len())
            }
            Operand::Json(Json::Object(entries)) => {
                (member(entries, text).is_some(), entries.len())
            }
            _ => return None,
        };
        self.cost += match cost {
            CallCost::Fixed(units) => units,
            CallCost::SecondLength => size as u64,
            _ => return None,
        };
        Some(found)
    }

    /// `all` and `exists`, charged per iteration as in [`super::loops`].
    fn quantifier(&mut self, l: &'a Loop, settles: bool) -> Option<bool> {
        match self.operand(l.range)? {
            Operand::Json(Json::Array(elements)) => {
                self.rounds(l, settles, elements.iter().map(Operand::from))
            }
            Operand::Json(Json::Object(entries)) => {
                self.rounds(l, settles, entries.keys().map(|key| Operand::Text(key)))
            }
            Operand::Texts(texts) => {
                self.rounds(l, settles, texts.iter().map(|text| Operand::Text(text)))
            }
            _ => None,
        }
    }

    #[inline]
    fn rounds(
        &mut self,
        l: &'a Loop,
        settles: bool,
        items: impl Iterator<Item = Operand<'a>>,
    ) -> Option<bool> {
        let condition = if settles { 3 } else { 2 };
        let mut short_circuited = false;
        for item in items {
            self.cost += condition;
            if short_circuited {
                break;
            }
            self.cost += 1;
            *self.locals.get_mut(l.slot as usize)? = Some(item);
            short_circuited = self.truth(l.body)? == settles;
            if self.cost > self.limits.cost || self.is_interrupted() {
                return None;
            }
        }
        self.cost += 1;
        Some(short_circuited == settles)
    }

    fn is_interrupted(&mut self) -> bool {
        self.rounds += 1;
        self.rounds.is_multiple_of(INTERRUPT_EVERY)
            && self
                .limits
                .interrupt
                .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use crate::admission::compile_condition;
    use crate::eval::program::{Step, Test};

    fn is_direct(expression: &str) -> bool {
        let program = compile_condition(expression).unwrap();
        matches!(program.step(program.root), Step::Test(Test::Direct(_)))
    }

    #[test]
    fn common_conditions_are_direct() {
        for expression in [
            "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')",
            "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
            "!('system:nodes' in request.userInfo.groups)",
            "request.operation in ['CREATE', 'UPDATE']",
            "has(object.metadata.labels) && object.metadata.labels['team'] == 'payments'",
            "object.spec.containers.all(c, c.env.exists(e, e.name == 'POD_NAME'))",
            "object.metadata.name.matches('^web-')",
            "object.spec.replicas <= 5 && object.spec.hostNetwork != true && !object.spec.paused",
        ] {
            assert!(is_direct(expression), "{expression}");
        }
    }

    #[test]
    fn what_makes_values_is_not() {
        for expression in [
            "object.metadata.name + '-' == request.name",
            "object.spec.containers.map(c, c.name).size() == 1",
            "authorizer.group('apps').resource('deployments').check('get').allowed()",
        ] {
            assert!(!is_direct(expression), "{expression}");
        }
    }
}
