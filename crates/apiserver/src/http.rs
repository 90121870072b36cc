//! Stage 1: from a socket to a parsed request.

pub(crate) mod body;
pub(crate) mod field_selector;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod negotiate;
pub(crate) mod query;
pub(crate) mod request_info;
pub(crate) mod tls;
