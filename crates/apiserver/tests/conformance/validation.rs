//! Recorded creates and updates of built-in kinds: the code, the object with defaults, every cause and every warning.
//!
//! New objects are dry runs; for an update the old object is stored first and deleted afterwards.
//! `LOCKGATE_VALIDATION_VECTORS=FILE` runs other recordings in the same format.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::time::Time;
use lockgate_apiserver::{Settings, TestServer};
use serde_json::{Value, json};

use crate::client::{Client, Question, Reply};
use crate::gaps::{Gaps, Verdict};
use crate::node::Node;
use crate::{Report, settings};

/// Kinds whose status controllers write while a test runs.
const NO_STATUS: [&str; 3] = ["FlowSchema", "APIService", "PriorityLevelConfiguration"];

/// Timestamps within this distance from now were set by the server.
const RECENT_SECONDS: i64 = 900;

#[tokio::test(flavor = "multi_thread")]
async fn writes_end_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("conformance/vectors/validation/validation.jsonl.gz");
    let file = std::env::var_os("LOCKGATE_VALIDATION_VECTORS").map_or(own, PathBuf::from);
    let gaps = std::fs::read_to_string(root.join("conformance/gaps.toml")).unwrap();
    let gaps = Gaps::of_suite(&gaps, "validation").unwrap();
    let admin = UserInfo {
        username: String::from("admin"),
        uid: String::from("admin"),
        groups: Some(vec![String::from("system:masters")]),
        extra: None,
    };
    let server = TestServer::start_with(Settings {
        tokens: vec![(String::from("T"), admin)],
        ..settings()
    })
    .await
    .unwrap();
    let mut caller = Caller(Client::new(server.address(), server.ca_pem(), "T"));
    let mut report = Report::default();
    let mut updates: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for case in cases(&file) {
        let path = case["path"].as_str().unwrap();
        match case["op"].as_str().unwrap() {
            "setup" => {
                caller.send("POST", path, Some(&case["object"])).await;
            }
            "create" => {
                let url = format!("{path}?dryRun=All&fieldManager=t");
                let reply = caller.send("POST", &url, Some(&case["object"])).await;
                let got = answer(&reply, &case["object"], "");
                judge(&mut report, &gaps, &case, &got);
            }
            _ => {
                let key = format!("{path} {}", case["old"]);
                updates.entry(key).or_default().push(case);
            }
        }
    }
    for group in updates.values() {
        caller.update(&mut report, &gaps, group).await;
    }
    server.stop().await;
    report.end();
}

fn cases(file: &Path) -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A client for requests and responses as trees.
struct Caller(Client);

impl Caller {
    async fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.send_as(method, path, body, "application/json").await
    }

    async fn send_as(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> Reply {
        let body = body.map(|body| Node::parse_json(&body.to_string()).unwrap());
        let question = Question {
            method,
            path,
            body: body.as_ref(),
            content_type,
            headers: Vec::new(),
        };
        self.0.request(&question).await.unwrap()
    }

    /// Stores the old object of a group of updates, and sends the updates.
    async fn update(&mut self, report: &mut Report, gaps: &Gaps, group: &[Value]) {
        let Some(first) = group.first() else {
            return;
        };
        let (path, kind) = (first["path"].as_str().unwrap(), &first["kind"]);
        let name = first["old"]["metadata"]["name"].as_str().unwrap();
        let own = format!("{path}/{name}");
        self.remove(&own, kind).await;
        let stored = self.send("POST", path, Some(&first["old"])).await;
        let live = value(&stored);
        for case in group {
            if !(200..300).contains(&stored.code) {
                report.fail(case["id"].as_str().unwrap(), "the old object is refused");
                continue;
            }
            let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
            let text = case["object"].to_string();
            let text = text.replace("<uid>", uid).replace("<now>", &now());
            let mut object: Value = serde_json::from_str(&text).unwrap();
            let is_versioned = case["rv"] == true && object["metadata"].is_object();
            let url = format!("{own}?dryRun=All&fieldManager=t");
            let reply = loop {
                if is_versioned {
                    // A controller may have updated the status.
                    let newest = value(&self.send("GET", &own, None).await);
                    object["metadata"]["resourceVersion"] =
                        newest["metadata"]["resourceVersion"].clone();
                }
                let reply = self.send("PUT", &url, Some(&object)).await;
                // A controller may also write between the two requests, which no recording includes.
                if !(is_versioned && reply.code == 409 && case["want"]["code"] != 409) {
                    break reply;
                }
            };
            let got = answer(&reply, &case["object"], uid);
            judge(report, gaps, case, &got);
        }
        self.remove(&own, kind).await;
    }

    async fn remove(&mut self, path: &str, kind: &Value) {
        if self.send("GET", path, None).await.code == 404 {
            return;
        }
        let finalizers = json!({"metadata": {"finalizers": null}});
        let merge = "application/merge-patch+json";
        self.send_as("PATCH", path, Some(&finalizers), merge).await;
        let url = format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background");
        self.send("DELETE", &url, None).await;
        if kind == "Namespace" {
            let mut namespace = value(&self.send("GET", path, None).await);
            namespace["spec"] = json!({"finalizers": []});
            let url = format!("{path}/finalize");
            self.send("PUT", &url, Some(&namespace)).await;
        }
    }
}

