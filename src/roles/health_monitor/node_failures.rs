//! Which nodes have failed, and on which claims that was reported (spec C4). Pure.
//!
//! | a node | |
//! |---|---|
//! | is not ready | has failed when it was seen so for `nodeDownAfter` |
//! | is named by a pod and does not exist | the same |
//! | was deleted | has failed |
//! | is ready again | what was reported on claims has ended |
//!
//! A claim has one report of a failure, however many of its pods are on the node and whenever they came there. Only this process's clock
//! counts, so a new leader waits for `nodeDownAfter` again, unless an Event says that the node has failed.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::ObjectName;

/// What is seen of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is ready.
    Ready,
    /// It is not, or does not exist.
    NotReady,
    /// It was deleted.
    Deleted,
}

/// The nodes that are not ready.
#[derive(Debug, Default)]
pub struct NodeFailures(BTreeMap<String, Failure>);

#[derive(Debug)]
struct Failure {
    /// When the node counts as failed.
    due: Instant,
    /// It is ready again, which is still to be reported.
    has_ended: bool,
    /// The claims that it was reported on, by their uids.
    reported: Reported,
}

/// Claims by their uids.
pub type Reported = BTreeMap<String, ObjectName>;

impl NodeFailures {
    /// A node was seen at this time. Returns whether that is news.
    pub fn observe(&mut self, node: &str, seen: Seen, now: Instant, down_after: Duration) -> bool {
        let due = match seen {
            Seen::Ready => return self.ready(node),
            Seen::NotReady => now + down_after,
            Seen::Deleted => now,
        };
        let mut is_news = false;
        let failure = self.0.entry(node.to_owned()).or_insert_with(|| {
            is_news = true;
            Failure { due, has_ended: false, reported: Reported::new() }
        });
        is_news |= failure.has_ended || due < failure.due;
        failure.has_ended = false;
        failure.due = failure.due.min(due);
        is_news
    }

    fn ready(&mut self, node: &str) -> bool {
        let Some(failure) = self.0.get_mut(node) else { return false };
        if failure.reported.is_empty() {
            self.0.remove(node);
            return false;
        }
        !std::mem::replace(&mut failure.has_ended, true)
    }

    /// An Event of an earlier term says that the node has failed, and has been reported on this claim.
    pub fn was_reported(&mut self, node: &str, uid: String, claim: ObjectName, now: Instant) {
        let new = || Failure { due: now, has_ended: false, reported: Reported::new() };
        self.0.entry(node.to_owned()).or_insert_with(new).reported.insert(uid, claim);
    }

    /// Whether all nodes are ready.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the node is not ready, or was not.
    pub fn has(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// The nodes that have failed by now.
    pub fn failed(&self, now: Instant) -> Vec<String> {
        let failed = self.0.iter().filter(|(_, failure)| !failure.has_ended && failure.due <= now);
        failed.map(|(node, _)| node.clone()).collect()
    }

    /// When the next node fails, if it does not become ready before.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.0.values().filter(|failure| !failure.has_ended && failure.due > now).map(|failure| failure.due).min()
    }

    /// Whether the failure of the node is still to be reported on this claim. From now on it is not.
    pub fn report(&mut self, node: &str, uid: &str, claim: &ObjectName) -> bool {
        let Some(failure) = self.0.get_mut(node) else { return false };
        failure.reported.insert(uid.to_owned(), claim.clone()).is_none()
    }

    /// Takes out the nodes that are ready again, with the claims to report that on.
    pub fn recovered(&mut self) -> Vec<(String, Reported)> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (ended, failing): (BTreeMap<_, _>, BTreeMap<_, _>) = all.partition(|(_, failure)| failure.has_ended);
        self.0 = failing;
        ended.into_iter().map(|(node, failure)| (node, failure.reported)).collect()
    }

    /// The nodes that are not ready, with the claims that this was reported on.
    pub fn all(&self) -> Vec<(String, Reported)> {
        self.0.iter().map(|(node, failure)| (node.clone(), failure.reported.clone())).collect()
    }

    /// A claim is gone.
    pub fn forget_claim(&mut self, node: &str, uid: &str) {
        if let Some(failure) = self.0.get_mut(node) {
            failure.reported.remove(uid);
        }
    }

    /// A node does not exist: once it has failed, it is forgotten with the last claim that may have to know that it is back.
    pub fn forget_node(&mut self, node: &str, now: Instant) {
        if self.0.get(node).is_some_and(|failure| failure.reported.is_empty() && failure.due <= now) {
            self.0.remove(node);
        }
    }

    /// How many nodes have failed by now.
    pub fn count(&self, now: Instant) -> usize {
        self.failed(now).len()
    }
}

