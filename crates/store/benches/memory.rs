//! The in-memory store: writes, reads, lists and watch fan-out.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use lockgate_store::{Bloom, List, MemoryOptions, MemoryStore, ReadAt, Store};

/// Bloom filters by the leading digits of values.
fn by_number() -> MemoryOptions {
    MemoryOptions {
        bloom: |value| {
            let mut bloom = Bloom::EMPTY;
            bloom.insert(&value.first());
            bloom
        },
        ..MemoryOptions::default()
    }
}

fn filled(runtime: &tokio::runtime::Runtime, options: MemoryOptions, keys: usize) -> MemoryStore {
    let store = MemoryStore::with_options(options);
    runtime.block_on(async {
        for index in 0..keys {
            let key = format!("/registry/pods/default/pod-{index:06}");
            store
                .create(&key, format!("{}{:1023}", index % 10, "").into(), None)
                .await
                .unwrap();
        }
    });
    store
}

fn memory(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let store = filled(&runtime, MemoryOptions::default(), 10_000);
    let mut group = criterion.benchmark_group("memory, 10000 keys");
    group.bench_function("create and delete", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let revision = store
                    .create("/registry/pods/new", "x".into(), None)
                    .await
                    .unwrap();
                store.delete("/registry/pods/new", revision).await.unwrap()
            })
        });
    });
    group.bench_function("get", |bencher| {
        let key = "/registry/pods/default/pod-005000";
        bencher.iter(|| runtime.block_on(store.get(key, ReadAt::Latest)).unwrap());
    });
    group.bench_function("list 500 of them", |bencher| {
        let list = List {
            limit: Some(500),
            ..List::all("/registry/pods/")
        };
        bencher.iter(|| runtime.block_on(store.list(list)).unwrap().entries.len());
    });
    group.bench_function("list a tenth of them by a Bloom filter", |bencher| {
        let store = filled(&runtime, by_number(), 10_000);
        let list = List {
            bloom: (by_number().bloom)(b"7"),
            ..List::all("/registry/pods/")
        };
        bencher.iter(|| runtime.block_on(store.list(list)).unwrap().entries.len());
    });
    group.bench_function("a change to 1000 watchers", |bencher| {
        bencher.iter_batched(
            || {
                runtime.block_on(async {
                    let store = MemoryStore::new();
                    let start = store.revision().await.unwrap();
                    let mut watches = Vec::new();
                    for _ in 0..1000 {
                        watches.push(store.watch("/", start).await.unwrap());
                    }
                    (store, watches)
                })
            },
            |(store, mut watches)| {
                runtime.block_on(async {
                    store.create("/a", "x".into(), None).await.unwrap();
                    for watch in &mut watches {
                        watch.next().await.unwrap();
                    }
                });
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, memory);
criterion_main!(benches);
