//! Faults of the driver: scripted faults as data, and random faults. Pure except for the random numbers that a test
//! passes in.
//!
//! A call is checked against the rules in order. Only the first matching rule applies; later rules do not see or count
//! the call, so several one-time rules hit one call each. A random fault applies only if no rule does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::Code;

use super::method::Method;
use super::refusal::{Refusal, code_as_name};
use base::process::Rng;

/// One rule of a script: on which calls something goes wrong, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The RPC; none: any.
    #[serde(default)]
    pub method: Option<Method>,
    /// The volume by its ID, or by its name where it is to be made; none: any.
    #[serde(default)]
    pub volume: Option<String>,
    /// The node; none: any.
    #[serde(default)]
    pub node: Option<String>,
    /// The snapshot by its ID, or by its name where it is to be cut; none: any.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// How many matching calls pass first.
    #[serde(default)]
    pub skip: u32,
    /// How many matching calls it hits then. `None`: all.
    #[serde(default)]
    pub times: Option<u32>,
    /// The fault.
    pub action: Action,
}

impl Fault {
    /// `action` on every call of `method`.
    pub fn on(method: Method, action: Action) -> Self {
        Self { method: Some(method), ..Self::anywhere(action) }
    }

    /// `action` on every call.
    pub fn anywhere(action: Action) -> Self {
        Self { method: None, volume: None, node: None, snapshot: None, skip: 0, times: None, action }
    }

    /// Only for this volume.
    #[must_use]
    pub fn volume(mut self, volume: &str) -> Self {
        self.volume = Some(volume.to_owned());
        self
    }

    /// Only for this node.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// Only for this snapshot.
    #[must_use]
    pub fn snapshot(mut self, snapshot: &str) -> Self {
        self.snapshot = Some(snapshot.to_owned());
        self
    }

