//! The registration of a conversion: `spec.conversion` of a CustomResourceDefinition.

use lockgate_api::registration::hub::{ClientConfig, ServiceReference};

/// The default path of conversions, as in kubebuilder.
const DEFAULT_PATH: &str = "/convert";

/// The registration of a custom resource's conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionRegistration {
    group: String,
    resource: String,
    path: String,
    review_versions: Vec<String>,
    client_config: ClientConfig,
}

impl ConversionRegistration {
    /// The conversion of a resource by its plural, as in `cronjobs`; at `/convert`, with reviews of `v1`.
    #[must_use]
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
            path: String::from(DEFAULT_PATH),
            review_versions: vec![String::from("v1")],
            client_config: ClientConfig::default(),
        }
    }

    /// Sets the path it is served at.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets `conversionReviewVersions`, the preferred first.
    #[must_use]
    pub fn with_review_versions(mut self, versions: &[&str]) -> Self {
        let versions = versions.iter().map(|&version| version.to_owned());
        self.review_versions = versions.collect();
        self
    }

    /// Sets a fixed URL, which overrides the manifest options.
    #[must_use]
    pub fn at_url(mut self, url: impl Into<String>) -> Self {
        self.client_config.url = Some(url.into());
        self
    }

    /// Sets a Service name, which overrides the manifest options.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service().name = name.into();
        self
    }

    /// Sets the namespace of that service.
    #[must_use]
    pub fn service_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.service().namespace = namespace.into();
        self
    }

    /// Sets the port of that service.
    #[must_use]
    pub fn service_port(mut self, port: i32) -> Self {
        self.service().port = Some(port);
        self
    }

    fn service(&mut self) -> &mut ServiceReference {
        self.client_config.service.get_or_insert_default()
    }

    /// The name of the CustomResourceDefinition, as in `cronjobs.batch.example.com`.
    #[must_use]
    pub fn definition_name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// The path it is served at.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `conversionReviewVersions`, the preferred first.
    #[must_use]
    pub fn review_versions(&self) -> &[String] {
        &self.review_versions
    }

    pub(crate) fn client_config(&self) -> &ClientConfig {
        &self.client_config
    }
}

/// A hub with a registration; implemented by the attribute `#[conversion(…)]`.
pub trait MarkedHub: super::Hub {
    /// Returns the registration.
    fn registration() -> ConversionRegistration;
}
