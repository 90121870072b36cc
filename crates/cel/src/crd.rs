//! Validation rules of custom resources: schema types of `self` and `oldSelf`, compilation, cost
//! and evaluation.
//!
//! ```
//! use lockgate_cel::crd::{Inputs, OldSelf, compile_rule, rule_too_costly};
//! use lockgate_cel::schema::Schema;
//! use lockgate_cel::{Limits, Value};
//!
//! let schema = Schema::from_json(&serde_json::json!({
//!     "type": "object",
//!     "properties": {
//!         "min-size": { "type": "integer" },
//!         "until": { "type": "string", "format": "date-time" },
//!     },
//! })).unwrap();
//! let rule = "self.min__dash__size > 1 && self.until.getFullYear() == 2030";
//! let rule = compile_rule(rule, &schema, OldSelf::Value).unwrap();
//! assert_eq!(rule_too_costly(rule.total_cost(Some(1))), None);
//!
//! let value = serde_json::json!({ "min-size": 2, "until": "2030-01-01T00:00:00Z" });
//! let inputs = Inputs::new(&schema, &value, None, OldSelf::Value);
//! let outcome = rule.evaluate(&inputs, Limits::default());
//! assert!(matches!(outcome.value, Ok(Value::Bool(true))));
//! ```
//!
//! # Map
//!
//! | module | is responsible for |
//! |---|---|
//! | `declare` | schemas as types, and sizes for the estimate of cost |
//! | `rule` | compiling, limits of cost, running |

mod declare;
mod rule;

pub(crate) use declare::{Declared, with_messages};

pub use rule::{
    Inputs, OldSelf, Rule, RuleError, Scope, compile_rule, message_too_costly, resource_too_costly,
    rule_too_costly,
};
