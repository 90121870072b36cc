//! CustomResourceDefinitions: defaults, validation, status, and the custom resources they define.
//!
//! A definition is a JSON object of `apiextensions.k8s.io/v1` whose fields have valid types.
//!
//! ```
//! use lockgate_kinds::crd::{self, CustomResource};
//! let mut definition = serde_json::json!({
//!     "apiVersion": "apiextensions.k8s.io/v1",
//!     "kind": "CustomResourceDefinition",
//!     "metadata": { "name": "widgets.example.com" },
//!     "spec": {
//!         "group": "example.com",
//!         "names": { "plural": "widgets", "kind": "Widget" },
//!         "scope": "Namespaced",
//!         "versions": [{
//!             "name": "v1", "served": true, "storage": true,
//!             "schema": { "openAPIV3Schema": { "type": "object", "properties": {
//!                 "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
//!             } } },
//!         }],
//!     },
//! });
//! crd::defaults(&mut definition);
//! crd::prepare_create(&mut definition);
//! assert_eq!(crd::validate_create(&definition), []);
//!
//! let widgets = CustomResource::compile(&definition).unwrap();
//! let v1 = widgets.version("v1").unwrap();
//! let widget = serde_json::json!({
//!     "apiVersion": "example.com/v1", "kind": "Widget",
//!     "metadata": { "name": "a", "namespace": "b" }, "spec": { "size": "large" },
//! });
//! assert_eq!(
//!     widgets.validate_create(v1, &widget).errors[0].to_string(),
//!     "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
//! );
//! ```
//!
//! # Map
//!
//! | module | is responsible for |
//! |---|---|
//! | `defaults`, `status` | defaults of a definition, and its status |
//! | `validation` | validation of definitions |
//! | `resource` | compiled definitions, and validation of custom resources |
//! | `scale` | custom resources as `autoscaling/v1` `Scale` |

mod defaults;
mod resource;
mod scale;
mod status;
mod validation;

pub use defaults::defaults;
pub use resource::{Column, Conversion, CustomResource, Scope, Version};
pub use scale::{NestedError, ScalePaths};
pub use status::{
    Condition, accept_names, api_approval, establish, has_status, non_structural_schema,
    prepare_create, prepare_status_update, prepare_update, remove_condition, set_condition,
};
pub use validation::{
    validate_create, validate_status_update, validate_update, warnings_on_create,
    warnings_on_update,
};
