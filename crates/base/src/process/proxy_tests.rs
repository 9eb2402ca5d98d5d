//! The variables, form by form: what Go's `golang.org/x/net/http/httpproxy` does with each.

use super::*;

fn proxies(variables: &[(&str, &str)]) -> Proxies {
    Proxies::read(&variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn of(variables: &[(&str, &str)], target: &str) -> Option<String> {
    proxies(variables).of(&target.parse().unwrap()).unwrap().map(|proxy| proxy.to_string())
}

#[test]
fn the_scheme_of_the_address_picks_the_variable_and_capitals_go_first() {
    for (variables, target, expected) in [
        (&[][..], "https://api:6443", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://api:6443", Some("http://p:3128 (HTTPS_PROXY)")),
        (&[("https_proxy", "http://p:3128")], "https://api:6443", Some("http://p:3128 (https_proxy)")),
        (&[("https_proxy", "b"), ("HTTPS_PROXY", "a")], "https://api", Some("http://a:80 (HTTPS_PROXY)")),
        (&[("https_proxy", "b"), ("HTTPS_PROXY", "")], "https://api", Some("http://b:80 (https_proxy)")),
        (&[("HTTP_PROXY", "http://p:3128")], "https://api:6443", None),
        (&[("HTTP_PROXY", "http://p:3128")], "http://api:8080", Some("http://p:3128 (HTTP_PROXY)")),
        (&[("HTTPS_PROXY", "http://p:3128")], "http://api:8080", None),
        (&[("ALL_PROXY", "http://p:3128")], "https://api", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://localhost:6443", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://127.0.0.1:6443", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://127.9.9.9:6443", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://[::1]:6443", None),
        (&[("HTTPS_PROXY", "http://p:3128")], "https://[fd00::1]:6443", Some("http://p:3128 (HTTPS_PROXY)")),
        (
            &[("HTTPS_PROXY", "p"), ("no_proxy", "api"), ("NO_PROXY", "other")],
            "https://api",
            Some("http://p:80 (HTTPS_PROXY)"),
        ),
        (&[("HTTPS_PROXY", "p"), ("no_proxy", "api"), ("NO_PROXY", "")], "https://api", None),
    ] {
        assert_eq!(of(variables, target).as_deref(), expected, "{variables:?} {target}");
    }
}

#[test]
fn each_form_of_no_proxy_means_what_it_means_in_go() {
    for (list, target, is_direct) in [
        ("*", "https://api.example.com", true),
        ("other,*", "https://10.0.0.1", true),
        ("example.com", "https://example.com", true),
        ("example.com", "https://api.example.com", true),
        ("example.com", "https://notexample.com", false),
        ("Example.COM", "https://API.example.com", true),
        (".example.com", "https://api.example.com", true),
        (".example.com", "https://example.com", false),
        ("*.example.com", "https://api.example.com", true),
        ("*.example.com", "https://example.com", false),
        ("*example.com", "https://api.example.com", false),
        ("a*.example.com", "https://api.example.com", false),
        (" a , example.com ,", "https://example.com", true),
        (",", "https://example.com", false),
        ("a example.com", "https://example.com", false),
        (".svc", "https://kubernetes.default.svc", true),
        ("svc", "https://kubernetes.default.svc", true),
        ("example.com:6443", "https://api.example.com:6443", true),
        ("example.com:6443", "https://api.example.com:6444", false),
        ("example.com:443", "https://example.com", true),
        ("example.com:", "https://example.com", true),
        (".example.com:6443", "https://api.example.com:6443", true),
        (":6443", "https://example.com:6443", false),
        ("10.0.0.1", "https://10.0.0.1:6443", true),
        ("10.0.0.1", "https://10.0.0.10:6443", false),
        ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
        ("10.0.0.1:6443", "https://10.0.0.1:443", false),
        ("10.0.0.0/8", "https://10.96.0.1:443", true),
        ("10.0.0.0/8", "https://11.96.0.1:443", false),
        ("10.96.0.1/12", "https://10.111.255.255", true),
        ("10.96.0.1/12", "https://10.112.0.0", false),
        ("0.0.0.0/0", "https://10.0.0.1", true),
        ("0.0.0.0/0", "https://[fd00::1]", false),
        ("0.0.0.0/0", "https://api.example.com", false),
        ("10.0.0.1/32", "https://10.0.0.1", true),
        ("10.0.0.0/33", "https://10.0.0.1", false),
        ("::ffff:10.0.0.1", "https://10.0.0.1", true),
        ("fd00::1", "https://[fd00::1]:6443", true),
        ("FD00:0::1", "https://[fd00::1]:6443", true),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
        ("[fd00::1]:6443", "https://[fd00::1]:6444", false),
        ("fd00::/8", "https://[fd12::1]", true),
        ("::/0", "https://[2001:db8::1]", true),
        ("fd00::/8", "https://10.0.0.1", false),
        // Go takes this for a name, and so for nothing; it can only mean the address.
        ("[fd00::1]", "https://[fd00::1]:6443", true),
    ] {
        let variables = [("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", list)];
        assert_eq!(of(&variables, target).is_none(), is_direct, "{list:?} {target}");
    }
}

#[test]
fn each_form_of_an_address_is_read_and_its_credentials_are_not_shown() {
    for (text, shown, credentials) in [
        ("http://p:3128", "http://p:3128", None),
        ("p:3128", "http://p:3128", None),
        ("10.0.0.9", "http://10.0.0.9:80", None),
        ("https://p", "https://p:443", None),
        ("socks5://p", "socks5://p:1080", None),
        ("socks5h://p:9", "socks5h://p:9", None),
        (" http://p:3128/path?x=y ", "http://p:3128", None),
        ("http://[fd00::9]:3128", "http://[fd00::9]:3128", None),
        ("http://me:secret@p:3128", "http://p:3128", Some(("me", "secret"))),
        ("me:s%40cr%3Aet@p:3128", "http://p:3128", Some(("me", "s@cr:et"))),
        ("http://me@p", "http://p:80", Some(("me", ""))),
        ("socks5://me:@p", "socks5://p:1080", Some(("me", ""))),
        ("socks5h://:secret@p", "socks5h://p:1080", Some(("", "secret"))),
        ("http://m%C3%A9:a:b%25@p", "http://p:80", Some(("mé", "a:b%"))),
        ("http://me@example.com:secret@p", "http://p:80", Some(("me@example.com", "secret"))),
    ] {
        let proxy = Proxy::parse(text, "HTTPS_PROXY").unwrap();
        assert_eq!(proxy.to_string(), format!("{shown} (HTTPS_PROXY)"), "{text}");
        assert_eq!(format!("{proxy:?}"), format!("{shown} (HTTPS_PROXY)"), "{text}");
        let credentials = credentials.map(|(user, password): (&str, &str)| (user.into(), password.into()));
        let found = proxy.credentials().map(|it| (it.user.clone(), it.password.clone()));
        assert_eq!(found, credentials, "{text}");
    }
    let header = Proxy::parse("http://Aladdin:open%20sesame@p", "x").unwrap().authorization().unwrap();
    assert_eq!((header.to_str().unwrap(), header.is_sensitive()), ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", true));
    // Bytes that are no UTF-8 arrive as they are.
    let header = Proxy::parse("http://m:%FF@p", "x").unwrap().authorization().unwrap();
    assert_eq!(header.to_str().unwrap(), "Basic bTr/");
    let variables = proxies(&[("HTTPS_PROXY", "http://me:secret@p:3128"), ("NO_PROXY", "a")]);
    assert!(!format!("{variables:?}").contains("secret"));
}

#[test]
fn what_is_no_address_of_a_proxy_is_named_and_not_shown() {
    for text in [
        "http://",
        "http://me:se#cret@p:3128",
        "http://p:secret",
        "http://a b",
        "http://:3128",
        "http://me:secret%@p",
        "socks5://me:secret%2x@p",
    ] {
        let error = Proxy::parse(text, "HTTPS_PROXY").unwrap_err();
        assert!(matches!(error, ProxyError::Address { .. }), "{text}: {error}");
        assert!(error.to_string().starts_with("HTTPS_PROXY is not the address of a proxy"), "{error}");
        assert!(!error.to_string().contains("secret") && !error.to_string().contains("se#cret"), "{error}");
    }
    let error = Proxy::parse("ftp://me:secret@p", "HTTPS_PROXY").unwrap_err();
    assert_eq!(error.to_string(), "HTTPS_PROXY names a proxy with the scheme `ftp`; expected http, https or socks5");
}

#[test]
fn what_needs_no_proxy_does_not_look_at_the_address() {
    let variables = [("HTTPS_PROXY", "http://a b"), ("NO_PROXY", "10.0.0.0/8")];
    assert_eq!(of(&variables, "https://10.0.0.1"), None);
    assert!(proxies(&variables).of(&"https://11.0.0.1".parse().unwrap()).is_err());
}
