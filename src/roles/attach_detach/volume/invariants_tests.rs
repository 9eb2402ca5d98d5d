//! The invariants of attach-detach spec 18 over random histories of one exclusive volume on three nodes: what is decided and what is
//! written are events of their own, so that anything may come between them.

use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::AttachedVolume;
use crate::roles::attach_detach::memory::{SiteMemory, VolumeMemory};
use crate::roles::attach_detach::node_status::policy as status;

use super::super::gate::Standing;
use super::super::view::{AttemptFailure, Held};
use super::tests::{attachment, id, site, view, wisher};
use super::*;
use crate::roles::kit::AttemptError;

const NODES: [&str; 3] = ["k", "m", "n"];
/// The watch shows a node.
const SEEN: u8 = 19;

/// A Node object in one of its versions.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
struct Object {
    in_use: bool,
    is_reported: bool,
    is_ready: bool,
    is_tainted: bool,
    version: u32,
}

/// A node, as the API and its kubelet have it.
#[derive(Debug, Default)]
struct Node {
    /// Uid, and whether it is attached, and being deleted.
    attachment: Option<(u32, bool, bool)>,
    /// The version of the attachment.
    version: u32,
    /// The second in which its pod was made.
    pod: Option<u32>,
    is_mounted: bool,
    live: Object,
    /// What the leader's cache has of it, which may be old.
    cached: Object,
    /// What its writer has decided, and on which version.
    writing: Option<(status::Step, u32)>,
    writer: status::Progress,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    Refused,
    /// It is done, and nobody hears of it.
    Lost,
    /// The same, but a deletion is done later.
    Late,
}

/// All that there is, and all that a leader remembers.
struct World {
    nodes: [Node; 3],
    memory: VolumeMemory,
    progress: Progress,
    /// What was decided, and on which version of the attachment.
    sending: Vec<(Step, u32)>,
    /// Deletions that were sent and that the API does later. Each has the index of the node, the version of the attachment that it may
    /// delete, and whether the volume is taken from the node by force.
    late: Vec<(usize, u32, bool)>,
    now: Instant,
    uids: u32,
    seconds: u32,
}

impl World {
    fn new() -> Self {
        let live = Object { is_ready: true, ..Object::default() };
        let nodes = [(); 3].map(|()| Node { live: live.clone(), cached: live.clone(), ..Node::default() });
        let (memory, progress) = (VolumeMemory::default(), Progress::default());
        Self {
            nodes,
            memory,
            progress,
            sending: Vec::new(),
            late: Vec::new(),
            now: Instant::now(),
            uids: 0,
            seconds: 0,
        }
    }

    fn uid(&self, at: usize) -> String {
        self.nodes[at].attachment.map(|(uid, ..)| uid.to_string()).unwrap_or_default()
    }

    fn view(&self) -> View {
        let of = |at: usize| {
            let node = &self.nodes[at];
            let held = node.attachment.map_or(Held::None, |(uid, is_attached, is_deleting)| {
                let mut object = (*attachment(NODES[at], &json!({ "attached": is_attached }), is_deleting)).clone();
                object.metadata.uid = uid.to_string().into();
                Held::Fits(object.into())
            });
            let mut site = site(held);
            let Object { in_use, is_tainted: out_of_service, is_ready, is_reported, .. } = node.cached;
            (site.is_reported, site.standing) = (is_reported, Standing::There { in_use, out_of_service, is_ready });
            site.wishers.extend(node.pod.map(|second| wisher(NODES[at], second)));
            let memory = self.memory.sites.get(NODES[at]).cloned().unwrap_or_default();
            site.memory = if *memory.uid == *self.uid(at) { memory } else { SiteMemory::default() };
            site.age = site.memory.phase.map_or(Duration::ZERO, |(_, since)| self.now - since);
            (NODES[at].to_owned(), site)
        };
        View {
            sites: (0..3).map(of).collect(),
            remembered: self.memory.sites.keys().cloned().collect(),
            ..view(Vec::new())
        }
    }

