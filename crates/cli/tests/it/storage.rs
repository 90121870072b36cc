//! Backups and migrations of the entire store: `lockgate snapshot` and `lockgate store copy`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use lockgate_testkit::EtcdCluster;
use serde_json::{Value, json};

use crate::served::{Client, Home, Served, tls, trusting};
use crate::{Run, lockgate};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CARTS: &str = "/apis/shop.example/v1/namespaces/default/carts";

/// Runs a command that must succeed.
#[track_caller]
fn done(args: &[&str]) -> Run {
    let run = lockgate(args);
    assert_eq!(run.code, Some(0), "{args:?}\n{}", run.transcript());
    run
}

/// Runs a command that must fail, with a text in its error.
#[track_caller]
fn refused(args: &[&str], code: i32, text: &str) {
    let run = lockgate(args);
    assert_eq!(run.code, Some(code), "{args:?}\n{}", run.transcript());
    assert!(run.stderr.contains(text), "{}", run.transcript());
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "carts.shop.example"},
        "spec": {
            "group": "shop.example", "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// UIDs, versions and data of the objects of a list, by name.
async fn objects(client: &mut Client, path: &str) -> BTreeMap<String, [Value; 3]> {
    let (code, list) = client.send("GET", path, None).await.unwrap();
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    let found = items.map(|item| {
        let metadata = &item["metadata"];
        let facts = [
            &metadata["uid"],
            &metadata["resourceVersion"],
            &item["data"],
        ];
        (
            metadata["name"].as_str().unwrap().to_owned(),
            facts.map(Value::clone),
        )
    });
    // It contains the server's certificates.
    found
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect()
}

async fn create(client: &mut Client, path: &str, object: &Value) {
    let (code, answer) = client.send("POST", path, Some(object)).await.unwrap();
    assert_eq!(code, 201, "{answer}");
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"name": name}})
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_a_running_server_is_restored() {
    let home = Home::new();
    let (served, port) = home.start_ready();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    for number in 0..20 {
        create(
            &mut client,
            CONFIG_MAPS,
            &config_map(&format!("kept-{number}")),
        )
        .await;
    }
    let before = objects(&mut client, CONFIG_MAPS).await;
    // During continuous writes.
    let mut other = Client::connect(&tls(&home.data()), port).await.unwrap();
    let writing = tokio::spawn(async move {
        let mut number = 0;
        while other
            .send(
                "POST",
                CONFIG_MAPS,
                Some(&config_map(&format!("busy-{number}"))),
            )
            .await
            .is_ok()
        {
            number += 1;
        }
    });
    let (kubeconfig, file) = (home.path().join("kubeconfig"), home.path().join("backup"));
    let save = [
        "snapshot",
        "save",
        "--kubeconfig",
        text(&kubeconfig),
        text(&file),
    ];
    let saved = tokio::task::block_in_place(|| done(&save));
    assert!(saved.stdout.ends_with("verified\n"), "{}", saved.stdout);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    tokio::task::block_in_place(|| {
        refused(&save, 1, "already exists");
        // The data directory is locked while the server is running.
        let (data, beside) = (home.data(), home.path().join("beside"));
        let direct = ["snapshot", "save", "--data-dir", text(&data), text(&beside)];
        refused(&direct, 1, "is in use by process");
        assert!(!beside.exists());
    });
    served.stop();
    writing.await.unwrap();
    let verified = done(&["snapshot", "verify", text(&file)]);
    let rows: Vec<&str> = verified.stdout.lines().collect();
    assert_eq!(rows[0], saved.stdout.trim_end());
    assert!(
        rows.iter().any(|row| row.starts_with("configmaps ")),
        "{rows:?}"
    );

    // Into the original directory, replacing later writes; and into another.
    let again = home.data();
    refused(
        &[
            "snapshot",
            "restore",
            text(&file),
            "--data-dir",
            text(&again),
        ],
        1,
        "already has a store",
    );
    done(&[
        "snapshot",
        "restore",
        text(&file),
        "--data-dir",
        text(&again),
        "--overwrite",
    ]);
    let (served, port) = home.start_ready();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let mut after = objects(&mut client, CONFIG_MAPS).await;
    after.retain(|name, _| !name.starts_with("busy-"));
    assert_eq!(after, before);
    // Versions returned after the snapshot are not reused.
    create(&mut client, CONFIG_MAPS, &config_map("next")).await;
    let next = objects(&mut client, CONFIG_MAPS).await["next"][1].clone();
    assert!(
        next.as_str().unwrap().parse::<u64>().unwrap() > 1_000_000,
        "{next}"
    );
    drop(client);
    served.stop();

    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    refused(&["snapshot", "verify", text(&file)], 4, "damaged");
    let restore = [
        "snapshot",
        "restore",
        text(&file),
        "--data-dir",
        text(&again),
        "--overwrite",
    ];
    refused(&restore, 4, "damaged");
    let (served, _) = home.start_ready();
    served.stop();
}

