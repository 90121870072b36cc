//! `serve --simulate=workloads`, through kubectl.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::served::{Client, DEADLINE, Home, Served, tls};

/// A server with simulated workloads, and its kubectl.
struct Cluster {
    home: Home,
    served: Served,
    port: u16,
}

impl Cluster {
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(Home::new(), arguments)
    }

    fn start_in(home: Home, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        command
            .args(home.arguments())
            .arg("--simulate=workloads")
            .args(arguments);
        let mut served = Served::start(command);
        let port = served.port();
        Self { home, served, port }
    }

    /// Runs kubectl: whether it succeeded, and its output.
    fn try_kubectl(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut child = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tests need `kubectl` on the PATH");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = text(&output.stdout) + &text(&output.stderr);
        (output.status.success(), printed)
    }

    fn kubectl(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (done, printed) = self.try_kubectl(&words, "");
        assert!(done, "kubectl {line}: {printed}");
        printed.trim_end().to_owned()
    }

    fn apply(&self, manifest: &str) {
        let (done, printed) = self.try_kubectl(&["apply", "-f", "-"], manifest);
        assert!(done, "{printed}");
    }

    /// Waits until kubectl's output has this value.
    fn until(&self, line: &str, wanted: &str) {
        let end = Instant::now() + DEADLINE;
        loop {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (_, printed) = self.try_kubectl(&words, "");
            if printed.trim_end() == wanted {
                return;
            }
            assert!(
                Instant::now() < end,
                "kubectl {line}: {printed}, not {wanted}"
            );
        }
    }
}

#[test]
fn a_rollout_ends_and_can_be_undone() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl("create deployment web --image=web:1 --replicas=3");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    let first = cluster.kubectl("get replicaset -o jsonpath={.items[0].metadata.name}");
    let hash = first.strip_prefix("web-").unwrap();
    let label =
        cluster.kubectl("get pods -o jsonpath={.items[0].metadata.labels.pod-template-hash}");
    assert_eq!(label, hash);
    let owner =
        cluster.kubectl("get pods -o jsonpath={.items[0].metadata.ownerReferences[0].name}");
    assert_eq!(owner, first);
    cluster.kubectl("set image deployment/web web=web:2");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    let image = "get pods -o jsonpath={.items[*].spec.containers[0].image}";
    cluster.until(image, "web:2 web:2 web:2");
    let history = cluster.kubectl("rollout history deployment/web");
    assert!(
        history.contains("\n1 ") && history.contains("\n2 "),
        "{history}"
    );
    cluster.kubectl("rollout undo deployment/web");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    cluster.until(image, "web:1 web:1 web:1");
    let revision = r"get deployment web -o jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}";
    assert_eq!(cluster.kubectl(revision), "3");
    cluster.kubectl("rollout restart deployment/web");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    cluster.kubectl("scale deployment/web --replicas=5");
    cluster
        .kubectl("wait deployment/web --for=jsonpath={.status.availableReplicas}=5 --timeout=60s");
    cluster.kubectl("rollout pause deployment/web");
    cluster.kubectl("set image deployment/web web=web:4");
    let reason =
        "get deployment web -o jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}";
    cluster.until(reason, "DeploymentPaused");
    cluster.kubectl("rollout resume deployment/web");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    let events = cluster.kubectl("get events -o jsonpath={.items[*].reason}");
    for reason in [
        "ScalingReplicaSet",
        "SuccessfulCreate",
        "Scheduled",
        "Pulled",
        "Started",
        "Killing",
    ] {
        assert!(events.contains(reason), "{reason}: {events}");
    }
    cluster.kubectl("delete deployment web --cascade=foreground");
    cluster.until("get pods,replicasets -o name", "");
}

#[test]
fn recreating_never_runs_two_versions() {
    let cluster = Cluster::start(&[]);
    cluster.apply(
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2,
        "strategy":{"type":"Recreate"},"revisionHistoryLimit":1,"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}"#,
    );
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    for version in 2..5 {
        cluster.kubectl(&format!("set image deployment/web c=i:{version}"));
        cluster.kubectl("rollout status deployment/web --timeout=60s");
        let images = cluster.kubectl("get pods -o jsonpath={.items[*].spec.containers[0].image}");
        assert_eq!(images, format!("i:{version} i:{version}"));
    }
    // The current ReplicaSet, and an old one.
    cluster.until(
        "get replicasets --no-headers -o custom-columns=r:.spec.replicas --sort-by=.spec.replicas",
        "0\n2",
    );
}

