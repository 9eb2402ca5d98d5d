//! The API server behind a proxy, over the wire.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::wire::{Does, NAME, api_server, data, http_proxy, https_proxy, kubeconfig, self_signed, socks_proxy};
use crate::cluster::access::of_pod;
use crate::cluster::{ClientOptions, Clients, ClusterAccess, ConnectError};
use crate::process::{Proxies, error_chain};

/// The clients of a kubeconfig with this cluster, under these variables.
async fn clients(cluster: serde_json::Value, variables: &[(&str, &str)]) -> Result<Clients, ConnectError> {
    let (_directory, path) = kubeconfig(&cluster, &json!({ "token": "t" }));
    Clients::connect(&ClusterAccess::Kubeconfig(path), &under(variables)).await
}

fn under(variables: &[(&str, &str)]) -> ClientOptions {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let connect_timeout = Duration::from_secs(3);
    ClientOptions { proxies: Proxies::read(&variables), connect_timeout, ..ClientOptions::default() }
}

async fn ask(client: &kube::Client) -> Result<String, String> {
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    client.request_text(request).await.map_err(|error| error_chain(&error))
}

fn cluster(authority: &str, server: &str) -> serde_json::Value {
    json!({ "server": server, "certificate-authority-data": data(authority) })
}

fn at(scheme: &str, address: SocketAddr) -> String {
    format!("{scheme}://{address}")
}

#[tokio::test]
async fn an_https_server_is_reached_by_connect_and_never_sees_the_proxys_password() {
    let (authority, config) = self_signed();
    let (server, requests) = api_server(config);
    let (proxy, heads) = http_proxy(Does::Connect(server));
    let variables = [("https_proxy", &*format!("http://me:s%40cret@{proxy}")), ("NO_PROXY", "10.0.0.0/8,.svc")];
    let clients = clients(cluster(&authority, &format!("https://{NAME}:6443")), &variables).await.unwrap();
    for client in [&clients.work, &clients.watch, &clients.election] {
        assert_eq!(ask(client).await.as_deref(), Ok("ok"));
        let head = heads.recv().unwrap().to_lowercase();
        assert!(head.starts_with(&format!("connect {NAME}:6443 http/1.1\r\n")), "{head}");
        assert!(head.contains(&format!("\r\nhost: {NAME}:6443\r\n")), "{head}");
        assert!(head.contains(&format!("\r\nproxy-authorization: basic {}\r\n", data("me:s@cret").to_lowercase())));
        let request = requests.recv().unwrap().to_lowercase();
        assert!(request.starts_with("get /version ") && !request.contains("proxy-authorization"), "{request}");
    }
}

