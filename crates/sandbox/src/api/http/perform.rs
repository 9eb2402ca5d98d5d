//! Performs the verbs.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::accept::View;
use super::present::{Presenter, json_answer, refusal};
use super::{Order, Surroundings, negotiate, watch};
use crate::api::Api;
use crate::api::auth::review;
use crate::api::params::{self, Match, Version};
use crate::api::pure::patch::PatchKind;
use crate::api::pure::protobuf;
use crate::api::pure::rejection::Rejection;
use crate::api::pure::strict::{Directive, Dropped};
use crate::api::pure::validate;
use crate::api::store::{At, Continue, ListQuery, ListRefusal, Listed, Preconditions, Target, WriteOptions, meta};

/// Body types that are read.
const BODIES: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Does what the order says and answers.
pub(super) async fn perform(api: &Api, order: &Order, surroundings: &Surroundings) -> Response<Body> {
    let accept = order.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let view = match negotiate(accept) {
        Ok(view) => view,
        Err(rejection) => return refusal(&rejection, None),
    };
    let call = &order.call;
    let presenter = Presenter {
        view,
        resource: call.resource,
        include: call.params.include,
        headers: true,
        now: api.0.clock.wall(),
        with: order.shown_with.clone(),
    };
    let done = match call.verb {
        "get" => get(api, order, &presenter).await.map_err(Into::into),
        "list" => list(api, order, &presenter).await,
        "watch" => watch::start(api, order, presenter, surroundings).await.map_err(Into::into),
        "create" => create(api, order, &presenter).map_err(Into::into),
        "update" => update(api, order, &presenter).map_err(Into::into),
        "patch" => patch(api, order, &presenter).map_err(Into::into),
        "delete" => delete(api, order, &presenter).map_err(Into::into),
        _ => delete_collection(api, order, &presenter),
    };
    done.unwrap_or_else(|refused| refusal(&refused.rejection, refused.next.as_deref()))
}

/// Merges the order's object with more, in the same name.
pub(super) fn smear(api: &Api, order: &Order, with: &Value) {
    // An object that has gone meanwhile is skipped.
    let (body, mut unheard) = (with.to_string(), Dropped::new(Directive::Ignore));
    let _ = api.state().patch(target(order), &PatchKind::Merge, body.as_bytes(), options(order), &mut unheard);
}

