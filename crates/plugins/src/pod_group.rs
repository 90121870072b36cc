//! `PodGroupProtection`, `PodGroupWorkloadExists` and `JobValidation`: Pods that are scheduled together. They do
//! nothing unless the gate `GenericWorkload` is on.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/{scheduling/podgroupprotection,podgroup,job}

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use lockgate_go::quote::quote;
use serde_json::{Value, json};

use crate::fields::{at, items, list_mut, text, text_at};
use crate::lookup::{Lookup, POD_GROUPS, WORKLOADS};
use crate::rules::{About, CREATE, Refusal, Rules, UPDATE, Verdict, object, old_object};

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

const NEW_GROUPS: About = About {
    operations: CREATE,
    group: "scheduling.k8s.io",
    resources: &["podgroups"],
};

/// Protects PodGroups from deletion while they have Pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodGroupProtection {
    /// The gate `GenericWorkload`.
    pub on: bool,
}

impl Rules for PodGroupProtection {
    fn name(&self) -> &'static str {
        "PodGroupProtection"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_GROUPS]
    }

    async fn mutate(&self, _: &mut Admission, group: &mut Value) -> Verdict {
        if self.on {
            let finalizers = list_mut(group, &["metadata", "finalizers"])?;
            if !finalizers.iter().any(|known| known == FINALIZER) {
                finalizers.push(json!(FINALIZER));
            }
        }
        Ok(())
    }
}

/// Denies PodGroups of missing Workloads.
#[derive(Debug, Clone)]
pub struct PodGroupWorkloadExists {
    lookup: Arc<dyn Lookup>,
    on: bool,
}

impl PodGroupWorkloadExists {
    /// Creates the plugin, with the gate `GenericWorkload`.
    pub fn new(lookup: impl Lookup, on: bool) -> Self {
        Self {
            lookup: Arc::new(lookup),
            on,
        }
    }
}

impl Rules for PodGroupWorkloadExists {
    fn name(&self) -> &'static str {
        "PodGroupWorkloadExists"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn validates(&self) -> &'static [About] {
        &[NEW_GROUPS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let reference = at(
            object(request),
            &["spec", "podGroupTemplateRef", "workload"],
        );
        let Some(reference) = reference.filter(|_| self.on) else {
            return Ok(());
        };
        let refuse = |why: String| Err(Refusal::forbidden(format!("PodGroup rejected: {why}")));
        let name = text(reference, "workloadName");
        let shown = quote(name);
        let found = self.lookup.get(WORKLOADS, &request.namespace, name).await?;
        let Some(workload) = found else {
            return refuse(format!("Workload {shown} not found"));
        };
        if at(&workload, &["metadata", "deletionTimestamp"]).is_some() {
            return refuse(format!("Workload {shown} is being deleted"));
        }
        let template = text(reference, "podGroupTemplateName");
        let mut templates = items(&workload, &["spec", "podGroupTemplates"]).iter();
        if templates.any(|known| text(known, "name") == template) {
            return Ok(());
        }
        refuse(format!(
            "PodGroupTemplate {} not found in Workload {shown}",
            quote(template)
        ))
    }
}

/// Denies changes of the parallelism of gang-scheduled Jobs.
#[derive(Debug, Clone)]
pub struct JobValidation {
    lookup: Arc<dyn Lookup>,
    on: bool,
}

impl JobValidation {
    /// Creates the plugin, with the gates `GenericWorkload` and `WorkloadWithJob`.
    pub fn new(lookup: impl Lookup, on: bool) -> Self {
        Self {
            lookup: Arc::new(lookup),
            on,
        }
    }
}

impl Rules for JobValidation {
    fn name(&self) -> &'static str {
        "JobValidation"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const JOBS: About = About {
            operations: UPDATE,
            group: "batch",
            resources: &["jobs"],
        };
        &[JOBS]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let (old, new) = (old_object(request), object(request));
        let parallelism = ["spec", "parallelism"];
        if !self.on || at(old, &parallelism) == at(new, &parallelism) {
            return Ok(());
        }
        let path = [
            "spec",
            "template",
            "spec",
            "schedulingGroup",
            "podGroupName",
        ];
        let group = text_at(new, &path);
        if group.is_empty() {
            return Ok(());
        }
        let found = self
            .lookup
            .get(POD_GROUPS, &request.namespace, group)
            .await?;
        let is_gang = |group: &Value| at(group, &["spec", "schedulingPolicy", "gang"]).is_some();
        if found.is_some_and(|group| is_gang(&group)) {
            return Err(Refusal::forbidden(format!(
                "cannot change parallelism for a Job referencing gang-scheduled PodGroup {}",
                quote(group)
            )));
        }
        Ok(())
    }
}
