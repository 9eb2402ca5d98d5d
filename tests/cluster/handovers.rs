//! csi-snapshotter hands over to the daemon and back while a snapshot and a group stand at each moment of their lives, beside the real
//! snapshot-controller: before the driver cuts them, cut and not ready, ready, and while they are deleted.

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use serde_json::{Value, json};
use tonic::Code;

use crate::cluster::snapshotters::{csi_snapshotter, led_by};
use crate::ground::Daemon;
use crate::grouping::{self, CutGroup, GROUP};
use crate::programs::Program;
use crate::snapshotting::{Cut, SNAPSHOT, handle_in, is_begun, is_ready};
use crate::world::World;

/// csi-snapshotter looks again at what waits within the patience of these tests.
const SOON: [&str; 2] = ["--resync-period=1s", "--retry-interval-max=1s"];

/// Who works.
enum Leader {
    Theirs(Program),
    Ours(Daemon),
}

impl Leader {
    async fn start(world: &World, is_ours: bool) -> Self {
        let leader = if is_ours {
            Self::Ours(world.snapshotter(json!({})).await)
        } else {
            Self::Theirs(csi_snapshotter(world, &SOON))
        };
        led_by(world, is_ours).await;
        leader
    }

    async fn stop(self) {
        match self {
            Self::Theirs(program) => program.stop().await,
            Self::Ours(daemon) => daemon.stop().await.unwrap(),
        }
    }
}

/// A snapshot and a group that stand at the same moment.
struct Pair {
    single: Cut,
    group: CutGroup,
}

impl Pair {
    /// A user asks for both.
    async fn cut(world: &World, short: &str, classes: &[String; 2]) -> Self {
        let source = world.source(&format!("{short}-source")).await;
        world.labelled(short).await;
        let single = world.cut(&format!("{short}-single"), &source, &classes[0]).await;
        Self { single, group: world.cut_group(short, &classes[1]).await }
    }

    /// Both are ready, and so are the members of the group.
    async fn usable(&self, world: &World) -> [String; 2] {
        world.look_until(SNAPSHOT, &self.single.snapshot, "ready", is_ready).await;
        let content = world.content_until(&self.single.content, "no call is owed", |it| !is_begun(it)).await;
        let group = world.group_usable(&self.group).await;
        [handle_in(&content).unwrap().to_owned(), grouping::handle_in(&group).unwrap().to_owned()]
    }

    async fn delete(&self, world: &World) {
        world.delete_snapshot(&self.single).await;
        world.delete_group(&self.group).await;
    }

    async fn away(&self, world: &World) {
        world.cut_gone(&self.single).await;
        world.group_away(&self.group).await;
    }

    /// How often the driver was called to cut each. Each call was the same as the one before.
    fn asked(&self, world: &World) -> [usize; 2] {
        let single = world.cuts(&self.single);
        assert!(single.iter().all(|call| call.cut == single[0].cut), "{single:#?}");
        let mut group = world.group_cuts();
        group.retain(|call| call.snapshot.as_deref() == Some(self.group.name.as_str()));
        assert!(group.iter().all(|call| call.cut_group == group[0].cut_group), "{group:#?}");
        [single.len(), group.len()]
    }
}

/// A call that this leader makes is answered like this, if it is about this.
fn about(method: Method, subject: &str, action: Action) -> Fault {
    Fault::on(method, action).snapshot(subject)
}

fn unavailable() -> Action {
    Action::fail(Code::Unavailable, "not yet")
}

fn lost() -> Action {
    Action::DoneButFail { code: Code::DeadlineExceeded, message: "too slow".to_owned() }
}

