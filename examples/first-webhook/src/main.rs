//! Serves the webhooks, or prints what to register.

use std::env;
use std::error::Error;

use first_webhook::webhooks;
use lockgate_webhook::ManifestOptions;
use lockgate_webhook::server::{Certificates, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhooks = webhooks(10);
    if env::args().nth(1).as_deref() == Some("manifests") {
        let options = ManifestOptions::new().service("tutorial", "first-webhook");
        print!("{}", webhooks.manifests(&options).to_yaml());
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
