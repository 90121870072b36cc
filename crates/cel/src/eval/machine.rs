//! Interprets a program.
//!
//! UPSTREAM: cel-go interpreter/interpretable.go, interpreter/runtimecost.go

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

use lockgate_go::regex::Regex;

use crate::eval::cost::{Argument, CallCost, equality};
use crate::eval::direct::{Direct, LOCALS, Operand};
use crate::eval::functions;
use crate::eval::inputs::Inputs;
use crate::eval::named::Named;
use crate::eval::program::{
    Call, MapEntry, PatternCall, Program, Step, StepId, Target, Test, TextTest, TextTestKind,
};
use crate::eval::record::{NoTrace, Recording, Trace};
use crate::limits::PER_CALL_LIMIT;
use crate::value::{Equality, Error, Map, Opaque, Value, typed};

/// The number of loop iterations between checks of the interrupt flag.
pub(crate) const INTERRUPT_EVERY: u32 = 100;
/// The number of loop variables without allocation.
const INLINE_SLOTS: usize = LOCALS;

/// The limits of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// The maximum cost of the evaluation.
    pub cost: u64,
    /// Checked every hundred iterations of a loop; `true` interrupts it.
    pub interrupt: Option<&'a AtomicBool>,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            cost: PER_CALL_LIMIT,
            interrupt: None,
        }
    }
}

/// The outcome of an evaluation and its cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value or the error.
    pub value: Result<Value<'a>, Error>,
    /// Units charged, including the failed step.
    pub cost: u64,
}

/// Evaluates a program; `inputs` are the variables in order of declaration.
#[must_use]
#[inline]
pub fn evaluate<'a>(
    program: &'a Program,
    inputs: impl Into<Inputs<'a>>,
    limits: Limits<'_>,
) -> Evaluation<'a> {
    run(program, inputs.into(), limits, None)
}

/// Evaluates a program and records each step.
#[must_use]
pub fn evaluate_recorded<'a>(
    program: &'a Program,
    inputs: impl Into<Inputs<'a>>,
    limits: Limits<'_>,
) -> (Evaluation<'a>, Recording) {
    run_recorded(program, inputs.into(), limits, None)
}

#[inline]
pub(crate) fn run<'a>(
    program: &'a Program,
    inputs: Inputs<'a>,
    limits: Limits<'_>,
    named: Option<&Named<'a>>,
) -> Evaluation<'a> {
    let root = match program.step(program.root) {
        Step::Const(value) => {
            let value = Ok(constant(value));
            return Evaluation { value, cost: 0 };
        }
        Step::Test(Test::Direct(test)) => {
            if let Some((answer, cost)) = Direct::new(program, &inputs, limits).attempt(*test) {
                let value = Ok(Value::Bool(answer));
                return Evaluation { value, cost };
            }
            *test
        }
        _ => program.root,
    };
    begin(program, root, inputs, limits, named, NoTrace).0
}

pub(crate) fn run_recorded<'a>(
    program: &'a Program,
    inputs: Inputs<'a>,
    limits: Limits<'_>,
    named: Option<&Named<'a>>,
) -> (Evaluation<'a>, Recording) {
    let root = program.root;
    begin(program, root, inputs, limits, named, Recording::default())
}

fn begin<'a, T: Trace>(
    program: &'a Program,
    root: StepId,
    inputs: Inputs<'a>,
    limits: Limits<'_>,
    named: Option<&Named<'a>>,
    trace: T,
) -> (Evaluation<'a>, T) {
    match program.slots {
        0 => walk(program, root, inputs, limits, named, trace, &mut []),
        1..=INLINE_SLOTS => {
            let mut slots = [const { Slot::Lazy(0) }; INLINE_SLOTS];
            walk(program, root, inputs, limits, named, trace, &mut slots)
        }
        many => {
            let mut slots = vec![Slot::Lazy(0); many];
            walk(program, root, inputs, limits, named, trace, &mut slots)
        }
    }
}

