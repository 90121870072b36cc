//! The memory overhead per key.

use bytes::Bytes;
use lockgate_store::{MemoryOptions, MemoryStore, Store as _};

const KEYS: usize = 30_000;
/// The overhead in bytes per key, without its key and value: its tree node, its reference counts, and
/// its change in the history.
const PER_KEY: usize = 270;
/// The bytes per key with a compressed value, including the differing strings.
const PER_ALIKE_KEY: usize = 220;

fn key(number: usize) -> String {
    format!("/admissionregistration.k8s.io/validatingadmissionpolicybindings/b{number}")
}

fn binding(number: usize) -> String {
    let (policy, shard) = (number / 300, number % 10);
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","metadata":{{"creationTimestamp":"2026-11-16T17:{:02}:23Z","generation":1,"managedFields":[{{"apiVersion":"admissionregistration.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{"f:matchResources":{{}},"f:policyName":{{}},"f:validationActions":{{".":{{}},"v:\"Deny\"":{{}}}}}}}},"manager":"unknown","operation":"Update","time":"2026-11-16T17:{:02}:23Z"}}],"name":"b{number}","uid":"71c8bea7-04e2-450b-be68-{number:012}"}},"spec":{{"matchResources":{{"matchPolicy":"Equivalent","namespaceSelector":{{"matchLabels":{{"shard":"{shard}"}}}},"objectSelector":{{}}}},"policyName":"p{policy}","validationActions":["Deny"]}}}}"#,
        number % 60,
        number % 60,
    )
}

/// The memory per key for many keys, and the size of keys and values themselves.
fn cost(options: MemoryOptions) -> (usize, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let store = MemoryStore::with_options(options);
    let mut own = 0;
    let counted = allocation_counter::measure(|| {
        runtime.block_on(async {
            for number in 0..KEYS {
                let (key, value) = (key(number), binding(number));
                own += key.len() + value.len();
                let value = Bytes::from(value.into_bytes().into_boxed_slice());
                let created = store.create(&key, value, None).await;
                created.expect("a key that is not there");
            }
        });
    });
    drop(store);
    (
        usize::try_from(counted.bytes_current).expect("more is kept than freed") / KEYS,
        own / KEYS,
    )
}

#[test]
fn a_key_costs_little_besides_its_bytes() {
    let (cost, own) = cost(MemoryOptions::default());
    println!("{cost} bytes, of which {own} are the key and the value");
    assert!(cost - own <= PER_KEY, "{} bytes besides {own}", cost - own);
}

#[test]
fn values_that_are_alike_share_most_of_their_bytes() {
    let alike = MemoryOptions {
        compressed_prefixes: &["/admissionregistration.k8s.io/"],
        ..MemoryOptions::default()
    };
    let (cost, own) = cost(alike);
    println!("{cost} bytes, {own} are the key and the value");
    assert!(cost <= PER_ALIKE_KEY, "{cost} bytes");
}
