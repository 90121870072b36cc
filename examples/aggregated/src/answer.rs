//! Responses: objects, errors, and watch streams.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Frame;
use lockgate_api::meta::status::Status;
use serde_json::Value;
use tokio::sync::mpsc;

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => bytes.take(),
            Self::Events(events) => match events.poll_recv(context) {
                Poll::Ready(event) => event,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

pub(crate) fn with(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(crate) fn object(code: StatusCode, object: &Value) -> Response<Body> {
    let bytes = Bytes::from(object.to_string());
    with(code, Body::Whole(Some(bytes)))
}

pub(crate) fn refused(status: &Status) -> Response<Body> {
    let code = u16::try_from(status.code).ok();
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let body = serde_json::to_value(status).unwrap_or_default();
    object(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body)
}

pub(crate) fn failure(code: i32, reason: &str, message: impl Into<String>) -> Status {
    Status {
        code,
        reason: reason.to_owned(),
        ..Status::bad_request(message.into())
    }
}
