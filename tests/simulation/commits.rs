//! The checks of every change of the store: I3 to I8, I10.

use csi_control_plane::sandbox::api::Committed;
use serde_json::{Value, json};

use crate::deliveries;
use crate::invariants::Invariant;
use crate::journal;
use crate::model::{CALM, Model};
use crate::storage::RECLAIM;
use crate::world::{DAEMONS, DRIVER, FINALIZER, MARKER, NODE_ID, finalizers, is_deleting, is_guarded, text};

/// The API's limit of an error's message.
const LONGEST_MESSAGE: usize = 1024;
/// Objects this old are known to every daemon in calm times.
const KNOWN: f64 = 3.0;

/// Something was committed.
pub(crate) fn on_commit(model: &mut Model, change: &Committed<'_>) {
    let plural = change.resource.plural;
    let object = change.new.or(change.old).unwrap_or(&Value::Null);
    let name = text(object, "/metadata/name").to_owned();
    note(model, change, &name);
    if plural != "secrets" && change.new.is_some_and(tells_the_secret) {
        model.trace.violate(Invariant::I10, format_args!("{plural} {name} holds a secret's value"));
    }
    let by_daemon = DAEMONS.contains(&change.actor);
    if matches!(plural, "volumeattachments" | "persistentvolumes") {
        if by_daemon {
            written(model, change, &name);
        }
        moments(model, change, &name, by_daemon);
    }
    deliveries::on_commit(model, change, &name);
    if plural == "persistentvolumes" && by_daemon {
        journal::let_go(model, change, &name);
    }
    journal::on_commit(model, change, &name);
    model.keep(plural, &name, change.new);
    model.supply.keep(plural, &name, change.old, change.new);
}

fn note(model: &Model, change: &Committed<'_>, name: &str) {
    let verb = match (change.old, change.new) {
        (None, _) => "creates",
        (_, None) => "removes",
        _ => "changes",
    };
    let plural = change.resource.plural;
    let shown = match change.new {
        Some(new) if plural == "leases" => format!("{} {}", new["spec"]["holderIdentity"], new["spec"]["renewTime"]),
        Some(new) if plural == "events" => format!("{} {}", new["reason"], new["note"]),
        Some(new) if plural == "volumeattachments" => {
            let ours = new.pointer("/metadata/annotations").cloned().unwrap_or_default();
            let meta = json!([new["metadata"]["finalizers"], is_deleting(new), ours]);
            format!("{} {meta} {}", text(new, "/metadata/uid"), new["status"])
        }
        Some(new) if plural == "configmaps" => {
            let keys: Vec<&String> = new["data"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
            json!([new["metadata"]["resourceVersion"], keys]).to_string()
        }
        Some(new) if plural == "csistoragecapacities" => {
            json!([new["storageClassName"], new["nodeTopology"]["matchLabels"], new["capacity"]]).to_string()
        }
        Some(new) => {
            let (meta, spec) = (&new["metadata"], &new["spec"]);
            let kinds = ["persistentvolumeclaims", "persistentvolumes", "pods"];
            if kinds.contains(&plural) {
                let annotations = meta["annotations"].as_object().into_iter().flatten();
                let known = annotations.filter(|(key, _)| !key.starts_with("pv.kubernetes.io"));
                let named: Vec<&str> = known.filter_map(|(key, _)| key.rsplit('/').next()).collect();
                let phase = &new["status"]["phase"];
                let of = [&meta["uid"], &spec["volumeName"], &spec["csi"]["volumeHandle"], &spec["nodeName"], phase];
                let of: Vec<&Value> = of.into_iter().filter(|it| !it.is_null()).collect();
                json!([meta["finalizers"], is_deleting(new), of, named]).to_string()
            } else {
                json!([meta["finalizers"], is_deleting(new), spec["drivers"]]).to_string()
            }
        }
        None => String::new(),
    };
    model.trace.note(change.actor, format_args!("{verb} {plural} {name} {shown}"));
}

fn tells_the_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MARKER),
        Value::Array(list) => list.iter().any(tells_the_secret),
        Value::Object(map) => map.iter().any(|(key, value)| key.contains(MARKER) || tells_the_secret(value)),
        _ => false,
    }
}

