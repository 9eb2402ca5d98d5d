//! The configuration file while the daemon runs: read, checked, and applied or refused as a whole.
//!
//! ```text
//!   file, every few seconds ─┐                        ┌─ faults ──────────> log, status page, metric; the old one stays
//!   SIGHUP, at once ─────────┴─> the same twice? ─> load ─> decide [pure] ─┬─ needs a restart ──> the same
//!                                                                          └─ Change ──> run: log, calls, Lease groups
//! ```
//!
//! Decisions:
//! - **The content is polled** instead of using inotify. A ConfigMap is mounted as a symlink to a symlink to a folder
//!   that kubelet replaces, so inotify reports other names than the opened one. Reading a few kilobytes every two
//!   seconds is cheap and works on any file system, and kubelet itself takes up to a minute to deliver a change.
//! - **Two equal readings are needed.** Kubelet replaces whole files, but an editor may not: half a file can be valid
//!   YAML, and would remove the roles in its other half.
//! - **Only the file changes the log's level.** The diagnostics port has no authentication and is read-only; only users
//!   who may edit the file may change the level. SIGHUP only makes the daemon read the file at once.
//! - The environment and the command line take precedence over the file, as at the start: those of a process do not change.

mod decide;
mod keys;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{error, info};

use crate::config::{self, File, FlagSetting, Loaded, Rejected, Sources};
use crate::diagnostics::{Age, ConfigurationReport, FaultReport, RefusedBecause, RefusedReport};
use crate::process::{Clock, Fault, error_chain};
use crate::roles::{LoadError, sections};
use crate::telemetry::{LogLevel, Meter, names};

pub use keys::needs_restart;

pub(super) use decide::{Change, Dependencies};
use decide::{Refusal, Verdict, decide};

/// Pause between two readings of the file.
const LOOK: Duration = Duration::from_secs(2);
/// Pause between the two readings that must be equal: longer than an editor takes between truncating and writing a
/// file.
const SETTLE: Duration = Duration::from_millis(300);

/// The source of the configuration, for a daemon that watches its changes.
#[derive(Debug, Clone)]
pub struct Configuration {
    source: Source,
    variables: BTreeMap<String, String>,
    flags: Vec<FlagSetting>,
    nudge: Arc<Notify>,
    level: Option<LogLevel>,
}

#[derive(Debug, Clone)]
enum Source {
    /// Read every few seconds.
    File(PathBuf),
    /// Set through the handle.
    Told(Arc<Mutex<String>>),
    /// What the readings of a file are, one after another; the last one again and again.
    #[cfg(test)]
    Played(Arc<Mutex<std::collections::VecDeque<Read>>>),
}

impl Configuration {
    /// A file, with these variables and flags on top, of a process whose log has this level.
    pub fn file(path: PathBuf, variables: BTreeMap<String, String>, flags: Vec<FlagSetting>, level: LogLevel) -> Self {
        Self { source: Source::File(path), variables, flags, nudge: Arc::default(), level: Some(level) }
    }

    /// A text in memory that [`ConfigurationHandle::tell`] replaces, for daemons that share a process and its log.
    pub fn told(text: &str) -> Self {
        let source = Source::Told(Arc::new(Mutex::new(text.to_owned())));
        Self { source, variables: BTreeMap::new(), flags: Vec::new(), nudge: Arc::default(), level: None }
    }

    /// A handle that triggers a reading.
    pub fn handle(&self) -> ConfigurationHandle {
        ConfigurationHandle(self.clone())
    }

    /// Its name in messages.
    fn name(&self) -> String {
        match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Told(_) => "configuration".to_owned(),
            #[cfg(test)]
            Source::Played(_) => "played.yaml".to_owned(),
        }
    }

    async fn read(&self) -> Read {
        match &self.source {
            Source::Told(text) => Ok(text.lock().clone()),
            #[cfg(test)]
            Source::Played(readings) => {
                let mut readings = readings.lock();
                if readings.len() > 1 { readings.pop_front().unwrap() } else { readings[0].clone() }
            }
            Source::File(path) => {
                let path = path.clone();
                // The file may be on a volume whose server does not answer: this must not block a shared thread.
                let read = tokio::task::spawn_blocking(move || File::read(&path)).await;
                read.map_err(|panic| panic.to_string())?.map(|file| file.text).map_err(|error| error_chain(&error))
            }
        }
    }

    fn load(&self, text: String) -> Result<Loaded, Rejected> {
        let file = Some(File { name: self.name(), text });
        let sources = Sources { base: None, file, environment: self.variables.clone(), flags: self.flags.clone() };
        let loaded = config::load(&sources, &sections())?;
        // The caller says where a daemon runs that shares its process.
        if matches!(self.source, Source::Told(_)) { Ok(loaded) } else { loaded.to_run_here() }
    }
}

