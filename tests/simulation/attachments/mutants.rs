//! Daemons with a defect, at least one for each invariant: the checks must find each of them.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::{Value, json};

use super::invariants::Rule;
use super::objects::{ATTACHMENTS, NODES, PODS, VOLUMES};
use super::play::Setting;
use crate::world::DAEMONS;

/// One defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The second daemon leaves the status of nodes as the first has written it.
    Silent,
    /// What kubelets use is not seen.
    Blind,
    /// It does not wait for as long as it should.
    Hasty,
    /// Exclusive volumes are taken for shared ones.
    Sharing,
    /// The second daemon takes all pods for ended, and what they use for free.
    Ruthless,
    /// More is reported than is attached.
    Boasting,
    /// Volumes are taken for others.
    Misreading,
    /// Two daemons go by one name, and each has a Lease of its own.
    Twins,
    /// Attachments that are deleted do not wait for the attacher.
    Freeing,
    /// Leader election is off.
    TwoLeaders,
    /// It works beside the other controller.
    Unguarded,
    /// Attachments are believed to be made, and are not.
    Idle,
    /// Attachments are believed to be deleted, and are not.
    Keeping,
    /// Nodes get a label without a reason.
    Labels,
}

impl Mutant {
    /// All of them.
    pub(super) const ALL: [Self; 14] = [
        Self::Silent,
        Self::Blind,
        Self::Hasty,
        Self::Sharing,
        Self::Ruthless,
        Self::Boasting,
        Self::Misreading,
        Self::Twins,
        Self::Freeing,
        Self::TwoLeaders,
        Self::Unguarded,
        Self::Idle,
        Self::Keeping,
        Self::Labels,
    ];

    /// The invariants that must be found broken.
    pub(super) fn breaks(self) -> &'static [Rule] {
        match self {
            Self::Silent => &[Rule::I1],
            Self::Blind => &[Rule::I2, Rule::Mounted],
            Self::Hasty => &[Rule::I3],
            Self::Sharing => &[Rule::I4, Rule::Alone],
            Self::Ruthless => &[Rule::I5],
            Self::Boasting => &[Rule::I6],
            Self::Misreading => &[Rule::I7],
            Self::Twins => &[Rule::I8],
            Self::Freeing => &[Rule::I9],
            Self::TwoLeaders | Self::Unguarded => &[Rule::I11],
            Self::Idle => &[Rule::I12],
            Self::Keeping => &[Rule::End],
            Self::Labels => &[Rule::Own],
        }
    }

    /// Where it is looked for: a plain seed, in which each defect can show.
    pub(super) fn setting(self) -> Setting {
        Setting {
            is_rough: false,
            has_standby: true,
            is_steady: self == Self::Hasty,
            attaches: false,
            forces: true,
            is_strict: true,
            // The daemon that is hasty waits for a minute.
            wait: if self == Self::Hasty { 150 } else { 60 },
            settle: 0,
            has_other: self == Self::Unguarded,
            pace: 300,
        }
    }

    /// The name that a daemon goes by.
    pub(super) fn host(self, daemon: usize) -> &'static str {
        if self == Self::Twins { DAEMONS[0] } else { DAEMONS[daemon] }
    }

    /// A daemon's configuration.
    pub(super) fn of_config(self, sound: &str, daemon: usize) -> String {
        let election = |setting: &str| sound.replace("leaderElection: {", &format!("leaderElection: {{ {setting},"));
        match self {
            Self::Twins if daemon == 1 => election("namespace: default"),
            Self::Silent if daemon == 1 => sound.replace("attachDetach: {", "attachDetach: { writeNodeStatus: false,"),
            Self::TwoLeaders => election("enabled: false"),
            Self::Hasty => sound.replace("maxWaitForUnmount: 150s", "maxWaitForUnmount: 60s"),
            Self::Unguarded => sound.replace("attachDetach: {", "attachDetach: { exclusiveCheck: off,"),
            _ => sound.to_owned(),
        }
    }

    /// Makes it so, beyond the configuration.
    pub(super) fn infect(self, testbed: &TestBed) {
        let on = |daemons: &[&str], verb: &str, plural: &str, action: Action| {
            for daemon in daemons {
                let on = Matching::any().user(*daemon).verb(verb).resource(plural);
                testbed.api.faults().add(Fault::on(on, action.clone()));
            }
        };
        let show = |daemons: &[&str], plural: &str, with: Value| {
            // What a write answers is shown, too.
            for verb in ["get", "list", "watch", "patch"] {
                on(daemons, verb, plural, Action::Show(with.clone()));
            }
        };
        let unused = json!({ "status": { "volumesInUse": null } });
        match self {
            Self::Blind => show(&DAEMONS, NODES, unused),
            Self::Sharing => show(&DAEMONS, VOLUMES, json!({ "spec": { "accessModes": ["ReadWriteMany"] } })),
            Self::Ruthless => {
                show(&DAEMONS[1..], PODS, json!({ "status": { "phase": "Succeeded" } }));
                show(&DAEMONS[1..], NODES, unused);
            }
            Self::Boasting => {
                let made_up = json!([{ "name": "kubernetes.io/csi/demo.csi.example.com^made-up", "devicePath": "" }]);
                on(&DAEMONS, "patch", NODES, Action::Smear(json!({ "status": { "volumesAttached": made_up } })));
            }
            Self::Misreading => {
                show(&DAEMONS, VOLUMES, json!({ "spec": { "csi": { "volumeHandle": "another" } } }));
            }
            Self::Twins => {
                for (verb, plural) in [("patch", NODES), ("create", ATTACHMENTS), ("delete", ATTACHMENTS)] {
                    on(&DAEMONS, verb, plural, Action::DelayAfter(Duration::from_millis(800)));
                }
            }
            Self::Freeing => {
                let free = json!({ "metadata": { "finalizers": null } });
                on(&DAEMONS, "delete", ATTACHMENTS, Action::Smear(free));
            }
            Self::Idle => on(&DAEMONS, "create", ATTACHMENTS, Action::Pretend),
            Self::Keeping => on(&DAEMONS, "delete", ATTACHMENTS, Action::Pretend),
            Self::Labels => {
                on(&DAEMONS, "patch", NODES, Action::Smear(json!({ "metadata": { "labels": { "ours": "yes" } } })));
            }
            Self::Silent | Self::Hasty | Self::TwoLeaders | Self::Unguarded => {}
        }
    }
}
