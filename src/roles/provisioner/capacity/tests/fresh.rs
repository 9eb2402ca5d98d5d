//! Volumes that come, go and grow, and how old capacities become.

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

use super::*;
use crate::sandbox::api::PatchBody;

/// No poll comes in time.
const NEVER: Duration = Duration::from_secs(100 * 3600);

/// What happens to a volume.
type Deed<'a> = &'a dyn Fn(&World);

fn volume(name: &str, zone: Option<&str>) -> Value {
    let term = zone.map(|zone| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] }));
    let affinity = term.map(|term| json!({ "required": { "nodeSelectorTerms": [term] } }));
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": affinity,
            "csi": { "driver": DRIVER, "volumeHandle": name } } })
}

impl World {
    /// Two classes in two zones, without a poll, and these objects besides.
    async fn unpolled(objects: &[Value]) -> Self {
        let section = CapacitySection { enabled: true, poll_interval: NEVER, owner_level: -1, ..Default::default() };
        let mut all = vec![class("fast", &json!({})), class("slow", &json!({}))];
        all.extend(["z1", "z2"].into_iter().flat_map(|zone| node(zone, Some(zone))));
        all.extend(objects.iter().cloned());
        let world = Self::of(zoned(), section, &all).await;
        world.until("four objects", |world| world.told().len() == 4).await;
        world
    }

    fn has_room(&self, gibibytes: i64) {
        self.testbed.driver.change_profile(|profile| profile.capacity = gibibytes * GIB);
    }

    /// In how many milliseconds the objects of these classes and zones say so. All others say what they said before.
    async fn told_in(&self, changed: &[(&str, &str)], room: &str) -> u128 {
        let expected: Vec<_> = self
            .told()
            .into_iter()
            .map(|(class, zone, before)| {
                let is_changed = changed.contains(&(class.as_str(), zone.as_str()));
                (class, zone, if is_changed { room.to_owned() } else { before })
            })
            .collect();
        let begun = Instant::now();
        self.until(&format!("{changed:?} say {room}"), |world| world.told() == expected).await;
        begun.elapsed().as_millis()
    }

    fn grow(&self, volume: &str, size: &str) {
        let larger = PatchBody::Merge(json!({ "spec": { "capacity": { "storage": size } } }));
        self.testbed.api.patch::<PersistentVolume>("", volume, larger).unwrap();
    }

    fn remove(&self, volume: &str) {
        let free = PatchBody::Merge(json!({ "metadata": { "finalizers": null } }));
        self.testbed.api.patch::<PersistentVolume>("", volume, free).unwrap();
        assert!(self.testbed.api.delete::<PersistentVolume>("", volume).unwrap(), "{volume} is gone");
    }

