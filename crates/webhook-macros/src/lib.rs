//! The attributes [`macro@webhook`] and [`macro@conversion`], which register a webhook next to its code.
//!
//! `lockgate-webhook` re-exports them; do not depend on this crate directly.

#![warn(missing_docs)]

mod expand;

use proc_macro::TokenStream;

/// Registers a validator or mutator: implements `Marked`, from which `Webhooks` gets its path and
/// `Webhooks::manifests` generates the configurations.
///
/// ```ignore
/// #[webhook(name = "pods.policy.example.com")]
/// impl Validator<Pod> for Policy {
///     async fn create(&self, ctx: &Context, object: &Object<Pod>) -> Verdict { Ok(()) }
/// }
/// ```
///
/// The kind of webhook follows from the trait, the verbs from the implemented methods, and, with the feature `kube`,
/// group, version, resource, scope and path from the type of the object. Everything else is given by the arguments of
/// kubebuilder's `+kubebuilder:webhook` in snake case; a value is a string, a number, or a bare word.
///
/// | Argument | Value | Default |
/// |---|---|---|
/// | `name` | a domain with at least three segments | required |
/// | `path` | the path | `/validate-GROUP-VERSION-KIND` or `/mutate-…` |
/// | `alias` | additional paths; `logical` is `/validate-KIND` or `/mutate-KIND` | none |
/// | `url` | a fixed URL, instead of path and Service | none |
/// | `groups`, `versions`, `resources` | lists | those of the type |
/// | `scope` | `cluster`, `namespaced` or `"*"` | that of the type, unless `resources` are given |
/// | `verbs` | `create`, `update`, `delete`, `connect` or `"*"` | implemented methods; `create, update` of a mutator |
/// | `failure_policy` | `fail` or `ignore` | `fail` |
/// | `match_policy` | `exact` or `equivalent` | the default of the API |
/// | `side_effects` | `none` or `none_on_dry_run` | `none` |
/// | `timeout_seconds` | 1 to 30 | the default of the API |
/// | `admission_review_versions` | `v1`, `v1beta1` | `v1` |
/// | `reinvocation_policy` | `never` or `if_needed`, for a mutator | the default of the API |
/// | `namespace_selector`, `object_selector` | `"team=red, env in (a, b), !legacy"` | everything |
/// | `match_conditions` | `("name" = "expression", …)` | none |
/// | `service_name`, `service_namespace`, `service_port` | the service | that of the manifests |
/// | `mutating`, `webhook_versions` | must agree with the trait; `v1` | |
#[proc_macro_attribute]
pub fn webhook(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

/// Registers the conversion of a kind on its hub: implements `MarkedHub`, from which `Conversion::marked` gets path
/// and resource, and `Webhooks::manifests` generates the `conversion` of the CustomResourceDefinition.
///
/// ```ignore
/// #[conversion(resource = cronjobs)]
/// impl Hub for CronJob {
///     const KIND: &str = "CronJob";
///     const API_VERSION: &str = "batch.example.com/v1";
/// }
/// ```
///
/// | Argument | Value | Default |
/// |---|---|---|
/// | `resource` | the plural of the kind | required |
/// | `path` | the path | `/convert` |
/// | `review_versions` | `v1`, `v1beta1` | `v1` |
/// | `url` | a fixed URL, instead of a Service | none |
/// | `service_name`, `service_namespace`, `service_port` | the service | that of the manifests |
/// | `group` | for `lockgate manifests`, if `API_VERSION` is not a literal | that of `API_VERSION` |
#[proc_macro_attribute]
pub fn conversion(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::conversion(arguments.into(), item.into()).into()
}
