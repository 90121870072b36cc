//! Serves the webhooks, or prints their manifests.

use std::env;
use std::error::Error;

use cronjob_webhooks::webhooks;
use lockgate_webhook::ManifestOptions;
use lockgate_webhook::server::{Certificates, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhooks = webhooks();
    if env::args().nth(1).as_deref() == Some("manifests") {
        let options = ManifestOptions::new()
            .service("tutorial", "cronjob-webhooks")
            .inject_ca_from("tutorial/serving-cert");
        let manifests = webhooks.manifests(&options);
        print!("{}", manifests.to_yaml());
        // Patches for `config/crd`, in kustomize's format.
        print!("{}", manifests.definition_patches_yaml());
        return Ok(());
    }
    let port: u16 = env::var("WEBHOOK_PORT").map_or(Ok(9443), |port| port.parse())?;
    let folder = env::var("WEBHOOK_CERT_DIR").unwrap_or_else(|_| "/certs".into());
    let running = Server::new(webhooks)
        .listen(([0, 0, 0, 0], port))
        .certificates(Certificates::folder(folder))
        .start()
        .await?;
    running.until_terminated().await?;
    Ok(())
}
