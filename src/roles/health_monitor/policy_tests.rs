use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use crate::process::Clock;
use crate::proto::volume_health::VolumeHealthEntry;
use crate::roles::health_monitor::view::{Answer, Memory};

use super::*;

const SLOW: (i32, &str, &str) = (1, "Slow", "one path of two");
const TORN: (i32, &str, &str) = (3, "Torn", "block 7");
const NEW: (i32, &str, &str) = (9, "New", "odd");

fn abnormal(entries: &[(i32, &str, &str)]) -> Abnormal {
    let entry = |(status, reason, message): &(i32, &str, &str)| VolumeHealthEntry {
        status: *status,
        reason: (*reason).to_owned(),
        message: (*message).to_owned(),
    };
    Abnormal::of(&entries.iter().map(entry).collect::<Vec<_>>())
}

fn health(entries: &[(i32, &str, &str)]) -> Found {
    let is_normal = entries.is_empty();
    Found::Condition(if is_normal { Condition::Normal } else { Condition::Abnormal(abnormal(entries)) })
}

/// What a driver before CSI 1.13 says.
fn words(text: &str) -> Found {
    Found::Condition(Condition::Abnormal(Abnormal { text: text.to_owned(), ..Abnormal::default() }))
}

/// A volume, its claims, and an API server: what a term sees of them, and what one attempt after the other does.
struct World {
    view: View,
    /// Whether the server stores the health of claims.
    keeps: bool,
    /// How many writes each claim has had.
    writes: usize,
    told: Vec<What>,
}

impl World {
    fn new(report: Report, keeps: bool) -> Self {
        let claim = |uid: &str| {
            let claim = json!({ "metadata": { "name": uid, "namespace": "default", "uid": uid, "resourceVersion": "7" },
                "status": { "phase": "Bound" } });
            Arc::new(serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap())
        };
        let view = View {
            handle: "v".to_owned(),
            question: Some(Question::Health),
            report,
            claims: vec![claim("a")],
            is_migrated: false,
            memory: Memory::default(),
            is_status_kept: true,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            at: Clock::system().now(),
        };
        Self { view, keeps, writes: 0, told: Vec::new() }
    }

    /// Another leader: nothing is remembered, and what Events have told is read again.
    fn another_leader(&mut self) {
        let reported = std::mem::take(&mut self.view.memory).reported;
        let abnormal =
            reported.into_iter().map(|(uid, it)| (uid, Reported { abnormal: it.abnormal, ..Reported::default() }));
        self.view.memory.reported = abnormal.filter(|(_, reported)| reported.abnormal.is_some()).collect();
        self.view.is_status_kept = true;
    }

    fn later(&mut self, seconds: u32) {
        self.view.now += SignedDuration::from_secs(seconds.into());
        self.view.at += Duration::from_secs(seconds.into());
    }

    /// One attempt. The driver says `found`; `meanwhile` a list says something.
    fn attempt(&mut self, found: &Found, mut meanwhile: Option<Listed>) -> Vec<What> {
        let (mut progress, mut told) = (Progress::default(), Vec::new());
        for _ in 0..20 {
            let steps = match next_step(&self.view, &progress) {
                Next::Do(step) => vec![step],
                Next::Together(steps) => steps,
                Next::Done => {
                    self.told.extend(told.clone());
                    return told;
                }
            };
            for step in steps {
                let answer = self.perform(step, found, &mut meanwhile, &mut told);
                self.view.memory.apply(&mut progress, answer);
            }
        }
        panic!("it comes to no end");
    }

    fn perform(&mut self, step: Step, found: &Found, meanwhile: &mut Option<Listed>, told: &mut Vec<What>) -> Answer {
        match step {
            Step::UseListed(listed) => Answer::Listed(listed),
            Step::Ask(_) => {
                if let Some(listed) = meanwhile.take() {
                    self.view.memory.list(listed);
                }
                Answer::Found(found.clone(), self.view.at)
            }
            Step::Write(write) => {
                self.writes += 1;
                self.store(&write);
                Answer::Wrote(write.claim)
            }
            Step::Report(news) => {
                told.extend(news.iter().map(|news| news.what.clone()));
                Answer::Reported(news, self.view.at)
            }
        }
    }

