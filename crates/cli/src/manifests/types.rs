//! Resolves type names from source text: `use` imports from `k8s_openapi`, and custom resources derived with
//! `#[kube(…)]`.
//!
//! The attribute macro gets these facts from the compiler. Here, a type that is declared in another file is unknown.

use std::collections::HashMap;

use lockgate_kinds::resource;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The group, version, kind, plural and scope of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

/// The types named in one source file.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// Imported paths, by local name.
    imports: HashMap<String, Vec<String>>,
    /// Custom resources derived in this file, by kind.
    custom: HashMap<String, Kind>,
}

impl Types {
    pub(super) fn of(tokens: TokenStream) -> Self {
        let mut types = Self::default();
        types.collect(tokens);
        types
    }

    /// The kind of a type in an `impl`.
    pub(super) fn kind_of(&self, written: &[TokenTree]) -> Option<Kind> {
        let path = segments(written)?;
        if let [name] = path.as_slice() {
            return match self.custom.get(name) {
                Some(kind) => Some(kind.clone()),
                None => built_in(self.imports.get(name)?),
            };
        }
        // `v1::Pod`, from an imported module.
        let (first, rest) = path.split_first()?;
        match self.imports.get(first) {
            Some(module) => built_in(&[module, rest].concat()),
            None => built_in(&path),
        }
    }

    fn collect(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "use" => {
                    let end = tokens[at..].iter().position(|token| is_punct(token, ';'));
                    let tree = &tokens[at + 1..at + end.unwrap_or(1).max(1)];
                    self.import(&[], tree);
                }
                TokenTree::Group(group) => {
                    self.custom(group);
                    if group.delimiter() == Delimiter::Brace {
                        self.collect(group.stream());
                    }
                }
                _ => {}
            }
        }
    }

    /// Parses `a::b::{c, d as e}`.
    fn import(&mut self, prefix: &[String], tree: &[TokenTree]) {
        let mut path = prefix.to_vec();
        let mut tokens = tree.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    if let Some(TokenTree::Ident(name)) = tokens.next() {
                        self.imports.insert(name.to_string(), path);
                    }
                    return;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    let list: Vec<TokenTree> = group.stream().into_iter().collect();
                    for one in list.split(|token| is_punct(token, ',')) {
                        self.import(&path, one);
                    }
                    return;
                }
                _ => {}
            }
        }
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = path.last().cloned() {
            self.imports.insert(name, path);
        }
    }

    /// Parses `[kube(group = "…", version = "…", kind = "…", namespaced)]`.
    fn custom(&mut self, attribute: &Group) {
        let mut inner = attribute.stream().into_iter();
        let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(arguments))) =
            (inner.next(), inner.next())
        else {
            return;
        };
        if name != "kube" || attribute.delimiter() != Delimiter::Bracket {
            return;
        }
        let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
        let mut given: HashMap<String, String> = HashMap::new();
        for argument in tokens.split(|token| is_punct(token, ',')) {
            match argument {
                [TokenTree::Ident(name)] => {
                    given.insert(name.to_string(), String::new());
                }
                [TokenTree::Ident(name), _, TokenTree::Literal(value)] => {
                    let value = value.to_string().trim_matches('"').to_owned();
                    given.insert(name.to_string(), value);
                }
                _ => {}
            }
        }
        let (Some(group), Some(version), Some(kind)) =
            (given.get("group"), given.get("version"), given.get("kind"))
        else {
            return;
        };
        let plural = given.get("plural").cloned();
        let custom = Kind {
            group: group.clone(),
            version: version.clone(),
            kind: kind.clone(),
            // kube's derive forms the plural like this for regular nouns; others must set it.
            plural: plural.unwrap_or_else(|| format!("{}s", kind.to_lowercase())),
            namespaced: given.contains_key("namespaced"),
        };
        self.custom.insert(kind.clone(), custom);
    }
}

/// The kind of `k8s_openapi::api::apps::v1::Deployment`.
fn built_in(path: &[String]) -> Option<Kind> {
    let [first, .., module, version, kind] = path else {
        return None;
    };
    if first != "k8s_openapi" {
        return None;
    }
    let is_of = |group: &str| match group {
        "" => module == "core",
        group => group.split('.').next() == Some(module.as_str()),
    };
    let mut known = resource::resources();
    let found =
        known.find(|known| known.kind == kind && known.version == version && is_of(known.group))?;
    Some(Kind {
        group: found.group.to_owned(),
        version: found.version.to_owned(),
        kind: found.kind.to_owned(),
        plural: found.plural.to_owned(),
        namespaced: found.namespaced,
    })
}

/// The segments of a path without generics.
fn segments(tokens: &[TokenTree]) -> Option<Vec<String>> {
    let mut path = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ => return None,
        }
    }
    Some(path)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(program: &str, written: &str) -> Option<String> {
        let types = Types::of(program.parse().unwrap());
        let written: Vec<TokenTree> = written
            .parse::<TokenStream>()
            .unwrap()
            .into_iter()
            .collect();
        let kind = types.kind_of(&written)?;
        let scope = if kind.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        let Kind {
            group,
            version,
            plural,
            ..
        } = kind;
        Some(format!("{group}/{version} {plural} {scope}"))
    }

    #[test]
    fn knows_types_by_their_imports() {
        let program = "
            use std::{fmt, io::{self, Read}};
            use k8s_openapi::api::{apps::v1::Deployment, core::v1::{Namespace as Room, Pod}};
            use k8s_openapi::api::batch::v1;
        ";
        for (written, want) in [
            ("Deployment", Some("apps/v1 deployments Namespaced")),
            ("Pod", Some("/v1 pods Namespaced")),
            ("Room", Some("/v1 namespaces Cluster")),
            ("v1::CronJob", Some("batch/v1 cronjobs Namespaced")),
            (
                "k8s_openapi::api::networking::v1::Ingress",
                Some("networking.k8s.io/v1 ingresses Namespaced"),
            ),
            ("Read", None),
            ("Unheard", None),
            ("Vec<Pod>", None),
        ] {
            assert_eq!(shown(program, written).as_deref(), want, "{written}");
        }
    }

    #[test]
    fn knows_custom_resources_that_are_derived() {
        let program = r#"
            #[derive(CustomResource)]
            #[kube(group = "example.com", version = "v1", kind = "Note", namespaced)]
            struct NoteSpec { text: String }
            #[kube(group = "example.com", version = "v1", kind = "Box", plural = "boxes")]
            struct BoxSpec;
        "#;
        let want = "example.com/v1 notes Namespaced";
        assert_eq!(shown(program, "Note").as_deref(), Some(want));
        let want = "example.com/v1 boxes Cluster";
        assert_eq!(shown(program, "Box").as_deref(), Some(want));
    }
}
