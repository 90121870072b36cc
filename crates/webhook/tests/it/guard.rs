//! Exempted requests.

use lockgate_webhook::testing::Review;
use lockgate_webhook::{Context, Denial, Guard, Registration, Response, Webhooks, from_fn};

fn guarded(guard: Guard) -> Webhooks {
    let deny = from_fn(async |_: &Context| Ok(Response::deny(Denial::forbidden("asked"))));
    Webhooks::new().with(
        Registration::validating("a.b.c").path("/"),
        guard.around(deny),
    )
}

const OBJECT: &str =
    "{apiVersion: v1, kind: Thing, metadata: {name: a, namespace: prod}, spec: {size: 1}}";

#[tokio::test]
async fn everybody_is_asked_about_unless_exempt() {
    let webhooks = guarded(Guard::new());
    Review::create(OBJECT)
        .ask(&webhooks, "/")
        .await
        .rejects_with("asked");

    let webhooks = guarded(
        Guard::new()
            .exempt_user("root")
            .exempt_group("ops")
            .exempt_namespace("kube-system"),
    );
    let review = Review::create(OBJECT);
    review.ask(&webhooks, "/").await.rejects_with("asked");
    review
        .clone()
        .user("root")
        .ask(&webhooks, "/")
        .await
        .accepts();
    review
        .clone()
        .group("ops")
        .ask(&webhooks, "/")
        .await
        .accepts();
    review
        .clone()
        .namespace("kube-system")
        .ask(&webhooks, "/")
        .await
        .accepts();
    review
        .dry_run()
        .ask(&webhooks, "/")
        .await
        .rejects_with("asked");
}

#[tokio::test]
async fn dry_runs_may_go_through() {
    let webhooks = guarded(Guard::new().allow_dry_run());
    Review::create(OBJECT)
        .ask(&webhooks, "/")
        .await
        .rejects_with("asked");
    Review::create(OBJECT)
        .dry_run()
        .ask(&webhooks, "/")
        .await
        .accepts();
}

#[tokio::test]
async fn an_object_that_is_being_deleted_may_lose_its_finalizers() {
    let webhooks = guarded(Guard::new().allow_terminating());
    let object = |metadata: &str, spec: &str| {
        format!("{{apiVersion: v1, kind: Thing, metadata: {{name: a{metadata}}}, spec: {spec}}}")
    };
    let deleting = ", deletionTimestamp: '2024-01-01T00:00:00Z', finalizers: [x]";
    let let_go = ", deletionTimestamp: '2024-01-01T00:00:00Z'";
    let ask = |old: String, new: String| {
        let webhooks = webhooks.clone();
        async move { Review::update(&old, &new).ask(&webhooks, "/").await }
    };
    ask(object(deleting, "{size: 1}"), object(let_go, "{size: 1}"))
        .await
        .accepts();
    // The stored object determines whether it is being deleted.
    ask(object("", "{size: 1}"), object(let_go, "{size: 1}"))
        .await
        .rejects_with("asked");
    ask(object(deleting, "{size: 1}"), object(let_go, "{size: 2}"))
        .await
        .rejects_with("asked");
    let null = ", deletionTimestamp: null";
    ask(object(null, "{size: 1}"), object(null, "{size: 1}"))
        .await
        .rejects_with("asked");
    let with_status = object(let_go, "{size: 1}, status: {ready: true}");
    ask(object(deleting, "{size: 1}"), with_status)
        .await
        .accepts();
    Review::create(&object(deleting, "{}"))
        .ask(&webhooks, "/")
        .await
        .rejects_with("asked");
}

#[tokio::test]
async fn only_changes_of_some_places_are_asked_about() {
    let webhooks = guarded(
        Guard::new()
            .only_if_changed("/spec")
            .only_if_changed("/data"),
    );
    let object =
        |rest: &str| format!("{{apiVersion: v1, kind: Thing, metadata: {{name: a}}{rest}}}");
    let ask = |old: &str, new: &str| {
        let review = Review::update(&object(old), &object(new));
        let webhooks = webhooks.clone();
        async move { review.ask(&webhooks, "/").await }
    };
    ask(", spec: {a: 1}", ", spec: {a: 1}, status: {}")
        .await
        .accepts();
    ask(", spec: {a: 1}", ", spec: {a: 2}")
        .await
        .rejects_with("asked");
    ask(", spec: {a: 1}", "").await.rejects_with("asked");
    ask("", ", data: {}").await.rejects_with("asked");
    Review::create(OBJECT)
        .ask(&webhooks, "/")
        .await
        .rejects_with("asked");
}

#[tokio::test]
async fn an_object_too_deep_to_compare_is_denied() {
    let webhooks = guarded(Guard::new().only_if_changed("/spec"));
    let deep = format!("{{\"spec\":{}{}}}", "[".repeat(600), "]".repeat(600));
    let review = Review::update("{}", "{kind: here}").to_json();
    let review = review.replace("{\"kind\":\"here\"}", &deep);
    let webhook = webhooks.at("/").unwrap();
    let answered = webhook.answer(review.into(), None).await;
    let response = answered.outcome.unwrap();
    let denial = response.denial().unwrap();
    assert_eq!(denial.status().code, 422);
    assert!(
        denial.to_string().contains("nests more than 500 levels"),
        "{denial}"
    );
}
