//! What happens: volumes become unhealthy and heal, claims are made anew, driver and API fail, leaders come and go.

use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use csi_control_plane::sandbox::testbed::DRIVER_HOST;
use rand::RngExt as _;
use serde_json::json;
use tonic::Code;

use super::objects::{CLAIMS, HANDLES, ILLNESSES, VOLUMES, claim_name, kind, names};
use super::play::{Play, Speaks};
use crate::stage::Undo;
use crate::world::DAEMONS;

/// What late watches are of.
const WATCHED: [&str; 3] = [CLAIMS, CLAIMS, VOLUMES];

/// The end of a fault of this play alone.
#[derive(Debug, Clone)]
pub(super) enum Own {
    /// A claim is made anew under its name.
    Claim(String),
    /// Its volume names it.
    Bind(String),
}

impl Play {
    pub(super) async fn undo_what_is_due(&mut self) {
        for undo in self.stage.due() {
            match undo {
                Undo::Heal { daemon, peer } => {
                    self.stage.heal(daemon, peer);
                    if peer == DRIVER_HOST {
                        self.cut_for(Duration::ZERO);
                    }
                }
                Undo::Release(fault) => self.stage.release(fault),
                Undo::Start => self.start_all().await,
                Undo::Own(Own::Claim(name)) => {
                    self.let_go(&name);
                    self.create_claim(&name);
                }
                Undo::Own(Own::Bind(name)) => self.bind(&name),
            }
        }
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 40 } else { 28 };
        match self.stage.rng.random_range(0..kinds) {
            0..9 => {
                let handle = HANDLES[self.stage.rng.random_range(0..HANDLES.len())];
                let is_ill = self.stage.rng.random_bool(0.6);
                let ill = is_ill.then(|| self.stage.rng.random_range(0..ILLNESSES.len()));
                self.ail(handle, ill);
            }
            9..14 => self.fail_driver(),
            14..18 => self.fail_api(),
            18..20 => self.meddle(),
            20..22 => self.make_anew(),
            22..24 => {
                self.cut_for(Duration::ZERO);
                self.stage.kill();
            }
            24 => {
                let daemon = self.stage.daemon();
                self.cut_for(Duration::ZERO);
                self.stage.terminate(daemon);
            }
            25 => self.start_all().await,
            26..28 => {}
            _ => self.disturb().await,
        }
    }

    /// The driver fails, or answers with nonsense. It never lies about how a volume is.
    fn fail_driver(&mut self) {
        let methods = self.setting.speaks.methods();
        let method = methods[self.stage.rng.random_range(0..methods.len())];
        let down = self.stage.seconds(0.0, 3.0);
        // All but UNIMPLEMENTED, which counts until the term ends.
        let code = [1, 2, 4, 5, 8, 9, 10, 13, 14, 16][self.stage.rng.random_range(0..10)];
        let fail = Action::Fail { code: Code::from_i32(code), message: "scripted".to_owned() };
        let action = match self.stage.rng.random_range(0..12) {
            0..4 => fail,
            4 => Action::DoneButFail { code: Code::Unavailable, message: "scripted".to_owned() },
            5 => Action::Hang,
            6 => Action::Late(self.stage.seconds(0.1, 9.0)),
            7 => Action::Delay(self.stage.seconds(0.1, 4.0)),
            8 => Action::DoneButCrash { down },
            9 => Action::AnswerThenCrash { down },
            _ => Action::Lie(self.lie(method)),
        };
        let fault = Fault::on(method, action).times(self.stage.rng.random_range(1..=5));
        self.stage.testbed.driver.inject(fault);
    }

    fn lie(&mut self, method: Method) -> Lie {
        let omitted = HANDLES.into_iter().filter(|_| self.stage.rng.random_bool(0.5)).map(str::to_owned).collect();
        match (method, self.stage.rng.random_range(0..4)) {
            (Method::ControllerGetVolumeHealth, 0 | 1) => Lie::NoVolume,
            (Method::ControllerGetVolumeHealth, _) => Lie::HealthOf("other".to_owned()),
            (Method::ControllerGetVolume, _) | (Method::ListVolumes, 0) => Lie::EntryWithoutStatus,
            (_, 1) => Lie::TokenLoop,
            (_, 2) => Lie::DuplicateEntries,
            _ => Lie::OmitVolumes(omitted),
        }
    }

    fn fail_api(&mut self) {
        let action = self.stage.api_action(Rejection::conflict(kind(CLAIMS), "scripted"));
        let daemon = self.stage.daemon();
        let (verb, plural) = [("patch", CLAIMS), ("patch", CLAIMS), ("get", CLAIMS), ("list", "events")]
            [self.stage.rng.random_range(0..4)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(plural);
        let fault = ApiFault::on(on, action).times(self.stage.rng.random_range(1..=3));
        self.stage.testbed.api.faults().add(fault);
    }

    fn name(&mut self) -> String {
        let all: Vec<String> = names().collect();
        all[self.stage.rng.random_range(0..all.len())].clone()
    }

    /// Others write to a claim: what it says of its volume, or something else.
    fn meddle(&mut self) {
        let name = claim_name(&self.name());
        let mark = self.stage.rng.random_range(0..3).to_string();
        let time = "2026-01-01T00:00:00Z";
        match self.stage.rng.random_range(0..3) {
            0 => {
                let conditions = json!([{ "status": "DataLoss", "reason": "Theirs", "message": mark }]);
                let theirs = json!({ "healthConditions": conditions, "lastTransitionTime": time });
                self.change_status(CLAIMS, &name, &json!({ "healthStatus": theirs }));
            }
            1 => self.change_status(CLAIMS, &name, &json!({ "healthStatus": null })),
            _ => {
                let body = PatchBody::Merge(json!({ "metadata": { "labels": { "example.com/l": mark } } }));
                let _ = self.stage.testbed.api.patch_object(kind(CLAIMS), "default", &name, body, false);
            }
        }
    }

    /// A claim is deleted, at once or when another program lets it go, and made anew; its volume names the new one later.
    fn make_anew(&mut self) {
        let name = self.name();
        if self.stage.rng.random_bool(0.4) {
            let body = PatchBody::Merge(json!({ "metadata": { "finalizers": ["example.com/f"] } }));
            let _ = self.stage.testbed.api.patch_object(kind(CLAIMS), "default", &claim_name(&name), body, false);
        }
        let _ = self.stage.testbed.api.delete_object(kind(CLAIMS), "default", &claim_name(&name));
        let again = self.stage.seconds(0.0, 10.0);
        let now = tokio::time::Instant::now();
        let bound = again + self.stage.seconds(0.0, 10.0);
        self.stage.agenda.push((now + again, Undo::Own(Own::Claim(name.clone()))));
        self.stage.agenda.push((now + bound, Undo::Own(Own::Bind(name))));
    }

    /// The other program lets a claim go that is being deleted.
    pub(super) fn let_go(&self, name: &str) {
        let body = PatchBody::Merge(json!({ "metadata": { "finalizers": null } }));
        let _ = self.stage.testbed.api.patch_object(kind(CLAIMS), "default", &claim_name(name), body, false);
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.stage.daemon();
        match self.stage.rng.random_range(0..12) {
            0..3 => {
                if self.stage.cut(daemon) == DRIVER_HOST {
                    self.cut_for(Duration::from_secs(20));
                }
            }
            3 => self.stage.slow_down(daemon),
            4..7 => self.stage.late_watches(daemon, &WATCHED),
            7 => {
                let down = self.stage.seconds(0.0, 5.0);
                self.stage.testbed.server.restart(down).await;
                self.cut_for(down);
            }
            8 => self.stage.testbed.connections.cut_all(),
            9 | 10 => self.replace_driver().await,
            _ => self.stage.testbed.api.compact(),
        }
    }

    /// The driver is replaced by another version: of another generation, perhaps.
    async fn replace_driver(&mut self) {
        let speaks = Speaks::ALL[self.stage.rng.random_range(0..Speaks::ALL.len())];
        let profile = speaks.profile(self.setting.page_limit);
        self.stage.testbed.driver.change_profile(|it| *it = profile);
        self.setting.speaks = speaks;
        self.checks().has_kinds = speaks.has_kinds();
        self.cut_for(Duration::from_secs(2));
        self.stage.testbed.server.restart(Duration::from_secs(1)).await;
    }
}
