//! One request, from its head to its answer.
//!
//! The order is the real server's: authentication (401), authorization (403), existence (404, 405), and then the work.
//! So a client without the right does not learn what exists. Scripted faults come between authorization and work, as in
//! a real cluster.

mod accept;
mod document;
mod perform;
mod present;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Api;
use super::audit::UNANSWERED;
use super::auth::{Identity, forbidden, forbidden_document};
use super::call::{Call, Place};
use super::kubeconfig::TOKEN_PREFIX;
use super::pure::rejection::Rejection;
use super::pure::resources::Resource;
use super::pure::selector::{Fields, Labels};
use accept::negotiate;
use base::process::Tasks;
use present::refusal;

/// The largest body that is read, as in the real server.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// The connection is to be cut: there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
pub(crate) struct Cut;

/// The resources that a server's requests share.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// Where work goes on that outlives its request.
    pub(crate) tasks: Tasks,
    /// Ends watches.
    pub(crate) stopping: CancellationToken,
}

/// A request for objects, complete and permitted.
#[derive(Debug, Clone)]
struct Order {
    call: Arc<Call>,
    identity: Arc<Identity>,
    headers: HeaderMap,
    body: Bytes,
    /// The patch with which each object is shown.
    shown_with: Option<Arc<Value>>,
}

impl Order {
    /// The selectors of a list or watch.
    fn selectors(&self) -> Result<(Labels, Fields), Rejection> {
        let (resource, params): (&Resource, _) = (self.call.resource, &self.call.params);
        Ok((Labels::parse(&params.label_selector)?, Fields::parse(resource, &params.field_selector)?))
    }
}

/// Writes the audit log when the request is over, however that comes.
struct Record {
    api: Api,
    order: Order,
    /// The request's place in the order of arrivals and answers.
    arrival: u64,
    code: u16,
}

impl Drop for Record {
    fn drop(&mut self) {
        let body = self.order.call.writes().then(|| perform::sent(&self.order)).flatten();
        let (time, user) = (self.api.0.clock.wall(), &self.order.identity.user);
        self.api.audit().record(self.arrival, time, user, &self.order.call, self.code, body.as_ref());
    }
}

/// Answers one request, or has its connection cut.
pub(crate) async fn handle<B>(api: Api, request: Request<B>, surroundings: Surroundings) -> Result<Response<Body>, Cut>
where
    B: hyper::body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut head, body) = request.into_parts();
    let token = take_token(&mut head);
    let mut order = match admit(&api, &head, token, body).await {
        Ok(Some(order)) => order,
        Ok(None) => return Ok(document::answer_document(&api.served(), &head)),
        Err(rejection) => return Ok(refusal(&rejection, None)),
    };
    let plan =
        api.faults().plan(&order.call, &order.identity.user, std::str::from_utf8(&order.body).unwrap_or_default());
    if plan.pretend
        && let Some(call) = Arc::get_mut(&mut order.call)
    {
        call.params.dry_run = true;
    }
    order.shown_with = plan.show.map(Arc::new);
    let arrival = api.audit().arrival();
    let mut record = Record { api: api.clone(), order: order.clone(), arrival, code: UNANSWERED };
    if plan.compact {
        api.compact();
    }
    if plan.cut_before || plan.refuse.is_some() {
        tokio::time::sleep(plan.before).await;
    }
    if plan.cut_before {
        return Err(Cut);
    }
    let mut response = match plan.refuse {
        Some(rejection) => refusal(&rejection, None),
        None if plan.before.is_zero() && plan.held_by.is_empty() => perform::perform(&api, &order, &surroundings).await,
        None => {
            let (api, order, surroundings) = (api.clone(), order.clone(), surroundings.clone());
            let (delay, held_by) = (plan.before, plan.held_by);
            let (sender, receiver) = oneshot::channel();
            let tasks = surroundings.tasks.clone();
            // A client that gives up does not stop its request.
            tasks.spawn("late request", async move {
                tokio::time::sleep(delay).await;
                api.faults().removed(&held_by).await;
                // No one waits for it any more: it is done all the same.
                let _ = sender.send(perform::perform(&api, &order, &surroundings).await);
            });
            receiver.await.map_err(|_| Cut)?
        }
    };
    if let Some(with) = plan.smear.filter(|_| response.status().is_success()) {
        perform::smear(&api, &order, &with);
    }
    if !plan.after.is_zero() {
        tokio::time::sleep(plan.after).await;
    }
    if plan.cut_after {
        return Err(Cut);
    }
    if let Some(rejection) = plan.refuse_after {
        response = refusal(&rejection, None);
    }
    record.code = response.status().as_u16();
    Ok(response)
}

/// The user, the access and the verdict on it. `None`: the request is for a document.
async fn admit<B>(api: &Api, head: &Parts, token: Option<String>, body: B) -> Result<Option<Order>, Rejection>
where
    B: hyper::body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let identity = api.identify(token.as_deref())?;
    let asked = Call::parse(&head.method, &head.uri);
    let Some(place) = Place::of(head.uri.path()) else {
        let (verb, path) = (head.method.as_str().to_ascii_lowercase(), head.uri.path());
        let may = identity.may_read(&verb, path);
        return if may { Ok(None) } else { Err(forbidden_document(&identity, &verb, path)) };
    };
    let known = asked.as_ref().ok().and_then(Option::as_ref);
    let access = place.access(&head.method, &head.uri, known);
    if !identity.may(&access) {
        let rejection = forbidden(&identity, &access);
        if let Some(call) = known {
            let (arrival, time) = (api.audit().arrival(), api.0.clock.wall());
            api.audit().record(arrival, time, &identity.user, call, rejection.code, None);
        }
        return Err(rejection);
    }
    let Some(call) = asked? else { return Ok(None) };
    if !api.serves(call.resource) {
        return Err(Rejection::group_not_found());
    }
    let body = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(Rejection::request_too_large(LARGEST_BODY)),
        Err(error) => return Err(Rejection::bad_request(error.to_string())),
    };
    let (call, identity, headers) = (Arc::new(call), Arc::new(identity), head.headers.clone());
    Ok(Some(Order { call, identity, headers, body, shown_with: None }))
}

/// Takes the token out of the request: from `Authorization`, or from a path that begins with [`TOKEN_PREFIX`].
fn take_token(head: &mut Parts) -> Option<String> {
    let bearer = head.headers.remove(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let whole = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let Some((token, rest)) = whole.strip_prefix(TOKEN_PREFIX).and_then(|whole| whole.split_once('/')) else {
        return bearer;
    };
    let token = token.to_owned();
    // A path without its prefix is still a path.
    if let Ok(uri) = format!("/{rest}").parse() {
        head.uri = uri;
    }
    bearer.or(Some(token))
}
