//! Serving certificates: absent at startup, reloaded at any time, temporarily invalid.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockgate_testkit::certs::Authority;
use lockgate_webhook::server::{Certificates, ProbePaths, Running, Server, StartError};

use crate::support::{Client, get, metric, until, webhooks};

const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

async fn start(folder: &Path, poll: Duration) -> Running {
    Server::new(webhooks())
        .listen(LOCAL)
        .certificates(Certificates::folder(folder).poll(poll))
        .probes(LOCAL, ProbePaths::default())
        .shutdown_delay(Duration::ZERO)
        .start()
        .await
        .unwrap()
}

fn write_pair(folder: &Path, authority: &Authority) {
    let identity = authority.issue(&["127.0.0.1"]);
    fs::write(folder.join("tls.crt"), identity.certificate_pem).unwrap();
    fs::write(folder.join("tls.key"), identity.key_pem).unwrap();
}

/// Longer than any test: changes are noticed by file watching, not polling.
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn without_a_certificate_it_listens_and_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let running = start(folder.path(), NEVER).await;
    let client = Client::trusting(authority.pem());
    assert!(client.review(running.address(), "/validate").await.is_err());
    let probes = running.probes_address().unwrap();
    let reply = get(probes, "/readyz").await;
    assert_eq!(reply.code, 503);
    assert!(
        reply.body.contains("[-]certificate failed: no certificate"),
        "{}",
        reply.body
    );
    assert_eq!(get(probes, "/livez").await.code, 200);

    write_pair(folder.path(), &authority);
    until("ready", || running.is_ready()).await;
    assert_eq!(
        client
            .review(running.address(), "/validate")
            .await
            .unwrap()
            .code,
        200
    );
    running.stop().await;
}

#[tokio::test]
async fn a_folder_that_is_made_later_is_found_by_looking() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("later");
    let authority = Authority::new("ca");
    let running = start(&folder, Duration::from_millis(50)).await;
    assert!(!running.is_ready().await);
    fs::create_dir(&folder).unwrap();
    write_pair(&folder, &authority);
    until("ready", || running.is_ready()).await;
    running.stop().await;
}

#[tokio::test]
async fn the_last_good_pair_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    write_pair(folder.path(), &old);
    let running = start(folder.path(), Duration::from_millis(20)).await;
    let trusts_old = Client::trusting(old.pem());
    let works = |client: Client| {
        let address = running.address();
        async move { client.review(address, "/validate").await.is_ok() }
    };
    let errors = || {
        metric(
            &running.metrics_text(),
            "certwatcher_read_certificate_errors_total",
        )
        .unwrap()
    };
    for (name, text) in [
        ("tls.crt", String::new()),
        (
            "tls.crt",
            String::from("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"),
        ),
        // The certificate of one pair with the key of another.
        ("tls.crt", new.issue(&["127.0.0.1"]).certificate_pem),
        ("tls.key", String::from("not a key")),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
        let before = errors();
        until("it was looked at", || async { errors() > before + 1.0 }).await;
        assert!(works(trusts_old.clone()).await, "{name}");
        assert!(running.is_ready().await, "{name}");
    }
    let expired = old.issue_expired(&["127.0.0.1"]);
    fs::write(folder.path().join("tls.crt"), expired.certificate_pem).unwrap();
    fs::write(folder.path().join("tls.key"), expired.key_pem).unwrap();
    let before = errors();
    until("it was looked at", || async { errors() > before + 1.0 }).await;
    assert!(works(trusts_old.clone()).await);

    write_pair(folder.path(), &new);
    let trusts_new = Client::trusting(new.pem());
    until("the new pair is used", || works(trusts_new.clone())).await;
    assert!(!works(trusts_old.clone()).await);
    let text = running.metrics_text();
    assert_eq!(
        metric(&text, "certificate_reloads_total{result=\"success\"}"),
        Some(2.0)
    );
    assert!(metric(&text, "certificate_expiry_timestamp_seconds").unwrap() > 1.7e9);
    running.stop().await;
}

