//! A journal that cannot be read or written: edited, too large, full, forbidden. The driver gets no request without an
//! entry, and nothing is lost.

use std::collections::BTreeSet;

use csi_control_plane::sandbox::driver::{Driver, Method};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::journal::{LABEL, SEGMENTS, VERSION};
use crate::objects::config_with;
use crate::supplier::{figure, rights, says, supplier, unanswered};
use crate::world::World;

/// What makes a segment one that a daemon must not touch, each with what the message has to name beside the object.
fn unreadable(uid: &str) -> Vec<(&'static str, Value, &'static str)> {
    let data = |text: &str| json!({ "data": { uid: text } });
    let annotated = |version: Value| json!({ "metadata": { "annotations": { VERSION: version } } });
    vec![
        ("an entry that is no JSON", data("{\"at\":"), "UID"),
        ("an entry of another shape", data("{\"at\":\"2026-01-01T00:00:00Z\",\"driver\":5}"), "UID"),
        ("no version", annotated(Value::Null), VERSION),
        ("a newer version", annotated(json!("2")), "2"),
        ("another driver", json!({ "metadata": { "labels": { LABEL: "other.example.com" } } }), "other.example.com"),
        ("binary data", json!({ "binaryData": { "key": "AAAA" } }), "binaryData"),
        ("an immutable object", json!({ "immutable": true }), "immutable"),
    ]
}

#[tokio::test]
async fn a_leader_that_finds_a_segment_that_it_cannot_read_provisions_nothing_and_names_it() {
    // Side by side: each waits for back-offs.
    futures::future::join_all((0..unreadable("").len()).map(finds_unreadable)).await;
}

