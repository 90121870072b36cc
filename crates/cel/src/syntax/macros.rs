//! The macros and their expansions.
//!
//! Expansions are observable: type errors refer to their nodes and their steps are charged. So each
//! is built exactly as in upstream.
//!
//! UPSTREAM: cel-go parser/macro.go, ext/comprehensions.go, ext/lists.go, cel/library.go

use std::borrow::Cow;

use super::ast::{Ast, Comprehension, Expr, Literal, Name, NodeId, operators as op};

/// The offset of the argument rejected by a macro, and the error message.
type Refusal = (u32, String);
type Expanded = Result<NodeId, Refusal>;

/// Expands a call if a macro matches its name, style and number of arguments.
pub(super) fn expand<'s>(
    ast: &mut Ast<'s>,
    offset: u32,
    function: &str,
    target: Option<NodeId>,
    args: &[NodeId],
) -> Option<Expanded> {
    let mut x = Expander { ast, offset };
    Some(match (target, function, args) {
        (None, "has", [arg]) => x.has(*arg),
        (Some(range), "all", [var, test]) => {
            x.quantifier(Quantifier::All, range, *var, None, *test)
        }
        (Some(range), "all", [var, var2, test]) => {
            x.quantifier(Quantifier::All, range, *var, Some(*var2), *test)
        }
        (Some(range), "exists", [var, test]) => {
            x.quantifier(Quantifier::Exists, range, *var, None, *test)
        }
        (Some(range), "exists", [var, var2, test]) => {
            x.quantifier(Quantifier::Exists, range, *var, Some(*var2), *test)
        }
        (Some(range), "exists_one", [var, test]) => {
            x.quantifier(Quantifier::ExistsOne, range, *var, None, *test)
        }
        (Some(range), "exists_one" | "existsOne", [var, var2, test]) => {
            x.quantifier(Quantifier::ExistsOne, range, *var, Some(*var2), *test)
        }
        (Some(range), "map", [var, transform]) => x.map(range, *var, None, *transform),
        (Some(range), "map", [var, filter, transform]) => {
            x.map(range, *var, Some(*filter), *transform)
        }
        (Some(range), "filter", [var, test]) => x.filter(range, *var, *test),
        (Some(range), "transformList", [k, v, transform]) => {
            x.transform_list(range, *k, *v, None, *transform)
        }
        (Some(range), "transformList", [k, v, filter, transform]) => {
            x.transform_list(range, *k, *v, Some(*filter), *transform)
        }
        (Some(range), "transformMap", [k, v, transform]) => {
            x.transform_map(range, *k, *v, None, *transform, true)
        }
        (Some(range), "transformMap", [k, v, filter, transform]) => {
            x.transform_map(range, *k, *v, Some(*filter), *transform, true)
        }
        (Some(range), "transformMapEntry", [k, v, transform]) => {
            x.transform_map(range, *k, *v, None, *transform, false)
        }
        (Some(range), "transformMapEntry", [k, v, filter, transform]) => {
            x.transform_map(range, *k, *v, Some(*filter), *transform, false)
        }
        (Some(range), "sortBy", [var, key]) => x.sort_by(range, *var, *key),
        (Some(range), "optMap", [var, transform]) => x.opt_map(range, *var, *transform, false),
        (Some(range), "optFlatMap", [var, transform]) => x.opt_map(range, *var, *transform, true),
        _ => return None,
    })
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

/// The parts of a comprehension that differ between macros.
struct Loop<'s> {
    range: NodeId,
    var: Name<'s>,
    var2: Option<Name<'s>>,
    accu: Name<'s>,
    init: NodeId,
    condition: NodeId,
    step: NodeId,
    result: NodeId,
}

/// Builds nodes, all with the offset of the macro's opening parenthesis.
struct Expander<'a, 's> {
    ast: &'a mut Ast<'s>,
    offset: u32,
}