#[tokio::test]
async fn an_expired_certificate_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let expired = Authority::new("ca").issue_expired(&["127.0.0.1"]);
    fs::write(folder.path().join("tls.crt"), expired.certificate_pem).unwrap();
    fs::write(folder.path().join("tls.key"), expired.key_pem).unwrap();
    let running = start(folder.path(), NEVER).await;
    let reply = get(running.probes_address().unwrap(), "/readyz?verbose").await;
    assert_eq!(reply.code, 503);
    assert!(reply.body.contains("has expired"), "{}", reply.body);
    running.stop().await;
}

#[tokio::test]
async fn other_names_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let identity = authority.issue(&["127.0.0.1"]);
    fs::write(folder.path().join("server.pem"), identity.certificate_pem).unwrap();
    fs::write(folder.path().join("server-key.pem"), identity.key_pem).unwrap();
    let certificates = Certificates::folder(folder.path()).names("server.pem", "server-key.pem");
    let server = Server::new(webhooks())
        .listen(LOCAL)
        .certificates(certificates);
    let running = server.shutdown_delay(Duration::ZERO).start().await.unwrap();
    assert!(running.is_ready().await);
    running.stop().await;
}

#[tokio::test]
async fn a_fixed_pair_that_is_none_is_said_at_once() {
    let server = Server::new(webhooks())
        .listen(LOCAL)
        .certificates(Certificates::pem("a", "b"));
    let error = server.start().await.unwrap_err();
    assert!(matches!(error, StartError::Certificate(_)), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::new(webhooks()).listen(taken.local_addr().unwrap());
    let error = server.start().await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
}

/// Mounts a Secret as the kubelet does: files are symlinks into `..data`, a symlink that is replaced atomically.
struct Mounted<'f> {
    folder: &'f Path,
    version: usize,
}

impl Mounted<'_> {
    fn swap(&mut self, authority: &Authority) {
        self.version += 1;
        let data = self.folder.join(format!("..v{}", self.version));
        fs::create_dir(&data).unwrap();
        write_pair(&data, authority);
        symlink(data.file_name().unwrap(), self.folder.join("..data_tmp")).unwrap();
        fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data")).unwrap();
        if self.version == 1 {
            for name in ["tls.crt", "tls.key"] {
                symlink(Path::new("..data").join(name), self.folder.join(name)).unwrap();
            }
        } else {
            fs::remove_dir_all(self.folder.join(format!("..v{}", self.version - 1))).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_swapped_under_load_without_a_failed_call() {
    let folder = tempfile::tempdir().unwrap();
    // One CA, as with cert-manager's CA issuer: the trust is unchanged, the pair is renewed.
    let authority = Authority::new("ca");
    let mut mounted = Mounted {
        folder: folder.path(),
        version: 0,
    };
    mounted.swap(&authority);
    let running = start(folder.path(), NEVER).await;
    assert!(running.is_ready().await);

    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            let (client, address) = (Client::trusting(authority.pem()), running.address());
            tokio::spawn(async move {
                while !stop.load(Ordering::Acquire) {
                    let reply = client.review(address, "/mutate").await;
                    assert_eq!(reply.expect("no call fails").code, 200);
                    calls.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    let reloads = || {
        let series = "certificate_reloads_total{result=\"success\"}";
        metric(&running.metrics_text(), series).unwrap_or_default()
    };
    for round in 1..=5_u32 {
        let before = calls.load(Ordering::Acquire);
        until("calls are made", || async {
            calls.load(Ordering::Acquire) > before + 10
        })
        .await;
        mounted.swap(&authority);
        until("it is swapped", || async {
            reloads() >= f64::from(round + 1)
        })
        .await;
    }
    stop.store(true, Ordering::Release);
    for caller in callers {
        caller.await.expect("no call fails");
    }
    running.stop().await;
}
