use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{At, Continue, Key, ListQuery, ListRefusal, Listed, Preconditions, State, Target, WriteOptions};
use crate::api::pure::patch::PatchKind;
use crate::api::pure::resources::{self, Resource};
use crate::api::pure::selector::{Fields, Labels};
use crate::api::pure::strict::{Directive, Dropped};
use crate::api::{Api, ApiOptions, DirectError, PatchBody};
use base::process::{Clock, Rng};

fn api() -> Api {
    Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)))
}

fn state() -> State {
    State::new(Clock::system(), Rng::seeded(1), 1000, false)
}

/// For a writer who wants to hear of no field that is dropped.
fn unheard() -> Dropped {
    Dropped::new(Directive::Ignore)
}

fn volume(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "demo.csi", "volumeHandle": name}}})
}

fn attachment(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}, "spec": {
        "attacher": "demo.csi", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}})
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn resource(plural: &str) -> &'static Resource {
    resources::RESOURCES.iter().find(|resource| resource.plural == plural).unwrap()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, DirectError>) -> u16 {
    result.unwrap_err().code().unwrap()
}

fn merge(body: Value) -> PatchBody {
    PatchBody::Merge(body)
}

fn list(state: &State, at: At, after: Option<&Key>, limit: usize) -> Result<Listed, ListRefusal> {
    let resource = resource("configmaps");
    let (labels, fields) = (Labels::parse("").unwrap(), Fields::parse(resource, "").unwrap());
    state.list(&ListQuery { resource, namespace: "", labels: &labels, fields: &fields, at, after, limit })
}

fn put(state: &mut State, name: &str, value: &str) {
    let target = Target { resource: resource("configmaps"), namespace: "default", name };
    let options = WriteOptions::by("test");
    if state.get(target.resource, "default", name).is_some() {
        state.update(target, config_map(name, value), options).unwrap();
    } else {
        state.create(target, config_map(name, value), options).unwrap();
    }
}

