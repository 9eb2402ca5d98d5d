//! Intentionally broken daemons and environments: the checks must detect each of them. A check that cannot fail proves
//! nothing, so each invariant has a mutant that breaks it.
//!
//! A daemon that forgets a write is one whom the API answers without doing it; one that writes too much, one whose patches the API
//! enriches; one that misreads, one whom the API shows something else; one that does not ask the driver, one whose driver says
//! that it need not; the rest is configured.

use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{self, Lie, Method};
use csi_control_plane::sandbox::testbed::TestBed;
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::{Value, json};

use crate::invariants::Invariant;
use crate::storage::ZONE;
use crate::trace::RESTLESS;
use crate::world::{DAEMONS, FINALIZER, MARKER, Scope};

/// One defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Two daemons go by one name, and each has a Lease of its own.
    Twins,
    /// Every attachment is taken for one that is protected.
    MisreadFinalizer,
    /// Attachments lose their finalizers with every write.
    LostFinalizer,
    /// Volumes lose their finalizers with every write.
    LostVolumeFinalizer,
    /// Attachments get a label without a reason.
    Labels,
    /// Attachments are marked as attached without a call to the driver.
    Unasked,
    /// The driver's codes are left out of the errors.
    NoCodes,
    /// Leader election is off.
    TwoLeaders,
    /// Failures are tried again at once.
    NoBackoff,
    /// A secret is written down where everybody can read it.
    Gossip,
    /// A program changes an object without end.
    Restless,
    /// The daemon believes attachments recorded that are not.
    ForgottenRecord,
    /// The Lease is believed to be handed back, and is not.
    KeptLease,
    /// Two daemons go by one name, each has a Lease of its own, and one of them names the volumes in its own way.
    TwinNames,
    /// The driver returns the id of a volume that does not exist.
    WrongVolume,
    /// Every volume object is taken for one whose claim is gone.
    MisreadPhase,
    /// Requests are not saved before the call to the driver.
    NoIntent,
    /// Entries are believed to be recorded, and are not.
    ForgottenEntry,
    /// Volume objects are believed to be stored, and are not.
    ForgottenVolume,
    /// A reader of the journal finds no entry.
    HiddenJournal,
    /// Two daemons go by one name, each has a Lease of its own, and both write one journal.
    TwoWriters,
    /// Entries are believed to be removed, and are not.
    ForgottenRemoval,
    /// People who bring back an old journal write it as if it had been made for its place.
    ForgedCopies,
    /// Volume objects are seen under another name, now and in the past.
    OtherNames,
    /// One daemon knows no topology and finds no entry in the journal, so its requests for the same claims differ.
    OtherPlaces,
    /// The write that ends the protection of a volume's source also adds it.
    Unprotected,
    /// Claims get a label without a reason.
    LabelledClaims,
    /// The driver reports places where the volume is not.
    WrongPlace,
    /// The objects of volumes that are deleted stay.
    Undeleted,
    /// No capacity is published for the scheduler.
    NoCapacity,
}

impl Mutant {
    /// All of them.
    pub(crate) const ALL: [Self; 30] = [
        Self::NoBackoff,
        Self::ForgottenRecord,
        Self::KeptLease,
        Self::Undeleted,
        Self::NoCapacity,
        Self::Twins,
        Self::MisreadFinalizer,
        Self::LostFinalizer,
        Self::LostVolumeFinalizer,
        Self::Labels,
        Self::Unasked,
        Self::NoCodes,
        Self::TwoLeaders,
        Self::Gossip,
        Self::Restless,
        Self::TwinNames,
        Self::WrongVolume,
        Self::MisreadPhase,
        Self::NoIntent,
        Self::ForgottenEntry,
        Self::ForgottenVolume,
        Self::HiddenJournal,
        Self::TwoWriters,
        Self::ForgottenRemoval,
        Self::ForgedCopies,
        Self::OtherNames,
        Self::OtherPlaces,
        Self::Unprotected,
        Self::LabelledClaims,
        Self::WrongPlace,
    ];

