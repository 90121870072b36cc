#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::FutureExt as _;
use libfuzzer_sys::fuzz_target;
use lockgate_admission::json_patch;
use lockgate_webhook::{
    Answered, Context, Denial, Mutator, Object, Registration, ReviewError, Validator, Verdict,
    Webhooks, mutating, validating,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A type with fields of every shape, which has few of the sent fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Thing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Metadata {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    name: String,
    #[serde(default)]
    count: i64,
}

struct Rules;

impl Mutator<Thing> for Rules {
    async fn mutate(&self, _: &Context, thing: &mut Thing) -> Verdict {
        let metadata = thing.metadata.get_or_insert_default();
        metadata.labels.insert("a/b~c".into(), "set".into());
        thing.parts.retain(|part| part.name != "drop");
        if thing
            .parts
            .first()
            .is_none_or(|first| first.name != "first")
        {
            let first = Part {
                name: "first".into(),
                count: 0,
            };
            thing.parts.insert(0, first);
        }
        for part in &mut thing.parts {
            part.count = 7;
        }
        Ok(())
    }
}

impl Validator<Thing> for Rules {
    async fn create(&self, ctx: &Context, thing: &Object<Thing>) -> Verdict {
        ctx.warn(thing.text());
        match thing.parts.is_empty() {
            true => Err(Denial::forbidden("no parts").into()),
            false => Ok(()),
        }
    }
}

static WEBHOOKS: LazyLock<Webhooks> = LazyLock::new(|| {
    Webhooks::new()
        .with(
            Registration::mutating("a.b.c").path("/m"),
            mutating::<Thing, _>(Rules),
        )
        .with(
            Registration::validating("d.e.f").path("/v"),
            validating::<Thing, _>(Rules),
        )
});

fn ask(path: &str, body: Bytes) -> Answered {
    let webhook = WEBHOOKS.at(path).expect("a webhook");
    let asking = webhook.answer(body, None);
    asking.now_or_never().expect("nothing to wait for")
}

/// The object after the API server applied the patch.
fn patched(ctx: &Context, answered: &Answered) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_str(ctx.object_text()?);
    let object = Value::deserialize(&mut reader)
        .ok()
        .filter(Value::is_object)?;
    let response = answered.outcome.as_ref().ok()?;
    let changes = response.changes();
    if changes.is_empty() {
        return Some(object);
    }
    let patch = serde_json::to_vec(changes).expect("a patch is JSON");
    let patch = json_patch::Patch::parse(&patch).expect("it is a patch");
    Some(patch.apply(&object).expect("it applies"))
}

fuzz_target!(|body: &[u8]| {
    let body = Bytes::copy_from_slice(body);
    for path in ["/m", "/v"] {
        let answered = ask(path, body.clone());
        if let Err(error) = &answered.outcome {
            assert!(matches!(error, ReviewError::Malformed(_)), "{error}");
        }
        if answered.code == 200 {
            let review: Value = serde_json::from_slice(&answered.body).expect("a review");
            let uid = &review["response"]["uid"];
            assert!(uid.is_string());
            if let Some(ctx) = &answered.context {
                assert_eq!(uid, ctx.uid());
            }
        }
        let Some(ctx) = &answered.context else {
            continue;
        };
        let allowed = answered.outcome.as_ref().is_ok_and(|it| it.is_allowed());
        if path != "/m" || !allowed {
            continue;
        }
        if let Some(object) = patched(ctx, &answered) {
            let request = serde_json::json!({"uid": "u", "operation": "CREATE", "object": object});
            let again = serde_json::json!({
                "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request,
            });
            let again = ask("/m", Bytes::from(again.to_string()));
            let again = again.outcome.expect("its own result is read");
            assert!(
                again.is_allowed() && again.changes().is_empty(),
                "{again:?}"
            );
        }
    }
});