#[inline]
fn walk<'a, T: Trace>(
    program: &'a Program,
    root: StepId,
    inputs: Inputs<'a>,
    limits: Limits<'_>,
    named: Option<&Named<'a>>,
    trace: T,
    slots: &mut [Slot<'a>],
) -> (Evaluation<'a>, T) {
    let mut machine = Machine {
        program,
        inputs,
        named,
        slots,
        cost: 0,
        limit: limits.cost,
        interrupt: limits.interrupt,
        rounds: 0,
        trace,
    };
    let value = machine.eval(root);
    let cost = machine.cost;
    (Evaluation { value, cost }, machine.trace)
}

/// The content of a loop variable.
#[derive(Debug, Clone)]
pub(crate) enum Slot<'a> {
    /// Not evaluated yet.
    Lazy(StepId),
    Ready(Argument<'a>),
}

pub(crate) struct Machine<'a, 'l, T> {
    pub(crate) program: &'a Program,
    pub(crate) inputs: Inputs<'a>,
    /// The policy variables of [`Value::Variables`].
    pub(crate) named: Option<&'l Named<'a>>,
    slots: &'l mut [Slot<'a>],
    pub(crate) cost: u64,
    limit: u64,
    interrupt: Option<&'l AtomicBool>,
    rounds: u32,
    trace: T,
}

