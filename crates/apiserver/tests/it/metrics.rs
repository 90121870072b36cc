//! Request metrics: upstream's series for served resources, and none for unknown ones.

use std::collections::BTreeMap;

use http::Method;

use crate::support::*;

/// The metric values of a page, by series.
async fn metrics(client: &Client) -> BTreeMap<String, f64> {
    let page = client.get("/metrics").await.text();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The labels of ConfigMap requests, in the order of the exposition format.
fn labels(dry_run: Option<&str>, scope: &str, verb: &str) -> String {
    let dry_run = dry_run.map_or_else(String::new, |value| format!("dry_run=\"{value}\","));
    format!(
        "component=\"apiserver\",{dry_run}group=\"\",resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",\
         verb=\"{verb}\",version=\"v1\""
    )
}

fn total(code: u16, dry_run: &str, scope: &str, verb: &str) -> String {
    let labels = labels(Some(dry_run), scope, verb);
    format!("apiserver_request_total{{code=\"{code}\",{labels}}}")
}

#[tokio::test]
async fn requests_are_counted_by_resource() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let before = metrics(&client).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let again = client.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(again.code, 409);
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    client.create(&dry, config_map("b")).await;
    client.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    let listed = client.get(CONFIG_MAPS).await;
    let client_of_nobody = Client::anonymous(&server).await;
    client_of_nobody.get("/livez").await;
    let after = metrics(&client).await;
    let grown = |series: &str| {
        let value = after.get(series);
        let value = value.unwrap_or_else(|| panic!("{series} in {:#?}", after.keys()));
        value - before.get(series).copied().unwrap_or_default()
    };
    for (code, dry_run, scope, verb) in [
        (201, "", "resource", "POST"),
        (409, "", "resource", "POST"),
        (201, "All", "resource", "POST"),
        (200, "", "resource", "GET"),
        (200, "", "namespace", "LIST"),
    ] {
        let series = total(code, dry_run, scope, verb);
        assert!((grown(&series) - 1.0).abs() < 0.1, "{series}");
    }
    for (name, dry_run, scope, verb, want) in [
        (
            "request_duration_seconds",
            Some(""),
            "resource",
            "POST",
            2.0,
        ),
        (
            "request_duration_seconds",
            Some("All"),
            "resource",
            "POST",
            1.0,
        ),
        // Dry runs are not part of the SLO.
        (
            "request_sli_duration_seconds",
            None,
            "resource",
            "POST",
            2.0,
        ),
        ("response_sizes", None, "resource", "GET", 1.0),
        ("response_sizes", None, "namespace", "LIST", 1.0),
    ] {
        let labels = labels(dry_run, scope, verb);
        for part in [
            format!("_count{{{labels}}}"),
            format!("_bucket{{{labels},le=\"+Inf\"}}"),
        ] {
            let series = format!("apiserver_{name}{part}");
            assert!((grown(&series) - want).abs() < 0.1, "{series}");
        }
    }
    // The list is streamed, and its size is measured nevertheless.
    let sum = format!(
        "apiserver_response_sizes_sum{{{}}}",
        labels(None, "namespace", "LIST")
    );
    assert!((grown(&sum) - listed.bytes.len() as f64).abs() < 0.1);
    let writes = labels(None, "resource", "POST");
    assert!(!after.contains_key(&format!("apiserver_response_sizes_count{{{writes}}}")));
    assert!(after.keys().any(|series| {
        series.starts_with("apiserver_request_total{code=\"200\",component=\"\",")
            && series.contains("subresource=\"/livez\"")
    }));
    // The request for the metrics is in flight itself.
    let in_flight = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";
    assert!(after.get(in_flight).is_some_and(|most| *most >= 1.0));
    assert!(after.contains_key("apiserver_current_inflight_requests{request_kind=\"mutating\"}"));
    server.stop().await;
}

#[tokio::test]
async fn a_watch_is_a_long_running_request_until_it_ends() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let long_running = format!(
        "apiserver_longrunning_requests{{{}}}",
        labels(None, "namespace", "WATCH")
    );
    let ended = total(200, "", "namespace", "WATCH");
    let before = metrics(&client).await;
    let open_before = before.get(&long_running).copied().unwrap_or_default();
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?timeoutSeconds=1"))
        .await;
    watch.next().await;
    let open = metrics(&client).await;
    assert_eq!(open.get(&long_running), Some(&(open_before + 1.0)));
    assert_eq!(open.get(&ended), before.get(&ended));
    watch.rest().await;
    let after = metrics(&client).await;
    assert_eq!(after.get(&long_running), Some(&open_before));
    let ended_before = before.get(&ended).copied().unwrap_or_default();
    assert_eq!(after.get(&ended), Some(&(ended_before + 1.0)));
    server.stop().await;
}

