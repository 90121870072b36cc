//! Reads the markers in source files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lockgate_api::document::Span;
use lockgate_webhook::{ConversionRegistration, default_path, logical_path};
use lockgate_webhook_markers::attribute::{self, Problem};
use lockgate_webhook_markers::comment::{self, Comment};
use lockgate_webhook_markers::source::{
    Attribute, ConversionAttribute, Language, attributes, comments, conversions,
};
use lockgate_webhook_markers::{Alias, Marker, Role};
use proc_macro2::TokenStream;

use super::source::Program;
use super::types::{Kind, Types};
use super::{Marked, MarkedConversion, Mistake, conversion, registration};

/// The maximum size of a source file with attributes: its tokens take many times the memory of the text.
const MAX_TOKENS_BYTES: usize = 4 * 1024 * 1024;

/// The markers of all source files.
#[derive(Debug, Default)]
pub struct Reading {
    /// The webhooks.
    pub found: Vec<Marked>,
    /// The conversions of custom resources.
    pub conversions: Vec<MarkedConversion>,
    /// The name of the MutatingWebhookConfiguration, if set.
    pub mutating_name: Option<String>,
    /// The name of the ValidatingWebhookConfiguration, if set.
    pub validating_name: Option<String>,
    /// The errors in source files.
    pub mistakes: Vec<Mistake>,
    /// Notes.
    pub remarks: Vec<String>,
    /// The position of each configuration marker, by directory and kind.
    named: HashMap<(PathBuf, bool), String>,
}

impl Reading {
    /// Reads source files in order.
    #[must_use]
    pub fn of(programs: &[Program]) -> Self {
        let mut reading = Self::default();
        for program in programs {
            reading.comments(program);
            let text = &program.source.text;
            let has_attributes = text.contains("webhook") || text.contains("conversion");
            if program.language == Language::Rust && has_attributes {
                reading.attributes(program);
            }
        }
        reading
    }

    fn comments(&mut self, program: &Program) {
        for found in comments(&program.source.text, program.language) {
            let Some(read) = comment::read(found.text) else {
                continue;
            };
            let place = place(program, found.at);
            // controller-gen has no conversion markers, so they may be placed anywhere, such as at `Hub()`.
            if !found.is_seen && !matches!(read, Ok(Comment::Conversion(_))) {
                self.remarks.push(format!(
                    "{place}: marker ignored, as controller-gen does: put markers outside of \
                 declarations, followed by an empty line"
                ));
                continue;
            }
            match read {
                Ok(Comment::Webhook(marker)) => {
                    let aliases = marker.path.as_deref().and_then(shorten);
                    let aliases = aliases.into_iter().collect();
                    let registration = registration(&marker, marker.path.clone(), aliases);
                    self.found.push(Marked {
                        place,
                        registration,
                    });
                }
                Ok(Comment::Configuration { role, name }) => {
                    self.name(&program.folder, role, name, place);
                }
                Ok(Comment::Conversion(marker)) => {
                    if let Some(registration) = conversion(&marker) {
                        self.convert(MarkedConversion {
                            place,
                            registration,
                        });
                    }
                }
                Err(error) => self.mistakes.push(Mistake {
                    place: self::place(program, found.at + error.at),
                    message: error.message,
                    help: error.help,
                }),
            }
        }
    }

    /// Adds a conversion; a kind may have only one.
    fn convert(&mut self, marked: MarkedConversion) {
        let name = marked.registration.definition_name();
        let mut others = self.conversions.iter();
        if let Some(other) = others.find(|other| other.registration.definition_name() == name) {
            return self.mistakes.push(Mistake {
                place: marked.place,
                message: format!("`{name}` already has a conversion"),
                help: Some(format!("the other one is at {}", other.place)),
            });
        }
        self.conversions.push(marked);
    }

    /// The name per kind and directory; the last directory wins.
    fn name(&mut self, folder: &Path, role: Role, name: String, place: String) {
        let is_mutating = role == Role::Mutating;
        let key = (folder.to_owned(), is_mutating);
        if let Some(other) = self.named.insert(key, place.clone()) {
            return self.mistakes.push(Mistake {
                place,
                message: String::from("this configuration already has a marker"),
                help: Some(format!("the other one is at {other}")),
            });
        }
        let named = Some(name).filter(|name| !name.is_empty());
        if is_mutating {
            self.mutating_name = named;
        } else {
            self.validating_name = named;
        }
    }