#[test]
fn a_refusal_is_a_condition_until_it_is_over() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl("create quota few --hard=pods=1");
    cluster.until("get quota few -o jsonpath={.status.hard.pods}", "1");
    cluster.kubectl("create deployment web --image=web --replicas=2");
    cluster.kubectl("wait deployment/web --for=condition=ReplicaFailure --timeout=60s");
    let message = "get deployment web -o jsonpath={.status.conditions[?(@.type==\"ReplicaFailure\")].message}";
    assert!(cluster.kubectl(message).contains("exceeded quota: few"));
    let events = cluster
        .kubectl("get events --field-selector=reason=FailedCreate -o jsonpath={.items[0].message}");
    assert!(
        events.starts_with("Error creating: pods \"web-"),
        "{events}"
    );
    cluster.kubectl("delete quota few");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    cluster.until(
        "get deployment web -o jsonpath={.status.conditions[*].type}",
        "Available Progressing",
    );
}

#[test]
fn controllers_pass_admission_as_their_service_accounts() {
    let cluster = Cluster::start(&[]);
    cluster.apply(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: controllers}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: request.userInfo.username == "system:serviceaccount:kube-system:replicaset-controller"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: controllers}
spec: {policyName: controllers, validationActions: [Deny]}
"#,
    );
    let (done, _) = cluster.try_kubectl(&["run", "mine", "--image=i"], "");
    assert!(!done, "only the controller may");
    cluster.kubectl("create deployment web --image=web");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
}

#[test]
fn stateful_sets_have_ordinals_and_claims() {
    let cluster = Cluster::start(&[]);
    cluster.apply(
        r#"{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"replicas":3,
        "serviceName":"db","selector":{"matchLabels":{"a":"b"}},
        "volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],
            "resources":{"requests":{"storage":"1Gi"}}}}],
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}"#,
    );
    cluster.kubectl("rollout status statefulset/db --timeout=60s");
    assert_eq!(
        cluster.kubectl("get pods -o name"),
        "pod/db-0\npod/db-1\npod/db-2"
    );
    let claims = "get pvc -o jsonpath={.items[*].metadata.name}";
    assert_eq!(cluster.kubectl(claims), "data-db-0 data-db-1 data-db-2");
    let phases = cluster.kubectl("get pvc,pv -o jsonpath={.items[*].status.phase}");
    assert_eq!(phases, "Bound Bound Bound Bound Bound Bound");
    // Pods with an ordinal below the partition keep their template.
    let patch = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"c","image":"i:2"}]}}}}"#;
    cluster.kubectl(&format!("patch statefulset db -p {patch}"));
    cluster.until(
        "get pods -o jsonpath={.items[*].spec.containers[0].image}",
        "i:1 i:1 i:2",
    );
    cluster.kubectl("rollout status statefulset/db --timeout=60s");
    cluster.kubectl(
        r#"patch statefulset db -p {"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#,
    );
    cluster.kubectl("rollout status statefulset/db --timeout=60s");
    cluster.until(
        "get pods -o jsonpath={.items[*].spec.containers[0].image}",
        "i:2 i:2 i:2",
    );
    let history = cluster.kubectl("rollout history statefulset/db");
    assert!(
        history.contains("\n1 ") && history.contains("\n2 "),
        "{history}"
    );
    cluster.kubectl("scale statefulset/db --replicas=1");
    cluster.until("get pods -o name", "pod/db-0");
    assert_eq!(
        cluster.kubectl(claims),
        "data-db-0 data-db-1 data-db-2",
        "claims stay"
    );
    cluster.kubectl("delete pvc data-db-2");
    cluster.until(
        "get pv --sort-by=.spec.claimRef.name -o jsonpath={.items[*].spec.claimRef.name}",
        "data-db-0 data-db-1",
    );
}

