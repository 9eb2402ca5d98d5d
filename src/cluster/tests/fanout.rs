//! The fan-out against a naive model of a cluster: whatever order news comes in, what is held ends up true.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::attachment;
use crate::cluster::change::{Change, Origin};
use crate::cluster::fanout::{Fanout, News};
use crate::cluster::names::ObjectName;
use crate::cluster::objects::{BY_NODE, BY_VOLUME, Cached as _, Fields, VolumeAttachment};

type Seen = (Option<(String, u64)>, Option<(String, u64)>, Origin);

fn told(object: &VolumeAttachment) -> (String, u64) {
    (object.metadata.uid.to_string(), object.metadata.resource_version.as_deref().unwrap().parse().unwrap())
}

fn summary(changes: &[Change<VolumeAttachment>]) -> Vec<Seen> {
    changes.iter().map(|c| (c.old.as_deref().map(told), c.new.as_deref().map(told), c.origin)).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "it stands where a change has an object or none")]
fn at(uid: &str, version: u64) -> Option<(String, u64)> {
    Some((uid.to_owned(), version))
}

fn listed(fanout: &mut Fanout<VolumeAttachment>, objects: &[VolumeAttachment]) -> Vec<Seen> {
    let mut changes = fanout.apply(News::RestartList);
    for object in objects {
        changes.extend(fanout.apply(News::Listed(object.clone())));
    }
    changes.extend(fanout.apply(News::ListDone));
    summary(&changes)
}

#[test]
fn r24_r26_a_delete_that_no_watch_saw_is_delivered_by_the_next_list() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 1), attachment("b", "u2", 2)]);
    assert_eq!(listed(&mut fanout, &[attachment("b", "u2", 2)]), [(at("u1", 1), None, Origin::Relist)]);
    assert_eq!(fanout.len(), 1);
}

#[test]
fn r44_a_namesake_is_delivered_as_a_delete_and_an_add() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 1)]);
    let expected = |origin| [(at("u1", 1), None, origin), (None, at("u2", 5), origin)];
    assert_eq!(listed(&mut fanout, &[attachment("a", "u2", 5)]), expected(Origin::Relist));

    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 1)]);
    let changes = fanout.apply(News::Applied(attachment("a", "u2", 5)));
    assert_eq!(summary(&changes), expected(Origin::Watch));
}

#[test]
fn a_list_after_the_versions_went_back_replaces_every_object_and_the_next_one_does_not() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 7), attachment("b", "u2", 8)]);
    let restored = [attachment("a", "u1", 3), attachment("b", "u2", 8)];
    assert_eq!(listed(&mut fanout, &restored), [], "nobody has noticed yet");
    fanout.go_back();
    assert_eq!(listed(&mut fanout, &restored), [(at("u1", 7), at("u1", 3), Origin::Relist)]);
    assert_eq!(listed(&mut fanout, &[attachment("a", "u1", 2), attachment("b", "u2", 8)]), []);
    let changes = fanout.apply(News::Applied(attachment("a", "u1", 4)));
    assert_eq!(summary(&changes), [(at("u1", 3), at("u1", 4), Origin::Watch)]);
}

#[test]
fn a_watch_beside_the_list_after_the_versions_went_back_counts_too() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 7), attachment("b", "u2", 8), attachment("c", "u3", 9)]);
    fanout.go_back();
    fanout.apply(News::RestartList);
    let changes = fanout.apply(News::Applied(attachment("a", "u1", 5)));
    assert_eq!(summary(&changes), [(at("u1", 7), at("u1", 5), Origin::Watch)]);
    let changes = fanout.apply(News::Deleted(attachment("b", "u4", 6)));
    assert_eq!(summary(&changes), [], "a namesake that was never seen");
    for page in [attachment("a", "u1", 2), attachment("b", "u4", 3)] {
        assert_eq!(fanout.apply(News::Listed(page)), []);
    }
    let changes = fanout.apply(News::ListDone);
    assert_eq!(summary(&changes), [(at("u2", 8), None, Origin::Relist), (at("u3", 9), None, Origin::Relist)]);
}

