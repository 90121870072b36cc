//! Allocation counts of common requests: a regression of ten percent fails here before it shows in a benchmark.

use std::sync::mpsc as threads;

use lockgate_testkit::WebhookServer;
use tokio::sync::mpsc;

use crate::support::*;

/// The number of measured requests.
const REQUESTS: usize = 200;
/// The number of stored objects.
const OBJECTS: usize = 100;

/// A type of request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    /// A small ConfigMap.
    Create,
    /// The same with a validating webhook.
    CreateWithWebhook,
    Get,
    /// All objects, and a list with a label selector that matches none.
    List,
    Select,
    /// A table, as `kubectl get` requests it.
    Table,
}

impl Work {
    async fn prepare(self, client: &Client) -> Option<WebhookServer> {
        match self {
            Self::Create => {}
            Self::CreateWithWebhook => {
                let hooks = WebhookServer::builder().http1_only().start().await;
                let url = hooks.url("/allow");
                let kind = "ValidatingWebhookConfiguration";
                let configuration = hook(kind, "h", &url, hooks.ca_pem());
                client.create(VALIDATING, configuration).await;
                return Some(hooks);
            }
            Self::Get | Self::List | Self::Select | Self::Table => {
                for number in 0..OBJECTS {
                    let object = labelled(&format!("settings-{number}"), "app", "shop");
                    client.create(CONFIG_MAPS, object).await;
                }
            }
        }
        None
    }

    async fn send(self, client: &Client, number: usize) {
        let path = match self {
            Self::Create | Self::CreateWithWebhook => {
                let object = config_map(&format!("new-{number}"));
                client.create(CONFIG_MAPS, object).await;
                return;
            }
            Self::Get => format!("{CONFIG_MAPS}/settings-7"),
            Self::List | Self::Table => CONFIG_MAPS.to_owned(),
            Self::Select => format!("{CONFIG_MAPS}?labelSelector=app%3Dother"),
        };
        let client = match self {
            Self::Table => client.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            _ => client.clone(),
        };
        assert_eq!(client.get(&path).await.code, 200);
    }

    /// Asserts an upper bound on the server's allocations per request, connection included. Lower `most` with the
    /// count, and raise it only with a reason.
    ///
    /// The server runs on a separate thread, whose allocations are counted; the client and the webhook run on another.
    #[track_caller]
    fn allocates(self, most: u64) {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
        };
        let serving = runtime();
        let server = serving.block_on(start());
        let (reached, mut progress) = mpsc::unbounded_channel();
        let (go, gone) = threads::channel::<()>();
        let counted = std::thread::scope(|scope| {
            let server = &server;
            scope.spawn(move || {
                runtime().block_on(async {
                    let client = Client::admin(server).await;
                    let hooks = self.prepare(&client).await;
                    // The first requests fill caches.
                    for number in 0..2 * REQUESTS {
                        if number == REQUESTS {
                            reached.send(()).unwrap();
                            gone.recv().unwrap();
                        }
                        self.send(&client, number).await;
                    }
                    reached.send(()).unwrap();
                    drop(hooks);
                });
            });
            serving.block_on(progress.recv()).unwrap();
            allocation_counter::measure(|| {
                go.send(()).unwrap();
                serving.block_on(progress.recv()).unwrap();
            })
        });
        serving.block_on(server.stop());
        let each = counted.count_total / REQUESTS as u64;
        println!("{self:?}: {each} allocations");
        assert!(each <= most, "{self:?}: {each} allocations, {most} at most");
        assert!(
            each * 10 >= most * 9,
            "{self:?}: {each} allocations: lower {most}, so that it stays so"
        );
    }
}

#[test]
fn a_create_allocates_no_more_than_it_did() {
    Work::Create.allocates(260);
}

#[test]
fn a_create_with_a_webhook_allocates_no_more_than_it_did() {
    Work::CreateWithWebhook.allocates(350);
}

#[test]
fn reads_allocate_no_more_than_they_did() {
    Work::Get.allocates(105);
    Work::List.allocates(135);
    Work::Select.allocates(165);
    Work::Table.allocates(480);
}
