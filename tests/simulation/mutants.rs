//! Daemons that are broken on purpose: the checks must find each of them out. A check that nothing can fail proves nothing.
//!
//! A daemon that forgets a write is one whom the API answers without doing it; one that writes too much, one whose patches the API
//! enriches; one that does not ask the driver, one whose driver says that it need not; the rest is configured.

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::stage::Stage;
use serde_json::{Value, json};

use crate::world::{DAEMONS, MARKER, Scope};

/// One way to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Nothing is written down before the driver is asked.
    NoIntent,
    /// Volume objects are believed to be stored, and are not.
    ForgottenVolume,
    /// One daemon names the volumes in another way, and so short that the other does not believe what was written down.
    OtherName,
    /// One daemon knows no places: what it resumes it asks for in another way.
    OtherPlaces,
    /// Nobody looks who leads.
    TwoLeaders,
    /// The scheduler is not told of any room.
    NoCapacity,
    /// Failures are tried again at once.
    NoBackoff,
    /// Attachments get a label that nobody asked for.
    Labels,
    /// What is to be attached is said to be attached, and the driver is not asked.
    Unasked,
    /// The driver's codes are left out of the errors.
    NoCodes,
    /// A secret is written down where everybody can read it.
    Gossip,
    /// Claims get a label that nobody asked for.
    LabelledClaims,
}

impl Mutant {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::NoBackoff,
        Self::NoCapacity,
        Self::NoIntent,
        Self::ForgottenVolume,
        Self::OtherName,
        Self::OtherPlaces,
        Self::TwoLeaders,
        Self::Labels,
        Self::Unasked,
        Self::NoCodes,
        Self::Gossip,
        Self::LabelledClaims,
    ];

    /// Where it is looked for.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::TwoLeaders | Self::NoBackoff | Self::Labels | Self::Unasked | Self::NoCodes | Self::Gossip => {
                Scope::Attach
            }
            _ => Scope::Claims,
        }
    }

    /// The seed to begin with: one that is known to find it out.
    pub(crate) fn seed(self) -> u64 {
        match self {
            Self::OtherName => 2,
            Self::OtherPlaces | Self::NoBackoff => 1,
            _ => 0,
        }
    }

    /// The invariants of which one must be found broken.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::NoIntent => &["P4"],
            Self::ForgottenVolume => &["P4", "I11-I13"],
            Self::OtherName => &["P1", "P2", "P4"],
            Self::OtherPlaces => &["P5", "P2"],
            Self::TwoLeaders => &["I8", "I1"],
            Self::NoCapacity => &["I11-I13"],
            Self::NoBackoff => &["I9"],
            Self::Labels => &["I5"],
            Self::Unasked => &["I6"],
            Self::NoCodes => &["I7"],
            Self::Gossip => &["I10"],
            Self::LabelledClaims => &["P7"],
        }
    }

    /// A daemon's configuration.
    pub(crate) fn of_config(self, sound: &str, daemon: usize) -> String {
        let provisioner = |line: &str| sound.replace("provisioner:\n", &format!("provisioner:\n    {line}\n"));
        match self {
            Self::NoIntent => provisioner("durableIntent: false"),
            Self::OtherName if daemon == 1 => provisioner("volumeNameUuidLength: 7"),
            Self::OtherPlaces if daemon == 1 => provisioner("topology: false"),
            Self::TwoLeaders => sound.replace("leaderElection: {", "leaderElection: { enabled: false,"),
            Self::NoCapacity => sound.replace("capacity: { enabled: true", "capacity: { enabled: false"),
            Self::NoBackoff => sound.replace("initial: 500ms, max: 20s", "initial: 50ms, max: 100ms"),
            Self::NoCodes => sound.replace("attacher: {", "attacher: { errorCodes: false,"),
            _ => sound.to_owned(),
        }
    }

    /// Makes it so, beyond the configuration.
    pub(crate) fn infect(self, stage: &Stage) {
        let strike = |verb: &str, plural: &str, action: Action| {
            for daemon in DAEMONS {
                let on = Matching::any().user(daemon).verb(verb).resource(plural).subresource("");
                stage.api.faults().add(Fault::on(on, action.clone()));
            }
        };
        let smear = |plural: &str, with: Value| strike("patch", plural, Action::Smear(with));
        match self {
            Self::ForgottenVolume => strike("create", "persistentvolumes", Action::Pretend),
            Self::Labels => smear("volumeattachments", json!({ "metadata": { "labels": { "ours": "yes" } } })),
            Self::LabelledClaims => {
                smear("persistentvolumeclaims", json!({ "metadata": { "labels": { "ours": "yes" } } }));
            }
            Self::Gossip => {
                // Under a key that is ours: that it is written is no fault, but what.
                let note = json!({ "metadata": { "annotations": { "csi-control-plane.io/note": MARKER } } });
                smear("volumeattachments", note);
            }
            Self::Unasked => stage.driver.change_profile(|profile| {
                profile.controller.remove(&(Rpc::PublishUnpublishVolume as i32));
            }),
            _ => {}
        }
    }
}
