//! The webhooks of a scenario: they return the scripted responses, and record the reviews.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockgate_testkit::certs::{Authority, Identity};
use lockgate_testkit::{Ending, Recorded, ScriptedResponse, WebhookServer};

use crate::node::{Map, Node, map};

/// The compared headers, spelled as in the recordings.
const RECORDED_HEADERS: [&str; 3] = ["Content-Type", "Accept", "User-Agent"];

/// The certificates of all webhooks.
#[derive(Debug)]
pub(crate) struct Certificates {
    authority: Authority,
    /// A CA that issued none of the certificates.
    other: Authority,
    identity: Identity,
}

impl Certificates {
    pub(crate) fn make() -> Self {
        let authority = Authority::new("conformance-ca");
        let identity = authority.issue(&["localhost", "127.0.0.1", "*.default.svc"]);
        Self {
            identity,
            other: Authority::new("conformance-other-ca"),
            authority,
        }
    }
}

/// A server of scripted webhooks.
#[derive(Debug)]
pub(crate) struct Hooks {
    server: WebhookServer,
    script: Arc<Mutex<Script>>,
    /// The caBundle that trusts the webhooks, in base64.
    pub(crate) ca: String,
    /// A caBundle that does not trust them.
    pub(crate) other_ca: String,
}

#[derive(Debug, Default)]
struct Script {
    behaviours: Node,
    voice: Voice,
    calls: Vec<Map>,
    /// Calls so far, by path.
    counts: HashMap<String, i128>,
}

/// The behaviour of webhooks: as scripted in the scenario, or not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Voice {
    /// They allow everything and record nothing: before the steps, and during cleanup.
    #[default]
    Quiet,
    Loud,
}

