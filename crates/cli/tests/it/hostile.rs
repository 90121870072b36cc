//! Hostile input: it results in a clear error.

use std::sync::mpsc;
use std::time::Duration;

use super::{Run, lockgate, lockgate_with_stdin};

/// The timeout after which a run counts as hung.
const HANG: Duration = Duration::from_secs(300);

fn lint(input: &str) -> Run {
    let input = input.to_owned();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        sender.send(lockgate_with_stdin(
            &["lint", "-f", "-", "-o", "json"],
            &input,
        ))
    });
    receiver.recv_timeout(HANG).expect("the command ends")
}

#[test]
fn an_alias_bomb() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..30 {
        let alias = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![alias; 9].join(","));
    }
    let run = lint(&bomb);
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert!(
        run.stdout.contains("document contains excessive aliasing"),
        "{}",
        run.stdout
    );
}

#[test]
fn nesting_a_hundred_thousand_deep() {
    let deep = 100_000;
    let flow = "[".repeat(deep) + &"]".repeat(deep);
    let json = String::from("{\"a\":") + &flow + "}";
    let block = "- ".repeat(deep);
    let open = "[".repeat(deep);
    let maps = "{a: ".repeat(deep);
    let indented: String = (0..2_000).map(|depth| " ".repeat(depth) + "a:\n").collect();
    for (what, input) in [
        ("flow", &flow),
        ("json", &json),
        ("block", &block),
        ("open", &open),
        ("maps", &maps),
    ] {
        let run = lint(input);
        assert_eq!(run.code, Some(4), "{what}: {}", run.stderr);
        assert!(
            run.stdout.contains("\"rule\": \"syntax\""),
            "{what}: {}",
            run.stdout
        );
    }
    // Nested, but not too deeply, and not a webhook configuration.
    assert_eq!(lint(&indented).code, Some(0));
}

#[test]
fn a_deep_value_inside_a_configuration() {
    let deep = "[".repeat(9_000) + &"]".repeat(9_000);
    let object = format!(
        "{{\"apiVersion\":\"admissionregistration.k8s.io/v1\",\"kind\":\"ValidatingWebhookConfiguration\",\"metadata\":{{\"name\":\"a\",\"managedFields\":[{{\"operation\":\"Update\",\"fieldsV1\":{deep}}}]}},\"webhooks\":{deep}}}"
    );
    let run = lint(&object);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(
        run.stdout
            .contains("cannot unmarshal array into Go struct field"),
        "{}",
        run.stdout
    );
}

#[test]
fn many_documents_and_many_findings() {
    let one = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: N}\n---\n";
    let run = lint(&one.repeat(5_000));
    assert_eq!(run.code, Some(3));
    assert!(
        run.stderr
            .contains("5000 errors in 5000 webhook configurations"),
        "{}",
        run.stderr
    );
}

#[test]
fn bytes_that_are_not_text() {
    let run = lint("\u{0}\u{1}\u{feff}{{{");
    assert!(
        matches!(run.code, Some(0 | 4)),
        "{:?} {}",
        run.code,
        run.stderr
    );
}

/// A reader that closes the pipe, as `head` does, is not an error.
#[test]
fn a_closed_pipe() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockgate"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}

/// Runs `lockgate serve` with an environment variable.
fn serve_with(name: &str, value: &[u8]) -> (tempfile::TempDir, std::process::Command) {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockgate"));
    let kubeconfig = folder.path().join("kubeconfig");
    command
        .args(["serve", "--secure-port=0"])
        .arg(format!("--kubeconfig-out={}", kubeconfig.display()))
        .env(name, std::ffi::OsStr::from_bytes(value));
    (folder, command)
}

#[test]
fn a_variable_that_is_no_text_stops_nothing() {
    let (_folder, command) = serve_with("LC_SOMETHING", b"caf\xe9");
    let mut served = super::served::Served::start(command);
    assert_ne!(served.port(), 0);
    served.kill();
}

#[test]
fn a_proxy_that_cannot_be_used_is_refused_at_the_start() {
    for (name, value, want) in [
        (
            "HTTPS_PROXY",
            &b"socks5://proxy:1080"[..],
            "proxy scheme \"socks5\" is not supported",
        ),
        ("https_proxy", b"http://[::1", "invalid proxy address"),
        (
            "HTTPS_PROXY",
            b"http://pr\xe9xy:3128",
            "`HTTPS_PROXY`: it is not UTF-8",
        ),
        ("no_proxy", b"\xff", "`no_proxy`: it is not UTF-8"),
    ] {
        let (_folder, mut command) = serve_with(name, value);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}: {text}");
        assert!(text.contains(want), "{name}: {text}");
    }
}

/// At the limit of open files no connection can be accepted, and there are no idle connections to close.
#[test]
fn more_connections_than_open_files_are_refused() {
    let most = usize::MAX.to_string();
    let run = lockgate(&["serve", "--secure-port=0", "--max-connections", &most]);
    assert_ne!(run.code, Some(0), "{}", run.transcript());
    assert!(
        run.stderr.contains("exceeds the open file limit of"),
        "{}",
        run.transcript()
    );
    assert!(run.stderr.contains("ulimit -n"), "{}", run.transcript());
}
