//! How often the resizer writes to a claim whose change fails again and again: what the claim says already is not written a second time.

use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::Action;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tonic::Code;

use super::resizes::written;
use super::{api, by_daemon};
use crate::objects::{merge, short_lease};
use crate::resizing::{ALLOCATED, STATE, at, conditions, expanding, modifying, resizer};
use crate::world::World;

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
async fn z57_an_expansion_that_fails_again_and_again_is_written_once() {
    // The mark, and how the call has ended, where that is certain.
    for (code, expected) in [(Code::Internal, 2), (Code::OutOfRange, 2), (Code::DeadlineExceeded, 1)] {
        let world = World::supplied(|_| {}).await;
        let _daemon = world.resizer(short()).await;
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
async fn z57_a_modification_that_fails_again_and_again_is_written_once() {
    for code in [Code::Internal, Code::InvalidArgument, Code::Aborted] {
        let world = World::supplied(|_| {}).await;
        let _daemon = world.resizer(short()).await;
        let (claim, _) = world.sizable_device("claim").await;
        let class = world.attributes("gold", "100").await;
        for answer in answers(code, 6) {
            world.driver().inject(modifying(answer).once());
        }
        world.driver().inject(modifying(Action::Hold).once());
        api(&world).audit().clear();
        world.ask_for_class(&claim, &class).await;
        world.modified_times(7).await;
        assert_eq!(written(&world), [STATUS; 2], "{code:?}: the mark, and how the calls have ended");
        world.driver().release();
        world.classed(&claim, &class).await;
    }
}

#[tokio::test]
async fn z57_other_news_is_one_write_an_attempt() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.resizer(short()).await;
    let (claim, _) = world.sizable_device("claim").await;
    // After a final error, one that leaves the outcome open is news, and so is a final one after it.
    let codes = [Code::Internal, Code::Aborted, Code::Internal, Code::OutOfRange, Code::Unavailable, Code::Internal];
    for code in codes {
        world.driver().inject(expanding(Action::fail(code, "no")).once());
    }
    world.driver().inject(expanding(Action::Hold).once());
    api(&world).audit().clear();
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(codes.len() + 1).await;
    assert_eq!(written(&world), vec![STATUS; 1 + codes.len()]);
    world.driver().release();
    world.sized(&claim, "2Gi").await;
}

#[tokio::test]
async fn z57_a_pair_that_fails_again_and_again_is_two_writes_for_both() {
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
    assert_eq!(written(&world), [STATUS; 2], "the mark of both, and how both have ended");
    world.driver().release();
    world.sized(&claim, "2Gi").await;
    world.classed(&claim, &class).await;
}

/// What the next leader makes of a claim whose driver has refused 9Gi again and again, when the user has come down to 2Gi meanwhile. A
/// leader that has released its Lease has no call under way. One that died may have.
#[tokio::test]
async fn z14_z57_less_is_asked_for_at_once_after_a_release_and_after_a_death_when_the_outcome_is_known() {
    for code in [Code::Internal, Code::OutOfRange] {
        for (dies, expected) in [(false, [2.0, 2.0]), (true, [9.0, 2.0])] {
            let world = World::supplied(|_| {}).await;
            let first = world.daemon(with_short_lease()).await;
            let (claim, _) = world.sizable_device("claim").await;
            world.driver().inject(expanding(Action::fail(code, "no")));
            world.ask_for(&claim, "9Gi").await;
            world.expanded_times(4).await;
            if dies {
                first.kill();
            } else {
                first.stop().await.unwrap();
            }
            let begun = world.claim_now(&claim).await;
            let state =
                if code == Code::Internal { "ControllerResizeInProgress" } else { "ControllerResizeInfeasible" };
            assert_eq!((at(&begun, STATE), at(&begun, ALLOCATED)), (json!(state), json!("9Gi")));
            world.ask_for(&claim, "2Gi").await;
            world.driver().clear_faults();
            world.driver().inject(expanding(Action::fail(code, "no")).once());
            let before = world.expansions().len();
            let _second = world.daemon_on("successor", with_short_lease()).await;
            world.sized(&claim, "2Gi").await;
            assert_eq!(world.sizes_asked().split_off(before), expected, "{code:?}, dies: {dies}");
        }
    }
}

/// The driver has refused 9Gi, and the claim says so. Then the driver says that the operation is pending, and the API takes no writes. A
/// leader that stops now leaves an operation behind that no claim tells of.
#[tokio::test]
async fn i4_a_leader_that_could_not_tell_of_an_open_call_leaves_its_lease_to_expire() {
    let world = World::supplied(|_| {}).await;
    let first = world.daemon(with_short_lease()).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::fail(Code::Internal, "no")).times(2));
    world.driver().inject(expanding(Action::fail(Code::Aborted, "it is pending")));
    world.ask_for(&claim, "9Gi").await;
    world.expanded_times(2).await;
    let refusal = |it: &PersistentVolumeClaim| conditions(it).iter().any(|it| it.starts_with("ControllerResizeError"));
    world.claim_until(&claim, "refused", refusal).await;
    let writes = by_daemon(&world).verb("patch").resource("persistentvolumeclaims");
    let faults = api(&world).faults();
    let busy = faults.add(Fault::on(writes, ApiAction::Refuse(Rejection::service_unavailable("busy"))));
    let begun = world.expansions().len();
    world.expanded_times(begun + 2).await;
    first.stop().await.unwrap();
    world.ask_for(&claim, "2Gi").await;
    faults.remove(busy);
    let before = world.expansions().len();
    world.driver().clear_faults();
    world.driver().inject(expanding(Action::fail(Code::Internal, "no")).once());
    let _second = world.daemon_on("successor", with_short_lease()).await;
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.sizes_asked().split_off(before), [9.0, 2.0]);
}
