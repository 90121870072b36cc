//! Who the caller is to whom.

use lockgate_testkit::WebhookServer;
use lockgate_testkit::certs::Authority;
use lockgate_webhook_client::call::Caller as _;
use lockgate_webhook_client::credentials::{Credentials, Material, TokenFile, User};
use lockgate_webhook_client::{HttpsCaller, Settings};

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