impl Hooks {
    pub(crate) async fn start(certificates: &Certificates) -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let responding = Arc::clone(&script);
        let server = WebhookServer::builder()
            .identity(certificates.identity.clone(), certificates.authority.pem())
            .http1_only()
            .respond(move |request| respond(&responding, request))
            .start()
            .await;
        Self {
            server,
            script,
            ca: BASE64_STANDARD.encode(certificates.authority.pem()),
            other_ca: BASE64_STANDARD.encode(certificates.other.pem()),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Starts a scenario, in quiet mode.
    pub(crate) fn reset(&self, behaviours: Node) {
        *lock(&self.script) = Script {
            behaviours,
            ..Script::default()
        };
    }

    pub(crate) fn speak(&self, voice: Voice) {
        lock(&self.script).voice = voice;
    }

    /// The calls since the previous call of this method.
    pub(crate) fn take_calls(&self) -> Vec<Map> {
        std::mem::take(&mut lock(&self.script).calls)
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

fn respond(script: &Mutex<Script>, request: &Recorded) -> ScriptedResponse {
    if request.method == "GET" {
        // A GET is a redirect that was followed.
        let review = map! {"method": "GET"}.into();
        lock(script).receive(&request.path, "", Map::default(), &review);
        return ScriptedResponse::http(200, "");
    }
    let text = String::from_utf8_lossy(&request.body);
    let review =
        Node::parse_json(&text).unwrap_or_else(|_| map! {"unparsable": text.as_ref()}.into());
    let headers = RECORDED_HEADERS
        .iter()
        .filter_map(|&name| {
            let value = request.header(&name.to_ascii_lowercase())?;
            Some((name.to_owned(), Node::from(value)))
        })
        .collect();
    let behaviour = lock(script).receive(&request.path, &request.query, headers, &review);
    answer(&behaviour, &review)
}

impl Script {
    /// Records a review, and selects the scripted behaviour for it.
    fn receive(&mut self, path: &str, query: &str, headers: Map, review: &Node) -> Node {
        let user = review.lookup("request/userInfo/username");
        let by_itself = user.and_then(Node::as_str) == Some("system:apiserver");
        if self.voice == Voice::Quiet || by_itself {
            return Map::default().into();
        }
        let count = self.counts.entry(path.to_owned()).or_default();
        *count += 1;
        self.calls.push(map! {
            "path": path,
            "query": query,
            "headers": headers,
            "body": review.clone(),
        });
        let Some(behaviour) = self.behaviours.get(path) else {
            return Map::default().into();
        };
        let cases = behaviour.get("cases").map_or(&[][..], Node::items);
        cases
            .iter()
            .find(|case| {
                let mut when = case.get("when").into_iter().flat_map(Node::members);
                when.all(|(name, argument)| holds(name, argument, review, *count))
            })
            .unwrap_or(behaviour)
            .clone()
    }
}

/// Returns true if one condition of a case matches; JSON pointers are relative to `request`.
fn holds(name: &str, argument: &Node, review: &Node, count: i128) -> bool {
    let lookup = |pointer: &str| {
        review
            .get("request")
            .and_then(|request| request.lookup(pointer))
            .filter(|value| !value.is_null())
    };
    match (name, argument) {
        ("has", Node::Text(pointer)) => lookup(pointer).is_some(),
        ("lacks", Node::Text(pointer)) => lookup(pointer).is_none(),
        ("equals", Node::Map(pairs)) => pairs
            .iter()
            .all(|(pointer, value)| lookup(pointer).unwrap_or(&Node::Null) == value),
        ("call", Node::Int(number)) => count == *number,
        _ => panic!("no condition: `{name}: {}`", argument.short()),
    }
}

fn answer(behaviour: &Node, review: &Node) -> ScriptedResponse {
    if behaviour.get("close") == Some(&Node::Bool(true)) {
        return delayed(ScriptedResponse::raw("", Ending::Cut), behaviour);
    }
    let uid = review.lookup("request/uid").and_then(Node::as_str);
    let mut body = match behaviour.get("raw") {
        Some(raw) => raw
            .as_str()
            .unwrap_or_default()
            .replace("<uid>", uid.unwrap_or_default()),
        None => Node::from(build_review(behaviour, review)).to_json(),
    };
    if let Some(&Node::Int(size)) = behaviour.get("size") {
        let size = usize::try_from(size).unwrap_or_default();
        body.push_str(&" ".repeat(size.saturating_sub(body.len())));
    }
    let code = match behaviour.get("http") {
        Some(&Node::Int(code)) => u16::try_from(code).expect("a code of HTTP"),
        _ => 200,
    };
    let mut headers = map! {"Content-Type": "application/json"};
    for (name, value) in behaviour.get("headers").into_iter().flat_map(Node::members) {
        headers.set(name, value.clone());
    }
    let answer = headers.iter().fold(
        ScriptedResponse::http(code, body),
        |answer, (name, value)| answer.header(name, &value.spelled()),
    );
    delayed(answer, behaviour)
}

fn delayed(answer: ScriptedResponse, behaviour: &Node) -> ScriptedResponse {
    match behaviour.get("delay") {
        Some(&Node::Int(seconds)) => answer.delayed(Duration::from_secs_f64(seconds as f64)),
        Some(&Node::Float(seconds)) => answer.delayed(Duration::from_secs_f64(seconds)),
        _ => answer,
    }
}

/// Builds the response of a behaviour.
fn build_review(behaviour: &Node, review: &Node) -> Map {
    let or_own = |name: &str, own: Option<&Node>| {
        let chosen = behaviour.get(name).or(own);
        chosen.cloned().unwrap_or(Node::Null)
    };
    let mut response = map! {
        "uid": or_own("uid", review.lookup("request/uid")),
        "allowed": behaviour.get("deny").is_none(),
    };
    let denial = behaviour.get("deny").filter(|status| !status.is_null());
    for status in denial.into_iter().chain(behaviour.get("status")) {
        response.set("status", status.clone());
    }
    if let Some(patch) = behaviour.get("patch") {
        let text = match patch {
            Node::Text(text) => text.clone(),
            patch => patch.to_json(),
        };
        response.set("patch", BASE64_STANDARD.encode(text));
        response.set("patchType", "JSONPatch");
    }
    match behaviour.get("patchType") {
        Some(Node::Null) => drop(response.remove("patchType")),
        Some(other) => response.set("patchType", other.clone()),
        None => {}
    }
    for name in ["warnings", "auditAnnotations"] {
        if let Some(value) = behaviour.get(name) {
            response.set(name, value.clone());
        }
    }
    let response = Node::from(response);
    [
        ("apiVersion", or_own("apiVersion", review.get("apiVersion"))),
        ("kind", or_own("kind", review.get("kind"))),
        ("response", or_own("response", Some(&response))),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_null())
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review() -> Node {
        Node::parse_json(
            r#"{"apiVersion": "v1", "kind": "AdmissionReview",
                "request": {"uid": "u", "object": {"a": 1, "n": null}}}"#,
        )
        .unwrap()
    }

    fn answers(behaviour: &str) -> String {
        let behaviour = Node::parse_yaml(behaviour).unwrap();
        Node::from(build_review(&behaviour, &review())).to_json()
    }

    #[test]
    fn answers_as_the_behaviour_says() {
        let with = |response: &str| {
            format!(
                r#"{{"apiVersion": "v1", "kind": "AdmissionReview", "response": {{{response}}}}}"#
            )
        };
        for (behaviour, response) in [
            ("{}", r#""uid": "u", "allowed": true"#),
            ("{deny: null}", r#""uid": "u", "allowed": false"#),
            (
                "{deny: {code: 1}, warnings: [w]}",
                r#""uid": "u", "allowed": false, "status": {"code": 1}, "warnings": ["w"]"#,
            ),
            (
                "{patch: '[]', uid: x}",
                r#""uid": "x", "allowed": true, "patch": "W10=", "patchType": "JSONPatch""#,
            ),
            (
                "{patch: '[]', patchType: null}",
                r#""uid": "u", "allowed": true, "patch": "W10=""#,
            ),
            ("{response: {}}", ""),
        ] {
            assert_eq!(answers(behaviour), with(response), "{behaviour}");
        }
        assert_eq!(
            answers("{kind: null, response: null}"),
            r#"{"apiVersion": "v1"}"#
        );
    }

    #[test]
    fn chooses_the_first_case_that_holds() {
        let mut script = Script {
            behaviours: Node::parse_yaml(
                "/v: {cases: [{when: {call: 2}, n: 2}, {when: {has: /object/n}, n: no}, \
                 {when: {lacks: /object/n, equals: {/object/a: 1}}, n: 1}]}",
            )
            .unwrap(),
            voice: Voice::Loud,
            ..Script::default()
        };
        let mut number = || {
            let behaviour = script.receive("/v", "", Map::default(), &review());
            behaviour.get("n").cloned()
        };
        assert_eq!(number(), Some(Node::Int(1)));
        assert_eq!(number(), Some(Node::Int(2)));
        assert_eq!(number(), Some(Node::Int(1)));
        assert_eq!(script.calls.len(), 3);
    }
}
