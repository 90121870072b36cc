//! The replacements for kube-apiserver, etcd and kubectl, started as test libraries start them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockgate_certs::{Authority, Leaf};
use serde_json::{Value, json};

use crate::served::{Client, signal, tls};

const TOKENS: &str = "a-token,admin,1,\"system:masters\"\n";

/// This program with another argv[0].
fn named(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.arg0(name);
    command
}

/// An unused port, chosen as test libraries do.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn output(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Writes the files that envtest creates before it starts the server.
fn write_certificates(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let authority = Authority::new("envtest-environment").unwrap();
    let serving = Leaf::server("localhost", ["localhost", "127.0.0.1"]);
    let serving = authority.issue(&serving).unwrap();
    write("apiserver.crt", &serving.certificate_pem);
    write("apiserver.key", &serving.key_pem);
    let signer = Leaf::client("sa-signer", None).self_signed().unwrap();
    write("sa-signer.crt", &signer.certificate_pem);
    write("sa-signer.key", &signer.key_pem);
    write(
        "client-cert-auth-ca.crt",
        Authority::new("users").unwrap().pem(),
    );
    write("tokens.csv", TOKENS);
    // The tests of this crate expect it there.
    std::fs::create_dir(folder.join("certs")).unwrap();
    write("certs/ca.crt", authority.pem());
}

/// The command line of controller-runtime's envtest, and a token for the test client.
fn kube_apiserver(folder: &Path, port: u16) -> Command {
    let dir = folder.display();
    let mut command = named("kube-apiserver");
    command.args([
        String::from("--allow-privileged=true"),
        String::from("--authorization-mode=RBAC"),
        String::from("--bind-address=127.0.0.1"),
        format!("--cert-dir={dir}"),
        format!("--client-ca-file={dir}/client-cert-auth-ca.crt"),
        String::from("--disable-admission-plugins=ServiceAccount"),
        String::from("--etcd-servers=http://127.0.0.1:1"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={dir}/sa-signer.crt"),
        format!("--service-account-signing-key-file={dir}/sa-signer.key"),
        String::from("--service-cluster-ip-range=10.0.0.0/24"),
        format!("--token-auth-file={dir}/tokens.csv"),
    ]);
    command
}

/// A replacement that is ready. The process is killed on drop.
struct Ready(Child);

impl Ready {
    /// Starts it and waits for a line of its log, within a deadline.
    fn start(mut command: Command, line: &str) -> Self {
        let mut child = command
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads to the end, so that the process never blocks on a full pipe.
            for line in log.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ready = Self(child);
        let end = Instant::now() + Duration::from_secs(60);
        let mut written = String::new();
        while !written.contains(line) {
            let left = end.saturating_duration_since(Instant::now());
            written += &lines.recv_timeout(left).expect(&written);
            written.push('\n');
        }
        ready
    }

    /// Sends a termination signal, and waits for the exit.
    fn stop(mut self) {
        signal("TERM", self.0.id());
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // The process may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn serves_with_what_envtest_wrote() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let listed = || {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listed();
    let port = free_port();
    let served = Ready::start(kube_apiserver(folder.path(), port), "serving");
    let mut client = Client::connect(&tls(folder.path()), port).await.unwrap();
    let (code, _) = client.send("GET", "/healthz", None).await.unwrap();
    assert_eq!(code, 200);

    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services";
    let (code, service) = client.send("POST", path, Some(&service)).await.unwrap();
    assert_eq!(code, 201, "{service}");
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10.0.0."), "{address}");

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "robot"}});
    let (code, _) = client.send("POST", accounts, Some(&account)).await.unwrap();
    assert_eq!(code, 201);
    let path = format!("{accounts}/robot/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (code, token) = client.send("POST", &path, Some(&request)).await.unwrap();
    assert_eq!(code, 201, "{token}");
    let issuer = format!("https://127.0.0.1:{port}/");
    assert_eq!(token["spec"]["audiences"], json!([issuer]));
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token["status"]["token"]},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, review) = client.send("POST", path, Some(&review)).await.unwrap();
    assert_eq!(
        review["status"]["user"]["username"], "system:serviceaccount:default:robot",
        "{review}"
    );

    // None of kube-controller-manager's controllers.
    let (code, _) = client
        .send("GET", &format!("{accounts}/default"), None)
        .await
        .unwrap();
    assert_eq!(code, 404);
    served.stop();
    assert_eq!(listed(), before);
}

#[test]
fn warns_of_flags_without_effect_or_refuses_them() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let mut strict = kube_apiserver(folder.path(), free_port());
    strict.args([
        "--event-ttl=1h",
        "--runtime-config=api/all=true",
        "--strict-flags",
    ]);
    let (code, text) = output(&mut strict);
    assert_eq!(code, Some(1), "{text}");
    let expected = "error: flags without effect on this server: --event-ttl, --runtime-config\n";
    assert!(text.contains(expected), "{text}");

    let (code, text) = output(named("kube-apiserver").arg("--bogus=1"));
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "error: unknown flag: --bogus\n")
    );
}