#[test]
fn what_a_list_has_delivered_counts_once_the_list_is_complete() {
    let mut fanout = Fanout::<VolumeAttachment>::default();
    let late = attachment("a", "u1", 9);
    fanout.apply(News::RestartList);
    fanout.apply(News::Listed(late.clone()));
    assert!(fanout.is_ahead(&late), "an older one may be on the next page");
    fanout.apply(News::ListDone);
    assert!(!fanout.is_ahead(&late) && fanout.has_heard(9) && !fanout.has_heard(10));
    fanout.apply(News::OwnWrite(attachment("a", "u1", 11)));
    assert!(!fanout.has_heard(10));
    fanout.apply(News::Deleted(attachment("a", "u1", 12)));
    assert!(fanout.has_heard(12));
    fanout.apply(News::RestartList);
    fanout.apply(News::Listed(attachment("b", "u2", 20)));
    // The list was cut, and the next one is shorter.
    fanout.apply(News::RestartList);
    fanout.apply(News::ListDone);
    assert!(!fanout.has_heard(20));
}

#[test]
fn r48_our_own_write_counts_at_once_and_older_news_does_not_undo_it() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 1)]);
    let written = fanout.apply(News::OwnWrite(attachment("a", "u1", 7)));
    assert_eq!(summary(&written), [(at("u1", 1), at("u1", 7), Origin::OwnWrite)]);
    assert_eq!(fanout.apply(News::Applied(attachment("a", "u1", 4))), []);
    assert_eq!(fanout.apply(News::Applied(attachment("a", "u1", 7))), []);
    assert_eq!(listed(&mut fanout, &[attachment("a", "u1", 4)]), []);
    assert_eq!(fanout.apply(News::OwnWrite(attachment("a", "u1", 6))), []);
    assert_eq!(fanout.get(&ObjectName::cluster("a")).map(|held| told(&held)), at("u1", 7));
}

#[test]
fn an_answer_to_our_own_write_never_brings_an_object_back() {
    let mut fanout = Fanout::default();
    assert_eq!(fanout.apply(News::OwnWrite(attachment("a", "u1", 3))), []);
    listed(&mut fanout, &[attachment("a", "u1", 3)]);
    fanout.apply(News::Deleted(attachment("a", "u1", 4)));
    assert_eq!(fanout.apply(News::OwnWrite(attachment("a", "u1", 5))), []);
    fanout.apply(News::Applied(attachment("a", "u2", 6)));
    assert_eq!(fanout.apply(News::OwnWrite(attachment("a", "u1", 9))), []);
    assert!(fanout.find(BY_VOLUME, "pv-a").iter().map(|held| told(held)).eq(at("u2", 6)));
}

#[test]
fn a_look_up_finds_every_object_of_its_value_and_none_of_its_neighbours() {
    let on = |name: &str, version, node: &str| {
        let mut object = attachment(name, name, version);
        node.clone_into(&mut object.spec.node_name);
        object
    };
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[on("a", 1, "n"), on("b", 2, "n1"), on("c", 3, "n"), on("d", 4, "m"), on("e", 5, "n-2")]);
    let found = |fanout: &Fanout<VolumeAttachment>, node: &str| -> Vec<u64> {
        fanout.find(BY_NODE, node).iter().map(|held| told(held).1).collect()
    };
    assert_eq!((found(&fanout, "n"), found(&fanout, "n1"), found(&fanout, "")), (vec![1, 3], vec![2], vec![]));
    fanout.apply(News::Applied(on("c", 6, "n1")));
    fanout.apply(News::Deleted(on("b", 7, "n1")));
    assert_eq!((found(&fanout, "n"), found(&fanout, "n1"), found(&fanout, "o")), (vec![1], vec![6], vec![]));
}

#[test]
fn a_late_delete_of_a_namesake_does_not_remove_its_successor() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u2", 6)]);
    assert_eq!(fanout.apply(News::Deleted(attachment("a", "u1", 4))), []);
    assert_eq!(fanout.len(), 1);
}

#[test]
fn versions_are_compared_as_numbers() {
    let mut fanout = Fanout::default();
    listed(&mut fanout, &[attachment("a", "u1", 9)]);
    assert_eq!(fanout.apply(News::Applied(attachment("a", "u1", 10))).len(), 1);
    assert_eq!(fanout.apply(News::Applied(attachment("a", "u1", 9))), []);
}

/// What happens in the cluster or on the way to us.
#[derive(Debug, Clone)]
enum Step {
    Write(u8),
    /// We write, and the answer reaches us now, later, or never.
    OwnWrite(u8, Reach),
    Delete(u8),
    /// The watch brings so many of the events that it has not brought yet.
    Watch(usize),
    /// The watch breaks, or the list before it: a list begins, and with it another watch.
    Relist,
    /// The list shows another object, or that it is complete.
    Page,
    Late,
}

#[derive(Debug, Clone, Copy)]
enum Reach {
    Now,
    Later,
}

#[derive(Default)]
struct Cluster {
    version: u64,
    objects: BTreeMap<u8, (u64, u64)>,
    history: Vec<News<VolumeAttachment>>,
    late: Vec<VolumeAttachment>,
    uids: u64,
}

