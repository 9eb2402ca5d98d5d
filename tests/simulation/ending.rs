//! The end of a run: all faults stop, and then the desired state must become the actual state (I11, I12, I13).

use std::collections::BTreeMap;
use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use crate::invariants::Invariant;
use crate::inventory;
use crate::journal;
use crate::keeping;
use crate::model::{Model, Place, Tally};
use crate::play::{Play, Step};
use crate::world::{
    DAEMONS, DRIVER, FOREIGN, NODE_ID, World, attachment_of, finalizers, handle, is_deleting, is_guarded, text,
};

/// How long it may take until everything is as it should be. Suspicions that lies have raised wait for this long.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long it must stay so: two listings and more.
const LASTS: Duration = Duration::from_secs(25);
/// How long an orderly stop may take.
const STOP: Duration = Duration::from_secs(15);

/// Ends a run.
pub(crate) async fn end(play: &mut Play) {
    play.trace.note("world", format_args!("everything heals"));
    heal(play).await;
    settle(play, "after the faults", wrong).await;
    play.trace.note("world", format_args!("the other controllers let go"));
    let_go(play);
    settle(play, "after the other controllers let go", wrong).await;
    play.trace.note("world", format_args!("everything is deleted"));
    delete_all(play);
    settle(play, "after everything was deleted", |play| {
        let mut faults = wrong(play);
        let model = play.model();
        let left = model.attachments.keys().chain(model.volumes.keys());
        faults.extend(left.map(|name| (Invariant::End, format!("{name} is still there"))));
        faults.extend(inventory::left(&model));
        faults
    })
    .await;
    journal::in_order(&play.model());
    stop(play).await;
}

async fn heal(play: &mut Play) {
    play.testbed.driver.clear_faults();
    play.testbed.driver.change_profile(|profile| profile.clone_from(&play.profile));
    play.testbed.server.restart(Duration::from_millis(100)).await;
    play.testbed.server.up().await;
    play.api().faults().clear();
    if let Some(mutant) = play.world.mutant {
        // A defect on purpose does not heal.
        mutant.infect(&play.testbed);
    }
    for daemon in DAEMONS {
        play.network.set_latency(daemon, API_HOST, Duration::ZERO);
        play.network.reset(daemon, API_HOST);
        play.network.reset(daemon, DRIVER_HOST);
    }
    play.network.heal_all();
    play.wishes.clear();
    for node in 0..play.world.nodes {
        play.node_back(node);
    }
    play.furnish();
    play.repair_journal();
    play.dismiss();
    for volume in (0..play.world.volumes.len()).filter(|volume| play.world.volumes[*volume].secret) {
        play.create(World::secret(volume));
    }
    for index in 0..DAEMONS.len() {
        if play.daemons[index].is_none() {
            play.start(index).await;
        }
    }
    decide(play);
    play.decide_claims();
}

/// The users come to their senses: nothing is wanted that cannot be.
fn decide(play: &Play) {
    let hopeless: Vec<String> = {
        let model = play.model();
        let wanted = |index: usize| {
            let of = move |object: &&Value| {
                let name = text(object, "/metadata/name");
                name.starts_with(&format!("csi-{}-on-", handle(index))) && !is_deleting(object)
            };
            model
                .attachments
                .values()
                .filter(of)
                .map(|object| text(object, "/metadata/name").to_owned())
                .collect::<Vec<_>>()
        };
        let mut hopeless = Vec::new();
        for (index, volume) in play.world.volumes.iter().enumerate() {
            let all = wanted(index);
            let object = model.volumes.get(&crate::world::volume_name(index));
            let attachable = volume.inline || object.is_some_and(|object| !is_deleting(object));
            let keep = if !attachable {
                0
            } else if volume.shared {
                all.len()
            } else {
                1
            };
            hopeless.extend(all.into_iter().skip(keep));
        }
        let foreign = model.attachments.keys().filter(|name| name.starts_with("foreign-")).cloned();
        hopeless.into_iter().chain(foreign).collect()
    };
    for name in hopeless {
        play.detach(&name);
    }
    let excused: Vec<_> = {
        let mut model = play.model();
        let excused = |(place, tally): (&Place, &mut Tally)| std::mem::take(&mut tally.excused).then(|| place.clone());
        model.tallies.iter_mut().filter_map(excused).collect()
    };
    for (volume, node) in excused {
        let wanted = play.model().attachments.get(&attachment_of(&volume, &node)).is_some_and(|object| {
            let id = object.pointer("/metadata/annotations").and_then(|all| all.get(NODE_ID));
            !is_deleting(object) && id.and_then(Value::as_str) == Some(&node)
        });
        if !wanted && play.testbed.driver.detach_behind(&volume, &node) {
            play.trace.note("world", format_args!("{volume} is taken off {node} by hand"));
            if let Some(tally) = play.model().tallies.get_mut(&(volume, node)) {
                tally.published = false;
            }
        }
    }
}