/// Triggers a reading of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigurationHandle(Configuration);

impl ConfigurationHandle {
    /// Makes the daemon read its configuration at once.
    pub fn nudge(&self) {
        self.0.nudge.notify_one();
    }

    /// Replaces a text in memory, and makes the daemon read it. Has no effect on a file.
    pub fn tell(&self, text: &str) {
        if let Source::Told(told) = &self.0.source {
            text.clone_into(&mut told.lock());
        }
        self.nudge();
    }
}

/// A text, or the error.
type Read = Result<String, String>;

/// Follows the configuration of one daemon.
pub(super) struct Reloader {
    configuration: Option<Configuration>,
    current: Loaded,
    clock: Clock,
    meter: Meter,
    standing: Standing,
    /// The last checked text: it is checked again only on request.
    judged: Option<Read>,
    look_at: Instant,
    /// A pending reading, and whether it was requested. Stored here because [`next`](Self::next) may be dropped.
    due: bool,
    asked: bool,
}

/// The state of the configuration, for the status page. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Standing(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    source: String,
    since: Instant,
    changes: u64,
    keys: Vec<String>,
    refused: Option<(Instant, RefusedReport)>,
}

impl Standing {
    /// What is shown.
    pub(super) fn report(&self, now: Instant) -> ConfigurationReport {
        let known = self.0.lock();
        let age = |at: Instant| Age(now.saturating_duration_since(at));
        ConfigurationReport {
            source: known.source.clone(),
            since: age(known.since),
            changes: known.changes,
            last_changed: known.keys.clone(),
            refused: known.refused.clone().map(|(at, report)| RefusedReport { since: age(at), ..report }),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.lock());
    }
}

impl Reloader {
    /// With `current` in effect. Without a configuration to follow, nothing ever changes.
    pub(super) fn new(configuration: Option<Configuration>, current: Loaded, clock: Clock, meter: Meter) -> Self {
        let source = configuration.as_ref().map_or_else(|| "fixed".to_owned(), Configuration::name);
        let known = Known { source, since: clock.now(), changes: 0, keys: Vec::new(), refused: None };
        let standing = Standing(Arc::new(Mutex::new(known)));
        let look_at = clock.now() + LOOK;
        let reloader =
            Self { configuration, current, clock, meter, standing, judged: None, look_at, due: false, asked: false };
        reloader.succeeded();
        reloader
    }

