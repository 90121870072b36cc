//! Recordings of upstream's Go code, one case per line: decoding, defaults and errors.
//!
//! `LOCKGATE_KINDS_VECTORS=DIR` selects other recordings in the same format.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod custom_resources;
mod validation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockgate_api::document::json::parse;
use lockgate_api::meta::time::Time;
use lockgate_go::base64;
use lockgate_kinds::resource::by_kind;
use lockgate_kinds::strategy::{
    Context, Requester, prepare_create, prepare_update, validate_create, validate_update,
};
use lockgate_kinds::typed::{Type, type_of};
use lockgate_kinds::{conversion, crd, defaults, protobuf, strategic_merge, table};
use serde_json::{Value, json};

/// The cases of one recording.
fn cases(name: &str) -> Vec<Value> {
    let folder = std::env::var_os("LOCKGATE_KINDS_VECTORS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/vectors"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

struct Kind<'c> {
    group: &'c str,
    version: &'c str,
    kind: &'c str,
    ty: Type,
}

fn kind(case: &Value) -> Kind<'_> {
    let member = |name: &str| case[name].as_str().unwrap();
    let (group, version, kind) = (member("group"), member("version"), member("kind"));
    let ty = type_of(group, version, kind).unwrap();
    Kind {
        group,
        version,
        kind,
        ty,
    }
}

impl Kind<'_> {
    fn load(&self, object: &Value) -> Value {
        let mut value = self.ty.decode_value(object).unwrap().value;
        defaults::apply(self.group, self.version, self.kind, &mut value);
        value
    }
}

#[test]
fn reads_like_upstream() {
    for case in cases("decode.jsonl") {
        let text = case["text"].as_str().unwrap();
        let document = parse(text.as_bytes()).unwrap();
        let read = kind(&case).ty.decode(document.root());
        match case.get("error") {
            Some(error) => assert_eq!(read.unwrap_err().to_string(), *error, "{text}"),
            None => assert_eq!(json!(read.unwrap().findings), case["findings"], "{text}"),
        }
    }
}

#[test]
fn fills_in_like_upstream() {
    for case in cases("defaults.jsonl") {
        let kind = kind(&case);
        let value = kind.load(&case["object"]);
        assert_eq!(value, case["value"], "{}", kind.kind);
        assert_eq!(kind.load(&value), value, "{} again", kind.kind);
    }
}

#[test]
fn refuses_like_upstream() {
    let (groups, extra) = (Vec::new(), BTreeMap::new());
    let requester = Requester {
        name: "alice",
        uid: "",
        groups: &groups,
        extra: &extra,
    };
    let context = Context::new(Time::from_unix_seconds(1_700_000_000), requester);
    for case in cases("strategy.jsonl") {
        let kind = kind(&case);
        let resource = by_kind(kind.group, kind.version, kind.kind).unwrap();
        let mut value = kind.load(&case["object"]);
        let errors = match case.get("old") {
            None => {
                prepare_create(resource, &mut value, &context);
                validate_create(resource, &value, &context)
            }
            Some(old) => {
                let old = kind.load(old);
                let subresource = case["subresource"].as_str().unwrap();
                prepare_update(resource, subresource, &mut value, &old, &context);
                validate_update(resource, subresource, &value, &old, &context)
            }
        };
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(json!(texts), case["errors"], "{}", kind.kind);
    }
}