async fn finds_unreadable(which: usize) {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    let begun = world.begun(&class, 1).await.remove(0);
    first.stop().await.unwrap();
    world.driver().clear_faults();
    let uid = world.claim_uid(&begun).await;
    let (what, patch, named) = unreadable(&uid).remove(which);
    let name = world.segment(0);
    let sound = world.config_maps().get(&name).await.unwrap();
    world.patch_segment(&name, patch).await;
    let edited = world.config_maps().get(&name).await.unwrap();
    let before = world.driver().calls_of(Method::CreateVolume).len();

    let second = world.daemon_on("second", supplier(json!({}))).await;
    let named = if named == "UID" { &uid } else { named };
    world.page_names(&second, &[&world.segment_shown(0), named]).await;
    let next = world.claim("next", &class, json!({})).await;
    world.page_names(&second, &[&world.segment_shown(0)]).await;
    let unreadable = "csi_control_plane_journal_unreadable";
    assert_eq!(figure(&world.metrics(&second).await, unreadable, &[]), Some(1.0), "{what}");
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), before, "{what}");
    assert_eq!(world.config_maps().get(&name).await.unwrap(), edited, "{what}");

    assert!(!second.has_ended());
    let mut second = Some(second);
    if edited.immutable == Some(true) {
        // It can only be deleted, which nobody should do while a daemon could take it for an empty journal.
        second.take().unwrap().stop().await.unwrap();
        world.delete_segment(&name).await;
    }
    world.restore_segment(&sound).await;
    let third = if second.is_none() { Some(world.daemon_on("third", supplier(json!({}))).await) } else { None };
    world.supplied_with(&begun).await;
    world.supplied_with(&next).await;
    if let Some(third) = &third {
        // An object that was created again is a copy, and its entry is left for people.
        world.page_names(third, &["it is a copy"]).await;
        world.patch_segment(&name, json!({ "data": { &uid: null } })).await;
    }
    world.journal_is_empty().await;
    if let Some(daemon) = second.as_ref().or(third.as_ref()) {
        assert_eq!(figure(&world.metrics(daemon).await, unreadable, &[]), Some(0.0), "{what}");
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_leader_whose_segment_becomes_unreadable_asks_for_nothing_until_it_is_repaired() {
    // Both at once: the journal looks for that twice a minute.
    futures::join!(becomes_unreadable(0), becomes_unreadable(3));
}

async fn becomes_unreadable(which: usize) {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let begun = world.begun(&class, 1).await.remove(0);
    let uid = world.claim_uid(&begun).await;
    let (what, patch, _) = unreadable(&uid).remove(which);
    let name = world.segment(0);
    let sound = world.config_maps().get(&name).await.unwrap();
    world.patch_segment(&name, patch).await;
    let edited = world.config_maps().get(&name).await.unwrap();
    world.page_names(&daemon, &[&world.segment_shown(0)]).await;
    let next = world.claim("next", &class, json!({})).await;
    world.claim_told(&next, "ProvisioningFailed", &world.segment_shown(0)).await;
    let before = world.times_asked(&begun).await;
    world.claim_told(&begun, "ProvisioningFailed", &world.segment_shown(0)).await;
    assert_eq!((world.times_asked(&begun).await, world.times_asked(&next).await), (before, 0), "{what}");
    assert_eq!(world.config_maps().get(&name).await.unwrap(), edited, "{what}");
    world.driver().clear_faults();
    world.restore_segment(&sound).await;
    world.supplied_with(&begun).await;
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn an_entry_that_is_too_large_is_refused_and_holds_up_no_other() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    // Twice as long where it is written down.
    let large = json!({ "parameters": { "pattern": "\"".repeat(200 * 1024) } });
    let (large, class) = (world.class("large", large).await, world.class("class", json!({})).await);
    let claim = world.claim("claim", &large, json!({})).await;
    let told = world.claim_told(&claim, "ProvisioningFailed", "journal").await;
    assert!(told.iter().any(|it| says(it, "ProvisioningFailed", "bytes")), "{told:#?}");
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    assert_eq!(world.times_asked(&claim).await, 0);
    world.delete_claim(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_segment_that_is_larger_than_ours_gets_no_further_entry_and_loses_those_that_it_has() {
    let world = World::supplied(|_| {}).await;
    let slow = json!({ "retry": { "initial": "2s", "max": "2s", "infeasible": "2s" } });
    let first = world.daemon_on("first", supplier(slow.clone())).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" } })).await;
    let begun = world.begun(&class, 1).await.remove(0);
    let (uid, mut entry) = (world.claim_uid(&begun).await, world.recorded(&begun).await);
    first.stop().await.unwrap();
    entry["request"]["parameters"]["kind"] = "x".repeat(200 * 1024).into();
    let large = (0..4).map(|number| {
        let other = format!("{number}0000000-1111-4222-8333-444444444444");
        (other.clone(), serde_json::from_str(&entry.to_string().replace(&uid, &other)).unwrap())
    });
    world.write_entries(&world.segment(0), &large.collect()).await;
    let _second = world.daemon_on("second", supplier(slow)).await;
    let next = world.claim("next", &class, json!({})).await;
    world.asked(&next, 1).await;
    let large = world.config_maps().get(&world.segment(0)).await.unwrap();
    assert_eq!(large.data.unwrap().len(), 5);
    let other = world.config_maps().get(&world.segment(1)).await.unwrap();
    assert!(other.data.unwrap().contains_key(&world.claim_uid(&next).await));
    world.driver().clear_faults();
    world.supplied_with(&begun).await;
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    world.driver_until("nothing without a claim", |driver| driver.state().volumes().len() == 2).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn claims_for_which_the_journal_has_no_room_wait_until_it_has_some() {
    /// A segment takes two entries of this size.
    const LARGE: usize = 200 * 1024;
    let world = World::supplied(|_| {}).await;
    let slow = json!({ "retry": { "initial": "2s", "max": "2s", "infeasible": "2s" } });
    let daemon = world.supplier(slow).await;
    let class = world.class("class", json!({ "parameters": { "pattern": "x".repeat(LARGE) } })).await;
    world.driver().inject(unanswered());
    let mut claims = Vec::new();
    for number in 0..2 * SEGMENTS + 3 {
        claims.push(world.claim(&format!("claim-{number}"), &class, json!({})).await);
    }
    let asked = |driver: &Driver| {
        let calls = driver.calls_of(Method::CreateVolume);
        calls.into_iter().filter_map(|call| call.name.clone()).collect::<BTreeSet<_>>().len()
    };
    world.driver_until("asked for all that there is room for", |driver| asked(driver) == 2 * SEGMENTS).await;
    let is_full = async || {
        let events = world.namespaced::<Event>().list(&ListParams::default()).await.unwrap().items;
        let of_world = |it: &&Event| it.involved_object.name.as_ref().is_some_and(|it| claims.contains(it));
        let told = events.iter().filter(of_world).filter(|it| says(it, "ProvisioningFailed", "full")).count();
        (told == 3).then_some(())
    };
    crate::world::wait::asked("three claims that wait", is_full).await;
    world.page_names(&daemon, &["full"]).await;
    assert_eq!(asked(world.driver()), 2 * SEGMENTS);
    assert_eq!(world.segments().await.len(), SEGMENTS);
    assert_eq!(world.journal().await.len(), 2 * SEGMENTS);
    world.driver().clear_faults();
    for claim in &claims {
        world.supplied_with(claim).await;
    }
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn claims_wait_with_an_event_where_the_journal_may_not_be_written_and_nothing_is_asked() {
    for (verbs, told, is_there) in [("create", "create", false), ("create|patch", "patch", true)] {
        let world = World::supplied(|_| {}).await;
        let (host, config) = (world.name("daemon"), config_with(supplier(json!({}))));
        let daemon = world.daemon(supplier(json!({}))).await;
        let class = world.class("class", json!({})).await;
        if is_there {
            let before = world.claim("before", &class, json!({})).await;
            world.supplied_with(&before).await;
            world.journal_is_empty().await;
        }
        world.ground().grant(&host, &rights(&world, &config, Some((verbs, "configmaps")))).await;
        let claim = world.claim("claim", &class, json!({})).await;
        let cannot = format!("cannot {told} resource \"configmaps\"");
        world.claim_told(&claim, "ProvisioningFailed", &cannot).await;
        world.page_names(&daemon, &["cannot", "resource \"configmaps\""]).await;
        assert_eq!(world.times_asked(&claim).await, 0);
        world.ground().grant(&host, &rights(&world, &config, None)).await;
        world.supplied_with(&claim).await;
        assert_eq!(world.times_asked(&claim).await, 1);
        world.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_leader_that_may_not_read_the_journal_names_the_right_and_begins_when_it_has_it() {
    let world = World::supplied(|_| {}).await;
    let (host, config) = (world.name("second"), config_with(supplier(json!({}))));
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let begun = world.begun(&class, 1).await.remove(0);
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("get", "configmaps")))).await;
    first.stop().await.unwrap();
    world.driver().clear_faults();
    let before = world.times_asked(&begun).await;
    let next = world.claim("next", &class, json!({})).await;
    world.page_names(&second, &["cannot get resource \"configmaps\""]).await;
    assert_eq!((world.times_asked(&begun).await, world.times_asked(&next).await), (before, 0));
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.supplied_with(&begun).await;
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
}
