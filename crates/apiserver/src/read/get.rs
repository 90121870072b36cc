//! One object.

use lockgate_store::ReadAt;
use serde_json::Value;

use crate::call::Call;
use crate::encoding;
use crate::error::{Outcome, bad_request};
use crate::read::list;
use crate::registry::Resource;
use crate::respond::Reply;
use crate::server::Server;

/// Reads the object the call is about.
pub(crate) async fn get(server: &Server, call: &Call, resource: &Resource) -> Outcome<Reply> {
    let target = &call.target;
    let at = match call.query.text("resourceVersion") {
        "" | "0" => ReadAt::Latest,
        text => ReadAt::NotOlderThan(list::revision(text).map_err(bad_request)?),
    };
    let key = server.key(resource, &target.namespace, &target.name);
    let (entry, _) = list::read_at(server, at, || server.store.get(&key, at)).await?;
    let Some(entry) = entry else {
        return Err(resource.not_found(&target.name));
    };
    if resource.is_storage_version() && !resource.is_custom() {
        let mut text = String::with_capacity(entry.value.len() + 96);
        encoding::render(
            &mut text,
            &entry.value,
            entry.revision,
            Some(resource.type_meta()),
        );
        return Ok(Reply::text(text));
    }
    Ok(Reply::object(server.show(&entry, resource).await?))
}

/// Reads the scale of an object.
pub(crate) async fn get_value(server: &Server, call: &Call, resource: &Resource) -> Outcome<Value> {
    let target = &call.target;
    let key = server.key(resource, &target.namespace, &target.name);
    let (entry, _) = server
        .store
        .get(&key, ReadAt::Latest)
        .await
        .map_err(|error| crate::error::read_failed(error, 0))?;
    let entry = entry.ok_or_else(|| resource.not_found(&target.name))?;
    server.show(&entry, resource).await
}
