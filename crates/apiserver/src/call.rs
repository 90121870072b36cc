//! One request on its way through the stages, and what is to be told besides the answer.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use lockgate_admission::audit::Annotations;
use lockgate_admission::plugin::Admission;
use lockgate_admission::warnings::Warnings;
use lockgate_api::admission::UserInfo;

use serde_json::Value;

use crate::decode::body::{self, Expected};
use crate::decode::options::WriteOptions;
use crate::error::Outcome;
use crate::http::negotiate::{self, View};
use crate::http::query::Query;
use crate::http::request_info::Target;

/// A request that passed authentication.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: UserInfo,
    pub(crate) body: Bytes,
    /// When the request is over; none for those that go on, such as a watch.
    pub(crate) deadline: Option<Instant>,
    pub(crate) notes: Notes,
}

impl Call {
    /// Reads the body as an object of a kind. What a strict reader minds is told as warnings.
    pub(crate) fn read_object(
        &mut self,
        expected: Expected<'_>,
        options: &WriteOptions,
    ) -> Outcome<Value> {
        let sent = negotiate::sent(&self.headers, expected.shape.accepted())?;
        let decoded = body::decode(&self.body, sent, expected, options.field_validation())?;
        for warning in &decoded.warnings {
            self.notes.warn(warning);
        }
        Ok(decoded.object)
    }

    /// Whether the client wants metadata alone.
    pub(crate) fn wants_metadata(&self) -> bool {
        negotiate::wanted(&self.headers, &self.query, &[])
            .is_ok_and(|wanted| wanted.view == View::Metadata)
    }
}

/// What is told besides the answer.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Warnings,
    pub(crate) annotations: Vec<Annotations>,
}

impl Notes {
    /// Says something to the client.
    pub(crate) fn warn(&mut self, text: &str) {
        self.warnings.add(text);
    }

    /// Takes over what a run of admission had to say.
    pub(crate) fn add(&mut self, admission: &Admission) {
        for text in admission.warnings().texts() {
            self.warnings.add(text);
        }
        self.annotations.push(admission.annotations());
    }
}
