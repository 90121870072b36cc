//! Loads scenarios, and expands their short forms.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::node::{Map, Node, map};
use crate::pattern::Pattern;

/// The short names of webhook configurations and their kinds.
pub(crate) const WEBHOOK_KINDS: [(&str, &str); 2] = [
    ("validating", "ValidatingWebhookConfiguration"),
    ("mutating", "MutatingWebhookConfiguration"),
];

/// The short names of policies, their kinds and the kinds of their bindings.
pub(crate) const POLICY_KINDS: [(&str, &str, &str); 2] = [
    (
        "vap",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        "map",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ),
];

const REGISTRATION: &str = "admissionregistration.k8s.io/v1";

static VARIABLE: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"\$\{([^}]+)\}"));

/// A scenario as loaded from its file.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) spec: Node,
}

/// The scenarios in a file or folder whose name or file name matches a glob.
pub(crate) fn load(path: &Path, only: &str) -> Result<Vec<Scenario>, String> {
    let only = Pattern::glob(only)?;
    let mut seen = BTreeSet::new();
    let mut scenarios = Vec::new();
    for file in files(path)? {
        let blame = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| blame(&error))?;
        let content = match Node::parse_yaml(&text).map_err(|error| blame(&error))? {
            Node::List(items) => items,
            single => vec![single],
        };
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        for spec in content {
            let name = spec.text("name").map_err(|error| blame(&error))?.to_owned();
            if !seen.insert(name.clone()) {
                return Err(blame(&format!("scenario name `{name}` is used twice")));
            }
            if only.matches(&name) || only.matches(&stem) {
                scenarios.push(Scenario { name, spec });
            }
        }
    }
    Ok(scenarios)
}

/// A file, or the YAML files of a folder and its subfolders, sorted.
fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let blame = |error: std::io::Error| format!("{}: {error}", path.display());
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(blame)? {
        let inner = entry.map_err(blame)?.path();
        if inner.is_dir() {
            found.extend(files(&inner)?);
        } else if inner
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(inner);
        }
    }
    found.sort();
    Ok(found)
}

/// The values of scenario variables.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) ca: String,
    pub(crate) other_ca: String,
    pub(crate) port: u16,
}

impl Names {
    /// The base URL of the webhooks.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn resolve(&self, name: &str) -> Result<String, String> {
        if let Some(repeat) = name.strip_prefix("repeat:") {
            let (text, count) = repeat.rsplit_once(':').unwrap_or((repeat, ""));
            let count = count
                .parse()
                .map_err(|_| format!("`${{{name}}}` does not say how often"))?;
            return Ok(text.repeat(count));
        }
        Ok(match name {
            "ns" => self.namespace.clone(),
            "ca" => self.ca.clone(),
            "other-ca" => self.other_ca.clone(),
            "url" => self.url(),
            "port" => self.port.to_string(),
            _ => return Err(format!("there is no variable `${{{name}}}`")),
        })
    }

    /// Replaces `${…}` in every string of a tree.
    pub(crate) fn substitute(&self, node: &Node) -> Result<Node, String> {
        let text = |text: &str| VARIABLE.replace(text, |groups| self.resolve(groups[1]));
        Ok(match node {
            // On its own it is a number.
            Node::Text(port) if port == "${port}" => Node::Int(self.port.into()),
            Node::Text(other) => Node::Text(text(other)?),
            Node::List(items) => {
                let items: Result<_, _> = items.iter().map(|item| self.substitute(item)).collect();
                Node::List(items?)
            }
            Node::Map(map) => {
                let members = map.iter();
                let members: Result<Map, String> = members
                    .map(|(key, value)| Ok((text(key)?, self.substitute(value)?)))
                    .collect();
                members?.into()
            }
            other => other.clone(),
        })
    }

    /// Expands a short form into objects; anything else is returned as it is.
    pub(crate) fn expand(&self, item: &Node) -> Result<Vec<Node>, String> {
        for (short, kind, binding) in POLICY_KINDS {
            if item.get(short).is_some() {
                return expand_policy(item, short, kind, binding);
            }
            if let Some(name) = item.get(&format!("{short}b")) {
                return Ok(vec![expand_binding(binding, name, name, item)?]);
            }
        }
        Ok(vec![self.expand_configuration(item)?])
    }

    /// Expands the short form of a webhook configuration; anything else is returned as it is.
    fn expand_configuration(&self, item: &Node) -> Result<Node, String> {
        let short = WEBHOOK_KINDS
            .iter()
            .find_map(|&(short, kind)| Some((kind, item.get(short)?)));
        let Some((kind, name)) = short else {
            return Ok(item.clone());
        };
        let webhooks = item.get("webhooks").map_or(&[][..], Node::items);
        let webhooks: Result<Vec<Map>, String> = webhooks
            .iter()
            .map(|webhook| self.expand_webhook(webhook))
            .collect();
        Ok(map! {
            "apiVersion": REGISTRATION,
            "kind": kind,
            "metadata": metadata(name, item),
            "webhooks": webhooks?,
        }
        .into())
    }

    fn expand_webhook(&self, short: &Node) -> Result<Map, String> {
        let mut webhook = map! {
            "admissionReviewVersions": vec!["v1"],
            "sideEffects": "None",
            "rules": vec!["CREATE v1 configmaps"],
        };
        for (key, value) in short.members() {
            webhook.set(key, value.clone());
        }
        if let Some(hook) = webhook.remove("hook") {
            let path = hook.as_str().ok_or("`hook` is no path")?;
            let url = format!("{}{path}", self.url());
            webhook.set(
                "clientConfig",
                map! {"url": url, "caBundle": self.ca.as_str()},
            );
        }
        if let Some(Node::List(rules)) = webhook.get("rules") {
            let rules: Result<Vec<Node>, String> = rules.iter().map(expand_rule).collect();
            webhook.set("rules", rules?);
        }
        Ok(without_unset(&webhook))
    }
}