#[tokio::test]
async fn a_pods_service_account_takes_the_proxy_of_its_variables() {
    let (authority, config) = self_signed();
    let (server, requests) = api_server(config);
    let (proxy, heads) = http_proxy(Does::Connect(server));
    let proxy = format!("http://{proxy}");
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap().to_vec();
    let account = |server: &str| {
        let mut config = kube::Config::new(server.parse().unwrap());
        config.root_cert = Some(vec![authority.clone()]);
        of_pod(config)
    };
    let clients =
        Clients::from_config(&account(&format!("https://{NAME}")), &under(&[("HTTPS_PROXY", &proxy)])).unwrap();
    assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"));
    assert!(heads.recv().unwrap().to_lowercase().starts_with(&format!("connect {NAME}:443 http/1.1\r\n")));
    assert!(requests.recv().unwrap().starts_with("GET /version "));
    // By the address of the Service, as a pod is told, and that needs no proxy.
    let variables = [("HTTPS_PROXY", &*proxy), ("NO_PROXY", "127.0.0.0/8")];
    let clients = Clients::from_config(&account(&at("https", server)), &under(&variables)).unwrap();
    assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"));
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn no_proxy_and_loopback_are_reached_directly_whatever_the_proxys_address_is() {
    let (authority, config) = self_signed();
    let (server, _requests) = api_server(config);
    for proxy in ["http://127.0.0.1:1", "http://me:se#cret@proxy"] {
        for no_proxy in ["127.0.0.1", ""] {
            let variables = [("HTTPS_PROXY", proxy), ("NO_PROXY", no_proxy)];
            let clients = clients(cluster(&authority, &at("https", server)), &variables).await.unwrap();
            assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"), "{variables:?}");
        }
    }
}

#[tokio::test]
async fn the_kubeconfigs_own_proxy_goes_first_and_heeds_no_variable() {
    let (authority, config) = self_signed();
    let (server, _requests) = api_server(config);
    let (proxy, heads) = http_proxy(Does::Connect(server));
    let mut cluster = cluster(&authority, &at("https", server));
    cluster["proxy-url"] = at("http", proxy).into();
    let clients = clients(cluster, &[("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")]).await.unwrap();
    assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"));
    assert!(heads.recv().unwrap().starts_with(&format!("CONNECT {server} ")));
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_with_its_answer_and_what_to_do() {
    for (answer, expected) in [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", "403 Forbidden; allow that host and port there"),
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "407 Proxy Authentication Required; give its address a user",
        ),
        ("HTTP/1.0 503 Service Unavailable\r\n\r\n", "503 Service Unavailable; allow"),
    ] {
        let (proxy, _heads) = http_proxy(Does::Say(answer));
        let variables = [("HTTPS_PROXY", &*format!("http://me:secret@{proxy}"))];
        let clients = clients(cluster(&self_signed().0, &format!("https://{NAME}:6443")), &variables).await.unwrap();
        let error = ask(&clients.work).await.unwrap_err();
        let named = format!("the proxy http://{proxy} (HTTPS_PROXY) refuses to connect to {NAME}:6443: {expected}");
        assert!(error.contains(&named) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_none_is_named() {
    // Kept, without a listener, so that no other test gets the port.
    let kept = tokio::net::TcpSocket::new_v4().unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = kept.local_addr().unwrap();
    let (mute, _heads) = http_proxy(Does::Say("SSH-2.0-OpenSSH\r\n"));
    for (proxy, expected) in [
        (closed, format!("cannot connect to the proxy http://{closed} (HTTPS_PROXY)")),
        (mute, format!("the proxy http://{mute} (HTTPS_PROXY) did not connect to {NAME}:443")),
    ] {
        let variables = [("HTTPS_PROXY", &*proxy.to_string())];
        let clients = clients(cluster(&self_signed().0, &format!("https://{NAME}")), &variables).await.unwrap();
        let error = ask(&clients.work).await.unwrap_err();
        assert!(error.contains(&expected), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_answer_has_as_long_as_a_connection_may_take() {
    let (proxy, _heads) = http_proxy(Does::Wait);
    let variables = [("HTTPS_PROXY", &*proxy.to_string())];
    let clients = clients(cluster(&self_signed().0, &format!("https://{NAME}")), &variables).await.unwrap();
    let error = ask(&clients.work).await.unwrap_err();
    let slow = format!("the proxy http://{proxy} (HTTPS_PROXY) has not connected to {NAME}:443 within 3s");
    assert!(error.contains(&slow), "{error}");
}

#[tokio::test]
async fn requests_to_an_http_server_go_to_the_proxy_itself() {
    let (proxy, heads) = http_proxy(Does::Serve);
    let variables = [("HTTP_PROXY", &*format!("http://me:secret@{proxy}")), ("HTTPS_PROXY", "http://127.0.0.1:1")];
    let clients = clients(json!({ "server": format!("http://{NAME}:8080") }), &variables).await.unwrap();
    assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"));
    let head = heads.recv().unwrap().to_lowercase();
    assert!(head.starts_with(&format!("get http://{NAME}:8080/version http/1.1\r\n")), "{head}");
    assert!(
        head.contains(&format!("\r\nproxy-authorization: basic {}\r\n", data("me:secret").to_lowercase())),
        "{head}"
    );
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name_and_chooses_whether_it_wants_the_password() {
    let (authority, config) = self_signed();
    let (server, _requests) = api_server(config);
    let to = format!("{NAME}:6443");
    for (login, chosen, expected) in [
        ("", 0, &["[0]", &*to][..]),
        ("me:s%40cret@", 0, &["[0, 2]", &*to]),
        ("me@", 0, &["[0, 2]", &*to]),
        ("me:s%40cret@", 2, &["[0, 2]", "me:s@cret", &*to]),
    ] {
        for scheme in ["socks5", "socks5h"] {
            let (proxy, told) = socks_proxy(server, chosen);
            // Both origins of an address.
            let url = format!("{scheme}://{login}{proxy}");
            let mut own = cluster(&authority, &format!("https://{NAME}:6443"));
            let of_variable = clients(own.clone(), &[("HTTPS_PROXY", &*url)]).await.unwrap();
            own["proxy-url"] = url.clone().into();
            for clients in [of_variable, clients(own, &[]).await.unwrap()] {
                assert_eq!(ask(&clients.work).await.as_deref(), Ok("ok"), "{url}");
                for expected in expected {
                    assert_eq!(told.recv().unwrap(), *expected, "{url}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_socks_proxy_that_refuses_is_named_with_what_it_wants_and_without_the_password() {
    for (login, chosen, expected) in [
        (
            "",
            2,
            "it accepts no client without a user and password: give its address both, as socks5://USER:PASSWORD@HOST:PORT",
        ),
        ("me:secret@", 2, "it does not accept the user and password of its address"),
        ("me@", 2, "it does not accept the user and password of its address"),
        ("me:secret@", 1, "it accepts neither a user and password nor a client without them"),
    ] {
        let (proxy, _told) = socks_proxy(SocketAddr::from(([127, 0, 0, 1], 1)), chosen);
        let variables = [("HTTPS_PROXY", &*format!("socks5://{login}{proxy}"))];
        let clients = clients(cluster(&self_signed().0, &format!("https://{NAME}")), &variables).await.unwrap();
        let error = ask(&clients.work).await.unwrap_err();
        let named = format!("the proxy socks5://{proxy} (HTTPS_PROXY) did not connect to {NAME}:443: {expected}");
        assert!(error.contains(&named) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_with_tls_is_trusted_as_the_server_is() {
    let (authority, config) = self_signed();
    let (proxy, heads) = https_proxy(config, "HTTP/1.1 403 Forbidden\r\n\r\n");
    for (trusted, expected) in [
        (authority, format!("the proxy https://{proxy} (HTTPS_PROXY) refuses to connect to {NAME}:443: 403 Forbidden")),
        (self_signed().0, format!("cannot connect to the proxy https://{proxy} (HTTPS_PROXY)")),
    ] {
        let variables = [("HTTPS_PROXY", &*at("https", proxy))];
        let clients = clients(cluster(&trusted, &format!("https://{NAME}")), &variables).await.unwrap();
        let error = ask(&clients.work).await.unwrap_err();
        assert!(error.contains(&expected), "{error}");
        let _ = heads.recv();
    }
}

#[tokio::test]
async fn a_proxy_url_that_is_no_proxy_is_an_error_and_a_variable_is_as_in_kubectl_none() {
    let server = format!("https://{NAME}");
    let mut own = cluster(&self_signed().0, &server);
    own["proxy-url"] = "ftp://me:secret@proxy".into();
    let error = error_chain(&clients(own, &[]).await.unwrap_err());
    assert_eq!(
        error,
        "cannot reach the Kubernetes API through a proxy: `proxy-url` of the kubeconfig names a proxy with the scheme `ftp`; \
         expected http, https or socks5"
    );
    let variables = [("HTTPS_PROXY", "http://me:secret@proxy:port")];
    assert!(clients(cluster(&self_signed().0, &server), &variables).await.is_ok());
}