async fn get(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, Rejection> {
    let call = &order.call;
    if let Version::At(version) = call.params.version {
        api.reach(version).await?;
    }
    let object = api.state().get(call.resource, &call.namespace, &call.name);
    let object = object.ok_or_else(|| Rejection::not_found(call.resource, &call.name))?;
    Ok(shown(StatusCode::OK, presenter, &object))
}

async fn list(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, ListRefusal> {
    let call = &order.call;
    let (labels, fields) = order.selectors()?;
    let params = &call.params;
    let mut query = ListQuery {
        resource: call.resource,
        namespace: &call.namespace,
        labels: &labels,
        fields: &fields,
        at: At::Latest,
        after: None,
        limit: params.limit,
    };
    let token;
    if params.continue_token.is_empty() {
        match (params.version, params.version_match) {
            (Version::Unset, _) => {}
            // The real server answers from its watch cache without the limit.
            (Version::Any, _) => query.limit = 0,
            (Version::At(version), wanted) => {
                api.reach(version).await?;
                if wanted == Some(Match::Exact) || (wanted.is_none() && params.limit > 0) {
                    query.at = At::Exactly(version);
                }
            }
        }
    } else {
        token = Continue::decode(&params.continue_token)
            .ok_or_else(|| Rejection::bad_request("invalid continue token: continue key is not valid"))?;
        query.after = Some(&token.after);
        if let Some(version) = token.version {
            query.at = At::Exactly(version);
            if version > api.version() {
                return Err(Rejection::bad_request(
                    "invalid continue token: continue key is not valid: it is of the future",
                )
                .into());
            }
        }
    }
    let listed = api.state().list(&query)?;
    Ok(presenter.many(&listed))
}

fn create(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, Rejection> {
    let call = &order.call;
    let object = body(order)?;
    if !call.resource.is_stored() {
        let answer = review(call.resource, &order.identity, object)
            .ok_or_else(|| Rejection::bad_request("the question is not an object"))?;
        return Ok(json_answer(StatusCode::CREATED, &answer));
    }
    let dropped = told(order, &object)?;
    let object = api.state().create(target(order), object, options(order))?;
    Ok(warned(shown(StatusCode::CREATED, presenter, &object), &dropped))
}

fn update(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, Rejection> {
    let object = body(order)?;
    let dropped = told(order, &object)?;
    let (object, created) = api.state().update(target(order), object, options(order))?;
    Ok(warned(shown(made(created), presenter, &object), &dropped))
}

fn patch(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, Rejection> {
    let params = &order.call.params;
    let kind = match media_type(order) {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" if order.call.resource.optional => {
            return Err(Rejection::unsupported_patch_of_installed());
        }
        "application/strategic-merge-patch+json" => PatchKind::Strategic,
        "application/apply-patch+yaml" => {
            let manager = params.field_manager.clone().ok_or_else(manager_required)?;
            PatchKind::Apply { manager, force: params.force }
        }
        _ => return Err(Rejection::unsupported_patch_type()),
    };
    let mut dropped = Dropped::new(params.validation);
    let (object, created) = api.state().patch(target(order), &kind, &order.body, options(order), &mut dropped)?;
    Ok(warned(shown(made(created), presenter, &object), &dropped))
}

/// The fields of an object that will be dropped. A body in protobuf has none that its reader does not know.
fn told(order: &Order, object: &Value) -> Result<Dropped, Rejection> {
    let (resource, directive) = (order.call.resource, order.call.params.validation);
    let mut dropped = Dropped::new(directive);
    let looked = match media_type(order) {
        protobuf::MEDIA_TYPE => Ok(()),
        "application/yaml" => dropped.in_body(resource, object.to_string().as_bytes()),
        _ => dropped.in_body(resource, &order.body),
    };
    // A member of the wrong type is the worse fault.
    looked.map_err(|refusal| validate::decodes(resource, object).err().unwrap_or(refusal))?;
    Ok(dropped)
}

/// An answer with a warning for each field that was dropped.
fn warned(mut answer: Response<Body>, dropped: &Dropped) -> Response<Body> {
    for warning in dropped.warnings() {
        let text = warning.replace('\\', r"\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    answer
}

fn delete(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, Rejection> {
    let call = &order.call;
    let (preconditions, options) = delete_options(order)?;
    let deleted = api.state().delete(target(order), &preconditions, options)?;
    if !deleted.gone || meta::returns_deleted(call.resource) {
        return Ok(shown(StatusCode::OK, presenter, &deleted.object));
    }
    let mut details =
        json!({"name": call.name, "kind": call.resource.plural, "uid": meta::text(&deleted.object, "uid")});
    if !call.resource.group.is_empty() {
        details["group"] = call.resource.group.into();
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(json_answer(StatusCode::OK, &status))
}

fn delete_collection(api: &Api, order: &Order, presenter: &Presenter) -> Result<Response<Body>, ListRefusal> {
    let call = &order.call;
    let (labels, fields) = order.selectors()?;
    let (preconditions, options) = delete_options(order)?;
    let mut state = api.state();
    // The answer is the list as it was before.
    let version = state.version();
    let objects =
        state.matching(call.resource, &call.namespace, |object| labels.matches(object) && fields.matches(object));
    let mut deleted: Vec<Arc<Value>> = Vec::new();
    for object in objects {
        let (namespace, name) = (meta::text(&object, "namespace"), meta::text(&object, "name"));
        let target = Target { resource: call.resource, namespace, name };
        let done = state.delete(target, &preconditions, options)?;
        deleted.push(if done.gone { object } else { done.object });
    }
    let listed = Listed { objects: deleted, version, next: None, remaining: None };
    drop(state);
    Ok(presenter.many(&listed))
}

fn made(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

fn shown(code: StatusCode, presenter: &Presenter, object: &Value) -> Response<Body> {
    match (presenter.view, &presenter.with) {
        (View::Full, None) => json_answer(code, object),
        _ => json_answer(code, &presenter.one(object)),
    }
}

fn target(order: &Order) -> Target<'_> {
    Target { resource: order.call.resource, namespace: &order.call.namespace, name: &order.call.name }
}

fn options(order: &Order) -> WriteOptions<'_> {
    WriteOptions {
        dry_run: order.call.params.dry_run,
        status: order.call.subresource == "status",
        actor: &order.identity.user,
        manager: order.call.params.field_manager.as_deref().unwrap_or_else(|| agent(order)),
        applied: false,
    }
}

/// The field manager of a client that names none: the program in its `User-Agent`.
fn agent(order: &Order) -> &str {
    let agent = order.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    agent.split('/').next().filter(|program| !program.is_empty()).unwrap_or("unknown")
}

fn media_type(order: &Order) -> &str {
    let value = order.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// What a write sent, for the audit log: a patch as it came, an object as it was read.
pub(super) fn sent(order: &Order) -> Option<Value> {
    if order.call.verb == "patch" { serde_json::from_slice(&order.body).ok() } else { body(order).ok() }
}

fn body(order: &Order) -> Result<Value, Rejection> {
    match media_type(order) {
        "" | "application/json" => serde_json::from_slice(&order.body).map_err(|error| undecodable(order, &error)),
        "application/yaml" => serde_yaml::from_slice(&order.body).map_err(|error| undecodable(order, &error)),
        protobuf::MEDIA_TYPE => protobuf::decode(&order.body).map_err(|error| undecodable(order, &error)),
        _ => Err(Rejection::unsupported_media_type(&BODIES)),
    }
}

fn undecodable(order: &Order, error: &dyn std::fmt::Display) -> Rejection {
    Rejection::undecodable(order.call.resource, error)
}

/// `DeleteOptions`, from the body if there is one.
fn delete_options(order: &Order) -> Result<(Preconditions, WriteOptions<'_>), Rejection> {
    let mut options = options(order);
    if order.body.is_empty() {
        return Ok((Preconditions::default(), options));
    }
    let body = body(order)?;
    let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
    if let Some(dry_run) = body.pointer("/dryRun/0").and_then(Value::as_str) {
        options.dry_run = params::dry_run(dry_run)?;
    }
    if let Some(policy) = text("/propagationPolicy").or_else(|| order.call.params.propagation.clone())
        && !["Background", "Foreground", "Orphan"].contains(&policy.as_str())
    {
        return Err(Rejection {
            code: 422,
            reason: "Invalid",
            message: format!(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"{policy}\": supported \
                 values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            ),
            details: Some(json!({"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": [{
                "field": "propagationPolicy",
                "message": format!(
                    "Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                ),
                "reason": "FieldValueNotSupported",
            }]})),
            retry_after: None,
        });
    }
    let preconditions =
        Preconditions { uid: text("/preconditions/uid"), version: text("/preconditions/resourceVersion") };
    Ok((preconditions, options))
}

fn manager_required() -> Rejection {
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    let cause = json!({"field": "fieldManager", "message": "Required value: is required for apply patch",
        "reason": "FieldValueRequired"});
    let details = json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]});
    Rejection { code: 422, reason: "Invalid", message: message.to_owned(), details: Some(details), retry_after: None }
}
