//! A field of an object under validation: its value, its path, and constructors of its errors.
//!
//! An absent field reads as Go's zero value, as in normal form everywhere.

use std::collections::BTreeSet;

use serde_json::Value;

use lockgate_api::field::{ErrorType, FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::names::{check_label_value, check_qualified_name};
use lockgate_go::json::to_string;
use lockgate_go::quantity::Quantity;

use crate::checks::wire;
use crate::equality::semantically_equal;
use crate::object::Object;
use crate::typed::{Type, internal_form, member_type};

/// A value with its path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'p, 'v> {
    pub(crate) path: Path<'p>,
    pub(crate) value: Option<&'v Value>,
}

impl<'p, 'v> At<'p, 'v> {
    /// The top-level field `name` of an object.
    pub(crate) fn root(object: &'v Object, name: &'p str) -> Self {
        Self {
            path: Path::root(name),
            value: present(object.get(name)),
        }
    }

    /// A value at any path.
    pub(crate) fn new(path: Path<'p>, value: Option<&'v Value>) -> Self {
        Self {
            path,
            value: present(value),
        }
    }

    /// The field `key`.
    pub(crate) fn at<'s>(&'s self, key: &'s str) -> At<'s, 'v> {
        At {
            path: self.path.child(key),
            value: present(self.value.and_then(|value| value.get(key))),
        }
    }

    /// The field `key`, reported under another name.
    pub(crate) fn at_as<'s>(&'s self, key: &str, name: &'s str) -> At<'s, 'v> {
        At {
            path: self.path.child(name),
            value: present(self.value.and_then(|value| value.get(key))),
        }
    }

    /// The entry `key` of a map.
    pub(crate) fn entry<'s>(&'s self, key: &'s str) -> At<'s, 'v> {
        At {
            path: self.path.key(key),
            value: present(self.value.and_then(|value| value.get(key))),
        }
    }

    /// The elements of a list.
    pub(crate) fn items<'s>(
        &'s self,
    ) -> impl ExactSizeIterator<Item = At<'s, 'v>> + use<'s, 'v, 'p> {
        self.list()
            .iter()
            .enumerate()
            .map(|(index, value)| At::new(self.path.index(index), Some(value)))
    }

    /// The entries of a map, by key.
    pub(crate) fn entries<'s>(
        &'s self,
    ) -> impl Iterator<Item = (&'v str, At<'s, 'v>)> + use<'s, 'v, 'p>
    where
        'v: 's,
    {
        self.object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), At::new(self.path.key(key), Some(value))))
    }

    pub(crate) fn list(&self) -> &'v [Value] {
        self.value
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        self.list().iter().filter_map(Value::as_str)
    }

    pub(crate) fn object(&self) -> Option<&'v Object> {
        self.value.and_then(Value::as_object)
    }

    pub(crate) fn text(&self) -> &'v str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn int(&self) -> i64 {
        self.value.and_then(Value::as_i64).unwrap_or_default()
    }

    pub(crate) fn flag(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(self.text()).ok()
    }

    /// Returns true if the field is present, or in Go, a pointer is not nil.
    pub(crate) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// The number of elements or entries.
    pub(crate) fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(members)) => members.len(),
            _ => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Some(Value::String(text)) => text.is_empty(),
            _ => self.len() == 0,
        }
    }

    /// Returns true if both are equal; an empty list equals an absent one.
    pub(crate) fn same(&self, other: &At<'_, '_>) -> bool {
        deep_equal(self.value, other.value)
    }

    /// The value as Go prints it in errors.
    fn shown(&self) -> String {
        match self.value {
            None => String::from("\"\""),
            Some(Value::String(text)) => Shown::Text(text).to_string(),
            Some(value) => to_string(value),
        }
    }

    pub(crate) fn required(&self, errors: &mut FieldErrors) {
        self.required_because(errors, "");
    }

    pub(crate) fn required_because(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        errors.push(FieldError::required(&self.path, detail));
    }

    pub(crate) fn forbidden(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        errors.push(FieldError::forbidden(&self.path, detail));
    }

    /// Reports an invalid value; an absent one is printed as an empty string.
    pub(crate) fn invalid(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        let shown = self.shown();
        errors.push(FieldError::invalid(
            &self.path,
            Shown::Rendered(&shown),
            detail,
        ));
    }

    /// Reports an invalid number; an absent one is printed as zero.
    pub(crate) fn invalid_int(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        errors.push(FieldError::invalid(
            &self.path,
            Shown::Integer(self.int()),
            detail,
        ));
    }

    /// Reports an invalid pointer, list or map; an absent one is printed as `null`.
    pub(crate) fn invalid_or_null(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        if self.is_set() {
            self.invalid(errors, detail);
        } else {
            self.invalid_as(errors, Shown::Rendered("null"), detail);
        }
    }

    /// Reports an invalid value, and prints another one.
    pub(crate) fn invalid_as(
        &self,
        errors: &mut FieldErrors,
        shown: Shown<'_>,
        detail: impl Into<String>,
    ) {
        errors.push(FieldError::invalid(&self.path, shown, detail));
    }

    /// Reports an internal error.
    pub(crate) fn internal(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        errors.push(FieldError::internal(&self.path, detail));
    }

    pub(crate) fn not_supported(&self, errors: &mut FieldErrors, set: &[&str]) {
        errors.push(FieldError::not_supported(
            &self.path,
            Shown::Named(self.text()),
            set,
        ));
    }

    pub(crate) fn duplicate(&self, errors: &mut FieldErrors) {
        let shown = self.shown();
        errors.push(FieldError::duplicate(&self.path, Shown::Rendered(&shown)));
    }

    pub(crate) fn duplicate_as(&self, errors: &mut FieldErrors, shown: Shown<'_>) {
        errors.push(FieldError::duplicate(&self.path, shown));
    }

    pub(crate) fn not_found(&self, errors: &mut FieldErrors, detail: impl Into<String>) {
        let mut error = FieldError::invalid(&self.path, Shown::Text(self.text()), detail);
        error.error_type = ErrorType::NotFound;
        errors.push(error);
    }

    pub(crate) fn too_long(&self, errors: &mut FieldErrors, limit: usize) {
        errors.push(FieldError::too_long(&self.path, limit));
    }

    pub(crate) fn too_many(&self, errors: &mut FieldErrors, limit: usize) {
        errors.push(FieldError::too_many(&self.path, self.len(), limit));
    }

    /// Reports one error per message of a string check.
    pub(crate) fn check(&self, errors: &mut FieldErrors, check: impl Fn(&str) -> Vec<String>) {
        for message in check(self.text()) {
            self.invalid_as(errors, Shown::Text(self.text()), message);
        }
    }

    /// Like [`Self::check`], if the string is not empty.
    pub(crate) fn check_set(&self, errors: &mut FieldErrors, check: impl Fn(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.check(errors, check);
        }
    }

    /// Like [`Self::check`], and the string is required.
    pub(crate) fn check_required(
        &self,
        errors: &mut FieldErrors,
        check: impl Fn(&str) -> Vec<String>,
    ) {
        if self.text().is_empty() {
            self.required(errors);
        } else {
            self.check(errors, check);
        }
    }

    /// Validates status conditions, whose types are unique.
    ///
    /// UPSTREAM: apimachinery pkg/apis/meta/v1/validation/validation.go (ValidateConditions)
    pub(crate) fn conditions(&self, errors: &mut FieldErrors) {
        let mut seen = BTreeSet::new();
        for condition in self.items() {
            let kind = condition.at("type");
            if !seen.insert(kind.text()) {
                kind.duplicate(errors);
            }
            kind.check(errors, check_qualified_name);
            let statuses = ["False", "True", "Unknown"];
            condition.at("status").known(errors, &statuses);
            let generation = condition.at("observedGeneration");
            if generation.int() < 0 {
                generation.invalid_int(errors, "must be greater than or equal to zero");
            }
            condition.at("lastTransitionTime").must_be_set(errors);
            let reason = condition.at("reason");
            reason.check_required(errors, check_condition_reason);
            if reason.text().len() > CONDITION_REASON_MAX {
                reason.too_long(errors, CONDITION_REASON_MAX);
            }
            let message = condition.at("message");
            if message.text().len() > CONDITION_MESSAGE_MAX {
                message.too_long(errors, CONDITION_MESSAGE_MAX);
            }
        }
    }

    /// Reports an empty string, list or map as required.
    pub(crate) fn must_be_set(&self, errors: &mut FieldErrors) {
        if self.is_empty() {
            self.required(errors);
        }
    }

    /// Validates a required enum value.
    pub(crate) fn one_of(&self, errors: &mut FieldErrors, set: &[&str]) {
        if self.text().is_empty() {
            self.required(errors);
        } else {
            self.known(errors, set);
        }
    }

    /// Validates an enum value.
    pub(crate) fn known(&self, errors: &mut FieldErrors, set: &[&str]) {
        if !set.contains(&self.text()) {
            self.not_supported(errors, set);
        }
    }

    /// Validates an enum value, if set.
    pub(crate) fn known_if_set(&self, errors: &mut FieldErrors, set: &[&str]) {
        if self.is_set() {
            self.known(errors, set);
        }
    }

    pub(crate) fn non_negative(&self, errors: &mut FieldErrors) {
        if self.int() < 0 {
            self.invalid_int(errors, "must be greater than or equal to 0");
        }
    }

    pub(crate) fn positive(&self, errors: &mut FieldErrors) {
        if self.int() <= 0 {
            self.invalid_int(errors, "must be greater than zero");
        }
    }

    pub(crate) fn within(&self, errors: &mut FieldErrors, least: i64, most: i64) {
        if !(least..=most).contains(&self.int()) {
            self.invalid_int(
                errors,
                format!("must be between {least} and {most}, inclusive"),
            );
        }
    }

    /// Validates a label selector; an absent one is valid and selects nothing.
    pub(crate) fn label_selector(&self, errors: &mut FieldErrors) {
        self.label_selector_with(errors, ExpressionValues::Checked);
    }

    pub(crate) fn label_selector_with(&self, errors: &mut FieldErrors, values: ExpressionValues) {
        if let Some(value) = self.value {
            let selector: LabelSelector = wire(value);
            errors.extend(selector.validate(values, &self.path));
        }
    }

    /// A map of labels.
    pub(crate) fn labels(&self, errors: &mut FieldErrors) {
        for (key, value) in self.object().into_iter().flatten() {
            for message in check_qualified_name(key) {
                self.invalid_as(errors, Shown::Text(key), message);
            }
            let text = value.as_str().unwrap_or_default();
            for message in check_label_value(text) {
                self.invalid_as(errors, Shown::Text(text), message);
            }
        }
    }

    /// Reports a change of an immutable value; both are compared and printed by type.
    pub(crate) fn immutable_typed(
        &self,
        errors: &mut FieldErrors,
        old: &At<'_, '_>,
        ty: Option<Type>,
    ) {
        let value = |at: &At<'_, '_>| at.value.cloned().unwrap_or(Value::Null);
        if let Some(ty) = ty
            && !semantically_equal(ty, &value(self), &value(old))
        {
            let shown = internal_form(ty, self.value);
            self.invalid_as(errors, Shown::Rendered(&shown), "field is immutable");
        }
    }

    /// Reports a change of an immutable label selector.
    pub(crate) fn immutable_selector(&self, errors: &mut FieldErrors, old: &At<'_, '_>) {
        let ty = member_type("apps", "Deployment", &["spec", "selector"]);
        self.immutable_typed(errors, old, ty);
    }

    /// Reports a change of an immutable scalar.
    pub(crate) fn immutable(&self, errors: &mut FieldErrors, old: &At<'_, '_>) {
        if !self.same(old) {
            self.invalid_or_null(errors, "field is immutable");
        }
    }
}

