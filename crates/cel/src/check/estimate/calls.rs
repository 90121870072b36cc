//! The estimated cost of calls.
//!
//! UPSTREAM: cel-go checker/cost.go functionCost, ext/lists.go, ext/sets.go;
//! apiserver pkg/cel/library/cost.go EstimateCallCost

use super::{CallEstimate, Coster, Entry, Estimate, Operand};
use crate::syntax::ast::{Expr, Literal, NodeId};
use crate::types::Type;

/// The maximum length of a named format's pattern.
const MAX_FORMAT_PATTERN: f64 = 128.0;
/// The maximum length of a format's name.
const MAX_FORMAT_NAME: u64 = 64;

const TENTH: f64 = 0.1;
const QUARTER: f64 = 0.25;

impl Coster<'_, '_, '_> {
    pub(super) fn function(
        &mut self,
        id: NodeId,
        function: &str,
        overload: &str,
        target: Option<&Operand>,
        args: &[Operand],
        costs: &[Estimate],
    ) -> CallEstimate {
        let arguments = costs
            .iter()
            .fold(Estimate::ZERO, |sum, cost| sum.plus(*cost));
        let extension = self
            .list_function(overload, target, args)
            .or_else(|| self.kubernetes(function, overload, target, args));
        if let Some(estimated) = extension {
            let CallEstimate { cost, result } = estimated;
            return CallEstimate {
                cost: cost.plus(arguments),
                result,
            };
        }
        self.standard(id, overload, target, args, costs, arguments)
    }

    fn known(operand: &Operand) -> Estimate {
        operand.size.unwrap_or(Estimate::UNKNOWN)
    }

    /// The size of an operand, queried again where Kubernetes does so.
    fn sized(&self, operand: &Operand) -> Estimate {
        let t = self.checked.type_of(operand.id);
        let asked = || self.sizes.size(&operand.path, t);
        operand.size.or_else(asked).unwrap_or(Estimate::UNKNOWN)
    }

    /// The size of the elements of a list, if it is one.
    fn element(&self, list: &Operand) -> Option<(Type, Estimate)> {
        let t = match self.checked.type_of(list.id) {
            Type::Map(kv) => kv.0.clone(),
            other => other.params().first()?.clone(),
        };
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push("@items".to_owned());
        }
        let size = self.sizes.size(&path, &t).unwrap_or(Estimate::UNKNOWN);
        Some((t, size))
    }

    fn literal_int(&self, operand: &Operand) -> Option<i64> {
        match self.checked.ast.expr(operand.id) {
            Expr::Literal(Literal::Int(i)) => Some(*i),
            _ => None,
        }
    }

    fn list_function(
        &self,
        overload: &str,
        target: Option<&Operand>,
        args: &[Operand],
    ) -> Option<CallEstimate> {
        let built = |factor: f64, size: Estimate| CallEstimate {
            cost: size.scaled(factor).plus(Estimate::exactly(11)),
            result: Some(size),
        };
        let count = |operand: &Operand, default: u64| match self.literal_int(operand) {
            Some(i) => u64::try_from(i).unwrap_or(0),
            None => default,
        };
        let sets = |times: f64| {
            let [a, b] = args else { return None };
            let product = self.sized(a).times(self.sized(b));
            Some(CallEstimate {
                cost: product.scaled(times).plus(Estimate::ONE),
                result: None,
            })
        };
        let compared = |list: &Operand| {
            let textual =
                overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
            let size = self.sized(list);
            built(if textual { 2.0 + TENTH } else { 2.0 }, size.times(size))
        };
        match (overload, target, args) {
            ("list_slice", Some(list), [start, end]) => {
                let (start, end) = (count(start, 0), count(end, self.sized(list).max));
                Some(built(1.0, Estimate::exactly(end.wrapping_sub(start))))
            }
            ("lists_range", None, [n]) => Some(built(1.0, Estimate::exactly(count(n, u64::MAX)))),
            ("list_reverse", Some(list), []) => Some(built(1.0, self.sized(list))),
            ("list_flatten", Some(list), []) => Some(built(1.0, self.sized(list))),
            ("list_flatten_int", Some(list), [depth]) => {
                Some(built(count(depth, u64::MAX) as f64, self.sized(list)))
            }
            ("list_distinct", Some(list), []) => {
                let size = self.sized(list);
                Some(built(2.0, size.times(size)))
            }
            ("list_sets_contains_list" | "list_sets_intersects_list", _, _) => sets(1.0),
            ("list_sets_equivalent_list", _, _) => sets(2.0),
            (name, Some(list), []) if name.ends_with("_sort") => Some(compared(list)),
            (name, Some(_), [keys]) if name.ends_with("_sortByAssociatedKeys") => {
                Some(compared(keys))
            }
            _ => None,
        }
    }

    fn kubernetes(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Operand>,
        args: &[Operand],
    ) -> Option<CallEstimate> {
        let only = |cost: Estimate| Some(CallEstimate { cost, result: None });
        let with = |cost: Estimate, size: Estimate| {
            Some(CallEstimate {
                cost,
                result: Some(size),
            })
        };
        let text = |size: Estimate| size.scaled(TENTH);
        let first = args.first();
        let address = Estimate { min: 4, max: 16 };
        match function {
            "check" => only(Estimate::exactly(350_000)),
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => only(Estimate::ONE),
            "fieldSelector" | "labelSelector" => {
                let length = self.sized(first?);
                let requirements = length.scaled(0.5).scaled(50.0);
                only(Estimate::exactly(10).plus(text(length)).plus(requirements))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let list = target?;
                match self.element(list) {
                    Some((t, size)) => {
                        let textual = matches!(t, Type::String | Type::Bytes);
                        let more = if textual { text(size) } else { Estimate::ZERO };
                        only(self.sized(list).times(Estimate::ONE.plus(more)))
                    }
                    None => only(text(self.sized(list))),
                }
            }
            "url" | "jsonpatch.escapeKey" => {
                let size = self.sized(first?);
                with(text(size), size)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.sized(target?);
                with(text(size), size)
            }
            "replace" => {
                let [old, new, ..] = args else { return None };
                let size = self.sized(target?);
                let replaced = replaced(size, self.sized(old), self.sized(new));
                with(size.scaled(2.0 * TENTH), replaced)
            }
            "split" => {
                let size = self.sized(target?);
                let most = args.get(1).and_then(|limit| self.literal_int(limit));
                let max = most.map_or(size.max, |limit| limit as u64);
                with(size.scaled(2.0 * TENTH), Estimate { min: 0, max })
            }
            "join" => {
                let list = target?;
                let count = self.sized(list);
                let mut size = self
                    .element(list)
                    .map_or(Estimate::ZERO, |(_, e)| count.times(e));
                if let Some(separator) = first {
                    let separators = Estimate {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(self.sized(separator).times(separators));
                }
                with(text(size), size)
            }
            "find" | "findAll" => {
                let size = self.sized(target?);
                let pattern = self.sized(first?).scaled(QUARTER);
                let cost = text(size.plus(Estimate::ONE)).times(pattern);
                with(
                    cost,
                    Estimate {
                        min: 0,
                        max: size.max,
                    },
                )
            }
            "ip" if overload == "cidr_ip" => only(Estimate::ONE),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => only(text(self.sized(first?))),
            "ip.isCanonical" => only(self.sized(first?).scaled(2.0 * TENTH)),
            "containsIP" => {
                let mut cost = text(address.plus(address));
                if overload == "cidr_contains_ip_string" {
                    cost = cost.plus(text(self.sized(first?)));
                }
                only(cost)
            }
            "containsCIDR" => {
                let mut cost = text(address.plus(address))
                    .plus(text(address))
                    .plus(Estimate::ONE);
                if overload == "cidr_contains_cidr_string" {
                    cost = cost.plus(text(self.sized(first?)));
                }
                only(cost)
            }
            "validate" => only(text(self.sized(first?)).scaled(MAX_FORMAT_PATTERN * QUARTER)),
            "_==_" => self.library_equality(args),
            _ => None,
        }
    }

    /// Equality of two values of the same library type.
    fn library_equality(&self, args: &[Operand]) -> Option<CallEstimate> {
        let [left, right] = args else { return None };
        let (t, other) = (
            self.checked.type_of(left.id),
            self.checked.type_of(right.id),
        );
        if !t.is_exactly(other) {
            return None;
        }
        let cost = match t.name() {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Estimate::ONE,
            name if name.starts_with("kubernetes.authorization.") => Estimate::ONE,
            "kubernetes.NamedFormat" => Estimate {
                min: 1,
                max: MAX_FORMAT_NAME,
            }
            .scaled(TENTH),
            "kubernetes.URL" => {
                let max = right.size.map_or(1, |size| size.max);
                Estimate { min: 1, max }.scaled(TENTH)
            }
            _ => return None,
        };
        Some(CallEstimate { cost, result: None })
    }

    fn standard(
        &mut self,
        id: NodeId,
        overload: &str,
        target: Option<&Operand>,
        args: &[Operand],
        costs: &[Estimate],
        arguments: Estimate,
    ) -> CallEstimate {
        let only = |cost: Estimate| CallEstimate {
            cost: cost.plus(arguments),
            result: None,
        };
        let with = |cost: Estimate, size: Estimate| CallEstimate {
            cost: cost.plus(arguments),
            result: Some(size),
        };
        match (overload, target, args) {
            ("string_format", Some(format), _) => only(Self::known(format).scaled(TENTH)),
            ("string_to_bytes", _, [text]) => {
                let size = Self::known(text);
                let max = size.max.wrapping_mul(4);
                with(size.scaled(TENTH), Estimate { min: size.min, max })
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = Self::known(bytes);
                with(
                    size.scaled(TENTH),
                    Estimate {
                        min: size.min / 4,
                        max: size.max,
                    },
                )
            }
            ("strings_quote", _, [text]) => {
                let size = Self::known(text);
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                with(
                    size.scaled(TENTH),
                    Estimate {
                        min: size.min.wrapping_add(2),
                        max,
                    },
                )
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                only(Self::known(part).scaled(TENTH))
            }
            ("in_list", _, [_, list]) => only(Self::known(list).scaled(1.0)),
            ("matches_string", Some(text), [pattern]) => {
                let text = Self::known(text).plus(Estimate::ONE).scaled(TENTH);
                only(text.times(Self::known(pattern).scaled(QUARTER)))
            }
            ("contains_string", Some(text), [part]) => only(
                Self::known(text)
                    .scaled(TENTH)
                    .times(Self::known(part).scaled(TENTH)),
            ),
            ("logical_or" | "logical_and", _, _) => {
                let [left, right] = costs else {
                    return only(Estimate::UNKNOWN);
                };
                let cost = Estimate {
                    min: left.min,
                    max: left.plus(*right).max,
                };
                CallEstimate { cost, result: None }
            }
            ("conditional", _, [_, yes, no]) => {
                let size = Self::known(yes).union(Self::known(no));
                let entry = Entry::union(self.entry(yes.id), self.entry(no.id));
                self.set_entry(id, entry);
                let [condition, yes, no] = costs else {
                    return only(Estimate::UNKNOWN);
                };
                CallEstimate {
                    cost: condition.plus(yes.union(*no)),
                    result: Some(size),
                }
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = Self::known(left).plus(Self::known(right));
                let entry = Entry::union(self.entry(left.id), self.entry(right.id));
                self.set_entry(id, entry);
                let cost = if overload == "add_list" {
                    Estimate::ONE
                } else {
                    size.scaled(TENTH)
                };
                with(cost, size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = Self::known(left).max.min(Self::known(right).max);
                only(
                    Estimate {
                        min: u64::from(max > 0),
                        max,
                    }
                    .scaled(TENTH),
                )
            }
            _ => only(Estimate::ONE),
        }
    }
}

/// The size of a string after `replace`.
fn replaced(size: Estimate, old: Estimate, new: Estimate) -> Estimate {
    let parts = |whole: u64, part: u64| (whole as f64 / part as f64).ceil() as u64;
    let (max_count, max_kept) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (parts(size.max, old.min), 0)
    };
    let (min_count, min_kept) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (parts(size.min, old.max), 0)
    };
    Estimate {
        min: min_count,
        max: max_count,
    }
    .times(new)
    .plus(Estimate {
        min: min_kept,
        max: max_kept,
    })
}