impl<'s> Expander<'_, 's> {
    fn add(&mut self, expr: Expr<'s>) -> NodeId {
        self.ast.add(self.offset, expr)
    }

    fn literal(&mut self, value: Literal<'s>) -> NodeId {
        self.add(Expr::Literal(value))
    }

    fn ident(&mut self, name: Name<'s>) -> NodeId {
        self.add(Expr::Ident(name))
    }

    fn accu(&mut self) -> NodeId {
        self.ident(Cow::Borrowed(op::ACCUMULATOR))
    }

    fn list(&mut self, elements: Vec<NodeId>) -> NodeId {
        let optional = vec![false; elements.len()];
        self.add(Expr::List { elements, optional })
    }

    fn call(&mut self, function: &'static str, args: Vec<NodeId>) -> NodeId {
        self.add(Expr::Call {
            function: Cow::Borrowed(function),
            target: None,
            args,
        })
    }

    fn method(&mut self, function: &'static str, target: NodeId, args: Vec<NodeId>) -> NodeId {
        self.add(Expr::Call {
            function: Cow::Borrowed(function),
            target: Some(target),
            args,
        })
    }

    fn comprehension(&mut self, parts: Loop<'s>) -> NodeId {
        let Loop {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        } = parts;
        self.add(Expr::Comprehension(Box::new(Comprehension {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        })))
    }

    fn reject<T>(&self, at: NodeId, message: &str) -> Result<T, Refusal> {
        Err((self.ast.offset(at), message.to_owned()))
    }

    fn simple_name(&self, arg: NodeId, message: &str) -> Result<Name<'s>, Refusal> {
        match self.ast.expr(arg) {
            Expr::Ident(name) => Ok(name.clone()),
            _ => self.reject(arg, message),
        }
    }

    fn not_accumulator(&self, arg: NodeId, name: &str) -> Result<(), Refusal> {
        if name == op::ACCUMULATOR || name == op::OLD_ACCUMULATOR {
            return self.reject(arg, "iteration variable overwrites accumulator variable");
        }
        Ok(())
    }

    fn loop_var(&self, arg: NodeId, message: &str) -> Result<Name<'s>, Refusal> {
        let name = self.simple_name(arg, message)?;
        self.not_accumulator(arg, &name)?;
        Ok(name)
    }

    fn loop_vars(&self, first: NodeId, second: NodeId) -> Result<(Name<'s>, Name<'s>), Refusal> {
        let message = "argument must be a simple name";
        let name = self.simple_name(first, message)?;
        let name2 = self.simple_name(second, message)?;
        if name == name2 {
            return self.reject(second, &format!("duplicate variable name: {name}"));
        }
        self.not_accumulator(first, &name)?;
        self.not_accumulator(second, &name2)?;
        Ok((name, name2))
    }

    fn has(&mut self, arg: NodeId) -> Expanded {
        match self.ast.expr(arg) {
            Expr::Select { operand, field, .. } => {
                let (operand, field) = (*operand, field.clone());
                Ok(self.add(Expr::Select {
                    operand,
                    field,
                    test_only: true,
                }))
            }
            _ => self.reject(arg, "invalid argument to has() macro"),
        }
    }

    fn quantifier(
        &mut self,
        kind: Quantifier,
        range: NodeId,
        var: NodeId,
        var2: Option<NodeId>,
        test: NodeId,
    ) -> Expanded {
        let (var, var2) = match var2 {
            None => (self.loop_var(var, "argument must be a simple name")?, None),
            Some(var2) => {
                let (var, var2) = self.loop_vars(var, var2)?;
                (var, Some(var2))
            }
        };
        let (init, condition, step, result) = match kind {
            Quantifier::All => {
                let init = self.literal(Literal::Bool(true));
                let accu = self.accu();
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![accu]);
                let accu = self.accu();
                let step = self.call(op::AND, vec![accu, test]);
                (init, condition, step, self.accu())
            }
            Quantifier::Exists => {
                let init = self.literal(Literal::Bool(false));
                let accu = self.accu();
                let not = self.call(op::NOT, vec![accu]);
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![not]);
                let accu = self.accu();
                let step = self.call(op::OR, vec![accu, test]);
                (init, condition, step, self.accu())
            }
            Quantifier::ExistsOne => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let accu = self.accu();
                let one = self.literal(Literal::Int(1));
                let more = self.call(op::ADD, vec![accu, one]);
                let accu = self.accu();
                let step = self.call(op::CONDITIONAL, vec![test, more, accu]);
                let accu = self.accu();
                let one = self.literal(Literal::Int(1));
                (
                    init,
                    condition,
                    step,
                    self.call(op::EQUALS, vec![accu, one]),
                )
            }
        };
        let accu = Cow::Borrowed(op::ACCUMULATOR);
        Ok(self.comprehension(Loop {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        }))
    }

    /// A loop that appends `element` to a list for each item that the condition accepts.
    fn collect(
        &mut self,
        range: NodeId,
        (var, var2): (Name<'s>, Option<Name<'s>>),
        filter: Option<NodeId>,
        element: NodeId,
    ) -> NodeId {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let accu = self.accu();
        let element = self.list(vec![element]);
        let mut step = self.call(op::ADD, vec![accu, element]);
        if let Some(filter) = filter {
            let accu = self.accu();
            step = self.call(op::CONDITIONAL, vec![filter, step, accu]);
        }
        let result = self.accu();
        let accu = Cow::Borrowed(op::ACCUMULATOR);
        self.comprehension(Loop {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        })
    }

    fn map(
        &mut self,
        range: NodeId,
        var: NodeId,
        filter: Option<NodeId>,
        transform: NodeId,
    ) -> Expanded {
        let name = self.loop_var(var, "argument is not an identifier")?;
        Ok(self.collect(range, (name, None), filter, transform))
    }

    fn filter(&mut self, range: NodeId, var: NodeId, test: NodeId) -> Expanded {
        let name = self.loop_var(var, "argument is not an identifier")?;
        Ok(self.collect(range, (name, None), Some(test), var))
    }

    fn transform_list(
        &mut self,
        range: NodeId,
        var: NodeId,
        var2: NodeId,
        filter: Option<NodeId>,
        transform: NodeId,
    ) -> Expanded {
        let (name, name2) = self.loop_vars(var, var2)?;
        Ok(self.collect(range, (name, Some(name2)), filter, transform))
    }

    fn transform_map(
        &mut self,
        range: NodeId,
        var: NodeId,
        var2: NodeId,
        filter: Option<NodeId>,
        transform: NodeId,
        keep_key: bool,
    ) -> Expanded {
        let (var, name2) = self.loop_vars(var, var2)?;
        let mut args = vec![self.accu()];
        if keep_key {
            args.push(self.ident(var.clone()));
        }
        args.push(transform);
        let mut step = self.call("cel.@mapInsert", args);
        if let Some(filter) = filter {
            let accu = self.accu();
            step = self.call(op::CONDITIONAL, vec![filter, step, accu]);
        }
        let init = self.add(Expr::Map {
            entries: Vec::new(),
        });
        let condition = self.literal(Literal::Bool(true));
        let result = self.accu();
        let accu = Cow::Borrowed(op::ACCUMULATOR);
        let var2 = Some(name2);
        Ok(self.comprehension(Loop {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        }))
    }

    /// A comprehension over an empty list, which only binds `name` to `value`.
    fn bind(&mut self, name: Name<'s>, value: NodeId, step: NodeId, result: NodeId) -> NodeId {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        self.comprehension(Loop {
            range,
            var: Cow::Borrowed(op::UNUSED),
            var2: None,
            accu: name,
            init: value,
            condition,
            step,
            result,
        })
    }

    fn sort_by(&mut self, target: NodeId, var: NodeId, key: NodeId) -> Expanded {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(
            self.ast.expr(target),
            Expr::Literal(_) | Expr::Map { .. } | Expr::Struct { .. } | Expr::Unspecified
        ) {
            return self.reject(
                target,
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            );
        }
        let step = self.ident(Cow::Borrowed(INPUT));
        let input = self.ident(Cow::Borrowed(INPUT));
        let keys = self.map(input, var, None, key)?;
        let input = self.ident(Cow::Borrowed(INPUT));
        let sorted = self.method("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(Cow::Borrowed(INPUT), target, step, sorted))
    }

    fn opt_map(&mut self, target: NodeId, var: NodeId, transform: NodeId, flat: bool) -> Expanded {
        let message = if flat {
            "optFlatMap() variable name must be a simple identifier"
        } else {
            "optMap() variable name must be a simple identifier"
        };
        let name = self.simple_name(var, message)?;
        let test = self.method("hasValue", target, Vec::new());
        let copy = self.ast.copy(target, self.offset);
        let value = self.method("value", copy, Vec::new());
        let step = self.ident(name.clone());
        let mut found = self.bind(name, value, step, transform);
        if !flat {
            found = self.call("optional.of", vec![found]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call(op::CONDITIONAL, vec![test, found, none]))
    }
}