    /// The invariant that must be found broken.
    pub(crate) fn breaks(self) -> Invariant {
        match self {
            Self::Twins => Invariant::I1,
            Self::MisreadFinalizer => Invariant::I2,
            Self::LostFinalizer => Invariant::I3,
            Self::LostVolumeFinalizer => Invariant::I4,
            Self::Labels => Invariant::I5,
            Self::Unasked => Invariant::I6,
            Self::NoCodes => Invariant::I7,
            Self::TwoLeaders => Invariant::I8,
            Self::NoBackoff => Invariant::I9,
            Self::Gossip => Invariant::I10,
            Self::Restless => Invariant::I11,
            Self::ForgottenRecord => Invariant::End,
            Self::KeptLease => Invariant::R37,
            Self::TwinNames => Invariant::P1,
            Self::WrongVolume => Invariant::P2,
            Self::MisreadPhase => Invariant::P3,
            Self::OtherPlaces => Invariant::P5,
            Self::Unprotected => Invariant::P6,
            Self::LabelledClaims => Invariant::P7,
            Self::WrongPlace => Invariant::P8,
            Self::Undeleted => Invariant::P9,
            Self::NoCapacity => Invariant::P10,
            Self::NoIntent | Self::ForgottenEntry => Invariant::J1,
            Self::ForgottenVolume => Invariant::J2,
            Self::HiddenJournal => Invariant::J3,
            Self::TwoWriters => Invariant::J4,
            Self::ForgottenRemoval => Invariant::J8,
            Self::ForgedCopies => Invariant::J9,
            Self::OtherNames => Invariant::J10,
        }
    }

    /// Where it is looked for: the R is the attacher's, too.
    pub(crate) fn scope(self) -> Scope {
        if self.breaks() < Invariant::P1 { Scope::Attach } else { Scope::Claims }
    }

    /// The seed to begin with: one that is known to find it out.
    pub(crate) fn seed(self) -> u64 {
        match self {
            Self::OtherPlaces => 10,
            Self::HiddenJournal => 6,
            Self::Twins => 2,
            Self::NoBackoff | Self::NoCodes | Self::TwinNames | Self::Unprotected => 1,
            _ => 0,
        }
    }