    /// The volume's attempt goes on: a request is answered, or else one is decided.
    fn volume(&mut self, fate: Fate) -> Result<bool, TestCaseError> {
        match self.sending.pop() {
            Some((Step::Delete(node, force), version)) => {
                return self.delete(&node, version, force, fate).map(|()| true);
            }
            Some((Step::Create(node), _)) => return self.create(&node, fate).map(|()| true),
            Some((Step::Keep(node), _)) => {
                self.keep(&node, fate);
                return Ok(true);
            }
            _ => {}
        }
        let view = self.view();
        let (mut sending, mut is_done) = (Vec::new(), false);
        match next_step(&view, &self.progress) {
            Next::Together(steps) => sending = steps,
            Next::Do(Step::Track(found)) => self.memory.track(found, self.now),
            Next::Do(Step::Withdraw(nodes)) => self.mark(&nodes, Withdrawal::Asked),
            Next::Do(Step::Restore(nodes)) => {
                self.mark(&nodes, Withdrawal::Ended);
                (self.progress.is_restored, self.progress.kept) = (true, Vec::new());
            }
            Next::Do(Step::Tell(news)) => {
                for news in news {
                    self.memory.sites.get_mut(&news.node).unwrap().told = Some(news.key);
                }
            }
            Next::Do(Step::ReadAgain(node)) => {
                let held = self.nodes[at(&node)].attachment;
                self.progress.is_live =
                    Some(held.is_some_and(|(_, is_attached, is_deleting)| is_attached && !is_deleting));
            }
            Next::Do(Step::Fail(_)) => self.progress = Progress::default(),
            Next::Do(Step::Wait(_)) | Next::Done => (self.progress, is_done) = (Progress::default(), true),
            Next::Do(other) => sending = vec![other],
        }
        for step in &sending {
            if let Step::Delete(node, force) = step {
                let site = &view.sites[node];
                prop_assert!(!site.is_reported, "I1, as decided");
                prop_assert!(!site.is_wanted(), "I5");
                let node = &self.nodes[at(node)].cached;
                prop_assert!(force.is_some() || !node.in_use, "I2, as decided");
                match force {
                    Some(Force::OutOfService) => prop_assert!(node.is_tainted, "I3"),
                    Some(Force::Timeout) => prop_assert!(!node.is_ready && site.age > Duration::from_secs(360), "I3"),
                    None => {}
                }
            }
        }
        let version = |step: &Step| match step {
            Step::Delete(node, _) => self.nodes[at(node)].version,
            _ => 0,
        };
        self.sending = sending.into_iter().map(|step| (step.clone(), version(&step))).collect();
        Ok(!is_done)
    }

    fn mark(&mut self, nodes: &[String], withdrawal: Withdrawal) {
        for node in nodes {
            self.memory.sites.get_mut(node).unwrap().withdrawal = Some(withdrawal);
        }
    }

    /// The attachment is written.
    fn keep(&mut self, name: &str, fate: Fate) {
        if fate != Fate::Refused {
            self.nodes[at(name)].version += 1;
        }
        if fate == Fate::Answered {
            self.memory.change(name, |site| site.is_kept = true);
            self.progress.kept.push(name.to_owned());
        }
    }

    fn delete(&mut self, name: &str, of: u32, force: Option<Force>, fate: Fate) -> Result<(), TestCaseError> {
        let held = (at(name), of, force.is_some());
        let is_stale = self.nodes[at(name)].version != of;
        match fate {
            Fate::Refused => {}
            Fate::Late => self.late.push(held),
            Fate::Answered | Fate::Lost => self.deleted(held)?,
        }
        if let (Fate::Late | Fate::Lost, Some(site)) = (fate, self.memory.sites.get_mut(name)) {
            site.is_kept = false;
        }
        if fate == Fate::Answered && is_stale {
            // It is read again.
            return Ok(());
        }
        if fate != Fate::Answered {
            self.progress.failed = Some((name.to_owned(), AttemptFailure(AttemptError::Endless(1))));
        } else if let Some(site) = self.memory.sites.get_mut(name) {
            site.is_deleted = true;
        }
        Ok(())
    }

    /// A deletion is done.
    fn deleted(&mut self, (at, of, is_forced): (usize, u32, bool)) -> Result<(), TestCaseError> {
        let node = &mut self.nodes[at];
        if let Some((_, _, is_deleting)) = node.attachment.as_mut().filter(|_| node.version == of) {
            prop_assert!(!node.live.is_reported, "I1");
            prop_assert!(is_forced || !node.is_mounted, "a volume is taken from under a pod");
            *is_deleting = true;
            node.version += 1;
        }
        Ok(())
    }

    fn create(&mut self, name: &str, fate: Fate) -> Result<(), TestCaseError> {
        if fate == Fate::Refused {
            return Ok(());
        }
        self.uids += 1;
        let (uid, node) = (self.uids, &mut self.nodes[at(name)]);
        node.attachment.get_or_insert((uid, false, false));
        node.version += 1;
        let held = self.nodes.iter().filter(|node| node.attachment.is_some()).count();
        prop_assert_eq!(held, 1, "I4");
        Ok(())
    }

