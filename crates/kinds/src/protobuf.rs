//! Objects in protobuf, as clients send them and as they are answered.
//!
//! Clients made from Go's types write built-in kinds in protobuf unless told otherwise, and do not try
//! again in JSON. The field numbers are in the tables of [`typed`](crate::typed), so one reader serves
//! every kind:
//!
//! ```text
//! k8s\0 ► envelope (apiVersion, kind, raw) ► message ► tree ► normal form
//! ```
//!
//! and `encode` is the way back.
//!
//! The reader is a loop over an explicit stack. What it builds is bounded by the input: at most
//! [`MAX_MESSAGES`] messages, nested at most [`tree::MAX_DEPTH`](crate::tree::MAX_DEPTH) levels.
//!
//! UPSTREAM: apimachinery pkg/runtime/serializer/protobuf/protobuf.go, and the `generated.pb.go` of each
//! package for the texts of errors.

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
