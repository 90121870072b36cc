//! The looping macros.
//!
//! Each loop charges the same as its expansion: the accumulator is read once for the condition and
//! once for the step, and once more for the result.

use serde_json::Value as Json;

use crate::eval::cost::Argument;
use crate::eval::machine::{Machine, Slot};
use crate::eval::program::{Loop, MapBody, StepId};
use crate::eval::record::Trace;
use crate::value::{Error, Map, Value, typed};

/// The result of an iteration: true to continue.
type Round = Result<bool, Error>;

impl<'a, T: Trace> Machine<'a, '_, T> {
    /// Runs `round` for each element or key until it returns false.
    ///
    /// Returns true if the loop was interrupted.
    fn each(
        &mut self,
        l: &'a Loop,
        mut round: impl FnMut(&mut Self) -> Round,
    ) -> Result<bool, Error> {
        let range = self.eval(l.range)?;
        match (&range, l.slot2) {
            (Value::Json(Json::Array(elements)), None) => {
                for element in elements {
                    self.set(l.slot, Slot::Ready(Ok(Value::from(element))));
                    if !round(self)? {
                        return Ok(false);
                    }
                    if self.interrupted() {
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
            (Value::Json(Json::Object(entries)), slot2) => {
                for (key, value) in entries {
                    self.set(l.slot, Slot::Ready(Ok(Value::Str(key))));
                    if let Some(slot2) = slot2 {
                        self.set(slot2, Slot::Ready(Ok(Value::from(value))));
                    }
                    if !round(self)? {
                        return Ok(false);
                    }
                    if self.interrupted() {
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
            _ => {}
        }
        if range.is_list() {
            for (at, element) in range.elements().enumerate() {
                match l.slot2 {
                    None => self.set(l.slot, Slot::Ready(element.into_result())),
                    Some(slot2) => {
                        self.set(l.slot, Slot::Ready(Ok(Value::Int(at as i64))));
                        self.set(slot2, Slot::Ready(element.into_result()));
                    }
                }
                if !round(self)? {
                    return Ok(false);
                }
                if self.interrupted() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        if let Value::Map(map) = &range {
            for (key, value) in map.entries() {
                self.set(l.slot, Slot::Ready(Ok(key.clone())));
                if let Some(slot2) = l.slot2 {
                    self.set(slot2, Slot::Ready(Ok(value.clone())));
                }
                if !round(self)? {
                    return Ok(false);
                }
                if self.interrupted() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        if let Value::Typed(Json::Object(entries), schema) = &range {
            for (key, value) in typed::entries(entries, schema) {
                self.set(l.slot, Slot::Ready(Ok(key)));
                if let Some(slot2) = l.slot2 {
                    self.set(slot2, Slot::Ready(value.into_result()));
                }
                if !round(self)? {
                    return Ok(false);
                }
                if self.interrupted() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        // Upstream iterates over the values of variables, and uses them as keys.
        if let (Value::Variables, Some(named)) = (&range, self.named) {
            for key in (0..named.len()).map_while(|at| named.at(at)) {
                if let Some(slot2) = l.slot2 {
                    let value = key
                        .as_ref()
                        .map_err(|_| Error::no_such_overload())
                        .and_then(|key| named.get(key));
                    self.set(slot2, Slot::Ready(value));
                }
                self.set(l.slot, Slot::Ready(key));
                if !round(self)? {
                    return Ok(false);
                }
                if self.interrupted() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let go_type = range.go_type();
        Err(if l.slot2.is_some() {
            Error::text(format_args!(
                "unsupported comprehension range type: {go_type}"
            ))
        } else {
            Error::text(format_args!("got '{go_type}', expected iterable type"))
        })
    }

    /// Ends a loop: the result is read once, unless the loop was interrupted.
    fn finish<R>(&mut self, interrupted: bool, result: Result<R, Error>) -> Result<R, Error> {
        if interrupted {
            return Err(Error::fixed("operation interrupted"));
        }
        self.charge(1)?;
        result
    }

    /// `all` and `exists`: stops at the first element that determines the result.
    pub(crate) fn quantifier(&mut self, l: &'a Loop, settles: bool) -> Result<bool, Error> {
        // `exists` negates the accumulator before testing it.
        let condition = if settles { 3 } else { 2 };
        let mut short_circuited = false;
        let mut failed: Option<Error> = None;
        let interrupted = self.each(l, |machine| {
            machine.charge(condition)?;
            if short_circuited {
                return Ok(false);
            }
            machine.charge(1)?;
            match machine.truth(l.body) {
                Ok(Some(b)) => short_circuited = b == settles,
                Ok(None) => {
                    failed.get_or_insert_with(Error::no_such_overload);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
            Ok(true)
        })?;
        let result = match failed {
            _ if short_circuited => Ok(settles),
            Some(error) => Err(error),
            None => Ok(!settles),
        };
        self.finish(interrupted, result)
    }

    /// `exists_one`: iterates over all elements.
    pub(crate) fn exists_one(&mut self, l: &'a Loop) -> Result<bool, Error> {
        let mut count: Result<u64, Error> = Ok(0);
        let interrupted = self.each(l, |machine| {
            match machine.operand(l.body)? {
                Ok(Value::Bool(true)) => {
                    machine.charge(2)?;
                    if let Ok(count) = &mut count {
                        *count += 1;
                    }
                }
                Ok(Value::Bool(false)) => {}
                Ok(_) => count = Err(Error::no_such_overload()),
                Err(error) => count = Err(error),
            }
            Ok(true)
        })?;
        if interrupted {
            return Err(Error::fixed("operation interrupted"));
        }
        self.charge(2)?;
        count.map(|count| count == 1)
    }

    /// Returns true if the filter accepts an element; errors are results of the accumulator.
    fn passes(&mut self, filter: Option<StepId>) -> Result<Result<bool, Error>, Error> {
        let Some(filter) = filter else {
            return Ok(Ok(true));
        };
        match self.truth(filter) {
            Ok(answer) => Ok(answer.ok_or_else(Error::no_such_overload)),
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }

    /// `map`, `filter` and `transformList`.
    pub(crate) fn collect(&mut self, l: &'a Loop, filter: Option<StepId>) -> Argument<'a> {
        let mut collected: Result<Vec<Value<'a>>, Error> = Ok(Vec::new());
        let interrupted = self.each(l, |machine| {
            match machine.passes(filter)? {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(error) => {
                    collected = Err(error);
                    return Ok(true);
                }
            }
            machine.charge(1)?;
            let element = machine.operand(l.body)?;
            machine.charge(1)?;
            match (&mut collected, element) {
                (Ok(list), Ok(element)) => list.extend(element.list_get(0)),
                (Ok(_), Err(error)) => collected = Err(error),
                (Err(_), _) => {}
            }
            Ok(true)
        })?;
        self.finish(interrupted, collected.map(Value::from))
    }

    /// `transformMap` and `transformMapEntry`.
    pub(crate) fn collect_map(
        &mut self,
        l: &'a Loop,
        filter: Option<StepId>,
        body: &MapBody,
    ) -> Argument<'a> {
        let mut collected: Result<Map<'a>, Error> = Ok(Map::default());
        let interrupted = self.each(l, |machine| {
            match machine.passes(filter)? {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(error) => {
                    collected = Err(error);
                    return Ok(true);
                }
            }
            machine.charge(1)?;
            if matches!(body, MapBody::Value) {
                // A failed accumulator ends the call before its other arguments.
                if collected.is_err() {
                    return Ok(true);
                }
                machine.charge(1)?;
            }
            let entries = machine.operand(l.body)?;
            machine.charge(1)?;
            let Ok(map) = &mut collected else {
                return Ok(true);
            };
            let key = match machine.local(l.slot) {
                Ok(key) => key,
                Err(error) => {
                    collected = Err(error);
                    return Ok(true);
                }
            };
            let outcome = match (entries, body) {
                (Err(error), _) => Err(error),
                (Ok(value), MapBody::Value) => insert(map, key, value),
                (Ok(entries), MapBody::Entries) if entries.is_map() => entries
                    .entries()
                    .try_for_each(|(key, value)| insert(map, key, value)),
                (Ok(other), MapBody::Entries) => Err(Error::text(format_args!(
                    "no such overload: cel.@mapInsert(map, {})",
                    other.type_name()
                ))),
            };
            if let Err(error) = outcome {
                collected = Err(error);
            }
            Ok(true)
        })?;
        self.finish(
            interrupted,
            collected.map(|map| Value::Map(std::sync::Arc::new(map))),
        )
    }
}

fn insert<'a>(map: &mut Map<'a>, key: Value<'a>, value: Value<'a>) -> Result<(), Error> {
    if map.get(&key).is_some() {
        return Err(Error::text(format_args!(
            "insert failed: key {key} already exists"
        )));
    }
    map.insert(key, value);
    Ok(())
}
