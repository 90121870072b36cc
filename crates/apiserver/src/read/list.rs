//! Lists, complete or by page.
//!
//! UPSTREAM: apimachinery pkg/apis/meta/internalversion/validation/validation.go,
//! apiserver pkg/storage/continue.go

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine as _};
use lockgate_api::document::{self, Kind};
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::json;
use lockgate_go::number::{int, uint};
use lockgate_store::{Bloom, Entry, List, ReadAt, ReadError, Revision};
use serde_json::{Value, json};

use crate::decode::selection::Selection;
use crate::error::{Failure, Outcome, bad_request, expired, read_failed};
use crate::heavy;
use crate::http::limits;
use crate::http::query::Query;
use crate::persist::Storage;
use crate::registry::Resource;
use crate::request::Request;
use crate::respond::{self, Reply, StoredList};

const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter, or use the continue token in \
    this response to retrieve the remainder of the results. Continuing with the provided token \
    results in an inconsistent list - objects that were created, modified, or deleted between the \
    time the first chunk was returned and now may show up in the list.";

/// The options of a list.
struct ListOptions {
    at: ReadAt,
    wanted: u64,
    limit: Option<usize>,
    /// Only keys after this one.
    after: Option<String>,
    continues: bool,
}

/// Finds the requested objects. `is_paged` is true if they are read page by page without a limit.
pub(crate) async fn find(
    storage: &Storage,
    request: &Request,
    query: &Query,
    is_paged: bool,
) -> Outcome<Found> {
    let resource = &request.resource;
    let selection = Selection::read(query, resource)?;
    let prefix = storage.prefix(resource, request.namespace());
    let options = ListOptions::read(query, &prefix, is_paged)?;
    collect(storage, resource, &selection, &prefix, &options).await
}

/// Returns the found objects as a list.
pub(crate) async fn list(storage: &Storage, request: &Request, found: Found) -> Outcome<Reply> {
    let resource = &request.resource;
    let prefix = storage.prefix(resource, request.namespace());
    let is_custom = resource.is_custom();
    let mut metadata = found.metadata(&prefix);
    if resource.is_shown_as_stored() {
        let list = StoredList::new(resource, metadata, found.entries);
        return Ok(Reply::stored(list));
    }
    if is_custom && metadata.get("continue").is_none() {
        // UPSTREAM: lists of custom resources have an explicit empty continue token.
        metadata["continue"] = "".into();
    }
    // Custom resources are Go maps, whose keys are sorted.
    let (mut text, end) = if is_custom {
        let kind = json::to_string(&resource.names.list_kind);
        let api_version = json::to_string(resource.api_version());
        let metadata = json::to_string(&metadata);
        (
            format!("{{\"apiVersion\":{api_version},\"items\":["),
            format!("],\"kind\":{kind},\"metadata\":{metadata}}}"),
        )
    } else {
        let head = respond::list_head(resource.list_type(), &metadata);
        (head, String::from("]}"))
    };
    let mut pauses = YieldBudget::default();
    for (index, entry) in found.entries.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        pauses.after(entry.value.len()).await;
        let mut object = storage.decode(entry, resource).await?;
        if !is_custom && let Some(members) = object.as_object_mut() {
            members.remove("apiVersion");
            members.remove("kind");
        }
        heavy::run(entry.value.len(), || {
            text.push_str(&json::to_string(&object))
        });
    }
    text.push_str(&end);
    Ok(Reply::list(text))
}

/// Yields to other tasks while many entries are read.
#[derive(Debug, Default)]
struct YieldBudget {
    bytes: usize,
}

impl YieldBudget {
    async fn after(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > BYTES_PER_YIELD {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// About a millisecond of reading.
const BYTES_PER_YIELD: usize = 64 << 10;

/// The approximate cost of scanning an entry's metadata, whatever its size.
const OF_METADATA: usize = 128;

/// The entries of a list, and their revision.
pub(crate) struct Found {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) revision: Revision,
    remaining: Option<usize>,
    more: bool,
}

impl Found {
    /// The total size of the entries.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.value.len()).sum()
    }

    /// The metadata of the list, with the continue token.
    pub(crate) fn metadata(&self, prefix: &str) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if self.more
            && let Some(last) = self.entries.last()
        {
            let start = last.key.strip_prefix(prefix).unwrap_or(&last.key);
            let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision.0, "start": format!("{start}\0")});
            metadata["continue"] = URL_SAFE_NO_PAD.encode(json::to_string(&token)).into();
            if let Some(remaining) = self.remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        metadata
    }
}

/// All objects that match a selection, in the latest state.
pub(crate) async fn everything(
    storage: &Storage,
    resource: &Resource,
    selection: &Selection,
    prefix: &str,
) -> Outcome<Found> {
    let options = ListOptions {
        at: ReadAt::Latest,
        wanted: 0,
        limit: None,
        after: None,
        continues: false,
    };
    collect(storage, resource, selection, prefix, &options).await
}

