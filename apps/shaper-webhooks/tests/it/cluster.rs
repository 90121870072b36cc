//! A cluster in this process: an API server, a simulation of cert-manager, and the program behind its Service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use lockgate_apiserver::{ServiceMapping, Settings, TestServer};
use lockgate_testkit::certs::{Authority, Identity};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Program, documents, helm, root, run};

/// The namespace of the release.
pub(crate) const SYSTEM: &str = "shaper-system";

/// An API server. Requests to the webhooks' Service are forwarded to the program once it runs.
pub(crate) struct Cluster {
    server: TestServer,
    client: kube::Client,
    program: watch::Sender<Option<SocketAddr>>,
    /// CAs by the names of their Secrets.
    authorities: BTreeMap<String, Authority>,
}

/// The parts of cert-manager's CRDs that a chart needs.
const CERT_MANAGER: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KIND.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: NAME, plural: KIND, singular: SINGULAR, listKind: NAMEList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

impl Cluster {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (program, target) = watch::channel(None);
        tokio::spawn(forward(listener, target));
        let settings = Settings {
            services: vec![ServiceMapping {
                namespace: String::from(SYSTEM),
                name: String::from("shaper-webhooks"),
                port: None,
                address: address.to_string(),
            }],
            ..Settings::default()
        };
        let server = TestServer::start_with(settings).await.unwrap();
        let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
            .await
            .unwrap();
        let cluster = Self {
            client: kube::Client::try_from(config).unwrap(),
            server,
            program,
            authorities: BTreeMap::new(),
        };
        for (kind, name) in [("certificates", "Certificate"), ("issuers", "Issuer")] {
            let definition = CERT_MANAGER
                .replace("KIND", kind)
                .replace("NAME", name)
                .replace("SINGULAR", &name.to_lowercase());
            cluster.apply(&definition).await;
        }
        cluster
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig_path()
    }

    /// Runs kubectl: whether it succeeded, and all its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments);
        tokio::task::spawn_blocking(move || run(&mut command))
            .await
            .unwrap()
    }

    /// Runs Helm, which must succeed.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> String {
        let mut command = helm();
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments);
        let (passed, text) = tokio::task::spawn_blocking(move || run(&mut command))
            .await
            .unwrap();
        assert!(passed, "{text}");
        text
    }

    /// Applies a manifest, which must succeed.
    pub(crate) async fn apply(&self, manifest: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        let (passed, text) = self
            .kubectl(&["apply", "-f", file.path().to_str().unwrap()])
            .await;
        assert!(passed, "{text}");
    }

    /// Creates an object with kubectl: whether it succeeded, and the output.
    pub(crate) async fn create(&self, object: &Value) -> (bool, String) {
        self.with_file(&["create"], object).await
    }

    /// Runs kubectl on an object.
    pub(crate) async fn with_file(&self, arguments: &[&str], object: &Value) -> (bool, String) {
        let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let file = file.path().to_str().unwrap().to_owned();
        self.kubectl(&[arguments, &["-f", &file]].concat()).await
    }

    /// The stored object.
    pub(crate) async fn stored(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let (passed, text) = self
            .kubectl(&["get", kind, "-n", namespace, name, "-o", "json"])
            .await;
        assert!(passed, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn api(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            None => Api::all_with(self.client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// Simulates cert-manager for the certificates of the release: CAs first, then the certificates they issue.
    async fn issue_certificates(&mut self) {
        let api = self.api("cert-manager.io", "v1", "Certificate", Some(SYSTEM));
        let certificates = api.list(&ListParams::default()).await.unwrap().items;
        let (of_authorities, of_servers): (Vec<_>, Vec<_>) = certificates
            .iter()
            .partition(|one| one.data["spec"]["isCA"] == true);
        for certificate in of_authorities {
            let spec = &certificate.data["spec"];
            let issuer = self.issuer(spec).await;
            assert_eq!(
                issuer,
                json!({"selfSigned": {}}),
                "an authority of its own signs itself"
            );
            let authority = Authority::new(spec["commonName"].as_str().unwrap());
            let secret = spec["secretName"].as_str().unwrap();
            let own = Identity {
                certificate_pem: authority.pem().to_owned(),
                key_pem: String::from("kept"),
            };
            self.store(certificate, secret, &own, authority.pem()).await;
            self.authorities.insert(secret.to_owned(), authority);
        }
        for certificate in of_servers {
            let spec = &certificate.data["spec"];
            let issuer = self.issuer(spec).await;
            let authority = &self.authorities[issuer["ca"]["secretName"].as_str().unwrap()];
            let names = spec["dnsNames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap());
            let leaf = authority.issue(&names.collect::<Vec<_>>());
            let pem = authority.pem().to_owned();
            self.store(
                certificate,
                spec["secretName"].as_str().unwrap(),
                &leaf,
                &pem,
            )
            .await;
        }
    }

    async fn issuer(&self, spec: &Value) -> Value {
        let api = self.api("cert-manager.io", "v1", "Issuer", Some(SYSTEM));
        let issuer = api
            .get(spec["issuerRef"]["name"].as_str().unwrap())
            .await
            .unwrap();
        issuer.data["spec"].clone()
    }

    async fn store(
        &self,
        certificate: &DynamicObject,
        name: &str,
        identity: &Identity,
        authority: &str,
    ) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "annotations": {"cert-manager.io/certificate-name": certificate.metadata.name}},
            "data": {
                "tls.crt": BASE64_STANDARD.encode(&identity.certificate_pem),
                "tls.key": BASE64_STANDARD.encode(&identity.key_pem),
                "ca.crt": BASE64_STANDARD.encode(authority),
            },
        });
        let secret: DynamicObject = serde_json::from_value(secret).unwrap();
        let api = self.api("", "v1", "Secret", Some(SYSTEM));
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Simulates cert-manager's CA injector: annotation, Certificate, its Secret, `ca.crt`.
    async fn inject_authorities(&self) {
        for kind in [
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ] {
            let api = self.api("admissionregistration.k8s.io", "v1", kind, None);
            for mut configuration in api.list(&ListParams::default()).await.unwrap().items {
                let annotations = configuration.metadata.annotations.clone().unwrap();
                let Some((namespace, name)) =
                    annotations["cert-manager.io/inject-ca-from"].split_once('/')
                else {
                    panic!("without a namespace the injector does nothing");
                };
                let certificate = self
                    .api("cert-manager.io", "v1", "Certificate", Some(namespace))
                    .get(name)
                    .await
                    .unwrap();
                let secret = certificate.data["spec"]["secretName"].as_str().unwrap();
                let secret = self
                    .api("", "v1", "Secret", Some(namespace))
                    .get(secret)
                    .await
                    .unwrap();
                assert_eq!(
                    secret.metadata.annotations.unwrap()["cert-manager.io/certificate-name"],
                    name
                );
                for webhook in configuration.data["webhooks"].as_array_mut().unwrap() {
                    webhook["clientConfig"]["caBundle"] = secret.data["data"]["ca.crt"].clone();
                }
                let name = configuration.metadata.name.clone().unwrap();
                api.replace(&name, &PostParams::default(), &configuration)
                    .await
                    .unwrap();
            }
        }
    }

    /// Installs both charts with Helm.
    pub(crate) async fn install(&mut self, arguments: &[&str]) {
        let chart = |name: &str| {
            root()
                .join("charts")
                .join(name)
                .to_str()
                .unwrap()
                .to_owned()
        };
        self.helm(&[
            "install",
            "shaper-crds",
            &chart("shaper-crds"),
            "--namespace",
            "default",
        ])
        .await;
        let (name, folder) = ("shaper-webhooks", chart("shaper-webhooks"));
        self.helm(
            &[
                &[
                    "install",
                    name,
                    &folder,
                    "--namespace",
                    SYSTEM,
                    "--create-namespace",
                ],
                arguments,
            ]
            .concat(),
        )
        .await;
        self.issue_certificates().await;
        self.inject_authorities().await;
    }

    /// Upgrades the release of the webhooks.
    pub(crate) async fn upgrade(&self, arguments: &[&str]) {
        let folder = root().join("charts/shaper-webhooks");
        let folder = folder.to_str().unwrap();
        let upgrade = [
            "upgrade",
            "shaper-webhooks",
            folder,
            "--namespace",
            SYSTEM,
            "--reuse-values",
        ];
        self.helm(&[&upgrade, arguments].concat()).await;
    }

    /// Runs the program as its Pod would: with the configuration, the certificate and the service account of the
    /// Deployment.
    pub(crate) async fn run(&self, changes: &Value) -> Program {
        let deployment = self.stored("deployment", SYSTEM, "shaper-webhooks").await;
        let pod = &deployment["spec"]["template"]["spec"];
        let volume = |name: &str| {
            let volumes = pod["volumes"].as_array().unwrap();
            volumes
                .iter()
                .find(|volume| volume["name"] == name)
                .unwrap()
                .clone()
        };
        let secret = self
            .stored(
                "secret",
                SYSTEM,
                volume("cert")["secret"]["secretName"].as_str().unwrap(),
            )
            .await;
        let folder = TempDir::new().unwrap();
        for file in ["tls.crt", "tls.key"] {
            let bytes = BASE64_STANDARD
                .decode(secret["data"][file].as_str().unwrap())
                .unwrap();
            std::fs::write(folder.path().join(file), bytes).unwrap();
        }
        let map = self
            .stored(
                "configmap",
                SYSTEM,
                volume("config")["configMap"]["name"].as_str().unwrap(),
            )
            .await;
        let mut config = documents(map["data"]["config.yaml"].as_str().unwrap()).remove(0);
        config["kubeconfigPath"] = json!(
            self.kubeconfig_of(folder.path(), pod["serviceAccountName"].as_str().unwrap())
                .await
        );
        config["webhookServer"]["shutdownDelay"] = json!("0s");
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        let program = Program::start(config, folder);
        program.until_ready().await;
        self.program.send(Some(program.webhooks)).unwrap();
        program
    }

    /// A kubeconfig with a token of a service account.
    async fn kubeconfig_of(&self, folder: &Path, account: &str) -> PathBuf {
        let (passed, token) = self
            .kubectl(&["create", "token", account, "-n", SYSTEM])
            .await;
        assert!(passed, "{token}");
        let own = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config = documents(&own).remove(0);
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

/// Forwards connections to the current address of the program.
async fn forward(listener: TcpListener, target: watch::Receiver<Option<SocketAddr>>) {
    while let Ok((mut incoming, _)) = listener.accept().await {
        let Some(address) = *target.borrow() else {
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut outgoing) = TcpStream::connect(address).await {
                let _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await;
            }
        });
    }
}
