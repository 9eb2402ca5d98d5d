//! The HTTP server: a handful of read-only routes over any listener. Roles with a port of their own use it, too.
//!
//! Each connection is a named task with its own limits: the request's head must arrive in time, and the client must
//! read the answer in time. There are never more than a few dozen connections: a new one replaces the oldest. So
//! neither a scanner nor clients that never read can block the health endpoints for kubelet. After `stop`, no
//! connection is accepted, answers in flight are finished, and idle connections are closed.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::{Query, RawQuery, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use axum::{Json, Router};
use base64::Engine as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::board::Board;
use super::health::Check;
use super::page;
use crate::process::{TaskEnd, TaskFate, Tasks};
use crate::telemetry::{Meter, exposition, names};

/// The limits for clients.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at a time. A kubelet, a scraper and a few browsers need under ten.
    connections: usize,
    /// Limit for a request's head to arrive, and for an idle connection.
    head: Duration,
    /// After this time a connection takes no more requests, and the client must connect again.
    life: Duration,
    /// Limit for reading the last answer after that.
    answer: Duration,
}

const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(30),
    life: Duration::from_secs(60),
    answer: Duration::from_secs(30),
};
/// Limit for answers in flight after `stop`.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves the diagnostics until `stop`.
pub async fn serve<L>(listener: L, board: Board, meter: Meter, stop: CancellationToken)
where
    L: Listener,
{
    serve_within(LIMITS, listener, board, meter, stop).await;
}

async fn serve_within<L>(limits: Limits, listener: L, board: Board, meter: Meter, stop: CancellationToken)
where
    L: Listener,
{
    let router = router(board.clone(), meter.clone());
    serve_connections("diagnostics", limits, listener, router, board, meter, stop).await;
}

/// Serves these routes until `stop`, with the limits of the diagnostics. `name` is that of its tasks.
pub async fn serve_routes<L>(
    name: &'static str,
    listener: L,
    routes: Router,
    board: Board,
    meter: Meter,
    stop: CancellationToken,
) where
    L: Listener,
{
    serve_connections(name, LIMITS, listener, routes, board, meter, stop).await;
}

async fn serve_connections<L>(
    name: &'static str,
    limits: Limits,
    mut listener: L,
    router: Router,
    board: Board,
    meter: Meter,
    stop: CancellationToken,
) where
    L: Listener,
{
    let mut open: VecDeque<Open> = VecDeque::new();
    let (tasks, mut ends) = Tasks::new(name);
    let mut number = 0_u64;
    loop {
        let (io, _) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(end) = ends.next() => {
                ended(name, &end, &board, &meter);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        open.retain(|one| !one.gone.is_cancelled());
        if open.len() >= limits.connections
            && let Some(oldest) = open.pop_front()
        {
            oldest.cut.cancel();
        }
        number += 1;
        let one = Open::default();
        let connection = serve_connection(limits, io, router.clone(), stop.clone(), one.cut.clone());
        let gone = one.gone.clone().drop_guard();
        open.push_back(one);
        tasks.spawn_fallible(format_args!("connection.{number}"), async move {
            let result = connection.await;
            drop(gone);
            result
        });
    }
    drop(listener);
    let all_gone = async {
        for one in &open {
            one.gone.cancelled().await;
        }
    };
    if timeout(DRAIN, all_gone).await.is_err() {
        debug!(connections = tasks.running().len(), "cut off the connections that did not end");
    }
}

/// A connection, for the accepting task.
#[derive(Debug, Default)]
struct Open {
    /// Cancelled to end it at once.
    cut: CancellationToken,
    /// Cancelled once it has ended.
    gone: CancellationToken,
}

/// The end of a connection is normal, even with a client's error. A panic is our bug.
fn ended(name: &str, end: &TaskEnd, board: &Board, meter: &Meter) {
    if let TaskFate::Panicked(_) = end.fate {
        warn!(task = end.task, fate = %end.fate, "could not build an HTTP response");
        // Without the connection's number: a metric's labels are few.
        meter.counter(&names::TASK_FAILURES, &[("task", &format!("{name}.connection"))]).increment(1);
        board.task_failed(end);
    } else {
        debug!(task = end.task, fate = %end.fate, "a connection ended");
    }
}

async fn serve_connection<I>(
    limits: Limits,
    io: I,
    router: Router,
    stop: CancellationToken,
    cut: CancellationToken,
) -> Result<(), hyper::Error>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        biased;
        () = cut.cancelled() => return Ok(()),
        result = &mut connection => return result,
        () = stop.cancelled() => {}
        () = sleep(limits.life) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        () = cut.cancelled() => Ok(()),
        // A client that has not read the answer by then is cut off.
        result = timeout(limits.answer, connection) => result.unwrap_or(Ok(())),
    }
}

#[derive(Clone)]
struct Shown {
    board: Board,
    meter: Meter,
}

/// The routes. Anything but GET and HEAD is refused with 405.
fn router(board: Board, meter: Meter) -> Router {
    let policy = content_security_policy();
    Router::new()
        .route("/", get(status_page))
        .route("/status.json", get(status_json))
        .route("/metrics", get(metrics))
        .route(
            "/livez",
            get(|State(s): State<Shown>, RawQuery(query): RawQuery| async move { probe(&s.board.livez(), query) }),
        )
        .route(
            "/readyz",
            get(|State(s): State<Shown>, RawQuery(query): RawQuery| async move { probe(&s.board.readyz(), query) }),
        )
        .route(
            "/healthz/leader-election",
            get(|State(s): State<Shown>, RawQuery(query): RawQuery| async move { probe(&s.board.leases(), query) }),
        )
        .fallback(other_page)
        .layer(axum::middleware::map_response(move |response| std::future::ready(harden(response, &policy))))
        .with_state(Shown { board, meter })
}

/// The search.
#[derive(Debug, Default, Deserialize)]
struct Looking {
    #[serde(default)]
    find: String,
}

async fn status_page(State(shown): State<Shown>, looking: Query<Looking>) -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], page::render(&shown.board.report_on(&looking.find))).into_response()
}

async fn status_json(State(shown): State<Shown>, looking: Query<Looking>) -> Response {
    Json(shown.board.report_on(&looking.find)).into_response()
}

/// A role's page, if one has this path.
async fn other_page(State(shown): State<Shown>, request: Request) -> Response {
    match shown.board.find_page(request.uri().path()) {
        Some(page) => page.oneshot(request).await.into_response(),
        None => (StatusCode::NOT_FOUND, "not found\n").into_response(),
    }
}

async fn metrics(State(shown): State<Shown>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], exposition(&shown.meter)).into_response()
}

fn probe(check: &Check, query: Option<String>) -> Response {
    let verdict = check.answer(&query.unwrap_or_default());
    let status = if verdict.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], verdict.body).into_response()
}

/// Forbids to load, frame or send anything elsewhere; allows the one style and the one script by their hashes.
fn content_security_policy() -> HeaderValue {
    let hash = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        hash(page::STYLE),
        hash(page::SCRIPT)
    );
    // Base64 is always a valid header value; without it everything would be forbidden, styles too.
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

fn harden(mut response: Response, policy: &HeaderValue) -> Response {
    let fixed: [(HeaderName, HeaderValue); 4] = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed);
    headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
