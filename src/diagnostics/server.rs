//! The HTTP server: a handful of read-only routes over any listener.
//!
//! Each connection is a named task with limits of its own: its head must arrive in time, and there are never more than a
//! few dozen connections. So a scanner or a stuck client can't take the health endpoints from the kubelet for long. After
//! `stop`, no connection is accepted, answers in flight are finished, and idle connections are closed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, RawQuery, State};
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
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::board::Board;
use super::health::Check;
use super::page;
use crate::process::{TaskEnd, TaskFate, Tasks};
use crate::telemetry::{Meter, exposition, names};

/// Connections at a time. A kubelet, a scraper and a few browsers need under ten.
const CONNECTIONS: usize = 64;
/// For a request's head to arrive, and for a kept connection to stay idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// For answers in flight to finish after `stop`.
const DRAIN: Duration = Duration::from_secs(3);

/// Why the server has no address to listen on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    /// As configured.
    pub address: String,
    #[source]
    source: io::Error,
}

/// Listens on `address`, such as `0.0.0.0:8080`.
pub async fn listen(address: &str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address: address.to_owned(), source })
}

/// Serves until `stop`.
pub async fn serve<L>(mut listener: L, board: Board, meter: Meter, stop: CancellationToken)
where
    L: Listener,
{
    let router = router(board.clone(), meter.clone());
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let (tasks, mut ends) = Tasks::new("diagnostics");
    let mut number = 0_u64;
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await.0, permit)
        };
        let (io, permit) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(end) = ends.next() => {
                ended(&end, &board, &meter);
                continue;
            }
            accepted = accepted => accepted,
        };
        number += 1;
        let connection = serve_connection(io, router.clone(), stop.clone());
        tasks.spawn_fallible(format_args!("connection.{number}"), async move {
            let result = connection.await;
            drop(permit);
            result
        });
    }
    drop(listener);
    // Every connection has a permit: all permits at once means that no connection is left.
    let everyone = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    if tokio::time::timeout(DRAIN, permits.acquire_many(everyone)).await.is_err() {
        debug!(connections = tasks.running().len(), "cut off the connections that did not end");
    }
}

/// A connection that ends, even in an error of its client's making, is nothing special. A panic is a fault of ours.
fn ended(end: &TaskEnd, board: &Board, meter: &Meter) {
    if let TaskFate::Panicked(_) = end.fate {
        warn!(task = end.task, fate = %end.fate, "an answer could not be made");
        // Without the connection's number: a metric's labels are few.
        meter.counter(&names::TASK_FAILURES, &[("task", "diagnostics.connection")]).increment(1);
        board.task_failed(end);
    } else {
        debug!(task = end.task, fate = %end.fate, "a connection ended");
    }
}

async fn serve_connection<I>(io: I, router: Router, stop: CancellationToken) -> Result<(), hyper::Error>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        biased;
        result = &mut connection => return result,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
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
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found\n") })
        .layer(axum::middleware::map_response(move |response| std::future::ready(harden(response, &policy))))
        .with_state(Shown { board, meter })
}

/// What is looked for.
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

async fn metrics(State(shown): State<Shown>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], exposition(&shown.meter)).into_response()
}

fn probe(check: &Check, query: Option<String>) -> Response {
    let verdict = check.answer(&query.unwrap_or_default());
    let status = if verdict.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], verdict.body).into_response()
}

/// Nothing may be loaded, framed or sent elsewhere; the one style and the one script are known by their hashes.
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
