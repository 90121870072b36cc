//! Reconciles managed fields with a changed schema.
//!
//! UPSTREAM: structured-merge-diff typed/reconcile_schema.go

use super::element::Element;
use super::field_set::FieldSet;
use super::shape::{Atom, Ref};

/// Replaces fields below a value that is now atomic by the value itself.
pub(super) fn reconcile(ty: Ref<'_>, fields: &mut FieldSet) {
    // The depth of field sets is bounded when they are parsed or built.
    let atom = ty.resolve();
    match atom {
        Atom { map: Some(map), .. } if !map.is_free() => {
            for entry in &mut fields.entries {
                let below = match &entry.element {
                    Element::Field(name) => map.member(name),
                    Element::Key(_) | Element::Value(_) | Element::Index(_) => map.element,
                };
                one(below, &mut entry.part.member, &mut entry.part.children);
            }
        }
        Atom {
            map: None,
            scalar: None,
            list: Some(list),
        } => {
            for entry in &mut fields.entries {
                one(
                    list.element,
                    &mut entry.part.member,
                    &mut entry.part.children,
                );
            }
        }
        Atom { .. } => {}
    }
}

fn one(ty: Ref<'_>, member: &mut bool, children: &mut FieldSet) {
    if children.is_empty() || matches!(ty, Ref::Undeclared) {
        return;
    }
    let is_atomic = match ty.resolve() {
        Atom { map: Some(map), .. } => map.is_atomic && !map.is_free(),
        Atom {
            map: None,
            scalar: None,
            list: Some(list),
        } => list.is_atomic(),
        Atom { .. } => false,
    };
    if is_atomic {
        *member = true;
        *children = FieldSet::default();
    } else {
        reconcile(ty, children);
    }
}
