//! Finds the source position of a field path.

use lockgate_api::document::{Kind, Span, Value};
use lockgate_go::quote::{quote, quote_json};

/// Finds positions in one object.
pub(super) struct Locator<'d> {
    root: Value<'d>,
    /// The webhooks by index: a configuration may have thousands, with a finding for each.
    webhooks: Vec<Value<'d>>,
}

impl<'d> Locator<'d> {
    pub(super) fn new(root: Value<'d>) -> Self {
        let webhooks = root
            .get("webhooks")
            .into_iter()
            .flat_map(|list| list.items())
            .collect();
        Self { root, webhooks }
    }

    pub(super) fn root(&self) -> Value<'d> {
        self.root
    }

    /// The bytes to underline for a finding about the field at `path`, whose value the message shows
    /// as `shown`.
    ///
    /// A scalar is underlined itself, a list or map by its key, since it may be long. If the
    /// field is missing, its parent is underlined.
    pub(super) fn locate(&self, path: &str, shown: &str) -> Span {
        let mut place = Place {
            value: self.root,
            anchor: start_of(self.root),
        };
        let mut rest = path;
        if let Some((index, below)) = webhook_index(path)
            && let Some(&webhook) = self.webhooks.get(index)
        {
            place = Place {
                value: webhook,
                anchor: start_of(webhook),
            };
            rest = below;
        }
        for segment in segments(rest) {
            match place.step(&segment) {
                Some(next) => place = next,
                None => return place.anchor,
            }
        }
        if let Some(span) = offending_entry(place.value, shown) {
            return span;
        }
        match place.value.kind() {
            Kind::Array | Kind::Object | Kind::Null => place.anchor,
            _ => place.value.span(),
        }
    }
}

/// Splits `webhooks[7].name` into 7 and `name`.
fn webhook_index(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix("webhooks[")?.split_once(']')?;
    Some((index.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

struct Place<'d> {
    value: Value<'d>,
    /// The position to underline if the value has none.
    anchor: Span,
}

impl<'d> Place<'d> {
    fn step(&self, segment: &Segment<'_>) -> Option<Self> {
        match *segment {
            Segment::Name(name) => {
                let member = self
                    .value
                    .members()
                    .filter(|member| member.key == name)
                    .last()?;
                Some(Self {
                    value: member.value,
                    anchor: member.key_span,
                })
            }
            Segment::Index(index) => {
                let value = self.value.items().nth(index)?;
                Some(Self {
                    value,
                    anchor: start_of(value),
                })
            }
        }
    }
}

/// The first element of a container, or the whole scalar.
fn start_of(value: Value<'_>) -> Span {
    match value.members().next() {
        Some(first) => first.key_span,
        None => match value.items().next() {
            Some(first) => first.span(),
            None => value.span(),
        },
    }
}

/// Findings about labels and similar maps name the map; the entry is found by its shown value.
fn offending_entry(value: Value<'_>, shown: &str) -> Option<Span> {
    let is_shown = |text: &str| quote(text) == shown || quote_json(text) == shown;
    let in_map = value.members().find_map(|member| {
        if is_shown(member.key) {
            return Some(member.key_span);
        }
        member
            .value
            .as_str()
            .is_some_and(is_shown)
            .then(|| member.value.span())
    });
    in_map.or_else(|| {
        value
            .items()
            .find(|item| item.as_str().is_some_and(is_shown))
            .map(|item| item.span())
    })
}

enum Segment<'p> {
    Name(&'p str),
    Index(usize),
}

/// Splits `webhooks[0].name` and `properties[spec].type` into segments.
fn segments(path: &str) -> impl Iterator<Item = Segment<'_>> {
    path.split('.')
        .filter(|part| !part.is_empty())
        .flat_map(|part| {
            let (name, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            let indices = indices
                .split('[')
                .filter_map(|index| index.strip_suffix(']'));
            std::iter::once(Segment::Name(name)).chain(
                indices.map(|index| index.parse().map_or(Segment::Name(index), Segment::Index)),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_api::document::yaml;

    #[test]
    fn finds_values_names_and_what_is_missing() {
        let source = "metadata:\n  labels: {'a b': x, c: 'd e'}\nwebhooks:\n- name: n\n  rules:\n  - operations: [CREATE, NOPE]\n";
        let document = yaml::parse(source).unwrap();
        for (path, shown, want) in [
            ("webhooks[0].name", "\"n\"", "n"),
            ("webhooks[0].rules", "", "rules"),
            ("webhooks[0].rules[0].operations[1]", "\"NOPE\"", "NOPE"),
            ("webhooks[0].sideEffects", "", "name"),
            ("webhooks[0].rules[0].scope", "", "operations"),
            ("webhooks[7].name", "", "webhooks"),
            ("metadata.labels", "\"a b\"", "'a b'"),
            ("metadata.labels", "\"d e\"", "'d e'"),
            ("metadata.name", "", "metadata"),
            ("metadata.labels[c]", "", "'d e'"),
            ("nothing", "", "metadata"),
        ] {
            let span = Locator::new(document.root()).locate(path, shown);
            assert_eq!(&source[span.range()], want, "{path}");
        }
    }
}