    fn attributes(&mut self, program: &Program) {
        let name = &program.source.name;
        let text = program.source.text.as_str();
        if text.len() > MAX_TOKENS_BYTES {
            return self.mistakes.push(Mistake {
                place: name.clone(),
                message: format!("larger than {} MiB", MAX_TOKENS_BYTES / 1024 / 1024),
                help: Some(String::from("pass smaller files or directories")),
            });
        }
        // A shebang line is not Rust.
        let is_script = text.starts_with("#!") && !text.starts_with("#![");
        let code = match text.find('\n') {
            Some(end) if is_script => text.get(end..).unwrap_or_default(),
            _ => text,
        };
        let tokens: TokenStream = match code.parse() {
            Ok(tokens) => tokens,
            Err(error) => {
                let message = "invalid Rust: unclosed bracket or quote, or unknown token";
                return self.problem(
                    name,
                    Problem {
                        span: error.span(),
                        message: String::from(message),
                        help: None,
                    },
                );
            }
        };
        for found in conversions(tokens.clone()) {
            match read_conversion(found) {
                Ok((span, registration)) => self.convert(MarkedConversion {
                    place: position(name, span),
                    registration,
                }),
                Err(problems) => problems
                    .into_iter()
                    .for_each(|problem| self.problem(name, problem)),
            }
        }
        let types = Types::of(tokens.clone());
        for found in attributes(tokens) {
            match read(found, &types) {
                Ok((span, registration)) => self.found.push(Marked {
                    place: position(name, span),
                    registration,
                }),
                Err(problems) => problems
                    .into_iter()
                    .for_each(|problem| self.problem(name, problem)),
            }
        }
    }

    fn problem(&mut self, name: &str, problem: Problem) {
        self.mistakes.push(Mistake {
            place: position(name, problem.span),
            message: problem.message,
            help: problem.help,
        });
    }
}

fn read_conversion(
    found: ConversionAttribute,
) -> Result<(proc_macro2::Span, ConversionRegistration), Vec<Problem>> {
    let header = found.header.map_err(|problem| vec![problem])?;
    let marker = attribute::read_conversion(found.arguments, &header, found.span)?;
    let registration = conversion(&marker).ok_or_else(|| {
        vec![Problem {
            span: found.span,
            message: String::from("`group` must be set: `API_VERSION` is not a string literal"),
            help: Some(String::from(
                "set it in the attribute, or write `API_VERSION` as a string literal",
            )),
        }]
    })?;
    Ok((found.span, registration))
}

fn read(
    found: Attribute,
    types: &Types,
) -> Result<(proc_macro2::Span, lockgate_webhook::Registration), Vec<Problem>> {
    let header = found.header.map_err(|problem| vec![problem])?;
    let mut marker = attribute::read(found.arguments, &header, found.span)?;
    if let Some(kind) = types.kind_of(&header.kind) {
        complete(&mut marker, &kind);
    }
    let missing = unseen(&marker);
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let message = format!(
            "{} must be set: the type of the object is declared elsewhere",
            missing.join(", ")
        );
        let help = "set it in the attribute, or print `Webhooks::manifests` from the program";
        return Err(vec![Problem {
            span: found.span,
            message,
            help: Some(String::from(help)),
        }]);
    }
    let paths = marker.aliases.iter().filter_map(|alias| match alias {
        Alias::Path(path) => Some(path.clone()),
        Alias::Logical => None,
    });
    let registration = registration(&marker, marker.path.clone(), paths.collect());
    Ok((found.span, registration))
}

/// Sets the arguments that follow from the object's type, as the attribute macro does with the compiler's help.
fn complete(marker: &mut Marker, kind: &Kind) {
    let role = match marker.role {
        Role::Mutating => lockgate_webhook::Role::Mutating,
        Role::Validating => lockgate_webhook::Role::Validating,
    };
    let Kind {
        group,
        version,
        kind,
        plural,
        namespaced,
    } = kind;
    if marker.path.is_none() && marker.url.is_none() {
        marker.path = Some(default_path(role, group, version, kind));
    }
    for alias in &mut marker.aliases {
        if *alias == Alias::Logical {
            *alias = Alias::Path(logical_path(role, kind));
        }
    }
    // A resource set in the attribute may have any scope.
    if marker.resources.is_none() && marker.scope.is_none() {
        let scope = if *namespaced { "Namespaced" } else { "Cluster" };
        marker.scope = Some(String::from(scope));
    }
    let fill = |list: &mut Option<Vec<String>>, value: &str| {
        list.get_or_insert_with(|| vec![value.to_owned()]);
    };
    fill(&mut marker.groups, group);
    fill(&mut marker.versions, version);
    fill(&mut marker.resources, plural);
}

/// The arguments that follow neither from the attribute nor from the object's type.
fn unseen(marker: &Marker) -> Vec<&'static str> {
    let all = [
        ("groups", marker.groups.is_none()),
        ("versions", marker.versions.is_none()),
        ("resources", marker.resources.is_none()),
        ("path", marker.path.is_none() && marker.url.is_none()),
        ("alias", marker.aliases.contains(&Alias::Logical)),
    ];
    let missing = all.into_iter().filter(|(_, is_missing)| *is_missing);
    missing.map(|(name, _)| name).collect()
}

/// The logical path for a kubebuilder path: `/validate-batch-v1-job` becomes `/validate-job`.
fn shorten(path: &str) -> Option<String> {
    let (verb, rest) = path.strip_prefix('/')?.split_once('-')?;
    let kind = rest.rsplit('-').next().filter(|kind| *kind != rest)?;
    matches!(verb, "mutate" | "validate").then(|| format!("/{verb}-{kind}"))
}

fn place(program: &Program, at: usize) -> String {
    let position = program.source.position(Span::new(at, at).start);
    let name = &program.source.name;
    format!("{name}:{}:{}", position.line, position.column)
}

fn position(name: &str, span: proc_macro2::Span) -> String {
    let start = span.start();
    format!("{name}:{}:{}", start.line, start.column + 1)
}