async fn collect(
    storage: &Storage,
    resource: &Resource,
    selection: &Selection,
    prefix: &str,
    options: &ListOptions,
) -> Outcome<Found> {
    let mut at = options.at;
    let mut after = options.after.clone();
    let mut found = Found {
        entries: Vec::new(),
        revision: Revision::START,
        remaining: None,
        more: false,
    };
    // Conversion may change labels: the filter contains the stored ones.
    let bloom = match resource.is_shown_as_stored() {
        true => selection.bloom(),
        false => Bloom::EMPTY,
    };
    loop {
        let missing = options.limit.map(|limit| limit - found.entries.len());
        let list = List {
            prefix,
            at,
            after: after.as_deref(),
            limit: missing,
            bloom,
        };
        let page = match wait_for(storage, at, || storage.store().list(list)).await {
            Ok(page) => page,
            Err(ReadFailure::TooOld) if options.continues => {
                return Err(restart(storage, prefix, after.as_deref()).await);
            }
            Err(refused) => return Err(refused.into_failure(options.wanted)),
        };
        found.revision = page.revision;
        let last = page.entries.last().map(|entry| entry.key.to_string());
        if selection.is_everything() {
            found.remaining = Some(page.remaining);
            found.entries.extend(page.entries);
        } else {
            let by_metadata = resource.is_shown_as_stored() && selection.is_about_metadata();
            let mut pauses = YieldBudget::default();
            for entry in page.entries {
                let read = if by_metadata {
                    OF_METADATA
                } else {
                    entry.value.len()
                };
                pauses.after(read).await;
                let is_included = if by_metadata {
                    selection.includes_stored(&entry)?
                } else {
                    selection.includes(resource, &storage.decode(&entry, resource).await?)
                };
                if is_included {
                    found.entries.push(entry);
                }
            }
        }
        found.more = page.remaining > 0;
        let is_full = options
            .limit
            .is_none_or(|limit| found.entries.len() >= limit);
        if is_full || !found.more || last.is_none() {
            return Ok(found);
        }
        // The next page is of the same revision.
        (at, after) = (ReadAt::Exact(page.revision), last);
    }
}

/// 410 with a token that continues at the latest revision.
async fn restart(storage: &Storage, prefix: &str, after: Option<&str>) -> Failure {
    let mut failure = expired(CONTINUE_TOO_OLD);
    if let (Ok(_), Some(after)) = (storage.store().revision().await, after) {
        let start = after.strip_prefix(prefix).unwrap_or(after);
        let token = json!({"v": "meta.k8s.io/v1", "rv": -1, "start": format!("{start}\0")});
        failure.0.metadata.continue_token = URL_SAFE_NO_PAD.encode(json::to_string(&token));
    }
    failure
}

/// The failure to read a state.
enum ReadFailure {
    TooOld,
    Other(ReadError),
}

impl ReadFailure {
    fn into_failure(self, wanted: u64) -> Failure {
        match self {
            Self::TooOld => expired("The resourceVersion for the provided list is too old."),
            Self::Other(error) => read_failed(error, wanted),
        }
    }
}

/// Reads a revision that may be in the future; the error contains the requested revision.
pub(crate) async fn read_at<T, F>(storage: &Storage, at: ReadAt, read: impl Fn() -> F) -> Outcome<T>
where
    F: Future<Output = Result<T, ReadError>>,
{
    let wanted = match at {
        ReadAt::Latest => 0,
        ReadAt::NotOlderThan(wanted) | ReadAt::Exact(wanted) => wanted.0,
    };
    wait_for(storage, at, read)
        .await
        .map_err(|refused| refused.into_failure(wanted))
}

/// Waits briefly for a future revision.
async fn wait_for<T, F>(
    storage: &Storage,
    at: ReadAt,
    read: impl Fn() -> F,
) -> Result<T, ReadFailure>
where
    F: Future<Output = Result<T, ReadError>>,
{
    let deadline = tokio::time::Instant::now() + limits::CATCH_UP_TIMEOUT;
    loop {
        let error = match read().await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        match error {
            ReadError::Compacted(_) => return Err(ReadFailure::TooOld),
            ReadError::Future { current } => {
                let (ReadAt::NotOlderThan(wanted) | ReadAt::Exact(wanted)) = at else {
                    return Err(ReadFailure::Other(error));
                };
                // A watch delivers an event as soon as anything is written.
                let Ok(mut watch) = storage.store().watch("/", current).await else {
                    return Err(ReadFailure::Other(error));
                };
                let reached = async {
                    while watch
                        .next()
                        .await
                        .is_ok_and(|event| event.revision() < wanted)
                    {}
                };
                if tokio::time::timeout_at(deadline, reached).await.is_err() {
                    return Err(ReadFailure::Other(error));
                }
            }
            other => return Err(ReadFailure::Other(other)),
        }
    }
}

/// A resourceVersion that is not a number, with upstream's message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidVersion(FieldError);

