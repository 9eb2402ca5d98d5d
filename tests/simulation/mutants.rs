//! Daemons that are broken on purpose: the checks must find each of them out. A check that nothing can fail proves nothing.
//!
//! A daemon that forgets a write is one whom the API answers without doing it; the rest is configured.

use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::stage::Stage;

use crate::model::Model;
use crate::world::Scope;

/// One way to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Nothing is written down before the driver is asked.
    NoIntent,
    /// The same, and only what comes of it counts: volumes that nothing tells of.
    NoIntentInTheEnd,
    /// The mark on a claim is now and then believed to be written.
    ForgottenMark,
    /// A volume object is now and then believed to be stored.
    ForgottenVolume,
    /// The protection of what a claim is made from is believed to be written.
    ForgottenProtection,
    /// One daemon names the volumes in another way.
    OtherName,
    /// One daemon knows no places: what it resumes it asks for in another way.
    OtherPlaces,
    /// Nobody looks who leads.
    TwoLeaders,
    /// The scheduler is not told of any room.
    NoCapacity,
    /// The attacher's finalizer on attachments is believed to be written.
    ForgottenFinalizer,
    /// The end of an attachment's record is believed to be written.
    ForgottenStatus,
    /// Failures are tried again at once.
    NoBackoff,
}

impl Mutant {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::NoIntent,
        Self::NoIntentInTheEnd,
        Self::ForgottenMark,
        Self::ForgottenVolume,
        Self::ForgottenProtection,
        Self::OtherName,
        Self::OtherPlaces,
        Self::TwoLeaders,
        Self::NoCapacity,
        Self::ForgottenFinalizer,
        Self::ForgottenStatus,
        Self::NoBackoff,
    ];

    /// Where it is looked for.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::TwoLeaders | Self::ForgottenFinalizer | Self::ForgottenStatus | Self::NoBackoff => Scope::Attach,
            _ => Scope::Claims,
        }
    }

    /// The invariants of which one must be found broken.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::NoIntent | Self::ForgottenMark => &["P4"],
            Self::NoIntentInTheEnd => &["I11-I13"],
            Self::ForgottenVolume => &["P4", "I11-I13"],
            Self::ForgottenProtection => &["P6"],
            Self::OtherName => &["P1", "P2"],
            Self::OtherPlaces => &["P5", "P2"],
            Self::TwoLeaders => &["I8", "I1"],
            Self::NoCapacity | Self::ForgottenStatus => &["I11-I13"],
            Self::ForgottenFinalizer => &["I2"],
            Self::NoBackoff => &["I9"],
        }
    }

    /// A daemon's configuration.
    pub(crate) fn of_config(self, sound: &str, daemon: usize) -> String {
        let provisioner = |line: &str| sound.replace("provisioner:\n", &format!("provisioner:\n    {line}\n"));
        match self {
            Self::NoIntent | Self::NoIntentInTheEnd => provisioner("durableIntent: false"),
            Self::OtherName if daemon == 1 => provisioner("volumeNamePrefix: other"),
            Self::OtherPlaces if daemon == 1 => provisioner("topology: false"),
            Self::TwoLeaders => sound.replace("leaderElection: {", "leaderElection: { enabled: false,"),
            Self::NoCapacity => sound.replace("capacity: { enabled: true", "capacity: { enabled: false"),
            Self::NoBackoff => sound.replace("initial: 500ms, max: 20s", "initial: 50ms, max: 100ms"),
            _ => sound.to_owned(),
        }
    }

    /// Makes it so, beyond the configuration.
    pub(crate) fn infect(self, stage: &Stage, model: &mut Model) {
        let on = Matching::any();
        let forgotten = match self {
            Self::ForgottenMark | Self::ForgottenProtection => on.verb("patch").resource("persistentvolumeclaims"),
            Self::ForgottenVolume => on.verb("create").resource("persistentvolumes"),
            Self::ForgottenFinalizer => on.verb("patch").resource("volumeattachments").subresource(""),
            Self::ForgottenStatus => on.verb("patch").resource("volumeattachments").subresource("status"),
            Self::NoIntentInTheEnd => {
                model.supply.lenient = true;
                return;
            }
            _ => return,
        };
        // Each is to be found out before it makes so much of a mess that anything would be noticed.
        let fault = Fault::on(forgotten, Action::Pretend);
        stage.api.faults().add(fault);
    }
}