impl<'a, T: Trace> Machine<'a, '_, T> {
    /// Charges multiple units, each counted separately.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), Error> {
        self.cost = self.cost.wrapping_add(units);
        if self.cost > self.limit {
            Err(self.over(units))
        } else {
            Ok(())
        }
    }

    /// Upstream stops at the first unit over the limit.
    #[cold]
    fn over(&mut self, units: u64) -> Error {
        let before = self.cost.wrapping_sub(units);
        if before <= self.limit {
            self.cost = self.limit.wrapping_add(1);
        }
        Error::CostLimit
    }

    /// Charges one step of any number of units.
    #[inline]
    pub(crate) fn charge_once(&mut self, units: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(units);
        if self.cost > self.limit {
            Err(Error::CostLimit)
        } else {
            Ok(())
        }
    }

    /// Refunds a unit, as presence tests do.
    pub(crate) fn refund(&mut self) -> Result<(), Error> {
        self.cost = self.cost.wrapping_sub(1);
        if self.cost > self.limit {
            Err(Error::CostLimit)
        } else {
            Ok(())
        }
    }

    pub(crate) fn set(&mut self, slot: u16, value: Slot<'a>) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = value;
        }
    }

    /// The document of a loop variable, if it holds one.
    #[inline]
    pub(crate) fn local_json(&self, slot: u16) -> Option<&'a Json> {
        match self.slots.get(slot as usize) {
            Some(Slot::Ready(Ok(Value::Json(json)))) => Some(json),
            _ => None,
        }
    }

    /// The value of a loop variable, evaluated on first use.
    pub(crate) fn local(&mut self, slot: u16) -> Argument<'a> {
        match self.slots.get(slot as usize) {
            Some(Slot::Ready(value)) => value.clone(),
            Some(Slot::Lazy(step)) => {
                let step = *step;
                let value = self.eval(step);
                if is_fatal(&value) {
                    return value;
                }
                self.set(slot, Slot::Ready(value.clone()));
                value
            }
            None => Err(Error::no_such_overload()),
        }
    }

    /// Returns true once the evaluation is interrupted; checks the flag only at intervals.
    pub(crate) fn interrupted(&mut self) -> bool {
        let Some(flag) = self.interrupt else {
            return false;
        };
        self.rounds += 1;
        if self.rounds < INTERRUPT_EVERY {
            return false;
        }
        self.rounds = 0;
        flag.load(Ordering::Relaxed)
    }

    pub(crate) fn eval(&mut self, id: StepId) -> Argument<'a> {
        let program = self.program;
        let step = program.step(id);
        if let Step::Const(value) = step {
            return Ok(constant(value));
        }
        let span = || program.spans.get(id as usize).copied().unwrap_or_default();
        let place = self.trace.enter(span, self.cost);
        let outcome = match step {
            Step::Const(value) => Ok(constant(value)),
            Step::Failed(error) => Err(error.clone()),
            Step::Attribute(attribute) => self.attribute(attribute),
            Step::Path(path) => self.path(path),
            Step::Test(test) => self.test(test).map(Value::Bool),
            Step::Negate(operand) => self.negate(*operand),
            Step::Arithmetic(op, left, right, cost) => self.arithmetic(*op, *left, *right, *cost),
            Step::OptionalOr(left, right) => self.optional_or(*left, *right),
            Step::OptionalOrValue(left, right) => self.optional_or_value(*left, *right),
            Step::Call(call) => self.call(call),
            Step::List(elements, optional) => self.list(elements, optional),
            Step::Map(entries) => self.map(entries),
            Step::Message(message) => self.message(message),
            Step::Collect(l, filter) => self.collect(l, *filter),
            Step::CollectMap(l, filter, body) => self.collect_map(l, *filter, body),
            Step::Bind {
                slot,
                value,
                result,
            } => {
                self.set(*slot, Slot::Lazy(*value));
                self.eval(*result)
            }
        };
        self.trace.leave(place, &outcome, self.cost);
        outcome
    }

    /// The boolean result of a step, without creating a value.
    ///
    /// `None` is a value of another type.
    pub(crate) fn truth(&mut self, id: StepId) -> Result<Option<bool>, Error> {
        if let Step::Test(test) = self.program.step(id) {
            let answer = match T::FUSES {
                true => self.test(test),
                false => self.traced_test(id, test),
            };
            return answer.map(Some);
        }
        match self.eval(id)? {
            Value::Bool(b) => Ok(Some(b)),
            _ => Ok(None),
        }
    }

    /// Evaluates and records a test, in a smaller stack frame.
    fn traced_test(&mut self, id: StepId, test: &'a Test) -> Result<bool, Error> {
        let spans = &self.program.spans;
        let span = || spans.get(id as usize).copied().unwrap_or_default();
        let place = self.trace.enter(span, self.cost);
        let answer = self.test(test);
        self.traced(place, answer)
    }

    fn traced(&mut self, place: T::Place, answer: Result<bool, Error>) -> Result<bool, Error> {
        match answer {
            Ok(b) => {
                self.trace.leave(place, &Ok(Value::Bool(b)), self.cost);
                Ok(b)
            }
            Err(error) => {
                self.trace.leave(place, &Err(error.clone()), self.cost);
                Err(error)
            }
        }
    }

    /// Logical operators nest much deeper than any other, so their stack frame is small.
    fn test(&mut self, test: &'a Test) -> Result<bool, Error> {
        let (left, right, settles) = match test {
            Test::And(left, right) => (left, right, false),
            Test::Or(left, right) => (left, right, true),
            other => return self.other_test(other),
        };
        self.logical(*left, *right, settles)
    }

    #[inline]
    fn other_test(&mut self, test: &'a Test) -> Result<bool, Error> {
        match test {
            Test::And(..) | Test::Or(..) => self.test(test),
            Test::Not(operand) => self.not(*operand),
            Test::Equals(left, right) => self.equals(*left, *right, false),
            Test::NotEquals(left, right) => self.equals(*left, *right, true),
            Test::Text(test) => self.text_test(test),
            Test::Has(path) => self.has(path),
            Test::Ordered(op, left, right, cost) => self.ordered(*op, *left, *right, *cost),
            Test::In(left, right, cost) => self.contained(*left, *right, *cost),
            Test::InSet(operand, set) => {
                let value = self.eval(*operand)?;
                check_hashable(&value)?;
                Ok(set.contains(&value))
            }
            Test::All(l) => self.quantifier(l, false),
            Test::Exists(l) => self.quantifier(l, true),
            Test::ExistsOne(l) => self.exists_one(l),
            Test::Direct(id) => self.direct(*id),
        }
    }

    /// Evaluates a test with [`Direct`], and falls back to the machine.
    fn direct(&mut self, id: StepId) -> Result<bool, Error> {
        if T::FUSES {
            let limits = Limits {
                cost: self.limit,
                interrupt: self.interrupt,
            };
            let mut attempt = Direct::new(self.program, &self.inputs, limits);
            attempt.cost = self.cost;
            for (local, slot) in attempt.locals.iter_mut().zip(&*self.slots) {
                if let Slot::Ready(Ok(value)) = slot {
                    *local = Operand::of(value);
                }
            }
            if let Some((answer, cost)) = attempt.attempt(id) {
                self.cost = cost;
                return Ok(answer);
            }
        }
        self.truth(id)?.ok_or_else(Error::no_such_overload)
    }

    /// `&&` and `||`: a determining value on either side takes precedence over an error on the
    /// other.
    fn logical(&mut self, left: StepId, right: StepId, settles: bool) -> Result<bool, Error> {
        let first = match self.truth(left) {
            Ok(Some(b)) if b == settles => return Ok(settles),
            Ok(Some(_)) => None,
            Ok(None) => Some(Error::no_such_overload()),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => Some(error),
        };
        let second = self.truth(right);
        settle(first, second, settles)
    }

    /// Evaluates an operand; only fatal errors are returned as the outer error.
    #[inline]
    pub(crate) fn operand(&mut self, id: StepId) -> Result<Argument<'a>, Error> {
        if let Step::Const(value) = self.program.step(id) {
            return Ok(Ok(constant(value)));
        }
        match self.eval(id) {
            Err(error) if error.is_fatal() => Err(error),
            other => Ok(other),
        }
    }

    fn not(&mut self, operand: StepId) -> Result<bool, Error> {
        let value = self.truth(operand);
        if let Err(error) = &value
            && error.is_fatal()
        {
            return value.map(|_| false);
        }
        self.charge(1)?;
        value?.map(|b| !b).ok_or_else(Error::no_such_overload)
    }

    fn equals(&mut self, left: StepId, right: StepId, not: bool) -> Result<bool, Error> {
        let left = self.operand(left)?;
        let right = self.operand(right)?;
        self.equal_values(left, right, not)
    }

    fn equal_values(
        &mut self,
        left: Argument<'a>,
        right: Argument<'a>,
        not: bool,
    ) -> Result<bool, Error> {
        if let (Ok(Value::Int(left)), Ok(Value::Int(right))) = (&left, &right) {
            self.charge(1)?;
            return Ok((left == right) != not);
        }
        self.charge_once(equality(&left, &right, not))?;
        let (left, right) = (left?, right?);
        match (left.equals(&right), not) {
            (Equality::Undefined, false) => {
                Err(typed::failure(&left).unwrap_or_else(Error::no_such_overload))
            }
            (outcome, not) => Ok((outcome == Equality::Equal) != not),
        }
    }

    /// Tests a string against a constant without the general call.
    fn text_test(&mut self, test: &'a TextTest) -> Result<bool, Error> {
        let operand = self.operand(test.operand)?;
        match operand.as_ref().ok().and_then(Value::as_str) {
            Some(text) => self.compare(test, text),
            None => self.general_test(test, operand),
        }
    }

    #[inline]
    fn compare(&mut self, test: &TextTest, text: &str) -> Result<bool, Error> {
        let (found, units) = test.compare(text);
        self.charge_once(units)?;
        Ok(found)
    }

    #[cold]
    fn general_test(&mut self, test: &'a TextTest, operand: Argument<'a>) -> Result<bool, Error> {
        let constant = Ok(Value::Str(&test.text));
        match &test.general {
            Step::Test(Test::Equals(left, _) | Test::NotEquals(left, _)) => {
                let not = test.kind == TextTestKind::NotEqual;
                if *left == test.operand {
                    self.equal_values(operand, constant, not)
                } else {
                    self.equal_values(constant, operand, not)
                }
            }
            Step::Call(call) => as_bool(self.apply(call, &[operand, constant])?),
            _ => Err(Error::no_such_overload()),
        }
    }

    fn optional_or(&mut self, left: StepId, right: StepId) -> Argument<'a> {
        match self.eval(left)? {
            Value::Optional(None) => self.eval(right),
            other => Ok(other),
        }
    }

    fn optional_or_value(&mut self, left: StepId, right: StepId) -> Argument<'a> {
        match self.eval(left)? {
            Value::Optional(None) => self.eval(right),
            Value::Optional(Some(value)) => value.to_result(),
            other => Ok(other),
        }
    }

    fn list(&mut self, elements: &[StepId], optional: &[bool]) -> Argument<'a> {
        let built = self.elements(elements, optional);
        if is_fatal(&built) {
            return built;
        }
        self.charge_once(10)?;
        built
    }

    fn elements(&mut self, elements: &[StepId], optional: &[bool]) -> Argument<'a> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements.iter().zip(optional) {
            let value = self.eval(*element)?;
            if !optional {
                values.push(value);
                continue;
            }
            match value {
                Value::Optional(None) => {}
                Value::Optional(Some(inner)) => values.push(inner.to_result()?),
                other => {
                    return Err(Error::text(format_args!(
                        "cannot initialize optional list element from non-optional value {other}"
                    )));
                }
            }
        }
        Ok(values.into())
    }

    fn map(&mut self, entries: &[MapEntry]) -> Argument<'a> {
        let built = self.entries(entries);
        if is_fatal(&built) {
            return built;
        }
        self.charge_once(30)?;
        built
    }

    fn entries(&mut self, entries: &[MapEntry]) -> Argument<'a> {
        let mut map = Map::default();
        for entry in entries {
            let key = self.eval(entry.key)?;
            let mut value = self.eval(entry.value)?;
            if entry.optional {
                match value {
                    Value::Optional(None) => {
                        map.remove(&key);
                        continue;
                    }
                    Value::Optional(Some(inner)) => value = inner.to_result()?,
                    other => {
                        return Err(Error::text(format_args!(
                            "cannot initialize optional entry '{key}' from non-optional value {other}"
                        )));
                    }
                }
            }
            check_hashable(&key)?;
            map.insert(key, value);
        }
        Ok(Value::Map(std::sync::Arc::new(map)))
    }

    fn call(&mut self, call: &'a Call) -> Argument<'a> {
        let mut args = Vec::new();
        match call.args.as_slice() {
            [] => {}
            [only] => {
                let arg = self.operand(*only)?;
                return self.apply(call, &[arg]);
            }
            [first, second] => {
                let first = self.operand(*first)?;
                if call.stops_early && first.is_err() {
                    return first;
                }
                let second = self.operand(*second)?;
                return self.apply(call, &[first, second]);
            }
            all => {
                for arg in all {
                    let value = self.operand(*arg)?;
                    if call.stops_early && value.is_err() && args.len() + 1 < all.len() {
                        // Arguments that are not evaluated leave the call uncharged.
                        return value;
                    }
                    args.push(value);
                }
            }
        }
        self.apply(call, &args)
    }

    /// Charges and executes a call.
    fn apply(&mut self, call: &'a Call, args: &[Argument<'a>]) -> Argument<'a> {
        if !call.cost.needs_result() {
            self.charge_once(call.cost.charge(args, None)?)?;
            return self.invoke(call, args);
        }
        let result = self.invoke(call, args);
        if is_fatal(&result) {
            return result;
        }
        self.charge_once(call.cost.charge(args, Some(&result))?)?;
        result
    }

    fn invoke(&mut self, call: &'a Call, args: &[Argument<'a>]) -> Argument<'a> {
        let mut small: [Value<'a>; 3] = [Value::Null, Value::Null, Value::Null];
        let mut many = Vec::new();
        let values: &[Value<'a>] = if args.len() <= small.len() {
            for (place, arg) in small.iter_mut().zip(args) {
                *place = arg.clone()?;
            }
            small.split_at(args.len()).0
        } else {
            for arg in args {
                many.push(arg.clone()?);
            }
            &many
        };
        match &call.target {
            Target::Any(implementation) => implementation(self.budget(), values),
            Target::Overload(id, implementation) => {
                if functions::fits(*id, values) {
                    implementation(self.budget(), values)
                } else {
                    Err(functions::no_such_call(call.function, values))
                }
            }
            Target::Dispatch(function) => {
                functions::dispatch(function, call.function, self.budget(), values)
            }
            Target::Pattern(regex, kind) => pattern(regex, *kind, values),
        }
    }

    /// The remaining budget, which bounds the result size of functions.
    pub(crate) fn budget(&self) -> u64 {
        self.limit.saturating_sub(self.cost)
    }

    fn contained(&mut self, left: StepId, right: StepId, cost: CallCost) -> Result<bool, Error> {
        let left = self.operand(left)?;
        let right = self.operand(right)?;
        let args = [left, right];
        self.charge_once(cost.charge(&args, None)?)?;
        let [left, right] = args;
        let (left, right) = (left?, right?);
        if let Some(found) = typed::contains(&right, &left) {
            return found;
        }
        if let (Value::Typed(..), None) = (&right, left.as_str()) {
            return Err(Error::no_such_overload());
        }
        match &right {
            _ if right.is_list() => Ok(contains(&right, &left)),
            Value::Map(map) => {
                if !map.is_empty() {
                    check_hashable(&left)?;
                }
                Ok(map.get(&left).is_some())
            }
            _ if right.is_map() => Ok(right.map_get(&left).is_some()),
            _ => Err(Error::no_such_overload()),
        }
    }
}