    /// Only on the `n`th matching call, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u32) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = Some(1);
        self
    }

    /// Only on the next `n` matching calls.
    #[must_use]
    pub fn times(mut self, n: u32) -> Self {
        self.times = Some(n);
        self
    }

    /// Only on the next matching call.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// The fault of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It is answered with an error and nothing is done.
    Fail {
        /// The gRPC code.
        #[serde(with = "code_as_name")]
        code: Code,
        /// The message.
        message: String,
    },
    /// It hangs until its caller gives up. Nothing is done.
    Hang,
    /// It hangs, and its volume stays busy (ABORTED for later calls) when the caller gives up, until a restart.
    Wedge,
    /// It is served after a while, if its caller still waits then.
    Delay(#[serde(with = "base::process::duration::Text")] Duration),
    /// It is served after a while, unless the driver works on so many others: then it is refused.
    Crowded {
        /// On how many the driver works at once.
        most: usize,
        /// How long one takes.
        #[serde(with = "base::process::duration::Text")]
        takes: Duration,
        /// The gRPC code of a refusal.
        #[serde(with = "code_as_name")]
        code: Code,
    },
    /// It is served after a while, whether its caller still waits or not, and even over a restart. The volume is busy.
    Late(#[serde(with = "base::process::duration::Text")] Duration),
    /// It is served when [`Driver::release`](super::Driver::release) is called, whether its caller still waits or not, and
    /// even over a restart. The volume is busy.
    Hold,
    /// It is served, but answered with an error.
    DoneButFail {
        /// The gRPC code.
        #[serde(with = "code_as_name")]
        code: Code,
        /// The message.
        message: String,
    },
    /// It is served, but never answered.
    DoneButHang,
    /// The driver dies before it does anything, and is back after `down`.
    Crash {
        /// How long the driver is away.
        #[serde(with = "base::process::duration::Text")]
        down: Duration,
    },
    /// It is served; the driver dies before it answers.
    DoneButCrash {
        /// How long the driver is away.
        #[serde(with = "base::process::duration::Text")]
        down: Duration,
    },
    /// It is served and answered; then the driver dies.
    AnswerThenCrash {
        /// How long the driver is away.
        #[serde(with = "base::process::duration::Text")]
        down: Duration,
    },
    /// It is served, but the answer is false or nonsense. Where the lie doesn't fit the method, the answer is true.
    Lie(Lie),
}

impl Action {
    /// [`Action::Fail`].
    pub fn fail(code: Code, message: &str) -> Self {
        Self::Fail { code, message: message.to_owned() }
    }

    /// Whether it made the driver refuse with these words, which are not the driver's own.
    pub fn says(&self, refusal: &Refusal) -> bool {
        let (Self::Fail { code, message } | Self::DoneButFail { code, message }) = self else { return false };
        (*code, message) == (refusal.code, &refusal.message)
    }
}

/// A false or senseless answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lie {
    /// `Probe` answers that the driver is not ready yet, and each answer with a snapshot that the snapshot is not.
    NotReady,
    /// `GetPluginInfo` answers without a name.
    EmptyName,
    /// The capabilities hold numbers that no one knows, and entries without a type.
    BogusCapabilities,
    /// `ListVolumes` and `ControllerListVolumeHealth` leave out these volumes.
    OmitVolumes(BTreeSet<String>),
    /// `ListVolumes` names no node.
    OmitNodes,
    /// `ListVolumes` begins with an entry that has no volume.
    EntryWithoutVolume,
    /// `ListVolumes` leaves out each entry's status, `ControllerGetVolume` the volume's.
    EntryWithoutStatus,
    /// `ListVolumes` has each entry twice, the second time published nowhere.
    DuplicateEntries,
    /// `ListVolumes`, `ControllerListVolumeHealth` and `ListSnapshots` never end: each page points to the first one.
    TokenLoop,
    /// `CreateVolume` answers without a volume, `ControllerGetVolumeHealth` without its health.
    NoVolume,
    /// `CreateVolume` answers with a volume without an ID.
    EmptyVolumeId,
    /// `CreateVolume` answers with this ID, and the volume has another.
    VolumeId(String),
    /// `CreateVolume` answers that the volume has this many bytes, and each answer with a snapshot that the snapshot
    /// has.
    Size(i64),
    /// `CreateVolume` names no source, whether or not it used one.
    ForgetSource,
    /// `CreateVolume` answers that the volume is reached from these places.
    Topologies(Vec<BTreeMap<String, String>>),
    /// `CreateSnapshot` and `GetSnapshot` answer without a snapshot.
    NoSnapshot,
    /// Each answer with a snapshot lacks its ID.
    EmptySnapshotId,
    /// Each answer with a snapshot has this ID instead of the snapshot's.
    SnapshotId(String),
    /// Each answer with a snapshot lacks the time of the cut.
    NoCreationTime,
    /// Each answer with a snapshot says that it was cut so many seconds, and nanoseconds, after 1970.
    CreationTime(i64, i32),
    /// Each answer with a snapshot says that it belongs to this group.
    SnapshotGroup(String),
    /// `ListSnapshots` begins with an entry that has no snapshot.
    EntryWithoutSnapshot,
    /// `ListSnapshots` begins with an entry of this ID, which was not requested and is not ready to use.
    AnotherSnapshotFirst(String),
    /// The list has these snapshots, and no others.
    OtherSnapshots(Vec<String>),
    /// `ListSnapshots` leaves out everything.
    OmitSnapshots,
    /// Each answer with a group has a snapshot without an ID.
    EmptyMemberId,
    /// Each answer with a group gives the first snapshot's ID to all of them.
    SameMemberId,
    /// Each answer with a group says that its first snapshot is of this volume.
    MemberOf(String),
    /// Each answer with a group leaves out its snapshots.
    OmitMembers,
    /// `GetCapacity` answers this many bytes.
    Capacity(i64),
    /// `ControllerGetVolumeHealth` answers for the volume of this ID.
    HealthOf(String),
    /// The answer is this many bytes larger.
    Huge(usize),
}

/// Faults by chance, from a seed: the same calls in the same order are struck in the same way.
#[derive(Debug, Clone)]
pub struct Chance {
    /// The source of random numbers.
    pub rng: Rng,
    /// The share of calls that are struck, from 0 to 1.
    pub rate: f64,
    /// The RPCs that may be struck; empty: all.
    pub methods: BTreeSet<Method>,
    /// The possible faults, all equally likely.
    pub menu: Vec<Action>,
}

impl Chance {
    /// Every kind of trouble that an honest driver gets into, on `rate` of all calls.
    pub fn honest(rng: Rng, rate: f64) -> Self {
        let fail = |code| Action::fail(code, "struck by chance");
        let done = |code| Action::DoneButFail { code, message: "struck by chance, but done".to_owned() };
        let down = Duration::from_secs(2);
        let menu = vec![
            fail(Code::Unavailable),
            fail(Code::Internal),
            fail(Code::DeadlineExceeded),
            fail(Code::ResourceExhausted),
            fail(Code::Aborted),
            fail(Code::Unknown),
            done(Code::DeadlineExceeded),
            done(Code::Internal),
            Action::Hang,
            Action::DoneButHang,
            Action::Delay(Duration::from_millis(700)),
            Action::Late(Duration::from_secs(20)),
            Action::Crash { down },
            Action::DoneButCrash { down },
            Action::AnswerThenCrash { down },
        ];
        Self { rng, rate, methods: BTreeSet::new(), menu }
    }

    fn tear_down(&self, method: Method) -> Option<Action> {
        let may = self.methods.is_empty() || self.methods.contains(&method);
        if !may || self.menu.is_empty() || self.rng.fraction() >= self.rate {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of a short list's length is a small positive number"
        )]
        let index = (self.rng.fraction() * self.menu.len() as f64) as usize;
        self.menu.get(index).cloned()
    }
}

