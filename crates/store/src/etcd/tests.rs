//! The cache, with inconsistent responses of a member.

use super::*;
use proto::WatchEvent;

/// An empty cache at revision 10, without a member.
fn cache() -> Cache {
    let options = EtcdOptions {
        servers: vec![String::from("127.0.0.1:1")],
        ..EtcdOptions::default()
    };
    let client = Arc::new(Client::new(&options).unwrap());
    let space = Arc::new(Space {
        prefix: String::from("/registry"),
        layout: Arc::new(PlainLayout),
    });
    Cache::at(revision(10), &client, &space, options.history)
}

fn put(key: &str, created: i64, at: i64) -> WatchEvent {
    let kv = KeyValue {
        key: format!("/registry{key}").into(),
        create_revision: created,
        mod_revision: at,
        value: at.to_string().into(),
        ..KeyValue::default()
    };
    WatchEvent {
        kind: 0,
        kv: Some(kv),
    }
}

fn delete(key: &str, at: i64) -> WatchEvent {
    WatchEvent {
        kind: 1,
        ..put(key, 0, at)
    }
}

#[tokio::test]
async fn changes_of_one_revision_are_returned_together_or_not_at_all() {
    let cache = cache();
    let open = |after| Cursor::open(&cache.published, "/", Revision(after), None).unwrap();
    let mut watch = open(10);
    cache
        .apply(vec![put("/a", 12, 12), put("/b", 14, 14)])
        .unwrap();
    cache
        .apply(vec![delete("/a", 17), delete("/b", 17), put("/c", 19, 19)])
        .unwrap();
    let mut seen = Vec::new();
    for _ in 0..5 {
        let event = watch.next().await.unwrap();
        seen.push((event.key().to_string(), event.revision().0));
        if seen.len() == 3 {
            assert_eq!(watch.progress(), Revision(16), "one of two was returned");
        }
    }
    let want = [("/a", 12), ("/b", 14), ("/a", 17), ("/b", 17), ("/c", 19)];
    assert_eq!(seen, want.map(|(key, at)| (key.to_owned(), at)));
    assert_eq!(watch.progress(), Revision(19));
    // States between changes are the same as after the preceding change.
    for (at, keys) in [
        (10, vec![]),
        (13, vec!["/a"]),
        (16, vec!["/a", "/b"]),
        (18, vec![]),
    ] {
        let page = cache.published.list(List {
            at: ReadAt::Exact(Revision(at)),
            ..List::all("/")
        });
        let page = page.unwrap();
        let found: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!((found, page.revision), (keys, Revision(at)));
    }
    // Resumed at a revision without a change, then compacted.
    assert_eq!(open(13).next().await.unwrap().revision(), Revision(14));
    cache.compact(Revision(15));
    assert!(matches!(
        Cursor::open(&cache.published, "/", Revision(14), None),
        Err(ReadError::Compacted(Compacted {
            oldest: Revision(15)
        }))
    ));
    assert_eq!(open(15).next().await.unwrap().revision(), Revision(17));
}

#[test]
fn repeated_events_are_dropped() {
    let cache = cache();
    let events = || vec![put("/a", 12, 12), put("/a", 12, 13), delete("/b", 14)];
    cache.apply(vec![put("/b", 11, 11)]).unwrap();
    cache.apply(events()).unwrap();
    cache.apply(events()).unwrap();
    assert_eq!(cache.revision(), Revision(14));
    let mut count = 0;
    cache
        .published
        .current()
        .events_after(Revision(10), "")
        .for_each(|_| count += 1);
    assert_eq!(count, 4);
}

#[test]
fn early_progress_is_found_out() {
    let early = cache();
    early.advance(Revision(20));
    assert_eq!(early.revision(), Revision(20));
    early.advance(Revision(15));
    assert_eq!(early.revision(), Revision(20), "a member that lags behind");
    // An early event of an unknown key is ignored, as the key may have been deleted since.
    assert!(early.apply(vec![put("/a", 12, 12)]).is_ok());
    early.apply(vec![put("/a", 21, 21)]).unwrap();
    early.advance(Revision(30));
    let late = vec![put("/a", 21, 25)];
    assert!(early.apply(late).unwrap_err().contains("progress"));
    let late = vec![delete("/a", 26)];
    assert!(early.apply(late).unwrap_err().contains("progress"));
    assert_eq!(early.revision(), Revision(30));
}

#[test]
fn missing_changes_are_found_out() {
    for (events, why) in [
        (vec![delete("/a", 12)], "unknown key"),
        (vec![put("/a", 11, 12)], "missing"),
        (vec![put("/a", 12, 12), put("/a", 13, 13)], "missing"),
        (vec![put("/a", 14, 14), put("/b", 13, 13)], "order"),
        (vec![WatchEvent::default()], "no key"),
    ] {
        let cache = cache();
        assert!(cache.apply(events).unwrap_err().contains(why), "{why}");
        assert_eq!(cache.revision(), Revision(10), "{why}");
    }
}

#[test]
fn keys_of_others_move_the_revision_only() {
    let cache = cache();
    let mut foreign = put("", 12, 12);
    if let Some(kv) = &mut foreign.kv {
        kv.key = Bytes::from_static(b"/registry/\xff");
    }
    cache.apply(vec![foreign]).unwrap();
    assert_eq!(cache.revision(), Revision(12));
    assert!(cache.published.current().keys.is_empty());
}

#[test]
fn prefixes_end_before_the_next_key() {
    assert_eq!(prefix_end(b"/a/"), &b"/a0"[..]);
    assert_eq!(prefix_end(b"a\xff\xff"), &b"b"[..]);
    assert_eq!(prefix_end(b"\xff"), &b"\0"[..]);
}

#[tokio::test]
async fn names_what_cannot_be_used() {
    let open = |options| async { EtcdStore::open(options).await.unwrap_err().to_string() };
    let none = EtcdOptions::default();
    assert!(open(none).await.contains("no etcd server"));
    for prefix in ["", "/", "registry", "/lockgate.io/prefixes/x"] {
        let options = EtcdOptions {
            servers: vec![String::from("127.0.0.1:1")],
            prefix: prefix.to_owned(),
            ..EtcdOptions::default()
        };
        assert!(open(options).await.contains("expected a path"), "{prefix}");
    }
    let invalid = EtcdOptions {
        servers: vec![String::from("http://[")],
        ..EtcdOptions::default()
    };
    assert!(open(invalid).await.contains("http://["));
}
