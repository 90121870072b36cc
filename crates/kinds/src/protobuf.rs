//! Protobuf encoding of objects in requests and responses.
//!
//! Go clients encode built-in kinds in protobuf by default, and do not fall back to JSON. The tables of
//! [`typed`](crate::typed) contain the field numbers, so one decoder serves all kinds:
//!
//! ```text
//! k8s\0 ► envelope (apiVersion, kind, raw) ► message ► tree ► normal form
//! ```
//!
//! and `encode` is the reverse.
//!
//! The decoder is a loop with an explicit stack. Its output is bounded by the input: at most [`MAX_MESSAGES`]
//! messages, nested at most [`tree::MAX_DEPTH`](crate::tree::MAX_DEPTH) levels.
//!
//! UPSTREAM: apimachinery pkg/runtime/serializer/protobuf/protobuf.go, and the `generated.pb.go` of each
//! package for error messages.

mod encode;
mod envelope;
mod error;
mod message;
#[cfg(test)]
mod tests;
mod value;
mod wire;

pub use encode::{EncodeError, encode, watch_frame};
pub use envelope::{Envelope, MAGIC};
pub use error::DecodeError;
pub use message::{MAX_MESSAGES, decode};