#[tokio::test]
async fn snapshots_are_for_those_who_may_have_everything() {
    let home = Home::new();
    let tokens = "a-token,admin,1,\"system:masters\"\nother,jane,2,\n";
    std::fs::write(home.path().join("tokens.csv"), tokens).unwrap();
    let (served, port) = home.start_ready();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let (code, _) = client
        .send("GET", "/lockgate/snapshot", None)
        .await
        .unwrap();
    assert_eq!(code, 200);
    let (code, _) = client
        .send("POST", "/lockgate/snapshot", None)
        .await
        .unwrap();
    assert_eq!(code, 405);
    let kubeconfig = std::fs::read_to_string(home.path().join("kubeconfig")).unwrap();
    let (head, _) = kubeconfig
        .split_once("    client-certificate-data")
        .unwrap();
    let (_, tail) = kubeconfig.split_once("contexts:").unwrap();
    let others = format!("{head}    token: other\ncontexts:{tail}");
    let (file, path) = (home.path().join("others"), home.path().join("backup"));
    std::fs::write(&file, others).unwrap();
    let save = ["snapshot", "save", "--kubeconfig", text(&file), text(&path)];
    refused(&save, 1, "\"jane\" cannot get path \"/lockgate/snapshot\"");
    assert!(!path.exists());
    served.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_move_from_disk_to_etcd_and_back() {
    let Some(cluster) = EtcdCluster::start(1) else {
        return;
    };
    let home = Home::new();
    let (served, port) = home.start_ready();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    create(&mut client, DEFINITIONS, &definition()).await;
    let cart = json!({
        "apiVersion": "shop.example/v1", "kind": "Cart",
        "metadata": {"name": "full"}, "data": {"eggs": 12},
    });
    create(&mut client, CARTS, &cart).await;
    for number in 0..20 {
        create(
            &mut client,
            CONFIG_MAPS,
            &config_map(&format!("kept-{number}")),
        )
        .await;
    }
    let event = json!({
        "metadata": {"name": "hello"}, "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"},
    });
    create(&mut client, "/api/v1/namespaces/default/events", &event).await;
    let before = (
        objects(&mut client, CONFIG_MAPS).await,
        objects(&mut client, CARTS).await,
    );
    drop(client);
    served.stop();
    let (disk, url) = (home.data(), cluster.servers().join(","));
    let to_etcd = ["store", "copy", "--from", text(&disk), "--to", &url];
    tokio::task::block_in_place(|| {
        done(&to_etcd);
        refused(&to_etcd, 1, "etcd already has objects");
        done(&[&to_etcd[..], &["--overwrite"]].concat());
        refused(
            &["store", "copy", "--from", "/nowhere", "--to", &url],
            1,
            "contains no store",
        );
    });

    // Served from etcd: the same objects with new versions, higher than all previous ones.
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    let arguments = home.arguments().into_iter();
    command
        .args(arguments.filter(|argument| !argument.starts_with("--data-dir")))
        .arg(format!("--etcd-servers={url}"))
        .arg(format!("--cert-dir={}", disk.join("certs").display()));
    let mut served = Served::start(command);
    let authority = std::fs::read(disk.join("certs/ca.crt")).unwrap();
    let port = tokio::task::block_in_place(|| served.port());
    let mut client = Client::connect(&trusting(&authority), port).await.unwrap();
    let in_etcd = (
        objects(&mut client, CONFIG_MAPS).await,
        objects(&mut client, CARTS).await,
    );
    let newest = |objects: &BTreeMap<String, [Value; 3]>| {
        let versions = objects
            .values()
            .map(|[_, version, _]| version.as_str().unwrap());
        versions
            .map(|version| version.parse::<u64>().unwrap())
            .max()
    };
    create(&mut client, CONFIG_MAPS, &config_map("later")).await;
    let later = objects(&mut client, CONFIG_MAPS).await["later"][1].clone();
    let later: u64 = later.as_str().unwrap().parse().unwrap();
    assert!(Some(later) > newest(&before.0), "{later}");
    let unversioned = |objects: &BTreeMap<String, [Value; 3]>| -> Vec<(String, Value, Value)> {
        let objects = objects.iter();
        let facts = objects.map(|(name, [uid, _, data])| (name.clone(), uid.clone(), data.clone()));
        facts.collect()
    };
    assert_eq!(unversioned(&in_etcd.0), unversioned(&before.0));
    assert_eq!(unversioned(&in_etcd.1), unversioned(&before.1));
    let (code, _) = client
        .send("DELETE", &format!("{CONFIG_MAPS}/later"), None)
        .await
        .unwrap();
    assert_eq!(code, 200);
    let in_etcd = objects(&mut client, CONFIG_MAPS).await;
    drop(client);
    tokio::task::block_in_place(|| served.stop());

    // Back to disk: versions are kept.
    let other = Home::new();
    let back = other.data();
    tokio::task::block_in_place(|| {
        done(&["store", "copy", "--from", &url, "--to", text(&back)]);
        let (served, _) = other.start_ready();
        served.stop();
    });
    let (served, port) = tokio::task::block_in_place(|| other.start_ready());
    let mut client = Client::connect(&tls(&back), port).await.unwrap();
    assert_eq!(objects(&mut client, CONFIG_MAPS).await, in_etcd);
    assert_eq!(
        unversioned(&objects(&mut client, CARTS).await),
        unversioned(&before.1)
    );
    tokio::task::block_in_place(|| served.stop());
}

/// The directory contains Secrets in clear text, so its permissions are restricted.
#[test]
fn a_directory_that_others_can_read_is_closed_with_a_warning() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    std::fs::set_permissions(home.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (served, _) = home.start_ready();
    let mode = std::fs::metadata(home.data()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let log = served.stop();
    assert!(
        log.contains("permissions too open, corrected") && log.contains("755"),
        "{log}"
    );
    let (served, _) = home.start_ready();
    let log = served.stop();
    assert!(!log.contains("too open"), "{log}");
}