/// The fields that are not marked as unset.
fn without_unset(map: &Map) -> Map {
    map.iter()
        .filter(|(_, value)| value.as_str() != Some("unset"))
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect()
}

/// The metadata of a short form.
fn metadata(name: &Node, item: &Node) -> Map {
    let mut metadata = map! {"name": name.clone()};
    for (key, value) in item.get("metadata").into_iter().flat_map(Node::members) {
        metadata.set(key, value.clone());
    }
    metadata
}

/// The resources of a policy or binding, with its rules expanded.
fn expand_match(resources: &Node) -> Result<Node, String> {
    let members = resources.members().map(|(key, value)| {
        let value = match (key, value) {
            ("resourceRules" | "excludeResourceRules", Node::List(rules)) => {
                let rules: Result<Vec<Node>, String> = rules.iter().map(expand_rule).collect();
                Node::List(rules?)
            }
            _ => value.clone(),
        };
        Ok((key.to_owned(), value))
    });
    Ok(members.collect::<Result<Map, String>>()?.into())
}

/// Expands the short form of a binding.
fn expand_binding(kind: &str, name: &Node, policy: &Node, short: &Node) -> Result<Node, String> {
    let mut spec = map! {"policyName": short.get("policy").unwrap_or(policy).clone()};
    if kind.starts_with("Validating") {
        spec.set("validationActions", vec!["Deny"]);
    }
    for (key, value) in short.members() {
        if !["vapb", "mapb", "policy", "name", "metadata"].contains(&key) {
            let value = match key {
                "matchResources" => expand_match(value)?,
                _ => value.clone(),
            };
            spec.set(key, value);
        }
    }
    Ok(map! {
        "apiVersion": REGISTRATION,
        "kind": kind,
        "metadata": metadata(name, short),
        "spec": without_unset(&spec),
    }
    .into())
}

/// Expands the short form of a policy into the policy and its bindings.
fn expand_policy(
    item: &Node,
    short: &str,
    kind: &str,
    binding_kind: &str,
) -> Result<Vec<Node>, String> {
    let name = item.get(short).ok_or("a policy without a name")?;
    let rules = item.get("rules").cloned();
    let rules = rules.unwrap_or_else(|| Node::List(vec![Node::from("CREATE v1 configmaps")]));
    let mut constraints = map! {"resourceRules": rules};
    for (key, value) in item.get("match").into_iter().flat_map(Node::members) {
        constraints.set(key, value.clone());
    }
    let constraints = without_unset(&constraints);
    let mut spec = map! {"matchConstraints": expand_match(&constraints.into())?};
    if short == "map" {
        spec.set("reinvocationPolicy", "Never");
        let mut mutations = Vec::new();
        for (key, patch_type, member) in [
            ("apply", "ApplyConfiguration", "applyConfiguration"),
            ("json", "JSONPatch", "jsonPatch"),
        ] {
            for expression in listed(item.get(key)) {
                let mut mutation = map! {"patchType": patch_type};
                mutation.set(member, map! {"expression": expression});
                mutations.push(mutation);
            }
        }
        if !mutations.is_empty() {
            spec.set("mutations", mutations);
        }
    }
    let own = [
        short, "rules", "match", "bind", "metadata", "apply", "json", "version",
    ];
    for (key, value) in item.members().filter(|(key, _)| !own.contains(key)) {
        let value = match (key, value) {
            ("validations", Node::List(validations)) => {
                let full = validations.iter().map(|validation| match validation {
                    Node::Text(_) => map! {"expression": validation.clone()}.into(),
                    full => full.clone(),
                });
                Node::List(full.collect())
            }
            _ => value.clone(),
        };
        spec.set(key, value);
    }
    let version = item.get("version").and_then(Node::as_str).unwrap_or("v1");
    let policy = map! {
        "apiVersion": format!("admissionregistration.k8s.io/{version}"),
        "kind": kind,
        "metadata": metadata(name, item),
        "spec": without_unset(&spec),
    };
    let mut all = vec![Node::from(policy)];
    let bindings = match item.get("bind") {
        None => vec![Map::default().into()],
        Some(Node::Bool(false)) => Vec::new(),
        some => listed(some),
    };
    for binding in bindings {
        let called = binding.get("name").unwrap_or(name);
        all.push(expand_binding(binding_kind, called, name, &binding)?);
    }
    Ok(all)
}

