//! Scenarios of the in-tree plugins, in the server configurations of their recordings.
//!
//! `conformance/plugins/README.md` lists the flags of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_apiserver::{AuthorizationMode, Controllers, FeatureGates, Settings};
use lockgate_plugins::DefaultTolerationSeconds;

use crate::gaps::Gaps;
use crate::image_policy::ImagePolicy;
use crate::{Report, SetUp, differences, run_all, scenario};

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/plugins")
}

/// The names of the scenarios of all configurations.
pub(crate) fn all_scenarios() -> Vec<String> {
    let set_ups = [
        "default",
        "restrict",
        "pods",
        "configured",
        "deny",
        "failopen",
        "off",
    ];
    set_ups
        .iter()
        .flat_map(|name| scenario::load(&folder().join(name).join("scenarios"), "*").unwrap())
        .map(|scenario| scenario.name)
        .collect()
}

/// All default plugins; the only controller is that of namespace deletion.
fn settings() -> Settings {
    Settings {
        controllers: Controllers {
            namespace: true,
            ..Controllers::all(false)
        },
        ..Settings::default()
    }
}

/// The configuration file of a set-up, with local paths filled in.
fn configuration(name: &str, into: &Path, backend: &str) -> Option<PathBuf> {
    let servers = folder().join("servers");
    for file in std::fs::read_dir(&servers).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text
            .replace("SERVERS", &into.display().to_string())
            .replace("127.0.0.1:47777", backend);
        std::fs::write(into.join(file.file_name().unwrap()), text).unwrap();
    }
    Some(into.join(format!("{name}-admission.yaml")))
}

async fn run(name: &str, settings: impl Fn(&Path) -> Settings + Send + Sync + 'static) {
    let own = folder().join(name);
    let only = std::env::var("LOCKGATE_SCENARIO").ok();
    let gaps = std::fs::read_to_string(folder().join("../gaps.toml")).unwrap();
    let gaps = Gaps::parse(&gaps).unwrap();
    let scenarios = scenario::load(&own.join("scenarios"), only.as_deref().unwrap_or("*")).unwrap();
    let set_up = SetUp {
        settings: Arc::new(settings),
        has_metrics: false,
    };
    let mut report = Report::default();
    for (name, outcome) in run_all(scenarios, set_up).await {
        let lines = match outcome {
            Ok(observed) => differences(&own.join("expected"), &name, &observed),
            Err(error) => vec![format!("not run: {error}")],
        };
        report.add(&name, gaps.judge(&name, lines));
    }
    report.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_by_default() {
    run("default", |_| settings()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_that_restrict() {
    run("restrict", |into| Settings {
        authorization_mode: AuthorizationMode::NodeAndRbac,
        enable_plugins: names(
            "AlwaysAdmit,EventRateLimit,DenyServiceExternalIPs,LimitPodHardAntiAffinityTopology,\
             NodeRestriction,OwnerReferencesPermissionEnforcement,NamespaceExists,\
             ExtendedResourceToleration",
        ),
        admission_control_config_file: configuration("restrict", into, ""),
        ..settings()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_for_pods() {
    let backend = ImagePolicy::start().await;
    let address = backend.address();
    run("pods", move |into| Settings {
        enable_plugins: names(
            "AlwaysPullImages,PodNodeSelector,PodTolerationRestriction,ImagePolicyWebhook,\
             NamespaceAutoProvision",
        ),
        admission_control_config_file: configuration("pods", into, &address),
        ..settings()
    })
    .await;
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_with_a_configuration() {
    run("configured", |into| {
        let mut feature_gates = FeatureGates::default();
        for gate in names(
            "ClusterTrustBundle,GenericWorkload,GangScheduling,WorkloadWithJob,\
             WorkloadAwarePreemption",
        ) {
            assert!(feature_gates.set(&gate, true), "{gate}");
        }
        Settings {
            feature_gates,
            admission_control_config_file: configuration("configured", into, ""),
            tolerations: DefaultTolerationSeconds {
                not_ready_seconds: 60,
                unreachable_seconds: 30,
            },
            ..settings()
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_denies_everything() {
    run("deny", |_| Settings {
        enable_plugins: names("AlwaysDeny"),
        ..settings()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_fails_open() {
    run("failopen", |into| Settings {
        enable_plugins: names("ImagePolicyWebhook"),
        admission_control_config_file: configuration("failopen", into, ""),
        ..settings()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_that_are_off() {
    run("off", |_| Settings {
        disable_plugins: names(
            "NamespaceLifecycle,LimitRanger,ServiceAccount,TaintNodesByCondition,PodSecurity,Priority,\
             DefaultTolerationSeconds,StorageObjectInUseProtection,ResourceQuota,RuntimeClass",
        ),
        ..settings()
    })
    .await;
}