fn now() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Time::from_unix_seconds(i64::try_from(now.as_secs()).unwrap()).to_string()
}

fn value(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body.to_json()).unwrap_or_default()
}

fn judge(report: &mut Report, gaps: &Gaps, case: &Value, got: &Value) {
    let (id, want) = (case["id"].as_str().unwrap(), &case["want"]);
    let mut lines = Vec::new();
    for key in ["code", "object", "causes", "message", "reason", "warnings"] {
        let (mut want, got) = (squeezed(&want[key]), squeezed(&got[key]));
        if let ("warnings", Value::Array(texts)) = (key, &mut want) {
            texts.sort_unstable_by_key(ToString::to_string);
        }
        if want != got && !(want.is_null() && got.is_null()) {
            lines.push(format!("{key}: want {want}\n{key}: got  {got}"));
        }
    }
    match gaps.judge(id, lines) {
        Verdict::Differs(lines) => {
            let lines = [vec![case["mut"].to_string()], lines].concat();
            report.add(id, Verdict::Differs(lines));
        }
        verdict => report.add(id, verdict),
    }
}

/// The recorded parts of a response.
fn answer(reply: &Reply, asked: &Value, uid: &str) -> Value {
    let body = value(reply);
    let mut warnings = Vec::new();
    for header in reply.headers.get_all("warning") {
        // 299 - "text"
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        let text = text.split_once('"').map_or("", |(_, rest)| rest);
        let text = text.strip_suffix('"').unwrap_or(text);
        warnings.push(text.replace("\\\"", "\"").replace("\\\\", "\\"));
    }
    warnings.sort_unstable_by_key(|text| json!(text).to_string());
    let mut answer = json!({"code": reply.code, "warnings": warnings});
    if (200..300).contains(&reply.code) {
        answer["object"] = clean(body, asked);
    } else {
        answer["message"] = body["message"].clone();
        answer["reason"] = json!(body["reason"].as_str().unwrap_or_default());
        let causes = body["details"]["causes"].as_array();
        let member = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        answer["causes"] = causes
            .into_iter()
            .flatten()
            .map(|cause| {
                json!({
                    "reason": member(cause, "reason"), "field": member(cause, "field"),
                    "message": member(cause, "message"),
                })
            })
            .collect();
    }
    without_uid(&answer, uid)
}

fn without_uid(value: &Value, uid: &str) -> Value {
    if uid.is_empty() {
        return value.clone();
    }
    serde_json::from_str(&value.to_string().replace(uid, "<uid>")).unwrap()
}

/// The object without values that differ between runs.
fn clean(mut object: Value, asked: &Value) -> Value {
    let mut uid = String::new();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if let Some(Value::String(own)) = metadata.remove("uid") {
            uid = own;
        }
        for key in ["creationTimestamp", "resourceVersion", "managedFields"] {
            metadata.remove(key);
        }
    }
    if object["kind"] == "Service" {
        forget_allocated(&mut object["spec"], &asked["spec"]);
    }
    if NO_STATUS.iter().any(|kind| object["kind"] == *kind)
        && let Some(members) = object.as_object_mut()
    {
        members.remove("status");
    }
    let mut object = without_uid(&object, &uid);
    forget_now(&mut object);
    object
}

/// Removes addresses and ports that the server allocated.
fn forget_allocated(spec: &mut Value, asked: &Value) {
    let Some(members) = spec.as_object_mut() else {
        return;
    };
    if asked.get("clusterIP").is_none() && members.get("clusterIP").is_none_or(|ip| ip != "None") {
        members.remove("clusterIP");
        members.remove("clusterIPs");
    }
    if asked.get("healthCheckNodePort").is_none() {
        members.remove("healthCheckNodePort");
    }
    let ports = members.get_mut("ports").and_then(Value::as_array_mut);
    for (index, port) in ports.into_iter().flatten().enumerate() {
        let asked = asked["ports"]
            .get(index)
            .and_then(|port| port.get("nodePort"));
        let is_asked = asked.and_then(Value::as_i64).is_some_and(|port| port != 0);
        if let (false, Some(port)) = (is_asked, port.as_object_mut()) {
            port.remove("nodePort");
        }
    }
}

fn forget_now(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(forget_now),
        Value::Object(members) => members.values_mut().for_each(forget_now),
        Value::String(text) => {
            let seconds = |text: &str| Time::parse(text).ok().map(|time| time.unix_seconds());
            if let (Some(time), Some(now)) = (seconds(text), seconds(&now()))
                && (time - now).abs() < RECENT_SECONDS
            {
                *text = String::from("<now>");
            }
        }
        _ => {}
    }
}

/// Collapses whitespace in strings, which Go's diffs randomise.
fn squeezed(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let words: Vec<&str> = text.split([' ', '\n', '\t', '\u{a0}']).collect();
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            json!(words.join(" "))
        }
        Value::Array(items) => items.iter().map(squeezed).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), squeezed(value)))
            .collect(),
        other => other.clone(),
    }
}
