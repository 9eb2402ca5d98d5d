//! How often the resizer writes to a claim whose change fails again and again: once for each end that is known, and once before a call
//! that repeats a refused one. What the claim says already is not written a second time.

use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::Action;
use serde_json::json;
use tonic::Code;

use super::resizes::written;
use super::{api, by_daemon};
use crate::objects::{merge, short_lease};
use crate::resizing::{expanding, modifying, resizer};
use crate::world::World;
use crate::world::wait::asked;

const STATUS: &str = "persistentvolumeclaims/status 200";

/// The role's section: an attempt is as soon after an infeasible answer as after any other.
fn short() -> serde_json::Value {
    json!({"retry": {"initial": "50ms", "max": "100ms", "infeasible": "100ms"}})
}

/// The configuration of a daemon whose Lease is short.
fn with_short_lease() -> serde_json::Value {
    let mut config = resizer(short());
    merge(&mut config, short_lease());
    config
}

/// The answers of a driver that puts another ID into each text.
fn answers(code: Code, times: usize) -> Vec<Action> {
    (0..times).map(|number| Action::fail(code, &format!("request 0a1b2c3d-{number:04} failed"))).collect()
}

#[tokio::test]
async fn z57_an_expansion_that_fails_again_and_again_is_written_at_its_beginning_and_its_end() {
    // The mark, and how each call has ended, where that is certain; then another mark comes before the next.
    for (code, expected) in [(Code::Internal, 13), (Code::OutOfRange, 13), (Code::DeadlineExceeded, 1)] {
        let (world, _daemon) = World::with_resizer(short()).await;
        let (claim, _) = world.sizable_device("claim").await;
        for answer in answers(code, 6) {
            world.driver().inject(expanding(answer).once());
        }
        world.driver().inject(expanding(Action::Hold).once());
        api(&world).audit().clear();
        world.ask_for(&claim, "2Gi").await;
        world.expanded_times(7).await;
        assert_eq!(written(&world), vec![STATUS; expected], "{code:?}: six failures, and a seventh call");
        world.driver().release();
        world.sized(&claim, "2Gi").await;
    }
}

#[tokio::test]
async fn z57_a_modification_that_fails_again_and_again_is_written_at_its_beginning_and_its_end() {
    // After an end that is not certain nothing has to be said again.
    for (code, expected) in [(Code::Internal, 13), (Code::InvalidArgument, 13), (Code::Aborted, 2)] {
        let (world, _daemon) = World::with_resizer(short()).await;
        let (claim, _) = world.sizable_device("claim").await;
        let class = world.attributes("gold", "100").await;
        for answer in answers(code, 6) {
            world.driver().inject(modifying(answer).once());
        }
        world.driver().inject(modifying(Action::Hold).once());
        api(&world).audit().clear();
        world.ask_for_class(&claim, &class).await;
        world.modified_times(7).await;
        assert_eq!(written(&world), vec![STATUS; expected], "{code:?}: six failures, and a seventh call");
        world.driver().release();
        world.classed(&claim, &class).await;
    }
}

#[tokio::test]
async fn z57_what_is_open_already_is_not_written_again() {
    let (world, _daemon) = World::with_resizer(short()).await;
    let (claim, _) = world.sizable_device("claim").await;
    // A refusal is news, and so is that the driver is asked again after one. That a call is open the claim says by then.
    let codes = [Code::Internal, Code::Aborted, Code::Internal, Code::OutOfRange, Code::Unavailable, Code::Internal];
    for code in codes {
        world.driver().inject(expanding(Action::fail(code, "no")).once());
    }
    world.driver().inject(expanding(Action::Hold).once());
    api(&world).audit().clear();
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(codes.len() + 1).await;
    assert_eq!(written(&world), vec![STATUS; 1 + 4 + 4], "the mark, four refusals, and a mark after each");
    world.driver().release();
    world.sized(&claim, "2Gi").await;
}

#[tokio::test]
async fn z57_a_pair_that_fails_again_and_again_is_one_write_for_both_at_each_beginning_and_end() {
    let world = World::supplied(|profile| profile.abort_while_pending = false).await;
    let mut section = short();
    section["pairCalls"] = json!("always");
    let _daemon = world.resizer(section).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    for (expands, modifies) in answers(Code::Internal, 4).into_iter().zip(answers(Code::Internal, 4)) {
        world.driver().inject(expanding(expands).once());
        world.driver().inject(modifying(modifies).once());
    }
    world.driver().inject(expanding(Action::Hold).once());
    world.driver().inject(modifying(Action::Hold).once());
    api(&world).audit().clear();
    let both = json!({"spec": {"volumeAttributesClassName": class, "resources": {"requests": {"storage": "2Gi"}}}});
    world.patch_claim(&claim, both).await;
    world.expanded_times(5).await;
    world.modified_times(5).await;
    assert_eq!(written(&world), [STATUS; 9], "the mark of both, and how both have ended, and so on");
    world.driver().release();
    world.sized(&claim, "2Gi").await;
    world.classed(&claim, &class).await;
}

/// The driver has refused 9Gi, and the claim says so. While the claim cannot say that the driver is asked again, it is not: the next
/// leader would believe the claim.
#[tokio::test]
async fn i4_what_was_refused_is_asked_for_again_only_after_the_claim_says_so() {
    for code in [Code::Internal, Code::OutOfRange] {
        let world = World::supplied(|_| {}).await;
        let first = world.daemon(with_short_lease()).await;
        let (claim, _) = world.sizable_device("claim").await;
        world.driver().inject(expanding(Action::fail(code, "no")).once());
        world.driver().inject(expanding(Action::fail(Code::Aborted, "it is pending")));
        let writes = by_daemon(&world).verb("patch").resource("persistentvolumeclaims");
        let faults = api(&world).faults();
        // The third write is the mark of the second call.
        let busy = Fault::on(writes, ApiAction::Refuse(Rejection::service_unavailable("busy"))).from_nth(3);
        let busy = faults.add(busy);
        world.ask_for(&claim, "9Gi").await;
        asked("marks", async || (faults.hits(busy) >= 3).then_some(())).await;
        assert_eq!(world.sizes_asked(), [9.0], "{code:?}");
        first.kill();
        world.ask_for(&claim, "2Gi").await;
        faults.remove(busy);
        world.driver().clear_faults();
        let _second = world.daemon_on("successor", with_short_lease()).await;
        world.sized(&claim, "2Gi").await;
        assert_eq!(world.sizes_asked(), [9.0, 2.0], "{code:?}");
    }
}
