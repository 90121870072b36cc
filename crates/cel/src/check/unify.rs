//! Assignability of types, with inference of type parameters.
//!
//! UPSTREAM: cel-go checker/types.go

use std::sync::Arc;

use crate::types::Type;

/// The maximum number of components of an inferred type. A map of maps doubles with each variable that refers to the
/// previous one; larger types become `dyn`, and are checked at evaluation.
const MAX_PARTS: usize = 256;
/// The maximum number of component pairs compared by one assignment; beyond that, any type is assignable.
const MAX_STEPS: usize = 4096;

/// The type parameters inferred so far.
#[derive(Debug, Default)]
pub(crate) struct Substitution {
    bound: Vec<Option<Type>>,
    /// The remaining steps of the current assignment.
    left: usize,
    /// Bindings to undo when an attempt fails: the parameter and its previous type.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    fn find(&self, param: u32) -> Option<&Type> {
        self.bound.get(param as usize)?.as_ref()
    }

    fn bind(&mut self, param: u32, to: Type) {
        let at = param as usize;
        if self.bound.len() <= at {
            self.bound.resize(at + 1, None);
        }
        if let Some(slot) = self.bound.get_mut(at) {
            self.trail.push((param, slot.replace(to)));
        }
    }

    fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((param, before)) = self.trail.pop()
                && let Some(slot) = self.bound.get_mut(param as usize)
            {
                *slot = before;
            }
        }
    }

    /// Assigns every type of `from` to its counterpart; bindings are kept only if all succeed.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        self.left = MAX_STEPS;
        let fits = self.all_assignable(from, to);
        if !fits {
            self.undo(mark);
        }
        fits
    }

    /// Assigns `from` to `to`; bindings are kept only on success.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        let mark = self.trail.len();
        self.left = MAX_STEPS;
        let fits = self.assignable(from, to);
        if !fits {
            self.undo(mark);
        }
        fits
    }

    fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(a, b)| self.assignable(a, b))
    }

    fn assignable(&mut self, t1: &Type, t2: &Type) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            return true;
        };
        self.left = left;
        if let Type::Param(p2) = t2 {
            let (valid, known) = self.substitutes(t1, *p2);
            if valid {
                return true;
            }
            if known {
                return false;
            }
        }
        if let Type::Param(p1) = t1 {
            return self.substitutes(t2, *p1).0;
        }
        if t1.is_dyn_or_error() || t2.is_dyn_or_error() {
            return true;
        }
        match (t1.unwrapped(), t2.unwrapped()) {
            (Type::Null, _) => accepts_null(t2),
            (_, Type::Null) => accepts_null(t1),
            (Type::TypeOf(_), Type::TypeOf(_)) => true,
            (Type::List(a), Type::List(b)) => self.assignable(a, b),
            (Type::Map(a), Type::Map(b)) => {
                self.assignable(&a.0, &b.0) && self.assignable(&a.1, &b.1)
            }
            (Type::Opaque(a, p), Type::Opaque(b, q)) => a == b && self.all_assignable(p, q),
            (Type::Object(a), Type::Object(b)) => a == b,
            (
                Type::Bool
                | Type::Bytes
                | Type::Double
                | Type::Int
                | Type::String
                | Type::Uint
                | Type::Duration
                | Type::Timestamp,
                _,
            ) => std::mem::discriminant(t1.unwrapped()) == std::mem::discriminant(t2.unwrapped()),
            _ => false,
        }
    }

    /// Returns whether `t1` is assignable to `param`, and whether `param` was bound.
    fn substitutes(&mut self, t1: &Type, param: u32) -> (bool, bool) {
        if matches!(t1, Type::Param(p) if *p == param) {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if t1.is_exactly(&known) {
                return (true, true);
            }
            if self.assignable(t1, &known) {
                let general = most_general(t1, &known);
                if self.absent(param, &general) {
                    self.bind(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent(param, t1) {
            self.bind(param, t1.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Occurs check: returns true if `param` does not occur within `t`, up to the step limit.
    fn absent(&self, param: u32, t: &Type) -> bool {
        let mut open = vec![t];
        for _ in 0..MAX_STEPS {
            match open.pop() {
                None => return true,
                Some(Type::Param(p)) if *p == param => return false,
                Some(Type::Param(p)) => open.extend(self.find(*p)),
                Some(Type::Map(kv)) => open.extend([&kv.0, &kv.1]),
                Some(t) => open.extend(t.params()),
            }
        }
        false
    }

    /// Returns true if these types together have too many components for an inferred type.
    pub(crate) fn is_large(&self, types: &[&Type]) -> bool {
        let mut open = types.to_vec();
        for _ in 0..MAX_PARTS {
            match open.pop() {
                None => return false,
                Some(Type::Param(p)) => open.extend(self.find(*p)),
                Some(Type::Map(kv)) => open.extend([&kv.0, &kv.1]),
                Some(t) => open.extend(t.params()),
            }
        }
        true
    }

    /// Substitutes bound parameters in `t`; unbound ones become `dyn` with `unknown_as_dyn`.
    pub(crate) fn apply(&self, t: &Type, unknown_as_dyn: bool) -> Type {
        self.apply_within(t, unknown_as_dyn, &mut { MAX_PARTS })
    }

    fn apply_within(&self, t: &Type, unknown_as_dyn: bool, left: &mut usize) -> Type {
        if is_ground(t) {
            return t.clone();
        }
        let Some(rest) = left.checked_sub(1) else {
            return Type::Dyn;
        };
        *left = rest;
        let mut apply = |t: &Type| self.apply_within(t, unknown_as_dyn, left);
        match t {
            Type::Param(p) => match self.find(*p) {
                Some(known) => apply(known),
                None if unknown_as_dyn => Type::Dyn,
                None => t.clone(),
            },
            Type::List(element) => Type::list(apply(element)),
            Type::Map(kv) => {
                let key = apply(&kv.0);
                Type::map(key, apply(&kv.1))
            }
            Type::TypeOf(Some(of)) => Type::TypeOf(Some(Arc::new(apply(of)))),
            Type::Opaque(name, params) => {
                Type::Opaque(name.clone(), params.iter().map(apply).collect())
            }
            _ => t.clone(),
        }
    }
}

/// Returns true if no type parameter occurs in `t`.
fn is_ground(t: &Type) -> bool {
    match t {
        Type::Param(_) => false,
        Type::Map(kv) => is_ground(&kv.0) && is_ground(&kv.1),
        _ => t.params().iter().all(is_ground),
    }
}

/// Renumbers the parameters of `t`, numbered from zero, to start at `base`.
pub(crate) fn instantiate(t: &Type, base: u32) -> Type {
    match t {
        Type::Param(p) => Type::Param(base + p),
        _ if is_ground(t) => t.clone(),
        Type::List(element) => Type::list(instantiate(element, base)),
        Type::Map(kv) => Type::map(instantiate(&kv.0, base), instantiate(&kv.1, base)),
        Type::TypeOf(Some(of)) => Type::TypeOf(Some(Arc::new(instantiate(of, base)))),
        Type::Opaque(name, params) => Type::Opaque(
            name.clone(),
            params.iter().map(|p| instantiate(p, base)).collect(),
        ),
        _ => t.clone(),
    }
}

/// The more general of two types.
pub(crate) fn most_general(t1: &Type, t2: &Type) -> Type {
    if says_no_more(t1, t2) {
        t1.clone()
    } else {
        t2.clone()
    }
}

fn says_no_more(t1: &Type, t2: &Type) -> bool {
    if t1.is_dyn() || matches!(t1, Type::Param(_)) {
        return true;
    }
    if t2.is_dyn() || matches!(t2, Type::Param(_)) {
        return false;
    }
    match (t1.unwrapped(), t2.unwrapped()) {
        (Type::Opaque(a, p), Type::Opaque(b, q)) => {
            a == b && p.len() == q.len() && p.iter().zip(q.iter()).all(|(x, y)| says_no_more(x, y))
        }
        (Type::List(a), Type::List(b)) => says_no_more(a, b),
        (Type::Map(a), Type::Map(b)) => says_no_more(&a.0, &b.0) && says_no_more(&a.1, &b.1),
        (Type::TypeOf(_), Type::TypeOf(_)) => true,
        (a, b) => a.is_exactly(b),
    }
}

/// Returns true for nullable types.
fn accepts_null(t: &Type) -> bool {
    matches!(
        t,
        Type::Null
            | Type::Opaque(..)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
            | Type::Wrapper(_)
    )
}
