//! Denials as clients see them.

use lockgate_webhook::field::{FieldError, Path, Shown};
use lockgate_webhook::testing::Review;
use lockgate_webhook::{
    Context, Denial, FieldErrors, Refusal, Registration, Response, Webhooks, from_fn,
};
use serde_json::{Value, json};

use crate::support::CONFIG_MAP;

async fn status(denial: Denial) -> Value {
    let handler = from_fn(async move |_: &Context| Ok(Response::deny(denial.clone())));
    let webhooks = Webhooks::new().with(Registration::validating("a.b.c").path("/"), handler);
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    outcome.rejects_with("");
    outcome.response()["status"].clone()
}

#[tokio::test]
async fn each_denial_has_its_code_and_reason() {
    for (denial, code, reason) in [
        (Denial::forbidden("x"), 403, "Forbidden"),
        (Denial::bad_request("x"), 400, "BadRequest"),
        (Denial::not_found("x"), 404, "NotFound"),
        (Denial::conflict("x"), 409, "Conflict"),
        (
            Denial::forbidden("x").reason("Weekend").code(418),
            418,
            "Weekend",
        ),
        // A denial never has a success code.
        (Denial::new(200, "Odd", "x"), 400, "Odd"),
        (Denial::forbidden("x").code(0), 400, "Forbidden"),
    ] {
        let status = status(denial).await;
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(status["reason"], reason, "{status}");
        assert_eq!(status["message"], "x", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
    }
}

#[tokio::test]
async fn too_many_requests_says_when_to_try_again() {
    let status = status(Denial::too_many_requests("slow down", 7)).await;
    assert_eq!(status["code"], 429);
    assert_eq!(status["details"]["retryAfterSeconds"], 7);
}

#[tokio::test]
async fn wrong_fields_are_causes() {
    let spec = Path::root("spec");
    let mut errors = FieldErrors::default();
    assert!(errors.is_empty());
    assert!(errors.clone().into_verdict().is_ok());
    errors.push(FieldError::invalid(
        &spec.child("a"),
        Shown::Text("x"),
        "must be y",
    ));
    errors.push(FieldError::required(&spec.child("b"), ""));
    let Err(Refusal::Denied(denial)) = errors.into_verdict() else {
        panic!("not denied");
    };
    let status = status(*denial).await;
    assert_eq!(status["code"], 422);
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(
        status["message"],
        "[spec.a: Invalid value: \"x\": must be y, spec.b: Required value]"
    );
    assert_eq!(
        status["details"]["causes"],
        json!([
            {"reason": "FieldValueInvalid", "message": "Invalid value: \"x\": must be y", "field": "spec.a"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.b"},
        ])
    );
}