/// The items of a list, or a single item.
fn listed(node: Option<&Node>) -> Vec<Node> {
    match node {
        None | Some(Node::Null) => Vec::new(),
        Some(Node::List(items)) => items.clone(),
        Some(single) => vec![single.clone()],
    }
}

/// Parses `CREATE,UPDATE apps/v1 deployments,deployments/scale Namespaced` as a rule.
fn expand_rule(rule: &Node) -> Result<Node, String> {
    if let Some(short) = rule.get("rule") {
        let Node::Map(mut expanded) = expand_rule(short)? else {
            return Err(String::from("a rule is no rule"));
        };
        for (key, value) in rule.members().filter(|(key, _)| *key != "rule") {
            expanded.set(key, value.clone());
        }
        return Ok(Node::Map(expanded));
    }
    let Node::Text(text) = rule else {
        return Ok(rule.clone());
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (operations, group_version, resources, scope) = match words[..] {
        [operations, group_version, resources] => (operations, group_version, resources, None),
        [operations, group_version, resources, scope, ..] => {
            (operations, group_version, resources, Some(scope))
        }
        _ => return Err(format!("`{text}` is no rule")),
    };
    let (groups, versions) = group_version
        .rsplit_once('/')
        .unwrap_or(("", group_version));
    let list = |words: &str| -> Vec<String> { words.split(',').map(str::to_owned).collect() };
    let mut expanded = map! {
        "operations": list(operations),
        "apiGroups": list(groups),
        "apiVersions": list(versions),
        "resources": list(resources),
    };
    if let Some(scope) = scope {
        expanded.set("scope", scope);
    }
    Ok(expanded.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            namespace: String::from("lgt1x"),
            ca: String::from("Q0E="),
            other_ca: String::from("T1RIRVI="),
            port: 99,
        }
    }

    #[test]
    fn replaces_variables() {
        let node = Node::parse_yaml(r#"{"${ns}": ["${port}", "a${port}", "${repeat:ab:3}"]}"#);
        let node = names().substitute(&node.unwrap()).unwrap();
        assert_eq!(node.to_json(), r#"{"lgt1x": [99, "a99", "ababab"]}"#);
        assert!(names().substitute(&Node::from("${nosuch}")).is_err());
    }

    #[test]
    fn expands_configurations() {
        let short = "{mutating: cfg, metadata: {labels: {a: b}}, webhooks: [\
                     {name: a, hook: /m/a, sideEffects: unset, rules: ['* apps,x/v1,v2 deployments *']}]}";
        let full = names().expand(&Node::parse_yaml(short).unwrap()).unwrap();
        let [full] = &full[..] else {
            panic!("one object is one object");
        };
        let expected = r#"{"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "cfg", "labels": {"a": "b"}},
            "webhooks": [{"admissionReviewVersions": ["v1"], "name": "a",
                "clientConfig": {"url": "https://127.0.0.1:99/m/a", "caBundle": "Q0E="},
                "rules": [{"operations": ["*"], "apiGroups": ["apps", "x"], "apiVersions": ["v1", "v2"],
                           "resources": ["deployments"], "scope": "*"}]}]}"#;
        assert_eq!(*full, Node::parse_json(expected).unwrap());
    }

    #[test]
    fn expands_policies() {
        let short = "{vap: p, validations: ['true'], bind: {name: b, validationActions: [Warn]}}";
        let full = names().expand(&Node::parse_yaml(short).unwrap()).unwrap();
        let expected = r#"[{"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["configmaps"]}]}, "validations": [{"expression": "true"}]}},
            {"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
            "spec": {"policyName": "p", "validationActions": ["Warn"]}}]"#;
        assert_eq!(Node::List(full), Node::parse_json(expected).unwrap());
    }
}
