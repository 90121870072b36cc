//! Relying parties discover the issuer and the keys of ServiceAccount tokens.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use lockgate_apiserver::{Running, ServiceAccounts, Settings, StartError};
use lockgate_store::MemoryStore;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::support::*;

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

fn with(accounts: ServiceAccounts) -> Settings {
    Settings {
        service_accounts: accounts,
        ..settings()
    }
}

async fn token(client: &Client) -> String {
    let account = json!({"metadata": {"name": "robot"}});
    client.create(ACCOUNTS, account).await;
    let path = format!("{ACCOUNTS}/robot/token");
    let made = client.post(&path, &json!({})).await.expect(201);
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn decoded(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
}

#[tokio::test]
async fn a_token_is_verified_by_what_discovery_tells() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let token = token(&admin).await;
    // Any ServiceAccount may read them.
    let robot = Client::with_token(&server, &token).await;

    let found = robot.get(CONFIGURATION).await;
    assert_eq!(found.header("content-type"), "application/json");
    assert_eq!(found.header("cache-control"), "public, max-age=3600");
    let uri = format!("https://{}{KEYS}", server.address());
    assert_eq!(
        found.text(),
        format!(
            "{{\"issuer\":\"{ISSUER}\",\"jwks_uri\":\"{uri}\",\"response_types_supported\":[\"id_token\"],\
             \"subject_types_supported\":[\"public\"],\"id_token_signing_alg_values_supported\":[\"ES256\"]}}"
        )
    );

    let found = robot.get(KEYS).await;
    assert_eq!(found.header("content-type"), "application/jwk-set+json");
    assert_eq!(found.header("cache-control"), "public, max-age=3600");
    let keys = found.expect(200);
    let key = &keys["keys"][0];
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);

    let (text, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = text.split_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
    let claims: Value = serde_json::from_slice(&decoded(claims)).unwrap();
    assert_eq!((&header["kid"], &header["alg"]), (&key["kid"], &key["alg"]));
    assert_eq!(claims["iss"], ISSUER);
    let coordinate = |name: &str| decoded(key[name].as_str().unwrap());
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(text.as_bytes(), &decoded(signature))
        .expect("the key verifies the token");
    server.stop().await;
}

#[tokio::test]
async fn every_key_that_verifies_is_told() {
    let folder = format!("{}/tests/keys", env!("CARGO_MANIFEST_DIR"));
    let file = |name: &str| format!("{folder}/{name}").into();
    let accounts = ServiceAccounts {
        issuers: vec![String::from("https://shop.example.com"), ISSUER.to_owned()],
        signing_key_file: Some(file("rsa.key")),
        key_files: vec![file("sec1.key"), file("rsa.pub")],
        jwks_uri: Some(String::from("https://shop.example.com/keys")),
        ..ServiceAccounts::default()
    };
    let server = start_with(with(accounts)).await;
    let admin = Client::admin(&server).await;
    let found = admin.get(CONFIGURATION).await.expect(200);
    assert_eq!(found["issuer"], "https://shop.example.com");
    assert_eq!(found["jwks_uri"], "https://shop.example.com/keys");
    let algorithms = &found["id_token_signing_alg_values_supported"];
    assert_eq!(*algorithms, json!(["ES256", "RS256"]));
    let want = format!(
        "{{\"keys\":[{},{}]}}",
        include_str!("../keys/sec1.jwk").trim(),
        include_str!("../keys/rsa.jwk").trim()
    );
    assert_eq!(admin.get(KEYS).await.text(), want);
    let header = token(&admin).await;
    let header: Value =
        serde_json::from_slice(&decoded(header.split_once('.').unwrap().0)).unwrap();
    assert_eq!(header["kid"], include_str!("../keys/rsa.id").trim());
    server.stop().await;
}

#[tokio::test]
async fn discovery_is_authorized_and_read_only() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let nobody = Client::anonymous(&server).await;
    for path in [CONFIGURATION, KEYS] {
        let message = format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\"");
        nobody.get(path).await.refused(403, "Forbidden", &message);
        let ann = admin.taken_for("ann").get(path).await;
        assert_eq!(ann.code, 403);
        for method in [Method::POST, Method::HEAD, Method::DELETE] {
            assert_eq!(admin.request(method, path, &[], "").await.code, 405);
        }
        assert_eq!(admin.get(&format!("{path}/")).await.code, 200);
        let below = admin.get(&format!("{path}/a")).await;
        below.refused(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    }
    let html = [("accept", "text/html")];
    let message = "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json";
    let refused = admin.request(Method::GET, KEYS, &html, "").await;
    refused.refused(406, "NotAcceptable", message);
    let root = admin.get("/").await.expect(200);
    for path in [CONFIGURATION, KEYS] {
        assert!(root["paths"].as_array().unwrap().contains(&json!(path)));
    }
    server.stop().await;
}

#[tokio::test]
async fn issuers_that_are_no_https_urls_have_no_discovery() {
    let accounts = ServiceAccounts {
        issuers: vec![String::from("kubernetes/serviceaccount")],
        ..ServiceAccounts::default()
    };
    let server = start_with(with(accounts)).await;
    let admin = Client::admin(&server).await;
    let root = admin.get("/").await.expect(200);
    for path in [CONFIGURATION, KEYS] {
        assert_eq!(admin.get(path).await.text(), "404 page not found\n");
        assert!(!root["paths"].as_array().unwrap().contains(&json!(path)));
    }
    // Its tokens are valid nevertheless.
    let token = token(&admin).await;
    let robot = Client::with_token(&server, &token).await;
    assert_eq!(robot.get("/version").await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn settings_that_no_client_could_use_are_refused() {
    let issuers = |issuers: &[&str]| ServiceAccounts {
        issuers: issuers.iter().map(|&issuer| issuer.to_owned()).collect(),
        ..ServiceAccounts::default()
    };
    let uri = |uri: &str| ServiceAccounts {
        jwks_uri: Some(uri.to_owned()),
        ..ServiceAccounts::default()
    };
    for (accounts, want) in [
        (
            issuers(&["https://a", ""]),
            "service-account-issuer should not be an empty string",
        ),
        (
            issuers(&["https://a", "https://a"]),
            "service-account-issuer \"https://a\" is already specified",
        ),
        (
            issuers(&["https://a:b"]),
            "service-account-issuer \"https://a:b\" contained a ':' but was not a valid URL: \
             parse \"https://a:b\": invalid port \":b\" after host",
        ),
        (
            uri("http://keys"),
            "service-account-jwks-uri requires https scheme, parsed as: http://keys",
        ),
        (
            uri("https://keys:b"),
            "service-account-jwks-uri must be a valid URL: parse \"https://keys:b\": \
             invalid port \":b\" after host",
        ),
    ] {
        let settings = Settings {
            secure_port: 0,
            ..with(accounts)
        };
        let store = std::sync::Arc::new(MemoryStore::new());
        match Running::start(settings, store).await {
            Err(StartError::ServiceAccounts(why)) => assert_eq!(why, want),
            other => panic!("{other:?}"),
        }
    }
}