/// Recurses to the depth of the objects, which the decoder limits.
fn deep_equal(one: Option<&Value>, other: Option<&Value>) -> bool {
    let there = |value: Option<&'_ Value>| {
        value.is_some_and(|value| {
            !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
        })
    };
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            one.iter()
                .all(|(key, value)| deep_equal(Some(value), other.get(key)))
                && other
                    .iter()
                    .all(|(key, value)| one.contains_key(key) || !there(Some(value)))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| deep_equal(Some(one), Some(other)))
        }
        _ if !there(one) || !there(other) => there(one) == there(other),
        _ => one == other,
    }
}

/// The maximum length of a condition's reason, in bytes.
const CONDITION_REASON_MAX: usize = 1024;
/// The maximum length of a condition's message, in bytes.
const CONDITION_MESSAGE_MAX: usize = 32 * 1024;

fn check_condition_reason(reason: &str) -> Vec<String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let fits = match reason.as_bytes() {
        [] => false,
        [only] => only.is_ascii_alphabetic(),
        [first, inner @ .., last] => {
            first.is_ascii_alphabetic()
                && inner.iter().copied().all(is_inner)
                && (last.is_ascii_alphanumeric() || *last == b'_')
        }
    };
    if fits {
        return Vec::new();
    }
    vec![
        "a condition reason must start with alphabetic character, optionally followed by a string of \
         alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
         'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex \
         used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            .to_owned(),
    ]
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}
