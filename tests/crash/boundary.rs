//! The times at which a daemon can be killed: around every exchange with the API or the driver.
//!
//! ```text
//!   daemon ──── request ────> other side ──── answer ────> daemon
//!           before    ▲                ▲   done     ▲   after
//!                    at            answered      + LATENCY
//! ```
//!
//! The links are slow, so that each moment is an instant of simulated time at which nothing else happens. A daemon's
//! memory is lost when it is killed, so two times between the same events of the other sides are one case.
//!
//! A write to the journal is an exchange like any other: it may carry the entries of several claims, and calls for
//! other claims may run at the same time. The moments around it belong to all of them. A new leader's reads come at one
//! instant, and share their moments.

use std::collections::BTreeSet;
use std::time::Duration;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method};

/// How long a message is under way.
pub(crate) const LATENCY: Duration = Duration::from_millis(10);
/// Off the instant of an event, to either side.
const ASIDE: Duration = Duration::from_millis(3);

/// One exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// `CreateVolume`, or `patch configmaps`.
    pub(crate) what: String,
    /// When the request came.
    pub(crate) at: Duration,
    /// When the answer left, or the caller gave up.
    pub(crate) answered: Duration,
}

/// A moment at which a daemon dies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// When.
    pub(crate) at: Duration,
    /// Its name in reports: `CreateVolume/done`.
    pub(crate) label: String,
}

impl Boundary {
    /// A request to the API. What holds a lease or listens is no step of any work.
    pub(crate) fn of_request(entry: &Entry, at: Duration) -> Option<Self> {
        if entry.verb == "watch" || entry.resource == "leases" {
            return None;
        }
        Some(Self { what: format!("{} {}", entry.verb, entry.resource), at, answered: at })
    }

    /// A call of the driver. The handshake is no step of any work; a look at the room that is left is one.
    pub(crate) fn of_call(call: &Call) -> Option<Self> {
        let is_work = matches!(
            call.method,
            Method::CreateVolume
                | Method::DeleteVolume
                | Method::ControllerPublishVolume
                | Method::ControllerUnpublishVolume
                | Method::GetCapacity
                | Method::CreateSnapshot
                | Method::DeleteSnapshot
                | Method::ListSnapshots
                | Method::GetSnapshot
                | Method::CreateVolumeGroupSnapshot
                | Method::DeleteVolumeGroupSnapshot
                | Method::GetVolumeGroupSnapshot
        );
        let answered = call.ended.unwrap_or(call.started);
        is_work.then(|| Self { what: call.method.to_string(), at: call.started, answered })
    }

    /// Whether the exchange changes something, or asks for what the next change depends on: not the first look at everything.
    pub(crate) fn is_step(&self) -> bool {
        !self.what.starts_with("list ") && !self.what.ends_with(" events")
    }

    /// The moments around it.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let moment = |at: Duration, word: &str| Moment { at, label: format!("{}/{word}", self.what) };
        let mut moments = vec![moment(self.at.saturating_sub(ASIDE), "before")];
        if self.answered > self.at + ASIDE {
            moments.push(moment(self.at + ASIDE, "during"));
        }
        moments.push(moment(self.answered + ASIDE, "done"));
        moments.push(moment(self.answered + LATENCY + ASIDE, "after"));
        moments
    }
}

/// All moments, in their order; each instant once.
pub(crate) fn moments(boundaries: &[Boundary]) -> Vec<Moment> {
    let mut seen = BTreeSet::new();
    let mut all: Vec<Moment> = boundaries.iter().flat_map(Boundary::moments).collect();
    all.sort();
    all.retain(|moment| seen.insert(moment.at));
    all
}

/// The moments that are cases of their own: of those between the same exchanges, the last.
pub(crate) fn distinct(boundaries: &[Boundary]) -> Vec<Moment> {
    let events: BTreeSet<Duration> = boundaries.iter().flat_map(|it| [it.at, it.answered]).collect();
    let all = moments(boundaries);
    let is_last = |(moment, next): &(&Moment, Option<&Moment>)| {
        next.is_none_or(|next| events.range(moment.at..next.at).next().is_some())
    };
    let nexts = all.iter().skip(1).map(Some).chain([None]);
    all.iter().zip(nexts).filter(is_last).map(|(moment, _)| moment.clone()).collect()
}

#[test]
fn what_happens_between_the_same_exchanges_is_one_case() {
    let at = |what: &str, millis, answered| Boundary {
        what: what.to_owned(),
        at: Duration::from_millis(millis),
        answered: Duration::from_millis(answered),
    };
    let boundaries = [at("patch", 100, 100), at("CreateVolume", 120, 300), at("create", 320, 320)];
    let labels = |moments: Vec<Moment>| moments.into_iter().map(|it| it.label).collect::<Vec<_>>();
    assert_eq!(
        labels(moments(&boundaries)),
        [
            "patch/before",
            "patch/done",
            "patch/after",
            "CreateVolume/before",
            "CreateVolume/during",
            "CreateVolume/done",
            "CreateVolume/after",
            "create/before",
            "create/done",
            "create/after"
        ]
    );
    assert_eq!(
        labels(distinct(&boundaries)),
        ["patch/before", "CreateVolume/before", "CreateVolume/during", "create/before", "create/after"]
    );
}
