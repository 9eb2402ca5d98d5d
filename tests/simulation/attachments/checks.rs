//! The checks of each commit and of each step of a kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_control_plane::roles::attach_detach::names;
use csi_control_plane::sandbox::api::audit::{Audit, Entry, UNANSWERED};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::facts::{Facts, flag, site_of};
use super::invariants::Rule;
use super::objects::{
    ATTACHMENTS, Claim, NODES, Site, THEIRS, VOLUMES, attachment_name, driver_of, is_attached, is_csi, is_exclusive,
    list, reported,
};
use super::play::{EPOCH, Setting};
use crate::stage::{Commit, Reign};
use crate::world::{FINALIZER, finalizers, is_deleting, text, without};

/// A deletion that is done late is done by then.
const LATE: Duration = Duration::from_secs(45);
/// A term that has begun so long ago has listed everything.
const LISTED: Duration = Duration::from_secs(8);

/// What must hold. It knows only what [`Checks::committed`] and the kubelets tell it, and which requests came.
pub(crate) struct Checks {
    pub(super) facts: Facts,
    pub(super) broken: Vec<(Rule, String)>,
    /// How many attachments were made, and deleted, how many of these by force; and how often a volume was mounted.
    pub(super) counts: [usize; 4],
    /// The pods that have a warning, by their uids.
    pub(super) warned: BTreeSet<String>,
    pub(super) setting: Setting,
    audit: Audit,
    began: Instant,
    /// Where a volume is mounted, and whether it was taken from there by force or by hand.
    mounts: BTreeMap<Site, bool>,
    /// Where an attachment was deleted by force or by hand, and there is none since that is attached.
    undone: BTreeSet<Site>,
    /// When a daemon wrote the status of a node, by both names.
    written: BTreeMap<(String, String), Vec<Duration>>,
    /// The daemons whose deletions are done late, and until when.
    late: BTreeMap<&'static str, Instant>,
    reign: Reign,
    term_began: Duration,
    /// Since when the other controller is known to be active, as far as this term has to know it.
    closed: Option<Duration>,
}

impl Checks {
    pub(crate) fn new(setting: Setting, audit: Audit, began: Instant) -> Self {
        Self {
            facts: Facts::default(),
            broken: Vec::new(),
            counts: [0; 4],
            warned: BTreeSet::new(),
            setting,
            audit,
            began,
            mounts: BTreeMap::new(),
            undone: BTreeSet::new(),
            written: BTreeMap::new(),
            late: BTreeMap::new(),
            reign: Reign::default(),
            term_began: Duration::ZERO,
            closed: None,
        }
    }