#[test]
fn daemon_sets_run_on_every_node_and_go_with_it() {
    let cluster = Cluster::start(&["--simulate-nodes=3", "--simulate-node-name=worker"]);
    cluster.kubectl("wait node --all --for=condition=Ready --timeout=60s");
    cluster.apply(
        r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent"},"spec":{
        "selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}"#,
    );
    cluster.kubectl("rollout status daemonset/agent --timeout=60s");
    let nodes = "get pods -o custom-columns=n:.spec.nodeName --no-headers --sort-by=.spec.nodeName";
    assert_eq!(cluster.kubectl(nodes), "worker-0\nworker-1\nworker-2");
    cluster.kubectl("set image daemonset/agent c=i:2");
    cluster.kubectl("rollout status daemonset/agent --timeout=60s");
    cluster.until(
        "get pods -o jsonpath={.items[*].spec.containers[0].image}",
        "i:2 i:2 i:2",
    );
    cluster.kubectl("rollout undo daemonset/agent");
    cluster.kubectl("rollout status daemonset/agent --timeout=60s");
    cluster.until(
        "get pods -o jsonpath={.items[*].spec.containers[0].image}",
        "i:1 i:1 i:1",
    );
    cluster.kubectl("delete node worker-1");
    cluster.until(nodes, "worker-0\nworker-2");
    cluster.kubectl("cordon worker-0");
    cluster.kubectl("run elsewhere --image=i");
    cluster.kubectl("wait pod/elsewhere --for=condition=Ready --timeout=60s");
    assert_eq!(
        cluster.kubectl("get pod elsewhere -o jsonpath={.spec.nodeName}"),
        "worker-2"
    );
}

#[test]
fn jobs_complete_and_fail() {
    let cluster = Cluster::start(&[]);
    cluster.apply(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: three}
spec:
  completions: 3
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: broken}
spec:
  backoffLimit: 1
  template:
    metadata: {annotations: {lockgate.dev/simulate: fail=3}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec:
  ttlSecondsAfterFinished: 1
  template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: later}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: often}
spec:
  schedule: "@every 1s"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
"#,
    );
    cluster.kubectl("wait job/three job/indexed --for=condition=Complete --timeout=60s");
    let status = "-o jsonpath={.status.succeeded},{.status.active},{.status.conditions[*].type}";
    let of = |job: &str| cluster.kubectl(&format!("get job {job} {status}"));
    assert_eq!(of("three"), "3,,SuccessCriteriaMet Complete");
    assert_eq!(
        cluster.kubectl("get job indexed -o jsonpath={.status.completedIndexes}"),
        "0-2"
    );
    cluster.kubectl("wait job/broken --for=condition=Failed --timeout=60s");
    let failed = "get job broken -o jsonpath={.status.failed},{.status.conditions[*].type},{.status.conditions[0].reason}";
    assert_eq!(
        cluster.kubectl(failed),
        "2,FailureTarget Failed,BackoffLimitExceeded"
    );
    let code = "get pods -l job-name=broken -o jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}";
    assert_eq!(cluster.kubectl(code), "3");
    cluster.until("get job short --ignore-not-found -o name", "");
    let suspended = "get job later -o jsonpath={.status.conditions[*].reason}";
    assert_eq!(cluster.kubectl(suspended), "JobSuspended");
    assert_eq!(cluster.kubectl("get pods -l job-name=later -o name"), "");
    cluster.kubectl(r#"patch job later -p {"spec":{"suspend":false}}"#);
    cluster.kubectl("wait job/later --for=condition=Complete --timeout=60s");
    let owned = "get jobs -o jsonpath={.items[?(@.metadata.ownerReferences)].metadata.ownerReferences[0].kind}";
    let end = Instant::now() + DEADLINE;
    while !cluster.kubectl(owned).starts_with("CronJob") {
        assert!(Instant::now() < end, "no Job of the CronJob");
    }
    cluster.kubectl("wait cronjob/often --for=jsonpath={.status.lastSuccessfulTime} --timeout=60s");
}

#[test]
fn pods_of_a_job_whose_name_is_taken_again_go() {
    let cluster = Cluster::start(&["--simulate-complete-after=1h"]);
    cluster.apply(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: again}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
"#,
    );
    let phases = "get pods -l job-name=again -o jsonpath={.items[*].status.phase}";
    cluster.until(phases, "Running");
    // From a previous Job of the same name: the garbage collector deletes it, and its finalizer blocks the removal.
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: left
  finalizers: [batch.kubernetes.io/job-tracking]
  ownerReferences:
  - {apiVersion: batch/v1, kind: Job, name: again, uid: 00000000-0000-4000-8000-000000000000, controller: true}
spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"#,
    );
    cluster.until("get pods left --ignore-not-found -o name", "");
    assert_eq!(cluster.kubectl(phases), "Running");
}