#[tokio::test]
async fn those_without_access_are_counted_by_code_alone() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let before = metrics(&client).await;
    let stranger = Client::with_token(&server, "made-up").await;
    assert_eq!(stranger.get(CONFIG_MAPS).await.code, 401);
    let nobody = Client::anonymous(&server).await;
    assert_eq!(nobody.get(CONFIG_MAPS).await.code, 403);
    let after = metrics(&client).await;
    for code in ["401", "403"] {
        let answers = format!("lockgate_requests_total{{method=\"GET\",code=\"{code}\"}}");
        assert!(after.get(&answers) > before.get(&answers), "{answers}");
    }
    // UPSTREAM: requests are instrumented in the handlers, after authorization.
    let by_resource = "apiserver_request_total{code=\"40";
    assert!(!after.keys().any(|series| series.starts_with(by_resource)));
    assert!(!after.keys().any(|series| series.contains("made-up")));
    server.stop().await;
}

#[tokio::test]
async fn paths_that_are_made_up_make_no_series() {
    let server = start().await;
    let client = Client::admin(&server).await;
    // Codes and verbs are closed sets; unknown values create no series.
    let hostile = |number: usize| {
        [
            format!("/apis/made.up{number}/v1/things"),
            format!("/api/v{number}7/pods"),
            format!("/api/v1/made{number}up"),
            format!("{PODS}/x/made{number}up"),
            format!("/made{number}up"),
            format!("/livez/made{number}up"),
            format!("{CONFIG_MAPS}/made{number}up"),
            format!("/api/v1/namespaces/made{number}up/configmaps/x?dryRun=made{number}up"),
        ]
    };
    let ask = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            for path in hostile(number) {
                client.get(&path).await;
            }
            let method = Method::from_bytes(format!("MADE{number}UP").as_bytes()).unwrap();
            client.request(method, CONFIG_MAPS, &[], "").await;
        }
    };
    ask(0..1).await;
    // The metrics request is counted once it has completed.
    metrics(&client).await;
    let before = metrics(&client).await;
    ask(1..126).await;
    let after = metrics(&client).await;
    let own = |series: &&String| !series.contains("apiserver_admission");
    let new: Vec<_> = after
        .keys()
        .filter(own)
        .filter(|series| !before.contains_key(*series))
        .collect();
    assert!(new.is_empty(), "{new:#?}");
    let made_up = |series: &String| series.to_lowercase().contains("made");
    assert!(!after.keys().any(made_up));
    server.stop().await;
}

#[tokio::test]
async fn stored_objects_and_the_process_are_measured() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let series = "apiserver_resource_objects{group=\"\",resource=\"configmaps\"}";
    let before = metrics(&client).await;
    for name in ["a", "b", "c"] {
        client.create(configmaps, config_map(name)).await;
    }
    let after = metrics(&client).await;
    assert_eq!(after[series], before[series] + 3.0);
    assert_eq!(
        after["apiserver_storage_objects{resource=\"configmaps\"}"],
        after[series]
    );
    let roles = "apiserver_storage_objects{resource=\"clusterroles.rbac.authorization.k8s.io\"}";
    assert!(after[roles] > 10.0, "{}", after[roles]);
    // Objects that are never stored are not counted.
    assert!(!after.keys().any(|name| name.contains("tokenreviews")));
    let build = after
        .keys()
        .find(|name| name.starts_with("kubernetes_build_info"));
    assert!(build.unwrap().contains("minor=\"36\""));
    if cfg!(target_os = "linux") {
        assert!(after["process_resident_memory_bytes"] > 1e6);
        assert!(after["process_open_fds"] > 3.0);
        assert!(after["process_start_time_seconds"] > 1.7e9);
        assert!(after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"]);
    }
    server.stop().await;
}

/// The metric names in a PromQL expression.
fn metric_names(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let known = ["apiserver_", "process_", "kubernetes_", "lockgate_"];
    words
        .filter(|word| known.iter().any(|start| word.starts_with(start)))
        .collect()
}

/// The dashboard uses only metrics that the monitoring page documents.
#[test]
fn the_board_shows_what_is_served() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let board = std::fs::read_to_string(root.join("grafana/apiserver.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&board).unwrap();
    let page = std::fs::read_to_string(root.join("operations/monitoring.md")).unwrap();
    let mut shown = 0;
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            for name in metric_names(target["expr"].as_str().unwrap()) {
                let name = name.trim_end_matches("_bucket");
                // The tables of the page omit the prefix of their rows.
                let short = name.trim_start_matches("apiserver_admission_");
                let short = short.trim_start_matches("apiserver_");
                assert!(page.contains(short), "{name}");
                shown += 1;
            }
        }
    }
    assert!(shown > 15, "{shown}");
}
