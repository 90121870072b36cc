//! The metrics of controller-runtime with their names, so that existing dashboards work, and additional ones by
//! decision.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockgate_api::admission::GroupVersionResource;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::context::Operation;
use crate::conversion::Converted;
use crate::review::ReviewError;
use crate::webhooks::Webhooks;

/// The maximum number of resources with separate labels, in addition to resources named in rules. Callers choose the
/// resources.
const MAX_RESOURCES: usize = 256;

/// The label value for everything beyond that.
const OTHER: &str = "other";

/// All metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) certificate_reads: Counter,
    pub(super) certificate_read_errors: Counter,
    pub(super) certificate_expiry: Gauge,
    pub(super) panics: Counter,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    reloads: Family<Reload, Counter>,
    decisions: Family<Decision, Counter>,
    requests: Family<Request, Counter>,
    converted: Family<ConvertedObjects, Counter>,
    conversions: Family<ConversionOutcome, Histogram, fn() -> Histogram>,
    resources: Resources,
    by_webhook: Vec<PerWebhook>,
}

/// The metrics of one webhook.
#[derive(Debug, Clone)]
pub(super) struct PerWebhook {
    path: Arc<String>,
    name: Arc<String>,
    pub(super) in_flight: Gauge,
    pub(super) queued: Gauge,
    pub(super) latency: Histogram,
    pub(super) duration: Histogram,
    pub(super) request_bytes: Histogram,
    pub(super) patch_operations: Histogram,
    pub(super) patch_bytes: Histogram,
    pub(super) warnings: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWebhook {
    webhook: Arc<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    webhook: Arc<String>,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConvertedObjects {
    kind: &'static str,
    from: &'static str,
    to: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConversionOutcome {
    webhook: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    webhook: Arc<String>,
    operation: &'static str,
    group: Arc<String>,
    version: Arc<String>,
    resource: Arc<String>,
    decision: &'static str,
    code: u16,
    dry_run: &'static str,
}

/// The request of a decision, as far as it was decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecisionRequest<'a> {
    pub(super) operation: &'a Operation,
    pub(super) resource: &'a GroupVersionResource,
    pub(super) dry_run: bool,
}

type Histograms = Family<ByWebhook, Histogram, fn() -> Histogram>;

impl Metrics {
    /// Metrics of these webhooks, in addition to registered ones.
    pub(super) fn new(webhooks: &Webhooks, mut registry: Registry) -> Self {
        let requests = Family::<Request, Counter>::default();
        let decisions = Family::<Decision, Counter>::default();
        let reloads = Family::<Reload, Counter>::default();
        let in_flight = Family::<ByWebhook, Gauge>::default();
        let queued = Family::<ByWebhook, Gauge>::default();
        let warnings = Family::<ByWebhook, Counter>::default();
        // UPSTREAM: controller-runtime pkg/webhook/internal/metrics/metrics.go
        let latency = Histograms::new_with_constructor(|| {
            Histogram::new(exponential_buckets(10e-9, 10.0, 12))
        });
        // From a tenth of a millisecond to above the maximum timeout.
        let duration = Histograms::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.0001, 2.5, 15))
        });
        let converted = Family::<ConvertedObjects, Counter>::default();
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.5, 15));
        let conversions =
            Family::<ConversionOutcome, Histogram, fn() -> Histogram>::new_with_constructor(
                seconds,
            );
        let bytes: fn() -> Histogram = || Histogram::new(exponential_buckets(256.0, 4.0, 9));
        let request_bytes = Histograms::new_with_constructor(bytes);
        let patch_bytes = Histograms::new_with_constructor(bytes);
        let patch_operations =
            Histograms::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 2.0, 10)));

        let certificate_reads = Counter::default();
        let certificate_read_errors = Counter::default();
        let certificate_expiry = Gauge::default();
        let panics = Counter::default();
        let connections = Gauge::default();
        let refused_connections = Counter::default();

        // The writer adds `_total` to counters.
        let r = &mut registry;
        r.register(
            "controller_runtime_webhook_requests",
            "Admission requests by HTTP status code",
            requests.clone(),
        );
        r.register(
            "controller_runtime_webhook_requests_in_flight",
            "Admission requests in flight",
            in_flight.clone(),
        );
        r.register(
            "controller_runtime_webhook_latency_seconds",
            "Latency of admission requests in seconds",
            latency.clone(),
        );
        r.register(
            "controller_runtime_webhook_panics",
            "Panics of webhook handlers",
            panics.clone(),
        );
        r.register(
            "certwatcher_read_certificate",
            "Reads of the certificate",
            certificate_reads.clone(),
        );
        r.register(
            "certwatcher_read_certificate_errors",
            "Failed reads of the certificate",
            certificate_read_errors.clone(),
        );
        r.register(
            "admission_webhook_decisions",
            "Decisions by webhook, operation and resource",
            decisions.clone(),
        );
        r.register(
            "admission_webhook_duration_seconds",
            "Time of decisions in seconds, without queueing and reading",
            duration.clone(),
        );
        r.register(
            "admission_webhook_request_bytes",
            "Size of reviews in bytes",
            request_bytes.clone(),
        );
        r.register(
            "admission_webhook_patch_bytes",
            "Size of non-empty patches in bytes",
            patch_bytes.clone(),
        );
        r.register(
            "admission_webhook_patch_operations",
            "Operations per non-empty patch",
            patch_operations.clone(),
        );
        r.register(
            "admission_webhook_warnings",
            "Warnings to clients",
            warnings.clone(),
        );
        r.register(
            "admission_webhook_queued",
            "Reviews waiting for a worker",
            queued.clone(),
        );
        r.register(
            "conversion_webhook_objects",
            "Converted objects by kind and versions",
            converted.clone(),
        );
        r.register(
            "conversion_webhook_duration_seconds",
            "Time of conversions in seconds, by result, without queueing and reading",
            conversions.clone(),
        );
        r.register(
            "admission_webhook_connections",
            "Open connections",
            connections.clone(),
        );
        r.register(
            "admission_webhook_refused_connections",
            "Connections rejected by the limit",
            refused_connections.clone(),
        );
        r.register(
            "certificate_expiry_timestamp_seconds",
            "Expiry of the serving certificate as Unix time",
            certificate_expiry.clone(),
        );
        r.register(
            "certificate_reloads",
            "Reloads of the certificate, by result",
            reloads.clone(),
        );

        let admission = webhooks.iter().map(|webhook| {
            let registration = webhook.registration();
            (registration.path.as_str(), registration.name())
        });
        // Conversions are identified by their path only.
        let conversion_paths = webhooks.conversions().map(|all| (all.path(), all.path()));
        let by_webhook = admission.chain(conversion_paths).map(|(path, name)| {
            let path = Arc::new(path.to_owned());
            // As upstream, these two series exist before the first request.
            for code in [200, 500] {
                drop(requests.get_or_create(&Request {
                    webhook: Arc::clone(&path),
                    code,
                }));
            }
            let by_path = ByWebhook {
                webhook: Arc::clone(&path),
            };
            let name = Arc::new(name.to_owned());
            let by_name = ByWebhook {
                webhook: Arc::clone(&name),
            };
            PerWebhook {
                in_flight: in_flight.get_or_create_owned(&by_path),
                latency: latency.get_or_create_owned(&by_path),
                queued: queued.get_or_create_owned(&by_name),
                duration: duration.get_or_create_owned(&by_name),
                request_bytes: request_bytes.get_or_create_owned(&by_name),
                patch_operations: patch_operations.get_or_create_owned(&by_name),
                patch_bytes: patch_bytes.get_or_create_owned(&by_name),
                warnings: warnings.get_or_create_owned(&by_name),
                path,
                name,
            }
        });
        let by_webhook = by_webhook.collect();
        Self {
            registry,
            certificate_reads,
            certificate_read_errors,
            certificate_expiry,
            panics,
            connections,
            refused_connections,
            reloads,
            decisions,
            requests,
            converted,
            conversions,
            resources: Resources::new(webhooks),
            by_webhook,
        }
    }

    /// The metrics of each webhook, in order.
    pub(super) fn by_webhook(&self) -> &[PerWebhook] {
        &self.by_webhook
    }

    /// Counts a certificate reload.
    pub(super) fn reloaded(&self, result: &'static str) {
        self.reloads.get_or_create(&Reload { result }).inc();
    }

    /// Counts a response.
    pub(super) fn answered(&self, webhook: &PerWebhook, code: u16, took: Duration) {
        let labels = Request {
            webhook: Arc::clone(&webhook.path),
            code,
        };
        self.requests.get_or_create(&labels).inc();
        webhook.latency.observe(took.as_secs_f64());
    }

    /// Counts a decision or a failure.
    pub(super) fn decided(
        &self,
        webhook: &PerWebhook,
        asked: Option<DecisionRequest<'_>>,
        decision: &'static str,
        code: u16,
    ) {
        let [group, version, resource] = self.resources.labels(asked.map(|asked| asked.resource));
        let labels = Decision {
            webhook: Arc::clone(&webhook.name),
            operation: asked.map_or("", |asked| operation(asked.operation)),
            group,
            version,
            resource,
            decision,
            code,
            dry_run: match asked.is_some_and(|asked| asked.dry_run) {
                true => "true",
                false => "false",
            },
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a conversion. The labels are the versions registered in the program.
    pub(super) fn converted(&self, path: &str, converted: &Converted, took: Duration) {
        let result = match &converted.outcome {
            Ok(groups) => {
                for group in groups {
                    let labels = ConvertedObjects {
                        kind: group.kind,
                        from: group.from,
                        to: group.to,
                    };
                    self.converted.get_or_create(&labels).inc_by(group.count);
                }
                "success"
            }
            Err(error) => {
                if matches!(error, ReviewError::Panicked(_)) {
                    self.panics.inc();
                }
                "failure"
            }
        };
        let labels = ConversionOutcome {
            webhook: path.to_owned(),
            result,
        };
        let seconds = took.as_secs_f64();
        self.conversions.get_or_create(&labels).observe(seconds);
    }

    /// All metrics in the text format.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

fn operation(operation: &Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
        Operation::Other(_) => OTHER,
    }
}

/// The resources with separate labels. Labels are never removed and callers choose them, so their number is limited;
/// resources named in rules always have their own.
#[derive(Debug)]
struct Resources {
    /// Names in rules, with any group and version.
    named: BTreeSet<String>,
    known: Mutex<HashMap<String, [Arc<String>; 3]>>,
    none: [Arc<String>; 3],
    other: [Arc<String>; 3],
}

impl Resources {
    fn new(webhooks: &Webhooks) -> Self {
        let rules = webhooks.iter().flat_map(|webhook| {
            let rules = webhook.registration().webhook.rules.iter();
            rules.flatten().cloned()
        });
        let mut named = BTreeSet::new();
        for rule in rules {
            for group in rule.api_groups.iter().flatten() {
                for version in rule.api_versions.iter().flatten() {
                    for resource in rule.resources.iter().flatten() {
                        let plain = resource.split('/').next().unwrap_or_default();
                        named.insert(format!("{group}/{version}/{plain}"));
                    }
                }
            }
        }
        let same = |text: &str| std::array::from_fn(|_| Arc::new(text.to_owned()));
        Self {
            named,
            known: Mutex::default(),
            none: same(""),
            other: same(OTHER),
        }
    }

    fn labels(&self, resource: Option<&GroupVersionResource>) -> [Arc<String>; 3] {
        let Some(resource) = resource else {
            return self.none.clone();
        };
        let GroupVersionResource {
            group,
            version,
            resource: plural,
        } = resource;
        let key = format!("{group}/{version}/{plural}");
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(labels) = known.get(&key) {
            return labels.clone();
        }
        let is_named = self.named.contains(&key);
        let has_room = known.len() < MAX_RESOURCES + self.named.len();
        let is_plain = [group, version, plural]
            .into_iter()
            .all(|text| is_plain(text));
        let has_own = is_named || (has_room && is_plain);
        if !has_own {
            return self.other.clone();
        }
        let labels = [group, version, plural].map(|text| Arc::new(text.clone()));
        known.insert(key, labels.clone());
        labels
    }
}

/// Returns `true` if a string is a plausible group, version or resource.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    text.len() <= 253 && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::handler::from_fn;
    use crate::registration::{Registration, Rule};
    use crate::response::Response;

    fn metrics() -> Metrics {
        let registration = Registration::validating("pods.example.com")
            .path("/pods")
            .rule(Rule::resources(["pods/exec"]).operations([Operation::Create]));
        let handler = from_fn(async |_: &Context| Ok(Response::allow()));
        let webhooks = Webhooks::new().with(registration, handler);
        Metrics::new(&webhooks, Registry::default())
    }

    #[test]
    fn callers_cannot_make_labels_without_end() {
        let metrics = metrics();
        let webhook = metrics.by_webhook()[0].clone();
        let count = |resource: &str| {
            let resource = GroupVersionResource {
                group: String::new(),
                version: String::from("v1"),
                resource: resource.to_owned(),
            };
            let asked = DecisionRequest {
                operation: &Operation::Other("X".repeat(100)),
                resource: &resource,
                dry_run: false,
            };
            metrics.decided(&webhook, Some(asked), "allow", 200);
        };
        for number in 0..3000 {
            count(&format!("things{number}"));
        }
        count("quo\"te\n");
        count(&"x".repeat(1000));
        // In a rule, so it keeps its label although the limit is reached.
        count("pods");
        let text = metrics.text();
        let lines = text.lines();
        let series: Vec<_> = lines
            .filter(|line| line.starts_with("admission_webhook_decisions_total{"))
            .collect();
        assert!(series.len() <= MAX_RESOURCES + 3, "{}", series.len());
        assert!(series.iter().any(|line| line.contains("resource=\"pods\"")));
        assert!(
            series
                .iter()
                .any(|line| line.contains("resource=\"other\""))
        );
        assert!(!text.contains("quo"), "{text}");
    }

    #[test]
    fn the_names_of_controller_runtime_are_there_from_the_start() {
        let text = metrics().text();
        for line in [
            "controller_runtime_webhook_requests_total{webhook=\"/pods\",code=\"200\"} 0",
            "controller_runtime_webhook_requests_total{webhook=\"/pods\",code=\"500\"} 0",
            "controller_runtime_webhook_requests_in_flight{webhook=\"/pods\"} 0",
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/pods\"} 0",
            "controller_runtime_webhook_panics_total 0",
            "certwatcher_read_certificate_total 0",
            "certwatcher_read_certificate_errors_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
