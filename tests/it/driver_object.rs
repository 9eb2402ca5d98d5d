//! The driver's `CSIDriver` object: what of it does not fit is told where people look, and no longer once it fits.

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::failures::plan;
use crate::ground::Daemon;
use crate::objects;
use crate::rights::without;
use crate::supplier::short_times;
use crate::world::{PATIENCE, World, settled};

const REASON: &str = "CSIDriverMisfit";

/// The attacher without gRPC codes, and the provisioner without capacity.
fn roles() -> Value {
    json!({"roles": {"attacher": {"errorCodes": false}, "provisioner": short_times()}})
}

impl World {
    async fn announce(&self, spec: Value) -> String {
        let object: CSIDriver = self.create(json!({"metadata": {"name": self.driver_name()}, "spec": spec})).await;
        object.metadata.uid.unwrap()
    }

    async fn withdraw_object(&self) {
        self.all::<CSIDriver>().delete(self.driver_name(), &DeleteParams::default()).await.unwrap();
    }

    async fn edit_object(&self, spec: Value) {
        let _: CSIDriver = self.merge_patch(self.driver_name(), json!({"spec": spec})).await;
    }

    /// The misfits that the daemon counts, and the warnings of its status page about the object.
    async fn misfits(&self, daemon: &Daemon) -> (Vec<String>, Vec<String>) {
        let metrics = self.metrics(daemon).await;
        let begin = format!("csi_control_plane_driver_object_misfit{{driver_name=\"{}\",misfit=\"", self.driver_name());
        let counted = metrics.lines().filter_map(|line| line.strip_prefix(&begin)?.strip_suffix("} 1"));
        let mut counted: Vec<String> =
            counted.map(|rest| rest.replace("\",severity=\"", " ").trim_end_matches('"').to_owned()).collect();
        counted.sort();
        let status = self.status(daemon).await;
        let warnings = status["warnings"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
        let begin = format!("CSIDriver {}: ", self.driver_name());
        (counted, warnings.filter_map(|it| Some(it.strip_prefix(&begin)?.to_owned())).collect())
    }

    /// Waits until exactly these misfits are counted, and warnings with exactly these beginnings are shown.
    async fn told(&self, daemon: &Daemon, misfits: &[&str], warnings: &[&str]) {
        let what = format!("{misfits:?} are counted, and {warnings:?} shown");
        settled(&what, PATIENCE, async || {
            let (counted, shown) = self.misfits(daemon).await;
            let is_shown =
                shown.len() == warnings.len() && shown.iter().zip(warnings).all(|(it, begin)| it.starts_with(begin));
            if counted == misfits && is_shown { Ok(()) } else { Err(format!("{counted:?}, {shown:#?}")) }
        })
        .await;
    }

    /// Waits for so many Events about the misfits of the object with this uid, and returns type, component and text of each.
    async fn misfit_events(&self, uid: &str, count: usize) -> Vec<(String, String, String)> {
        let of_misfit = |event: &&Event| event.reason.as_deref() == Some(REASON);
        let enough = |events: &[Event]| events.iter().filter(of_misfit).count() >= count;
        let events = self.events_until(uid, "Events about misfits", enough).await;
        let mut found: Vec<_> = events
            .iter()
            .filter(of_misfit)
            .map(|it| {
                let source = it.source.clone().unwrap().component.unwrap();
                (it.type_.clone().unwrap(), source, it.message.clone().unwrap())
            })
            .collect();
        found.sort();
        assert_eq!(found.len(), count, "{found:#?}");
        found
    }
}

#[tokio::test]
async fn an_object_that_is_made_edited_deleted_and_made_anew_is_told_each_time_and_no_longer_once_it_fits() {
    let (world, daemon) = World::with_daemon(roles()).await;
    // Both roles miss it, and it is told once.
    world.told(&daemon, &["object_missing fault"], &["the object does not exist: "]).await;
    let first = world.announce(json!({"attachRequired": true})).await;
    world.told(&daemon, &[], &[]).await;

    world.edit_object(json!({"storageCapacity": true})).await;
    world.told(&daemon, &["capacity_not_published fault"], &["storageCapacity is true, but "]).await;
    let label = json!({"metadata": {"labels": {"edited": "once-more"}}});
    let _: CSIDriver = world.merge_patch(world.driver_name(), label).await;
    world.edit_object(json!({"nodeAllocatableUpdatePeriodSeconds": 60})).await;
    let both = ["capacity_not_published fault", "limit_not_reported fault"];
    let warnings = ["storageCapacity is true, but ", "nodeAllocatableUpdatePeriodSeconds is set, but "];
    world.told(&daemon, &both, &warnings).await;
    let events = world.misfit_events(&first, 2).await;
    for ((kind, source, text), (role, warning)) in
        events.iter().zip([("attacher", warnings[1]), ("provisioner", warnings[0])])
    {
        assert_eq!((kind.as_str(), source.as_str()), ("Warning", &*format!("external-{role} {}", world.driver_name())));
        assert!(text.starts_with(warning), "{text}");
    }
    world.edit_object(json!({"storageCapacity": false, "nodeAllocatableUpdatePeriodSeconds": null})).await;
    world.told(&daemon, &[], &[]).await;

    // A field that cannot be changed: who edits it deletes the object and makes another.
    world.withdraw_object().await;
    let second = world.announce(json!({"attachRequired": false})).await;
    world.told(&daemon, &["attach_not_called fault"], &["attachRequired is false, but "]).await;
    world.misfit_events(&second, 1).await;
    world.withdraw_object().await;
    let third = world.announce(json!({"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]})).await;
    let both = ["attach_not_called fault", "persistent_not_allowed fault"];
    world.told(&daemon, &both, &["attachRequired is false, but ", "volumeLifecycleModes lacks "]).await;
    world.misfit_events(&third, 2).await;
    world.withdraw_object().await;
    world.told(&daemon, &["object_missing fault"], &["the object does not exist: "]).await;
    world.misfit_events(&first, 2).await;
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn another_configuration_and_another_driver_are_held_against_the_object_anew() {
    let world = World::with_rpc(Rpc::PublishUnpublishVolume, false).await;
    let object = world.announce(json!({"attachRequired": true})).await;
    let daemon = world.daemon(json!({})).await;
    // What costs something without stopping anything is no warning.
    world.told(&daemon, &["attach_not_needed hint"], &[]).await;
    let is_fact = |status: &Value| {
        let roles = status["roles"].as_array().unwrap();
        let attacher = roles.iter().find(|role| role["name"] == "attacher").unwrap();
        attacher["facts"].to_string().contains("attachRequired is true, but the driver attaches no volume")
    };
    world.shows(&daemon, "the hint is a fact of its role", is_fact).await;
    assert_eq!(world.misfit_events(&object, 1).await[0].0, "Normal");
    world.driver().change_profile(|profile| {
        profile.controller.insert(Rpc::PublishUnpublishVolume as i32);
    });
    world.restart_driver(std::time::Duration::ZERO).await;
    world.told(&daemon, &[], &[]).await;
    world.shows(&daemon, "no hint", |status| !is_fact(status)).await;
}

#[tokio::test]
async fn a_standby_says_nothing_until_it_leads_and_then_adds_no_event() {
    let world = World::new().await;
    let object = world.announce(json!({"attachRequired": false})).await;
    let leader = world.daemon_on("a", json!({})).await;
    let (misfits, warnings) = (["attach_not_called fault"], ["attachRequired is false, but "]);
    world.told(&leader, &misfits, &warnings).await;
    let standby = world.daemon_on("b", json!({})).await;
    let stands_by = |status: &Value| status["overall"] == "standby";
    world.shows(&standby, "a standby", stands_by).await;
    assert_eq!(world.misfits(&standby).await, (Vec::new(), Vec::new()));
    world.misfit_events(&object, 1).await;
    leader.stop().await.unwrap();
    world.told(&standby, &misfits, &warnings).await;
    // It says the same, and adds no Event.
    let counted = format!("csi_control_plane_events_total{{reason=\"{REASON}\",result=\"counted\"}} 1");
    settled("the Event is that of the process before", PATIENCE, async || {
        let metrics = world.metrics(&standby).await;
        if metrics.contains(&counted) { Ok(()) } else { Err(metrics) }
    })
    .await;
    world.misfit_events(&object, 1).await;
}

#[tokio::test]
async fn without_the_right_to_read_the_object_that_is_said_and_all_else_goes_on() {
    let world = World::new().await;
    let host = world.name("daemon");
    let rights = without(&plan(&world), Some(("list", "csidrivers")));
    let daemon = world.ground().start_with(&host, &objects::config().to_string(), &rights).await;
    let (_, _, attachment) = world.attached_anew().await;
    let says_so = |status: &Value| {
        let warnings = status["warnings"].as_array().unwrap();
        warnings.len() == 1 && warnings[0].as_str().unwrap().starts_with("CSIDriver: cannot list: ")
    };
    world.shows(&daemon, "the kind that cannot be read", says_so).await;
    assert!(world.metrics(&daemon).await.contains("csi_control_plane_cache_unreadable{kind=\"CSIDriver\"} 1"));
    assert_eq!(crate::http::get(&daemon.diagnostics_dial().unwrap(), "/readyz").await, "ok");
    assert_eq!(world.misfits(&daemon).await, (Vec::new(), Vec::new()), "what is not known is not told");
    world.ground().grant(&host, &without(&plan(&world), None)).await;
    world.told(&daemon, &["object_missing fault"], &["the object does not exist: "]).await;
    world.detached(&attachment).await;
}