#[test]
fn pods_of_a_job_that_is_deleted_go_with_it() {
    let cluster = Cluster::start(&["--simulate-complete-after=1h"]);
    cluster.apply(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: endless}
spec:
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
"#,
    );
    let phases = "get pods -l job-name=endless -o jsonpath={.items[*].status.phase}";
    cluster.until(phases, "Running Running");
    let finalizers = "get pods -l job-name=endless -o jsonpath={.items[*].metadata.finalizers[*]}";
    let tracking = "batch.kubernetes.io/job-tracking";
    assert_eq!(
        cluster.kubectl(finalizers),
        format!("{tracking} {tracking}")
    );
    cluster.kubectl("delete job endless --cascade=background");
    cluster.until("get pods -l job-name=endless -o name", "");
}

#[test]
fn services_follow_the_readiness_of_pods() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl("run web --image=web --port=8080 --labels=app=web");
    cluster.kubectl("expose pod web --port=80 --target-port=8080");
    cluster.kubectl("wait pod/web --for=condition=Ready --timeout=60s");
    let address = cluster.kubectl("get pod web -o jsonpath={.status.podIP}");
    let endpoints =
        "get endpoints web -o jsonpath={.subsets[0].addresses[0].ip}:{.subsets[0].ports[0].port}";
    let end = Instant::now() + DEADLINE;
    // A deprecation warning for the kind is printed too.
    while !cluster
        .kubectl(endpoints)
        .contains(&format!("{address}:8080"))
    {
        assert!(Instant::now() < end, "no endpoints");
    }
    let slice = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[0].endpoints[0].addresses[0]},{.items[0].endpoints[0].conditions.ready},{.items[0].ports[0].port}";
    cluster.until(slice, &format!("{address},true,8080"));
    cluster.kubectl("annotate pod web lockgate.dev/simulate=not-ready");
    cluster.until(slice, &format!("{address},false,8080"));
    cluster.kubectl("annotate pod web lockgate.dev/simulate-");
    cluster.until(slice, &format!("{address},true,8080"));
    cluster.kubectl("delete service web");
    cluster.until(
        "get endpointslices -l kubernetes.io/service-name=web -o name",
        "",
    );
}

#[test]
fn budgets_count_healthy_pods_and_evictions_obey() {
    let cluster = Cluster::start(&[]);
    cluster.kubectl("create deployment web --image=web --replicas=2");
    cluster.kubectl("create poddisruptionbudget web --selector=app=web --min-available=2");
    cluster.kubectl("rollout status deployment/web --timeout=60s");
    let budget = "get pdb web -o jsonpath={.status.currentHealthy},{.status.desiredHealthy},{.status.disruptionsAllowed},{.status.expectedPods}";
    cluster.until(budget, "2,2,0,2");
    let (drained, printed) = cluster.try_kubectl(
        &[
            "drain",
            "lockgate-node",
            "--ignore-daemonsets",
            "--timeout=1s",
        ],
        "",
    );
    assert!(!drained, "{printed}");
    assert!(printed.contains("Cannot evict pod"), "{printed}");
    cluster.kubectl("uncordon lockgate-node");
    cluster.kubectl("scale deployment/web --replicas=3");
    cluster.until(budget, "3,2,1,3");
}

#[test]
fn pods_fail_on_demand() {
    let cluster = Cluster::start(&[]);
    let run = |name: &str, how: &str, policy: &str| {
        let annotation = format!("--annotations=lockgate.dev/simulate={how}");
        cluster.kubectl(&format!(
            "run {name} --image=i --restart={policy} {annotation}"
        ));
    };
    run("pull", "image-pull-error", "Always");
    run("crash", "fail=2", "Always");
    run("nowhere", "unschedulable", "Always");
    run("evicted", "evict", "Always");
    run("stays", "run", "Never");
    run("stuck", "hang", "Always");
    let waiting = |pod: &str| {
        format!("get pod {pod} -o jsonpath={{.status.containerStatuses[0].state.waiting.reason}}")
    };
    cluster.until(&waiting("pull"), "ImagePullBackOff");
    cluster.until(&waiting("crash"), "CrashLoopBackOff");
    let reason =
        "get pod nowhere -o jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}";
    cluster.until(reason, "Unschedulable");
    cluster.until(
        "get pod evicted -o jsonpath={.status.phase},{.status.reason}",
        "Failed,Evicted",
    );
    cluster.kubectl("wait pod/stays pod/stuck --for=condition=Ready --timeout=60s");
    cluster.kubectl("delete pod stuck --wait=false");
    cluster.kubectl("delete pod stays");
    assert_eq!(cluster.kubectl("get pod stuck -o name"), "pod/stuck");
    cluster.kubectl("delete pod stuck --force --grace-period=0");
    cluster.until("get pod stuck --ignore-not-found -o name", "");
}