/// The object of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct About<'a> {
    /// The volume by its ID, or by its name where it is to be made.
    pub(super) volume: Option<&'a str>,
    /// The node.
    pub(super) node: Option<&'a str>,
    /// The snapshot by its ID, or by its name where it is to be cut.
    pub(super) snapshot: Option<&'a str>,
}

impl About<'_> {
    fn is_meant_by(&self, fault: &Fault) -> bool {
        let fits = |wanted: &Option<String>, have: Option<&str>| wanted.is_none() || wanted.as_deref() == have;
        fits(&fault.volume, self.volume) && fits(&fault.node, self.node) && fits(&fault.snapshot, self.snapshot)
    }
}

/// The rules in force and how often each has matched.
#[derive(Debug, Default)]
pub(super) struct Script {
    rules: Vec<(Fault, u32)>,
    chance: Option<Chance>,
}

impl Script {
    pub(super) fn add(&mut self, fault: Fault) {
        self.rules.push((fault, 0));
    }

    pub(super) fn set_chance(&mut self, chance: Chance) {
        self.chance = Some(chance);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault that hits this call, if any.
    pub(super) fn tear_down(&mut self, method: Method, about: About<'_>) -> Option<Action> {
        for (fault, seen) in &mut self.rules {
            if fault.method.is_some_and(|m| m != method) || !about.is_meant_by(fault) {
                continue;
            }
            *seen = seen.saturating_add(1);
            if *seen > fault.skip && fault.times.is_none_or(|times| *seen - fault.skip <= times) {
                return Some(fault.action.clone());
            }
        }
        self.chance.as_ref()?.tear_down(method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISH: Method = Method::ControllerPublishVolume;

    #[test]
    fn a_rule_strikes_the_nth_match_and_no_other() {
        let mut script = Script::default();
        script.add(Fault::on(PUBLISH, Action::Hang).volume("v").nth(2));
        let calls = [("w", false), ("v", false), ("w", false), ("v", true), ("v", false)];
        for (volume, struck) in calls {
            let about = About { volume: Some(volume), node: Some("n"), snapshot: None };
            assert_eq!(script.tear_down(PUBLISH, about).is_some(), struck, "{volume}");
        }
        assert_eq!(script.tear_down(Method::Probe, About::default()), None);
    }

    #[test]
    fn a_rule_for_one_snapshot_spares_the_others() {
        let mut script = Script::default();
        script.add(Fault::on(Method::DeleteSnapshot, Action::Hang).snapshot("s"));
        for (snapshot, struck) in [(None, false), (Some("t"), false), (Some("s"), true)] {
            let about = About { snapshot, ..About::default() };
            assert_eq!(script.tear_down(Method::DeleteSnapshot, about).is_some(), struck, "{snapshot:?}");
        }
    }

    #[test]
    fn rules_strike_one_call_after_the_other() {
        let mut script = Script::default();
        script.add(Fault::on(PUBLISH, Action::Hang).once());
        script.add(Fault::anywhere(Action::fail(Code::Internal, "no")).times(2));
        assert_eq!(script.tear_down(PUBLISH, About::default()), Some(Action::Hang));
        for _ in 0..2 {
            assert_eq!(script.tear_down(PUBLISH, About::default()), Some(Action::fail(Code::Internal, "no")));
        }
        assert_eq!(script.tear_down(PUBLISH, About::default()), None);
    }

    #[test]
    fn one_seed_gives_one_series_of_chance_faults() {
        let series = |seed| {
            let mut script = Script::default();
            script.set_chance(Chance::honest(Rng::seeded(seed), 0.3));
            (0..200).map(|_| script.tear_down(PUBLISH, About::default())).collect::<Vec<_>>()
        };
        let struck = series(1).iter().flatten().count();
        assert!((30..90).contains(&struck), "{struck} of 200 at a rate of 0.3");
        assert_eq!(series(1), series(1));
        assert_ne!(series(1), series(2));
    }

    #[test]
    fn scripts_are_data() {
        let fault = Fault::on(PUBLISH, Action::fail(Code::Unavailable, "later")).volume("v").nth(3);
        let text = serde_yaml::to_string(&fault).unwrap();
        assert!(text.contains("code: Unavailable"), "{text}");
        assert_eq!(serde_yaml::from_str::<Fault>(&text).unwrap(), fault);
        let late: Fault = serde_json::from_str(r#"{"method":"Probe","action":{"late":"1m30s"}}"#).unwrap();
        assert_eq!(late, Fault::on(Method::Probe, Action::Late(Duration::from_secs(90))));
        assert!(serde_json::from_str::<Fault>(r#"{"action":{"fail":{"code":"Oops","message":""}}}"#).is_err());
    }
}
