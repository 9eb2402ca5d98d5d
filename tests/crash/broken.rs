//! What the verdict says of daemons that touch what a user has kept, or that ask for what no content marks (J8 to J10): a check that
//! cannot fail proves nothing.

use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::api::{Api, ApiOptions};
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::cuts::{CUTS, Cut, SINGLE};
use super::verdict;
use super::world::World;
use crate::invariants::Invariant;
use crate::snapshots::histories::call;
use crate::trace::Trace;

/// Who wants the snapshot or the group, which the driver has under the name `cut-wanted`.
const OWNER: &str = "wanted";

fn world() -> World {
    let clock = Clock::system();
    let world = World::new(Api::new(ApiOptions::new(clock, Rng::seeded(1))), Driver::new(Profile::default(), clock));
    world.api.install("snapshot.storage.k8s.io");
    world.api.install("groupsnapshot.storage.k8s.io/v1");
    world
}

/// The driver has a snapshot or a group of two.
fn made(world: &World, cut: Cut) -> String {
    world.driver.seed(["v", "w"]);
    let name = format!("cut-{OWNER}");
    if cut == SINGLE {
        return world.driver.cut_snapshot(&name, "v").unwrap();
    }
    let source_volume_ids = vec!["v".to_owned(), "w".to_owned()];
    let request = CreateVolumeGroupSnapshotRequest { name, source_volume_ids, ..Default::default() };
    let profile = world.driver.profile();
    let made = world.driver.change_state(|state| state.create_group(&profile, &request, Timestamp::UNIX_EPOCH));
    made.unwrap().group_snapshot.unwrap().group_snapshot_id
}

fn methods(cut: Cut) -> [Method; 2] {
    if cut == SINGLE {
        [Method::CreateSnapshot, Method::DeleteSnapshot]
    } else {
        [Method::CreateVolumeGroupSnapshot, Method::DeleteVolumeGroupSnapshot]
    }
}

/// What is said of a call with this subject.
fn said_of(world: &World, method: Method, subject: &str) -> Vec<Invariant> {
    let trace = Trace::new();
    let call = call(1, Duration::ZERO, method, subject);
    verdict::on_call(&trace, world, true, &call, &world.driver.state());
    trace.violations().into_iter().map(|(invariant, _)| invariant).collect()
}

#[test]
fn a_daemon_that_deletes_or_cuts_again_what_a_user_has_kept_is_found_out() {
    for cut in CUTS {
        let world = world();
        let handle = made(&world, cut);
        let [create, delete] = methods(cut);
        assert_eq!(said_of(&world, delete, &handle), [], "nobody has kept it");
        let since = Instant::now() - Duration::from_secs(1);
        world.kept_cuts.lock().unwrap().insert(handle.clone(), since);
        assert_eq!(said_of(&world, delete, &handle), [Invariant::P3], "{handle}");
        assert!(said_of(&world, create, &format!("cut-{OWNER}")).contains(&Invariant::P1), "{handle}");
        let is_leaked = |it: &&String| **it == format!("leak: no content tells of {handle}");
        assert_eq!(verdict::in_the_end(&world, &[]).iter().find(is_leaked), None, "it may stay");
        world.kept_cuts.lock().unwrap().insert("deleted".to_owned(), since);
        let wrong = verdict::in_the_end(&world, &[]);
        assert!(wrong.contains(&"lost: a user has kept deleted".to_owned()), "{wrong:#?}");
    }
}

#[test]
fn a_daemon_that_cuts_what_no_content_marks_or_leaves_it_behind_is_found_out() {
    for cut in CUTS {
        let world = world();
        let [create, _] = methods(cut);
        let name = format!("cut-{OWNER}");
        assert_eq!(said_of(&world, create, &name), [Invariant::J1], "there is no content");
        cut.content(&world, OWNER, &json!({}));
        assert_eq!(said_of(&world, create, &name), [Invariant::J1], "nothing is on it");
        cut.content(&world, OWNER, &json!({ cut.mark: "yes" }));
        assert_eq!(said_of(&world, create, &name), [], "it is marked");
        let handle = made(&world, cut);
        let wrong = verdict::in_the_end(&world, &[]);
        assert!(wrong.contains(&format!("leak: no content tells of {handle}")), "{wrong:#?}");
        assert!(wrong.iter().any(|it| it.starts_with("left: ")), "a call is still unanswered: {wrong:#?}");
    }
}
