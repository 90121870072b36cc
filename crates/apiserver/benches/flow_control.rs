//! The cost of classifying a request with the default FlowSchemas.

#![allow(
    missing_docs,
    reason = "the macros of the harness write functions without any"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use lockgate_apiserver::fuzzing::Classification;

const AUTHENTICATED: &str = "system:authenticated";

/// From the first schema that matches to the last.
fn classify(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("classify");
    let account = "system:serviceaccount:shop:bot";
    let accounts = [
        "system:serviceaccounts",
        "system:serviceaccounts:shop",
        AUTHENTICATED,
    ];
    for (name, request) in [
        (
            "an admin",
            Classification::new(
                "admin",
                &["system:masters", AUTHENTICATED],
                ["", "pods", "shop"],
            ),
        ),
        (
            "a node",
            Classification::new(
                "system:node:a",
                &["system:nodes", AUTHENTICATED],
                ["", "pods", ""],
            ),
        ),
        (
            "a service account",
            Classification::new(account, &accounts, ["", "configmaps", "shop"]),
        ),
        (
            "somebody",
            Classification::new("ann", &[AUTHENTICATED], ["apps", "deployments", "shop"]),
        ),
        (
            "nobody",
            Classification::new(
                "system:anonymous",
                &["system:unauthenticated"],
                ["", "pods", "shop"],
            ),
        ),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| request.run()));
    }
    group.finish();
}

criterion_group!(benches, classify);
criterion_main!(benches);
