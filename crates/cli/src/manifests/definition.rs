//! CustomResourceDefinitions from files, completed with the `conversion` of markers.

use std::path::PathBuf;

use lockgate_kinds::crd;
use lockgate_webhook::Manifests;
use serde_json::Value;

use super::{MarkedConversion, Mistake};
use crate::offline::{LoadError, read_manifests};

/// Completes the CustomResourceDefinitions of these files with their `conversion`, in file order. A
/// CustomResourceDefinition without a marker is unchanged. A marker without one is an error, and so is one that an API
/// server would reject.
///
/// # Errors
///
/// A file cannot be read.
pub fn complete(
    paths: &[PathBuf],
    manifests: &Manifests,
    conversions: &[MarkedConversion],
) -> Result<(Vec<Value>, Vec<Mistake>), LoadError> {
    let mut definitions = Vec::new();
    let mut mistakes = Vec::new();
    for path in paths {
        for manifest in read_manifests(path)? {
            if manifest.text("kind") != "CustomResourceDefinition" {
                continue;
            }
            let mut definition = manifest.value.clone();
            manifests.complete(&mut definition);
            let place = format!("{}: {}", manifest.source, manifest.title());
            mistakes.extend(refusals(&definition).map(|message| Mistake {
                place: place.clone(),
                message,
                help: None,
            }));
            definitions.push(definition);
        }
    }
    for marked in conversions {
        let name = marked.registration.definition_name();
        let mut names = definitions
            .iter()
            .filter_map(|one| one.pointer("/metadata/name"));
        if !names.any(|other| *other == *name) {
            mistakes.push(Mistake {
                place: marked.place.clone(),
                message: format!("no file of --definition contains `{name}`"),
                help: Some(String::from("the name is PLURAL.GROUP of the marker")),
            });
        }
    }
    Ok((definitions, mistakes))
}

/// The validation errors of a CustomResourceDefinition.
fn refusals(definition: &Value) -> impl Iterator<Item = String> {
    let mut complete = definition.clone();
    crd::defaults(&mut complete);
    crd::prepare_create(&mut complete);
    let errors = crd::validate_create(&complete);
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .into_iter()
}