impl Cluster {
    fn object(id: u8, (uid, version): (u64, u64)) -> VolumeAttachment {
        let mut object = attachment(&format!("va{id}"), &format!("u{uid}"), version);
        object.trim("another", Fields::NONE);
        object
    }

    fn write(&mut self, id: u8) -> VolumeAttachment {
        self.version += 1;
        let uid = self.objects.get(&id).map_or_else(
            || {
                self.uids += 1;
                self.uids
            },
            |held| held.0,
        );
        self.objects.insert(id, (uid, self.version));
        let object = Self::object(id, (uid, self.version));
        self.history.push(News::Applied(object.clone()));
        object
    }

    fn delete(&mut self, id: u8) {
        if let Some((uid, _)) = self.objects.remove(&id) {
            self.version += 1;
            self.history.push(News::Deleted(Self::object(id, (uid, self.version))));
        }
    }

    /// The objects of a list, as the list shows them.
    fn list(&self) -> VecDeque<VolumeAttachment> {
        self.objects.iter().map(|(id, held)| Self::object(*id, *held)).collect()
    }

    fn truth(&self) -> BTreeMap<String, (String, u64)> {
        self.list().iter().map(|object| (ObjectName::of(object).to_string(), told(object))).collect()
    }
}

/// What a subscriber that only hears changes believes.
#[derive(Default)]
struct Believer {
    held: BTreeMap<String, (String, u64)>,
    /// The latest version of each, or that of its end.
    newest: BTreeMap<String, u64>,
}

impl Believer {
    fn hear(&mut self, news: &News<VolumeAttachment>, changes: &[Change<VolumeAttachment>]) {
        for change in changes {
            let name = ObjectName::of(change.old.as_deref().or(change.new.as_deref()).unwrap()).to_string();
            assert_eq!(self.held.get(&name).cloned(), change.old.as_deref().map(told));
            match change.new.as_deref().map(told) {
                None => {
                    self.held.remove(&name);
                }
                Some(new) => {
                    if let Some(old) = change.old.as_deref().map(told) {
                        assert_eq!(old.0, new.0, "a change keeps the uid");
                    }
                    let before = self.newest.insert(name.clone(), new.1).unwrap_or(0);
                    assert!(before < new.1, "{name} rolls back from {before} to {}", new.1);
                    self.held.insert(name, new);
                }
            }
        }
        if let News::Deleted(object) = news {
            let newest = self.newest.entry(ObjectName::of(object).to_string()).or_default();
            *newest = told(object).1.max(*newest);
        }
    }
}

/// Each order in which the pages of two objects and the end of their list can come between so many events.
fn orders(events: usize) -> impl Iterator<Item = [usize; 3]> {
    let from = move |least: usize| least..=events;
    from(0).flat_map(move |a| from(a).flat_map(move |b| from(b).map(move |end| [a, b, end])))
}

/// Each history of up to so many writes and deletions of two objects.
fn histories(length: usize) -> Vec<Vec<(bool, u8)>> {
    let acts = [(true, 0), (false, 0), (true, 1), (false, 1)];
    let mut all = vec![Vec::new()];
    for from in 0.. {
        let Some(history) = all.get(from).cloned().filter(|history| history.len() < length) else { break };
        all.extend(acts.map(|act| [history.as_slice(), &[act]].concat()));
    }
    all
}