    /// The name that a daemon goes by.
    pub(crate) fn host(self, daemon: usize) -> &'static str {
        if matches!(self, Self::Twins | Self::TwinNames | Self::TwoWriters) { DAEMONS[0] } else { DAEMONS[daemon] }
    }

    /// A daemon's configuration.
    pub(crate) fn of_config(self, sound: &str, daemon: usize) -> String {
        let provisioner = |sound: &str, lines: &str| sound.replace("provisioner:\n", &format!("provisioner:\n{lines}"));
        let election = |setting: &str| sound.replace("leaderElection: {", &format!("leaderElection: {{ {setting},"));
        let elsewhere = || election("namespace: default");
        match self {
            Self::NoIntent => provisioner(sound, "    durableIntent: false\n"),
            Self::OtherPlaces if daemon == 1 => provisioner(sound, "    topology: false\n"),
            Self::Twins | Self::TwoWriters if daemon == 1 => elsewhere(),
            Self::TwinNames if daemon == 1 => {
                provisioner(&elsewhere(), "    volumeNamePrefix: twin\n    durableIntent: false\n")
            }
            Self::TwoLeaders => election("enabled: false"),
            Self::NoCapacity => sound.replace("capacity: { enabled: true", "capacity: { enabled: false"),
            Self::NoBackoff => sound.replace("initial: 500ms, max: 20s", "initial: 50ms, max: 100ms"),
            Self::NoCodes => sound.replace("attacher: {", "attacher: { errorCodes: false,"),
            _ => sound.to_owned(),
        }
    }

    /// Makes it so, beyond the configuration: at first, and again when everything else has healed.
    pub(crate) fn infect(self, testbed: &TestBed) {
        let smear = |plural: &str, with: Value| tear_down(testbed, "patch", plural, "", &Action::Smear(with));
        let show = |plural: &str, with: Value| {
            for verb in ["get", "list", "watch", "patch"] {
                tear_down(testbed, verb, plural, "", &Action::Show(with.clone()));
            }
        };
        let lie = |lie: Lie| testbed.driver.inject(driver::Fault::on(Method::CreateVolume, driver::Action::Lie(lie)));
        match self {
            // The objects are there: an entry is always patched into one.
            Self::ForgottenEntry => tear_down(testbed, "patch", "configmaps", "", &Action::Pretend),
            Self::ForgottenRemoval => {
                for daemon in DAEMONS {
                    let on = Matching::any().user(daemon).verb("patch").resource("configmaps").body(":null");
                    testbed.api.faults().add(Fault::on(on, Action::Pretend));
                }
            }
            Self::OtherNames => {
                for verb in ["list", "watch"] {
                    let other = json!({ "metadata": { "name": "other" } });
                    tear_down(testbed, verb, "persistentvolumes", "", &Action::Show(other));
                }
            }
            Self::HiddenJournal => tear_down(testbed, "get", "configmaps", "", &Action::Show(json!({ "data": null }))),
            Self::OtherPlaces => {
                let on = Matching::any().user(DAEMONS[1]).verb("get").resource("configmaps");
                testbed.api.faults().add(Fault::on(on, Action::Show(json!({ "data": null }))));
            }
            Self::TwoWriters => {
                // Long enough for the other's to come.
                let delayed = Action::DelayAfter(Duration::from_millis(300));
                for verb in ["create", "patch"] {
                    tear_down(testbed, verb, "configmaps", "", &delayed);
                }
            }
            Self::ForgottenVolume => tear_down(testbed, "create", "persistentvolumes", "", &Action::Pretend),
            Self::ForgottenRecord => tear_down(testbed, "patch", "volumeattachments", "status", &Action::Pretend),
            Self::LostFinalizer => smear("volumeattachments", json!({ "metadata": { "finalizers": null } })),
            Self::LostVolumeFinalizer => smear("persistentvolumes", json!({ "metadata": { "finalizers": null } })),
            Self::Unprotected => {
                // All but the protection, which some of these writes add.
                let rest = json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] } });
                smear("persistentvolumeclaims", rest);
            }
            Self::Labels => smear("volumeattachments", json!({ "metadata": { "labels": { "ours": "yes" } } })),
            Self::LabelledClaims => {
                smear("persistentvolumeclaims", json!({ "metadata": { "labels": { "ours": "yes" } } }));
            }
            Self::Gossip => {
                // Under a key that is ours: that it is written is no fault, but what.
                let note = json!({ "metadata": { "annotations": { "csi-control-plane.io/note": MARKER } } });
                smear("volumeattachments", note);
            }
            Self::MisreadFinalizer => show("volumeattachments", json!({ "metadata": { "finalizers": [FINALIZER] } })),
            Self::MisreadPhase => show("persistentvolumes", json!({ "status": { "phase": "Released" } })),
            Self::Undeleted => {
                tear_down(testbed, "delete", "persistentvolumes", "", &Action::Refuse(Rejection::internal("never")));
            }
            Self::Unasked => testbed.driver.change_profile(|profile| {
                profile.controller.remove(&(Rpc::PublishUnpublishVolume as i32));
            }),
            Self::WrongVolume => lie(Lie::VolumeId("volume-of-nobody".to_owned())),
            Self::WrongPlace => {
                // One of them is the requested segment: otherwise the volume would be useless.
                let zones = ["z0", "z1", "z2", "z9"];
                lie(Lie::Topologies(zones.map(|zone| [(ZONE.to_owned(), zone.to_owned())].into()).to_vec()));
            }
            Self::Restless => {
                let node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                    "metadata": { "name": "restless" }, "spec": { "drivers": [] } });
                let _ = testbed.api.create_value(node);
                for turn in 0..RESTLESS {
                    let body = PatchBody::Merge(json!({ "metadata": { "labels": { "turn": turn.to_string() } } }));
                    let _ = testbed.api.patch::<CSINode>("", "restless", body);
                }
            }
            _ => {}
        }
    }

    /// Makes it so that only the end is broken.
    pub(crate) fn infect_stop(self, testbed: &TestBed) {
        if self == Self::KeptLease {
            tear_down(testbed, "update", "leases", "", &Action::Pretend);
        }
    }
}

/// Applies a fault to each such request of the daemons.
fn tear_down(testbed: &TestBed, verb: &str, plural: &str, subresource: &str, action: &Action) {
    for daemon in DAEMONS {
        let on = Matching::any().user(daemon).verb(verb).resource(plural).subresource(subresource);
        testbed.api.faults().add(Fault::on(on, action.clone()));
    }
}
