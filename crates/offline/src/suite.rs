//! Test suites: cases in several common layouts, and in a custom one, run through the engine.
//!
//! ```text
//!   kat's file names ─┐
//!   kyverno-test.yaml ├─► Case (world, request, expectation) ─► run ─► Outcome (failures, time)
//!   gator's Suite     │
//!   tests.json, AdmissionTest ┘
//! ```

mod chains;
mod checks;
mod expect;
mod gator;
mod kat;
mod kubescape;
mod kyverno;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_admission::request::Request;
use lockgate_api::kube_version::KubeVersion;

pub use checks::Checks;
pub use expect::{Enforced, Expect};
pub use world::{MockAuthorizer, World, WorldError};

use crate::chain::{Run, Tracing};
use crate::hooks::Hooks;
use crate::hooks::Script;
use crate::request::{RequestSpec, from_review};

/// Access to the files of suites. The implementation decides which files are read, and their limits.
pub trait Files {
    /// All files below the test paths.
    fn all(&self) -> &[PathBuf];

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    fn read(&self, path: &Path) -> Result<String, FileError>;

    /// Creates webhooks from scripts; file references in them are relative to the folder.
    ///
    /// # Errors
    ///
    /// Fails if a script is invalid.
    fn hooks(&self, scripts: Vec<Script>, folder: &Path) -> Result<Hooks, FileError>;

    /// The Kubernetes version of the tested chains.
    fn kube_version(&self) -> KubeVersion {
        KubeVersion::REFERENCE
    }
}

/// An unusable file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

/// An error loading a case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is neither YAML nor JSON.
    #[error(transparent)]
    Manifest(#[from] crate::manifest::ManifestError),
    /// A manifest would be rejected by an API server.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A suite is invalid.
    #[error("{file}: {message}")]
    Suite {
        /// The file.
        file: String,
        /// The error.
        message: String,
    },
}

impl LoadError {
    fn suite(file: &Path, message: impl ToString) -> Self {
        Self::Suite {
            file: file.display().to_string(),
            message: message.to_string(),
        }
    }
}

/// The request of a case.
#[derive(Debug, Clone)]
pub enum CaseRequest {
    /// An object, an operation and a user.
    RequestSpec(Box<RequestSpec>),
    /// The request of a review.
    Review(Box<serde_json::Value>),
}

/// A test case.
#[derive(Debug)]
pub struct Case {
    /// The suite: a folder or a file.
    pub suite: String,
    /// The name in its suite.
    pub name: String,
    /// The file that contains it.
    pub file: String,
    /// Everything except the request.
    pub world: Arc<World>,
    /// The request.
    pub asked: CaseRequest,
    /// The expectation.
    pub expect: Expect,
    /// Additional checks of mutations.
    pub checks: Checks,
}

/// The cases of all suites, and invalid suites.
#[derive(Debug, Default)]
pub struct Suites {
    /// The cases, sorted by file.
    pub cases: Vec<Case>,
    /// The invalid suites, by file.
    pub broken: Vec<(String, LoadError)>,
}

/// The outcome of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The differences from the expectation; empty if the case passed.
    pub failures: Vec<String>,
    /// The duration.
    pub elapsed: Duration,
    /// The run, if a trace was requested.
    pub run: Option<Run>,
}

/// Loads the cases from files in any layout.
#[must_use]
pub fn load(files: &dyn Files) -> Suites {
    let mut suites = Suites::default();
    let mut add = |file: &Path, loaded: Result<Vec<Case>, LoadError>| match loaded {
        Ok(cases) => suites.cases.extend(cases),
        Err(error) => suites.broken.push((file.display().to_string(), error)),
    };
    for file in files.all() {
        let name = file.file_name().and_then(|name| name.to_str());
        match name.unwrap_or_default() {
            "kyverno-test.yaml" | "kyverno-test.yml" => add(file, kyverno::load(files, file)),
            "tests.json" => add(file, kubescape::load(files, file)),
            name if name.ends_with(".yaml") || name.ends_with(".yml") => {
                let text = match files.read(file) {
                    Ok(text) => text,
                    Err(error) => {
                        add(file, Err(error.into()));
                        continue;
                    }
                };
                if text.contains("test.gatekeeper.sh/") && text.contains("kind: Suite") {
                    add(file, gator::load(files, file, &text));
                } else if text.contains(chains::API_VERSION) {
                    add(file, chains::load(files, file, &text));
                }
            }
            _ => {}
        }
    }
    for (folder, loaded) in kat::load_all(files) {
        add(&folder, loaded);
    }
    suites
        .cases
        .sort_by(|one, other| (&one.suite, &one.file).cmp(&(&other.suite, &other.file)));
    suites
}

impl Case {
    /// Creates the request, with the kinds of the case's world.
    fn request(&self) -> Result<Request, crate::request::RequestError> {
        let kinds = self.world.kinds();
        match &self.asked {
            CaseRequest::RequestSpec(wanted) => wanted.make(kinds).map(|made| made.request),
            CaseRequest::Review(review) => from_review(review, kinds),
        }
    }

    /// Runs the case.
    pub async fn run(&self, tracing: Tracing) -> Outcome {
        let started = Instant::now();
        let failed = |failure: String| Outcome {
            failures: vec![failure],
            elapsed: started.elapsed(),
            run: None,
        };
        let request = match self.request() {
            Ok(request) => request,
            Err(error) => return failed(format!("cannot build the request: {error}")),
        };
        // The writers of fields are only recorded in a full trace.
        let needs_changes = !self.expect.blame.is_empty() || self.checks.preservation;
        let traced = match needs_changes {
            true => Tracing::Explained,
            false => tracing,
        };
        let run = self.world.chain().run(request.clone(), traced).await;
        let mut failures = self.expect.compare(&run, self.world.kinds());
        failures.extend(self.checks.check(&self.world, &request, &run).await);
        Outcome {
            failures,
            elapsed: started.elapsed(),
            run: (tracing == Tracing::Explained).then_some(run),
        }
    }
}

/// A path relative to the folder of a file, without `.` and `..`.
fn beside(file: &Path, relative: &str) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let mut path = folder.to_owned();
    for part in Path::new(relative).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                if !path.pop() {
                    path.push("..");
                }
            }
            other => path.push(other),
        }
    }
    path
}