#[test]
fn answers_probes() {
    let (code, help) = output(named("/some/where/kube-apiserver").arg("--help"));
    assert_eq!(code, Some(0));
    let flags = |flag: &str| help.lines().any(|line| line.trim_start().starts_with(flag));
    assert!(
        flags("--cert-dir string") && !flags("--insecure-port"),
        "{help}"
    );
    let (code, version) = output(named("kube-apiserver").arg("--version"));
    assert_eq!((code, version.as_str()), (Some(0), "Kubernetes v1.36.4\n"));
    let (code, help) = output(named("etcd").arg("--help"));
    assert_eq!(code, Some(0));
    let mut lines = help.lines().map(str::trim_start);
    assert!(
        lines.any(|line| line.starts_with("--unsafe-no-fsync ")),
        "{help}"
    );
}

#[test]
fn stands_in_for_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = named("etcd");
    command.args([
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--data-dir={}", folder.path().join("data").display()),
        String::from("--listen-peer-urls=http://localhost:0"),
        String::from("--unsafe-no-fsync=true"),
    ]);
    let etcd = Ready::start(command, "serving health checks only");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\"health\":\"true\""), "{answer}");
    assert!(folder.path().join("data").is_dir());
    etcd.stop();
}

#[test]
fn starts_for_everybody_else_and_ends_with_its_parent() {
    // The shell starts the server and waits for a line that is never printed.
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "\"$0\" envtest start & read line",
            env!("CARGO_BIN_EXE_lockgate"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = shell.stdout.take().unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it ended");
        line.push(byte[0]);
    }
    let told: Value = serde_json::from_slice(&line).unwrap();
    assert!(
        told["url"]
            .as_str()
            .unwrap()
            .starts_with("https://127.0.0.1:")
    );
    assert!(
        told["ca"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    assert!(told["pid"].as_u64().unwrap() > 0);
    let kubeconfig = Path::new(told["kubeconfig"].as_str().unwrap());
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    assert!(text.contains(told["url"].as_str().unwrap()));

    shell.kill().unwrap();
    shell.wait().unwrap();
    // The server holds the write end of the pipe: this returns when it exits.
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(!kubeconfig.exists());
}

/// Runs the commands of the guide in a temporary directory.
#[test]
fn the_commands_of_the_guide_work() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/envtest.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let blocks = guide.split("```sh\n").skip(1);
    let commands: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!commands.is_empty());
    let script = format!(
        "set -eu\n{}\n\"$KUBEBUILDER_ASSETS/kube-apiserver\" --version",
        commands.concat()
    );
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_lockgate"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path());
    let (code, text) = output(shell.env("PATH", path));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Kubernetes v1.36.4\n"), "{text}");
}

#[test]
fn installs_files_and_keeps_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("path");
    std::fs::create_dir(&path).unwrap();
    let assets = folder.path().join("assets");
    let install = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        command.args(["envtest", "install"]).arg(&assets);
        output(command.args(arguments).env("PATH", &path))
    };
    let script = |text: &str| {
        let file = path.join("kubectl");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    };

    let (code, text) = install(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("warning: no kubectl was copied"), "{text}");
    let set = format!("export KUBEBUILDER_ASSETS={}\n", assets.display());
    assert!(text.ends_with(&set) || text.starts_with(&set), "{text}");
    for name in ["etcd", "kube-apiserver", "kubectl"] {
        let found = std::fs::symlink_metadata(assets.join(name)).unwrap();
        assert!(found.is_file(), "{name}");
        assert_eq!(found.permissions().mode() & 0o777, 0o755, "{name}");
    }
    let version = output(Command::new(assets.join("kube-apiserver")).arg("--version"));
    assert_eq!(version, (Some(0), String::from("Kubernetes v1.36.4\n")));
    let (code, text) = output(Command::new(assets.join("kubectl")).env("PATH", &path));
    assert_eq!(code, Some(1));
    assert!(text.contains("no kubectl found on PATH"), "{text}");

    // It replaces its own installation, when a kubectl has been installed meanwhile.
    script("#!/bin/sh\necho a kubectl\n");
    let (code, text) = install(&[]);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = output(&mut Command::new(assets.join("kubectl")));
    assert_eq!(text, "a kubectl\n");

    // A program that works only in its own folder.
    script("#!/bin/sh\ncase $0 in */path/kubectl) ;; *) exit 1 ;; esac\n");
    let (code, text) = install(&["--kubectl", path.join("kubectl").to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot be installed as kubectl"), "{text}");

    std::fs::write(assets.join("etcd"), "another").unwrap();
    let (code, text) = install(&[]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("assets/etcd` already exists\nhelp: pass --force"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_to_string(assets.join("etcd")).unwrap(),
        "another"
    );
    let (code, _) = install(&["--force"]);
    assert_eq!(code, Some(0));
    let (_, version) = output(Command::new(assets.join("etcd")).arg("--version"));
    assert_eq!(version, "etcd Version: 3.6.8\n");
    let left = std::fs::read_dir(&assets).unwrap().count();
    assert_eq!(left, 4, "three files and a record");
}