/// All stages of a write, from bytes to the stored object, followed by a patch.
#[test]
fn a_deployment_passes_all_stages() {
    let body = br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"n","uid":"1"},
        "spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
        "spec":{"containers":[{"name":"c","image":"nginx","surprise":1}]}}}}"#;
    let ty = type_of("apps", "v1", "Deployment").unwrap();
    let resource = by_kind("apps", "v1", "Deployment").unwrap();
    let decoded = ty.decode(parse(body).unwrap().root()).unwrap();
    assert_eq!(
        decoded.findings,
        [r#"unknown field "spec.template.spec.containers[0].surprise""#]
    );
    let mut stored = decoded.value;
    defaults::apply("apps", "v1", "Deployment", &mut stored);
    let (groups, extra) = (Vec::new(), BTreeMap::new());
    let requester = Requester {
        name: "alice",
        uid: "",
        groups: &groups,
        extra: &extra,
    };
    let context = Context::new(Time::from_unix_seconds(0), requester);
    prepare_create(resource, &mut stored, &context);
    assert!(validate_create(resource, &stored, &context).is_empty());
    assert_eq!(stored["metadata"]["generation"], 1);
    stored["metadata"]["resourceVersion"] = json!("1");

    let change = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c", "image": "nginx:2"}]}}}});
    let patched = strategic_merge::patch(&stored, &change, ty).unwrap();
    let mut updated = ty.from_unstructured(patched).unwrap().value;
    defaults::apply("apps", "v1", "Deployment", &mut updated);
    prepare_update(resource, "", &mut updated, &stored, &context);
    assert!(validate_update(resource, "", &updated, &stored, &context).is_empty());
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(
        updated["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx:2"
    );
    assert_eq!(conversion::equivalents(resource).count(), 0);
}

#[test]
fn prints_tables_like_upstream() {
    let mut wrong = Vec::new();
    for case in cases("tables.jsonl") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let columns: Vec<crd::Column> = case["columns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|column| crd::Column {
                name: text(&column["name"]),
                kind: text(&column["type"]),
                format: text(&column["format"]),
                description: text(&column["description"]),
                priority: column["priority"].as_i64().unwrap_or_default(),
                json_path: text(&column["jsonPath"]),
            })
            .collect();
        let kind = if columns.is_empty() {
            let named = kind(&case);
            table::Kind::BuiltIn(by_kind(named.group, named.version, named.kind).unwrap())
        } else {
            table::Kind::Custom {
                columns: &columns,
                api_version: "g/v1",
                kind: "K",
            }
        };
        let options = table::Options {
            include: table::Include::None,
            headers: table::Headers::Shown,
            version: "v1",
            now: Time::from_unix_seconds(case["now"].as_i64().unwrap()),
        };
        let table = table::render(kind, json!({}), [&case["object"]], options);
        let row = &table["rows"][0];
        if row["cells"] != case["cells"] {
            wrong.push(format!(
                "{} instead of {}: {case}",
                row["cells"], case["cells"]
            ));
        }
        assert_eq!(row.get("conditions"), case.get("conditions"), "{case}");
        for (ours, theirs) in std::iter::zip(
            table["columnDefinitions"].as_array().unwrap(),
            case["headers"].as_array().unwrap(),
        ) {
            let names = ["name", "type", "format", "priority", "description"];
            for (name, value) in names.iter().zip(theirs.as_array().unwrap()) {
                assert_eq!(&ours[name], value, "{case}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reads_protobuf_like_upstream() {
    for case in cases("protobuf.jsonl") {
        let body = base64::decode(case["protobuf"].as_str().unwrap()).unwrap();
        let object = protobuf::Envelope::open(&body).unwrap().object();
        assert_eq!(object.unwrap(), case["value"]);
        // A truncated body is rejected or decoded in part, without panicking.
        for length in 0..body.len() {
            if let Ok(envelope) = protobuf::Envelope::open(&body[..length]) {
                let _ = envelope.object();
            }
        }
    }
}

#[test]
fn writes_protobuf_like_upstream() {
    for case in cases("protobuf.jsonl") {
        let body = base64::decode(case["protobuf"].as_str().unwrap()).unwrap();
        let written = protobuf::encode(&case["value"]).unwrap();
        let read = protobuf::Envelope::open(&written).unwrap().object();
        assert_eq!(read.unwrap(), case["value"]);
        // Raw JSON is decoded and re-encoded, without the client's whitespace.
        let has_spaces = body.windows(3).any(|bytes| bytes == b"\": ");
        if !has_spaces {
            assert_eq!(written, body, "{}", case["value"]);
        }
    }
}

/// The fixtures of the published modules, which are not in this repository: `LOCKGATE_PROTOBUF_FIXTURES` is a list of
/// directories, separated by colons, with files `GROUP.VERSION.KIND.pb` and `.json`.
#[test]
fn reads_the_published_protobuf_fixtures() {
    let Some(folders) = std::env::var_os("LOCKGATE_PROTOBUF_FIXTURES") else {
        eprintln!("SKIPPED: LOCKGATE_PROTOBUF_FIXTURES is not set");
        return;
    };
    let (mut read, mut same) = (0, 0);
    for folder in std::env::split_paths(&folders) {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "pb") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let envelope = protobuf::Envelope::open(&bytes).unwrap();
            let (group, version) = envelope.group_version();
            if type_of(group, version, &envelope.kind).is_none() {
                eprintln!("not served: {}", path.display());
                continue;
            }
            let object = envelope.object().unwrap();
            let want = std::fs::read(path.with_extension("json")).unwrap();
            let want: Value = serde_json::from_slice(&want).unwrap();
            assert_eq!(object, want, "{}", path.display());
            let written = protobuf::encode(&want).unwrap();
            let again = protobuf::Envelope::open(&written).unwrap().object();
            assert_eq!(again.unwrap(), want, "{}", path.display());
            same += usize::from(written == bytes);
            read += 1;
        }
    }
    assert!(read > 0, "no fixture is of a known kind");
    eprintln!("{read} fixtures, {same} of them written byte by byte");
}
