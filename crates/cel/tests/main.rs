//! Everything the crate promises, tried from outside.

mod vectors;
