//! `/statusz` and `/flagz`: debugging pages about this server.
//!
//! UPSTREAM: apiserver pkg/server/statusz, pkg/server/flagz

use std::collections::BTreeMap;
use std::time::Instant;

use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderMap, HeaderValue};
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::meta::time::Time;
use lockgate_go::json;
use serde::Serialize;

use crate::http::body::Response;
use crate::http::negotiate::{self, Encoding, Negotiated, Page};
use crate::http::query::Query;
use crate::metadata;
use crate::respond::{failed, plain_text, written};
use crate::version;

const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// Paths that are not debugging pages.
const OTHERS: [&str; 5] = ["/.well-known", "/api", "/apis", "/openapi", "/openid"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The first version in which they are enabled by default.
pub(crate) const SINCE: KubeVersion = KubeVersion::V1_36;

/// The startup of a server.
#[derive(Debug)]
pub(crate) struct Started {
    at: Time,
    since: Instant,
}

impl Started {
    pub(crate) fn now() -> Self {
        Self {
            at: metadata::now(),
            since: Instant::now(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statusz {
    kind: &'static str,
    api_version: String,
    metadata: Metadata,
    start_time: String,
    uptime_seconds: u64,
    go_version: String,
    binary_version: String,
    emulation_version: String,
    paths: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Flagz<'f> {
    kind: &'static str,
    api_version: String,
    metadata: Metadata,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    flags: &'f BTreeMap<String, String>,
}

/// Serves `/statusz`, with the paths listed at `/`.
pub(crate) fn statusz(
    started: &Started,
    version: KubeVersion,
    listed: &[String],
    headers: &HeaderMap,
    query: &Query,
) -> Response {
    let up = started.since.elapsed().as_secs();
    let document = version::document(version);
    let told = |member: &str| document[member].as_str().unwrap_or_default().to_owned();
    let mut paths: Vec<String> = listed
        .iter()
        .filter_map(|path| path.split('/').nth(1))
        .filter(|first| !first.is_empty())
        .map(|first| format!("/{first}"))
        .filter(|first| first != "/statusz" && !OTHERS.contains(&first.as_str()))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    let status = Statusz {
        kind: "Statusz",
        api_version: String::new(),
        metadata: Metadata { name: COMPONENT },
        start_time: started.at.to_string(),
        uptime_seconds: up,
        go_version: told("goVersion"),
        binary_version: told("gitVersion").trim_start_matches('v').to_owned(),
        emulation_version: format!("1.{}", version.minor()),
        paths,
    };
    let page = match negotiate::page(headers, query, GROUP, "Statusz") {
        Ok(page) => page,
        Err(failure) => return failed(&failure, Negotiated::PLAIN.encoding),
    };
    match page {
        Page::Text => plain_text(
            200,
            format!(
                "{}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {}\n\
                 Emulation version: {}\nPaths: {}\n",
                head("statusz"),
                unix_date(started.at.unix_seconds()),
                up / 3600,
                up / 60 % 60,
                up % 60,
                status.go_version,
                status.binary_version,
                status.emulation_version,
                status.paths.join(" "),
            ),
        ),
        Page::Object { version, encoding } => {
            let status = Statusz {
                api_version: format!("{GROUP}/{version}"),
                ..status
            };
            object(json::to_string(&status), "Statusz", version, encoding)
        }
    }
}

/// Serves `/flagz`.
pub(crate) fn flagz(
    flags: &BTreeMap<String, String>,
    headers: &HeaderMap,
    query: &Query,
) -> Response {
    match negotiate::page(headers, query, GROUP, "Flagz") {
        Err(failure) => failed(&failure, Negotiated::PLAIN.encoding),
        Ok(Page::Text) => {
            let lines = flags
                .iter()
                .map(|(name, value)| format!("{name}={value}\n"));
            let lines: String = lines.collect();
            plain_text(200, head("flagz") + &lines)
        }
        Ok(Page::Object { version, encoding }) => {
            let flagz = Flagz {
                kind: "Flagz",
                api_version: format!("{GROUP}/{version}"),
                metadata: Metadata { name: COMPONENT },
                flags,
            };
            object(json::to_string(&flagz), "Flagz", version, encoding)
        }
    }
}

fn head(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nWarning: This endpoint is not meant to be machine parseable, has no \
         formatting compatibility guarantees and is for debugging purposes only.\n"
    )
}

fn object(text: String, kind: &str, version: &str, encoding: Encoding) -> Response {
    let mut response = written(200, text, encoding);
    let headers = response.headers_mut();
    let form = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let told = format!(
        "{};g={GROUP};v={version};as={kind}",
        form.unwrap_or_default()
    );
    if let Ok(told) = HeaderValue::from_str(&told) {
        headers.insert(CONTENT_TYPE, told);
    }
    if version == "v1alpha1" {
        let page = kind.to_ascii_lowercase();
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = HeaderValue::from_str(&warning) {
            headers.insert(WARNING, warning);
        }
    }
    response
}

/// Formats a time like Go's `time.UnixDate`: `Thu Jan 1 00:00:00 UTC 1970`.
fn unix_date(seconds: i64) -> String {
    let text = Time::from_unix_seconds(seconds).to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let number = |range| part(range).parse::<usize>().unwrap_or_default();
    let days = usize::try_from(seconds.div_euclid(86_400)).unwrap_or_default();
    let weekday = WEEKDAYS.get(days % 7).copied().unwrap_or_default();
    let month = number(5..7).checked_sub(1).and_then(|at| MONTHS.get(at));
    format!(
        "{weekday} {} {:>2} {} UTC {}",
        month.copied().unwrap_or_default(),
        number(8..10),
        part(11..19),
        part(0..4),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_dates_as_go_does() {
        for (seconds, want) in [
            (0, "Thu Jan  1 00:00:00 UTC 1970"),
            (1_709_210_096, "Thu Feb 29 12:34:56 UTC 2024"),
            (1_725_603_591, "Fri Sep  6 06:19:51 UTC 2024"),
        ] {
            assert_eq!(unix_date(seconds), want);
        }
    }
}
