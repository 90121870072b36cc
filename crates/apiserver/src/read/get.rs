//! Reads one object, or a subresource of it.

use lockgate_store::{Entry, ReadAt};

use crate::encoding;
use crate::error::{Outcome, check_key, method_not_allowed, plain};
use crate::http::query::Query;
use crate::persist::Storage;
use crate::read::list;
use crate::registry::{Subresource, scale};
use crate::request::{ObjectPath, Request};
use crate::respond::Reply;

/// Reads the requested object.
pub(crate) async fn get(storage: &Storage, request: &Request, query: &Query) -> Outcome<Reply> {
    let resource = &request.resource;
    let entry = entry(storage, request, query).await?;
    if resource.is_shown_as_stored() {
        let mut text = String::with_capacity(entry.value.len() + 96);
        encoding::render(&mut text, &entry, Some(resource.type_meta()))?;
        return Ok(Reply::text(text));
    }
    Ok(Reply::object(storage.decode(&entry, resource).await?))
}

/// Reads the stored entry of the object, at a revision that is not older than the requested one.
async fn entry(storage: &Storage, request: &Request, query: &Query) -> Outcome<Entry> {
    let resource = &request.resource;
    check_key(request.name())?;
    let at = match query.text("resourceVersion") {
        "" | "0" => ReadAt::Latest,
        // UPSTREAM: an invalid number is an error without a status.
        text => {
            ReadAt::NotOlderThan(list::revision(text).map_err(|error| plain(error.to_string()))?)
        }
    };
    let key = storage.key(resource, request.namespace(), request.name());
    let (entry, _) = list::read_at(storage, at, || storage.store().get(&key, at)).await?;
    entry.ok_or_else(|| resource.not_found(request.name()))
}

/// Reads a subresource.
pub(crate) async fn get_part(
    storage: &Storage,
    request: &Request,
    part: &Subresource,
    query: &Query,
) -> Outcome<Reply> {
    let resource = &request.resource;
    let path = ObjectPath {
        resource,
        namespace: request.namespace(),
        name: request.name(),
        subresource: "",
    };
    match part.name.as_str() {
        "scale" => {
            let entry = entry(storage, request, query).await?;
            let object = storage.decode(&entry, resource).await?;
            scale::check_replicas(resource, &object)?;
            Ok(Reply::object(scale::of(resource, &object)?))
        }
        "log" => {
            storage.get(path).await?;
            Ok(Reply::plain(String::new()))
        }
        _ if part.kind == resource.kind() && part.group == resource.group() => {
            get(storage, request, query).await
        }
        _ => Err(method_not_allowed()),
    }
}
