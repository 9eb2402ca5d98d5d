//! The invariants of every step and of the end.

use std::collections::{BTreeMap, BTreeSet};

use csi_control_plane::sandbox::api::Committed;
use csi_control_plane::sandbox::driver::{Call, Driver, Method, State};
use serde_json::Value;
use tokio::time::Instant;

use super::boundary::LATENCY;
use super::cuts::{CUTS, Cut, GROUP, INTENT, SINGLE, is_copy};
use super::scenario::End;
use super::world::{World, finalizers, is_deleting, name, text};
use crate::invariants::Invariant;
use crate::trace::Trace;

/// The daemon's name on objects of others.
const OURS: &str = "csi-control-plane.io/";
/// The finalizer on volumes that go with their claims.
const VOLUME_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The finalizers on what volumes are made from.
const SOURCE_FINALIZERS: [&str; 2] = [
    "provisioner.storage.kubernetes.io/cloning-protection",
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
];

/// Something was committed: no volume object for a volume that does not exist, and one per claim.
pub(crate) fn on_commit(trace: &Trace, driver: &Driver, is_late: bool, change: &Committed<'_>) {
    let object = change.new.or(change.old).unwrap_or(&Value::Null);
    let plural = change.resource.plural;
    if plural == "leases" {
        return;
    }
    let verb = match (change.old, change.new) {
        (None, _) => "creates",
        (_, None) => "removes",
        _ => "changes",
    };
    let keys: Vec<&String> = object["data"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    let shown = (finalizers(object), is_deleting(object), text(object, "/status/phase"), keys);
    trace.note(change.actor, format_args!("{verb} {plural} {} {shown:?}", name(object)));
    let (None, Some(new), "persistentvolumes") = (change.old, change.new, plural) else { return };
    let handle = text(new, "/spec/csi/volumeHandle");
    // What a daemon sent before it was cut off may come after others have finished its work: that is settled in the end.
    if !is_late && !driver.state().volumes().contains_key(handle) {
        trace.violate(Invariant::P2, format_args!("{} is stored for {handle:?}, which does not exist", name(new)));
    }
    let owner = text(new, "/spec/claimRef/uid");
    let is_made = |it: &Value| !text(it, "/metadata/annotations/pv.kubernetes.io~1provisioned-by").is_empty();
    let same = |other: &&Value| !owner.is_empty() && is_made(other) && text(other, "/spec/claimRef/uid") == owner;
    if change.store.objects("", "persistentvolumes").filter(same).count() > 1 {
        trace.violate(Invariant::P1, format_args!("the claim of {} has another volume object", name(new)));
    }
}

/// Whether a call changes what the driver holds.
pub(crate) fn is_change(method: Method) -> bool {
    matches!(method, Method::CreateVolume | Method::DeleteVolume) || is_of_cut(method).is_some()
}

/// Of which kind of snapshots a call changes something.
fn is_of_cut(method: Method) -> Option<Cut> {
    match method {
        Method::CreateSnapshot | Method::DeleteSnapshot => Some(SINGLE),
        Method::CreateVolumeGroupSnapshot | Method::DeleteVolumeGroupSnapshot => Some(GROUP),
        _ => None,
    }
}

/// A call came or ended: none without an entry in the journal, no volume twice, and none deleted that is in use.
pub(crate) fn on_call(trace: &Trace, world: &World, is_durable: bool, call: &Call, state: &State) {
    if !is_change(call.method) {
        return;
    }
    let what = call.name.as_deref().or(call.snapshot.as_deref()).or(call.volume.as_deref()).unwrap_or_default();
    let (id, method) = (call.id, call.method);
    if call.ended.is_some() {
        trace.note("driver", format_args!("#{id} {method} {what} is answered {}", call.outcome.label()));
    } else if call.applied.is_some() {
        trace.note("driver", format_args!("#{id} {method} {what} is done"));
        let mut names = BTreeSet::new();
        if state.volumes().values().any(|volume| !volume.name.is_empty() && !names.insert(&volume.name)) {
            trace.violate(Invariant::P1, format_args!("two volumes are named alike"));
        }
        let alone = state.snapshots().values().filter(|snapshot| snapshot.group.is_empty()).count();
        if alone > 1 || state.groups().len() > 1 {
            trace.violate(Invariant::P1, format_args!("there are two snapshots"));
        }
    } else {
        trace.note("driver", format_args!("#{id} {method} {what} comes"));
        if method == Method::CreateVolume && world.kept.lock().unwrap().iter().any(|handle| is_of(state, handle, what))
        {
            trace.violate(Invariant::P1, format_args!("{what} is asked for again, which a user has kept"));
        }
        if method == Method::DeleteVolume {
            if world.kept.lock().unwrap().contains(what) {
                trace.violate(Invariant::P3, format_args!("{what} is deleted, which a user has kept"));
            }
            may_be_deleted(trace, world, what);
        } else if let Some(cut) = is_of_cut(method) {
            may_be_asked(trace, world, cut, call, state);
        } else if is_durable && !world.entries().iter().any(|uid| what.ends_with(uid)) {
            trace.violate(
                Invariant::J1,
                format_args!("the driver is asked for {what}, which the journal does not hold"),
            );
        }
    }
}

/// A snapshot or a group is to be taken or deleted: taken as snapshotter I1 says, and never what a user has kept (J8 to J10).
fn may_be_asked(trace: &Trace, world: &World, cut: Cut, call: &Call, state: &State) {
    let what = call.snapshot.as_deref().unwrap_or_default();
    let mut kept = world.kept_cuts.lock().unwrap();
    if matches!(call.method, Method::DeleteSnapshot | Method::DeleteVolumeGroupSnapshot) {
        let all = || call.members.iter().map(String::as_str).chain([what]);
        // Nobody can call back what was on its way to the driver before that.
        let sent = Instant::now() - LATENCY;
        if all().any(|handle| kept.get(handle).is_some_and(|since| *since < sent)) {
            trace.violate(Invariant::P3, format_args!("{what} is deleted, which a user has kept"));
        } else {
            kept.retain(|handle, _| all().all(|it| it != handle));
        }
        return;
    }
    let name_of = |handle: &String| {
        let single = state.snapshots().get(handle).map(|snapshot| snapshot.name.as_str());
        single.or_else(|| state.groups().get(handle).map(|group| group.name.as_str()))
    };
    if kept.keys().any(|handle| name_of(handle) == Some(what)) {
        trace.violate(Invariant::P1, format_args!("{what} is asked for again, which a user has kept"));
    }
    let is_recorded = |it: &Value| {
        let is_marked = it["metadata"]["annotations"].get(cut.mark).is_some();
        what.ends_with(text(it, cut.owner)) && (is_marked || !text(it, cut.handle).is_empty())
    };
    if !world.contents(cut).iter().any(is_recorded) {
        trace.violate(Invariant::J1, format_args!("the driver is asked for {what}, which no content marks"));
    }
}

/// Whether the volume with this handle has this name at the driver.
fn is_of(state: &State, handle: &str, name: &str) -> bool {
    state.volumes().get(handle).is_some_and(|volume| volume.name == name)
}

fn may_be_deleted(trace: &Trace, world: &World, handle: &str) {
    let told = world.volumes().into_iter().find(|it| text(it, "/spec/csi/volumeHandle") == handle);
    // Without a PersistentVolume no pod can use it.
    let Some(volume) = told else { return };
    if text(&volume, "/status/phase") != "Released" {
        trace.violate(Invariant::P3, format_args!("{handle} is deleted while {} is not released", name(&volume)));
    }
    let attached = |it: &Value| text(it, "/spec/source/persistentVolumeName") == name(&volume);
    if world.attachments().iter().any(attached) {
        trace.violate(Invariant::P3, format_args!("{handle} is deleted while it is attached"));
    }
}

/// The faults at rest: volumes at the driver = volume objects, no finalizer of ours left, each claim as it should be.
pub(crate) fn in_the_end(world: &World, ends: &[(&str, End)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let (volumes, claims) = (world.volumes(), world.claims());
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for volume in &volumes {
        *told.entry(text(volume, "/spec/csi/volumeHandle")).or_default() += 1;
    }
    let state = world.driver.state();
    let there: BTreeSet<&str> = state.volumes().keys().map(String::as_str).collect();
    let kept = world.kept.lock().unwrap().clone();
    for handle in &kept {
        if !there.contains(handle.as_str()) {
            wrong.push(format!("lost: a user has kept {handle}"));
        }
        if told.contains_key(handle.as_str()) {
            wrong.push(format!("back: a user has deleted the PersistentVolume of {handle}"));
        }
    }
    let is_leaked = |it: &&&str| !told.contains_key(**it) && !kept.contains(**it);
    wrong.extend(there.iter().filter(is_leaked).map(|it| format!("leak: nobody tells of {it}")));
    wrong.extend(told.keys().filter(|it| !there.contains(*it)).map(|it| format!("phantom: {it} does not exist")));
    wrong.extend(told.iter().filter(|(_, count)| **count > 1).map(|(it, _)| format!("twice: two tell of {it}")));
    for object in claims.iter().chain(&world.snapshots()) {
        wrong.extend(left_on(object));
    }
    wrong.extend(CUTS.into_iter().flat_map(|cut| wrong_cuts(world, &state, cut, ends)));
    wrong.extend(world.entries().iter().map(|it| format!("left: an entry of {it} in the journal")));
    for volume in &volumes {
        let phase = text(volume, "/status/phase");
        let is_kept = ends.iter().any(|(_, end)| *end == End::Kept) || name(volume) == "spare";
        if is_deleting(volume) || (phase != "Bound" && !is_kept) {
            wrong.push(format!("left: {} is {phase}, deleting: {}", name(volume), is_deleting(volume)));
        }
        if is_kept && finalizers(volume).contains(&VOLUME_FINALIZER) && phase != "Bound" {
            wrong.push(format!("left: our finalizer on {}, which is kept", name(volume)));
        }
    }
    let snapshots: Vec<Value> = CUTS.into_iter().flat_map(|cut| world.owners(cut)).collect();
    for (claim, end) in ends {
        if matches!(end, End::Ready | End::Untaken | End::Left) {
            let found = snapshots.iter().find(|it| name(it) == *claim);
            let is_ready = found.is_some_and(|it| it["status"]["readyToUse"] == true);
            if is_ready != (*end == End::Ready) || (*end != End::Ready && found.is_some()) {
                wrong.push(format!("the snapshot {claim} is not {end:?}: {found:?}"));
            }
            continue;
        }
        let found = claims.iter().find(|it| name(it) == *claim);
        let phase = found.map_or("Gone", |it| text(it, "/status/phase"));
        let fits = match end {
            End::Bound => phase == "Bound",
            End::Gone | End::Kept => phase == "Gone",
            End::BoundOrWaiting => phase == "Bound" || phase == "Pending",
            End::Ready | End::Untaken | End::Left => true,
        };
        if !fits {
            wrong.push(format!("{claim} is {phase} and not {end:?}"));
        }
    }
    wrong.extend(world.driver.violations().iter().map(ToString::to_string));
    wrong
}

/// What the driver has = handles of contents, and what a user has kept; no content waits for an answer, or for its end, but a copy.
fn wrong_cuts(world: &World, state: &State, cut: Cut, ends: &[(&str, End)]) -> Vec<String> {
    let contents = world.contents(cut);
    let told: BTreeSet<&str> = contents.iter().map(|it| text(it, cut.handle)).filter(|it| !it.is_empty()).collect();
    let there: BTreeSet<&str> = match cut {
        GROUP => state.groups().keys().map(String::as_str).collect(),
        _ => state.snapshots().keys().map(String::as_str).collect(),
    };
    let kept = world.kept_cuts.lock().unwrap().clone();
    let may_be_left = ends.iter().any(|(_, end)| *end == End::Left);
    let is_leaked = |it: &&&str| !kept.contains_key(**it) && !may_be_left;
    let mut wrong: Vec<String> =
        there.difference(&told).filter(is_leaked).map(|it| format!("leak: no content tells of {it}")).collect();
    wrong.extend(told.difference(&there).map(|it| format!("phantom: {it} does not exist")));
    let is_there = |it: &&String| state.snapshots().contains_key(*it) || state.groups().contains_key(*it);
    wrong.extend(kept.keys().filter(|it| !is_there(it)).map(|it| format!("lost: a user has kept {it}")));
    for content in &contents {
        let is_unanswered = [cut.mark, INTENT].iter().any(|key| content["metadata"]["annotations"].get(key).is_some());
        if (is_unanswered && !is_copy(content)) || is_deleting(content) {
            wrong.push(format!("left: {content}"));
        }
    }
    wrong
}

fn left_on(object: &Value) -> Vec<String> {
    let mut left: Vec<String> = finalizers(object)
        .into_iter()
        .filter(|it| it.contains(OURS) || SOURCE_FINALIZERS.contains(it))
        .map(str::to_owned)
        .collect();
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    left.extend(annotations.into_iter().flatten().map(|(key, _)| key.clone()).filter(|key| key.contains(OURS)));
    left.into_iter().map(|it| format!("left: {it} on {}", name(object))).collect()
}

#[test]
fn books_that_differ_are_noticed() {
    use csi_control_plane::process::{Clock, Rng};
    use csi_control_plane::sandbox::api::{Api, ApiOptions};
    use csi_control_plane::sandbox::driver::Profile;
    use serde_json::json;

    let clock = Clock::system();
    let api = Api::new(ApiOptions::new(clock, Rng::seeded(1)));
    let world = World::new(api, Driver::new(Profile::default(), clock));
    assert_eq!(in_the_end(&world, &[]), Vec::<String>::new());
    world.driver.seed(["orphan", "shared"]);
    for (volume, handle) in [("one", "shared"), ("two", "shared"), ("three", "missing")] {
        world.create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": super::world::DRIVER, "volumeHandle": handle } } }));
    }
    world.claim("data", json!({}));
    let something = json!({ "metadata": { "annotations": { "csi-control-plane.io/something": "{}" },
        "finalizers": [SOURCE_FINALIZERS[0]] } });
    let patch = csi_control_plane::sandbox::api::PatchBody::Merge(something);
    world.api.patch::<k8s_openapi::api::core::v1::PersistentVolumeClaim>("default", "data", patch).unwrap();
    world.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "1234": "{}" },
        "metadata": { "name": "segment", "namespace": "kube-system", "labels": { super::world::JOURNAL: super::world::DRIVER } } }));
    let wrong = in_the_end(&world, &[("data", End::Bound)]);
    for expected in [
        "leak: nobody tells of orphan",
        "phantom: missing does not exist",
        "twice: two tell of shared",
        "left: provisioner.storage.kubernetes.io/cloning-protection on data",
        "left: csi-control-plane.io/something on data",
        "left: an entry of 1234 in the journal",
        "left: one is Pending, deleting: false",
        "data is Pending and not Bound",
    ] {
        assert!(wrong.iter().any(|it| it == expected), "{expected} is missing: {wrong:#?}");
    }
}