/// Parses a resourceVersion.
pub(crate) fn revision(text: &str) -> Result<Revision, InvalidVersion> {
    uint(text).map(Revision).map_err(|error| {
        let path = Path::root("resourceVersion");
        InvalidVersion(FieldError::invalid(
            &path,
            Shown::Text(text),
            error.to_string(),
        ))
    })
}

impl ListOptions {
    /// Parses the options. An implicitly paged list is treated as if it had a limit.
    fn read(query: &Query, prefix: &str, is_paged: bool) -> Outcome<Self> {
        // It was validated with the selectors.
        let limit = int(query.text("limit")).ok();
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|&limit| limit > 0);
        let version = query.text("resourceVersion");
        let token = query.text("continue");
        if !token.is_empty() {
            let decoded = decode_token(token);
            let (revision, start) =
                decoded.map_err(|error| bad_request(format!("invalid continue token: {error}")))?;
            if !version.is_empty() && version != "0" {
                return Err(bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let at = match u64::try_from(revision) {
                Ok(revision) => ReadAt::Exact(Revision(revision)),
                Err(_) => ReadAt::Latest,
            };
            let wanted = u64::try_from(revision).unwrap_or_default();
            let after = Some(format!("{prefix}{start}"));
            return Ok(Self {
                at,
                wanted,
                limit,
                after,
                continues: true,
            });
        }
        if version.is_empty() || version == "0" {
            // Any version is satisfied by the latest state.
            let limit = limit.filter(|_| version.is_empty());
            return Ok(Self {
                at: ReadAt::Latest,
                wanted: 0,
                limit,
                after: None,
                continues: false,
            });
        }
        let wanted = revision(version)
            .map_err(|error| bad_request(format!("invalid resource version: {error}")))?;
        // UPSTREAM: apiserver pkg/storage/interfaces.go (ValidateListOptions): pages are exact by default.
        let matches = query.text("resourceVersionMatch");
        let at = if matches == "Exact" || (matches.is_empty() && (is_paged || limit.is_some())) {
            ReadAt::Exact(wanted)
        } else {
            ReadAt::NotOlderThan(wanted)
        };
        Ok(Self {
            at,
            wanted: wanted.0,
            limit,
            after: None,
            continues: false,
        })
    }
}

/// An invalid continue token, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum InvalidToken {
    #[error("continue key is not valid: {0}")]
    Key(String),
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
}

/// The revision and the last key of a token.
///
/// UPSTREAM: apiserver pkg/storage/continue.go (DecodeContinue)
fn decode_token(token: &str) -> Result<(i64, String), InvalidToken> {
    let invalid = |why: &dyn Display| InvalidToken::Key(why.to_string());
    let bytes = LENIENT.decode(token).map_err(|_| {
        invalid(&format_args!(
            "illegal base64 data at input byte {}",
            corrupt(token)
        ))
    })?;
    let document = document::json::parse(&bytes).map_err(|error| invalid(&error))?;
    let value = document.root();
    let mistyped = |of: &str, member: &str, ty: &str| {
        invalid(&format_args!(
            "json: cannot unmarshal {of} into Go {member} of type {ty}"
        ))
    };
    if !matches!(value.kind(), Kind::Object | Kind::Null) {
        let of = value.kind().name();
        return Err(mistyped(of, "value", "storage.continueToken"));
    }
    let text = |key: &str| match value.get(key) {
        None => Ok(String::new()),
        Some(member) => match (member.as_str(), member.kind()) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, Kind::Null) => Ok(String::new()),
            _ => {
                let field = format!("struct field continueToken.{key}");
                Err(mistyped(member.kind().name(), &field, "string"))
            }
        },
    };
    let version = text("v")?;
    let revision = match value.get("rv") {
        None => 0,
        Some(member) if member.kind() == Kind::Null => 0,
        Some(member) => match member.as_number().and_then(|text| int(text).ok()) {
            Some(revision) => revision,
            None => {
                let of = match member.as_number() {
                    Some(text) => format!("number {text}"),
                    None => member.kind().name().to_owned(),
                };
                return Err(mistyped(&of, "struct field continueToken.rv", "int64"));
            }
        },
    };
    let start = text("start")?;
    if version != "meta.k8s.io/v1" {
        return Err(InvalidToken::Version(version));
    }
    if revision == 0 {
        return Err(invalid(
            &"incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ));
    }
    if start.is_empty() {
        return Err(invalid(&"encoded start key empty (version meta.k8s.io/v1)"));
    }
    // A key outside of its prefix would read other objects.
    let key = start.strip_prefix('/').unwrap_or(&start);
    let is_clean = |segment: &str| !matches!(segment, "" | "." | "..");
    if !key.is_empty() && !key.split('/').all(is_clean) {
        return Err(invalid(&start));
    }
    Ok((revision, key.strip_suffix('\0').unwrap_or(key).to_owned()))
}

/// Base64 as Go decodes it: trailing bits are ignored.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The position at which a text is invalid base64.
fn corrupt(text: &str) -> usize {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let found = text.bytes().position(|byte| !is_digit(byte));
    found.unwrap_or_else(|| text.len().saturating_sub(1))
}
