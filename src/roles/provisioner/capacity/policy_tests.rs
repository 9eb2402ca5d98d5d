use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::process::Clock;
use crate::roles::provisioner::capacity::diff::Capacity;
use crate::roles::provisioner::capacity::progress::Answer;
use crate::roles::provisioner::topology::Segment;

const GIB: Capacity = Capacity { available: 1 << 30, maximum_volume_size: None };

fn object(number: usize, capacity: &str) -> Object {
    let object = json!({ "metadata": { "name": format!("csisc-{number}"), "uid": format!("uid-{number}") },
        "storageClassName": "fast", "capacity": capacity });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// A slot whose objects, the first of them unwatched, say this, while the driver has answered 1 GiB.
fn view(is_wanted: bool, unwatched: usize, objects: &[&str]) -> View {
    let objects: Vec<Object> = objects.iter().enumerate().map(|(number, says)| object(number, says)).collect();
    let slot = Slot { class: "fast".into(), segment: Arc::new(Segment::default()) };
    let template = ObjectTemplate { namespace: "ns".into(), labels: BTreeMap::default(), owner: None };
    let mut memory = Memory::default();
    let there = objects[..unwatched].iter().cloned().map(Answer::There);
    for answer in [Answer::Capacity(Clock::system().now(), GIB)].into_iter().chain(there) {
        memory.apply(&mut Progress::default(), answer);
    }
    View {
        id: slot.to_string(),
        slot,
        class: is_wanted.then(Arc::default),
        template: Arc::new(template),
        shown: objects[unwatched..].to_vec(),
        memory,
    }
}

fn shown(view: &View, progress: &Progress) -> String {
    let name = |step: &Step| match step {
        Step::Ask(_) => "ask",
        Step::Confirm(_) => "confirm",
        Step::Write(Write::Create(_)) => "create",
        Step::Write(Write::Update(..)) => "update",
        Step::Write(Write::Delete(_)) => "delete",
    };
    match next_step(view, progress) {
        Next::Do(step) => name(&step).to_owned(),
        Next::Together(steps) => steps.iter().map(name).collect::<Vec<_>>().join(" "),
        Next::Done => "done".to_owned(),
    }
}

fn progress(confirms: bool, is_answered: bool) -> Progress {
    Progress { confirms, is_answered, ..Progress::default() }
}

#[test]
fn the_driver_is_asked_first_then_the_api_is_and_then_it_is_written() {
    let (before, after) = (|confirms| progress(confirms, false), |confirms| progress(confirms, true));
    for (is_wanted, unwatched, objects, progress, expected) in [
        (true, 1, &["2Gi"][..], before(true), "ask"),
        (true, 0, &[], before(false), "ask"),
        (true, 1, &["2Gi"], after(true), "confirm"),
        (true, 2, &["2Gi", "2Gi", "2Gi"], after(true), "confirm confirm"),
        (true, 1, &["2Gi"], after(false), "update"),
        (true, 0, &["2Gi"], after(true), "update"),
        (true, 0, &[], after(true), "create"),
        (true, 1, &["1Gi"], after(false), "done"),
        (true, 0, &["1Gi", "1Gi", "1Gi"], after(false), "delete delete"),
        // Nobody wants the slot: the driver is not asked, and what is left is deleted.
        (false, 1, &["1Gi"], before(true), "confirm"),
        (false, 0, &["1Gi", "2Gi"], before(false), "delete delete"),
        (false, 0, &[], before(true), "done"),
    ] {
        let view = view(is_wanted, unwatched, objects);
        assert_eq!(shown(&view, &progress), expected, "{is_wanted} {unwatched} {objects:?} {progress:?}");
    }
    let unanswered = View { memory: Memory::default(), ..view(true, 0, &["2Gi"]) };
    assert_eq!(shown(&unanswered, &after(false)), "done", "nothing is known yet");
}

#[test]
fn an_attempt_asks_and_confirms_once() {
    let view = view(true, 1, &["2Gi"]);
    let (mut memory, mut progress) = (Memory::default(), progress(true, false));
    for (expected, answer) in [
        ("ask", Answer::Capacity(Clock::system().now(), GIB)),
        ("confirm", Answer::There(object(0, "2Gi"))),
        ("update", Answer::Conflict),
        ("update", Answer::Unseen),
        ("confirm", Answer::There(object(0, "1Gi"))),
        ("update", Answer::Written),
    ] {
        assert_eq!(shown(&view, &progress), expected);
        memory.apply(&mut progress, answer);
    }
    assert_eq!(shown(&view, &progress), "update", "until the view shows that it is written");
    assert_eq!(progress, Progress { confirms: false, is_answered: true, conflicts: 1 });
}
