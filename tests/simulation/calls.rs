//! The checks of every call to the driver: I1, I2, I8, I9. The checks of calls that create volumes are in `supply`.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Call, Method, Outcome, State};
use tonic::Code;

use crate::invariants::Invariant;
use crate::model::{CALM, Live, Model, Place, Streak};
use crate::supply;
use crate::world::{BACKOFF, NODE_ID, attachment_of, is_deleting, is_guarded, text};

/// Deletions this old are known to every daemon in calm times.
const KNOWN: Duration = Duration::from_secs(3);

/// A call arrived, was applied, or ended.
pub(crate) fn on_call(model: &mut Model, call: &Call, state: &State) {
    if let Some(volume) = &call.volume {
        model.see_published(volume, state);
    }
    model.see_volumes(state);
    if call.ended.is_some() {
        ended(model, call, state);
    } else if call.applied.is_none() {
        arrived(model, call);
    } else {
        let (id, method) = (call.id, call.method);
        model.trace.note("driver", format_args!("#{id} {method} is done"));
    }
}

fn place(call: &Call) -> Option<Place> {
    let mutating = matches!(call.method, Method::ControllerPublishVolume | Method::ControllerUnpublishVolume);
    mutating.then(|| (call.volume.clone().unwrap_or_default(), call.node.clone().unwrap_or_default()))
}

fn arrived(model: &mut Model, call: &Call) {
    if call.method == Method::Probe {
        model.probed_at = Some(model.now());
    }
    let caller = model.caller(call);
    let (id, method) = (call.id, call.method);
    let subject = [call.name.as_deref(), call.volume.as_deref(), call.node.as_deref()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" on ");
    model.trace.note(&caller, format_args!("#{id} {method} {subject}"));
    let place = place(call);
    if matches!(method, Method::CreateVolume | Method::DeleteVolume | Method::GetCapacity) {
        supply::arrived(model, call, &caller);
        if method != Method::GetCapacity {
            begins(model, call, &caller);
        }
        return;
    }
    if place.is_none() && method != Method::ListVolumes {
        return;
    }
    if !model.is_led_by(&caller) && !model.is_confused() {
        let holder = model.holder();
        model.trace.violate(Invariant::I8, format_args!("{caller} calls {method} while {holder:?} holds the lease"));
    }
    begins(model, call, &caller);
    let Some(place) = place else { return };
    if method == Method::ControllerPublishVolume {
        may_publish(model, call, &place);
        in_time(model, &place);
        model.tallies.entry(place).or_default().last_publish = Some(id);
    } else {
        model.streaks.remove(&place);
    }
}

/// A call runs that no other may meet.
fn begins(model: &mut Model, call: &Call, caller: &str) {
    let subject = model.subject(call);
    overlap(model, call, subject.as_deref(), caller);
    let live = Live { method: call.method, volume: subject, caller: caller.to_owned(), deadline: call.deadline };
    model.live.insert(call.id, live);
}

/// I1: one mutating call per volume, and one listing at a time.
fn overlap(model: &Model, call: &Call, subject: Option<&str>, caller: &str) {
    let waits = |live: &Live| live.deadline.is_none_or(|deadline| call.started < deadline);
    let met = model.live.iter().find(|(_, live)| {
        waits(live)
            && if call.method == Method::ListVolumes {
                live.method == Method::ListVolumes && live.caller == caller
            } else {
                live.method != Method::ListVolumes && live.volume.as_deref() == subject
            }
    });
    if let Some((running, live)) = met {
        // A daemon that lost the Lease in a cut network cannot tell the driver that it no longer waits.
        if live.caller == caller || (model.is_calm() && !model.is_confused()) {
            let (id, method, other) = (call.id, call.method, live.method);
            model
                .trace
                .violate(Invariant::I1, format_args!("#{id} {method} came while #{running} {other} was running"));
        }
    }
}

/// I2: our finalizer and the node's id are durable before a publish.
fn may_publish(model: &mut Model, call: &Call, place: &Place) {
    let (handle, node) = place;
    let name = attachment_of(handle, node);
    let fault = match model.attachments.get(&name) {
        None => Some(format!("volumeattachment {name} does not exist")),
        Some(object) if !is_guarded(object) => Some(format!("volumeattachment {name} lacks the finalizer")),
        Some(object)
            if object.pointer("/metadata/annotations").and_then(|all| all.get(NODE_ID)).and_then(|id| id.as_str())
                != Some(node) =>
        {
            Some(format!("volumeattachment {name} does not record the node's id"))
        }
        Some(object) => volume_fault(model, text(object, "/spec/source/persistentVolumeName")),
    };
    let Some(fault) = fault else { return };
    if model.is_confused() {
        model.tallies.entry(place.clone()).or_default().excused = true;
    } else {
        model.trace.violate(Invariant::I2, format_args!("#{} publishes {handle} on {node}: {fault}", call.id));
    }
}

