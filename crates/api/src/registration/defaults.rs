//! The defaults of each version, applied on decoding; explicit empty strings and zeros are kept,
//! and rejected by the validation.
//!
//! UPSTREAM: kubernetes pkg/apis/admissionregistration/{v1,v1beta1}/defaults.go.

use super::hub::{Configuration, ConfigurationKind, Version, Webhook};

/// The default of a webhook's field in both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultDifference {
    /// The JSON name of the field.
    pub field: &'static str,
    /// The default of v1; `None` if v1 requires a value.
    pub v1: Option<&'static str>,
    /// The default of v1beta1.
    pub v1beta1: &'static str,
}

/// The fields whose default depends on the version.
pub const DIFFERENCES: [DefaultDifference; 5] = [
    DefaultDifference {
        field: "failurePolicy",
        v1: Some("Fail"),
        v1beta1: "Ignore",
    },
    DefaultDifference {
        field: "matchPolicy",
        v1: Some("Equivalent"),
        v1beta1: "Exact",
    },
    DefaultDifference {
        field: "sideEffects",
        v1: None,
        v1beta1: "Unknown",
    },
    DefaultDifference {
        field: "timeoutSeconds",
        v1: Some("10"),
        v1beta1: "30",
    },
    DefaultDifference {
        field: "admissionReviewVersions",
        v1: None,
        v1beta1: "[\"v1beta1\"]",
    },
];

impl Configuration {
    /// Applies the defaults of `version`.
    pub fn apply_defaults(&mut self, version: Version) {
        for webhook in self.webhooks.iter_mut().flatten() {
            webhook.apply_defaults(self.kind, version);
        }
    }
}

impl Webhook {
    fn apply_defaults(&mut self, kind: ConfigurationKind, version: Version) {
        let (failure_policy, match_policy, timeout) = match version {
            Version::V1 => ("Fail", "Equivalent", 10),
            Version::V1beta1 => ("Ignore", "Exact", 30),
        };
        let text = |value: &str| Some(value.to_owned());
        self.failure_policy = self.failure_policy.take().or_else(|| text(failure_policy));
        self.match_policy = self.match_policy.take().or_else(|| text(match_policy));
        self.timeout_seconds = self.timeout_seconds.or(Some(timeout));
        self.namespace_selector.get_or_insert_default();
        self.object_selector.get_or_insert_default();
        if version == Version::V1beta1 {
            self.side_effects = self.side_effects.take().or_else(|| text("Unknown"));
            if self
                .admission_review_versions
                .as_ref()
                .is_none_or(Vec::is_empty)
            {
                self.admission_review_versions = Some(vec![String::from("v1beta1")]);
            }
        }
        if kind == ConfigurationKind::Mutating {
            self.reinvocation_policy = self.reinvocation_policy.take().or_else(|| text("Never"));
        }
        if let Some(service) = &mut self.client_config.service {
            service.port = service.port.or(Some(443));
        }
        for rule in self.rules.iter_mut().flatten() {
            rule.scope = rule.scope.take().or_else(|| text("*"));
        }
    }
}
