//! `/healthz` as node-driver-registrar has it, on a port of its own (node-and-health spec B5).
//!
//! The registration does not depend on the port: an address that is taken is tried again, and the kubelet has the driver meanwhile.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::config::RegistrarSection;
use super::shown::Shown;
use super::{NAME, names, self_check};
use crate::csi::check_name;
use crate::diagnostics::serve_routes;
use crate::process::{error_chain, listen, watch};
use crate::roles::LocalContext;

/// The pause before an address that is taken is tried again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Answers where the section says, and nowhere if it says nothing. Never returns: the registration's own end comes with `stop`.
pub(super) async fn serve(
    cx: &LocalContext,
    mut sections: watch::Receiver<RegistrarSection>,
    shown: &Shown,
    stop: &CancellationToken,
) {
    loop {
        let wanted = sections.borrow_and_update().health_listen;
        let changes = async {
            while sections.borrow_and_update().health_listen == wanted {
                if sections.changed().await.is_err() {
                    return pending().await;
                }
            }
        };
        shown.change(|shown| shown.health = None);
        let serving = async {
            match wanted {
                Some(address) => serve_at(cx, address, shown, stop).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changes => {}
            () = serving => {}
        }
    }
}

async fn serve_at(cx: &LocalContext, address: SocketAddr, shown: &Shown, stop: &CancellationToken) {
    let listener = listen_at_last(address, shown).await;
    // Port 0 is any free one.
    let bound = listener.local_addr().unwrap_or(address);
    info!(address = %bound, "answering probes of the registration");
    shown.change(|shown| shown.health = Some(bound.to_string()));
    serve_routes(NAME, listener, routes(shown.clone()), cx.board.clone(), cx.meter.clone(), stop.clone()).await;
    pending::<()>().await;
}

/// Listens as soon as the address is free. Only another reason is another line in the log.
async fn listen_at_last(address: SocketAddr, shown: &Shown) -> tokio::net::TcpListener {
    let (mut pause, mut told) = (FIRST_PAUSE, None::<ErrorKind>);
    loop {
        let error: io::Error = match listen(address).await {
            Ok(listener) => return listener,
            Err(error) => error,
        };
        if told.replace(error.kind()) != Some(error.kind()) {
            warn!(
                %address,
                error = error_chain(&error),
                "cannot listen on roles.registrar.healthListen: trying again; the registration goes on without it"
            );
        }
        shown.change(|shown| shown.health = Some(format!("cannot listen on {address}: {error}")));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The one page.
pub(super) fn routes(shown: Shown) -> Router {
    Router::new().route(names::HEALTH, get(answer)).with_state(shown)
}

async fn answer(State(shown): State<Shown>) -> Response {
    let Some(path) = shown.path() else {
        return (StatusCode::NOT_FOUND, "registration socket does not exist").into_response();
    };
    match judge(&path).await {
        Ok(()) => "ok".into_response(),
        Err((status, why)) => (status, why).into_response(),
    }
}

async fn judge(path: &Path) -> Result<(), (StatusCode, String)> {
    let bad = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(bad(format!("{} is not a socket", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err((StatusCode::NOT_FOUND, "registration socket does not exist".to_owned()));
        }
        Err(error) => return Err(bad(error.to_string())),
    }
    let info = self_check::ask(path).await.map_err(|error| bad(error_chain(&error)))?;
    check_name(&info.name).map_err(|_| bad(format!("invalid driver name {}", info.name)))
}
