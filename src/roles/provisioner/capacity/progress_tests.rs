use serde_json::json;

use super::*;
use crate::cluster::Origin;
use crate::process::Clock;

/// An object as it was at this version.
fn object(uid: &str, version: u32, capacity: &str) -> Object {
    let object = json!({ "metadata": { "name": "csisc-1", "uid": uid, "resourceVersion": version.to_string() },
        "storageClassName": "fast", "capacity": capacity });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn change(old: Option<&Object>, new: Option<&Object>) -> Change<CsiStorageCapacity> {
    Change { old: old.cloned(), new: new.cloned(), origin: Origin::Watch }
}

fn after(answers: impl IntoIterator<Item = Answer>) -> Memory {
    let (mut memory, mut progress) = (Memory::default(), Progress::default());
    for answer in answers {
        memory.apply(&mut progress, answer);
    }
    memory
}

#[test]
fn a_late_watch_does_not_undo_our_later_writes() {
    let versions = [object("u1", 7, "2Gi"), object("u1", 8, "3Gi"), object("u1", 9, "1Gi")];
    let [made, changed, latest] = &versions;
    let mut memory = after(versions.iter().cloned().map(Answer::There));
    assert_eq!(memory.objects(&[]), [Arc::clone(latest)]);
    assert!(memory.unwatched(&[]).eq([latest]));
    for (old, new) in [(None, made), (Some(made), changed), (Some(changed), latest)] {
        memory.shown(&change(old, Some(new)));
        let shown = std::slice::from_ref(new);
        assert_eq!((memory.objects(shown), memory.unwatched(shown).count()), (vec![Arc::clone(latest)], 0));
    }
    assert_eq!(memory, Memory::default(), "nothing is kept that the watch has shown");
    let (late, shown) = (after([Answer::There(Arc::clone(made))]), std::slice::from_ref(latest));
    assert_eq!(late.objects(shown), shown, "an answer that the watch has overtaken");
    assert_eq!(late.unwatched(shown).count(), 0, "and nobody asks for it again");
    let namesake = object("u2", 10, "2Gi");
    memory.shown(&change(Some(latest), Some(&namesake)));
    assert_eq!(memory.objects(std::slice::from_ref(&namesake)), [namesake]);
}

#[test]
fn what_the_api_does_not_have_any_more_is_gone_before_the_watch_says_so() {
    let (one, other) = (object("u1", 7, "1Gi"), object("u2", 8, "1Gi"));
    let mut memory = after([Answer::Gone(one.clone())]);
    assert_eq!(memory.objects(&[one.clone(), other.clone()]), std::slice::from_ref(&other));
    memory.shown(&change(Some(&one), Some(&object("u1", 9, "2Gi"))));
    assert_eq!(memory.objects(std::slice::from_ref(&one)), [], "a late change brings nothing back");
    memory.shown(&change(Some(&one), None));
    assert_eq!(memory, Memory::default());
    // It was made, and found to be gone, before the watch has shown it.
    let memory = after([Answer::There(one.clone()), Answer::Gone(one)]);
    assert_eq!(memory.objects(&[]), []);
}

#[test]
fn an_error_goes_with_the_next_answer_and_both_with_the_wish() {
    let (capacity, now) = (Capacity { available: 3, maximum_volume_size: Some(2) }, Clock::system().now());
    let mut memory = Memory { error: Some("offline".to_owned()), ..Memory::default() };
    memory.apply(&mut Progress::default(), Answer::Capacity(now, capacity));
    assert_eq!((memory.capacity, &memory.error), (Some((now, capacity)), &None));
    memory.unwanted();
    assert_eq!(memory, Memory::default());
}