#[test]
fn approved_certificates_are_signed() {
    let cluster = Cluster::start(&[]);
    let object = signing_request(
        &cluster,
        "jane",
        &["-subj", "/O=dev/CN=jane"],
        ("kubernetes.io/kube-apiserver-client", &["client auth"]),
    );
    cluster.apply(&object.to_string());
    assert_eq!(
        cluster.kubectl("get csr jane -o jsonpath={.status.certificate}"),
        ""
    );
    cluster.kubectl("certificate approve jane");
    cluster.kubectl("wait csr/jane --for=jsonpath={.status.certificate} --timeout=60s");
    let certificate =
        cluster.kubectl("get csr jane -o go-template={{.status.certificate|base64decode}}");
    std::fs::write(cluster.home.path().join("jane.crt"), certificate).unwrap();
    let file = |name: &str| cluster.home.path().join(name).display().to_string();
    cluster.kubectl(&format!(
        "config set-credentials jane --client-certificate={} --client-key={}",
        file("jane.crt"),
        file("jane.key")
    ));
    let who = "auth whoami --user=jane -o jsonpath={.status.userInfo.username}";
    assert_eq!(cluster.kubectl(who), "jane");
}

/// A CertificateSigningRequest with a new key, for a signer with usages.
fn signing_request(
    cluster: &Cluster,
    name: &str,
    arguments: &[&str],
    (signer, usages): (&str, &[&str]),
) -> Value {
    let request = Command::new("openssl")
        .args(["req", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-keyout"])
        .arg(cluster.home.path().join(format!("{name}.key")))
        .args(arguments)
        .output()
        .unwrap();
    assert!(request.status.success(), "{request:?}");
    let encoded = lockgate_go::base64::encode(&request.stdout);
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": encoded, "signerName": signer, "usages": usages},
    })
}

/// Kubelet certificates are only for nodes: no other user can request one.
#[test]
fn certificates_of_kubelets_are_for_nodes() {
    let cluster = Cluster::start(&[]);
    let client = "kubernetes.io/kube-apiserver-client-kubelet";
    let serving = "kubernetes.io/kubelet-serving";
    let as_client = ["digital signature", "client auth"];
    let as_server = ["digital signature", "server auth"];
    let node = ["-subj", "/O=system:nodes/CN=system:node:one"];
    let names = [
        &node[..],
        &["-addext", "subjectAltName=DNS:one,IP:10.0.0.1"],
    ]
    .concat();
    let mail = [
        &node[..],
        &["-addext", "subjectAltName=DNS:one,email:a@b.c"],
    ]
    .concat();
    let refused = [
        (
            "jane",
            &["-subj", "/O=dev/CN=jane"][..],
            (client, &as_client),
            "subject organization is not system:nodes",
        ),
        (
            "named",
            &["-subj", "/O=system:nodes/CN=jane"],
            (client, &as_client),
            "subject common name does not begin with system:node:",
        ),
        (
            "dns",
            &names,
            (client, &as_client),
            "DNS subjectAltNames are not allowed",
        ),
        (
            "bare",
            &node,
            (serving, &as_server),
            "DNS or IP subjectAltName is required",
        ),
        (
            "mail",
            &mail,
            (serving, &as_server),
            "Email subjectAltNames are not allowed",
        ),
        (
            "usages",
            &names,
            (serving, &as_client),
            "usages did not match [digital signature key encipherment server auth]",
        ),
    ];
    for (name, arguments, (signer, usages), message) in refused {
        let object = signing_request(&cluster, name, arguments, (signer, usages));
        cluster.apply(&object.to_string());
        cluster.kubectl(&format!("certificate approve {name}"));
        cluster.kubectl(&format!(
            "wait csr/{name} --for=condition=Failed --timeout=60s"
        ));
        let of = "-o jsonpath={.status.conditions[?(@.type=='Failed')].reason}:{.status.conditions[?(@.type=='Failed')].message}:{.status.certificate}";
        let told = cluster.kubectl(&format!("get csr {name} {of}"));
        assert_eq!(
            told,
            format!("SignerValidationFailure:{message}:"),
            "{name}"
        );
    }
    for (name, arguments, signed) in [
        ("kubelet", &node[..], (client, &as_client)),
        ("server", &names, (serving, &as_server)),
    ] {
        let (signer, usages) = signed;
        let object = signing_request(&cluster, name, arguments, (signer, usages));
        cluster.apply(&object.to_string());
        cluster.kubectl(&format!("certificate approve {name}"));
        cluster.kubectl(&format!(
            "wait csr/{name} --for=jsonpath={{.status.certificate}} --timeout=60s"
        ));
    }
}