    pub(super) fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
        self.broken.push((rule, format!("{:.3}s: {what}", self.began.elapsed().as_secs_f64())));
    }

    pub(crate) fn committed(&mut self, commit: &Commit<'_>) {
        let none = Value::Null;
        let (old, new) = (commit.old.unwrap_or(&none), commit.new.unwrap_or(&none));
        let is_ours = is_daemon(commit.actor);
        match commit.plural {
            "leases" if commit.name == names::lease("") => self.led(commit),
            "events" if is_ours && text(new, "/reason") == names::ATTACH_FAILED => {
                self.warned.insert(text(new, "/involvedObject/uid").to_owned());
            }
            "leases" | "events" => {}
            NODES if is_ours => self.node_written(commit, old, new),
            ATTACHMENTS => self.attachment_written(commit, old, new, is_ours),
            VOLUMES if is_ours && self.setting.attaches => {}
            it if is_ours => self.violate(Rule::Own, format_args!("{it} {} is written", commit.name)),
            _ => {}
        }
        self.facts.take(commit);
    }

    fn led(&mut self, commit: &Commit<'_>) {
        if self.reign.changed(commit, false) {
            (self.term_began, self.closed) = (commit.at, None);
        }
    }

    /// I11.
    fn may_write(&mut self, commit: &Commit<'_>, what: &str) {
        let (actor, name) = (commit.actor, commit.name);
        if !self.reign.is_of(actor) {
            self.violate(Rule::I11, format_args!("{actor} {what} {name}, and does not lead"));
        }
        if self.closed.is_some_and(|since| commit.at > since + self.setting.late()) {
            self.violate(Rule::I11, format_args!("{actor} {what} {name} beside the other controller"));
        }
    }

    fn node_written(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let (name, from) = (commit.name, commit.at.saturating_sub(self.setting.late()));
        self.may_write(commit, "writes node");
        if without_list(old) != without_list(new) {
            self.violate(Rule::Own, format_args!("{name} is changed from {old} to {new}"));
        }
        let others =
            |node: &Value| -> Vec<Value> { list(node).into_iter().filter(|it| !is_csi(text(it, "/name"))).collect() };
        if others(old) != others(new) {
            self.violate(Rule::I6, format_args!("{name}: {:?} became {:?}", others(old), others(new)));
        }
        for volume in reported(new).difference(&reported(old)) {
            let site = (name.to_owned(), volume.clone());
            if !flag(&self.facts.attached, &site).was(true, from) {
                self.violate(Rule::I6, format_args!("{name} reports {volume}, which is not attached to it"));
            }
        }
        if !flag(&self.facts.managed, name).was(true, from) {
            self.violate(Rule::I5, format_args!("{name} is written, and not managed"));
        }
        self.written.entry((commit.actor.to_owned(), name.to_owned())).or_default().push(commit.at);
    }

    fn attachment_written(&mut self, commit: &Commit<'_>, old: &Value, new: &Value, is_ours: bool) {
        let (is_new, is_live) = (commit.old.is_none(), |it: &Value| is_attached(it) && !is_deleting(it));
        let is_deleted = !is_new && !is_deleting(old) && (commit.new.is_none() || is_deleting(new));
        if is_ours && is_new {
            self.counts[0] += 1;
            self.made(commit, new);
        } else if is_ours && !is_deleted {
            self.kept_finalizers(commit, old, new);
        }
        if is_new && is_theirs(new) && commit.at > self.term_began + LISTED {
            self.closed = self.closed.or(Some(commit.at));
        }
        let is_excused = if is_deleted && is_ours { self.deleted(commit, old) } else { is_deleted };
        let Some(site) = site_of(if is_new { new } else { old }) else { return };
        if is_excused {
            self.undone.insert(site.clone());
        }
        if is_live(new) {
            self.undone.remove(&site);
        } else if self.mounts.get(&site) == Some(&false) && is_live(old) {
            if self.undone.contains(&site) {
                self.mounts.insert(site, true);
            } else {
                self.violate(Rule::Mounted, format_args!("{} detaches {site:?}, where it is mounted", commit.actor));
            }
        }
    }

    /// I4, I5, I7, I9 of an attachment that a daemon has made.
    fn made(&mut self, commit: &Commit<'_>, new: &Value) {
        let (name, actor, from) = (commit.name, commit.actor, commit.at.saturating_sub(self.setting.late()));
        self.may_write(commit, "makes");
        if !finalizers(new).is_empty() {
            self.violate(Rule::I9, format_args!("{name} is made with {:?}", finalizers(new)));
        }
        let volume = Claim::of_volume(text(new, "/spec/source/persistentVolumeName")).and_then(Claim::volume);
        let Some(volume) = volume else {
            self.violate(Rule::I5, format_args!("{name} is made for what nobody attaches: {new}"));
            return;
        };
        let site = (text(new, "/spec/nodeName").to_owned(), volume);
        if attachment_name(&site) != name || text(new, "/spec/attacher") != driver_of(&site.1) {
            self.violate(Rule::I7, format_args!("{name} is not the name of {site:?}: {}", new["spec"]));
        }
        if !self.facts.may_be_wished(&site, from) || !flag(&self.facts.managed, &site.0).was(true, from) {
            self.violate(Rule::I5, format_args!("{actor} makes an attachment of {site:?}, where no pod wants it"));
        }
        let is_other = |it: &&Value| {
            // What people and the other controller make, nobody has to know at once.
            let is_other = site_of(it).is_some_and(|(node, volume)| volume == site.1 && node != site.0);
            is_other && !is_theirs(it)
        };
        let other = self.facts.all(ATTACHMENTS).find(is_other).map(|it| text(it, "/spec/nodeName").to_owned());
        if let Some(other) = other.filter(|_| is_exclusive(&site.1) && self.setting.is_strict) {
            self.violate(Rule::I4, format_args!("{actor} makes an attachment of {site:?} beside that to {other}"));
        }
    }

    fn kept_finalizers(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let others = |it: &Value| -> Vec<String> {
            let is_ours = |it: &&str| self.setting.attaches && *it == FINALIZER;
            finalizers(it).into_iter().filter(|it| !is_ours(it)).map(str::to_owned).collect()
        };
        if others(old) != others(new) {
            let (name, before, after) = (commit.name, others(old), others(new));
            self.violate(Rule::I9, format_args!("the finalizers of {name} became {after:?} from {before:?}"));
        }
    }

    /// A daemon has deleted an attachment. Whether that was by force, and could be.
    fn deleted(&mut self, commit: &Commit<'_>, old: &Value) -> bool {
        let (name, actor, now) = (commit.name, commit.actor, commit.at);
        let is_late = self.late.get(actor).is_some_and(|until| Instant::now() < *until);
        if !is_late {
            self.may_write(commit, "deletes");
        }
        self.counts[1] += 1;
        // What is known of no volume ends otherwise (spec 10).
        let Some(site) = site_of(old) else { return false };
        let (facts, from) = (&self.facts, now.saturating_sub(if is_late { LATE } else { self.setting.late() }));
        let [wanted, in_use, is_reported] =
            [&facts.wanted, &facts.in_use, &facts.reported].map(|flags| flag(flags, &site));
        let [there, ready, tainted, managed] =
            [&facts.there, &facts.ready, &facts.tainted, &facts.managed].map(|flags| flag(flags, site.0.as_str()));
        if is_reported.is {
            self.violate(Rule::I1, format_args!("{actor} deletes {name} while {site:?} is reported"));
        }
        let is_lost = ready.was(false, from) || there.was(false, from);
        // All else was so when it was sent. What must not be is that it is mounted by now, unless it was sent by force.
        if is_late {
            return in_use.is && (tainted.was(true, from) || (is_lost && self.setting.forces));
        }
        if (wanted.is && wanted.since < from) || (there.is && !managed.was(true, from)) {
            self.violate(Rule::I5, format_args!("{actor} deletes {name} of {site:?}, since {wanted:?} {managed:?}"));
        }
        if !in_use.is || self.was_read(actor, &site, is_reported.since, in_use.since) {
            return false;
        }
        let is_over = !wanted.is && now.saturating_sub(wanted.since) >= self.setting.waits();
        if tainted.was(true, from) || (is_lost && is_over && self.setting.forces) {
            self.counts[2] += 1;
            return true;
        }
        if there.is && there.since >= from {
            // It was registered anew a moment ago.
            return false;
        }
        let rule = if ready.is { Rule::I2 } else { Rule::I3 };
        let what = format!("{actor} deletes {name}, and {site:?} is in use {in_use:?}, wanted {wanted:?}, {ready:?}");
        self.violate(rule, what);
        false
    }

    /// Whether a daemon has read or written a node after a name was out of its report and before its kubelet used the volume.
    fn was_read(&self, daemon: &str, site: &Site, out: Duration, used: Duration) -> bool {
        let is_between = |at: Duration| out <= at && at <= used;
        let key = (daemon.to_owned(), site.0.clone());
        let is_read = |entry: &Entry| {
            (entry.verb, entry.resource, entry.code) == ("get", NODES, 200)
                && entry.user == daemon
                && entry.name == site.0
                && is_between(since_epoch(entry.time))
        };
        self.written.get(&key).into_iter().flatten().any(|at| is_between(*at))
            || !self.audit.matching(is_read).is_empty()
    }

    /// A deletion of this daemon may be done late.
    pub(super) fn is_late(&mut self, daemon: &'static str) {
        self.late.insert(daemon, Instant::now() + LATE);
    }

    /// What is mounted on a node.
    pub(super) fn mounted_on(&self, node: &str) -> BTreeSet<String> {
        self.mounts.keys().filter(|(it, _)| it == node).map(|(_, volume)| volume.clone()).collect()
    }

    /// What is mounted, but for what was taken from there by force or by hand.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Site> {
        self.mounts.iter().filter(|(_, is_excused)| !**is_excused).map(|(site, _)| site)
    }

    /// A kubelet mounts a volume.
    pub(super) fn mounted(&mut self, site: &Site) {
        let is_excused = self.undone.contains(site);
        if !is_excused && !flag(&self.facts.attached, site).is {
            self.violate(Rule::Mounted, format_args!("{site:?} is mounted, and not attached"));
        }
        let other = self.mounts().find(|(node, volume)| *volume == site.1 && *node != site.0).cloned();
        if let Some(other) = other.filter(|_| !is_excused && is_exclusive(&site.1)) {
            self.violate(Rule::Alone, format_args!("{site:?} is mounted beside {other:?}"));
        }
        self.counts[3] += 1;
        self.mounts.insert(site.clone(), is_excused);
    }

    pub(super) fn unmounted(&mut self, site: &Site) {
        self.mounts.remove(site);
    }

    /// A machine begins anew.
    pub(crate) fn rebooted(&mut self, node: &str) {
        self.mounts.retain(|(it, _), _| it != node);
    }

    /// I7 and I8, of all requests.
    pub(super) fn requested(&mut self) {
        let is_ours = |entry: &Entry| is_daemon(&entry.user);
        let mut written: BTreeMap<(String, &str, String), Vec<Entry>> = BTreeMap::new();
        for entry in self.audit.matching(is_ours) {
            let body = entry.body.as_ref().unwrap_or(&Value::Null);
            match (entry.verb, entry.resource, entry.subresource.as_str()) {
                ("delete", ATTACHMENTS, _) => {
                    if text(body, "/preconditions/uid").is_empty() {
                        self.violate(Rule::I7, format_args!("a deletion names no uid: {entry:?}"));
                    }
                }
                ("create", ATTACHMENTS, _) | ("patch", NODES, "status") => {}
                _ => continue,
            }
            let name = if entry.name.is_empty() { text(body, "/metadata/name").to_owned() } else { entry.name.clone() };
            written.entry((entry.user.clone(), entry.resource, name)).or_default().push(entry);
        }
        for entries in written.values_mut() {
            entries.sort_by_key(|entry| entry.order.start);
            for pair in entries.windows(2) {
                // A client that does not wait any more may send the next one.
                if pair[0].code != UNANSWERED && pair[1].order.start < pair[0].order.end {
                    self.violate(Rule::I8, format_args!("two requests at once: {:?} and {:?}", pair[0], pair[1]));
                }
            }
        }
    }
}

/// Whether a user is a daemon, also of the tests of crashes.
fn is_daemon(user: &str) -> bool {
    user.starts_with("daemon-")
}

/// Whether the other controller has made an attachment.
fn is_theirs(attachment: &Value) -> bool {
    text(attachment, "/metadata/managedFields/0/manager") == THEIRS
}

fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(EPOCH.parse().unwrap())).unwrap_or_default()
}

/// The part of a node that the daemon must not change.
fn without_list(node: &Value) -> Value {
    without(node, [("/status", "volumesAttached"), ("/metadata", "resourceVersion"), ("/metadata", "managedFields")])
}
