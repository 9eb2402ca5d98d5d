//! What the attempts and the tasks of a term share, and the view of a volume, as read from the caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::cluster::{BY_HANDLE, IdKind, ObjectName, PersistentVolume, PersistentVolumeClaim};
use crate::diagnostics::Age;
use crate::roles::kit::{Memory, Store, TermScope, look_at_each};
use crate::translation::csi_form;

use super::config::HealthMonitorSection;
use super::gauges::Gauges;
use super::metrics;
use super::source::{Denied, Idle, Source};
use super::view::{self, View};

/// The phase of volumes and claims that are bound to each other.
const BOUND: &str = "Bound";
/// How often a server that has dropped the health of claims is tried again (spec C4).
const TRY_AGAIN: Duration = Duration::from_secs(3600);

/// What the attempts and the tasks of a term share.
#[derive(Debug)]
pub struct Context {
    /// The term, and its clients.
    pub scope: Arc<TermScope>,
    /// The configuration.
    pub section: HealthMonitorSection,
    /// Every `PersistentVolume`.
    pub volumes: Store<PersistentVolume>,
    /// Every claim, with the health that its status holds.
    pub claims: Store<PersistentVolumeClaim>,
    /// What the term remembers of volumes, by their handles.
    pub memory: Memory<view::Memory>,
    /// What metrics show of claims.
    pub gauges: Gauges,
    state: Mutex<State>,
}

/// What the term has found out.
#[derive(Debug, Default)]
struct State {
    denied: Denied,
    /// When the API server last dropped what was written.
    dropped: Option<Instant>,
    /// The names of in-tree volumes by the handles of their translations, as of the last round: no index has them.
    in_tree: BTreeMap<String, BTreeSet<String>>,
    silence: Option<Silence>,
    /// The subjects whose older Events cannot be read, each with the reason.
    unread: BTreeMap<&'static str, String>,
    last_round: Option<(Instant, Duration)>,
}

/// The driver has not answered since then.
#[derive(Debug, Clone)]
struct Silence {
    since: Instant,
    error: String,
}

impl Context {
    /// What a term begins with.
    pub fn new(
        scope: TermScope,
        section: HealthMonitorSection,
        volumes: Store<PersistentVolume>,
        claims: Store<PersistentVolumeClaim>,
    ) -> Self {
        let gauges = Gauges::new(scope.meter.clone());
        Self {
            scope: Arc::new(scope),
            section,
            volumes,
            claims,
            memory: Memory::default(),
            gauges,
            state: Mutex::default(),
        }
    }

    /// Where the health of volumes is read now.
    pub fn source(&self) -> Result<Source, Idle> {
        Source::of(&self.scope.capabilities, self.state.lock().denied)
    }

    /// The driver does not implement what its capabilities offer.
    pub fn deny(&self, source: Source) {
        let denied = self.state.lock().denied;
        if denied.with(source) != denied {
            warn!(
                method = source.method(),
                "the driver does not implement a call that its capabilities offer: it is not made again"
            );
            self.state.lock().denied = denied.with(source);
        }
    }

    /// Whether the API server stores the health of claims, as far as is known.
    fn is_status_kept(&self) -> bool {
        let now = self.scope.clock.now();
        self.state.lock().dropped.is_none_or(|at| now.saturating_duration_since(at) >= TRY_AGAIN)
    }

    /// The API server has accepted a write of a claim's health. Notes it if the claim does not have it.
    pub fn wrote(&self, claim: &PersistentVolumeClaim) {
        let held = self.claims.get(&ObjectName::of(claim)).filter(|held| held.metadata.uid == claim.metadata.uid);
        if held.is_none_or(|held| held.status.health.is_some()) {
            return;
        }
        self.scope.meter.counter(&metrics::WRITES_DROPPED, &[]).increment(1);
        if self.state.lock().dropped.replace(self.scope.clock.now()).is_none() {
            warn!(
                "the API server does not store status.healthStatus of claims: its feature gate CSIVolumeHealth is off"
            );
        }
    }

    /// Notes how a call to the driver has ended: `OK`, or why not.
    pub fn probed(&self, source: Source, begun: Instant, result: &str, error: Option<String>) {
        let (method, now) = (source.method(), self.scope.clock.now());
        self.scope.meter.counter(&metrics::PROBES, &[("method", method), ("result", result)]).increment(1);
        let took = now.saturating_duration_since(begun);
        self.scope.meter.histogram(&metrics::PROBE_DURATION, &[("method", method)]).record(took.as_secs_f64());
        let mut state = self.state.lock();
        let since = state.silence.as_ref().map_or(now, |silence| silence.since);
        state.silence = error.map(|error| Silence { since, error });
    }

    /// Notes whether the older Events about a subject could be read, or why not. Returns whether that is news.
    pub fn note_unread(&self, subject: &'static str, error: Option<&str>) -> bool {
        let mut state = self.state.lock();
        let before = match error {
            Some(error) => state.unread.insert(subject, error.to_owned()),
            None => state.unread.remove(subject),
        };
        before.as_deref() != error
    }