fn names(listed: &Listed) -> Vec<&str> {
    listed.objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn one_counter_versions_everything_and_one_seed_gives_one_identity() {
    let (a, b) = (api(), api());
    let first = a.create_value(volume("pv-1")).unwrap();
    let second = a.create_value(attachment("va-1")).unwrap();
    assert_eq!(version(&second).parse::<u64>().unwrap(), version(&first).parse::<u64>().unwrap() + 1);
    let twin = b.create_value(volume("pv-1")).unwrap();
    assert_eq!(first["metadata"]["uid"], twin["metadata"]["uid"]);
    assert_eq!(code(a.create::<PersistentVolume>(&serde_json::from_value(volume("pv-1")).unwrap())), 409);
}

#[test]
fn a_write_that_is_based_on_the_past_is_a_conflict() {
    let mut state = state();
    put(&mut state, "a", "1");
    let target = Target { resource: resource("configmaps"), namespace: "default", name: "a" };
    let old = Value::clone(&state.get(target.resource, "default", "a").unwrap());
    put(&mut state, "a", "2");
    let refused = state.update(target, old.clone(), WriteOptions::by("test")).unwrap_err();
    assert_eq!((refused.code, refused.reason), (409, "Conflict"));
    let body = json!({"metadata": {"resourceVersion": version(&old)}}).to_string();
    let refused =
        state.patch(target, &PatchKind::Merge, body.as_bytes(), WriteOptions::by("test"), &mut unheard()).unwrap_err();
    assert_eq!(refused.code, 409);
}

#[test]
fn a_patch_that_changes_nothing_makes_no_version() {
    let api = api();
    api.create_value(volume("pv-1")).unwrap();
    let before = api.version();
    api.patch::<PersistentVolume>("", "pv-1", merge(json!({"metadata": {"labels": null}}))).unwrap();
    assert_eq!(api.version(), before);
    let dry = WriteOptions { dry_run: true, ..WriteOptions::by("test") };
    let target = Target { resource: resource("persistentvolumes"), namespace: "", name: "pv-1" };
    let body = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let (object, _) = api.state().patch(target, &PatchKind::Merge, body.as_bytes(), dry, &mut unheard()).unwrap();
    assert_eq!((object["metadata"]["labels"]["a"].as_str(), api.version()), (Some("b"), before));
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let api = api();
    let mut object = volume("pv-1");
    object["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    api.create_value(object).unwrap();
    assert!(!api.delete::<PersistentVolume>("", "pv-1").unwrap());
    let deleted: PersistentVolume = api.get("", "pv-1").unwrap();
    assert!(deleted.metadata.deletion_timestamp.is_some());
    assert_eq!(deleted.metadata.deletion_grace_period_seconds, Some(0));
    let version = api.version();
    assert!(!api.delete::<PersistentVolume>("", "pv-1").unwrap());
    assert_eq!(api.version(), version, "deleting twice changes nothing");
    let new = merge(json!({"metadata": {"finalizers": ["a/b", "c/d", "e/f"]}}));
    assert_eq!(code(api.patch::<PersistentVolume>("", "pv-1", new)), 422);
    api.patch::<PersistentVolume>("", "pv-1", merge(json!({"metadata": {"finalizers": ["a/b"]}}))).unwrap();
    api.patch::<PersistentVolume>("", "pv-1", merge(json!({"metadata": {"finalizers": null}}))).unwrap();
    assert_eq!(code(api.get::<PersistentVolume>("", "pv-1")), 404);
}

#[test]
fn a_delete_insists_on_what_it_was_told() {
    let api = api();
    api.create_value(volume("pv-1")).unwrap();
    let target = Target { resource: resource("persistentvolumes"), namespace: "", name: "pv-1" };
    for preconditions in [
        Preconditions { uid: Some("other".into()), version: None },
        Preconditions { uid: None, version: Some("1".into()) },
    ] {
        let refused = api.state().delete(target, &preconditions, WriteOptions::by("test")).unwrap_err();
        assert_eq!(refused.code, 409);
    }
    assert!(api.delete::<PersistentVolume>("", "pv-1").unwrap());
    assert_eq!(code(api.delete::<PersistentVolume>("", "pv-1")), 404);
}

#[test]
fn status_and_object_are_written_apart() {
    let api = api();
    api.create_value(attachment("va-1")).unwrap();
    let both = || merge(json!({"metadata": {"annotations": {"a": "b"}}, "status": {"attached": true}}));
    let object: VolumeAttachment = api.patch("", "va-1", both()).unwrap();
    assert!(!object.status.unwrap().attached);
    let other = merge(json!({"metadata": {"annotations": {"c": "d"}}, "status": {"attached": true}}));
    let object: VolumeAttachment = api.patch_status("", "va-1", other).unwrap();
    assert!(object.status.unwrap().attached);
    assert_eq!(object.metadata.annotations, Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
}

#[test]
fn a_generated_name_is_its_base_and_five_letters() {
    let api = api();
    let mut object = config_map("", "1");
    object["metadata"] = json!({"generateName": "event-"});
    let created = api.create_value(object).unwrap();
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("event-") && name.len() == 11, "{name}");
}

#[test]
fn a_namespace_must_be_there_and_takes_its_objects_with_it() {
    let api = api();
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}});
    assert_eq!(code(api.create_value(secret.clone())), 404);
    api.create_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})).unwrap();
    secret["metadata"]["finalizers"] = json!(["a/b"]);
    api.create_value(secret.clone()).unwrap();
    assert!(!api.delete::<Namespace>("", "team").unwrap());
    let phase = api.get::<Namespace>("", "team").unwrap().status.unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Terminating"));
    secret["metadata"]["name"] = "late".into();
    assert_eq!(code(api.create_value(secret)), 403);
    api.patch::<Secret>("team", "s", merge(json!({"metadata": {"finalizers": null}}))).unwrap();
    assert_eq!(code(api.get::<Namespace>("", "team")), 404);
    assert_eq!(code(api.delete::<Namespace>("", "kube-system")), 403);
}

