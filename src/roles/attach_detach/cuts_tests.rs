//! Wherever the attach/detach controller is cut, the next leader comes to the same end (D27).

use serde_json::json;

use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::served::Served;

use super::fixtures::{attach, attachment, attachments, bind, cluster, pod, report, reported, wanting};

/// Where attachments are, and what each node reports.
type Ended = (Vec<(String, String)>, Vec<String>, Vec<String>);

/// That it has come to this end. The attacher attaches meanwhile.
fn ends(at: &'static [&'static str; 2], world: &Served) -> Option<Ended> {
    attach(world);
    let (one, other) = (reported(world, "n1"), reported(world, "n2"));
    let is_at =
        |reported: &[String], at: &str| reported.iter().map(String::as_str).eq(Some(at).filter(|it| !it.is_empty()));
    let held = attachments(world);
    let count = at.iter().filter(|it| !it.is_empty()).count();
    (is_at(&one, at[0]) && is_at(&other, at[1]) && held.len() == count).then_some((held, one, other))
}

/// A volume that is attached to n1, and reported.
async fn attached() -> Served {
    let world = cluster(json!({})).await;
    bind(&world, "data", "v", "ReadWriteOnce");
    attachment(&world, "n1", "v", "data", true);
    report(&world, "n1", &["v"]);
    world
}

#[tokio::test(start_paused = true)]
async fn d27_what_a_pod_wants_is_attached_and_reported() {
    let scene = async || wanting(json!({})).await;
    assert_the_same_end(scene, |world| ends(&["v", ""], world)).await;
}

#[tokio::test(start_paused = true)]
async fn d27_what_nobody_wants_is_withdrawn_and_then_deleted() {
    assert_the_same_end(attached, |world| ends(&["", ""], world)).await;
}

#[tokio::test(start_paused = true)]
async fn d3_d27_an_exclusive_volume_moves_with_its_pod() {
    let scene = async || {
        let world = attached().await;
        pod(&world, "web", "n2", "data");
        world
    };
    assert_the_same_end(scene, |world| ends(&["", "v"], world)).await;
}

#[tokio::test(start_paused = true)]
async fn d27_d32_an_attachment_of_no_known_volume_is_deleted() {
    let scene = async || {
        let world = cluster(json!({ "orphanGrace": "2s" })).await;
        attachment(&world, "n1", "v", "gone", true);
        world
    };
    assert_the_same_end(scene, |world| ends(&["", ""], world)).await;
}
