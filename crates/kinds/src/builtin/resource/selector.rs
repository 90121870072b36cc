//! CEL selectors of devices.
//!
//! UPSTREAM: dynamic-resource-allocation cel/compile.go

use std::sync::OnceLock;

use lockgate_api::field::FieldErrors;
use lockgate_cel::check::{Estimate, Sizes};
use lockgate_cel::program::{CompileError, compile_one_of, estimate_cost};
use lockgate_cel::{Environment, Type};

use crate::at::At;

const EXPRESSION_MAX: usize = 10 * 1024;
const COST_MAX: u64 = 1_000_000;
const DRIVER_MAX: u64 = 63;
const DOMAIN_MAX: u64 = 63;
const ID_MAX: u64 = 32;
const ATTRIBUTE_MAX: u64 = 64;
/// The maximum number of attributes and capacities of a device.
const ENTRIES_MAX: u64 = 32;

/// The variable `device`.
fn environment() -> &'static Environment {
    const DEVICE: &str = "kubernetes.DRADevice";
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let by_name = |of| Type::map(Type::String, Type::map(Type::String, of));
        let fields = [
            ("driver", Type::String),
            ("allowMultipleAllocations", Type::Bool),
            ("attributes", by_name(Type::Any)),
            ("capacity", by_name(Type::object("kubernetes.Quantity"))),
        ];
        Environment::new()
            .object(DEVICE, fields)
            .variable("device", Type::object(DEVICE))
    })
}

/// The maximum sizes of a device's fields, for cost estimation.
#[derive(Debug)]
struct DeviceSizes;

impl Sizes for DeviceSizes {
    fn size(&self, path: &[String], _: &Type) -> Option<Estimate> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let max = match path.strip_prefix(&["device"])? {
            [] => 0,
            ["driver"] => DRIVER_MAX,
            ["allowMultipleAllocations"] => 1,
            ["attributes" | "capacity"] => ENTRIES_MAX,
            ["attributes" | "capacity", "@keys"] => DOMAIN_MAX,
            ["attributes" | "capacity", "@items" | "@values"] => ENTRIES_MAX,
            ["attributes" | "capacity", "@items" | "@values", "@keys"] => ID_MAX,
            ["capacity", "@items" | "@values", "@items" | "@values"] => 0,
            ["attributes", "@items" | "@values", _] => ATTRIBUTE_MAX,
            _ => return None,
        };
        Some(Estimate { min: 0, max })
    }
}

/// Validates the selector at `cel`.
pub(super) fn selector(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let cel = at.at("cel");
    if !cel.is_set() {
        return cel.required(errors);
    }
    let expression = cel.at("expression");
    if expression.text().len() > EXPRESSION_MAX {
        return expression.too_long(errors, EXPRESSION_MAX);
    }
    let (text, env) = (expression.text(), environment());
    match compile_one_of(text, env, &[Type::Bool, Type::Any]) {
        Ok(_) => {
            let estimate = estimate_cost(text, env, &DeviceSizes);
            if estimate.is_ok_and(|estimate| estimate.max > COST_MAX) {
                expression.forbidden(errors, "too complex, exceeds cost limit");
            }
        }
        Err(CompileError::TypeOneOf { found, .. }) => {
            let detail = format!("must evaluate to bool or the unknown type, not {found}");
            expression.invalid(errors, detail);
        }
        Err(error) => expression.invalid(errors, error.to_string()),
    }
}
