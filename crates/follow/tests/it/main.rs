//! An API server that follows a script, and what is learned from it.

mod watching;
