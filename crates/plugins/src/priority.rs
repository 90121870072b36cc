//! `Priority`: sets a Pod's priority from its class.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/priority/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde_json::{Map, Value};

use crate::fields::{at, is_on, map_mut, text, text_at};
use crate::lookup::{Lookup, LookupError, PRIORITY_CLASSES, name_of};
use crate::rules::{About, CREATE, PODS, Refusal, Rules, Verdict, WRITE, object, old_object};

/// The preemption policy without a priority class.
const PREEMPT_LOWER: &str = "PreemptLowerPriority";

/// Sets the priority of Pods, and denies a second default class.
#[derive(Debug, Clone)]
pub struct Priority {
    lookup: Arc<dyn Lookup>,
    pod_groups: bool,
}

/// The priority of a pod, computed from its class.
struct Computed {
    class: String,
    value: i64,
    policy: Option<String>,
}

impl Priority {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
            pod_groups: false,
        }
    }

    /// Sets the priority of PodGroups too, as upstream with the gate `WorkloadAwarePreemption`.
    #[must_use]
    pub fn with_pod_groups(mut self, on: bool) -> Self {
        self.pod_groups = on;
        self
    }

    /// The default class; if there are several, the one with the lowest value.
    async fn default(&self) -> Result<Option<Arc<Value>>, LookupError> {
        let classes = self.lookup.list(PRIORITY_CLASSES, "").await?.into_iter();
        let defaults = classes.filter(|class| is_on(class, &["globalDefault"]));
        Ok(defaults.min_by_key(|class| value_of(class)))
    }

    async fn computed(&self, spec: &Map<String, Value>) -> Result<Computed, Refusal> {
        let named = spec.get("priorityClassName").and_then(Value::as_str);
        let named = named.unwrap_or_default();
        let class = if named.is_empty() {
            self.default().await?
        } else {
            let class = self.lookup.get(PRIORITY_CLASSES, "", named).await?;
            let missing = || format!("no PriorityClass with name {named} was found");
            Some(class.ok_or_else(|| Refusal::forbidden(missing()))?)
        };
        Ok(match class {
            None => Computed {
                class: String::new(),
                value: 0,
                policy: Some(String::from(PREEMPT_LOWER)),
            },
            Some(class) => Computed {
                class: name_of(&class).to_owned(),
                value: value_of(&class),
                policy: at(&class, &["preemptionPolicy"])
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            },
        })
    }

    async fn set_of_pod(&self, pod: &mut Value) -> Verdict {
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        let Computed {
            class,
            value,
            policy,
        } = self.computed(spec).await?;
        let own = spec.get("priority").and_then(Value::as_i64);
        if let Some(own) = own.filter(|own| *own != value) {
            return Err(Refusal::forbidden(format!(
                "the integer value of priority ({own}) must not be provided in pod spec; priority \
                 admission controller computed {value} from the given PriorityClass name"
            )));
        }
        let own = spec.get("preemptionPolicy").and_then(Value::as_str);
        if let (Some(policy), Some(own)) = (&policy, own)
            && own != policy
        {
            return Err(Refusal::forbidden(format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; \
                 priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        if !class.is_empty() {
            spec.insert(String::from("priorityClassName"), class.into());
        }
        spec.insert(String::from("priority"), value.into());
        if let Some(policy) = policy {
            spec.insert(String::from("preemptionPolicy"), policy.into());
        }
        Ok(())
    }

    async fn set_of_group(&self, group: &mut Value) -> Verdict {
        let spec = map_mut(group, &["spec"])?;
        let Computed { class, value, .. } = self.computed(spec).await?;
        let own = spec.get("priority").and_then(Value::as_i64);
        if let Some(own) = own.filter(|own| *own != value) {
            return Err(Refusal::forbidden(format!(
                "priority set in the pod group ({own}) must match the priority computed ({value}) \
                 based on the priority class set in the spec"
            )));
        }
        if !class.is_empty() {
            spec.insert(String::from("priorityClassName"), class.into());
        }
        spec.insert(String::from("priority"), value.into());
        Ok(())
    }
}

fn value_of(class: &Value) -> i64 {
    at(class, &["value"]).and_then(Value::as_i64).unwrap_or(0)
}

/// Copies the priority from the old Pod if the new one has none.
fn keep(pod: &mut Value, old: &Value) -> Verdict {
    for member in ["priority", "preemptionPolicy"] {
        if at(pod, &["spec", member]).is_none()
            && let Some(known) = at(old, &["spec", member])
        {
            map_mut(pod, &["spec"])?.insert(member.to_owned(), known.clone());
        }
    }
    Ok(())
}

impl Rules for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn mutates(&self) -> &'static [About] {
        const GROUPS: About = About {
            operations: CREATE,
            group: "scheduling.k8s.io",
            resources: &["podgroups"],
        };
        &[PODS, GROUPS]
    }

    fn validates(&self) -> &'static [About] {
        const CLASSES: About = About {
            operations: WRITE,
            group: "scheduling.k8s.io",
            resources: &["priorityclasses"],
        };
        &[CLASSES]
    }

    async fn mutate(&self, ask: &mut Admission, object: &mut Value) -> Verdict {
        let request = ask.request();
        if request.resource.resource == "podgroups" {
            if self.pod_groups {
                return self.set_of_group(object).await;
            }
            return Ok(());
        }
        match request.operation {
            Operation::Create => self.set_of_pod(object).await,
            _ => keep(object, old_object(request)),
        }
    }

    /// Denies a second default class.
    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let class = object(request);
        if !is_on(class, &["globalDefault"]) {
            return Ok(());
        }
        let Some(known) = self.default().await? else {
            return Ok(());
        };
        let known = text_at(&known, &["metadata", "name"]);
        let is_another = known != text(class.get("metadata").unwrap_or(&Value::Null), "name");
        if is_another || request.operation == Operation::Create {
            return Err(Refusal::forbidden(format!(
                "PriorityClass {known} is already marked as default. Only one default can exist"
            )));
        }
        Ok(())
    }
}
