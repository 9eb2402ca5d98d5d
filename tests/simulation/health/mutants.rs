//! Daemons with a defect, one for each invariant: the checks must find each of them.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::driver::{self, Method};
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::{Value, json};

use super::invariants::Rule;
use super::objects::{CLAIMS, VOLUMES};
use super::play::{Setting, Speaks};
use crate::world::{DAEMONS, DRIVER};

/// One defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// What is wrong is taken back without an answer of the driver.
    Forgiving,
    /// Two daemons go by one name, and each has a Lease of its own.
    Twins,
    /// The volumes of other drivers are taken for ours.
    Greedy,
    /// What a claim says is not seen.
    Forgetful,
    /// Leader election is off.
    TwoLeaders,
    /// More is written than the driver has said.
    Embellishing,
    /// Claims get a label without a reason.
    Labels,
    /// What is wrong is believed to be written, and is not.
    Silent,
}

impl Mutant {
    /// All of them.
    pub(super) const ALL: [Self; 8] = [
        Self::Forgiving,
        Self::Twins,
        Self::Greedy,
        Self::Forgetful,
        Self::TwoLeaders,
        Self::Embellishing,
        Self::Labels,
        Self::Silent,
    ];

    /// The invariant that must be found broken.
    pub(super) fn breaks(self) -> Rule {
        match self {
            Self::Forgiving => Rule::I1,
            Self::Twins => Rule::I2,
            Self::Greedy => Rule::I3,
            Self::Forgetful => Rule::I4,
            Self::TwoLeaders => Rule::I5,
            Self::Embellishing => Rule::I6,
            Self::Labels => Rule::Own,
            Self::Silent => Rule::End,
        }
    }

    /// Where it is looked for: a plain seed, in which each defect can show.
    pub(super) fn setting(self) -> Setting {
        Setting {
            is_rough: false,
            has_standby: true,
            speaks: if self == Self::Twins { Speaks::Health } else { Speaks::List },
            report: "status",
            is_kept: true,
            reconciles: false,
            page_limit: 0,
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
            Self::TwoLeaders => election("enabled: false"),
            _ => sound.to_owned(),
        }
    }

    /// Makes it so, beyond the configuration.
    pub(super) fn infect(self, testbed: &TestBed) {
        let of_patches = |action: Action| tear_down(testbed, "patch", CLAIMS, &action);
        let show = |plural: &str, with: Value| {
            for verb in ["get", "list", "watch"] {
                tear_down(testbed, verb, plural, &Action::Show(with.clone()));
            }
        };
        match self {
            Self::Forgiving => of_patches(Action::Smear(json!({ "status": { "healthStatus": null } }))),
            Self::Twins => {
                let delay = driver::Action::Delay(Duration::from_millis(800));
                testbed.driver.inject(driver::Fault::on(Method::ControllerGetVolumeHealth, delay));
            }
            Self::Greedy => show(VOLUMES, json!({ "spec": { "csi": { "driver": DRIVER } } })),
            Self::Forgetful => show(CLAIMS, json!({ "status": { "healthStatus": null } })),
            Self::Embellishing => {
                let made_up = json!([{ "status": "DataLoss", "reason": "MadeUp", "message": "all of it" }]);
                let time = "2026-01-01T00:00:00Z";
                let health = json!({ "healthConditions": made_up, "lastTransitionTime": time });
                of_patches(Action::Smear(json!({ "status": { "healthStatus": health } })));
            }
            Self::Labels => of_patches(Action::Smear(json!({ "metadata": { "labels": { "ours": "yes" } } }))),
            Self::Silent => of_patches(Action::Pretend),
            Self::TwoLeaders => {}
        }
    }
}

/// Applies a fault to each such request of the daemons.
fn tear_down(testbed: &TestBed, verb: &str, plural: &str, action: &Action) {
    for daemon in DAEMONS {
        let on = Matching::any().user(daemon).verb(verb).resource(plural);
        testbed.api.faults().add(Fault::on(on, action.clone()));
    }
}
