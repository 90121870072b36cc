//! The variables and types of the authorizer library.
//!
//! UPSTREAM: apiserver pkg/cel/library/authz.go

use std::sync::Arc;

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision, User};

use crate::ext::named_format::NamedFormat;

/// The variable `authorizer`: a user and an authorizer.
#[derive(Debug, Clone)]
pub struct AuthorizerValue {
    user: Arc<User>,
    authorizer: Arc<dyn Authorizer>,
}

impl AuthorizerValue {
    /// Creates the variable for checks as `user`.
    #[must_use]
    pub fn new(user: Arc<User>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { user, authorizer }
    }

    /// The variable `authorizer.requestResource`.
    #[must_use]
    pub fn request_resource(
        &self,
        group: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> ResourceCheck {
        ResourceCheck {
            group: GroupCheck {
                authorizer: self.clone(),
                group: group.to_owned(),
            },
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: String::new(),
            label_selector: String::new(),
        }
    }

    pub(crate) fn service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Self, &'static str> {
        if !NamedFormat::Dns1123Subdomain.validate(name).is_empty() {
            return Err("Invalid service account name");
        }
        if !NamedFormat::Dns1123Label.validate(namespace).is_empty() {
            return Err("Invalid service account namespace");
        }
        let user = Arc::new(User::service_account(namespace, name));
        Ok(Self {
            user,
            authorizer: self.authorizer.clone(),
        })
    }

    pub(crate) fn path(&self, path: &str) -> Result<PathCheck, &'static str> {
        if path.trim().is_empty() {
            return Err("path must not be empty");
        }
        Ok(PathCheck {
            authorizer: self.clone(),
            path: path.to_owned(),
        })
    }

    pub(crate) fn group(&self, group: &str) -> GroupCheck {
        GroupCheck {
            authorizer: self.clone(),
            group: group.to_owned(),
        }
    }

    fn ask(&self, verb: &str, object: AccessObject<'_>) -> Decision {
        self.authorizer.authorize(&AccessRequest {
            user: &self.user,
            verb,
            object,
        })
    }
}

/// A check of a non-resource path.
#[derive(Debug, Clone)]
pub struct PathCheck {
    authorizer: AuthorizerValue,
    path: String,
}

impl PathCheck {
    pub(crate) fn check(&self, verb: &str) -> Decision {
        self.authorizer.ask(verb, AccessObject::Path(&self.path))
    }
}

/// A check of an API group.
#[derive(Debug, Clone)]
pub struct GroupCheck {
    authorizer: AuthorizerValue,
    group: String,
}

impl GroupCheck {
    pub(crate) fn resource(&self, resource: &str) -> Result<ResourceCheck, &'static str> {
        if resource.trim().is_empty() {
            return Err("resource must not be empty");
        }
        Ok(self
            .authorizer
            .request_resource(&self.group, resource, "", "", ""))
    }
}

/// A check of a resource.
#[derive(Debug, Clone)]
pub struct ResourceCheck {
    group: GroupCheck,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    field_selector: String,
    label_selector: String,
}

/// The attributes of a check with a builder function each.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResourcePart {
    Subresource,
    Namespace,
    Name,
    FieldSelector,
    LabelSelector,
}

impl ResourceCheck {
    pub(crate) fn with(&self, part: ResourcePart, text: &str) -> Self {
        let mut changed = self.clone();
        *match part {
            ResourcePart::Subresource => &mut changed.subresource,
            ResourcePart::Namespace => &mut changed.namespace,
            ResourcePart::Name => &mut changed.name,
            ResourcePart::FieldSelector => &mut changed.field_selector,
            ResourcePart::LabelSelector => &mut changed.label_selector,
        } = text.to_owned();
        changed
    }

    pub(crate) fn check(&self, verb: &str) -> Decision {
        let object = AccessObject::Resource {
            group: &self.group.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            field_selector: &self.field_selector,
            label_selector: &self.label_selector,
        };
        self.group.authorizer.ask(verb, object)
    }
}
