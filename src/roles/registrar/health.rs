//! `/healthz` as node-driver-registrar has it, on a port of its own (node-and-health spec B5).

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::shown::Shown;
use super::{names, self_check};
use crate::csi::check_name;
use crate::process::error_chain;

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