/// The result of a logical operator whose left side did not determine it.
#[inline]
fn settle(
    first: Option<Error>,
    second: Result<Option<bool>, Error>,
    settles: bool,
) -> Result<bool, Error> {
    match (first, second) {
        (_, Ok(Some(b))) if b == settles => Ok(settles),
        (_, Err(error)) if error.is_fatal() => Err(error),
        (Some(error), _) | (None, Err(error)) => Err(error),
        (None, Ok(Some(_))) => Ok(!settles),
        (None, Ok(None)) => Err(Error::no_such_overload()),
    }
}

/// The boolean result of a call.
fn as_bool(value: Value<'_>) -> Result<bool, Error> {
    match value {
        Value::Bool(b) => Ok(b),
        _ => Err(Error::no_such_overload()),
    }
}

fn is_fatal(outcome: &Argument<'_>) -> bool {
    outcome.as_ref().is_err_and(Error::is_fatal)
}

/// Rejects a key of a type that contains a slice in Go: upstream stores maps and sets created by an
/// expression in hash tables, and its interpreter panics when it looks such a key up.
///
/// UPSTREAM: cel-go common/types/map.go (refValMapAccessor.Find)
fn check_hashable(key: &Value<'_>) -> Result<(), Error> {
    let unhashable = match key {
        Value::Bytes(_) => true,
        Value::Opaque(opaque) => matches!(**opaque, Opaque::Semver(_)),
        _ => false,
    };
    if unhashable {
        let found = key.go_type();
        return Err(Error::internal(format_args!(
            "runtime error: hash of unhashable type {found}"
        )));
    }
    Ok(())
}

