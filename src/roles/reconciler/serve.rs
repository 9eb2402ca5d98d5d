//! One term of the reconciler: a pass, a pause, and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use thiserror::Error;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, info, info_span, warn};

use crate::cluster::IdKind;
use crate::csi::{Client, RpcError, VolumeListing};
use crate::diagnostics::Registered;
use crate::election::{Term, TermOver};
use crate::process::{error_chain, watch};
use crate::proto::{ListSnapshotsRequest, ListVolumesRequest};
use crate::roles::kit::TermScope;
use crate::roles::kit::listing::{Listing, Next, Page, PagingError};
use crate::roles::reconciler::metrics;
use crate::roles::role::{Role, RoleContext, RoleError};

use super::NAME;
use super::config::ReconcilerSection;
use super::entries::{self, ListedVolume};
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

/// A pass that ended without a listing.
#[derive(Debug, Error)]
enum PassError {
    #[error("page {page} of {rpc} failed")]
    Page {
        rpc: &'static str,
        page: u32,
        #[source]
        source: RpcError,
    },
    #[error(transparent)]
    Paging(#[from] PagingError),
    #[error(transparent)]
    TermOver(#[from] TermOver),
}

impl Role for Reconciler {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let scope = TermScope::with_timeout(NAME, role, &term, Some(self.section.page_timeout));
            let passes = Passes { of: self, role, scope, lists: self.lists(role), told: Arc::default() };
            let _shown = passes.show();
            tokio::select! {
                biased;
                () = term.over() => {}
                () = passes.for_ever() => {}
            }
            Ok(())
        }
        .boxed()
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

/// What the status page tells of the passes of a term.
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
        let mut shown = [0, 0];
        for pass in 1_u64.. {
            let started = self.scope.clock.now();
            let pause = self.of.section.interval;
            self.role.driver.operations.prune(started.checked_sub(pause.saturating_mul(4)).unwrap_or(started));
            let span = info_span!("reconcile", role = NAME, pass);
            let passed = async {
                if published || volumes {
                    self.pass_volumes().await?;
                }
                if snapshots {
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
            tokio::time::sleep(pause).await;
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        self.told.send_modify(change);
    }

    /// Lists the volumes, once for all that is made of it.
    async fn pass_volumes(&self) -> Result<(), TermOver> {
        let started = self.scope.clock.now();
        let (scope, max_entries) = (&self.scope, self.of.section.page_size);
        let pass = pass("ListVolumes", |starting_token| async move {
            let request = ListVolumesRequest { max_entries, starting_token };
            let page = scope.ask(async |driver: Client| driver.list_volumes(request).await).await?;
            Ok(page.map(entries::volumes))
        });
        let driver: &str = &scope.driver_name;
        let result = match pass.await {
            Ok(listing) => {
                let finished = scope.clock.now();
                let seconds = (finished - started).as_secs_f64();
                scope.meter.histogram(&metrics::RECONCILE_DURATION, &[("driver_name", driver)]).record(seconds);
                let pages = listing.pages();
                let listed = listing.into_entries();
                debug!(pages, volumes = listed.len(), "listed the driver's volumes");
                if self.lists.published {
                    let volumes = entries::published(&listed);
                    self.role.driver.listings.publish(VolumeListing { started, finished, volumes });
                }
                self.tell(|told| told.failing = Failing::default());
                self.compare_volumes(started, listed).await;
                "ok"
            }
            Err(PassError::TermOver(over)) => return Err(over),
            Err(error) => {
                let text = error_chain(&error);
                warn!(error = text, "could not list the driver's volumes");
                self.tell(|Told { failing, .. }| {
                    *failing = Failing { passes: failing.passes.saturating_add(1), error: text };
                });
                error.label()
            }
        };
        scope.meter.counter(&metrics::RECONCILE_PASSES, &[("driver_name", driver), ("result", result)]).increment(1);
        Ok(())
    }

    async fn compare_volumes(&self, started: Instant, listed: BTreeMap<String, ListedVolume>) {
        let Some(objects) = &self.of.objects else { return };
        let count = listed.len();
        let items = listed.into_values().map(|volume| volume.item);
        let mut unknown = Unknown::all(IdKind::Volume, &self.scope.driver_name, items);
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
        let pass = pass("ListSnapshots", |starting_token| async move {
            let request = ListSnapshotsRequest { max_entries, starting_token, ..ListSnapshotsRequest::default() };
            let page = scope.ask(async |driver: Client| driver.list_snapshots(request).await).await?;
            Ok(page.map(entries::snapshots))
        });
        let listed: BTreeMap<String, Item> = match pass.await {
            Ok(listing) => listing.into_entries(),
            Err(PassError::TermOver(over)) => return Err(over),
            Err(error) => {
                let text = error_chain(&error);
                warn!(error = text, "could not list the driver's snapshots");
                self.tell(|Told { findings, .. }| findings.snapshots.failed(text));
                return Ok(());
            }
        };
        let count = listed.len();
        let mut unknown = Unknown::all(IdKind::Snapshot, &scope.driver_name, listed.into_values());
        objects.settled().await;
        let known = objects.know_snapshots(&scope.driver_name, &mut unknown);
        self.tell(|Told { findings, .. }| match known {
            Ok(()) => findings.snapshots.compare(started, count, unknown),
            Err(error) => findings.snapshots.cannot_tell(error_chain(&error)),
        });
        Ok(())
    }
}

/// Asks for all pages of a list. Each has its own deadline.
async fn pass<T, F>(rpc: &'static str, mut ask: impl FnMut(String) -> F) -> Result<Listing<T>, PassError>
where
    F: Future<Output = Result<Result<Page<T>, RpcError>, TermOver>>,
{
    let mut listing = Listing::of(rpc);
    let mut starting_token = String::new();
    loop {
        let page =
            ask(starting_token).await?.map_err(|source| PassError::Page { rpc, page: listing.pages() + 1, source })?;
        match listing.take(page)? {
            Next::Page(token) => starting_token = token,
            Next::Complete => return Ok(listing),
        }
    }
}

impl PassError {
    fn label(&self) -> &'static str {
        match self {
            Self::Page { source, .. } => source.label(),
            Self::Paging(PagingError::Loop { .. }) => "TokenLoop",
            Self::Paging(PagingError::Endless { .. }) => "EndlessPages",
            Self::TermOver(_) => "TermOver",
        }
    }
}
