//! The role: observes file, driver and kubelet, and does what `decide` says.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::config::{OnShutdown, RegistrarSection};
use super::csi_node::watch_csi_node;
use super::decide::{
    Announced, Dialogue, DriverSeen, Missing, Outdated, Place, Reason, State, Step, View, next_step, state,
};
use super::driver::watch_driver;
use super::server::{Heard, Said, Server};
use super::shown::Shown;
use super::socket::{self, FileId};
use super::{health, metrics, names, self_check};
use crate::config::RoleSection;
use crate::process::{check_socket_path, error_chain, watch};
use crate::proto::pluginregistration::PluginInfo;
use crate::roles::{LocalContext, LocalRole, RoleError};

/// How often the file is looked at; the kubelet looks as often.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two self-checks.
const SELF_CHECK: Duration = Duration::from_secs(10);

/// The role.
#[derive(Debug)]
pub(super) struct Registrar {
    /// The section in effect. It changes while the role is served, because an end would withdraw the driver.
    section: watch::Sender<RegistrarSection>,
}

impl Registrar {
    pub(super) fn new(section: RegistrarSection) -> Self {
        Self { section: watch::Sender::new(section) }
    }
}

impl LocalRole for Registrar {
    fn serve<'a>(&'a self, cx: &'a LocalContext, stop: CancellationToken) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let shown = Shown::default();
            let _shown = shown.register(cx);
            let (seen, driver) = watch::channel(DriverSeen { name: None, silence: None, since: cx.clock.now() });
            let probes = || !self.section.borrow().withdraw_after.is_zero();
            let (found, missing) = watch::channel(None);
            let seen_driver = driver.clone();
            tokio::select! {
                biased;
                ended = Work::new(cx, self.section.subscribe(), shown.clone(), driver, missing).run(&stop) => ended,
                () = watch_driver(cx, &seen, probes) => Ok(()),
                () = check_self(&shown) => Ok(()),
                () = watch_csi_node(cx, self.section.subscribe(), &seen_driver, &shown, &found) => Ok(()),
                () = health::serve(cx, self.section.subscribe(), &shown, &stop) => Ok(()),
            }
        }
        .boxed()
    }

    fn take_over(&self, section: &Value) -> bool {
        let Ok(section) = RoleSection::read(section) else { return false };
        self.section.send_replace(section);
        true
    }
}

/// Asks the own socket from time to time. Only what fails is worth a line (N9).
async fn check_self(shown: &Shown) {
    loop {
        sleep(SELF_CHECK).await;
        check_self_once(shown).await;
    }
}

pub(super) async fn check_self_once(shown: &Shown) {
    let standing = shown.standing();
    let deaf = match standing.path.filter(|_| standing.is_ours) {
        Some(path) => self_check::ask(&path).await.err().map(|error| error_chain(&error)),
        None => None,
    };
    if let Some(error) = deaf.as_ref().filter(|_| standing.deaf.is_none()) {
        warn!(error, "the registration socket does not answer");
    }
    shown.change(|shown| shown.deaf = deaf);
}

/// The socket in the kubelet's directory.
struct Ours {
    announced: Announced,
    id: FileId,
    directory: PathBuf,
    /// The driver's path on the host, as the kubelet is told.
    endpoint: String,
}

/// One service of the role.
struct Work<'a> {
    cx: &'a LocalContext,
    sections: watch::Receiver<RegistrarSection>,
    section: RegistrarSection,
    shown: Shown,
    driver: watch::Receiver<DriverSeen>,
    missing: watch::Receiver<Option<Missing>>,
    ours: Option<Ours>,
    dialogue: Dialogue,
    failed: Option<(tokio::time::Instant, String)>,
    next: Reason,
    server: Server,
    heard: tokio::sync::mpsc::UnboundedReceiver<Heard>,
    /// The last refusal that was logged.
    told: Option<String>,
}