/// One leads until each pair stands at its moment, stops, and the other leads.
async fn at_each_moment(from_ours: bool) {
    let world = World::snapshotting(|_| {}).await;
    let parameters = json!({"parameters": {"tier": "fast"}});
    let single_class = world.snapshot_class("class", parameters.clone()).await;
    let classes = [single_class, world.group_class("group-class", parameters).await];
    let first = Leader::start(&world, from_ours).await;

    let ready = Pair::cut(&world, "ready", &classes).await;
    let going = Pair::cut(&world, "going", &classes).await;
    ready.usable(&world).await;
    let [single, group] = going.usable(&world).await;
    // While it is deleted: the driver has done it, and nobody knows.
    world.driver().inject(about(Method::DeleteSnapshot, &single, lost()));
    world.driver().inject(about(Method::DeleteVolumeGroupSnapshot, &group, lost()));
    going.delete(&world).await;
    let is_asked = |world: &World| !world.deletions().is_empty() && !world.group_deletions().is_empty();
    world.driver_until("both deletions", |_| is_asked(&world)).await;

    world.driver().change_profile(|profile| profile.snapshots_wait = true);
    let unready = Pair::cut(&world, "unready", &classes).await;
    let is_cut = |it: &Value| handle_in(it).is_some() && !is_ready(it) && !is_begun(it);
    world.content_until(&unready.single.content, "cut and not ready", is_cut).await;
    let is_cut = |it: &Value| grouping::handle_in(it).is_some() && !is_ready(it);
    world.group_until(&unready.group, "cut and not ready", is_cut).await;

    // Before the cut, last of all, as nothing else is cut from here on: the driver does nothing, and says nothing final.
    for method in [Method::CreateSnapshot, Method::CreateVolumeGroupSnapshot] {
        world.driver().inject(Fault::on(method, unavailable()));
    }
    let uncut = Pair::cut(&world, "uncut", &classes).await;
    world.content_until(&uncut.single.content, "begun", is_begun).await;
    world.group_until(&uncut.group, "begun", grouping::is_begun).await;
    world.driver_until("both are asked for", |_| uncut.asked(&world).iter().all(|calls| *calls > 0)).await;
    assert_eq!(
        world.driver().state().snapshots().len(),
        2 * 3,
        "those of ready and unready: those of going are deleted"
    );

    first.stop().await;
    let (of_ready, of_uncut) = (ready.asked(&world), uncut.asked(&world));
    world.driver().clear_faults();
    let second = Leader::start(&world, !from_ours).await;

    going.away(&world).await;
    world
        .driver_until("both are cut", |_| {
            uncut.asked(&world).iter().zip(of_uncut).all(|(calls, before)| *calls > before)
        })
        .await;
    for pair in [&uncut, &unready] {
        assert!(!is_ready(&world.look(SNAPSHOT, &pair.single.snapshot).await));
        assert!(!is_ready(&world.look(GROUP, &pair.group.group).await));
    }
    world.driver().change_profile(|profile| profile.snapshots_wait = false);
    for pair in [&uncut, &unready, &ready] {
        pair.usable(&world).await;
        pair.asked(&world);
    }
    assert_eq!(ready.asked(&world), of_ready, "what is ready is not asked for again");
    world.assert_no_snapshot_leaked().await;
    world.assert_no_group_leaked().await;
    let there = world.driver().state();
    assert_eq!((there.groups().len(), there.snapshots().len()), (3, 3 + 2 * 3));

    for pair in [&uncut, &unready, &ready] {
        pair.delete(&world).await;
    }
    for pair in [&uncut, &unready, &ready] {
        pair.away(&world).await;
    }
    // The contents of a group's members may outlive the group's, and go only with a leader.
    world.assert_no_snapshot_left().await;
    second.stop().await;
    assert_eq!(world.group_contents().await, Vec::<Value>::new());
    assert!(world.driver().state().groups().is_empty());
}

#[tokio::test]
async fn the_daemon_takes_over_a_snapshot_and_a_group_at_each_moment_of_their_lives() {
    at_each_moment(false).await;
}

#[tokio::test]
async fn csi_snapshotter_takes_over_a_snapshot_and_a_group_at_each_moment_of_their_lives() {
    at_each_moment(true).await;
}

#[tokio::test]
async fn a_group_is_cut_with_its_members_beside_the_real_snapshot_controller_and_goes_with_one_call() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let cut = world.cut_group_anew().await;
    let content = world.group_ready(&cut).await;
    assert_eq!(content["status"]["volumeSnapshotInfoList"].as_array().unwrap().len(), 2, "{content:#}");
    assert_eq!(world.group_cuts().len(), 1);
    world.assert_no_snapshot_leaked().await;
    world.assert_no_group_leaked().await;
    world.delete_group(&cut).await;
    world.group_gone(&cut).await;
    let deletions = world.group_deletions();
    assert_eq!((deletions.len(), deletions[0].members.len()), (1, 2));
    assert!(world.deletions().is_empty(), "no member is deleted alone");
}
