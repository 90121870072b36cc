//! Results recorded from Go 1.26 and k8s.io/apiserver v0.36.4.

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn takes_urls_apart() {
    for (text, scheme, host, hostname, port, path) in [
        (
            "https://example.com:80/a",
            "https",
            "example.com:80",
            "example.com",
            "80",
            "/a",
        ),
        (
            "HTTP://u:p@[::1]:8080/x?y#z",
            "http",
            "[::1]:8080",
            "::1",
            "8080",
            "/x",
        ),
        (
            "http://[fe80::1%25eth0]",
            "http",
            "[fe80::1%eth0]",
            "fe80::1%eth0",
            "",
            "",
        ),
        ("/path/only", "", "", "", "", "/path/only"),
        ("mailto:a@b.c", "mailto", "", "", "", ""),
        ("http://a%C3%A9:", "http", "aé:", "aé", "", ""),
        (
            "postgres://a:1,b:2/db",
            "postgres",
            "a:1,b:2",
            "a:1,b",
            "2",
            "/db",
        ),
        ("http://h/a b%2Fc", "http", "h", "h", "", "/a%20b/c"),
        ("http://h/a%2Fb", "http", "h", "h", "", "/a%2Fb"),
        ("http://h/[a]'", "http", "h", "h", "", "/[a]'"),
        ("*", "", "", "", "", "*"),
        ("///x", "", "", "", "", "///x"),
    ] {
        let url = url(text);
        let parts = [
            url.scheme().to_owned(),
            url.host(),
            url.hostname(),
            url.port(),
        ];
        assert_eq!(parts, [scheme, host, hostname, port], "{text}");
        assert_eq!(url.escaped_path(), path, "{text}");
    }
}

#[test]
fn puts_urls_together_again() {
    for (text, want) in [
        ("HTTP://u:p%40@h/a?#", "http://u:p%40@h/a?"),
        ("http:/a", "http:/a"),
        ("http:///a", "http:///a"),
        ("http://h/#a b", "http://h/#a%20b"),
        ("//h/a", "//h/a"),
        ("mailto:x?y=1#z", "mailto:x?y=1#z"),
        ("http://h:80?", "http://h:80?"),
        ("http:", "http:"),
    ] {
        assert_eq!(url(text).to_string(), want, "{text}");
        assert_eq!(url(text), url(want));
    }
}

#[test]
fn reads_queries() {
    let query = |text: &str| url(text).query();
    let entry = |key: &str, values: &[&str]| {
        (
            key.to_owned(),
            values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        query("/?a=1&b&a=%20+c"),
        [entry("a", &["1", "  c"]), entry("b", &[""])]
    );
    assert_eq!(
        query("/?a;b&=x&%zz=1&c=%zz&&d=e=f"),
        [entry("", &["x"]), entry("d", &["e=f"])]
    );
    assert_eq!(query("/?a=%ff%fe"), [entry("a", &["\u{fffd}\u{fffd}"])]);
    assert!(query("/").is_empty());
    assert_eq!(
        query(&format!("/?{}", "a&".repeat(9_999))),
        [entry("a", &[""; 9_999])]
    );
    assert!(query(&format!("/?{}", "a&".repeat(10_000))).is_empty());
}

#[test]
fn explains_what_is_no_url() {
    for (text, want) in [
        ("", "parse \"\": empty url"),
        ("a", "parse \"a\": invalid URI for request"),
        ("1a:b", "parse \"1a:b\": invalid URI for request"),
        (":a", "parse \":a\": missing protocol scheme"),
        (
            "/\n",
            "parse \"/\\n\": net/url: invalid control character in URL",
        ),
        ("/%zé", "parse \"/%zé\": invalid URL escape \"%z\\xc3\""),
        ("/%4", "parse \"/%4\": invalid URL escape \"%4\""),
        (
            "http://h:8x/",
            "parse \"http://h:8x/\": invalid port \":8x\" after host",
        ),
        (
            "http://a:1:2/",
            "parse \"http://a:1:2/\": invalid port \":1:2\" after host",
        ),
        (
            "http://a b/",
            "parse \"http://a b/\": invalid character \" \" in host name",
        ),
        (
            "http://a%41/",
            "parse \"http://a%41/\": invalid URL escape \"%41\"",
        ),
        (
            "http://[::1/",
            "parse \"http://[::1/\": missing ']' in host",
        ),
        (
            "http://a[::1]/",
            "parse \"http://a[::1]/\": invalid IP-literal",
        ),
        (
            "http://[1.2.3.4]/",
            "parse \"http://[1.2.3.4]/\": invalid IP-literal",
        ),
        (
            "http://[zz]/",
            "parse \"http://[zz]/\": invalid host: ParseAddr(\"zz\"): unable to parse IP",
        ),
        (
            "http://u^@h/",
            "parse \"http://u^@h/\": net/url: invalid userinfo",
        ),
    ] {
        let error = Url::parse_request_uri(text).unwrap_err().to_string();
        assert_eq!(error, want);
    }
}

#[test]
fn explains_what_is_no_reference() {
    for (text, want) in [
        (
            "//a b",
            "parse \"//a b\": invalid character \" \" in host name",
        ),
        ("/?#%zz", "parse \"/?#%zz\": invalid URL escape \"%zz\""),
        (
            "https://a%zz",
            "parse \"https://a%zz\": invalid URL escape \"%zz\"",
        ),
        (
            "1:x",
            "parse \"1:x\": first path segment in URL cannot contain colon",
        ),
        (
            "https://[%ff]",
            "parse \"https://[%ff]\": invalid host: ParseAddr(\"\\xff\"): unable to parse IP",
        ),
    ] {
        assert_eq!(Url::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    assert!(Url::parse_request_uri("//a b").is_ok());
    assert!(Url::parse_request_uri("/?#%zz").is_ok());
}

#[test]
fn accepts_relative_references() {
    for text in ["", "a/b", "//h", "?q", "#f"] {
        assert_eq!(url(text).to_string(), text);
    }
}

#[test]
fn gives_the_parts_that_configurations_must_not_have() {
    let url = url("HTTPS://u%40:p%20@example.com:8443/a?b=c#d%20e");
    assert_eq!(url.user().as_deref(), Some("u%40:p%20"));
    assert_eq!(url.raw_query(), "b=c");
    assert_eq!(url.fragment(), b"d e");
    assert_eq!(self::url("https://a").user(), None);
}