    /// What is in effect.
    pub(super) fn current(&self) -> &Loaded {
        &self.current
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// The log's level, if it is this daemon's to change.
    pub(super) fn level(&self) -> Option<&LogLevel> {
        self.configuration.as_ref()?.level.as_ref()
    }

    /// Waits for a configuration that can be applied, and reports others. May be dropped and called again.
    pub(super) async fn next(&mut self, depends_on: impl Fn() -> Dependencies) -> (Loaded, Change) {
        let Some(configuration) = self.configuration.clone() else { return std::future::pending().await };
        loop {
            if !self.due {
                let polled = !matches!(configuration.source, Source::Told(_));
                tokio::select! {
                    biased;
                    () = configuration.nudge.notified() => self.asked = true,
                    () = tokio::time::sleep_until(self.look_at), if polled => {}
                }
                self.due = true;
            }
            let read = self.settled(&configuration).await;
            self.due = false;
            self.look_at = self.clock.now() + LOOK;
            let asked = std::mem::take(&mut self.asked);
            if self.judged.as_ref() == Some(&read) && !asked {
                continue;
            }
            self.judged = Some(read.clone());
            if let Some(accepted) = self.judge(&configuration, read, asked, &depends_on()) {
                return accepted;
            }
        }
    }

    /// Reads until two readings agree.
    async fn settled(&self, configuration: &Configuration) -> Read {
        let mut read = configuration.read().await;
        if self.judged.as_ref() == Some(&read) || matches!(configuration.source, Source::Told(_)) {
            return read;
        }
        loop {
            tokio::time::sleep(SETTLE).await;
            let again = configuration.read().await;
            if again == read {
                return again;
            }
            read = again;
        }
    }

    fn judge(
        &self,
        configuration: &Configuration,
        read: Read,
        asked: bool,
        depends_on: &Dependencies,
    ) -> Option<(Loaded, Change)> {
        let text = match read {
            Ok(text) => text,
            Err(error) => {
                self.refuse(RefusedBecause::Unreadable, error, Vec::new());
                return None;
            }
        };
        let loaded = match configuration.load(text) {
            Ok(loaded) => loaded,
            Err(rejected) => {
                let count = rejected.faults.len();
                let summary = format!("it has {count} fault{}", if count == 1 { "" } else { "s" });
                self.refuse(RefusedBecause::Faults, summary, rejected.faults);
                return None;
            }
        };
        match decide(&self.current, &loaded, depends_on) {
            Verdict::Same => {
                self.succeeded();
                if self.is_refused() {
                    info!(source = configuration.name(), "the configuration is the same as the one in effect");
                } else if asked {
                    info!(source = configuration.name(), "the configuration has not changed");
                }
                self.standing.change(|known| known.refused = None);
                None
            }
            Verdict::Refuse(refusal) => {
                let because = match &refusal {
                    Refusal::NeedsRestart(_) => RefusedBecause::NeedsRestart,
                    Refusal::NoRole => RefusedBecause::NoRole,
                };
                self.refuse(because, refusal.to_string(), Vec::new());
                None
            }
            Verdict::Apply(change) => Some((loaded, change)),
        }
    }

    fn is_refused(&self) -> bool {
        self.standing.0.lock().refused.is_some()
    }

    /// It is in effect from now on.
    pub(super) fn applied(&mut self, loaded: Loaded, change: Change) {
        self.meter.counter(&names::CONFIG_RELOADS, &[("result", "applied")]).increment(1);
        self.succeeded();
        info!(
            source = self.configuration.as_ref().map(Configuration::name),
            keys = ?change.keys,
            restarted = ?change.restarted,
            added = ?change.added,
            removed = ?change.removed,
            "the configuration has changed"
        );
        for warning in loaded.warnings.iter().filter(|warning| !self.current.warnings.contains(warning)) {
            tracing::warn!(warning, "configuration");
        }
        self.current = loaded;
        let now = self.clock.now();
        self.standing.change(|known| {
            (known.since, known.refused) = (now, None);
            known.changes += 1;
            known.keys = change.keys.into_iter().collect();
        });
    }

    /// A role can't read its section although it was checked: a check is missing.
    pub(super) fn failed(&self, error: &LoadError) {
        self.refuse(RefusedBecause::Faults, error_chain(error), Vec::new());
    }

    /// Reports why the file is refused, once per content. The status comes last, as it does for a file that is taken: what it shows stands
    /// in the metrics and in the log by then.
    fn refuse(&self, because: RefusedBecause, summary: String, faults: Vec<Fault>) {
        self.meter.counter(&names::CONFIG_RELOADS, &[("result", because.label())]).increment(1);
        self.meter.gauge(&names::CONFIG_LAST_SUCCESSFUL, &[]).set(0.0);
        let source = self.configuration.as_ref().map(Configuration::name);
        error!(source, because = because.label(), summary, "the new configuration is refused, the old one stays");
        for Fault { key, found, allowed, origin } in &faults {
            error!(key, found, allowed, origin, "error in the new configuration");
        }
        let faults =
            faults.into_iter().map(|Fault { key, found, allowed, origin }| FaultReport { key, found, allowed, origin });
        let report = RefusedReport { because, summary, since: Age::default(), faults: faults.collect() };
        let now = self.clock.now();
        self.standing.change(|known| known.refused = Some((now, report)));
    }

    fn succeeded(&self) {
        self.meter.gauge(&names::CONFIG_LAST_SUCCESSFUL, &[]).set(1.0);
        let now = self.clock.wall();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a gauge is a float; seconds fit it for longer than calendars do"
        )]
        self.meter.gauge(&names::CONFIG_LAST_SUCCESS, &[]).set(now.as_second() as f64);
    }
}

#[cfg(test)]
mod tests;