#[test]
fn pages_are_of_one_version_until_it_is_compacted() {
    let mut state = state();
    for name in ["a", "b", "c"] {
        put(&mut state, name, "1");
    }
    let first = list(&state, At::Latest, None, 2).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], Some(1)));
    put(&mut state, "d", "1");
    let token = Continue::decode(first.next.as_deref().unwrap()).unwrap();
    let second = list(&state, At::Exactly(token.version.unwrap()), Some(&token.after), 2).unwrap();
    assert_eq!((names(&second), &second.next, second.version), (vec!["c"], &None, first.version));
    state.compact();
    let refused = list(&state, At::Exactly(token.version.unwrap()), Some(&token.after), 2).unwrap_err();
    assert_eq!((refused.rejection.code, refused.rejection.reason), (410, "Expired"));
    assert!(refused.rejection.message.starts_with("The provided continue parameter is too old"));
    let token = Continue::decode(&refused.next.unwrap()).unwrap();
    let rest = list(&state, At::Latest, Some(&token.after), 2).unwrap();
    assert_eq!(names(&rest), ["c", "d"]);
    assert_eq!(list(&state, At::Exactly(first.version), None, 0).unwrap_err().rejection.code, 410);
}

#[test]
fn some_kinds_are_replaced_only_at_a_version_and_some_are_created_by_it() {
    let mut state = state();
    let lease = || json!({"spec": {"holderIdentity": "me"}});
    let target = Target { resource: resource("leases"), namespace: "default", name: "lease" };
    let (_, created) = state.update(target, lease(), WriteOptions::by("test")).unwrap();
    assert!(created);
    let refused = state.update(target, lease(), WriteOptions::by("test")).unwrap_err();
    assert_eq!(
        refused.message,
        "leases.coordination.k8s.io \"lease\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an \
         update"
    );
    let target = Target { resource: resource("configmaps"), namespace: "default", name: "none" };
    assert_eq!(state.update(target, config_map("none", "1"), WriteOptions::by("test")).unwrap_err().code, 404);
}

#[test]
fn hooks_see_every_commit_with_its_author_and_the_whole_store() {
    let api = api();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    api.on_commit(move |change| {
        let count = change.store.objects("", "persistentvolumes").count();
        let what = format!("{} {} {:?} {count}", change.resource.plural, change.actor, change.new.is_some());
        log.lock().unwrap().push(what);
    });
    api.create_value(volume("pv-1")).unwrap();
    api.delete::<PersistentVolume>("", "pv-1").unwrap();
    let expected = ["persistentvolumes system:sandbox true 1", "persistentvolumes system:sandbox false 0"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn applied_objects_are_created_and_owned_once() {
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
    let api = Api::new(ApiOptions::new(clock, Rng::seeded(1)));
    let intent = config_map("cm", "1");
    let apply = || PatchBody::Apply("me".to_owned(), intent.clone());
    let created: ConfigMap = api.patch("default", "cm", apply()).unwrap();
    let owners = created.metadata.managed_fields.unwrap();
    assert_eq!(owners.iter().map(|it| it.operation.as_deref().unwrap()).collect::<Vec<_>>(), ["Apply"]);
    let version = api.version();
    tokio::time::advance(Duration::from_secs(10)).await;
    api.patch::<ConfigMap>("default", "cm", apply()).unwrap();
    assert_eq!(api.version(), version, "applying the same again changes nothing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A list at an old version equals the list at that time.
    #[test]
    fn the_past_is_listed_as_it_was(steps in prop::collection::vec((0..4_u8, 0..4_u8), 1..40)) {
        let mut state = state();
        let mut past: Vec<(u64, Vec<Arc<Value>>)> = Vec::new();
        for (at, (what, which)) in steps.into_iter().enumerate() {
            let name = format!("cm-{which}");
            let target = Target { resource: resource("configmaps"), namespace: "default", name: &name };
            if what == 0 {
                let _ = state.delete(target, &Preconditions::default(), WriteOptions::by("test"));
            } else {
                put(&mut state, &name, &at.to_string());
            }
            past.push((state.version(), list(&state, At::Latest, None, 0).unwrap().objects));
        }
        for (version, objects) in past {
            prop_assert_eq!(list(&state, At::Exactly(version), None, 0).unwrap().objects, objects);
        }
    }
}
