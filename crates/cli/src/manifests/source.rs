//! Finds the source files to read.

use std::path::{Path, PathBuf};

use lockgate_webhook_markers::source::Language;

use crate::input::{self, ReadError};
use crate::text::Source;

/// Directories of dependencies and build outputs.
const SKIPPED: [&str; 4] = ["node_modules", "target", "testdata", "vendor"];

/// A source file.
#[derive(Debug)]
pub struct Program {
    /// Its directory, which is a package in Go.
    pub folder: PathBuf,
    /// Its language.
    pub language: Language,
    /// Its text.
    pub source: Source,
}

/// Reads a file, or every Rust and Go file below a directory, without Go tests, hidden entries and
/// vendored code. Symbolic links to directories are not followed, so that the walk ends.
///
/// # Errors
///
/// A file cannot be read, is too large, or is not text.
pub fn read(path: &Path) -> Result<Vec<Program>, ReadError> {
    let io_error = |error| ReadError::Io {
        path: path.to_owned(),
        error,
    };
    let is_folder = std::fs::metadata(path).map_err(io_error)?.is_dir();
    let files = if is_folder {
        files_below(path)?
    } else {
        let language = language(path).unwrap_or(Language::Rust);
        vec![(path.to_owned(), language)]
    };
    let programs = files.into_iter().map(|(file, language)| {
        Ok(Program {
            folder: file.parent().unwrap_or_else(|| Path::new("")).to_owned(),
            language,
            source: input::read(&file)?,
        })
    });
    programs.collect()
}

fn language(path: &Path) -> Option<Language> {
    match path.extension()?.to_str()? {
        "go" => Some(Language::Go),
        "rs" => Some(Language::Rust),
        _ => None,
    }
}

fn files_below(folder: &Path) -> Result<Vec<(PathBuf, Language)>, ReadError> {
    let is_ignored = |name: &str| name.starts_with(['.', '_']);
    let files = input::files_below(
        folder,
        |name| !is_ignored(name) && !SKIPPED.contains(&name),
        |file, name| !is_ignored(name) && !name.ends_with("_test.go") && language(file).is_some(),
    )?;
    let files = files.into_iter();
    let mut found: Vec<_> = files
        .filter_map(|file| Some((language(&file)?, file)))
        .map(|(language, file)| (file, language))
        .collect();
    // Sorted by directory first: packages are read one after another.
    found.sort_by(|(a, _), (b, _)| (a.parent(), a).cmp(&(b.parent(), b)));
    Ok(found)
}