    /// Why older Events cannot be read, by what they are about.
    pub fn unread(&self) -> BTreeMap<&'static str, String> {
        self.state.lock().unread.clone()
    }

    /// A round or a pass has come to its end.
    pub fn round_ended(&self, begun: Instant) {
        let now = self.scope.clock.now();
        let (took, labels) = (now.saturating_duration_since(begun), [("driver_name", self.scope.driver_name.as_str())]);
        self.scope.meter.histogram(&metrics::ROUND_DURATION, &labels).record(took.as_secs_f64());
        self.state.lock().last_round = Some((now, took));
    }

    /// How long ago the last round or pass ended, and how long it took.
    pub fn last_round(&self) -> Option<(Duration, Duration)> {
        let (ended, took) = self.state.lock().last_round?;
        Some((self.scope.clock.now().saturating_duration_since(ended), took))
    }

    /// Since when the driver has not answered, and why, once that is too long (spec C5).
    pub fn failure(&self, patience: Duration) -> Option<String> {
        let Silence { since, error } = self.state.lock().silence.clone()?;
        let passed = self.scope.clock.now().saturating_duration_since(since);
        (passed > patience)
            .then(|| format!("the driver has not answered how its volumes are for {}: {error}", Age(passed)))
    }

    /// The handle of a volume, and its claim, if both are monitored (spec C2).
    pub fn monitored(&self, volume: &PersistentVolume) -> Option<(String, Arc<PersistentVolumeClaim>)> {
        let handle = self.handle(volume)?;
        let bound = volume.spec.claim_ref.as_deref()?;
        let claim = self.claims.get(&volume.claim()?)?;
        let is_live = volume.metadata.deletion_timestamp.is_none() && claim.metadata.deletion_timestamp.is_none();
        let is_bound = volume.phase.as_deref() == Some(BOUND) && claim.status.phase.as_deref() == Some(BOUND);
        let is_its_own = bound.uid.as_deref() == Some(&*claim.metadata.uid)
            && claim.spec.volume_name.as_deref() == Some(&*volume.metadata.name);
        (is_live && is_bound && is_its_own).then_some((handle, claim))
    }

    /// The handle of a volume of our driver.
    pub fn handle(&self, volume: &PersistentVolume) -> Option<String> {
        let form = csi_form(volume, &self.scope.driver_name).ok()?;
        Some(form.csi.as_ref()?.volume_handle.clone())
    }

    /// The handles of all volumes that are monitored.
    pub async fn handles(&self) -> BTreeSet<String> {
        let (mut handles, mut in_tree) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
        look_at_each(self.volumes.own(), |volume| {
            let Some((handle, _)) = self.monitored(&volume) else { return };
            if volume.spec.in_tree.is_some() {
                in_tree.entry(handle.clone()).or_default().insert(volume.metadata.name.to_string());
            }
            handles.insert(handle);
        })
        .await;
        self.state.lock().in_tree = in_tree;
        handles
    }

    /// The volumes of our driver with this handle.
    pub fn volumes(&self, handle: &str) -> Vec<Arc<PersistentVolume>> {
        let key = IdKind::Volume.key(&self.scope.driver_name, handle);
        let in_tree: Vec<String> = self.state.lock().in_tree.get(handle).into_iter().flatten().cloned().collect();
        let translated = in_tree.into_iter().filter_map(|name| self.volumes.named(&name));
        let found = self.volumes.find(BY_HANDLE, &key).into_iter().chain(translated);
        found.filter(|volume| self.handle(volume).is_some_and(|it| it == handle)).collect()
    }

    /// Reads what there is of a volume. `None`: it is not monitored.
    pub fn view(&self, handle: &str) -> Option<View> {
        let volumes = self.volumes(handle);
        let claims: Vec<_> = volumes.iter().filter_map(|volume| Some(self.monitored(volume)?.1)).collect();
        if claims.is_empty() {
            return None;
        }
        Some(View {
            handle: handle.to_owned(),
            question: self.source().ok().and_then(Source::question),
            report: self.section.report,
            claims,
            is_migrated: volumes.iter().any(|volume| volume.spec.in_tree.is_some()),
            memory: self.memory.read(handle, Clone::clone),
            is_status_kept: self.is_status_kept(),
            now: self.scope.clock.wall(),
            at: self.scope.clock.now(),
        })
    }

    /// Whether something may still be reported or held to be wrong with a volume, so that only the driver's answer can end that.
    pub fn is_suspect(&self, handle: &str) -> bool {
        let holds =
            |claim: &PersistentVolumeClaim| claim.status.health.as_ref().is_some_and(|it| !it.conditions.is_empty());
        let is_held =
            || self.volumes(handle).iter().filter_map(|it| self.monitored(it)).any(|(_, claim)| holds(&claim));
        self.memory.read(handle, view::Memory::is_suspect) || is_held()
    }
}