/// Returns true if a list has an element equal to `value`.
pub(crate) fn contains(list: &Value<'_>, value: &Value<'_>) -> bool {
    if let (Value::Json(Json::Array(elements)), Some(text)) = (list, value.as_str()) {
        return elements
            .iter()
            .any(|e| matches!(e, Json::String(s) if s == text));
    }
    list.elements()
        .any(|element| value.equals_directly(&element) == Equality::Equal)
}

/// Borrows a constant of the program as a value.
#[inline]
fn constant<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::Str(text),
        Value::Bool(b) => Value::Bool(*b),
        Value::Int(i) => Value::Int(*i),
        other => other.clone(),
    }
}

fn pattern<'a>(regex: &Regex, kind: PatternCall, args: &[Value<'a>]) -> Argument<'a> {
    let Some(text) = args.first().and_then(Value::as_str) else {
        return Err(Error::no_such_overload());
    };
    match kind {
        PatternCall::Matches => Ok(Value::Bool(regex.is_match(text))),
        PatternCall::Find => Ok(regex.find(text).unwrap_or_default().to_owned().into()),
        PatternCall::FindAll => {
            let limit = match args.get(2) {
                None => -1,
                Some(Value::Int(limit)) => *limit,
                Some(_) => return Err(Error::no_such_overload()),
            };
            Ok(Value::texts(
                regex.find_all(text, limit).into_iter().map(str::to_owned),
            ))
        }
    }
}
