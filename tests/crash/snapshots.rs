//! Snapshots and groups of snapshots that are taken, deleted, kept and restored (snapshotter S40). What J8 to J10 say of volumes holds here,
//! too: what a user has kept is there in the end, and nothing is cut twice.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use tonic::Code;

use super::cuts::{GROUP, SINGLE};
use super::scenario::{End, Scenario};
use super::world::{SOURCE, World};

const READY: [(&str, End); 2] = [(SOURCE, End::Bound), (SOURCE, End::Ready)];
const UNTAKEN: [(&str, End); 2] = [(SOURCE, End::Bound), (SOURCE, End::Untaken)];
const LEFT: [(&str, End); 2] = [(SOURCE, End::Bound), (SOURCE, End::Left)];

/// A snapshot is taken.
pub(crate) fn snapshot() -> Scenario {
    let before: fn(&World) = |world| world.snapshot_class("Delete");
    let scenario = Scenario::new("snapshot", vec![before], World::want_snapshot);
    Scenario { takes_snapshots: true, undisturbed: READY.to_vec(), ends: READY.to_vec(), ..scenario }
}

/// A snapshot that is ready is deleted.
pub(crate) fn snapshot_deletion() -> Scenario {
    let mut scenario = snapshot();
    "snapshot deletion".clone_into(&mut scenario.name);
    scenario.before.push(World::want_snapshot);
    scenario.act = World::delete_snapshot;
    ending(scenario)
}

/// A group of two snapshots is taken.
pub(crate) fn group() -> Scenario {
    let before: fn(&World) = |world| world.group_class("Delete");
    let (name, before) = ("group of snapshots".to_owned(), vec![before]);
    Scenario { name, takes_groups: true, before, act: World::want_group, ..snapshot() }
}

/// A group that is ready is deleted.
pub(crate) fn group_deletion() -> Scenario {
    let mut scenario = group();
    "group deletion".clone_into(&mut scenario.name);
    scenario.before.push(World::want_group);
    scenario.act = World::delete_group;
    ending(scenario)
}

/// A snapshot and a group whose daemon has recorded nothing, as far as its successor can see, and that are deleted while none works.
pub(crate) fn unmarked() -> [Scenario; 2] {
    let name = "deleted meanwhile, without durable intent";
    [
        snapshot().and(name, |world| world.unmark_and_delete_cut(SINGLE), &UNTAKEN),
        group().and(name, |world| world.unmark_and_delete_cut(GROUP), &UNTAKEN),
    ]
}

fn ending(scenario: Scenario) -> Scenario {
    Scenario { undisturbed: UNTAKEN.to_vec(), ends: UNTAKEN.to_vec(), ..scenario }
}

/// Every scenario.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = singles();
    all.extend(groups());
    all.extend(kept_snapshots());
    all.extend(kept_groups());
    all
}

/// As snapshotter S40 says: wherever the daemon dies, there is one snapshot in the end, or none.
fn singles() -> Vec<Scenario> {
    let named = |name: &str, faults: fn() -> Vec<Fault>| Scenario { name: name.to_owned(), faults, ..snapshot() };
    let unready =
        Scenario { profile: |profile| profile.snapshot_ready_polls = 3, ..named("snapshot, not ready", Vec::new) };
    let slow = named("snapshot, slow", || {
        vec![Fault::on(Method::CreateSnapshot, Action::Late(Duration::from_secs(4))).once()]
    });
    let open = named("snapshot, answer lost", || vec![lost(Method::CreateSnapshot)]);
    let refused = named("snapshot, refused once", || {
        vec![Fault::on(Method::CreateSnapshot, Action::fail(Code::Internal, "no such pool")).once()]
    });
    let taken = [snapshot(), unready, slow, open, refused];
    let gone = taken.iter().map(|it| it.and("deleted meanwhile", World::delete_snapshot, &UNTAKEN)).collect::<Vec<_>>();
    let classless = snapshot().and(
        "class deleted with it meanwhile",
        |world| {
            world.delete_snapshot();
            world.delete_snapshot_class();
        },
        &UNTAKEN,
    );
    let mut stuck = snapshot_deletion();
    "snapshot deletion, slow".clone_into(&mut stuck.name);
    stuck.faults = || vec![Fault::on(Method::DeleteSnapshot, Action::Late(Duration::from_secs(4))).once()];
    taken.into_iter().chain(gone).chain([classless, snapshot_deletion(), stuck]).collect()
}

