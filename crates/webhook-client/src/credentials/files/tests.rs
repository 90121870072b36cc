//! The files as users write them.

use super::*;

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lockgate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts:
- name: c
  context: {cluster: x, user: fallback}
users:
- name: svc.ns.svc
  user: {token: abc, tokenFile: ignored}
- name: '*.example.com:8443'
  user: {tokenFile: token.txt, as: jane, as-groups: [a], as-user-extra: {k: [v]}}
- name: fallback
  user: {client-certificate: /c.pem, client-key-data: a2V5}
- name: old
  user: {auth-provider: {name: gcp}}
- name: run
  user: {exec: {command: x}}
- name: nobody
";

#[test]
fn reads_users() {
    let credentials = parse_kubeconfig(KUBECONFIG.as_bytes(), Path::new("/etc/k/config")).unwrap();
    let user = credentials.find("svc.ns.svc:443").unwrap();
    assert_eq!(user.token.as_deref(), Some("abc"));
    let user = credentials.find("a.example.com:8443").unwrap();
    assert_eq!(
        format!("{:?}", user.token_file),
        "Some(TokenFile(\"/etc/k/token.txt\"))"
    );
    let impersonate = user.impersonate.as_ref().unwrap();
    assert_eq!(
        (impersonate.user.as_str(), impersonate.groups.len()),
        ("jane", 1)
    );
    let user = credentials.find("elsewhere:443").unwrap();
    assert_eq!(user.name, "fallback");
    assert_eq!(
        user.client_certificate,
        Some(Material::File("/c.pem".into()))
    );
    assert_eq!(user.client_key, Some(Material::Data(b"key".to_vec())));
    let refused = |name: &str| {
        credentials
            .find(name)
            .unwrap()
            .check()
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused("old"), "auth provider not supported");
    assert_eq!(refused("run"), "exec credential plugins are not supported");
}

#[test]
fn finds_the_configuration_of_a_plugin() {
    let folder = Folder::new("plugins");
    let kubeconfig = folder.write("kubeconfig", KUBECONFIG);
    folder.write(
        "webhook.yaml",
        &format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: {}\n",
            kubeconfig.display()
        ),
    );
    let file = folder.write(
        "admission.yaml",
        "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  path: webhook.yaml
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    staticManifestsDir: /manifests
",
    );
    let mutating = load(&file, "MutatingAdmissionWebhook").unwrap();
    assert!(mutating.credentials.find("svc.ns.svc:443").is_some());
    let validating = load(&file, "ValidatingAdmissionWebhook").unwrap();
    assert!(validating.credentials.find("svc.ns.svc:443").is_none());
    assert_eq!(
        validating.static_manifests_dir.as_deref(),
        Some(Path::new("/manifests"))
    );
    assert!(load(&file, "Other").unwrap().static_manifests_dir.is_none());
}

#[test]
fn refuses_in_upstreams_words() {
    let folder = Folder::new("refusals");
    let plugin = |configuration: &str| {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: P\n  configuration: {configuration}\n"
        )
    };
    let webhook = "apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration";
    for (text, want) in [
        (
            plugin(&format!("{{{webhook}, kubeConfigFile: relative}}")),
            "kubeConfigFile: Invalid value: \"relative\": must be an absolute file path",
        ),
        (
            plugin(&format!("{{{webhook}, kubeconfigFile: /x}}")),
            "strict decoding error: unknown field \"kubeconfigFile\"",
        ),
        (
            plugin(&format!("{{{webhook}, kubeConfigFile: /does/not/exist}}")),
            "open /does/not/exist: no such file or directory",
        ),
        (
            plugin("{apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission}"),
            "no kind \"WebhookAdmission\" is registered for version \"apiserver.config.k8s.io/v1alpha1\"",
        ),
        (
            String::from(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- {name: P, pth: x}\n",
            ),
            "strict decoding error: unknown field \"plugins[0].pth\"",
        ),
    ] {
        let file = folder.write("admission.yaml", &text);
        assert_eq!(load(&file, "P").unwrap_err().to_string(), want);
    }
    let missing = folder.0.join("missing");
    assert_eq!(
        load(&missing, "P").unwrap_err().to_string(),
        format!(
            "unable to read admission control configuration from \"{0}\" [open {0}: no such file or directory]",
            missing.display()
        )
    );
}
