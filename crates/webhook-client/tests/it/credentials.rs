//! Credentials per webhook.

use lockgate_testkit::certs::Authority;
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use lockgate_webhook_client::call::Caller as _;
use lockgate_webhook_client::credentials::{Credentials, Material, TokenFile, User};
use lockgate_webhook_client::{HttpsCaller, Redirects, Settings};

use crate::support::{AMPLE, answer, failure, url_config};

fn with_user(user: User) -> HttpsCaller {
    HttpsCaller::new(Settings {
        credentials: Credentials::new([user], None),
        ..Settings::default()
    })
}

#[tokio::test]
async fn shows_a_token() {
    let server = WebhookServer::start().await;
    let caller = with_user(User {
        name: server.address().to_string(),
        token: Some(String::from("secret")),
        ..User::default()
    });
    let client = caller
        .client(&url_config(&server.url("/"), server.ca_pem()))
        .unwrap();
    answer(client.as_ref()).await;
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer secret"));
}

#[tokio::test]
async fn shows_a_certificate_to_those_who_ask() {
    let authority = Authority::new("clients");
    let server = WebhookServer::builder()
        .client_ca(authority.pem())
        .start()
        .await;
    let config = url_config(&server.url("/"), server.ca_pem());
    let identity = authority.issue(&["caller"]);
    let known = with_user(User {
        name: String::from("*"),
        client_certificate: Some(Material::Data(identity.certificate_pem.into_bytes())),
        client_key: Some(Material::Data(identity.key_pem.into_bytes())),
        ..User::default()
    });
    let client = known.client(&config).unwrap();
    assert_eq!(answer(client.as_ref()).await.code, 200);

    let anonymous = HttpsCaller::new(Settings::default());
    let client = anonymous.client(&config).unwrap();
    let error = failure(client.as_ref(), AMPLE).await;
    let want = format!(
        "Post \"{}?timeout=10s\": remote error: tls: certificate required",
        server.url("/")
    );
    assert_eq!(error.message, want);
}

#[tokio::test]
async fn shows_nothing_to_whom_a_webhook_points() {
    let authority = Authority::new("clients");
    let identity = authority.issue(&["caller"]);
    // Both require certificates of the same client CA: a followed redirect would present the webhook's.
    let start = || async {
        WebhookServer::builder()
            .client_ca(authority.pem())
            .start()
            .await
    };
    let (webhook, other) = (start().await, WebhookServer::start().await);
    let wants_certificate = start().await;
    let roots = [webhook.ca_pem(), other.ca_pem(), wants_certificate.ca_pem()].concat();
    for code in [301, 302, 303, 307, 308] {
        let caller = HttpsCaller::new(Settings {
            credentials: Credentials::new(
                [User {
                    name: String::from("*"),
                    token: Some(String::from("secret")),
                    client_certificate: Some(Material::Data(
                        identity.certificate_pem.clone().into_bytes(),
                    )),
                    client_key: Some(Material::Data(identity.key_pem.clone().into_bytes())),
                    ..User::default()
                }],
                None,
            ),
            redirects: Redirects::Follow,
            ..Settings::default()
        });
        let config = url_config(&webhook.url("/"), &roots);
        let client = caller.client(&config).unwrap();
        webhook.script(
            "/",
            [ScriptedResponse::redirect(code, &other.url("/there"))],
        );
        assert_eq!(answer(client.as_ref()).await.code, 200);
        let came = other.requests().pop().unwrap();
        assert_eq!(came.header("authorization"), None, "{code}");
        let first = webhook.requests().pop().unwrap();
        assert_eq!(first.header("authorization"), Some("Bearer secret"));

        webhook.script(
            "/",
            [ScriptedResponse::redirect(
                code,
                &wants_certificate.url("/"),
            )],
        );
        let error = failure(client.as_ref(), AMPLE).await;
        let want = "remote error: tls: certificate required";
        assert!(error.message.ends_with(want), "{}", error.message);
    }
    assert_eq!(wants_certificate.requests().len(), 0);
}

#[tokio::test]
async fn refuses_users_that_make_no_client() {
    for (user, want) in [
        (
            User {
                token: Some(String::from("t")),
                username: String::from("u"),
                ..User::default()
            },
            "username/password or bearer token may be set, but not both",
        ),
        (
            User {
                token_file: Some(TokenFile::new("/does/not/exist".into())),
                ..User::default()
            },
            "open /does/not/exist: no such file or directory",
        ),
        (
            User {
                unusable: Some(String::from("auth provider not supported")),
                ..User::default()
            },
            "auth provider not supported",
        ),
    ] {
        let caller = with_user(User {
            name: String::from("*"),
            ..user
        });
        let config = url_config("https://a", "");
        let error = caller.client(&config).err().unwrap();
        assert_eq!(error.to_string(), want);
    }
}
