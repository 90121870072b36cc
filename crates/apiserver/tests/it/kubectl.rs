//! A real kubectl against a real server, with its output compared with snapshots.

use std::path::PathBuf;
use std::process::Stdio;

use lockgate_apiserver::TestServer;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::support::*;

/// A kubectl for one server, and its entire output.
struct Kubectl<'s> {
    server: &'s TestServer,
    transcript: String,
}

impl<'s> Kubectl<'s> {
    fn new(server: &'s TestServer) -> Self {
        Self {
            server,
            transcript: String::new(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.server.folder())
            .env("KUBECONFIG", self.server.kubeconfig_path())
            .env("KUBE_EDITOR", self.server.folder().join("editor"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl with these arguments and adds its output to the transcript.
    async fn run(&mut self, line: &str) -> String {
        self.feed(line, "").await
    }

    /// The same with standard input.
    async fn feed(&mut self, line: &str, input: &str) -> String {
        let words = split(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = self.command(&words).spawn().expect(
            "the tests need `kubectl` on the PATH: install it as kubernetes.io/docs/tasks/tools tells",
        );
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = within(child.wait_with_output()).await.unwrap();
        let printed = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let code = match output.status.code() {
            Some(0) => String::new(),
            code => format!("exit code {}\n", code.unwrap_or(-1)),
        };
        let port = self.server.address().port().to_string();
        let masked = mask(&printed, &port);
        self.transcript
            .push_str(&format!("$ kubectl {line}\n{masked}{code}\n"));
        printed
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.server.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Splits arguments, some of which are in single quotes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Replaces values that differ between runs with placeholders.
fn mask(text: &str, port: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        // Version skew warnings, which depend on the installed client.
        if line.starts_with("WARNING: version difference") {
            continue;
        }
        let line = line.replace(&format!("127.0.0.1:{port}"), "127.0.0.1:PORT");
        let mut word = String::new();
        for letter in line.chars().chain(['\n']) {
            if letter.is_ascii_alphanumeric() || "-:.+".contains(letter) {
                word.push(letter);
                continue;
            }
            masked.push_str(stable(&word).unwrap_or(&word));
            masked.push(letter);
            word.clear();
        }
    }
    masked
}

fn stable(word: &str) -> Option<&'static str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_uid = word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let is_time = word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
    let is_age = word.strip_suffix('s').is_some_and(digits);
    let is_client = word.starts_with("v1.") && word != "v1" && !word.contains("lockgate");
    let is_kustomize = word.starts_with("v5.");
    let is_service_address = word.starts_with("10.") && word.split('.').count() == 4;
    if is_uid {
        Some("UID")
    } else if is_time {
        Some("TIME")
    } else if is_age {
        Some("AGE")
    } else if is_client || is_kustomize {
        Some("VERSION")
    } else if is_service_address {
        Some("ADDRESS")
    } else {
        None
    }
}

const WEB: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {color: red}
";

#[tokio::test]
async fn gets() {
    let server = start().await;
    let mut kubectl = Kubectl::new(&server);
    kubectl.feed("create -f - --validate=false", WEB).await;
    for line in [
        "get namespaces",
        "get configmaps",
        "get deployments",
        "get configmap settings -o name",
        "get configmap settings -o jsonpath={.data.color}",
        "get deploy,cm -l app=web -o name",
        "get configmaps -A -o name",
        "get configmaps -A --field-selector metadata.name=settings -o name",
        "get configmaps -l app=db",
        "get configmap none",
        "get nonsense",
        "get deployment web -o custom-columns=NAME:.metadata.name,IMAGE:.spec.template.spec.containers[*].image",
    ] {
        kubectl.run(line).await;
    }
    insta::assert_snapshot!(kubectl.transcript);
    let yaml = kubectl.run("get configmap settings -o yaml").await;
    assert!(
        yaml.contains("\ndata:\n  color: red\nkind: ConfigMap\n"),
        "{yaml}"
    );
    let json = kubectl.run("get configmap settings -o json").await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["data"]["color"], "red");
    let list = kubectl.run("get configmaps -o json").await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"][0]["kind"], "ConfigMap");
    server.stop().await;
}

#[tokio::test]
async fn applies_and_changes() {
    let server = start().await;
    let mut kubectl = Kubectl::new(&server);
    kubectl.feed("apply -f - --validate=false", WEB).await;
    kubectl.feed("apply -f - --validate=false", WEB).await;
    let changed = WEB
        .replace("replicas: 2", "replicas: 3")
        .replace("red", "blue");
    kubectl
        .feed("apply -f - --validate=false --dry-run=server", &changed)
        .await;
    kubectl
        .run("get configmap settings -o jsonpath={.data.color}")
        .await;
    kubectl.feed("apply -f - --validate=false", &changed).await;
    for line in [
        "get configmap settings -o jsonpath={.data.color}",
        "label configmap settings tier=front",
        "label configmap settings tier=back",
        "label configmap settings tier=back --overwrite",
        "label configmap settings tier-",
        "annotate configmap settings note=hello",
        "patch configmap settings --type merge -p '{\"data\":{\"color\":\"green\"}}'",
        "patch configmap settings --type json -p '[{\"op\":\"add\",\"path\":\"/data/size\",\"value\":\"7\"}]'",
        "patch configmap settings --type json -p '[{\"op\":\"test\",\"path\":\"/data/size\",\"value\":\"8\"}]'",
        "patch deployment web -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"side\",\"image\":\"busybox\"}]}}}}'",
        "get deployment web -o jsonpath={.spec.template.spec.containers[*].name}",
        "get configmap settings -o jsonpath={.data}",
        "scale deployment web --replicas=5",
        "get deployment web -o jsonpath={.spec.replicas}",
    ] {
        kubectl.run(line).await;
    }
    insta::assert_snapshot!(kubectl.transcript);
    server.stop().await;
}

#[tokio::test]
async fn edits() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = start().await;
    let mut kubectl = Kubectl::new(&server);
    kubectl.feed("apply -f - --validate=false", WEB).await;
    let editor = kubectl.write(
        "editor",
        "#!/bin/sh\nexec sed -i 's/color: red/color: pink/' \"$1\"\n",
    );
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    kubectl
        .run("edit configmap settings --validate=false")
        .await;
    kubectl
        .run("get configmap settings -o jsonpath={.data.color}")
        .await;
    kubectl
        .run("edit configmap settings --validate=false")
        .await;
    insta::assert_snapshot!(kubectl.transcript);
    server.stop().await;
}

#[tokio::test]
async fn deletes_and_waits() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut kubectl = Kubectl::new(&server);
    kubectl.feed("create -f - --validate=false", WEB).await;
    kubectl.run("run p --image=nginx").await;

    // Both commands wait for a status, which is set once they watch.
    let running = json!({"status": {"phase": "Running"}});
    client
        .patch(&format!("{PODS}/p/status"), "merge", &running)
        .await
        .expect(200);
    kubectl
        .run("wait --for=jsonpath={.status.phase}=Running pod/p --timeout=20s")
        .await;
    let available = json!({"status": {
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [{"type": "Available", "status": "True", "reason": "x", "message": "y"}],
    }});
    client
        .patch(&format!("{DEPLOYMENTS}/web/status"), "merge", &available)
        .await
        .expect(200);
    kubectl
        .run("wait --for=condition=Available deployment/web --timeout=20s")
        .await;
    kubectl
        .run("rollout status deployment/web --timeout=20s")
        .await;
    kubectl.run("delete pod p --now").await;
    kubectl.run("wait --for=delete pod/p --timeout=20s").await;
    kubectl.run("delete deployment,configmap -l app=web").await;
    kubectl.run("delete configmap settings").await;
    kubectl
        .run("delete configmap settings --ignore-not-found")
        .await;
    kubectl.run("delete namespace kube-system").await;
    insta::assert_snapshot!(kubectl.transcript);
    server.stop().await;
}

#[tokio::test]
async fn waits_for_what_is_not_there_yet() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(PODS, pod("p")).await;
    let kubectl = Kubectl::new(&server);
    let mut waiting = kubectl
        .command(&[
            "wait",
            "--for=jsonpath={.status.phase}=Running",
            "pod/p",
            "--timeout=30s",
        ])
        .spawn()
        .unwrap();
    let mut deleting = kubectl
        .command(&["wait", "--for=delete", "pod/p", "--timeout=30s"])
        .spawn()
        .unwrap();
    let running = json!({"status": {"phase": "Running"}});
    client
        .patch(&format!("{PODS}/p/status"), "merge", &running)
        .await
        .expect(200);
    assert!(within(waiting.wait()).await.unwrap().success());
    client
        .delete(&format!("{PODS}/p?gracePeriodSeconds=0"))
        .await
        .expect(200);
    assert!(within(deleting.wait()).await.unwrap().success());
    server.stop().await;
}

#[tokio::test]
async fn watches() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("first")).await;
    let kubectl = Kubectl::new(&server);
    let mut child = kubectl
        .command(&["get", "configmaps", "-w", "-o", "name"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for (name, next) in [("first", "second"), ("second", "third"), ("third", "")] {
        let line = within(lines.next_line()).await.unwrap().unwrap();
        assert_eq!(line, format!("configmap/{name}"));
        if !next.is_empty() {
            client.create(CONFIG_MAPS, config_map(next)).await;
        }
    }
    child.kill().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn asks_about_the_server() {
    let server = start().await;
    let mut kubectl = Kubectl::new(&server);
    kubectl.run("version").await;
    kubectl.run("cluster-info").await;
    kubectl.run("get --raw /healthz").await;
    insta::assert_snapshot!(kubectl.transcript);
    let versions = kubectl.run("api-versions").await;
    for version in [
        "v1",
        "apps/v1",
        "admissionregistration.k8s.io/v1",
        "admissionregistration.k8s.io/v1beta1",
        "apiextensions.k8s.io/v1",
    ] {
        assert!(
            versions.lines().any(|line| line == version),
            "{version} in\n{versions}"
        );
    }
    let resources = kubectl
        .run("api-resources --namespaced=false -o name")
        .await;
    for resource in [
        "namespaces",
        "nodes",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    ] {
        assert!(
            resources.lines().any(|line| line == resource),
            "{resource} in\n{resources}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn runs_exposes_and_defines() {
    let server = start().await;
    let mut kubectl = Kubectl::new(&server);
    kubectl
        .run("run web --image=nginx --port=80 --labels=app=web")
        .await;
    kubectl.run("expose pod web --port=80 --name=front").await;
    kubectl
        .run("get service front -o jsonpath={.spec.selector},{.spec.ports[0].port}")
        .await;
    let crd = definition(json!([open_version("v1", true)])).to_string();
    kubectl.feed("create -f - --validate=false", &crd).await;
    kubectl
        .run("wait --for=condition=Established crd/widgets.example.com --timeout=20s")
        .await;
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {a: 1}\n";
    kubectl.feed("apply -f - --validate=false", widget).await;
    kubectl.run("get widgets -o name").await;
    kubectl.run("get wg w -o jsonpath={.spec}").await;
    kubectl
        .run("patch widget w --type merge -p '{\"spec\":{\"a\":2}}'")
        .await;
    kubectl.run("delete crd widgets.example.com").await;
    kubectl.run("get widgets").await;
    insta::assert_snapshot!(kubectl.transcript);
    server.stop().await;
}

#[tokio::test]
async fn shows_what_a_webhook_says() {
    use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
    let server = start().await;
    let hooks = WebhookServer::start().await;
    hooks.script(
        "/say",
        [
            Script::respond(json!({"allowed": true, "warnings": ["colors fade"]})),
            Script::deny("no more colors"),
        ],
    );
    let mut kubectl = Kubectl::new(&server);
    let configuration = hook(
        "ValidatingWebhookConfiguration",
        "colors",
        &hooks.url("/say"),
        hooks.ca_pem(),
    );
    kubectl
        .feed("create -f - --validate=false", &configuration.to_string())
        .await;
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    kubectl.feed("create -f - --validate=false", object).await;
    kubectl.run("delete configmap c").await;
    insta::assert_snapshot!(kubectl.transcript);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn deletes_owners_in_three_ways() {
    let server = start_with(lockgate_apiserver::Settings::default()).await;
    let client = Client::admin(&server).await;
    let mut kubectl = Kubectl::new(&server);
    for cascade in ["background", "foreground", "orphan"] {
        let owner = client.create(DEPLOYMENTS, deployment(cascade)).await;
        let mut set = deployment(cascade);
        set["kind"] = "ReplicaSet".into();
        set["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": cascade,
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]);
        let sets = DEPLOYMENTS.replace("deployments", "replicasets");
        client.create(&sets, set).await;
        kubectl
            .run(&format!("delete deployment {cascade} --cascade={cascade}"))
            .await;
        if cascade == "orphan" {
            kubectl.run("get replicasets -o name").await;
            let set = client.get(&format!("{sets}/{cascade}")).await.expect(200);
            assert_eq!(set["metadata"].get("ownerReferences"), None);
        } else {
            client.wait_until_gone(&sets, cascade).await;
        }
        kubectl.run("get deployments -o name").await;
    }
    insta::assert_snapshot!(kubectl.transcript);
    server.stop().await;
}

#[tokio::test]
async fn shows_roles_and_what_they_allow() {
    let server = start_with(lockgate_apiserver::Settings::default()).await;
    let mut kubectl = Kubectl::new(&server);
    kubectl
        .run("get clusterrole admin edit view cluster-admin -o name")
        .await;
    kubectl
        .run("create rolebinding eve --clusterrole edit --user eve")
        .await;
    kubectl
        .run("auth can-i create deployments.apps --as eve")
        .await;
    kubectl
        .run("auth can-i create roles.rbac.authorization.k8s.io --as eve")
        .await;
    kubectl
        .run("get serviceaccounts,configmaps -A -o name")
        .await;
    insta::assert_snapshot!(kubectl.transcript);
    // Long lists, which each version of kubectl wraps into different columns.
    let words = |printed: &str, first: &str| -> Vec<String> {
        let mut lines = printed.lines().map(str::split_whitespace);
        let line = lines.find(|words| words.clone().next() == Some(first));
        line.into_iter().flatten().map(str::to_owned).collect()
    };
    let view = kubectl.run("describe clusterrole view").await;
    assert_eq!(
        words(&view, "configmaps"),
        ["configmaps", "[]", "[]", "[get", "list", "watch]"]
    );
    let list = kubectl.run("auth can-i --list --as eve").await;
    assert_eq!(
        words(&list, "pods/eviction"),
        ["pods/eviction", "[]", "[]", "[create]"]
    );
    assert_eq!(words(&list, "[/api/*]"), ["[/api/*]", "[]", "[get]"]);
    assert!(words(&list, "nodes").is_empty());
    let all = kubectl.run("auth can-i --list").await;
    assert_eq!(words(&all, "*.*"), ["*.*", "[]", "[]", "[*]"]);
    server.stop().await;
}