    /// The writer of a node's status goes on.
    fn writer(&mut self, at: usize, fate: Fate) -> Result<bool, TestCaseError> {
        if let Some((step, version)) = self.nodes[at].writing.take() {
            let node = &mut self.nodes[at];
            let is_read = step == status::Step::Read;
            match step {
                status::Step::Write(list) if fate != Fate::Refused && version == node.live.version => {
                    node.writes(|live| live.is_reported = !list.is_empty());
                    let held = node.attachment;
                    let is_live = held.is_some_and(|(_, is_attached, is_deleting)| is_attached && !is_deleting);
                    prop_assert!(!node.live.is_reported || is_live, "I6 and I1");
                }
                _ => {}
            }
            // An answer has the node, and so has the read that follows a conflict. Without one, the next attempt decides anew.
            if fate == Fate::Answered {
                node.writer.is_fresh = is_read || version + 1 == node.live.version;
                node.cached = node.live.clone();
            } else {
                node.writer = status::Progress::default();
            }
            return Ok(true);
        }
        let (uid, node) = (self.uid(at), &self.nodes[at]);
        let held = self.memory.site(NODES[at], &uid).filter(|_| node.attachment.is_some());
        let (withdrawal, is_kept) = (held.and_then(|site| site.withdrawal), held.is_some_and(|site| site.is_kept));
        let is_deleted = held.is_some_and(|site| site.is_deleted);
        let report = node.attachment.map(|(_, is_attached, is_deleting)| {
            let is_wanted = node.pod.is_some() || withdrawal == Some(Withdrawal::Ended);
            let is_withdrawn = matches!(withdrawal, Some(Withdrawal::Asked | Withdrawal::Confirmed));
            let is_deleting = is_deleting || is_deleted;
            (id(), status::report(status::Attachment { is_attached, is_deleting, is_wanted, is_withdrawn, is_kept }))
        });
        let name = || AttachedVolume { name: id().name().into(), device_path: "".into() };
        let volumes_attached = node.cached.is_reported.then(name).into_iter().collect();
        let object = crate::cluster::NodeState { volumes_attached, ..Default::default() };
        let asked = (withdrawal == Some(Withdrawal::Asked)).then(|| (id(), uid.clone().into()));
        let view = status::View {
            name: NODES[at].to_owned(),
            node: Some(object.into()),
            is_managed: true,
            is_written: true,
            permit: Permit::Yes,
            reports: report.into_iter().collect(),
            asked: asked.into_iter().collect(),
            coming: 0,
            came: 0,
            wanted: BTreeMap::new(),
            gathering: None,
            now: self.now,
        };
        match status::next_step(&view, &node.writer) {
            Next::Do(status::Step::Confirm(_)) => {
                self.memory.confirm(NODES[at], &uid);
                self.nodes[at].writer = status::Progress::default();
            }
            Next::Do(step) => self.nodes[at].writing = Some((step, self.nodes[at].cached.version)),
            _ => {
                self.nodes[at].writer = status::Progress::default();
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The world goes on.
    fn happens(&mut self, event: u8, at: usize) -> Result<(), TestCaseError> {
        let second = self.seconds;
        let node = &mut self.nodes[at];
        match event {
            0 => {
                node.pod.get_or_insert(second);
                self.seconds = (second + 1) % 60;
            }
            1 => node.pod = None,
            // The kubelet says that it uses a volume, then looks whether it is reported, then mounts.
            2 if node.pod.is_some() && node.live.is_ready => node.writes(|live| live.in_use = true),
            3 if node.pod.is_some() && node.live.in_use && node.live.is_reported => node.is_mounted = true,
            4 if node.pod.is_none() && node.live.is_ready => node.is_mounted = false,
            5 if node.pod.is_none() && node.live.in_use && !node.is_mounted && node.live.is_ready => {
                node.writes(|live| live.in_use = false);
            }
            6 => {
                if let Some((_, is_attached, false)) = &mut node.attachment {
                    *is_attached = true;
                    node.version += 1;
                }
            }
            7 if node.attachment.is_some_and(|(.., is_deleting)| is_deleting) => {
                (node.attachment, node.is_mounted) = (None, false);
            }
            8 => node.writes(|live| live.is_ready = !live.is_ready),
            9 => node.writes(|live| live.is_tainted = !live.is_tainted),
            10 => self.now += Duration::from_secs(200),
            // Another leader: what was decided is never sent, and what was sent may be done later.
            11 => {
                (self.memory, self.progress, self.sending) = (VolumeMemory::default(), Progress::default(), Vec::new());
                for node in &mut self.nodes {
                    (node.writing, node.writer) = (None, status::Progress::default());
                }
            }
            12..=14 => drop(self.writer(at, Fate::Answered)?),
            15 => drop(self.writer(at, Fate::Refused)?),
            16 => drop(self.writer(at, Fate::Lost)?),
            17 => drop(self.volume(Fate::Refused)?),
            18 => drop(self.volume(Fate::Lost)?),
            20 => drop(self.volume(Fate::Late)?),
            21 => std::mem::take(&mut self.late).into_iter().try_for_each(|held| self.deleted(held))?,
            SEEN => node.cached = node.live.clone(),
            _ => drop(self.volume(Fate::Answered)?),
        }
        Ok(())
    }

    /// Lets all go on, with healthy nodes and an attacher that answers, until nothing is left to do.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        for node in &mut self.nodes {
            node.writes(|live| (live.is_ready, live.is_tainted) = (true, false));
        }
        for _ in 0..400 {
            let mut goes_on = self.volume(Fate::Answered)?;
            for at in 0..3 {
                goes_on |= self.writer(at, Fate::Answered)?;
                goes_on |= self.nodes[at].pod.is_none() && self.nodes[at].live.in_use;
                goes_on |= self.nodes[at].cached.version != self.nodes[at].live.version;
                goes_on |= self.nodes[at].attachment.is_some_and(|(_, attached, deleting)| deleting || !attached);
                for event in [4, 5, 6, 7, SEEN] {
                    self.happens(event, at)?;
                }
            }
            if !goes_on {
                return Ok(());
            }
        }
        Err(TestCaseError::fail(format!("it never rests: {:?}", self.nodes)))
    }
}

impl Node {
    fn writes(&mut self, change: impl FnOnce(&mut Object)) {
        change(&mut self.live);
        self.live.version += 1;
    }
}

fn at(node: &str) -> usize {
    NODES.iter().position(|it| *it == node).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn i1_to_i6_and_i10_hold_whatever_happens_and_in_the_end_each_wish_is_fulfilled(
        events in prop::collection::vec((0_u8..34, 0_usize..3), 0..160),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _time = runtime.enter();
        let mut world = World::new();
        for (event, at) in events {
            world.happens(event, at)?;
        }
        world.rest()?;
        // I12: one of those that want it has it, and reports it; the others wait.
        let wants = world.nodes.iter().any(|node| node.pod.is_some());
        let served = world.nodes.iter().filter(|node| node.pod.is_some() && node.live.is_reported).count();
        let held = world.nodes.iter().filter(|node| node.attachment.is_some()).count();
        prop_assert_eq!((served, held), (usize::from(wants), usize::from(wants)));
        for node in &mut world.nodes {
            node.pod = None;
        }
        world.rest()?;
        prop_assert!(world.nodes.iter().all(|node| node.attachment.is_none() && !node.live.is_reported));
        prop_assert!(world.memory.sites.is_empty(), "{:?}", world.memory);
    }
}

/// Histories that chance seldom finds: the pod of one node comes, what it wants is attached, and the pod goes.
#[test]
fn what_is_under_way_to_a_node_or_was_lost_on_the_way_back_is_waited_for() {
    let (come, go, uses, mounts, attached, writes, lost, acts) = (0, 1, 2, 3, 6, 12, 16, 33);
    for (row, history) in [
        // Decided before the pod went, and sent after: the name comes in while the volume looks whether it is out.
        (
            "a write under way",
            &[come, acts, acts, acts, acts, attached, acts, writes, go, acts, acts, acts, writes, acts, acts][..],
        ),
        // The name is in, the kubelet has mounted, and the cache shows neither.
        (
            "a lost answer",
            &[
                come, acts, acts, acts, acts, attached, acts, writes, lost, uses, mounts, go, acts, acts, writes, acts,
                acts, acts,
            ],
        ),
    ] {
        let mut world = World::new();
        for event in history {
            world.happens(*event, 0).unwrap_or_else(|error| panic!("{row}: {error}"));
        }
        assert!(world.nodes[0].attachment.is_some_and(|(.., is_deleting)| !is_deleting), "{row}: {:?}", world.nodes[0]);
        world.rest().unwrap();
        assert!(world.nodes[0].attachment.is_none(), "{row}");
    }
}