async fn settle(play: &mut Play, when: &str, wrong: impl Fn(&Play) -> Vec<(Invariant, String)>) {
    let begun = play.trace.age();
    let mut since = None;
    while !play.trace.is_broken() {
        play.pass(Duration::from_millis(500)).await;
        let due: Vec<_> = play.agenda.keys().copied().collect();
        let now = play.trace.age();
        for key in due.into_iter().filter(|(at, _)| *at <= now) {
            if let Some(Step::Start(daemon)) = play.agenda.remove(&key) {
                play.start(daemon).await;
            }
        }
        let (faults, now) = (wrong(play), play.trace.age());
        if faults.is_empty() {
            if now.saturating_sub(*since.get_or_insert(now)) >= LASTS {
                return;
            }
            continue;
        }
        since = None;
        if now.saturating_sub(begun) > PATIENCE {
            let mut of: BTreeMap<Invariant, Vec<String>> = BTreeMap::new();
            for (invariant, fault) in faults {
                of.entry(invariant).or_default().push(fault);
            }
            for (invariant, faults) in of {
                let faults = faults.join("; ");
                play.trace.violate(invariant, format_args!("{when}, {PATIENCE:?} were not enough: {faults}"));
            }
        }
    }
}

/// The faults at rest.
fn wrong(play: &Play) -> Vec<(Invariant, String)> {
    let (state, model) = (play.testbed.driver.state(), play.model());
    let mut faults = Vec::new();
    let published = |volume: &str, node: &str| state.volumes().get(volume).and_then(|it| it.published.get(node));
    let mut wanted = std::collections::BTreeSet::new();
    for (name, object) in model.attachments.iter().filter(|(_, object)| text(object, "/spec/attacher") == DRIVER) {
        let status = &object["status"];
        let others = finalizers(object).iter().any(|it| FOREIGN.contains(it));
        if is_deleting(object) {
            if !others {
                faults.push(format!("{name} is still being deleted: {status}"));
            } else if is_guarded(object) || status["attached"] == true || !status["attachmentMetadata"].is_null() {
                faults.push(format!("{name} waits for others, but is not recorded as detached: {object}"));
            }
            continue;
        }
        let node = object.pointer("/metadata/annotations").and_then(|all| all.get(NODE_ID)).and_then(Value::as_str);
        let volume = volume_of(&model, name, object);
        let volume = volume.as_str();
        let Some(publication) = node.and_then(|node| published(volume, node)) else {
            faults.push(format!("{name} is not published: {status}"));
            continue;
        };
        let pv = text(object, "/spec/source/persistentVolumeName");
        let volume_guarded = pv.is_empty() || model.volumes.get(pv).is_some_and(is_guarded);
        let place = (volume.to_owned(), node.unwrap_or_default().to_owned());
        let by_hand = model.tallies.get(&place).is_some_and(|tally| tally.by_hand);
        wanted.insert(place);
        let told = by_hand || status["attachmentMetadata"] == json!(publication.context);
        let errors = !status["attachError"].is_null() || !status["detachError"].is_null();
        if status["attached"] != true || !told || errors || !is_guarded(object) || !volume_guarded {
            faults.push(format!("{name} is published, but not recorded so ({:?}): {object}", publication.context));
        }
    }
    for (volume, it) in state.volumes() {
        for node in it.published.keys().filter(|node| !wanted.contains(&(volume.clone(), (*node).clone()))) {
            // An attachment that still exists is reported above.
            if !model.attachments.get(&attachment_of(volume, node)).is_some_and(is_guarded)
                || wanted.iter().any(|(of, _)| of == volume)
            {
                faults.push(format!("{volume} is published on {node}, which nobody wants"));
            }
        }
    }
    for (name, object) in &model.volumes {
        let named = model.attachments.values().any(|it| text(it, "/spec/source/persistentVolumeName") == name);
        let others = finalizers(object).iter().any(|it| FOREIGN.contains(it));
        if is_deleting(object) && !named && (!others || is_guarded(object)) {
            faults.push(format!("{name} is still being deleted"));
        }
    }
    if !DAEMONS.iter().any(|daemon| model.is_led_by(daemon)) {
        faults.push(format!("nobody leads: the lease is held by {:?}", model.holder()));
    }
    let mut faults: Vec<_> = faults.into_iter().map(|fault| (Invariant::End, fault)).collect();
    if let Some(storage) = &play.world.storage {
        faults.extend(inventory::wrong(storage, &model, &state));
        faults.extend(keeping::wrong(&model, &state));
    }
    faults
}