#[test]
fn a_page_that_comes_late_undoes_nothing_that_the_watch_has_shown_in_any_order() {
    for (acts, present, stale) in histories(3)
        .iter()
        .flat_map(|acts| (0..4_u8).flat_map(move |present| (0..3).map(move |stale| (acts, present, stale))))
    {
        let mut cluster = Cluster::default();
        // What is held from before: nothing, the same objects in older versions, or their namesakes.
        (0..2).filter(|_| stale > 0).for_each(|id| drop(cluster.write(id)));
        let before = cluster.list();
        for id in 0..2 {
            if stale == 2 || present & (1 << id) == 0 {
                cluster.delete(id);
            }
            if present & (1 << id) != 0 {
                cluster.write(id);
            }
        }
        let (pages, first, listed) = (cluster.list(), cluster.history.len(), u128::from(cluster.version));
        for (write, id) in acts {
            if *write { drop(cluster.write(*id)) } else { cluster.delete(*id) }
        }
        let events = &cluster.history[first..];
        for order in orders(events.len()) {
            let (mut fanout, mut believer) = (Fanout::default(), Believer::default());
            let mut tell = |news: News<VolumeAttachment>| {
                let changes = fanout.apply(news.clone());
                believer.hear(&news, &changes);
                fanout.has_heard(listed + 1)
            };
            for news in std::iter::once(News::RestartList).chain(before.iter().cloned().map(News::Listed)) {
                tell(news);
            }
            tell(News::ListDone);
            tell(News::RestartList);
            for at in 0..=events.len() {
                for (_, page) in order[..2].iter().zip(&pages).filter(|(place, _)| **place == at) {
                    assert!(!tell(News::Listed(page.clone())));
                }
                if order[2] == at {
                    assert_eq!(
                        tell(News::ListDone),
                        at > 0,
                        "events count for all that is older once the list is there"
                    );
                }
                if let Some(event) = events.get(at) {
                    assert_eq!(tell(event.clone()), at >= order[2], "an older object may be on the next page");
                }
            }
            assert_eq!(believer.held, cluster.truth(), "{acts:?} {present} {stale} {order:?}");
            let held = fanout.own().map(|object| (ObjectName::of(object.as_ref()).to_string(), told(object)));
            assert_eq!(held.collect::<BTreeMap<_, _>>(), cluster.truth());
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..4).prop_map(Step::Write),
        3 => (0_u8..4, prop_oneof![Just(Reach::Now), Just(Reach::Later)]).prop_map(|(id, reach)| Step::OwnWrite(id, reach)),
        3 => (0_u8..4).prop_map(Step::Delete),
        4 => (1_usize..4).prop_map(Step::Watch),
        1 => Just(Step::Relist),
        4 => Just(Step::Page),
        2 => Just(Step::Late),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_held_only_moves_forward_and_ends_up_true(steps in prop::collection::vec(step(), 0..60)) {
        let (mut cluster, mut fanout) = (Cluster::default(), Fanout::<VolumeAttachment>::default());
        // The same for a driver that none of the objects is of.
        let mut packing = Fanout::<VolumeAttachment>::default();
        packing.serve("another");
        let mut believer = Believer::default();
        // How many of the events were brought, and what is left of the list that is not complete.
        let (mut brought, mut pages) = (0_usize, None::<VecDeque<VolumeAttachment>>);
        let mut steps = steps;
        steps.extend([Step::Late, Step::Relist, Step::Late, Step::Watch(usize::MAX)]);
        steps.extend([const { Step::Page }; 5]);
        for step in steps {
            let mut news = Vec::new();
            match step {
                Step::Write(id) => { cluster.write(id); }
                Step::OwnWrite(id, reach) if cluster.objects.contains_key(&id) => {
                    let answer = cluster.write(id);
                    match reach {
                        Reach::Now => news.push(News::OwnWrite(answer)),
                        Reach::Later => cluster.late.push(answer),
                    }
                }
                Step::OwnWrite(..) => {}
                Step::Delete(id) => cluster.delete(id),
                Step::Watch(count) => {
                    let until = brought.saturating_add(count).min(cluster.history.len());
                    news.extend(cluster.history[brought..until].iter().cloned());
                    brought = until;
                }
                Step::Relist => {
                    news.push(News::RestartList);
                    (brought, pages) = (cluster.history.len(), Some(cluster.list()));
                }
                Step::Page => if let Some(list) = &mut pages {
                    let page = list.pop_front().map(News::Listed);
                    if page.is_none() {
                        pages = None;
                    }
                    news.push(page.unwrap_or(News::ListDone));
                }
                Step::Late => news.extend(cluster.late.drain(..).map(News::OwnWrite)),
            }
            for piece in news {
                let changes = fanout.apply(piece.clone());
                prop_assert_eq!(&packing.apply(piece.clone()), &changes, "packed objects come out as they went in");
                believer.hear(&piece, &changes);
            }
        }
        let truth = cluster.truth();
        prop_assert_eq!(&believer.held, &truth);
        let held: BTreeMap<String, (String, u64)> =
            fanout.own().map(|object| (ObjectName::of(object.as_ref()).to_string(), told(object))).collect();
        prop_assert_eq!(&held, &truth);
        prop_assert_eq!((packing.len(), packing.own().count()), (truth.len(), 0), "none is held as it is");
        for id in 0..4 {
            let found = fanout.find(BY_VOLUME, &format!("pv-va{id}"));
            prop_assert_eq!(found.len(), usize::from(cluster.objects.contains_key(&id)));
            prop_assert_eq!(packing.find(BY_VOLUME, &format!("pv-va{id}")), found);
            let name = ObjectName::cluster(format!("va{id}"));
            prop_assert_eq!(packing.get(&name), fanout.get(&name));
        }
    }
}