    /// What a list says that begins now.
    fn listed(&self, entries: &[(i32, &str, &str)]) -> Listed {
        let Found::Condition(condition) = health(entries) else { unreachable!() };
        Listed { condition, began: self.view.at }
    }

    fn store(&mut self, write: &Write) {
        let claim = self.view.claims.iter_mut().find(|claim| *claim.metadata.uid == *write.claim).unwrap();
        let patch = serde_json::to_value(write.patch(claim)).unwrap();
        assert_eq!(patch["metadata"], json!({ "uid": write.claim, "resourceVersion": "7" }));
        if self.keeps {
            Arc::make_mut(claim).status.health =
                serde_json::from_value(patch["status"]["healthStatus"].clone()).unwrap();
        } else {
            self.view.is_status_kept = false;
        }
    }

    fn status(&self) -> Vec<String> {
        let held = self.view.claims[0].status.health.iter().flat_map(|held| held.conditions.iter());
        held.map(|it| format!("{} {} {}", it.status, it.reason, it.message)).collect()
    }

    fn since(&self) -> Timestamp {
        self.view.claims[0].status.health.as_ref().unwrap().last_transition_time.unwrap().timestamp()
    }
}

/// What was told, and the status, after each of these answers in turn.
fn played(world: &mut World, answers: &[Found]) -> Vec<(Vec<What>, Vec<String>)> {
    answers.iter().map(|found| (world.attempt(found, None), world.status())).collect()
}

#[test]
fn h1_a_recovery_is_told_once_after_what_was_wrong_and_never_before() {
    let mut world = World::new(Report::Events, true);
    let told: Vec<_> = played(&mut world, &[health(&[]), health(&[SLOW]), health(&[]), health(&[])])
        .into_iter()
        .map(|it| it.0)
        .collect();
    let wrong = What::Abnormal("Degraded (Slow): one path of two".to_owned());
    assert_eq!(told, [vec![], vec![wrong], vec![What::Normal], vec![]]);
    assert_eq!(world.writes, 0);
}

#[test]
fn h2_h25_what_a_claim_or_an_event_holds_is_told_by_no_new_leader_and_its_end_is() {
    for (report, found, recovery) in
        [(Report::Auto, health(&[SLOW]), vec![]), (Report::Events, health(&[SLOW]), vec![What::Normal])]
    {
        let mut world = World::new(report, true);
        world.attempt(&found, None);
        let writes = world.writes;
        world.another_leader();
        assert_eq!((world.attempt(&found, None), world.writes), (vec![], writes), "{report:?}");
        world.another_leader();
        assert_eq!(world.attempt(&health(&[]), None), recovery, "{report:?}");
        assert_eq!(world.status(), Vec::<String>::new());
    }
}

#[test]
fn i4_what_stays_wrong_is_told_again_after_an_hour_and_its_new_words_at_once() {
    let mut world = World::new(Report::Auto, true);
    let told = |text: &str| vec![What::Abnormal(text.to_owned())];
    assert_eq!(world.attempt(&words("no path"), None), told("no path"));
    for (seconds, text, expected) in
        [(3599, "no path", vec![]), (1, "no path", told("no path")), (1, "no power", told("no power"))]
    {
        world.later(seconds);
        assert_eq!(world.attempt(&words(text), None), expected, "{text} after {seconds}");
    }
    assert_eq!(world.writes, 0, "no status can say it");
}