#[cfg(test)]
mod tests {
    use crate::process::Clock;

    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    /// What happens to the node at a second, and what is reported then: `-` its failure, `+` its end, each on claim `c` only if it was not
    /// reported before, and `.` nothing.
    fn told(seen: &[(u64, Seen)]) -> String {
        let begun = Clock::system().now();
        let (mut failures, mut told) = (NodeFailures::default(), String::new());
        for (second, seen) in seen {
            let now = begun + Duration::from_secs(*second);
            failures.observe("n", *seen, now, AFTER);
            told.push(tell(&mut failures, now));
        }
        told
    }

    fn tell(failures: &mut NodeFailures, now: Instant) -> char {
        let recovered = failures.recovered();
        let is_failed = failures.failed(now).iter().any(|node| failures.report(node, "uid", &claim()));
        match (recovered.is_empty(), is_failed) {
            (true, true) => '-',
            (false, false) => '+',
            (true, false) => '.',
            (false, true) => '!',
        }
    }

    fn claim() -> ObjectName {
        ObjectName::namespaced("shop", "c")
    }

    #[test]
    fn h23_a_failure_is_told_once_when_it_has_lasted_and_its_end_if_it_was_told() {
        use Seen::{Deleted, NotReady, Ready};
        for (seen, expected) in [
            // A short absence is not reported, and the time begins anew.
            (&[(0, NotReady), (299, Ready), (300, NotReady), (599, NotReady), (600, NotReady)][..], "....-"),
            (&[(0, NotReady), (300, NotReady), (9000, NotReady), (9001, Ready), (9002, Ready)], ".-.+."),
            // The next failure is another one.
            (&[(0, NotReady), (300, NotReady), (301, Ready), (302, NotReady), (602, NotReady)], ".-+.-"),
            // A deletion counts at once, and is the end of no failure.
            (&[(0, Ready), (1, Deleted), (2, NotReady), (3, Ready)], ".-.+"),
            (&[(0, NotReady), (10, Deleted)], ".-"),
            (&[(0, NotReady), (300, NotReady), (301, Deleted), (302, Ready)], ".-.+"),
        ] {
            assert_eq!(told(seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn h25_a_new_leader_repeats_nothing_that_an_event_says_and_tells_its_end() {
        let now = Clock::system().now();
        for (seen, expected) in [(Seen::Ready, '+'), (Seen::NotReady, '.'), (Seen::Deleted, '.')] {
            let mut failures = NodeFailures::default();
            failures.was_reported("n", "uid".to_owned(), claim(), now);
            failures.observe("n", seen, now, AFTER);
            assert_eq!(tell(&mut failures, now), expected, "{seen:?}");
            // It has failed, so that is reported at once on another claim.
            assert_eq!(failures.report("n", "other", &claim()), seen != Seen::Ready);
        }
    }

    #[test]
    fn it_is_known_when_to_look_next_and_what_is_gone_is_forgotten() {
        let now = Clock::system().now();
        let mut failures = NodeFailures::default();
        assert!(failures.observe("a", Seen::NotReady, now, AFTER));
        assert!(!failures.observe("a", Seen::NotReady, now + Duration::from_secs(1), AFTER), "no news");
        assert_eq!((failures.next(now), failures.count(now)), (Some(now + AFTER), 0));
        failures.forget_node("a", now);
        assert!(failures.has("a"), "a pod names it");
        assert!(failures.observe("a", Seen::Deleted, now, AFTER), "it counts at once");
        assert_eq!((failures.next(now), failures.failed(now)), (None, vec!["a".to_owned()]));
        failures.report("a", "uid", &claim());
        failures.forget_node("a", now);
        assert!(failures.has("a"), "it may come back, and the claim is to know");
        failures.forget_claim("a", "uid");
        assert_eq!(failures.all(), [("a".to_owned(), Reported::new())]);
        failures.forget_node("a", now);
        assert!(!failures.has("a"));
    }
}