    /// The value of the series of this name, without its fraction.
    fn figure(&self, name: &str) -> u64 {
        let exposed = self.meter.render();
        let line = exposed.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let value: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
        Duration::from_secs_f64(value).as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn the_segment_of_a_volume_that_is_created_grown_or_deleted_is_asked_for_again_at_once() {
    let world = World::unpolled(&[volume("before", Some("z1"))]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.asked(), 4, "a volume that was there before is no news");
    let z1 = [("fast", "z1"), ("slow", "z1")];
    let steps: [(i64, &str, Deed<'_>); 4] = [
        (9, "created", &|world| drop(world.testbed.api.create_value(volume("pv", Some("z1"))).unwrap())),
        (7, "grown", &|world| world.grow("pv", "3Gi")),
        (10, "deleted", &|world| world.remove("pv")),
        (11, "deleted that was there before", &|world| world.remove("before")),
    ];
    for (step, (room, what, change)) in steps.into_iter().enumerate() {
        world.has_room(room);
        change(&world);
        let took = world.told_in(&z1, &format!("{room}Gi")).await;
        assert!(took < 100, "{what}: at once, not after {took} ms");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(world.asked(), 4 + 2 * (step + 1), "{what}: once for each class");
    }
    // What changes no room is no news: a volume that is bound, or another driver's.
    let released = PatchBody::Merge(json!({ "status": { "phase": "Available" } }));
    world.testbed.api.create_value(volume("other", Some("z2"))).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = world.asked();
    world.testbed.api.patch_status::<PersistentVolume>("", "other", released).unwrap();
    let mut foreign = volume("foreign", Some("z1"));
    foreign["spec"]["csi"]["driver"] = json!("other");
    world.testbed.api.create_value(foreign).unwrap();
    world.testbed.api.create_value(volume("elsewhere", Some("z9"))).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.asked(), asked);
    // A volume without affinity may have taken its room anywhere.
    world.has_room(5);
    world.testbed.api.create_value(volume("anywhere", None)).unwrap();
    world.told_in(&[("fast", "z1"), ("fast", "z2")], "5Gi").await;
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_volumes_in_ten_seconds_cost_eleven_questions_for_each_class_and_the_last_is_after_all_of_them() {
    let world = World::unpolled(&[]).await;
    let asked = world.asked();
    for number in 0..1000 {
        world.has_room(5000 - number);
        world.testbed.api.create_value(volume(&format!("pv-{number}"), Some("z1"))).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = world.told_in(&[("fast", "z1"), ("slow", "z1")], "4001Gi").await;
    assert!(took <= 1000, "within a second, not after {took} ms");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let questions = world.asked() - asked;
    assert!((20..=22).contains(&questions), "{questions} for two classes");
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_comes_while_the_driver_is_asked_has_it_asked_again() {
    let world = World::unpolled(&[]).await;
    let asked = world.asked();
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::Delay(Duration::from_secs(5))));
    for number in 0..2 {
        world.testbed.api.create_value(volume(&format!("pv-{number}"), Some("z1"))).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.asked(), asked + 2, "no slot is asked for twice at the same time");
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.asked(), asked + 4);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_fails_is_not_asked_more_often_because_volumes_come() {
    let world = World::unpolled(&[]).await;
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::fail(tonic::Code::Internal, "offline")));
    let asked = world.asked();
    for number in 0..100 {
        world.testbed.api.create_value(volume(&format!("pv-{number}"), Some("z1"))).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let tries = world.asked() - asked;
    assert!((12..=16).contains(&tries), "{tries} calls in 100 seconds for two classes: at 0 s, 1 s, 3 s, … 63 s");
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_capacity_that_is_not_answered_grows_old_on_the_page_and_in_a_metric() {
    const OLDEST: &str = "csi_control_plane_capacity_oldest_age_seconds";
    const REPLACED: &str = "csi_control_plane_capacity_replaced_age_seconds";
    let world = World::unpolled(&[]).await;
    let fault = Fault::on(Method::GetCapacity, Action::fail(tonic::Code::Internal, "offline"));
    world.testbed.driver.inject(fault);
    tokio::time::sleep(Duration::from_secs(100)).await;
    world.testbed.api.create_value(class("new", &json!({}))).unwrap();
    world.testbed.api.create_value(volume("pv", Some("z1"))).unwrap();
    tokio::time::sleep(Duration::from_secs(500)).await;
    let age = world.figure(OLDEST);
    assert!((589..=601).contains(&age), "{age}");
    let rows = world.rows();
    let row = |class: &str| rows.iter().find(|row| row[..2] == [class, "zone=z1"].map(str::to_owned)).unwrap();
    assert!(row("fast")[4].starts_with("10m") && row("fast")[5].contains("offline"), "{rows:?}");
    assert!(row("new")[4].is_empty() && row("new")[5].contains("offline"), "{rows:?}");
    assert_eq!(world.figure(&format!("{REPLACED}_count")), 0);
    // Only one that was never answered is left: it has waited since its class came.
    world.testbed.driver.clear_faults();
    for zone in ["z1", "z2"] {
        world.testbed.api.delete::<k8s_openapi::api::storage::v1::CSINode>("", zone).unwrap();
    }
    world.until("nothing is wanted", |world| world.rows().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(world.figure(OLDEST), 0);
    for zone in ["z1", "z2"] {
        world.testbed.api.create_value(node(zone, Some(zone))[1].clone()).unwrap();
    }
    world.until("all are told", |world| world.told().len() == 6).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    world.testbed.api.create_value(volume("pv-2", Some("z1"))).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.figure(&format!("{REPLACED}_count")), 3, "three classes in the zone");
    let sum = world.figure(&format!("{REPLACED}_sum"));
    assert!((3 * 299..=3 * 302).contains(&sum), "{sum}");
    world.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.figure(OLDEST), 0, "another replica tells now");
    world.tear_down().await;
}
