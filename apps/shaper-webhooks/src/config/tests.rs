use std::io::Write as _;

use super::*;

fn load(text: &str) -> Result<Loaded, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(Some(file.path().into()))
}

#[test]
fn reads_every_key() {
    let loaded = load(
        r#"
assignmentNamespace: machines
profileNamespace: profiles
kubeconfigPath: /etc/kubeconfig
lookupScope: Namespaces
controllerUsers: [somebody]
profileDeletion: Deny
webhookServer:
  host: 127.0.0.1
  port: 1
  certDir: /certs
  certName: cert.pem
  keyName: key.pem
  clientCAName: ca.pem
  clientSubjectNames: [kube-apiserver]
  bearerTokenFile: /token
  http2: true
  maxRequestBytes: 1048576
  requestTimeout: 5s
  maxInFlight: 7
  shutdownDelay: 500ms
probesServer: {port: 2, livenessPath: /live, readinessPath: /ready}
metricsServer: {port: 3, path: /m}
logging: {level: debug, format: text}
strictUnknownKeys: true
"#,
    )
    .unwrap();
    assert_eq!(loaded.unknown_keys, Vec::<String>::new());
    let config = loaded.config;
    assert_eq!(config.assignment_namespace, "machines");
    assert_eq!(config.profile_namespace, "profiles");
    assert_eq!(config.kubeconfig(), Some("/etc/kubeconfig"));
    assert_eq!(config.lookup_scope, LookupScope::Namespaces);
    assert_eq!(config.controller_users, ["somebody"]);
    assert_eq!(config.profile_deletion, ProfileDeletion::Deny);
    let server = &config.webhook_server;
    assert_eq!(config.host(), IpAddr::from([127, 0, 0, 1]));
    assert_eq!(
        (server.port, server.cert_dir.as_path()),
        (1, Path::new("/certs"))
    );
    assert_eq!(
        (&*server.cert_name, &*server.key_name),
        ("cert.pem", "key.pem")
    );
    assert_eq!(server.client_ca_name, "ca.pem");
    assert_eq!(server.client_subject_names, ["kube-apiserver"]);
    assert_eq!(server.bearer_token_file, "/token");
    assert!(server.http2);
    assert_eq!(
        (server.max_request_bytes, server.max_in_flight),
        (1 << 20, 7)
    );
    assert_eq!(server.request_timeout.get().as_secs(), 5);
    assert_eq!(server.shutdown_delay.get().as_millis(), 500);
    let probes = &config.probes_server;
    assert_eq!(
        (probes.port, &*probes.liveness_path, &*probes.readiness_path),
        (2, "/live", "/ready")
    );
    assert_eq!(
        (config.metrics_server.port, &*config.metrics_server.path),
        (3, "/m")
    );
    assert_eq!(
        (config.logging.level, config.logging.format),
        (Level::Debug, Format::Text)
    );
}

#[test]
fn a_minimal_file_is_enough() {
    let text = "webhookServer:\n  port: 19443\nprobesServer:\n  port: 18081\nmetricsServer:\n  port: 18080\n";
    let config = load(text).unwrap().config;
    assert_eq!(config.webhook_server.port, 19443);
    assert_eq!(config.webhook_server.cert_name, "tls.crt");
    assert_eq!(config.probes_server.readiness_path, "/readyz");
    assert_eq!(config.metrics_server.path, "/metrics");
    assert_eq!(config.kubeconfig(), None);
    for text in ["", "# nothing\n", "webhookServer:\n", "null"] {
        assert_eq!(load(text).unwrap().config, Config::default(), "{text}");
    }
}

#[test]
fn both_marks_mean_the_service_account() {
    for mark in ["in-cluster", "'>>> Kubeconfig From Service Account'", "''"] {
        assert_eq!(
            load(&format!("kubeconfigPath: {mark}"))
                .unwrap()
                .config
                .kubeconfig(),
            None
        );
    }
}

#[test]
fn tells_of_unknown_keys_and_refuses_them_when_strict() {
    let text = "webhookServer: {prot: 1}\nassignmentNamspace: x\n";
    let loaded = load(text).unwrap();
    assert_eq!(
        loaded.unknown_keys,
        ["assignmentNamspace", "webhookServer.prot"]
    );
    let error = load(&format!("{text}strictUnknownKeys: true"))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("has unknown keys: assignmentNamspace, webhookServer.prot"),
        "{error}"
    );
}

#[test]
fn says_what_is_wrong() {
    for unset in [None, Some(std::ffi::OsString::new())] {
        let error = Config::load(unset).unwrap_err().to_string();
        assert!(error.contains("SHAPER_WEBHOOK_CONFIG_PATH"), "{error}");
    }
    let error = Config::load(Some("/nonexistent/config.yaml".into())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the configuration file `/nonexistent/config.yaml`"
    );
    for (text, want) in [
        ("invalid: yaml: content: [", "is not YAML: "),
        ("webhookServer: {port: many}", "`: "),
        ("webhookServer: {port: 70000}", "`: "),
        ("[]", "`: expected keys, found a list"),
        (
            "webhookServer: [1]",
            "`: webhookServer: expected keys, found a list",
        ),
        (
            "webhookServer: {host: here}",
            "webhookServer.host: `here` is no IP address",
        ),
        (
            "probesServer: {livenessPath: live}",
            "probesServer.livenessPath: `live` does not begin with `/`",
        ),
        (
            "webhookServer: {clientSubjectNames: [a]}",
            "webhookServer.clientCAName is needed",
        ),
        (
            "webhookServer: {maxInFlight: 0}",
            "webhookServer.maxInFlight: 0 would let nothing through",
        ),
        (
            "webhookServer: {requestTimeout: 0s}",
            "a review needs some time",
        ),
        (
            "webhookServer: {requestTimeout: soon}",
            "`soon` is no duration",
        ),
        ("profileDeletion: Maybe", "`: unknown variant `Maybe`"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
}