/// The handle of an attachment's volume.
fn volume_of(model: &Model, name: &str, object: &Value) -> String {
    let volume = model.volumes.get(text(object, "/spec/source/persistentVolumeName"));
    let handle = volume.map(|volume| text(volume, "/spec/csi/volumeHandle"));
    // The name alone says which inline or deleted volume it was.
    let told = || name.trim_start_matches("csi-").split("-on-").next().unwrap_or_default();
    handle.unwrap_or_else(told).to_owned()
}

fn let_go(play: &Play) {
    let (attachments, volumes) = {
        let model = play.model();
        (model.attachments.clone(), model.volumes.clone())
    };
    let body = |object: &Value| {
        let kept: Vec<&str> = finalizers(object).into_iter().filter(|it| !FOREIGN.contains(it)).collect();
        PatchBody::Merge(json!({ "metadata": { "finalizers": kept } }))
    };
    for (name, object) in &attachments {
        let _ = play.api().patch::<VolumeAttachment>("", name, body(object));
    }
    for (name, object) in &volumes {
        let _ = play.api().patch::<PersistentVolume>("", name, body(object));
    }
}

fn delete_all(play: &Play) {
    play.delete_supply();
    let (attachments, volumes): (Vec<String>, Vec<String>) = {
        let model = play.model();
        (model.attachments.keys().cloned().collect(), model.volumes.keys().cloned().collect())
    };
    for name in &volumes {
        let _ = play.api().delete::<PersistentVolume>("", name);
    }
    for name in &attachments {
        play.detach(name);
    }
}

/// An orderly stop: nothing fails, and the Lease is handed back (R37).
async fn stop(play: &mut Play) {
    if play.trace.is_broken() {
        return;
    }
    play.trace.note("world", format_args!("the daemons are told to stop"));
    if let Some(mutant) = play.world.mutant {
        mutant.infect_stop(&play.testbed);
    }
    for (name, slot) in DAEMONS.iter().zip(std::mem::take(&mut play.daemons)) {
        let Some(daemon) = slot else { continue };
        match tokio::time::timeout(STOP, daemon.stop()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => play.trace.violate(Invariant::R37, format_args!("{name} stops with an error: {error}")),
            Err(_) => play.trace.violate(Invariant::R37, format_args!("{name} does not stop")),
        }
    }
    let holder = play.model().holder().to_owned();
    if !holder.is_empty() {
        play.trace.violate(Invariant::R37, format_args!("the lease is still held by {holder}"));
    }
}
