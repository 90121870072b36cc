//! The outcome of a review in a test, with assertions.

use std::sync::Arc;

use lockgate_go::base64;
use serde_json::{Map, Value};

use super::apply::{PatchError, apply};
use super::review::Review;
use super::{ReadError, read};
use crate::object::MAX_DEPTH;
use crate::review::{Answered, ReviewError};
use crate::webhooks::Webhook;

/// A field unknown to every kind.
const UNKNOWN: &str = "unknownToTheWebhook";

/// The response of a webhook, with assertions as methods.
#[derive(Debug, Clone)]
pub struct Outcome {
    review: Review,
    webhook: Webhook,
    answer: Result<ReviewResponse, ReviewFailure>,
}

/// A review without a valid response.
#[derive(Debug, Clone, thiserror::Error)]
enum ReviewFailure {
    #[error(transparent)]
    Review(ReviewError),
    #[error("status {code}, {error}: {text}")]
    Body {
        code: u16,
        error: Arc<ReadError>,
        text: String,
    },
    #[error("{pointer} is {found:?}, expected {want}")]
    Echo {
        pointer: &'static str,
        found: Option<String>,
        want: String,
    },
    #[error("the patch is not base64")]
    PatchEncoding,
    #[error(transparent)]
    PatchSyntax(Arc<serde_json::Error>),
    #[error(transparent)]
    Patch(#[from] PatchError),
}

#[derive(Debug, Clone)]
struct ReviewResponse {
    response: Value,
    patch: Value,
    /// The object after the patch.
    patched: Option<Value>,
}

impl Outcome {
    pub(super) fn new(review: Review, webhook: Webhook, answered: &Answered) -> Self {
        let text = String::from_utf8_lossy(&answered.body);
        let answer = match &answered.outcome {
            Err(error) => Err(ReviewFailure::Review(error.clone())),
            Ok(_) => ReviewResponse::read(&review, answered.code, &text),
        };
        Self {
            review,
            webhook,
            answer,
        }
    }

    #[track_caller]
    fn answer(&self) -> &ReviewResponse {
        match &self.answer {
            Ok(answer) => answer,
            Err(why) => panic!("the webhook did not decide: {why}"),
        }
    }

    /// Asserts that the request is allowed.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn accepts(&self) -> &Self {
        let answer = self.answer();
        assert!(answer.is_allowed(), "it was rejected: {}", answer.message());
        self
    }

    /// Asserts that the request is denied, with a message that contains this text.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn rejects_with(&self, text: &str) -> &Self {
        let answer = self.answer();
        assert!(!answer.is_allowed(), "it was accepted");
        let message = answer.message();
        assert!(
            message.contains(text),
            "it was rejected in other words: {message}"
        );
        self
    }

    /// Asserts that the request is denied with this status code.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn rejects_with_code(&self, code: u16) -> &Self {
        let answer = self.answer();
        assert!(!answer.is_allowed(), "it was accepted");
        let found = answer.response.pointer("/status/code");
        let found = found.and_then(Value::as_u64);
        assert_eq!(found, Some(u64::from(code)), "{}", answer.message());
        self
    }

    /// Asserts that the webhook failed with an error that contains this text.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn faults_with(&self, text: &str) -> &Self {
        match &self.answer {
            Ok(answer) => panic!("the webhook decided: {}", answer.response),
            Err(why) => assert!(why.to_string().contains(text), "for another reason: {why}"),
        }
        self
    }

    /// Asserts that the patched object equals this one.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn patches_to(&self, object: &str) -> &Self {
        let answer = self.answer();
        let want = match read(object) {
            Ok(want) => want,
            Err(error) => panic!("this is neither YAML nor JSON: {error}\n{object}"),
        };
        let found = answer.patched.as_ref();
        assert_eq!(found, Some(&want), "after the patch {}", answer.patch);
        self
    }

    /// Asserts that the patch has exactly these operations.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn patch(&self, operations: &Value) -> &Self {
        assert_eq!(&self.answer().patch, operations);
        self
    }

    /// Asserts that there is no patch.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn unpatched(&self) -> &Self {
        self.patch(&Value::Array(Vec::new()))
    }

    /// Asserts that a warning contains this text.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn warns(&self, text: &str) -> &Self {
        let warnings = self.warnings();
        let says = warnings.iter().any(|warning| warning.contains(text));
        assert!(says, "there are other warnings: {warnings:?}");
        self
    }

    /// Asserts that there are no warnings.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    #[track_caller]
    pub fn does_not_warn(&self) -> &Self {
        assert_eq!(self.warnings(), Vec::<String>::new());
        self
    }

    /// Warnings for the client.
    ///
    /// # Panics
    ///
    /// Panics if the webhook failed.
    #[track_caller]
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.answer().response.get("warnings");
        let warnings = warnings.and_then(Value::as_array).into_iter().flatten();
        warnings
            .filter_map(|warning| Some(warning.as_str()?.to_owned()))
            .collect()
    }

    /// The object after the patch; `None` without an object.
    ///
    /// # Panics
    ///
    /// Panics if the webhook failed.
    #[track_caller]
    #[must_use]
    pub fn object(&self) -> Option<&Value> {
        self.answer().patched.as_ref()
    }

    /// The `response` of the review, as encoded.
    ///
    /// # Panics
    ///
    /// Panics if the webhook failed.
    #[track_caller]
    #[must_use]
    pub fn response(&self) -> &Value {
        &self.answer().response
    }

    /// Asserts that the webhook accepts its own result without further changes. The API server reinvokes webhooks when
    /// others changed the object in between.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    pub async fn idempotent(&self) -> &Self {
        self.accepts();
        if let Some(object) = &self.answer().patched {
            let again = self.review.about(object.clone());
            let again = again.ask_webhook(&self.webhook).await;
            let patch = &again.accepts().answer().patch;
            let is_empty = patch.as_array().is_some_and(Vec::is_empty);
            assert!(is_empty, "asked again, it changed more: {patch}");
        }
        self
    }

    /// Asserts that fields unknown to the webhook's types are kept: adds one to every nested object, calls the webhook
    /// again, and checks that each is still present.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    pub async fn preserves_unknown_fields(&self) -> &Self {
        self.accepts();
        if let Some(object) = &self.review.object {
            let mut marked = object.clone();
            let count = mark(&mut marked);
            let outcome = self.review.about(marked).ask_webhook(&self.webhook).await;
            let answer = outcome.accepts().answer();
            let left = answer.patched.as_ref().map_or(0, count_marks);
            assert_eq!(
                left, count,
                "fields were lost by the patch {}",
                answer.patch
            );
        }
        self
    }
}

