//! Objects as kube-apiserver's internal types, which some errors print.
//!
//! Internal types have no JSON tags, so fields have Go names and none is omitted. A few fields are at another path
//! than in the versioned type, such as `hostNetwork` in the security context.
//!
//! UPSTREAM: pkg/apis/*/types.go, pkg/apis/*/v1/conversion.go

mod tables;

use serde_json::Value;

use lockgate_go::json::to_string;

use super::{Form as TypeForm, Type};
use crate::unified_diff::unified_diff;

use tables::{FIELDS, FORMS, STRUCTS};

/// The name of a struct, its first field, and one past its last field.
#[derive(Debug)]
struct StructRow(&'static str, u16, u16);

/// The printed name, the path in the versioned type, the form, and true if it is omitted when empty.
///
/// A path consists of keys separated by `/`; a leading `^` refers to the enclosing object.
#[derive(Debug)]
struct FieldRow(&'static str, &'static str, Form, bool);

/// The form of a field. Numbers are indexes of forms or structs.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Bool,
    Int,
    Time,
    Quantity,
    IntOrString,
    Raw,
    Pointer(u16),
    List(u16),
    Map(u16),
    Struct(u16),
}

/// A value as Go prints it.
#[derive(Debug)]
enum Printed {
    Leaf(String),
    List(Vec<Self>),
    Members(Vec<(String, Self)>),
}

/// The internal type with this name.
#[derive(Debug, Clone, Copy)]
struct Internal(u16);

impl Internal {
    /// The type with this name in the tables.
    fn named(name: &str) -> Option<Self> {
        let index = STRUCTS.iter().position(|row| row.0 == name)?;
        u16::try_from(index).ok().map(Self)
    }

    /// The compact JSON of a value; an absent one is the zero value of the type.
    fn compact(self, value: Option<&Value>) -> String {
        let mut out = String::new();
        compact(&mut out, &print_struct(self.0, value, None));
        out
    }

    /// The JSON of a value with one field per line, indented by one space.
    fn pretty(self, value: Option<&Value>) -> String {
        let mut out = String::new();
        pretty(&mut out, &print_struct(self.0, value, None), 0);
        out
    }
}

/// The compact JSON of a value, as the internal type with the same name.
pub(crate) fn internal_form(ty: Type, value: Option<&Value>) -> String {
    let value = value.filter(|value| !value.is_null());
    let (target, form) = (ty.target(), ty.form());
    let is_nil =
        value.is_none() && (target != ty || matches!(form, TypeForm::List(_) | TypeForm::Map(_)));
    if is_nil {
        return String::from("null");
    }
    if let (TypeForm::List(element), Some(Value::Array(items))) = (form, value) {
        let items: Vec<String> = items
            .iter()
            .map(|item| internal_form(element, Some(item)))
            .collect();
        return format!("[{}]", items.join(","));
    }
    let name = target.go_name();
    let name = name.rsplit('.').next().unwrap_or(name);
    match (form, value, Internal::named(name)) {
        (TypeForm::Struct, _, Some(internal)) => internal.compact(value),
        (_, Some(value), _) => to_string(value),
        (TypeForm::Bool, ..) => String::from("false"),
        (TypeForm::Integer(_), ..) => String::from("0"),
        (TypeForm::Time | TypeForm::MicroTime | TypeForm::Raw, ..) => String::from("null"),
        _ => String::from("\"\""),
    }
}

/// The unified diff of two values, as the internal type `name`.
pub(crate) fn internal_diff(name: &str, old: &Value, new: &Value) -> String {
    Internal::named(name).map_or_else(String::new, |ty| {
        unified_diff(&ty.pretty(Some(old)), &ty.pretty(Some(new)))
    })
}

