//! `admissionregistration.k8s.io/v1beta1` on the wire.
//!
//! The members are those of v1. What differs is that `sideEffects` and `admissionReviewVersions`
//! are left out when empty, and the names of Go types in decode errors: rules and policies of
//! reinvocation are v1's own.

use super::hub;
use super::v1::RuleWithOperations;
use crate::decode::{Bytes, wire_struct};
use crate::meta::label_selector::LabelSelector;
use crate::meta::object::{ListMeta, ObjectMeta};

wire_struct! {
    /// A set of validating webhooks.
    pub struct ValidatingWebhookConfiguration = "v1beta1.ValidatingWebhookConfiguration" {
        /// `ValidatingWebhookConfiguration`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// `admissionregistration.k8s.io/v1beta1`.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// Its metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// Its webhooks.
        webhooks: Option<Vec<ValidatingWebhook>> = "webhooks", omit_empty, objects;
    }
}

wire_struct! {
    /// A set of mutating webhooks.
    pub struct MutatingWebhookConfiguration = "v1beta1.MutatingWebhookConfiguration" {
        /// `MutatingWebhookConfiguration`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// `admissionregistration.k8s.io/v1beta1`.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// Its metadata.
        metadata: ObjectMeta = "metadata", always, object;
        /// Its webhooks.
        webhooks: Option<Vec<MutatingWebhook>> = "webhooks", omit_empty, objects;
    }
}

wire_struct! {
    /// A list of validating configurations.
    pub struct ValidatingWebhookConfigurationList = "v1beta1.ValidatingWebhookConfigurationList" {
        /// `ValidatingWebhookConfigurationList`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// `admissionregistration.k8s.io/v1beta1`.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// Its metadata.
        metadata: ListMeta = "metadata", always, object;
        /// The configurations.
        items: Option<Vec<ValidatingWebhookConfiguration>> = "items", always, objects;
    }
}

wire_struct! {
    /// A list of mutating configurations.
    pub struct MutatingWebhookConfigurationList = "v1beta1.MutatingWebhookConfigurationList" {
        /// `MutatingWebhookConfigurationList`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// `admissionregistration.k8s.io/v1beta1`.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// Its metadata.
        metadata: ListMeta = "metadata", always, object;
        /// The configurations.
        items: Option<Vec<MutatingWebhookConfiguration>> = "items", always, objects;
    }
}

wire_struct! {
    /// A validating webhook.
    pub struct ValidatingWebhook = "v1beta1.ValidatingWebhook" {
        /// Its name.
        name: String = "name", always, text("string");
        /// Where it is.
        client_config: WebhookClientConfig = "clientConfig", always, object;
        /// What it is called for.
        rules: Option<Vec<RuleWithOperations>> = "rules", omit_empty, objects;
        /// What a failed call means.
        failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text("v1beta1.FailurePolicyType");
        /// Whether other versions match.
        match_policy: Option<String> = "matchPolicy", omit_empty, opt_text("v1beta1.MatchPolicyType");
        /// Which namespaces.
        namespace_selector: Option<LabelSelector> = "namespaceSelector", omit_empty, opt_object;
        /// Which objects.
        object_selector: Option<LabelSelector> = "objectSelector", omit_empty, opt_object;
        /// What calling it changes elsewhere.
        side_effects: Option<String> = "sideEffects", omit_empty, opt_text("v1beta1.SideEffectClass");
        /// How long a call may take.
        timeout_seconds: Option<i32> = "timeoutSeconds", omit_empty, opt_int32;
        /// Review versions it reads.
        admission_review_versions: Option<Vec<String>> = "admissionReviewVersions", omit_empty, texts("string");
        /// Expressions that must hold.
        match_conditions: Option<Vec<MatchCondition>> = "matchConditions", omit_empty, objects;
    }
}

wire_struct! {
    /// A mutating webhook.
    pub struct MutatingWebhook = "v1beta1.MutatingWebhook" {
        /// Its name.
        name: String = "name", always, text("string");
        /// Where it is.
        client_config: WebhookClientConfig = "clientConfig", always, object;
        /// What it is called for.
        rules: Option<Vec<RuleWithOperations>> = "rules", omit_empty, objects;
        /// What a failed call means.
        failure_policy: Option<String> = "failurePolicy", omit_empty, opt_text("v1beta1.FailurePolicyType");
        /// Whether other versions match.
        match_policy: Option<String> = "matchPolicy", omit_empty, opt_text("v1beta1.MatchPolicyType");
        /// Which namespaces.
        namespace_selector: Option<LabelSelector> = "namespaceSelector", omit_empty, opt_object;
        /// Which objects.
        object_selector: Option<LabelSelector> = "objectSelector", omit_empty, opt_object;
        /// What calling it changes elsewhere.
        side_effects: Option<String> = "sideEffects", omit_empty, opt_text("v1beta1.SideEffectClass");
        /// How long a call may take.
        timeout_seconds: Option<i32> = "timeoutSeconds", omit_empty, opt_int32;
        /// Review versions it reads.
        admission_review_versions: Option<Vec<String>> = "admissionReviewVersions", omit_empty, texts("string");
        /// Whether it is called again after others changed the object.
        reinvocation_policy: Option<String> = "reinvocationPolicy", omit_empty, opt_text("v1.ReinvocationPolicyType");
        /// Expressions that must hold.
        match_conditions: Option<Vec<MatchCondition>> = "matchConditions", omit_empty, objects;
    }
}

wire_struct! {
    /// Where a webhook is.
    pub struct WebhookClientConfig = "v1beta1.WebhookClientConfig" {
        /// A URL.
        url: Option<String> = "url", omit_empty, opt_text("string");
        /// A service.
        service: Option<ServiceReference> = "service", omit_empty, opt_object;
        /// Certificates that sign the webhook's.
        ca_bundle: Option<Bytes> = "caBundle", omit_empty, bytes;
    }
}

wire_struct! {
    /// A service that serves a webhook.
    pub struct ServiceReference = "v1beta1.ServiceReference" {
        /// Its namespace.
        namespace: String = "namespace", always, text("string");
        /// Its name.
        name: String = "name", always, text("string");
        /// The path of the request.
        path: Option<String> = "path", omit_empty, opt_text("string");
        /// Its port.
        port: Option<i32> = "port", omit_empty, opt_int32;
    }
}

wire_struct! {
    /// An expression that must hold.
    pub struct MatchCondition = "v1beta1.MatchCondition" {
        /// Its name.
        name: String = "name", always, text("string");
        /// The expression.
        expression: String = "expression", always, text("string");
    }
}

hub::convert! { v1beta1 }
