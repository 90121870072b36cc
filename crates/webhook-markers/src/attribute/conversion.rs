//! The attribute `#[conversion(…)]` on the hub of a kind.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream};

use super::arguments::{self, Argument};
use super::{HubHeader, Problem, excluded, integer, path, place_of, words};
use crate::{ConversionMarker, check};

/// The arguments, by name.
const ARGUMENTS: &[&str] = &[
    "group",
    "path",
    "resource",
    "review_versions",
    "service_name",
    "service_namespace",
    "service_port",
    "url",
];

/// Parses the attribute of `impl Hub for T`. `at` is the location of the attribute.
///
/// # Errors
///
/// Returns all errors at once.
pub fn read_conversion(
    arguments: TokenStream,
    header: &HubHeader,
    at: Span,
) -> Result<ConversionMarker, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut places = HashMap::new();
    let mut marker = ConversionMarker {
        group: header.group.clone(),
        ..ConversionMarker::default()
    };
    match arguments::split(arguments) {
        Ok(arguments) => {
            for argument in &arguments {
                let read = place_of(argument, ARGUMENTS, &mut places);
                let read = read.and_then(|name| value(&mut marker, &name, argument));
                problems.extend(read.err());
            }
        }
        Err(problem) => problems.push(problem),
    }
    if marker.resource.is_empty() && !places.contains_key("resource") {
        let problem = Problem::new(at, "argument `resource` is missing");
        problems.push(problem.with_help("the plural of the kind: `resource = cronjobs`"));
    }
    let is_same = match (&header.group, &marker.group) {
        (Some(written), Some(given)) => written == given,
        _ => true,
    };
    if let (false, Some(&place)) = (is_same, places.get("group")) {
        let problem = Problem::new(place, "`API_VERSION` has another group");
        problems.push(problem.with_help("leave out `group`"));
    }
    let services = ["service_name", "service_namespace", "service_port"];
    problems.extend(excluded(
        &places,
        "url",
        &services,
        "a webhook is at a URL or behind a service",
    ));
    if problems.is_empty() {
        return Ok(marker);
    }
    Err(problems)
}

fn value(marker: &mut ConversionMarker, name: &str, argument: &Argument) -> Result<(), Problem> {
    match name {
        "group" | "resource" => {
            let item = argument.single()?;
            if !check::is_subdomain(&item.text) || (name == "resource" && item.text.contains('.')) {
                let message = format!("`{name}` cannot be `{}`", item.text);
                return Err(Problem::new(item.span, message));
            }
            match name {
                "group" => marker.group = Some(item.text.clone()),
                _ => marker.resource.clone_from(&item.text),
            }
        }
        "path" => marker.path = Some(path(argument.single()?)?),
        "review_versions" => {
            marker.review_versions = Some(words(argument, &["v1", "v1beta1"])?);
        }
        "url" => {
            let item = argument.single()?;
            check::url(&item.text).map_err(|error| Problem::new(item.span, error.to_string()))?;
            marker.url = Some(item.text.clone());
        }
        "service_name" => marker.service.name = Some(argument.single()?.text.clone()),
        "service_namespace" => marker.service.namespace = Some(argument.single()?.text.clone()),
        "service_port" => marker.service.port = Some(integer(argument, 1, 65_535)?),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;

    use super::*;

    const HUB: &str = r#"impl Hub for v1::CronJob { const KIND: &str = "CronJob"; const API_VERSION: &str = "batch.example.com/v1"; }"#;

    fn marker(arguments: &str, item: &str) -> Result<ConversionMarker, Vec<String>> {
        let tokens: Vec<TokenTree> = item.parse::<TokenStream>().unwrap().into_iter().collect();
        let messages = |problems: Vec<Problem>| {
            problems
                .into_iter()
                .map(|problem| problem.message)
                .collect()
        };
        let header = HubHeader::read(&tokens).map_err(|problem| messages(vec![problem]))?;
        read_conversion(arguments.parse().unwrap(), &header, Span::call_site()).map_err(messages)
    }

    #[test]
    fn the_group_is_that_of_the_api_version() {
        let read = marker(
            r#"resource = cronjobs, path = "/convert-cronjobs", review_versions(v1, v1beta1),
               service_name = hooks, service_namespace = infra, service_port = 8443"#,
            HUB,
        )
        .unwrap();
        assert_eq!(read.group.as_deref(), Some("batch.example.com"));
        assert_eq!(read.resource, "cronjobs");
        assert_eq!(read.path.as_deref(), Some("/convert-cronjobs"));
        assert_eq!(read.review_versions.unwrap(), ["v1", "v1beta1"]);
        assert_eq!(read.service.name.as_deref(), Some("hooks"));
        assert_eq!(read.service.namespace.as_deref(), Some("infra"));
        assert_eq!(read.service.port, Some(8443));
    }

    #[test]
    fn a_group_that_is_not_written_out_is_given() {
        let hub =
            "impl lockgate_webhook::Hub for Note { const API_VERSION: &'static str = NOTES; }";
        assert_eq!(marker("resource = notes", hub).unwrap().group, None);
        let read = marker("resource = notes, group = notes.example.com", hub).unwrap();
        assert_eq!(read.group.as_deref(), Some("notes.example.com"));
    }

    #[test]
    fn tells_what_is_wrong() {
        for (arguments, item, want) in [
            ("", HUB, &["argument `resource` is missing"][..]),
            (
                "resource = cronjobs.batch, resorce = x",
                HUB,
                &[
                    "`resource` cannot be `cronjobs.batch`",
                    "unknown argument `resorce`",
                ],
            ),
            (
                "resource = cronjobs, group = other.example.com",
                HUB,
                &["`API_VERSION` has another group"],
            ),
            (
                r#"resource = cronjobs, url = "https://a.example/x", service_port = 1"#,
                HUB,
                &[
                    "`service_port` and `url` exclude each other: a webhook is at a URL or behind a service",
                ],
            ),
            (
                "resource = cronjobs, review_versions = v2",
                HUB,
                &["`review_versions` is `v1` or `v1beta1`, not `v2`"],
            ),
            (
                "resource = cronjobs, path = convert",
                HUB,
                &["path `convert` does not start with `/`"],
            ),
            (
                "resource = cronjobs",
                "impl Spoke for CronJob {}",
                &["`conversion` must be on `impl Hub for T`"],
            ),
            (
                "resource = cronjobs",
                "struct CronJob;",
                &["`conversion` must be on `impl Hub for T`"],
            ),
        ] {
            assert_eq!(
                marker(arguments, item).unwrap_err(),
                want,
                "{arguments} {item}"
            );
        }
    }
}
