//! `LimitRanger`: default and allowed resources of the Pods and claims in a namespace.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/limitranger/admission.go. Upstream iterates over limits in random map
//! order; here resources and LimitRanges are sorted by name.

use std::cmp::Ordering;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use lockgate_go::quantity::Quantity;
use serde_json::Value;

use crate::amounts::{Amounts, amounts, of_pod};
use crate::fields::{CONTAINERS, annotate, at, items, items_mut, map_mut, members, text};
use crate::lookup::{LIMIT_RANGES, Lookup, sorted};
use crate::rules::{About, NEW_PODS, Refusal, Rules, UPDATE, Verdict, WRITE, object, old_object};
use crate::texts::aggregate;

/// The annotation that describes the defaulted resources.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The maximum quantity whose milli value fits into 64 bits.
// UPSTREAM: apimachinery pkg/api/resource/quantity.go (MaxMilliValue).
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

const RESIZE: About = About::core(UPDATE, &["pods/resize"]);
const CLAIMS: About = About::core(WRITE, &["persistentvolumeclaims"]);

/// Sets default requests and limits, and denies objects that violate the LimitRanges of a namespace.
#[derive(Debug, Clone)]
pub struct LimitRanger {
    lookup: Arc<dyn Lookup>,
}

impl LimitRanger {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }

    pub(crate) fn sharing(lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup }
    }

    async fn ranges(&self, request: &Request) -> Result<Vec<Arc<Value>>, Refusal> {
        let found = sorted(&*self.lookup, LIMIT_RANGES, &request.namespace).await;
        found.map_err(|_| {
            let resource = &request.resource;
            Refusal::forbidden(format!(
                "unable to {} {}/{}, Resource={} at this time because there was an error enforcing \
                 limit ranges",
                request.operation.name(),
                resource.group,
                resource.version,
                resource.resource
            ))
        })
    }

    /// Sets the defaults of a Pod's containers.
    pub(crate) async fn fill_in(&self, request: &Request, pod: &mut Value) -> Verdict {
        for range in self.ranges(request).await? {
            let mut told = Vec::new();
            for (list, word) in CONTAINERS.into_iter().zip(["container", "init container"]) {
                for container in items_mut(pod, &["spec", list]) {
                    let requests = set_missing(container, "requests", &range, "defaultRequest")?;
                    let limits = set_missing(container, "limits", &range, "default")?;
                    let name = text(container, "name");
                    for (set, part) in [(requests, "request"), (limits, "limit")] {
                        if !set.is_empty() {
                            told.push(format!("{} {part} for {word} {name}", set.join(", ")));
                        }
                    }
                }
            }
            if !told.is_empty() {
                let told = format!("LimitRanger plugin set: {}", told.join("; "));
                annotate(pod, ANNOTATION, told)?;
            }
        }
        Ok(())
    }

    async fn check(&self, request: &Request, object: &Value) -> Verdict {
        for range in self.ranges(request).await? {
            let errors = match request.resource.resource.as_str() {
                "pods" => pod_errors(&range, object)?,
                _ => claim_errors(&range, object)?,
            };
            if let Some(message) = aggregate(errors) {
                return Err(Refusal::forbidden(message));
            }
        }
        Ok(())
    }
}

/// The limits of a type in a LimitRange.
fn limits<'r>(range: &'r Value, limit_type: &'r str) -> impl Iterator<Item = &'r Value> {
    let all = items(range, &["spec", "limits"]).iter();
    all.filter(move |limit| text(limit, "type") == limit_type)
}

/// Sets the defaults of missing resources of a container, and returns their names.
fn set_missing<'r>(
    container: &mut Value,
    part: &str,
    range: &'r Value,
    default: &str,
) -> Result<Vec<&'r str>, Refusal> {
    // If several limits contain a resource, the last one applies.
    let defaults: std::collections::BTreeMap<&str, &Value> = limits(range, "Container")
        .flat_map(|limit| members(limit, &[default]))
        .collect();
    let has = |name: &str| at(container, &["resources", part, name]).is_some();
    let missing: Vec<_> = defaults
        .into_iter()
        .filter(|(name, _)| !has(name))
        .collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let amounts = map_mut(container, &["resources", part])?;
    let mut set = Vec::with_capacity(missing.len());
    for (name, amount) in missing {
        amounts.insert(name.to_owned(), amount.clone());
        set.push(name);
    }
    Ok(set)
}

fn pod_errors(range: &Value, pod: &Value) -> Result<Vec<String>, Refusal> {
    let mut errors = Vec::new();
    for limit in items(range, &["spec", "limits"]) {
        match text(limit, "type") {
            "Container" => {
                for container in CONTAINERS
                    .iter()
                    .flat_map(|list| items(pod, &["spec", list]))
                {
                    let requests = amounts(container, &["resources", "requests"])?;
                    let limits = amounts(container, &["resources", "limits"])?;
                    errors.extend(
                        ResourceRequirements::new("Container", &requests, &limits).errors(limit)?,
                    );
                }
            }
            "Pod" => {
                let (requests, limits) = (of_pod(pod, "requests")?, of_pod(pod, "limits")?);
                errors.extend(ResourceRequirements::new("Pod", &requests, &limits).errors(limit)?);
            }
            _ => {}
        }
    }
    Ok(errors)
}