/// The driver has done it, and says that it took too long.
fn lost(method: Method) -> Fault {
    Fault::on(method, Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".to_owned() }).once()
}

fn groups() -> Vec<Scenario> {
    let named = |name: &str, faults: fn() -> Vec<Fault>| Scenario { name: name.to_owned(), faults, ..group() };
    let unready =
        Scenario { profile: |profile| profile.snapshot_ready_polls = 3, ..named("group, not ready", Vec::new) };
    let open = named("group, answer lost", || vec![lost(Method::CreateVolumeGroupSnapshot)]);
    let taken = [group(), unready, open];
    let gone = taken.iter().map(|it| it.and("deleted meanwhile", World::delete_group, &UNTAKEN)).collect::<Vec<_>>();
    let mut stuck = group_deletion();
    "group deletion, answer lost".clone_into(&mut stuck.name);
    stuck.faults = || vec![lost(Method::DeleteVolumeGroupSnapshot)];
    taken.into_iter().chain(gone).chain([group_deletion(), stuck]).collect()
}

/// A user keeps a snapshot, before, while and after it is taken or deleted; or a backup brings its content back.
fn kept_snapshots() -> Vec<Scenario> {
    let open = Scenario {
        name: "snapshot, answer lost".to_owned(),
        faults: || vec![lost(Method::CreateSnapshot)],
        ..snapshot()
    };
    let mut by_hand = snapshot_deletion();
    "snapshot kept by hand".clone_into(&mut by_hand.name);
    by_hand.act = |world| world.keep_cut(SINGLE, false);
    let retained = snapshot_deletion().and("retained meanwhile", |world| world.retain_cut(SINGLE), &LEFT);
    vec![
        snapshot().and("kept meanwhile", |world| world.keep_cut(SINGLE, false), &UNTAKEN),
        snapshot().and("kept by force meanwhile", |world| world.keep_cut(SINGLE, true), &UNTAKEN),
        snapshot().and("retained meanwhile", |world| world.retain_cut(SINGLE), &LEFT),
        open.and("retained meanwhile", |world| world.retain_cut(SINGLE), &LEFT),
        snapshot().and("restored from a backup meanwhile", |world| world.restore_cut(SINGLE), &LEFT),
        open.and("restored from a backup meanwhile", |world| world.restore_cut(SINGLE), &LEFT),
        snapshot().and("restored and deleted meanwhile", |world| world.restore_and_delete_cut(SINGLE), &LEFT),
        by_hand,
        retained,
    ]
}

/// The same of a group.
fn kept_groups() -> Vec<Scenario> {
    let mut by_hand = group_deletion();
    "group kept by hand".clone_into(&mut by_hand.name);
    by_hand.act = |world| world.keep_cut(GROUP, false);
    vec![
        group().and("kept meanwhile", |world| world.keep_cut(GROUP, false), &UNTAKEN),
        group().and("kept by force meanwhile", |world| world.keep_cut(GROUP, true), &UNTAKEN),
        group().and("retained meanwhile", |world| world.retain_cut(GROUP), &LEFT),
        group().and("restored from a backup meanwhile", |world| world.restore_cut(GROUP), &LEFT),
        group().and("restored and deleted meanwhile", |world| world.restore_and_delete_cut(GROUP), &LEFT),
        by_hand,
    ]
}
