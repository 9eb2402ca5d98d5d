//! A Kubernetes API in this process: real HTTP, generic over kinds, faithful to kube-apiserver in what clients can see.
//!
//! ```text
//!   connection ─> server ─> http ─> access (auth) ─> scripted faults (faults) ─> parse (call, params)
//!                                                                                  │
//!                     audit <── answer (json, Table, metadata only) <── store <────┤
//!                                                                         │        │
//!                                          hooks, at every commit <───────┘      watch
//! ```
//!
//! The decisions without I/O are in [`pure`]. Intentionally missing: controllers (no garbage collection by owner, no kubelet,
//! so a deleted pod disappears at once; some are in [`super::actors`]), most of admission, and the schema of fields: objects
//! are stored as they were sent.
//!
//! One current-thread runtime with paused time runs the whole of it deterministically: chance comes from the seeded
//! [`Rng`], time from tokio, and there are no threads.

pub mod audit;
pub mod auth;
mod call;
mod direct;
pub mod faults;
mod http;
pub mod kubeconfig;
mod params;
pub mod pure;
mod server;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

pub use direct::{DirectError, PatchBody};
pub use server::{Connections, serve, tcp_connections};
pub use store::{Committed, Hook, Snapshot};

use audit::Audit;
pub use auth::{Grant, Identity, Policy, PolicyRule, Token};
use base::process::{Clock, Rng};
use faults::FaultScript;
use pure::rejection::Rejection;
use pure::resources::{self, Resource};
use store::State;

/// How long a request waits for a version that the store has not reached, as the real server does.
const PATIENCE: Duration = Duration::from_secs(3);

/// The settings of an API.
#[derive(Debug)]
pub struct ApiOptions {
    /// The clock.
    pub clock: Clock,
    /// The source of uids and generated names.
    pub rng: Rng,
    /// How often a watch that allows bookmarks gets one.
    pub bookmark_period: Duration,
    /// The number of changes that are remembered for watches and old versions.
    pub history_limit: usize,
    /// Whether every write notes in `metadata.managedFields` which fields it owns. Server-side apply does so in any case;
    /// without it, it meets no conflicts with other writes, and a simulation runs faster.
    pub managed_fields: bool,
    /// Who may come in. Empty: anyone, as administrator, without a token. Otherwise who brings no token is
    /// `system:anonymous`, and a token that is not here is refused.
    pub tokens: BTreeMap<Token, Identity>,
}

impl ApiOptions {
    /// An open API with the real server's bookmark period.
    pub fn new(clock: Clock, rng: Rng) -> Self {
        Self {
            clock,
            rng,
            bookmark_period: Duration::from_secs(60),
            history_limit: 10_000,
            managed_fields: true,
            tokens: BTreeMap::new(),
        }
    }
}

/// The API. Clones are the same API.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    clock: Clock,
    rng: Rng,
    bookmark_period: Duration,
    state: Mutex<State>,
    /// Whether who brings no token comes in as administrator.
    open: bool,
    tokens: Mutex<BTreeMap<Token, Identity>>,
    audit: Audit,
    faults: FaultScript,
}

impl Api {
    /// An API with nothing in it but the namespaces of every cluster. Serve it with [`serve`].
    pub fn new(options: ApiOptions) -> Self {
        let ApiOptions { clock, rng, bookmark_period, history_limit, managed_fields, tokens } = options;
        let state = Mutex::new(State::new(clock, rng.clone(), history_limit, managed_fields));
        let (audit, faults) = (Audit::default(), FaultScript::default());
        let (open, tokens) = (tokens.is_empty(), Mutex::new(tokens));
        Self(Arc::new(Inner { clock, rng, bookmark_period, state, open, tokens, audit, faults }))
    }

    /// The log of requests and answers.
    pub fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// The scripted faults.
    pub fn faults(&self) -> &FaultScript {
        &self.0.faults
    }

    /// Installs the optional kinds of a group (`snapshot.storage.k8s.io`, `gateway.networking.k8s.io`), as their
    /// definitions would: until then a cluster answers that it knows no such place. A kind with several versions is served in
    /// the one that `group/version` names, and otherwise as `v1`.
    pub fn install(&self, group: &str) {
        self.state().install(group);
    }

    /// Removes the kinds of a group, as a user does who deletes their definitions.
    pub fn uninstall(&self, group: &str) {
        self.state().uninstall(group);
    }

    /// From now on new claims and volumes are held by a finalizer, which somebody must take off when they are no longer in
    /// use: [`super::actors`].
    pub fn protect_storage_in_use(&self) {
        self.state().protect_storage_in_use();
    }

    /// From now on claims may name sources in other namespaces, as with the feature gate `CrossNamespaceVolumeDataSource`.
    /// Before, such a name is dropped.
    pub fn allow_sources_anywhere(&self) {
        self.state().allow_sources_anywhere();
    }

    /// From now on claims may tell the health of their volumes, as with the feature gate `CSIVolumeHealth`. Before, what a claim that
    /// tells none says of it is dropped.
    pub fn keep_volume_health(&self) {
        self.state().keep_volume_health();
    }

    /// Whether a cluster has the kind.
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        self.state().serves(resource)
    }

    /// The kinds that the cluster has.
    fn served(&self) -> Vec<&'static Resource> {
        let state = self.state();
        resources::served(|resource| state.serves(resource))
    }

    /// Calls `hook` on every change committed from now on.
    pub fn on_commit(&self, hook: impl Fn(&Committed<'_>) + Send + Sync + 'static) {
        self.state().hook(Arc::new(hook));
    }

    /// Forgets the history: watches that lag behind, old versions and pages of lists are gone.
    pub fn compact(&self) {
        self.state().compact();
    }

    /// The present time, as `metadata` and a status have it.
    pub fn timestamp(&self) -> String {
        self.state().timestamp()
    }

    /// The latest resourceVersion.
    pub fn version(&self) -> u64 {
        self.state().version()
    }

    /// Sends each new resourceVersion: a level to wait on.
    pub fn versions(&self) -> base::process::watch::Receiver<u64> {
        self.state().changes()
    }

    /// Lets the owner of a token in, from now on with these rights.
    pub fn admit(&self, token: impl Into<Token>, identity: Identity) {
        self.tokens().insert(token.into(), identity);
    }

    /// Shuts a token out. Running watches go on, as they do in a real cluster.
    pub fn expel(&self, token: impl Into<Token>) {
        self.tokens().remove(&token.into());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeMap<Token, Identity>> {
        self.0.tokens.lock()
    }

    /// The identity of this token, or of none.
    fn identify(&self, token: Option<&str>) -> Result<Identity, Rejection> {
        match token {
            Some(token) => self.tokens().get(&Token::from(token)).cloned().ok_or_else(Rejection::unauthorized),
            None if self.0.open => Ok(Identity::admin("system:admin")),
            None => Ok(Identity::anonymous()),
        }
    }

    /// Waits until the store has reached `version`, for as long as the real server would.
    async fn reach(&self, version: u64) -> Result<(), Rejection> {
        let mut versions = self.versions();
        let reached = versions.wait_for(|current| *current >= version);
        let waited = tokio::time::timeout(PATIENCE, reached).await.is_ok_and(|reached| reached.is_ok());
        if waited { Ok(()) } else { Err(Rejection::too_large_resource_version(version, self.version())) }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("version", &self.version()).finish_non_exhaustive()
    }
}
