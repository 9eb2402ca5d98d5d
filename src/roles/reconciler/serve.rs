//! One term of the reconciler: a pass, a pause, and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, info, info_span, warn};

use crate::cluster::IdKind;
use crate::csi::listing::list;
use crate::csi::{Client, ListedVolume, NextPass, Pages, VolumeListing};
use crate::diagnostics::Registered;
use crate::election::{Term, TermOver};
use crate::process::{error_chain, watch};
use crate::proto::ListSnapshotsRequest;
use crate::roles::kit::{TermScope, look_at_each};
use crate::roles::reconciler::metrics;
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::NAME;
use super::config::ReconcilerSection;
use super::entries;
use super::known::Objects;
use super::orphans::{Item, Unknown};
use super::report::{self, Failing, Findings, Gauges, Lists};

/// The role.
#[derive(Debug)]
pub(super) struct Reconciler {
    pub(super) section: ReconcilerSection,
    /// What knows volumes and snapshots. `None`: orphans are not looked for.
    pub(super) objects: Option<Objects>,
}

impl Serve for Reconciler {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        let scope = TermScope::with_timeout(role, &term, Some(self.section.page_timeout));
        let passes = Passes { of: self, role, scope, lists: self.lists(role), told: Arc::default() };
        let _shown = passes.show();
        tokio::select! {
            biased;
            () = term.over() => {}
            () = passes.for_ever() => {}
        }
        Ok(())
    }
}

impl Reconciler {
    fn lists(&self, role: &RoleContext) -> Lists {
        let (capabilities, is_on) = (&role.driver.capabilities, self.objects.is_some());
        Lists {
            published: capabilities.list_volumes() && capabilities.list_volumes_published_nodes(),
            volumes: is_on && capabilities.list_volumes(),
            snapshots: is_on && capabilities.list_snapshots(),
        }
    }
}

/// The passes of a term, for the status page.
#[derive(Debug, Default)]
struct Told {
    failing: Failing,
    findings: Findings,
}

/// The passes of a term.
struct Passes<'a> {
    of: &'a Reconciler,
    role: &'a RoleContext,
    scope: TermScope,
    lists: Lists,
    told: Arc<watch::Sender<Told>>,
}

