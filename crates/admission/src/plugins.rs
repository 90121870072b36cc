//! Plugins that are compiled in.

mod always_pull_images;
mod default_toleration_seconds;
mod namespace_lifecycle;
mod pod;

pub use always_pull_images::AlwaysPullImages;
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use namespace_lifecycle::NamespaceLifecycle;

#[cfg(test)]
mod tests;
