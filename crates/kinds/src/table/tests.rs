//! Construction of tables. `tests/it` compares the cells of each kind with upstream.

use serde_json::{Value, json};

use super::*;
use crate::resource::find;

const NOW: i64 = 1_700_000_000;

fn options(include: Include, headers: Headers) -> Options<'static> {
    Options {
        include,
        headers,
        version: "v1",
        now: Time::from_unix_seconds(NOW),
    }
}

fn config_maps() -> Kind<'static> {
    Kind::BuiltIn(find("", "v1", "configmaps").unwrap())
}

#[test]
fn shows_as_much_of_the_object_as_wanted() {
    let map = json!({"metadata": {"name": "a", "creationTimestamp": "2023-11-14T22:12:20Z"}, "data": {"x": "y"}});
    let table = |include| {
        let options = options(include, Headers::Shown);
        render(
            config_maps(),
            json!({"resourceVersion": "7"}),
            [&map],
            options,
        )
    };
    let metadata = table(Include::Metadata);
    assert_eq!(metadata["kind"], "Table");
    assert_eq!(metadata["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(metadata["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(
        metadata["columnDefinitions"][0],
        json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0})
    );
    assert_eq!(
        metadata["rows"],
        json!([{"cells": ["a", 1, "60s"], "object":
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map["metadata"]}}])
    );
    let whole = table(Include::Object);
    assert_eq!(whole["rows"][0]["object"]["kind"], "ConfigMap");
    assert_eq!(whole["rows"][0]["object"]["data"], json!({"x": "y"}));
    assert_eq!(table(Include::None)["rows"][0]["object"], Value::Null);
}

#[test]
fn later_tables_of_a_watch_have_no_columns() {
    let options = options(Include::None, Headers::Omitted);
    let table = render(config_maps(), json!({}), [], options);
    assert_eq!(table["columnDefinitions"], Value::Null);
    assert_eq!(table["rows"], json!([]));
}

#[test]
fn refuses_to_include_something_else() {
    assert_eq!(Include::parse(""), Ok(Include::Metadata));
    assert_eq!(
        Include::parse("All").unwrap_err().to_string(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be \
         'Metadata', 'Object', 'None', or empty"
    );
}

#[test]
fn tells_spans_as_people_do() {
    for (seconds, text) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (10_860, "3h1m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (176_400, "2d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
        (i64::MAX, "292471208677y"),
    ] {
        assert_eq!(human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn every_resource_has_as_many_cells_as_columns() {
    for resource in crate::resource::resources() {
        let table = render(
            Kind::BuiltIn(resource),
            json!({}),
            [&json!({})],
            options(Include::None, Headers::Shown),
        );
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        let cells = table["rows"][0]["cells"].as_array().unwrap().len();
        // UPSTREAM: addresses have a cell more than columns.
        let extra = usize::from(resource.plural == "ipaddresses");
        assert_eq!(cells, columns + extra, "{}", resource.plural);
    }
}

#[test]
fn shows_flow_schemas_in_the_order_they_are_asked() {
    let schema = |name: &str, precedence: i64| json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}});
    let schemas = [schema("a", 9), schema("c", 1), schema("b", 1)];
    let kind = Kind::BuiltIn(find("flowcontrol.apiserver.k8s.io", "v1", "flowschemas").unwrap());
    let options = options(Include::None, Headers::Omitted);
    let table = render(kind, json!({}), &schemas, options);
    let names = [0, 1, 2].map(|row: usize| table["rows"][row]["cells"][0].clone());
    assert_eq!(names, ["b", "c", "a"]);
}
