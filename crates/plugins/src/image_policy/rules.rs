//! A list of allowed images.

use std::sync::Arc;

use lockgate_admission::host::BoxFuture;
use serde::Deserialize;

use super::{Backend, BackendError, ImageReviewSpec, ImageReviewStatus};

/// The configuration of [`ImageRules`].
///
/// ```
/// use lockgate_plugins::config;
/// use lockgate_plugins::image_policy::RulesConfiguration;
///
/// let rules: RulesConfiguration = config::read("
/// allow: ['registry.example.com/*', 'docker.io/library/postgres']
/// denyTags: [latest]
/// ")?;
/// # Ok::<(), lockgate_plugins::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RulesConfiguration {
    /// The allowed repositories, with their registry. A trailing `*` matches any suffix. An empty list allows all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Denied tags. An image without tag and digest has the tag `latest`.
    #[serde(default)]
    pub deny_tags: Vec<String>,
    /// Requires a digest in image names.
    #[serde(default)]
    pub require_digest: bool,
}

/// A backend with local rules.
#[derive(Debug, Clone)]
pub struct ImageRules {
    rules: Arc<RulesConfiguration>,
}

impl ImageRules {
    /// Creates a backend with these rules.
    #[must_use]
    pub fn new(rules: RulesConfiguration) -> Self {
        Self {
            rules: Arc::new(rules),
        }
    }

    /// The reason to deny an image.
    fn objection(&self, image: &str) -> Option<String> {
        let name = Image::parse(image);
        let mut allow = self.rules.allow.iter();
        if !self.rules.allow.is_empty() && !allow.any(|pattern| name.is_from(pattern)) {
            return Some(format!("`{image}` is not from an allowed repository"));
        }
        let deny = &self.rules.deny_tags;
        if let Some(tag) = name.tag()
            && deny.iter().any(|denied| denied == tag)
        {
            return Some(format!("`{image}` has the tag `{tag}`"));
        }
        let lacks_digest = self.rules.require_digest && !name.has_digest();
        lacks_digest.then(|| format!("`{image}` is not named by its digest"))
    }
}

impl Backend for ImageRules {
    fn review<'f>(
        &'f self,
        spec: &'f ImageReviewSpec,
    ) -> BoxFuture<'f, Result<ImageReviewStatus, BackendError>> {
        let containers = spec.containers.iter();
        let objections: Vec<String> = containers
            .filter_map(|container| self.objection(&container.image))
            .collect();
        let status = ImageReviewStatus {
            allowed: objections.is_empty(),
            reason: objections.join("; "),
            ..ImageReviewStatus::default()
        };
        Box::pin(async move { Ok(status) })
    }
}

/// An image name, parsed as in container runtimes.
#[derive(Debug, PartialEq, Eq)]
struct Image<'i> {
    /// The registry and repository; short names are expanded.
    repository: String,
    tag: Option<&'i str>,
    digest: Option<&'i str>,
}

impl<'i> Image<'i> {
    fn parse(text: &'i str) -> Self {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        // A colon before the last slash belongs to a port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
            _ => (name, None),
        };
        let has_registry = name
            .split_once('/')
            .is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost");
        let repository = match (has_registry, name.contains('/')) {
            (true, _) => name.to_owned(),
            (false, true) => format!("docker.io/{name}"),
            (false, false) => format!("docker.io/library/{name}"),
        };
        Self {
            repository,
            tag,
            digest,
        }
    }

    fn is_from(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(start) => self.repository.starts_with(start),
            None => self.repository == pattern,
        }
    }

    /// The tag: `latest` by default, unless there is a digest.
    fn tag(&self) -> Option<&'i str> {
        match (self.tag, self.digest) {
            (tag, None) => Some(tag.unwrap_or("latest")),
            (tag, Some(_)) => tag,
        }
    }

    fn has_digest(&self) -> bool {
        let hash = self.digest.and_then(|digest| digest.split_once(':'));
        hash.is_some_and(|(_, hash)| !hash.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_as_container_runtimes_do() {
        for (text, repository, tag, digest) in [
            ("nginx", "docker.io/library/nginx", Some("latest"), false),
            ("nginx:1", "docker.io/library/nginx", Some("1"), false),
            ("me/app", "docker.io/me/app", Some("latest"), false),
            ("localhost/app:2", "localhost/app", Some("2"), false),
            ("r.io:5000/a/b", "r.io:5000/a/b", Some("latest"), false),
            ("r.io:5000/a/b:3", "r.io:5000/a/b", Some("3"), false),
            ("r.io/a@sha256:0f", "r.io/a", None, true),
            ("r.io/a:4@sha256:0f", "r.io/a", Some("4"), true),
            ("r.io/a@sha256:", "r.io/a", None, false),
            ("", "docker.io/library/", Some("latest"), false),
        ] {
            let image = Image::parse(text);
            let got = (image.repository.as_str(), image.tag(), image.has_digest());
            assert_eq!(got, (repository, tag, digest), "{text}");
        }
    }

    #[test]
    fn objects_by_repository_tag_and_digest() {
        let rules = ImageRules::new(RulesConfiguration {
            allow: vec!["r.io/team/*".into(), "docker.io/library/nginx".into()],
            deny_tags: vec!["latest".into()],
            require_digest: false,
        });
        for (image, want) in [
            ("r.io/team/app:1", None),
            ("nginx:1", None),
            (
                "nginx-evil:1",
                Some("`nginx-evil:1` is not from an allowed repository"),
            ),
            (
                "r.io/teams/app:1",
                Some("`r.io/teams/app:1` is not from an allowed repository"),
            ),
            ("nginx", Some("`nginx` has the tag `latest`")),
        ] {
            assert_eq!(rules.objection(image).as_deref(), want, "{image}");
        }
        let pinned = ImageRules::new(RulesConfiguration {
            require_digest: true,
            ..RulesConfiguration::default()
        });
        assert_eq!(pinned.objection("a@sha256:00"), None);
        assert!(pinned.objection("a:1").is_some());
    }
}
