//! The listener, its one page, and what the status page shows.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::info;

use super::NAME;
use super::checks::Checks;
use super::config::LivenessSection;
use crate::config::RoleSection;
use crate::csi::check_name;
use crate::diagnostics::{Age, Fact, serve_routes};
use crate::process::{listen, watch};
use crate::roles::{LocalContext, LocalRole, RoleError};

/// The role.
#[derive(Debug)]
pub(super) struct Liveness {
    /// The section in effect. It changes while the role is served, because a probe that meets a closed port is a failed one (L13).
    section: watch::Sender<LivenessSection>,
}

impl Liveness {
    pub(super) fn new(section: LivenessSection) -> Self {
        Self { section: watch::Sender::new(section) }
    }
}

/// Pause between two attempts to learn the driver's name, which only metrics need.
const NAME_PAUSE: Duration = Duration::from_secs(10);

impl LocalRole for Liveness {
    fn serve<'a>(&'a self, cx: &'a LocalContext, stop: CancellationToken) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let mut section = self.section.subscribe();
            let wanted = section.borrow_and_update().listen;
            let checks = Checks::new(cx.clone(), section.clone());
            let page = Page { section: section.clone(), checks: checks.clone() };
            let name = async {
                learn_name(cx, &self.section).await;
                pending::<()>().await;
            };
            if let Some(address) = cx.diagnostics.filter(|taken| is_same(wanted, *taken)) {
                let _shown = shown(cx, checks, address);
                let follow = follow_path(section, |path| {
                    info!(%address, path, "answering the kubelet's probe of the driver, beside the diagnostics");
                    cx.board.page(path, page.clone().routes())
                });
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = follow => {}
                    () = name => {}
                }
                return Ok(());
            }
            let failed = |source| RoleError::Listen { address: wanted, source };
            let listener = listen(wanted).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let _shown = shown(cx, checks, address);
            let follow = follow_path(section, |path| {
                info!(%address, path, "answering the kubelet's probe of the driver");
            });
            tokio::select! {
                biased;
                () = serve_routes(NAME, listener, page.routes(), cx.board.clone(), cx.meter.clone(), stop) => {}
                () = follow => {}
                () = name => {}
            }
            Ok(())
        }
        .boxed()
    }

    /// The listener is kept; another address is another listener.
    fn take_over(&self, section: &Value) -> bool {
        let Ok(section) = RoleSection::read::<LivenessSection>(section) else { return false };
        let keeps_listener = section.listen == self.section.borrow().listen;
        if keeps_listener {
            self.section.send_replace(section);
        }
        keeps_listener
    }
}

/// Tells of the path now, and of each other one from then on, and keeps what came of it until the next is there. Never returns.
async fn follow_path<T>(mut section: watch::Receiver<LivenessSection>, mut tell: impl FnMut(&str) -> T) {
    let mut path = section.borrow_and_update().path.clone();
    let mut kept = tell(&path);
    loop {
        if section.changed().await.is_err() {
            return pending().await;
        }
        let now = section.borrow_and_update().path.clone();
        if now != path {
            drop(std::mem::replace(&mut kept, tell(&now)));
            path = now;
        }
    }
}

/// The one page, where the section says at the moment of the request.
#[derive(Debug, Clone)]
struct Page {
    section: watch::Receiver<LivenessSection>,
    checks: Checks,
}

impl Page {
    fn routes(self) -> Router {
        Router::new().fallback(at_path).with_state(self)
    }
}

async fn at_path(State(page): State<Page>, request: Request) -> Response {
    if request.uri().path() != page.section.borrow().path {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    }
    get(answer).with_state::<()>(page.checks).oneshot(request).await.into_response()
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

/// Shows the last check on the status page, and why it failed: with its age, because nobody may have asked since.
fn shown(cx: &LocalContext, checks: Checks, address: SocketAddr) -> [crate::diagnostics::Registered; 2] {
    let failed = checks.clone();
    let failure = cx.board.failure(NAME, move || {
        let (finding, age) = failed.last().filter(|(finding, _)| !finding.is_healthy())?;
        Some(format!("at the last check, {} ago: {}", Age(age), finding.body()))
    });
    let facts = cx.board.facts(NAME, move || {
        let last = checks.last();
        let driver = match &last {
            None => "not asked yet",
            Some((finding, _)) if finding.is_healthy() => "healthy",
            Some(_) => "not healthy",
        };
        let mut facts = vec![Fact::new("listening on", address.to_string()), Fact::new("driver", driver)];
        facts.extend(last.map(|(_, age)| Fact::new("last check", format!("{} ago", Age(age)))));
        facts
    });
    [facts, failure]
}

/// Asks for the driver's name until metrics have it. No answer to the kubelet needs it (node-and-health spec A2).
async fn learn_name(cx: &LocalContext, section: &watch::Sender<LivenessSection>) {
    while !cx.driver.knows_name() {
        let limit = section.borrow().probe_timeout;
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