/// Remembers when what happened that a daemon can only learn of later, or that may wake it.
fn moments(model: &mut Model, change: &Committed<'_>, name: &str, by_daemon: bool) {
    let now = model.now();
    match (change.old, change.new) {
        (None, Some(_)) => drop(model.created_at.insert(name.to_owned(), now)),
        (Some(old), Some(new)) if is_deleting(new) && !is_deleting(old) => {
            model.deleted_at.insert(name.to_owned(), now);
        }
        _ => {}
    }
    if by_daemon {
        return;
    }
    if change.resource.plural == "volumeattachments" {
        model.woken_at.insert(name.to_owned(), now);
    } else {
        for (attachment, object) in &model.attachments {
            if text(object, "/spec/source/persistentVolumeName") == name {
                model.woken_at.insert(attachment.clone(), now);
            }
        }
    }
}

/// A daemon changed an attachment or a volume.
fn written(model: &mut Model, change: &Committed<'_>, name: &str) {
    let (actor, plural) = (change.actor, change.resource.plural);
    let attachments = plural == "volumeattachments";
    let by_supplier = !attachments && deliveries::is_suppliers(change.old, change.new) && model.supplied_by(actor);
    if !model.is_led_by(actor) && !by_supplier && !model.is_confused() {
        let holder = model.holder();
        model
            .trace
            .violate(Invariant::I8, format_args!("{actor} writes {plural} {name} while {holder:?} holds the lease"));
    }
    let Some(old) = change.old else {
        if by_supplier || (!attachments && model.is_confused()) {
            return;
        }
        return model.trace.violate(Invariant::I8, format_args!("{actor} creates {plural} {name}"));
    };
    if attachments && text(old, "/spec/attacher") != DRIVER {
        model.trace.violate(Invariant::I8, format_args!("{actor} writes another driver's volumeattachment {name}"));
    }
    only_ours(model, change, old, name);
    let lost = is_guarded(old) && !change.new.is_some_and(is_guarded);
    if lost && attachments {
        released(model, old, name);
    } else if lost {
        let_go(model, change, old, name);
    }
    if let Some(new) = change.new.filter(|_| attachments) {
        recorded(model, old, new, name);
        told(model, old, new, name);
    }
}

/// I5: nothing but what is ours is changed.
fn only_ours(model: &Model, change: &Committed<'_>, old: &Value, name: &str) {
    let blank = |object: &Value| {
        let mut object = object.clone();
        let ours = |key: &str| key == NODE_ID || key.starts_with("csi-control-plane.io/");
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("resourceVersion");
            meta.remove("managedFields");
            meta.remove("generation");
            if change.resource.plural == "persistentvolumes" {
                // The provisioner deletes what it has made.
                meta.remove("deletionTimestamp");
                meta.remove("deletionGracePeriodSeconds");
            }
            let kept: Vec<Value> = match meta.remove("finalizers") {
                Some(Value::Array(list)) => list.into_iter().filter(|it| it != FINALIZER && it != RECLAIM).collect(),
                _ => Vec::new(),
            };
            meta.insert("finalizers".to_owned(), kept.into());
            let annotations = meta.remove("annotations").unwrap_or_default();
            let kept = annotations.as_object().into_iter().flatten().filter(|(key, _)| !ours(key));
            let kept: serde_json::Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
            meta.insert("annotations".to_owned(), kept.into());
        }
        if change.resource.plural == "volumeattachments"
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        object
    };
    let fault = match change.new {
        Some(new) => blank(old) != blank(new),
        None => finalizers(old).iter().any(|it| ![FINALIZER, RECLAIM].contains(it)),
    };
    let twice = change.new.is_some_and(|new| finalizers(new).iter().filter(|it| **it == FINALIZER).count() > 1);
    if fault || twice {
        let (actor, plural) = (change.actor, change.resource.plural);
        let new = change.new.unwrap_or(&Value::Null);
        model.trace.violate(
            Invariant::I5,
            format_args!("{actor} changed what is not its own in {plural} {name}: {old} -> {new}"),
        );
    }
}

