//! The listener, its one page, and what the status page shows.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::NAME;
use super::checks::Checks;
use super::config::LivenessSection;
use crate::csi::check_name;
use crate::diagnostics::{Age, Fact, serve_routes};
use crate::process::listen;
use crate::roles::{LocalContext, LocalRole, RoleError};

/// The role.
#[derive(Debug)]
pub(super) struct Liveness {
    pub(super) section: LivenessSection,
}

/// Pause between two attempts to learn the driver's name, which only metrics need.
const NAME_PAUSE: Duration = Duration::from_secs(10);

impl LocalRole for Liveness {
    fn serve<'a>(&'a self, cx: &'a LocalContext, stop: CancellationToken) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let LivenessSection { listen: wanted, path, probe_timeout } = &self.section;
            let checks = Checks::new(cx.clone(), *probe_timeout);
            let routes = routes(path, checks.clone());
            let name = async {
                learn_name(cx, *probe_timeout).await;
                std::future::pending::<()>().await;
            };
            if let Some(address) = cx.diagnostics.filter(|taken| is_same(*wanted, *taken)) {
                let _page = cx.board.page(path, routes);
                let _shown = shown(cx, checks, address);
                info!(%address, path, "answering the kubelet's probe of the driver, beside the diagnostics");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = name => {}
                }
                return Ok(());
            }
            let failed = |source| RoleError::Listen { address: *wanted, source };
            let listener = listen(*wanted).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let _shown = shown(cx, checks, address);
            info!(%address, path, "answering the kubelet's probe of the driver");
            tokio::select! {
                biased;
                () = serve_routes(NAME, listener, routes, cx.board.clone(), cx.meter.clone(), stop) => {}
                () = name => {}
            }
            Ok(())
        }
        .boxed()
    }
}

/// The one page.
fn routes(path: &str, checks: Checks) -> Router {
    Router::new().route(path, get(answer)).with_state(checks)
}

async fn answer(State(checks): State<Checks>) -> Response {
    let finding = checks.answer().await;
    let status = StatusCode::from_u16(finding.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (status, headers, finding.body()).into_response()
}

/// Whether both addresses need the same port of the same machine: then the diagnostics have it, and ours is a page of theirs.
fn is_same(wanted: SocketAddr, taken: SocketAddr) -> bool {
    let (one, other) = (wanted.ip(), taken.ip());
    wanted.port() == taken.port() && (one == other || one.is_unspecified() || other.is_unspecified())
}

/// Shows the last check on the status page.
fn shown(cx: &LocalContext, checks: Checks, address: SocketAddr) -> crate::diagnostics::Registered {
    cx.board.facts(NAME, move || {
        let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
        let last = checks.last();
        let driver = last.as_ref().map_or_else(|| "not asked yet".to_owned(), |(finding, _)| finding.body());
        let mut facts = vec![fact("listening on", address.to_string()), fact("driver", driver)];
        facts.extend(last.map(|(_, age)| fact("last check", format!("{} ago", Age(age)))));
        facts
    })
}

/// Asks for the driver's name until metrics have it. No answer to the kubelet needs it (node-and-health spec A2).
async fn learn_name(cx: &LocalContext, limit: Duration) {
    while !cx.driver.knows_name() {
        if let Ok(link) = cx.driver.connect(limit).await
            && let Ok(name) = link.name(limit).await
            && check_name(&name).is_ok()
        {
            return cx.driver.note_name(&name);
        }
        sleep(NAME_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_of_one_machine_is_shared_and_others_are_not() {
        let same = |one: &str, other: &str| is_same(one.parse().unwrap(), other.parse().unwrap());
        assert!(same("[::]:8080", "0.0.0.0:8080") && same("127.0.0.1:8080", "[::]:8080"));
        assert!(same("10.0.0.1:8080", "10.0.0.1:8080"));
        assert!(!same("[::]:9808", "0.0.0.0:8080") && !same("10.0.0.1:8080", "10.0.0.2:8080"));
    }
}
