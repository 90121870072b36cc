//! The program `shaper-webhooks` and its charts, from outside.

mod chain;
mod charts;
mod cluster;
mod definitions;
mod program;
mod reviews;
mod support;