#[test]
fn h16_a_server_that_drops_the_field_gets_one_write_and_then_events() {
    let mut world = World::new(Report::Auto, false);
    let answers = [health(&[SLOW]), health(&[SLOW]), health(&[TORN]), health(&[])];
    let told: Vec<_> = played(&mut world, &answers).into_iter().map(|it| it.0.len()).collect();
    assert_eq!((told, world.writes), (vec![1, 0, 1, 1], 1));
    // An hour later it is tried once more.
    world.view.is_status_kept = true;
    world.keeps = true;
    assert_eq!((world.attempt(&health(&[SLOW]), None), world.writes), (vec![], 2));
    assert_eq!(world.status(), ["Degraded Slow one path of two"]);
}

#[test]
fn h19_unknown_kinds_are_told_once_for_each_set_and_clear_nothing() {
    let mut world = World::new(Report::Auto, true);
    let unknown = |kinds: &[i32]| What::Unknown(kinds.iter().copied().collect());
    world.attempt(&health(&[SLOW]), None);
    let answers = [health(&[NEW]), health(&[NEW]), health(&[NEW, (7, "", "")]), health(&[TORN, NEW])];
    let told = played(&mut world, &answers);
    let news: Vec<_> = told.iter().map(|it| it.0.clone()).collect();
    assert_eq!(news, [vec![unknown(&[9])], vec![], vec![unknown(&[7, 9])], vec![unknown(&[9])]]);
    let statuses: Vec<_> = told.into_iter().map(|it| it.1.concat()).collect();
    let slow = "Degraded Slow one path of two";
    assert_eq!(statuses, [slow, slow, slow, "DataLoss Torn block 7"]);
    assert!(world.view.memory.abnormal.is_some());
}

#[test]
fn h20_new_words_are_written_and_the_time_changes_only_with_statuses_and_reasons() {
    let mut world = World::new(Report::Auto, true);
    world.attempt(&health(&[SLOW, TORN]), None);
    let first = world.since();
    world.later(60);
    world.attempt(&health(&[TORN, (1, "Slow", "one path of four")]), None);
    assert_eq!((world.writes, world.since()), (2, first));
    world.attempt(&health(&[(1, "Slow", "one path of four"), TORN]), None);
    assert_eq!(world.writes, 2, "the driver's order is of no matter");
    world.attempt(&health(&[TORN]), None);
    assert_eq!((world.writes, world.since()), (3, world.view.now));
}

#[test]
fn h15_i1_what_a_list_has_said_meanwhile_comes_before_an_older_answer() {
    let mut world = World::new(Report::Both, true);
    let listed = world.listed(&[TORN]);
    let told = world.attempt(&health(&[]), Some(listed));
    assert_eq!((told.len(), world.status()), (1, vec!["DataLoss Torn block 7".to_owned()]));
    assert!(world.view.memory.listed.is_none() && world.view.memory.is_suspect());
    for nothing in [Found::Nothing, Found::Missing, Found::Missing] {
        world.attempt(&nothing, None);
        assert!(world.view.memory.is_suspect() && !world.status().is_empty(), "{nothing:?} clears nothing");
    }
    assert_eq!(world.told.iter().filter(|what| **what == What::Missing).count(), 1, "told once");
    assert_eq!(world.attempt(&health(&[]), None), [What::Normal]);
    assert_eq!((world.status(), world.view.memory), (vec![], Memory::default()));
}

#[test]
fn i1_a_healthy_volume_in_a_list_counts_if_the_list_began_after_the_last_bad_answer() {
    let mut world = World::new(Report::Both, true);
    let before = world.listed(&[]);
    world.later(1);
    world.attempt(&health(&[SLOW]), Some(before.clone()));
    assert_eq!(world.status(), ["Degraded Slow one path of two"], "the list ended while the driver was asked");
    assert!(!world.view.memory.list(before) && world.view.memory.listed.is_none(), "and afterwards");
    world.later(1);
    let after = world.listed(&[]);
    assert!(world.view.memory.list(after));
    // It is the answer: the driver is not asked.
    world.view.question = None;
    assert_eq!(world.attempt(&Found::Nothing, None), [What::Normal]);
    assert_eq!((world.status(), world.view.memory), (vec![], Memory::default()));
}