fn claim_errors(range: &Value, claim: &Value) -> Result<Vec<String>, Refusal> {
    let requests = amounts(claim, &["spec", "resources", "requests"])?;
    let nothing = Amounts::new();
    let asked = ResourceRequirements::new("PersistentVolumeClaim", &requests, &nothing);
    let mut errors = Vec::new();
    for limit in limits(range, "PersistentVolumeClaim") {
        for (name, least) in amounts(limit, &["min"])? {
            errors.extend(asked.min_violation(&name, &least));
        }
        for (name, most) in amounts(limit, &["max"])? {
            errors.extend(asked.request_above(&name, &most));
        }
    }
    Ok(errors)
}

/// The requests and limits of a pod, container or claim.
struct ResourceRequirements<'a> {
    limit_type: &'static str,
    requests: &'a Amounts,
    limits: &'a Amounts,
}

impl<'a> ResourceRequirements<'a> {
    fn new(limit_type: &'static str, requests: &'a Amounts, limits: &'a Amounts) -> Self {
        Self {
            limit_type,
            requests,
            limits,
        }
    }

    /// The violations of a limit.
    fn errors(&self, limit: &Value) -> Result<Vec<String>, Refusal> {
        let mut errors = Vec::new();
        for (name, least) in amounts(limit, &["min"])? {
            errors.extend(self.min_violation(&name, &least));
        }
        for (name, most) in amounts(limit, &["max"])? {
            errors.extend(self.max_violation(&name, &most));
        }
        for (name, ratio) in amounts(limit, &["maxLimitRequestRatio"])? {
            errors.extend(self.ratio_violation(&name, &ratio));
        }
        Ok(errors)
    }

    fn min_violation(&self, name: &str, least: &Quantity) -> Option<String> {
        let what = format!("minimum {name} usage per {} is {least}", self.limit_type);
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let values = Values::new(request, limit, least);
        let Some(request) = request else {
            return Some(format!("{what}.  No request is specified"));
        };
        if values.request < values.enforced {
            return Some(format!("{what}, but request is {request}"));
        }
        let limit = limit.filter(|_| values.limit < values.enforced)?;
        Some(format!("{what}, but limit is {limit}"))
    }

    fn max_violation(&self, name: &str, most: &Quantity) -> Option<String> {
        let what = format!("maximum {name} usage per {} is {most}", self.limit_type);
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let values = Values::new(request, limit, most);
        let Some(limit) = limit else {
            return Some(format!("{what}.  No limit is specified"));
        };
        if values.limit > values.enforced {
            return Some(format!("{what}, but limit is {limit}"));
        }
        let request = request.filter(|_| values.request > values.enforced)?;
        Some(format!("{what}, but request is {request}"))
    }

    /// The same for resources without limits.
    fn request_above(&self, name: &str, most: &Quantity) -> Option<String> {
        let what = format!("maximum {name} usage per {} is {most}", self.limit_type);
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{what}.  No request is specified"));
        };
        let values = Values::new(Some(request), None, most);
        let is_above = values.request > values.enforced;
        is_above.then(|| format!("{what}, but request is {request}"))
    }

    /// The violation of a `maxLimitRequestRatio`.
    fn ratio_violation(&self, name: &str, ratio: &Quantity) -> Option<String> {
        let per = self.limit_type;
        let what = format!("{name} max limit to request ratio per {per} is {ratio}");
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let values = Values::new(request, limit, ratio);
        if values.request == 0 {
            return Some(format!(
                "{what}, but no request is specified or request is 0"
            ));
        }
        if values.limit == 0 {
            return Some(format!("{what}, but no limit is specified or limit is 0"));
        }
        let provided = values.limit as f64 / values.request as f64;
        let whole = ratio.rounded_up(0);
        let is_too_much = if whole <= MAX_MILLI_VALUE {
            provided * 1000.0 > ratio.rounded_up(3) as f64
        } else {
            provided > whole as f64
        };
        is_too_much.then(|| format!("{what}, but provided ratio is {provided:.6}"))
    }
}

/// Quantities in the same unit: milli, unless one of them is too large. Absent ones are zero.
struct Values {
    request: i64,
    limit: i64,
    enforced: i64,
}

impl Values {
    fn new(request: Option<&Quantity>, limit: Option<&Quantity>, enforced: &Quantity) -> Self {
        let at = |places: u8| {
            let value = |quantity: Option<&Quantity>| quantity.map_or(0, |q| q.rounded_up(places));
            Self {
                request: value(request),
                limit: value(limit),
                enforced: value(Some(enforced)),
            }
        };
        let whole = at(0);
        let fits = [whole.request, whole.limit, whole.enforced]
            .iter()
            .all(|value| value.cmp(&MAX_MILLI_VALUE) != Ordering::Greater);
        if fits { at(3) } else { whole }
    }
}

/// Returns true if the object is being deleted, so that its requests no longer matter.
fn is_deleting(old: &Value) -> bool {
    at(old, &["metadata", "deletionTimestamp"]).is_some()
}

impl Rules for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS, RESIZE]
    }

    fn validates(&self) -> &'static [About] {
        &[NEW_PODS, RESIZE, CLAIMS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        if is_deleting(old_object(ask.request())) {
            return Ok(());
        }
        self.fill_in(ask.request(), pod).await
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        if is_deleting(old_object(request)) {
            return Ok(());
        }
        self.check(request, object(request)).await
    }
}
