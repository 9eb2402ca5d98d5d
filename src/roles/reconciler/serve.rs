//! One term of the reconciler: a pass, a pause, and again.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, info, info_span, warn};

use crate::csi::{Client, RpcError, VolumeListing};
use crate::diagnostics::{Age, Fact};
use crate::election::{Term, TermOver};
use crate::process::error_chain;
use crate::proto::ListVolumesRequest;
use crate::roles::kit::TermScope;
use crate::roles::reconciler::metrics;
use crate::roles::role::{Role, RoleContext, RoleError};

use super::NAME;
use super::config::ReconcilerSection;
use super::listing::{Listing, Next, PagingError};

/// The role.
#[derive(Debug)]
pub(super) struct Reconciler {
    pub(super) section: ReconcilerSection,
}

/// A pass that ended without a listing.
#[derive(Debug, Error)]
enum PassError {
    #[error("page {page} of ListVolumes failed")]
    Page {
        page: u32,
        #[source]
        source: RpcError,
    },
    #[error(transparent)]
    Paging(#[from] PagingError),
    #[error(transparent)]
    TermOver(#[from] TermOver),
}

/// The passes since the last one that ended with a listing.
#[derive(Debug, Default)]
struct Failing {
    passes: u64,
    error: String,
}

impl Role for Reconciler {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let failing = watch::Sender::new(Failing::default());
            let _shown = role.board.facts(NAME, {
                let (published, failing, clock) = (role.driver.listings.clone(), failing.subscribe(), role.clock);
                let can_list = can_list(role);
                move || facts(can_list, published.latest().as_deref(), &failing.borrow(), clock.now())
            });
            tokio::select! {
                biased;
                () = term.over() => {}
                () = self.pass_for_ever(role, &term, &failing) => {}
            }
            Ok(())
        }
        .boxed()
    }
}

/// Whether the driver lists its volumes, each with the nodes where it is published.
fn can_list(role: &RoleContext) -> bool {
    let capabilities = &role.driver.capabilities;
    capabilities.list_volumes() && capabilities.list_volumes_published_nodes()
}

impl Reconciler {
    async fn pass_for_ever(&self, role: &RoleContext, term: &Term, failing: &watch::Sender<Failing>) {
        if !can_list(role) {
            info!("the driver cannot list where its volumes are published: nothing to reconcile");
            return std::future::pending().await;
        }
        let scope = TermScope::with_timeout(NAME, role, term, Some(self.section.page_timeout));
        let driver: &str = &role.driver.name;
        for pass in 1_u64.. {
            let started = role.clock.now();
            role.driver
                .operations
                .prune(started.checked_sub(self.section.interval.saturating_mul(4)).unwrap_or(started));
            let span = info_span!("reconcile", role = NAME, pass);
            let result = match self.pass(&scope).instrument(span).await {
                Ok(listing) => {
                    let finished = role.clock.now();
                    role.meter
                        .histogram(&metrics::RECONCILE_DURATION, &[("driver_name", driver)])
                        .record((finished - started).as_secs_f64());
                    let pages = listing.pages();
                    let volumes = listing.into_volumes();
                    debug!(pass, pages, volumes = volumes.len(), "listed the driver's volumes");
                    role.driver.listings.publish(VolumeListing { started, finished, volumes });
                    failing.send_replace(Failing::default());
                    "ok"
                }
                Err(PassError::TermOver(_)) => return,
                Err(error) => {
                    let told = error_chain(&error);
                    warn!(pass, error = told, "could not list the driver's volumes");
                    failing.send_modify(|it| *it = Failing { passes: it.passes.saturating_add(1), error: told });
                    error.label()
                }
            };
            role.meter.counter(&metrics::RECONCILE_PASSES, &[("driver_name", driver), ("result", result)]).increment(1);
            tokio::time::sleep(self.section.interval).await;
        }
    }

    async fn pass(&self, scope: &TermScope) -> Result<Listing, PassError> {
        let mut listing = Listing::default();
        let mut starting_token = String::new();
        loop {
            let request = ListVolumesRequest { max_entries: self.section.page_size, starting_token };
            let list = async |driver: Client| driver.list_volumes(request).await;
            let page =
                scope.ask(list).await?.map_err(|source| PassError::Page { page: listing.pages() + 1, source })?;
            match listing.take(page)? {
                Next::Page(token) => starting_token = token,
                Next::Complete => return Ok(listing),
            }
        }
    }
}

/// For the status page.
fn facts(can_list: bool, last: Option<&VolumeListing>, failing: &Failing, now: Instant) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    if !can_list {
        return vec![fact("idle", "the driver does not list where its volumes are published".to_owned())];
    }
    let last = last.map(|pass| {
        let took = Age(pass.finished.saturating_duration_since(pass.started));
        let ago = Age(now.saturating_duration_since(pass.finished));
        fact("last pass", format!("{} volumes in {took}, {ago} ago", pass.volumes.len()))
    });
    let failing = (failing.passes > 0)
        .then(|| fact("failed passes since", format!("{}, the last one: {}", failing.passes, failing.error)));
    last.into_iter().chain(failing).collect()
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
