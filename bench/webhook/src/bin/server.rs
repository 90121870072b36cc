//! A mutating and a validating webhook for Pods. `go/main.go` is the same with controller-runtime.

use std::error::Error;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use lockgate_webhook::server::{Certificates, Server};
use lockgate_webhook::{
    Context, Denial, Mutator, Object, Operation, Registration, Rule, Validator, Verdict, Webhooks,
    mutating, validating,
};

struct Team;

impl Mutator<Pod> for Team {
    async fn mutate(&self, _: &Context, pod: &mut Pod) -> Verdict {
        let labels = pod.metadata.labels.get_or_insert_default();
        labels
            .entry("team".into())
            .or_insert_with(|| String::from("none"));
        Ok(())
    }
}

fn check(pod: &Pod) -> Verdict {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    for container in containers {
        if container.image.as_deref().unwrap_or_default().is_empty() {
            let text = format!("container {} has no image", container.name);
            return Err(Denial::forbidden(text).into());
        }
    }
    Ok(())
}

impl Validator<Pod> for Team {
    async fn create(&self, _: &Context, pod: &Object<Pod>) -> Verdict {
        check(pod)
    }

    async fn update(&self, _: &Context, _: &Object<Pod>, pod: &Object<Pod>) -> Verdict {
        check(pod)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // controller-runtime does not log decisions, so neither does this.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(certs)) = (arguments.next(), arguments.next()) else {
        return Err("usage: server PORT CERTS".into());
    };
    let rule = |registration: Registration, path: &str| {
        let operations = [Operation::Create, Operation::Update];
        let registration = registration.path(path);
        registration.rule(Rule::resources(["pods"]).operations(operations))
    };
    let webhooks = Webhooks::new()
        .with(
            rule(Registration::mutating("mutate.example.com"), "/mutate"),
            mutating::<Pod, _>(Team),
        )
        .with(
            rule(
                Registration::validating("validate.example.com"),
                "/validate",
            ),
            validating::<Pod, _>(Team),
        );
    let running = Server::new(webhooks)
        .listen(SocketAddr::from(([127, 0, 0, 1], port.parse()?)))
        .certificates(Certificates::folder(certs))
        .shutdown_delay(std::time::Duration::ZERO)
        .start()
        .await?;
    running.until_terminated().await?;
    Ok(())
}
