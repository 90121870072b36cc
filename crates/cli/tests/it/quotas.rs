//! The quota of a killed server: its usage is correct after every start, and it is never exceeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use crate::served::{Client, DEADLINE, Home, tls};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const QUOTA: &str = "/api/v1/namespaces/shop/resourcequotas/q";
const WRITERS: usize = 100;
const KILLS: usize = 4;
const HARD: usize = 700;

async fn count(client: &mut Client) -> usize {
    let (code, list) = client.send("GET", SECRETS, None).await.unwrap();
    assert_eq!(code, 200, "{list}");
    list["items"].as_array().unwrap().len()
}

/// Waits until the quota's usage has this value.
async fn settled(client: &mut Client, used: usize) {
    let wanted = used.to_string();
    let waiting = async {
        loop {
            let (_, quota) = client.send("GET", QUOTA, None).await.unwrap();
            if quota["status"]["used"]["count/secrets"] == wanted.as_str() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let settled = tokio::time::timeout(DEADLINE, waiting).await;
    settled.unwrap_or_else(|_| panic!("the usage does not become {used}"));
}

/// Creates Secrets until the quota is exhausted or the server is gone; returns the number of acknowledged ones.
async fn write(
    tls: TlsConnector,
    port: u16,
    prefix: String,
    done: Arc<AtomicUsize>,
    progress: Arc<Notify>,
) {
    let Ok(mut client) = Client::connect(&tls, port).await else {
        return;
    };
    for number in 0.. {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{prefix}-{number}")},
        });
        match client.send("POST", SECRETS, Some(&secret)).await {
            Ok((201, _)) => {
                done.fetch_add(1, Ordering::SeqCst);
                progress.notify_one();
            }
            Ok((403, answer)) => {
                let text = answer["message"].as_str().unwrap_or_default();
                assert!(text.contains("exceeded quota: q"), "{answer}");
                return;
            }
            Ok((code, answer)) => panic!("{code} {answer}"),
            Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_writers_and_kills_never_exceed_a_quota() {
    let home = Home::new();
    let mut trust: Option<TlsConnector> = None;
    let mut acknowledged = 0;
    for life in 0..=KILLS {
        let (mut served, port) = home.start_ready();
        let tls = trust.get_or_insert_with(|| tls(&home.data())).clone();
        let mut client = Client::connect(&tls, port).await.unwrap();
        if life == 0 {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
            let namespaces = "/api/v1/namespaces";
            let (code, answer) = client
                .send("POST", namespaces, Some(&namespace))
                .await
                .unwrap();
            assert_eq!(code, 201, "{answer}");
            let quota: Value = json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                "spec": {"hard": {"count/secrets": HARD.to_string()}},
            });
            let quotas = "/api/v1/namespaces/shop/resourcequotas";
            let (code, answer) = client.send("POST", quotas, Some(&quota)).await.unwrap();
            assert_eq!(code, 201, "{answer}");
        }
        // The charge of a lost object is released, and every stored object is counted.
        let found = count(&mut client).await;
        assert!(
            found >= acknowledged,
            "life {life}: {found} of {acknowledged} are left"
        );
        assert!(found <= HARD, "life {life}: {found} of {HARD}");
        settled(&mut client, found).await;

        let (done, progress) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let prefix = format!("s{life}-{writer}");
            let (done, progress) = (Arc::clone(&done), Arc::clone(&progress));
            writers.spawn(write(tls.clone(), port, prefix, done, progress));
        }
        if life < KILLS {
            let enough = 40 + 30 * life;
            let working = async {
                while done.load(Ordering::SeqCst) < enough {
                    progress.notified().await;
                }
            };
            tokio::time::timeout(DEADLINE, working)
                .await
                .expect("no progress");
            served.kill();
            writers.join_all().await;
            acknowledged = found + done.load(Ordering::SeqCst);
            continue;
        }
        // The last start writes until the quota is exhausted: no request was rejected wrongly.
        writers.join_all().await;
        assert_eq!(count(&mut client).await, HARD);
        settled(&mut client, HARD).await;
        served.stop();
    }
}
