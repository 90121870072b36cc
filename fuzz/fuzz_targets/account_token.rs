//! Tokens of service accounts: accepted if they are signed here, of an account that exists, for this
//! server, now.
//!
//! The input is a token, and the claims of another one that is signed with the server's key.

#![no_main]

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use lockgate_apiserver::fuzzing::Accounts;
use serde_json::{Map, Value, json};

static ACCOUNTS: LazyLock<Accounts> = LazyLock::new(Accounts::new);

fuzz_target!(|text: &str| {
    // Nobody makes a signature by chance; the one token of the file is no signature.
    let user = ACCOUNTS.user_of(text);
    assert!(user.is_none() || text == "known", "{text} is {user:?}");

    let Ok(Value::Object(changes)) = serde_json::from_str(text) else {
        return;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs().cast_signed();
    let claims = good_but_for(changes, now);
    let Some(token) = ACCOUNTS.sign(&claims) else {
        return;
    };
    let user = ACCOUNTS.user_of(&token);
    let want = is_good(&claims, now).then_some("system:serviceaccount:shop:robot");
    assert_eq!(user.as_deref(), want, "{claims}");
    // A token is signed as a whole.
    let mut forged = token.clone().into_bytes();
    let at = text.len() % forged.len();
    forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).expect("still ASCII");
    // The last character has bits that mean nothing.
    if at + 1 < forged.len() {
        assert_eq!(ACCOUNTS.user_of(&forged), None, "{token} became {forged}");
    }
});

/// The claims of a good token with these instead. Times count from now.
fn good_but_for(changes: Map<String, Value>, now: i64) -> Value {
    let mut claims = json!({
        "iss": ACCOUNTS.issuer(), "aud": [ACCOUNTS.issuer()], "exp": now + 600, "nbf": now, "iat": now,
        "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "robot", "uid": "7"}},
    });
    for (key, value) in changes {
        let is_time = ["exp", "nbf", "iat"].contains(&key.as_str());
        let value = match value.as_i64() {
            Some(from_now) if is_time => json!(now.saturating_add(from_now)),
            _ => value,
        };
        claims[key] = value;
    }
    claims
}

/// A small model of what is checked. Clocks may differ by a minute, and the fuzzer's own by a second.
fn is_good(claims: &Value, now: i64) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let audiences = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().map(text).collect(),
        _ => Vec::new(),
    };
    let is_for_us = audiences.is_empty() || audiences.iter().any(|it| it == ACCOUNTS.issuer());
    let bound = &claims["kubernetes.io"];
    let is = |what: &Value, name: &str, uid: &str| what["name"] == name && what["uid"] == uid;
    claims["iss"] == ACCOUNTS.issuer()
        && is_for_us
        && claims["exp"].as_i64().is_none_or(|at| at >= now - 60)
        && claims["nbf"].as_i64().is_none_or(|at| at <= now + 60)
        && claims["iat"].as_i64().is_none_or(|at| at <= now + 60)
        && bound["namespace"] == "shop"
        && is(&bound["serviceaccount"], "robot", "7")
        && bound["secret"].is_null()
        && (bound["pod"].is_null() || is(&bound["pod"], "web", "8"))
        && (bound["node"].is_null() || !bound["pod"].is_null())
}