impl ReviewResponse {
    fn read(review: &Review, code: u16, text: &str) -> Result<Self, ReviewFailure> {
        let body = read(text).map_err(|error| ReviewFailure::Body {
            code,
            error: Arc::new(error),
            text: text.to_owned(),
        })?;
        let (api_version, uid) = review.echoed();
        let echoed = |pointer: &'static str, want: &str| {
            let found = body.pointer(pointer).and_then(Value::as_str);
            match found == Some(want) {
                true => Ok(()),
                false => Err(ReviewFailure::Echo {
                    pointer,
                    found: found.map(str::to_owned),
                    want: want.to_owned(),
                }),
            }
        };
        echoed("/kind", "AdmissionReview")?;
        echoed("/apiVersion", &api_version)?;
        echoed("/response/uid", uid)?;
        let response = body.get("response").cloned().unwrap_or_default();
        let patch = match response.get("patch").and_then(Value::as_str) {
            None => Value::Array(Vec::new()),
            Some(patch) => {
                let patch = base64::decode(patch).map_err(|_| ReviewFailure::PatchEncoding)?;
                serde_json::from_slice(&patch)
                    .map_err(|error| ReviewFailure::PatchSyntax(Arc::new(error)))?
            }
        };
        let object = review.object.as_ref();
        let patched = object.map(|object| apply(object, &patch)).transpose()?;
        Ok(Self {
            response,
            patch,
            patched,
        })
    }

    fn is_allowed(&self) -> bool {
        self.response.get("allowed") == Some(&Value::Bool(true))
    }

    fn message(&self) -> &str {
        let message = self.response.pointer("/status/message");
        message.and_then(Value::as_str).unwrap_or_default()
    }
}

/// Adds the unknown field to every object with fields rather than map keys.
fn mark(object: &mut Value) -> usize {
    visit(object, &mut |members| {
        members.insert(UNKNOWN.to_owned(), Value::from("kept"));
        1
    })
}

fn count_marks(object: &Value) -> usize {
    visit(&mut object.clone(), &mut |members| {
        usize::from(members.contains_key(UNKNOWN))
    })
}

/// Visits every object with fields. An object with only string values may be a map, such as labels, and is skipped; so
/// are free-form objects.
fn visit(root: &mut Value, visitor: &mut impl FnMut(&mut Map<String, Value>) -> usize) -> usize {
    let mut count = 0;
    let mut open = vec![(root, 0)];
    while let Some((value, depth)) = open.pop() {
        match value {
            Value::Object(members) if depth < MAX_DEPTH / 2 => {
                let is_map = depth > 0
                    && members
                        .iter()
                        .all(|(name, value)| name == UNKNOWN || value.is_string());
                if !is_map || members.contains_key(UNKNOWN) {
                    count += visitor(members);
                }
                let inner = members
                    .iter_mut()
                    .filter(|(name, _)| *name != "managedFields");
                open.extend(inner.map(|(_, value)| (value, depth + 1)));
            }
            Value::Array(items) => open.extend(items.iter_mut().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    count
}