fn volume_fault(model: &Model, name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let Some(volume) = model.volumes.get(name) else { return Some(format!("persistentvolume {name} does not exist")) };
    if !is_guarded(volume) {
        return Some(format!("persistentvolume {name} lacks the finalizer"));
    }
    let known = model.deleted_at.get(name).is_some_and(|at| *at + KNOWN < model.now());
    (is_deleting(volume) && known && model.is_calm()).then(|| format!("persistentvolume {name} is being deleted"))
}

/// I9: failures in a row are ever further apart.
fn in_time(model: &mut Model, place: &Place) {
    let Some(streak) = model.streaks.get(place) else { return };
    let name = attachment_of(&place.0, &place.1);
    let Some(object) = model.attachments.get(&name) else { return };
    let woken = model.woken_at.get(&name).is_some_and(|at| *at + CALM > streak.ended);
    let published = model.tallies.get(place).is_some_and(|tally| tally.published);
    // A difference between the driver and the record is forced, either way.
    let drift = published || object.pointer("/status/attached").and_then(serde_json::Value::as_bool) == Some(true);
    if streak.uid != text(object, "/metadata/uid") || woken || drift {
        return;
    }
    let doubled = BACKOFF.0 * 2_f64.powi(i32::try_from(streak.failures).unwrap_or(30).min(30) - 1);
    // An answer that was lost with its connection is Unavailable to the caller, whatever the driver meant to say.
    let was_lost = model.probed_at >= Some(streak.ended);
    let least = doubled.min(if streak.soft || was_lost { 10.0 } else { BACKOFF.1 });
    let gap = model.now().saturating_sub(streak.ended).as_secs_f64();
    if gap + 0.002 < least {
        let failures = streak.failures;
        let text = format!("{gap:.3}s after {failures} failures in a row, wanted at least {least:.3}s");
        model.trace.violate(Invariant::I9, format_args!("{name} is published again {text}"));
    }
}

fn ended(model: &mut Model, call: &Call, state: &State) {
    let (id, label) = (call.id, call.outcome.label());
    model.live.remove(&id);
    let message = match &call.outcome {
        Outcome::Refused(refusal) => refusal.message.chars().take(60).collect(),
        _ => String::new(),
    };
    model.trace.note("driver", format_args!("#{id} {} ends: {label} {message}", call.method));
    supply::ended(model, call);
    let Some(place) = place(call) else { return };
    let name = attachment_of(&place.0, &place.1);
    let ok = call.outcome == Outcome::Ok;
    if call.method == Method::ControllerUnpublishVolume {
        let tally = model.tallies.entry(place).or_default();
        if ok {
            tally.last_unpublish = tally.last_unpublish.max(Some(id));
            tally.contexts.clear();
        }
        return;
    }
    if ok {
        let context = state.volumes().get(&place.0).and_then(|volume| volume.published.get(&place.1));
        let context = serde_json::json!(context.map(|publication| &publication.context)).to_string();
        model.streaks.remove(&place);
        model.tallies.entry(place).or_default().contexts.insert(context);
        return;
    }
    let uid = model.attachments.get(&name).map(|object| text(object, "/metadata/uid").to_owned()).unwrap_or_default();
    let soft = match &call.outcome {
        Outcome::Refused(refusal) => matches!(refusal.code, Code::Aborted | Code::Unavailable),
        _ => true,
    };
    let ended = model.now();
    let given_up = call.deadline.zip(call.ended).map_or(Duration::ZERO, |(deadline, end)| end.saturating_sub(deadline));
    let streak =
        model.streaks.entry(place).or_insert_with(|| Streak { uid: uid.clone(), failures: 0, ended, soft: false });
    if streak.uid != uid {
        *streak = Streak { uid, failures: 0, ended, soft: false };
    }
    streak.failures += 1;
    streak.ended = ended.saturating_sub(given_up);
    streak.soft |= soft;
}