impl Passes<'_> {
    /// Shows the passes on the status page.
    fn show(&self) -> (Registered, Option<Registered>) {
        let (clock, lists, is_on) = (self.role.clock, self.lists, self.of.objects.is_some());
        let (published, told) = (self.role.driver.listings.clone(), self.told.subscribe());
        let facts = self.role.board.facts(NAME, move || {
            let told = told.borrow();
            let mut facts = report::facts(lists, published.latest().as_deref(), &told.failing, clock.now());
            facts.extend(is_on.then(|| told.findings.facts()).into_iter().flatten());
            facts
        });
        let told = self.told.subscribe();
        let rows = move || told.borrow().findings.rows(clock.now(), clock.wall());
        (facts, is_on.then(|| self.role.board.table(NAME, &report::TABLE, rows)))
    }

    async fn for_ever(&self) {
        let Lists { published, volumes, snapshots } = self.lists;
        let driver: &str = &self.scope.driver_name;
        let new = |_| Gauges { meter: self.scope.meter.clone(), driver: driver.to_owned() };
        let gauges = self.of.objects.as_ref().map(new);
        self.tell(|told| {
            let Findings { volumes: of_volumes, snapshots: of_snapshots } = &mut told.findings;
            for (lists, orphans, what) in [(volumes, of_volumes, "volumes"), (snapshots, of_snapshots, "snapshots")] {
                if !lists {
                    orphans.cannot_tell(format!("the driver does not list its {what}"));
                }
            }
        });
        if !published {
            info!("the driver cannot list where its volumes are published: no drift can be found");
        }
        if !published && !volumes && !snapshots {
            return std::future::pending().await;
        }
        let ReconcilerSection { interval, page_size, page_timeout, .. } = self.of.section;
        let pages = Pages { size: page_size, timeout: page_timeout, yields: false };
        let mut consumer = (published || volumes).then(|| self.scope.passes.join(pages));
        let (mut shown, mut at) = ([0, 0], self.scope.clock.now());
        let mut snapshots_at = at;
        for pass in 1_u64.. {
            let next = if let Some(consumer) = &mut consumer {
                Some(consumer.next(at).await)
            } else {
                sleep_until(at).await;
                None
            };
            let now = self.scope.clock.now();
            let started = if let Some(NextPass::Made(pass)) = &next { pass.started } else { now };
            self.role.driver.operations.prune(started.checked_sub(interval.saturating_mul(4)).unwrap_or(started));
            let lists_snapshots = snapshots && now >= snapshots_at;
            let span = info_span!("reconcile", role = NAME, pass);
            let passed = async {
                if let Some(next) = next {
                    self.pass_volumes(next).await?;
                }
                if lists_snapshots {
                    self.pass_snapshots().await?;
                }
                Ok::<(), TermOver>(())
            };
            if passed.instrument(span).await.is_err() {
                return;
            }
            if let Some(gauges) = &gauges {
                shown = gauges.show(&self.told.borrow().findings, shown);
            }
            at = self.scope.clock.now() + interval;
            if lists_snapshots {
                // Another role may want the volumes more often, and nobody else wants the snapshots.
                snapshots_at = at - interval / 2;
            }
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        self.told.send_modify(change);
    }

    /// Takes what the next pass over the volumes brings, once for all that is made of it.
    async fn pass_volumes(&self, next: NextPass) -> Result<(), TermOver> {
        let (scope, driver) = (&self.scope, self.scope.driver_name.as_str());
        let pass = scope.volume_pass(next).await?;
        let (started, finished) = (pass.started, pass.finished);
        let result = match &pass.result {
            Ok(listing) => {
                let seconds = (finished - started).as_secs_f64();
                scope.meter.histogram(&metrics::RECONCILE_DURATION, &[("driver_name", driver)]).record(seconds);
                if self.lists.published {
                    let mut volumes = BTreeMap::new();
                    look_at_each(listing.entries(), |(id, volume)| entries::publish(&mut volumes, id, &volume.on))
                        .await;
                    self.role.driver.listings.publish(VolumeListing { started, finished, volumes });
                }
                self.tell(|told| told.failing = Failing::default());
                self.compare_volumes(started, listing.entries()).await;
                "ok"
            }
            Err(error) => {
                self.tell(|Told { failing, .. }| {
                    *failing = Failing { passes: failing.passes.saturating_add(1), error: error_chain(error) };
                });
                error.label()
            }
        };
        scope.meter.counter(&metrics::RECONCILE_PASSES, &[("driver_name", driver), ("result", result)]).increment(1);
        Ok(())
    }

    async fn compare_volumes(&self, started: Instant, listed: &BTreeMap<String, ListedVolume>) {
        let Some(objects) = &self.of.objects else { return };
        let count = listed.len();
        let mut unknown = Unknown::of(IdKind::Volume, &self.scope.driver_name);
        look_at_each(listed, |(id, volume)| unknown.add(entries::item(id, volume))).await;
        objects.settled().await;
        let namespace = self.role.instance.namespace.as_deref().unwrap_or_default();
        let known = objects.know_volumes(&self.scope, namespace, &mut unknown).await;
        self.tell(|Told { findings, .. }| match known {
            Ok(()) => findings.volumes.compare(started, count, unknown),
            Err(error) => findings.volumes.cannot_tell(error_chain(&error)),
        });
    }

    async fn pass_snapshots(&self) -> Result<(), TermOver> {
        let Some(objects) = &self.of.objects else { return Ok(()) };
        let started = self.scope.clock.now();
        let (scope, max_entries) = (&self.scope, self.of.section.page_size);
        let pass = list("ListSnapshots", |starting_token| async move {
            let request = ListSnapshotsRequest { max_entries, starting_token, ..ListSnapshotsRequest::default() };
            let page = scope.ask(async |driver: Client| driver.list_snapshots(request).await).await?;
            Ok::<_, TermOver>(page.map(entries::snapshots))
        });
        let listed: BTreeMap<String, Item> = match pass.await? {
            Ok(listing) => listing.into_entries(),
            Err(error) => {
                let text = error_chain(&error);
                warn!(error = text, "could not list the driver's snapshots");
                self.tell(|Told { findings, .. }| findings.snapshots.failed(text));
                return Ok(());
            }
        };
        let count = listed.len();
        let mut unknown = Unknown::of(IdKind::Snapshot, &scope.driver_name);
        look_at_each(listed.into_values(), |item| unknown.add(item)).await;
        objects.settled().await;
        let known = objects.know_snapshots(&scope.driver_name, &mut unknown).await;
        self.tell(|Told { findings, .. }| match known {
            Ok(()) => findings.snapshots.compare(started, count, unknown),
            Err(error) => findings.snapshots.cannot_tell(error_chain(&error)),
        });
        Ok(())
    }
}
