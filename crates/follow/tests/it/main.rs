//! Following a scripted API server.

mod watching;
