//! How often the common write allocates: a regression of a tenth fails here before a bench shows it.

use std::sync::mpsc as threads;

use tokio::sync::mpsc;

use crate::support::*;

/// Creates that are counted.
const CREATES: usize = 200;
/// Allocations per create of a small ConfigMap without webhooks, the connection included. Lower it with
/// the count; raise it only with a reason.
const PER_CREATE: u64 = 295;

/// The server has a thread to itself, whose allocations are counted; the client has another.
#[test]
fn a_create_allocates_no_more_than_it_did() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(start());
    let (reached, mut progress) = mpsc::unbounded_channel();
    let (go, gone) = threads::channel::<()>();
    let counted = std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let client = Client::admin(server).await;
                // The first ones fill caches.
                for number in 0..2 * CREATES {
                    if number == CREATES {
                        reached.send(()).unwrap();
                        gone.recv().unwrap();
                    }
                    let object = config_map(&format!("settings-{number}"));
                    client.create(CONFIG_MAPS, object).await;
                }
                reached.send(()).unwrap();
            });
        });
        runtime.block_on(progress.recv()).unwrap();
        allocation_counter::measure(|| {
            go.send(()).unwrap();
            runtime.block_on(progress.recv()).unwrap();
        })
    });
    runtime.block_on(server.stop());
    let per_create = counted.count_total / CREATES as u64;
    println!("{per_create} allocations per create");
    assert!(
        per_create <= PER_CREATE,
        "{per_create} allocations per create, {PER_CREATE} at most"
    );
    assert!(
        per_create * 10 >= PER_CREATE * 9,
        "{per_create} allocations per create: lower PER_CREATE from {PER_CREATE}, so that it stays so"
    );
}