impl<'a> Work<'a> {
    fn new(
        cx: &'a LocalContext,
        mut sections: watch::Receiver<RegistrarSection>,
        shown: Shown,
        driver: watch::Receiver<DriverSeen>,
        missing: watch::Receiver<Option<Missing>>,
    ) -> Self {
        let (server, heard) = Server::new();
        let section = sections.borrow_and_update().clone();
        Self {
            cx,
            sections,
            section,
            shown,
            driver,
            missing,
            ours: None,
            dialogue: Dialogue::new(),
            failed: None,
            next: Reason::Start,
            server,
            heard,
            told: None,
        }
    }

    /// Runs until `stop`, then withdraws the driver. After an error the socket's file stays: the role is served again at once.
    async fn run(mut self, stop: &CancellationToken) -> Result<(), RoleError> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                panic = self.server.panicked() => return Err(RoleError::Panicked(panic)),
                Some(heard) = self.heard.recv() => self.hear(heard),
                changed = self.driver.changed() => if changed.is_err() {
                    return pending().await;
                },
                changed = self.missing.changed() => if changed.is_err() {
                    return pending().await;
                },
                changed = self.sections.changed() => if changed.is_err() {
                    return pending().await;
                },
                _ = looks.tick() => {}
            }
            self.settle();
        }
        self.end();
        Ok(())
    }

    fn hear(&mut self, heard: Heard) {
        if !self.server.is_of_latest(&heard) {
            debug!(said = ?heard.said, "not taken: the kubelet speaks of a socket that was replaced");
            return;
        }
        let now = self.cx.clock.now();
        match heard.said {
            Said::Asked => {
                debug!("the kubelet asks which driver this is");
                self.dialogue.asks(now);
            }
            Said::Verdict(verdict) => {
                if let Err(reason) = &verdict {
                    self.cx.meter.counter(&metrics::REFUSALS, &[]).increment(1);
                    self.shown.change(|shown| shown.refusals += 1);
                    if self.told.as_ref() != Some(reason) {
                        warn!(reason, "the kubelet does not register the driver");
                        self.told = Some(reason.clone());
                    }
                } else {
                    self.told = None;
                }
                self.dialogue.says(now, verdict);
            }
        }
    }

    /// Does all that there is to do now: each step makes the next one another.
    fn settle(&mut self) {
        let section = self.sections.borrow_and_update().clone();
        if section != self.section {
            // Another directory is tried at once.
            (self.section, self.failed) = (section, None);
        }
        loop {
            let driver = self.driver.borrow_and_update().clone();
            let place = self.look(&driver);
            let view = View {
                now: self.cx.clock.now(),
                driver: &driver,
                place: &place,
                announced: self.ours.as_ref().map(|ours| &ours.announced),
                outdated: self.ours.as_ref().and_then(|ours| self.outdated(ours)),
                dialogue: &self.dialogue,
                missing: *self.missing.borrow_and_update(),
                failed: self.failed.as_ref(),
                withdraw_after: self.section.withdraw_after,
                next: self.next,
            };
            match next_step(&view) {
                Step::Wait => {
                    let state = state(&view);
                    self.show(&state, &place, &driver);
                    return;
                }
                Step::Announce(reason) => self.announce(driver.name.as_deref().unwrap_or_default(), reason),
                Step::Withdraw(next) => self.withdraw(next),
            }
        }
    }

    /// The directory of the announced socket, else the one for the next.
    fn directory(&self) -> &Path {
        self.ours.as_ref().map_or_else(|| Path::new(&self.section.directory), |ours| &ours.directory)
    }

    /// The path of the socket: that of the announced driver, else of the one that was seen.
    fn path(&self, driver: &DriverSeen) -> PathBuf {
        let announced = self.ours.as_ref().map(|ours| ours.announced.driver.as_str());
        socket::path(self.directory(), announced.or(driver.name.as_deref()).unwrap_or_default())
    }

    fn look(&self, driver: &DriverSeen) -> Place {
        socket::look(self.directory(), &self.path(driver), self.ours.as_ref().map(|ours| ours.id))
    }

    /// The path of the driver's socket on the host, as the configuration says.
    fn endpoint(&self, driver: &str) -> String {
        let usual = || names::usual_endpoint(driver, &self.cx.endpoint);
        self.section.kubelet_registration_path.clone().unwrap_or_else(usual)
    }

    /// What the configuration says otherwise than the announcement.
    fn outdated(&self, ours: &Ours) -> Option<Outdated> {
        if ours.directory != Path::new(&self.section.directory) {
            return Some(Outdated::Directory);
        }
        (ours.endpoint != self.endpoint(&ours.announced.driver)).then_some(Outdated::Endpoint)
    }

    fn show(&self, state: &State, place: &Place, driver: &DriverSeen) {
        let text = state.text(&self.path(driver).display().to_string(), &self.directory().display().to_string());
        // From the start on: an alert sees a driver that was never registered, too.
        let is_registered = state.is_registered(&self.dialogue);
        self.cx.meter.gauge(&metrics::REGISTERED, &[]).set(if is_registered { 1.0 } else { 0.0 });
        self.shown.change(|shown| shown.is_ours = *place == Place::Ours);
        if self.shown.state(state, text.clone(), &self.dialogue) {
            match state {
                State::NoDirectory | State::NotASocket | State::Failed(_) | State::NotAsked | State::NotAnswered => {
                    warn!(state = text, "the driver is not registered");
                }
                // Told where it was heard, once for each text.
                State::Refused(_) => {}
                _ => info!(state = text, "registration"),
            }
        }
    }

    fn announce(&mut self, driver: &str, reason: Reason) {
        let now = self.cx.clock.now();
        let directory = PathBuf::from(&self.section.directory);
        let endpoint = self.endpoint(driver);
        // The kubelet could not connect to a longer one.
        let can_connect = check_socket_path(Path::new(&endpoint)).map_err(io::Error::from);
        match can_connect.and_then(|()| socket::announce(&directory, driver, self.cx.rng.short())) {
            Ok((listener, id)) => {
                let path = socket::path(&directory, driver);
                info!(driver, endpoint, path = %path.display(), reason = reason.label(), "announcing the driver to the kubelet");
                self.server.listen(
                    listener,
                    PluginInfo {
                        r#type: names::TYPE.to_owned(),
                        name: driver.to_owned(),
                        endpoint: endpoint.clone(),
                        supported_versions: names::VERSIONS.map(str::to_owned).into(),
                    },
                );
                self.cx.meter.counter(&metrics::ANNOUNCEMENTS, &[("reason", reason.label())]).increment(1);
                self.shown.change(|shown| {
                    (shown.path, shown.endpoint) = (Some(path), Some(endpoint.clone()));
                    shown.announcements += 1;
                });
                self.dialogue.announced(reason);
                let announced = Announced { driver: driver.to_owned(), at: now };
                self.ours = Some(Ours { announced, id, directory, endpoint });
                self.failed = None;
            }
            Err(error) => self.failed = Some((now, error.to_string())),
        }
    }

    /// Takes the driver back. `next`: the reason of the next announcement.
    fn withdraw(&mut self, next: Reason) {
        let Some(Ours { announced, id, directory, .. }) = self.ours.take() else { return };
        let path = socket::path(&directory, &announced.driver);
        match socket::withdraw(&path, id) {
            Ok(true) => info!(driver = announced.driver, next = next.label(), "withdrew the driver from the kubelet"),
            Ok(false) => info!(driver = announced.driver, "the registration socket is not ours: it stays"),
            Err(error) => {
                warn!(path = %path.display(), error = error_chain(&error), "cannot remove the registration socket");
            }
        }
        self.server.close();
        self.cx.meter.gauge(&metrics::REGISTERED, &[]).set(0.0);
        self.shown.change(|shown| (shown.path, shown.endpoint) = (None, None));
        self.dialogue.withdrawn();
        self.next = next;
    }

    fn end(&mut self) {
        match self.section.on_shutdown {
            OnShutdown::Withdraw => self.withdraw(Reason::Start),
            OnShutdown::Keep => info!("the registration stays: the kubelet keeps the driver"),
        }
    }
}