fn find<'v>(value: Option<&'v Value>, outer: Option<&'v Value>, place: &str) -> Option<&'v Value> {
    if place.is_empty() {
        return None;
    }
    let (from, path) = match place.strip_prefix('^') {
        Some(path) => (outer, path),
        None => (value, place),
    };
    path.split('/')
        .try_fold(from?, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

fn print_struct(index: u16, value: Option<&Value>, outer: Option<&Value>) -> Printed {
    let Some(StructRow(_, first, end)) = STRUCTS.get(usize::from(index)) else {
        return Printed::Leaf(String::from("null"));
    };
    let fields = FIELDS.get(usize::from(*first)..usize::from(*end));
    let mut members = Vec::new();
    for FieldRow(name, place, form, omits_empty) in fields.into_iter().flatten() {
        let member = find(value, outer, place);
        // A pointer is empty if it is nil.
        let is_omitted = match form {
            Form::Pointer(_) => member.is_none(),
            _ => member.is_none_or(is_empty),
        };
        if *omits_empty && is_omitted {
            continue;
        }
        members.push(((*name).to_owned(), print(*form, member, value)));
    }
    Printed::Members(members)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Recurses to the depth of the tables, which have no recursive types.
fn print(form: Form, value: Option<&Value>, outer: Option<&Value>) -> Printed {
    let leaf = |zero: &str| Printed::Leaf(value.map_or_else(|| zero.to_owned(), to_string));
    let inner = |form: u16| FORMS.get(usize::from(form)).copied().unwrap_or(Form::Raw);
    match (form, value) {
        (Form::Text, _) => leaf("\"\""),
        (Form::Bool, _) => leaf("false"),
        (Form::Int | Form::IntOrString, _) => leaf("0"),
        (Form::Quantity, _) => leaf("\"0\""),
        (Form::Time | Form::Raw, _) => leaf("null"),
        (Form::Struct(index), _) => print_struct(index, value, outer),
        (Form::Pointer(_) | Form::List(_) | Form::Map(_), None) => {
            Printed::Leaf(String::from("null"))
        }
        (Form::Pointer(form), Some(_)) => print(inner(form), value, outer),
        (Form::List(form), Some(value)) => match value.as_array() {
            // Bytes are encoded strings already.
            None => Printed::Leaf(to_string(value)),
            Some(items) => Printed::List(
                items
                    .iter()
                    .map(|item| print(inner(form), Some(item), Some(value)))
                    .collect(),
            ),
        },
        (Form::Map(form), Some(value)) => Printed::Members(
            value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, item)| (key.clone(), print(inner(form), Some(item), Some(value))))
                .collect(),
        ),
    }
}

fn compact(out: &mut String, printed: &Printed) {
    let mut comma = "";
    match printed {
        Printed::Leaf(text) => out.push_str(text),
        Printed::List(items) => {
            out.push('[');
            for item in items {
                out.push_str(comma);
                compact(out, item);
                comma = ",";
            }
            out.push(']');
        }
        Printed::Members(members) => {
            out.push('{');
            for (name, member) in members {
                out.push_str(comma);
                out.push_str(&to_string(name));
                out.push(':');
                compact(out, member);
                comma = ",";
            }
            out.push('}');
        }
    }
}

fn pretty(out: &mut String, printed: &Printed, depth: usize) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    let mut comma = "";
    match printed {
        Printed::Leaf(text) => out.push_str(text),
        Printed::List(items) if items.is_empty() => out.push_str("[]"),
        Printed::Members(members) if members.is_empty() => out.push_str("{}"),
        Printed::List(items) => {
            out.push('[');
            for item in items {
                out.push_str(comma);
                line(out, depth + 1);
                pretty(out, item, depth + 1);
                comma = ",";
            }
            line(out, depth);
            out.push(']');
        }
        Printed::Members(members) => {
            out.push('{');
            for (name, member) in members {
                out.push_str(comma);
                line(out, depth + 1);
                out.push_str(&to_string(name));
                out.push_str(": ");
                pretty(out, member, depth + 1);
                comma = ",";
            }
            line(out, depth);
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::typed::type_of;

    fn member(group: &str, kind: &str, path: &[&str]) -> Type {
        let ty = type_of(group, "v1", kind).unwrap();
        path.iter().fold(ty, |ty, key| ty.field(key).unwrap().ty())
    }

    #[test]
    fn an_absent_pointer_is_null_and_an_absent_text_is_empty() {
        let policy = member("batch", "Job", &["spec", "podFailurePolicy"]);
        assert_eq!(internal_form(policy, None), "null");
        let driver = member("resource.k8s.io", "ResourceSlice", &["spec", "driver"]);
        assert_eq!(internal_form(driver, None), "\"\"");
    }

    #[test]
    fn members_have_the_names_of_go_and_nothing_is_left_out() {
        let reference = json!({"resource": "services", "name": "s"});
        let ty = member("networking.k8s.io", "IPAddress", &["spec", "parentRef"]);
        assert_eq!(
            internal_form(ty, Some(&reference)),
            r#"{"Group":"","Resource":"services","Namespace":"","Name":"s"}"#
        );
    }

    #[test]
    fn metadata_keeps_its_names_and_host_network_stands_in_the_security_context() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "hostNetwork": true, "securityContext": {}, "containers": [],
        }});
        let ty = member("batch", "Job", &["spec", "template"]);
        let form = internal_form(ty, Some(&template));
        assert!(form.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#));
        assert!(form.contains(r#""Containers":[],"#));
        assert!(form.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#));
    }

    #[test]
    fn pretty_forms_are_indented_by_one_space() {
        let modes = json!({"accessModes": ["A"], "resources": {"requests": {"storage": "1Gi"}}});
        let ty = Internal::named("PersistentVolumeClaimSpec").unwrap();
        let form = ty.pretty(Some(&modes));
        assert!(form.starts_with("{\n \"AccessModes\": [\n  \"A\"\n ],\n \"Selector\": null,\n"));
    }
}
