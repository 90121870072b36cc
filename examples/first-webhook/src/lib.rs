//! Deployments have a team, and stay small.

use k8s_openapi::api::apps::v1::Deployment;
use lockgate_webhook::field::{FieldError, Path, Shown};
use lockgate_webhook::{
    Context, FieldErrors, Mutator, Object, Validator, Verdict, Webhooks, webhook,
};

/// Labels every Deployment with a team and limits its replicas.
#[derive(Debug)]
pub struct Teams {
    /// The largest number of replicas.
    pub max_replicas: i32,
}

#[webhook(name = "teams.tutorial.example.com")]
impl Mutator<Deployment> for Teams {
    async fn mutate(&self, ctx: &Context, deployment: &mut Deployment) -> Verdict {
        let labels = deployment.metadata.labels.get_or_insert_default();
        if !labels.contains_key("team") {
            labels.insert("team".into(), ctx.namespace().into());
            ctx.warn(format!(
                "team is set to {}, after the namespace",
                ctx.namespace()
            ));
        }
        Ok(())
    }
}

#[webhook(name = "replicas.tutorial.example.com")]
impl Validator<Deployment> for Teams {
    async fn create_or_update(
        &self,
        _: &Context,
        _: Option<&Object<Deployment>>,
        new: &Object<Deployment>,
    ) -> Verdict {
        let mut errors = FieldErrors::default();
        let replicas = new.spec.as_ref().and_then(|spec| spec.replicas);
        if let Some(replicas) = replicas.filter(|&replicas| replicas > self.max_replicas) {
            let spec = Path::root("spec");
            errors.push(FieldError::invalid(
                &spec.child("replicas"),
                Shown::Integer(replicas.into()),
                format!("a team has at most {}", self.max_replicas),
            ));
        }
        errors.into_verdict()
    }
}

/// The webhooks of this server.
#[must_use]
pub fn webhooks(max_replicas: i32) -> Webhooks {
    Webhooks::new()
        .mutating(Teams { max_replicas })
        .validating(Teams { max_replicas })
}
