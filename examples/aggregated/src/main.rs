//! Serves notes as an aggregated API server.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aggregated_notes::Running;
use lockgate_follow::{Failure, Server};
use lockgate_store::{DiskStore, MemoryStore, Store};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let setting = |name: &str| env::var(name).map_err(|_| format!("set {name}"));
    let address: SocketAddr = setting("NOTES_ADDRESS")
        .unwrap_or_else(|_| "127.0.0.1:8443".into())
        .parse()?;
    let certificate = std::fs::read(setting("NOTES_CERT_FILE")?)?;
    let key = std::fs::read(setting("NOTES_KEY_FILE")?)?;
    let main = Server::from_kubeconfig(Path::new(&setting("KUBECONFIG")?))?;
    let store: Arc<dyn Store> = match setting("NOTES_DATA_DIR") {
        Ok(folder) => Arc::new(DiskStore::open(Path::new(&folder))?),
        Err(_) => Arc::new(MemoryStore::new()),
    };
    let running = Running::start(address, (&certificate, &key), main, store).await?;
    println!(
        "notes are at https://{}/apis/notes.example.com/v1",
        running.address()
    );
    std::future::pending().await
}
