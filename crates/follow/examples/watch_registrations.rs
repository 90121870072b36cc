//! Feeds an engine from a live API server: webhooks are registered there, and called here.
//!
//! A custom API server, aggregated or not, calls the webhooks that users register with the main one. So it lists and
//! watches the webhook configurations, and the namespaces for their labels. This example does that, and prints after
//! every change which webhooks would be called for a new note.
//!
//! ```text
//!   cargo run -p lockgate-follow --example watch_registrations -- ~/.kube/config
//! ```

use std::path::Path;
use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_admission::matching::{Matcher, Selection};
use lockgate_admission::request::{self, Operation, kind, resource};
use lockgate_api::registration::ConfigurationKind;
use lockgate_follow::{Failure, Feed, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let file = std::env::args().nth(1).ok_or("give a kubeconfig")?;
    let feed = Feed::new(Arc::new(Server::from_kubeconfig(Path::new(&file))?))?;
    let mut changes = feed.changes();
    let engine = feed.engine.clone();
    tokio::spawn(async move { feed.run(|problem| eprintln!("{problem}")).await });
    while changes.changed().await.is_ok() {
        println!("a new note is told to: {}", told(&engine).join(", "));
    }
    Ok(())
}

/// The webhooks that would be called for a new note in the namespace `default`, match conditions aside.
fn told(engine: &Engine) -> Vec<String> {
    let mut note = request::Request::new(
        Operation::Create,
        kind("notes.example.com", "v1", "Note"),
        resource("notes.example.com", "v1", "notes"),
    );
    note.namespace = String::from("default");
    let host = engine.host();
    let mut names = Vec::new();
    for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
        let snapshot = engine.configurations(kind).snapshot();
        let mut matcher = Matcher::new(host, &note);
        for hook in snapshot.hooks() {
            let verdict = matcher.decide_from_cache(hook, &note, None);
            if verdict.is_ok_and(|verdict| matches!(verdict.selection(), Selection::Call(_))) {
                names.push(hook.name().to_owned());
            }
        }
    }
    names
}