#[test]
fn nothing_is_simulated_unless_asked_for() {
    let home = Home::new();
    let (served, port) = home.start_ready();
    let cluster = Cluster { home, served, port };
    cluster.kubectl("create deployment web --image=web");
    assert_eq!(
        cluster.kubectl("get nodes,storageclasses,replicasets -o name"),
        ""
    );
}

fn deployment(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

#[tokio::test]
async fn converges_after_kills_in_the_middle() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let mut cluster = Cluster::start(&[]);
    let tls = tls(&cluster.home.data());
    let mut client = Client::connect(&tls, cluster.port).await.unwrap();
    for number in 0..4 {
        let object = deployment(&format!("web-{number}"), 10);
        let (code, answer) = client
            .send("POST", DEPLOYMENTS, Some(&object))
            .await
            .unwrap();
        assert_eq!(code, 201, "{answer}");
    }
    for round in 1..=3_usize {
        // Some Pods exist, others are missing.
        let end = Instant::now() + DEADLINE;
        loop {
            let (_, list) = client.send("GET", PODS, None).await.unwrap();
            if list["items"].as_array().unwrap().len() >= 12 * round {
                break;
            }
            assert!(Instant::now() < end, "no Pods");
        }
        cluster.served.kill();
        cluster = Cluster::start_in(cluster.home, &[]);
        client = Client::connect(&tls, cluster.port).await.unwrap();
    }
    let end = Instant::now() + DEADLINE;
    loop {
        let (_, list) = client.send("GET", DEPLOYMENTS, None).await.unwrap();
        let items = list["items"].as_array().unwrap();
        let is_ready = |item: &Value| item["status"]["availableReplicas"] == 10;
        if items.iter().all(is_ready) {
            break;
        }
        assert!(Instant::now() < end, "{list}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, list) = client.send("GET", PODS, None).await.unwrap();
    let pods = list["items"].as_array().unwrap();
    assert_eq!(pods.len(), 40, "none too many");
    let addresses: std::collections::HashSet<_> = pods
        .iter()
        .map(|pod| pod["status"]["podIP"].to_string())
        .collect();
    assert_eq!(addresses.len(), 40, "every Pod has an address of its own");
}

/// The real Helm, installed by `tools/need.sh` if missing.
fn helm() -> std::path::PathBuf {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("tools/need.sh"))
        .arg("clients")
        .current_dir(&root)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    std::path::PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("bin/helm")
}

#[test]
fn helm_waits_for_workloads_and_hooks() {
    let cluster = Cluster::start(&[]);
    let (helm, chart) = (helm(), crate::fixtures().join("chart"));
    let run = |line: &str| {
        let output = Command::new(&helm)
            .args(line.split_whitespace())
            .env("KUBECONFIG", cluster.home.path().join("kubeconfig"))
            .env("HOME", cluster.home.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "helm {line}: {printed}");
        printed
    };
    let chart = chart.display();
    run(&format!(
        "install shop {chart} --wait --wait-for-jobs --timeout=60s"
    ));
    let ready = "get deployment,statefulset,daemonset -o jsonpath={.items[*].status.readyReplicas},{.items[*].status.numberReady}";
    assert_eq!(cluster.kubectl(ready), "2 1,1");
    let jobs = "get jobs -o jsonpath={.items[*].status.succeeded}";
    assert_eq!(cluster.kubectl(jobs), "1 1");
    run("test shop --timeout=60s");
    run(&format!(
        "upgrade shop {chart} --set image=shop:2,replicas=3 --wait --timeout=60s"
    ));
    let images = "get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}";
    cluster.until(images, "shop:2 shop:2 shop:2");
    run("rollback shop 1 --wait --timeout=60s");
    cluster.until(images, "shop:1 shop:1");
    run("uninstall shop --wait --timeout=60s");
    cluster.until(
        "get deployment,statefulset,daemonset,replicaset -o name",
        "",
    );
}