/// I3: our finalizer is removed from an attachment only after the driver has unpublished the volume.
fn released(model: &Model, old: &Value, name: &str) {
    if !is_deleting(old) {
        model.trace.violate(Invariant::I3, format_args!("the finalizer leaves {name}, which is not being deleted"));
    }
    for ((volume, node), tally) in
        model.tallies.iter().filter(|((volume, node), _)| crate::world::attachment_of(volume, node) == name)
    {
        let undone = tally.last_publish.is_none_or(|publish| tally.last_unpublish.is_some_and(|it| it > publish));
        let clear = !tally.published || tally.excused;
        if (!undone || !clear) && !model.is_confused() {
            let what =
                if undone { "the driver has it published" } else { "no unpublish since the last publish was OK" };
            model
                .trace
                .violate(Invariant::I3, format_args!("the finalizer leaves {name}, but of {volume} on {node} {what}"));
        }
    }
}

/// I4: our finalizer leaves a volume only when nothing names it any more.
fn let_go(model: &Model, change: &Committed<'_>, old: &Value, name: &str) {
    if !is_deleting(old) {
        model.trace.violate(Invariant::I4, format_args!("the finalizer leaves {name}, which is not being deleted"));
    }
    let now = model.now().as_secs_f64();
    for object in change.store.objects("storage.k8s.io", "volumeattachments") {
        if text(object, "/spec/source/persistentVolumeName") != name {
            continue;
        }
        let attachment = text(object, "/metadata/name");
        let age = model.created_at.get(attachment).map_or(f64::MAX, |at| now - at.as_secs_f64());
        let known = age > KNOWN && (model.is_calm() || age > 2.0 * CALM.as_secs_f64());
        if is_guarded(object) || known {
            model.trace.violate(Invariant::I4, format_args!("the finalizer leaves {name}, but {attachment} names it"));
        }
    }
}

/// I6: `attached: true` comes from the driver's answer.
fn recorded(model: &Model, old: &Value, new: &Value, name: &str) {
    let of = |object: &Value| (object["status"]["attached"] == true, object["status"]["attachmentMetadata"].clone());
    let ((was, before), (is, now)) = (of(old), of(new));
    if !is || (was && before == now) {
        return;
    }
    let node = new.pointer("/metadata/annotations").and_then(|all| all.get(NODE_ID)).and_then(Value::as_str);
    let said = model.tallies.iter().any(|((volume, id), tally)| {
        crate::world::attachment_of(volume, id) == name
            && Some(id.as_str()) == node
            && tally.contexts.contains(&now.to_string())
    });
    if !said && !model.is_confused() {
        model.trace.violate(
            Invariant::I6,
            format_args!("{name} is recorded as attached with {now}, which the driver did not answer"),
        );
    }
}

/// I7: an error's code is there if and only if the driver gave one.
fn told(model: &Model, old: &Value, new: &Value, name: &str) {
    for field in ["attachError", "detachError"] {
        let error = &new["status"][field];
        if error.is_null() || *error == old["status"][field] {
            continue;
        }
        let message = error["message"].as_str().unwrap_or_default();
        let code = error["errorCode"].as_i64();
        let by_driver = message.starts_with("rpc error: code = ");
        let wanted = by_driver && field == "attachError";
        if code.is_some() != wanted || message.is_empty() || message.len() > LONGEST_MESSAGE {
            model.trace.violate(Invariant::I7, format_args!("{name} has {field} {error}"));
        }
    }
}
