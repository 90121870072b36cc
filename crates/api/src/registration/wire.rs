//! The wire types of both versions.
//!
//! The fields are the same. The differences are that v1 always encodes `sideEffects` and
//! `admissionReviewVersions`, which it requires, and the Go type names in decode errors.

use super::hub;
use crate::decode::wire_struct;

/// Declares the types of one version. `$required` is the presence of the two fields required by v1.
macro_rules! registration_types {
    ($(#[$doc:meta])* $version:ident, $required:ident) => {
        $(#[$doc])*
        pub mod $version {
            pub use super::RuleWithOperations;
            use super::hub;
            use crate::decode::{Bytes, wire_struct};
            use crate::meta::label_selector::LabelSelector;
            use crate::meta::object::{ListMeta, ObjectMeta};

            wire_struct! {
                /// A set of validating webhooks.
                pub struct ValidatingWebhookConfiguration = (concat!(stringify!($version), ".ValidatingWebhookConfiguration")) {
                    /// `ValidatingWebhookConfiguration`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The metadata.
                    metadata: ObjectMeta = "metadata", always, object;
                    /// The webhooks.
                    webhooks: Option<Vec<ValidatingWebhook>> = "webhooks", omit_empty, objects;
                }
            }

            wire_struct! {
                /// A set of mutating webhooks.
                pub struct MutatingWebhookConfiguration = (concat!(stringify!($version), ".MutatingWebhookConfiguration")) {
                    /// `MutatingWebhookConfiguration`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The metadata.
                    metadata: ObjectMeta = "metadata", always, object;
                    /// The webhooks.
                    webhooks: Option<Vec<MutatingWebhook>> = "webhooks", omit_empty, objects;
                }
            }

            wire_struct! {
                /// A list of validating configurations.
                pub struct ValidatingWebhookConfigurationList = (concat!(stringify!($version), ".ValidatingWebhookConfigurationList")) {
                    /// `ValidatingWebhookConfigurationList`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The metadata.
                    metadata: ListMeta = "metadata", always, object;
                    /// The configurations.
                    items: Option<Vec<ValidatingWebhookConfiguration>> = "items", always, objects;
                }
            }

            wire_struct! {
                /// A list of mutating configurations.
                pub struct MutatingWebhookConfigurationList = (concat!(stringify!($version), ".MutatingWebhookConfigurationList")) {
                    /// `MutatingWebhookConfigurationList`.
                    kind: String = "kind" in "TypeMeta", omit_empty, text("string");
                    /// The group and version.
                    api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
                    /// The metadata.
                    metadata: ListMeta = "metadata", always, object;
                    /// The configurations.
                    items: Option<Vec<MutatingWebhookConfiguration>> = "items", always, objects;
                }
            }

            wire_struct! {
                /// A validating webhook.
                pub struct ValidatingWebhook = (concat!(stringify!($version), ".ValidatingWebhook")) {
                    /// The name.
                    name: String = "name", always, text("string");
                    /// The URL or service.
                    client_config: WebhookClientConfig = "clientConfig", always, object;
                    /// The requests to match.
                    rules: Option<Vec<RuleWithOperations>> = "rules", omit_empty, objects;
                    /// `Fail` or `Ignore`: how errors of calls are handled.
                    failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text((concat!(stringify!($version), ".FailurePolicyType")));
                    /// `Exact` or `Equivalent`: whether equivalent resources in other versions
                    /// match.
                    match_policy: Option<String> = "matchPolicy", omit_empty, opt_text((concat!(stringify!($version), ".MatchPolicyType")));
                    /// The namespaces to match.
                    namespace_selector: Option<LabelSelector> = "namespaceSelector", omit_empty, opt_object;
                    /// The objects to match.
                    object_selector: Option<LabelSelector> = "objectSelector", omit_empty, opt_object;
                    /// The side effects of a call.
                    side_effects: Option<String> = "sideEffects", $required, opt_text((concat!(stringify!($version), ".SideEffectClass")));
                    /// The timeout of a call.
                    timeout_seconds: Option<i32> = "timeoutSeconds", omit_empty, opt_int32;
                    /// The supported `AdmissionReview` versions.
                    admission_review_versions: Option<Vec<String>> = "admissionReviewVersions", $required, strings("string");
                    /// CEL conditions, all of which must be true.
                    match_conditions: Option<Vec<MatchCondition>> = "matchConditions", omit_empty, objects;
                }
            }

            wire_struct! {
                /// A mutating webhook.
                pub struct MutatingWebhook = (concat!(stringify!($version), ".MutatingWebhook")) {
                    /// The name.
                    name: String = "name", always, text("string");
                    /// The URL or service.
                    client_config: WebhookClientConfig = "clientConfig", always, object;
                    /// The requests to match.
                    rules: Option<Vec<RuleWithOperations>> = "rules", omit_empty, objects;
                    /// `Fail` or `Ignore`: how errors of calls are handled.
                    failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text((concat!(stringify!($version), ".FailurePolicyType")));
                    /// `Exact` or `Equivalent`: whether equivalent resources in other versions
                    /// match.
                    match_policy: Option<String> = "matchPolicy", omit_empty, opt_text((concat!(stringify!($version), ".MatchPolicyType")));
                    /// The namespaces to match.
                    namespace_selector: Option<LabelSelector> = "namespaceSelector", omit_empty, opt_object;
                    /// The objects to match.
                    object_selector: Option<LabelSelector> = "objectSelector", omit_empty, opt_object;
                    /// The side effects of a call.
                    side_effects: Option<String> = "sideEffects", $required, opt_text((concat!(stringify!($version), ".SideEffectClass")));
                    /// The timeout of a call.
                    timeout_seconds: Option<i32> = "timeoutSeconds", omit_empty, opt_int32;
                    /// The supported `AdmissionReview` versions.
                    admission_review_versions: Option<Vec<String>> = "admissionReviewVersions", $required, strings("string");
                    /// `Never` or `IfNeeded`: reinvocation after later mutations.
                    reinvocation_policy: Option<String> = "reinvocationPolicy", omit_empty, opt_text("v1.ReinvocationPolicyType");
                    /// CEL conditions, all of which must be true.
                    match_conditions: Option<Vec<MatchCondition>> = "matchConditions", omit_empty, objects;
                }
            }

            wire_struct! {
                /// The URL or service of a webhook.
                pub struct WebhookClientConfig = (concat!(stringify!($version), ".WebhookClientConfig")) {
                    /// A URL.
                    url: Option<String> = "url", omit_empty, opt_text("string");
                    /// A Service.
                    service: Option<ServiceReference> = "service", omit_empty, opt_object;
                    /// The PEM-encoded CA bundle.
                    ca_bundle: Option<Bytes> = "caBundle", omit_empty, bytes;
                }
            }

            wire_struct! {
                /// The Service of a webhook.
                pub struct ServiceReference = (concat!(stringify!($version), ".ServiceReference")) {
                    /// The namespace of the Service.
                    namespace: String = "namespace", always, text("string");
                    /// The name of the Service.
                    name: String = "name", always, text("string");
                    /// The URL path of requests.
                    path: Option<String> = "path", omit_empty, opt_text("string");
                    /// The port of the Service.
                    port: Option<i32> = "port", omit_empty, opt_int32;
                }
            }

            wire_struct! {
                /// A CEL condition for calling the webhook.
                pub struct MatchCondition = (concat!(stringify!($version), ".MatchCondition")) {
                    /// The name.
                    name: String = "name", always, text("string");
                    /// The expression.
                    expression: String = "expression", always, text("string");
                }
            }

            hub::convert! { $version }
        }
    };
}

registration_types! {
    /// `admissionregistration.k8s.io/v1` on the wire.
    v1, always
}
registration_types! {
    /// `admissionregistration.k8s.io/v1beta1` on the wire.
    v1beta1, omit_empty
}

wire_struct! {
    /// The requests to match.
    pub struct RuleWithOperations = "v1.RuleWithOperations" {
        /// The operations.
        operations: Option<Vec<String>> = "operations", omit_empty, strings("v1.OperationType");
        /// The API groups.
        api_groups: Option<Vec<String>> = "apiGroups" in "Rule", omit_empty, strings("string");
        /// The API versions.
        api_versions: Option<Vec<String>> = "apiVersions" in "Rule", omit_empty, strings("string");
        /// The resources.
        resources: Option<Vec<String>> = "resources" in "Rule", omit_empty, strings("string");
        /// The scope.
        scope: Option<String> = "scope" in "Rule", omit_empty, opt_text("v1.ScopeType");
    }
}

// Rules have the same type in both versions, so they are converted once.
hub::convert!(@both hub::Rule, RuleWithOperations {
    operations, api_groups, api_versions, resources, scope
});
