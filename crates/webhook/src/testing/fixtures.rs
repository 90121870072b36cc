//! Directories of objects with expected results.

use std::fmt::Write as _;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use futures_util::FutureExt;
use serde::Deserialize;

use super::read;
use super::review::Review;
use crate::webhooks::Webhooks;

/// The expectation of a fixture. Every field but `path` is optional.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    /// The path of the webhook.
    path: String,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    dry_run: bool,
    /// A part of the denial message; without it the request must be accepted.
    #[serde(default)]
    rejects: Option<String>,
    #[serde(default)]
    warns: Vec<String>,
    /// The patch; compared if present.
    #[serde(default)]
    patch: Option<serde_json::Value>,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    preserves_unknown_fields: bool,
}

/// Calls webhooks with every fixture of a directory. Returns the number of fixtures.
///
/// A fixture is a file `NAME.expect.yaml` with the files beside it that the request needs:
///
/// | file | content |
/// |---|---|
/// | `NAME.yaml` | the object |
/// | `NAME.old.yaml` | the stored object: the operation is UPDATE, or DELETE without `NAME.yaml` |
/// | `NAME.patched.yaml` | the patched object; compared if present |
/// | `NAME.expect.yaml` | the expectation |
///
/// ```yaml
/// path: /mutate-pods          # the webhook
/// rejects: hostNetwork        # part of the denial message; default: accepted
/// warns: [deprecated]         # parts of warnings; default: not checked
/// patch: []                   # the operations; default: not checked
/// idempotent: true            # a second call changes nothing
/// preservesUnknownFields: true
/// user: jane                  # also: groups, namespace, dryRun, subResource, operation
/// ```
///
/// # Panics
///
/// Panics if any fixture differs, listing all of them, or if there are none.
pub async fn run_fixtures(webhooks: &Webhooks, folder: impl AsRef<Path>) -> usize {
    let folder = folder.as_ref();
    let mut names = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display())) {
        let name = entry.map(|entry| entry.file_name());
        let name = name.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        if let Some(name) = name.to_string_lossy().strip_suffix(".expect.yaml") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    assert!(!names.is_empty(), "no fixtures in `{}`", folder.display());
    let mut failures = String::new();
    for name in &names {
        let running = AssertUnwindSafe(run(webhooks, folder, name)).catch_unwind();
        if let Err(panic) = running.await {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let _ = writeln!(failures, "{name}: {}", text.unwrap_or("failed"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
    names.len()
}

async fn run(webhooks: &Webhooks, folder: &Path, name: &str) {
    let file = |ending: &str| fs::read_to_string(folder.join(format!("{name}.{ending}"))).ok();
    let text = file("expect.yaml").unwrap_or_default();
    let value = read(&text).unwrap_or_else(|error| panic!("the expectation: {error}"));
    let expected: Expected =
        serde_json::from_value(value).unwrap_or_else(|error| panic!("the expectation: {error}"));
    let (object, old) = (file("yaml"), file("old.yaml"));
    let operation = expected
        .operation
        .as_deref()
        .unwrap_or(match (&object, &old) {
            (_, None) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
            (None, Some(_)) => "DELETE",
        });
    let mut review = Review::of(operation, object.as_deref(), old.as_deref())
        .sub_resource(expected.sub_resource);
    if let Some(user) = expected.user {
        review = review.user(user);
    }
    if let Some(namespace) = expected.namespace {
        review = review.namespace(namespace);
    }
    if expected.dry_run {
        review = review.dry_run();
    }
    for group in expected.groups {
        review = review.group(group);
    }
    let outcome = review.ask(webhooks, &expected.path).await;
    match &expected.rejects {
        Some(text) => drop(outcome.rejects_with(text)),
        None => drop(outcome.accepts()),
    }
    for text in &expected.warns {
        outcome.warns(text);
    }
    if let Some(patch) = &expected.patch {
        outcome.patch(patch);
    }
    if let Some(patched) = file("patched.yaml") {
        outcome.patches_to(&patched);
    }
    if expected.idempotent {
        outcome.idempotent().await;
    }
    if expected.preserves_unknown_fields {
        outcome.preserves_unknown_fields().await;
    }
}
