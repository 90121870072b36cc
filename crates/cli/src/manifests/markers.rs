//! Reading the markers of programs.

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

/// Programs with attributes are read up to this size: their tokens take many times the room of the text.
const MAX_TOKENS_BYTES: usize = 4 * 1024 * 1024;

/// The markers of all programs.
#[derive(Debug, Default)]
pub struct Reading {
    /// The webhooks.
    pub found: Vec<Marked>,
    /// The conversions of custom resources.
    pub conversions: Vec<MarkedConversion>,
    /// The name of the object with mutating webhooks, where one is given.
    pub mutating_name: Option<String>,
    /// The name of the object with validating webhooks, where one is given.
    pub validating_name: Option<String>,
    /// The error.
    pub mistakes: Vec<Mistake>,
    /// Remarks.
    pub remarks: Vec<String>,
    /// The place of each configuration marker, by directory and kind.
    named: HashMap<(PathBuf, bool), String>,
}

impl Reading {
    /// Reads programs, in their order.
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
            // controller-gen knows nothing of conversions: those stand beside `Hub()` as well.
            if !found.is_seen && !matches!(read, Ok(Comment::Conversion(_))) {
                self.remarks.push(format!(
                    "{place}: not read, as controller-gen does not either: a marker stands outside of \
                     declarations, with an empty line after it"
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

    /// One conversion for a kind.
    fn convert(&mut self, marked: MarkedConversion) {
        let name = marked.registration.definition_name();
        let mut others = self.conversions.iter();
        if let Some(other) = others.find(|other| other.registration.definition_name() == name) {
            return self.mistakes.push(Mistake {
                place: marked.place,
                message: format!("`{name}` has a conversion already"),
                help: Some(format!("the other one is at {}", other.place)),
            });
        }
        self.conversions.push(marked);
    }

    /// One name for a kind in a folder; of several folders, the last.
    fn name(&mut self, folder: &Path, role: Role, name: String, place: String) {
        let is_mutating = role == Role::Mutating;
        let key = (folder.to_owned(), is_mutating);
        if let Some(other) = self.named.insert(key, place.clone()) {
            return self.mistakes.push(Mistake {
                place,
                message: String::from("this configuration has a marker already"),
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
        // A first line for the shell is no Rust.
        let is_script = text.starts_with("#!") && !text.starts_with("#![");
        let code = match text.find('\n') {
            Some(end) if is_script => text.get(end..).unwrap_or_default(),
            _ => text,
        };
        let tokens: TokenStream = match code.parse() {
            Ok(tokens) => tokens,
            Err(error) => {
                let message =
                    "this is not Rust: a bracket or a quote is open, or a token is unknown";
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
            message: String::from("`group` must be set: `API_VERSION` is not written out"),
            help: Some(String::from(
                "set it in the attribute, or write `API_VERSION` as a text",
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

/// Fills in what the type of the object says, as the attribute does with the compiler's help.
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
    // A resource that is named may be of any scope.
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

/// The arguments that neither the attribute nor the type of the object gives.
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

/// The logical path for one of kubebuilder's: `/validate-batch-v1-job` is `/validate-job`.
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
