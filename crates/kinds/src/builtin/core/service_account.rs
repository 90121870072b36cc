//! ServiceAccounts.

use crate::cells::{Common, Row};
use crate::kind::{CREATE, Context, Deletion, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, each, with};
use lockgate_api::field::FieldErrors;
use serde_json::Value;

pub(super) const SERVICE_ACCOUNTS: Resource = namespaced(
    "",
    "v1",
    "serviceaccounts",
    "serviceaccount",
    "ServiceAccount",
    "ServiceAccountList",
    &ServiceAccount,
)
.short(&["sa"])
.subresources(&[sub(
    "token",
    "authentication.k8s.io",
    "v1",
    "TokenRequest",
    CREATE,
)]);

/// The kind `ServiceAccount`.
#[derive(Debug)]
pub(super) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        if subresource.is_empty() {
            errors.extend(self.validate_create(new, context));
        }
        errors
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, secret_references);
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        _old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, secret_references);
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Age"
    }

    fn row(&self, _object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [])
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// Keeps only the names of secret references.
fn secret_references(object: &mut Object) {
    each(object, "secrets", |secret| {
        secret.retain(|key, _| key == "name")
    });
}