#[test]
fn h24_all_claims_of_a_volume_are_told_by_one_answer() {
    let mut world = World::new(Report::Both, true);
    let mut other = world.view.claims[0].as_ref().clone();
    (other.metadata.uid, other.metadata.name) = ("b".into(), "b".into());
    world.view.claims.push(Arc::new(other));
    assert_eq!((world.attempt(&health(&[SLOW]), None).len(), world.writes), (2, 2));
    assert_eq!((world.attempt(&health(&[]), None).len(), world.writes), (2, 4));
}

#[test]
fn each_place_of_a_report_gets_what_it_is_for() {
    for (report, keeps, written, told) in [
        (Report::Auto, true, 1, 0),
        (Report::Auto, false, 1, 1),
        (Report::Status, true, 1, 0),
        (Report::Status, false, 1, 0),
        (Report::Events, true, 0, 1),
        (Report::Both, true, 1, 1),
        (Report::Both, false, 1, 1),
    ] {
        let mut world = World::new(report, keeps);
        assert_eq!((world.attempt(&health(&[TORN]), None).len(), world.writes), (told, written), "{report:?} {keeps}");
    }
    assert_eq!(World::new(Report::Status, true).attempt(&words("no path"), None), [], "no status can say it");
    let idle = View { question: None, ..World::new(Report::Auto, true).view };
    assert_eq!(next_step(&idle, &Progress::default()), Next::Done);
}

/// What may happen between two looks.
#[derive(Debug, Clone)]
enum Event {
    Says(Vec<usize>),
    SaysNothing,
    Lists(Vec<usize>),
    AnotherLeader,
    Later(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let kinds = || prop::collection::vec(0..4_usize, 0..4);
    prop_oneof![
        4 => kinds().prop_map(Event::Says),
        1 => Just(Event::SaysNothing),
        2 => kinds().prop_map(Event::Lists),
        1 => Just(Event::AnotherLeader),
        1 => (0..5000_u32).prop_map(Event::Later),
    ]
}

proptest! {
    #[test]
    fn i1_nothing_is_called_healthy_but_by_the_drivers_last_word_and_i4_nothing_is_said_twice(
        events in prop::collection::vec(event(), 1..30),
        report in prop::sample::select(vec![Report::Auto, Report::Status, Report::Events, Report::Both]),
        keeps in any::<bool>(),
    ) {
        let all = [SLOW, TORN, NEW, (2, "Gone", "")];
        let of = |kinds: &[usize]| -> Vec<_> {
            kinds.iter().copied().collect::<BTreeSet<_>>().into_iter().map(|kind| all[kind]).collect()
        };
        let mut world = World::new(report, keeps);
        for event in events {
            let (held, was_told) = (world.status(), world.told.len());
            let is_healthy = match event {
                Event::Says(kinds) => {
                    world.attempt(&health(&of(&kinds)), None);
                    kinds.is_empty()
                }
                Event::SaysNothing => {
                    world.attempt(&Found::Nothing, None);
                    false
                }
                Event::Lists(kinds) => {
                    let listed = world.listed(&of(&kinds));
                    world.attempt(&health(&[]), Some(listed));
                    kinds.is_empty()
                }
                Event::AnotherLeader => {
                    world.another_leader();
                    continue;
                }
                Event::Later(seconds) => {
                    world.later(seconds);
                    continue;
                }
            };
            let is_called_healthy = world.told[was_told..].contains(&What::Normal)
                || (!held.is_empty() && world.status().is_empty());
            prop_assert!(is_healthy || !is_called_healthy);
            if is_healthy {
                prop_assert_eq!(world.status(), Vec::<String>::new());
                prop_assert!(!world.view.memory.is_suspect());
                let (writes, told) = (world.writes, world.told.len());
                world.attempt(&health(&[]), None);
                prop_assert_eq!((world.writes, world.told.len()), (writes, told));
            }
        }
    }
}
