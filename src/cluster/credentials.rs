//! Credentials that are renewed under the clients.
//!
//! ```text
//!   every LOOK, and after a refusal        ┌ not readable ──────────┐
//!   ──────────> Look ── other content? ──> ├ not accepted by the API ┼─> told once, the last ones stay in use
//!                                          └ accepted ──> connections exchanged, watches end and begin anew
//! ```
//!
//! - **The new ones are tried before they are used**: files may be renewed before the server takes what they have, and the old ones
//!   hold until then. So no Lease is lost by a renewal that comes early, by a half-written file, or by a wrong one.
//! - **A refusal is a reason to look**, not to end: 401, and each failure of TLS.
//! - **A restart helps only what has changed**: `/livez` fails where other files are there than those in use and the API refuses
//!   for [`PATIENCE`]. Where no file has changed, a restart would read the same, and the daemon waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::SignedDuration;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt as _};
use tracing::{info, warn};

use super::access::{Access, ClusterAccess, ConnectError, Files, Look};
use super::connections::{AGENT, ClientOptions, Connections, Http, Lane};
use crate::process::{Clock, error_chain};

/// The pause between two looks: six of them fit into the minute within which renewed credentials are to be used.
const LOOK: Duration = Duration::from_secs(10);
/// The pause between two looks while the API refuses. A renewal of a Lease that is refused is repeated after `retryPeriod` (5 s), and
/// finds the new credentials then.
const PACE: Duration = Duration::from_secs(2);
/// How long the API has to answer to new credentials.
const TRIAL: Duration = Duration::from_secs(10);
/// What new credentials ask for: anybody who is known may, or hears 403; who is not known hears 401.
const ASKED: &str = "/api";
/// How long before their expiry the credentials of a program are replaced, if they are valid for more than twice that.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// How long the API may refuse where files have changed before a restart is worth a try. The kubelet brings a changed Secret to a
/// pod within two minutes (its period and its cache have one each), and API servers restart one after another meanwhile.
const PATIENCE: Duration = Duration::from_secs(180);

/// The credentials of the clients, and whether the API takes them. Clones share them.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

struct Shared {
    connections: Mutex<Connections>,
    known: Mutex<Known>,
    refused: Notify,
    /// `None`: nothing that could change.
    source: Option<Source>,
}

struct Source {
    access: ClusterAccess,
    options: ClientOptions,
    used: tokio::sync::Mutex<Used>,
}

/// The credentials in use.
struct Used {
    files: Files,
    is_anonymous: bool,
    is_of_program: bool,
    /// When a program gives new ones.
    due: Option<Instant>,
    looked: Instant,
    /// When the program ran.
    ran: Instant,
}

#[derive(Default)]
struct Known {
    refused: Option<Refused>,
    /// Why what is there is not in use.
    trouble: Option<Trouble>,
}

#[derive(Debug, Clone)]
struct Refused {
    since: Instant,
    /// The last refusal.
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    /// The files that have changed; empty: a program gives no new credentials.
    files: Vec<String>,
    reason: String,
}

/// Why new credentials are not taken over.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("they name no user any more, neither token nor certificate nor program; expected one, as before")]
    Anonymous,
    #[error("the API server does not accept them: 401 Unauthorized")]
    Unauthorized,
    #[error("the API server does not accept them")]
    Request(#[source] BoxError),
    #[error("the API server does not answer to them: {0}")]
    NoAnswer(String),
}

impl Credentials {
    /// Reads them for the first time.
    pub(super) async fn read(access: &ClusterAccess, options: &ClientOptions) -> Result<Self, ConnectError> {
        if let ClusterAccess::Endpoint { dial, token } = access {
            return Ok(Self::fixed(Connections::over(dial, token.as_deref(), options)?));
        }
        let look = Look::at(access);
        let files = look.files.clone();
        let found = look.access().await?;
        let connections = Connections::of(&found, options)?;
        let used = tokio::sync::Mutex::new(Used::new(files, &found));
        let source = Source { access: access.clone(), options: options.clone(), used };
        Ok(Self::new(connections, Some(source)))
    }

    /// Those that never change.
    pub(super) fn fixed(connections: Connections) -> Self {
        Self::new(connections, None)
    }

    fn new(connections: Connections, source: Option<Source>) -> Self {
        let (connections, known) = (Mutex::new(connections), Mutex::default());
        Self(Arc::new(Shared { connections, known, refused: Notify::new(), source }))
    }

    /// The connections now, and when they are replaced.
    pub(super) fn connections(&self, lane: Lane) -> (Http, CancellationToken) {
        let connections = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
        (connections.lane(lane), connections.replaced.clone())
    }

    /// What has become of a request.
    pub(super) fn heard<B>(&self, what: &str, answer: &Result<Response<B>, BoxError>) {
        let reason = match Verdict::of(answer) {
            Verdict::Nothing => return,
            Verdict::Taken => {
                self.known().refused = None;
                return;
            }
            Verdict::Refused(reason) => reason,
        };
        let now = Instant::now();
        let mut known = self.known();
        let since = known.refused.as_ref().map_or(now, |refused| refused.since);
        known.refused = Some(Refused { since, reason: format!("{what}: {reason}") });
        self.0.refused.notify_one();
    }

    /// Looks for new ones until the daemon ends.
    pub async fn renew(self) {
        let Some(source) = &self.0.source else { return std::future::pending().await };
        loop {
            let (looked, due) = {
                let used = source.used.lock().await;
                (used.looked, used.due)
            };
            let next = due.map_or(looked + LOOK, |due| due.clamp(looked + PACE, looked + LOOK));
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.0.refused.notified() => sleep_until(looked + PACE).await,
            }
            self.look().await;
        }
    }

    /// Looks for new ones if the last look is a while ago: before a request of a client that has no task for this.
    pub async fn look_if_due(&self) {
        let Some(source) = &self.0.source else { return };
        let pause = if self.known().refused.is_some() { PACE } else { LOOK };
        let looked = source.used.lock().await.looked;
        if looked.elapsed() >= pause {
            self.look().await;
        }
    }

    /// Reads everything anew, and takes over what has changed.
    pub(super) async fn look(&self) {
        let Some(source) = &self.0.source else { return };
        let mut used = source.used.lock().await;
        used.looked = Instant::now();
        let look = Look::at(&source.access);
        let files = look.files.clone();
        let changed = changed(&used.files, &files);
        if changed.is_empty() && !used.is_worth_a_run(self.known().refused.is_some()) {
            if self.known().trouble.take().is_some() {
                info!("the credentials for the Kubernetes API are those in use again");
            }
            return;
        }
        used.ran = used.looked;
        match source.tried(look, used.is_anonymous).await {
            Ok((found, connections)) => {
                *used = Used::new(files, &found);
                self.exchange(connections);
                info!(
                    files = changed.join(", "),
                    "the credentials for the Kubernetes API were renewed: its connections are made anew"
                );
            }
            Err(error) => {
                used.due = used.due.map(|due| due.max(used.looked + LOOK));
                self.keep(Trouble { files: changed, reason: error_chain(&error) });
            }
        }
    }

    fn exchange(&self, connections: Connections) {
        let old = {
            let mut held = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *held, connections)
        };
        *self.known() = Known::default();
        old.replaced.cancel();
    }

    fn keep(&self, trouble: Trouble) {
        let mut known = self.known();
        if known.trouble.as_ref() == Some(&trouble) {
            return;
        }
        let (files, error) = (trouble.files.join(", "), trouble.reason.as_str());
        warn!(files, error, "cannot use the new credentials for the Kubernetes API: the last ones stay in use");
        known.trouble = Some(trouble);
    }

    /// What is wrong with them, in one sentence for the status page; `None`: nothing.
    pub fn told(&self, now: Instant) -> Option<String> {
        let known = self.known();
        let refused = known.refused.as_ref().map(|refused| {
            let seconds = now.saturating_duration_since(refused.since).as_secs();
            format!("The Kubernetes API refuses the credentials for {seconds} s: {}.", refused.reason)
        });
        let trouble = known.trouble.as_ref().map(|Trouble { files, reason }| match files.as_slice() {
            [] => format!("The kubeconfig's program gives no new credentials: {reason}"),
            files => format!("{} changed, but the credentials cannot be used: {reason}", files.join(", ")),
        });
        (refused.is_some() || trouble.is_some())
            .then(|| refused.into_iter().chain(trouble).collect::<Vec<_>>().join(" "))
    }

    /// `Err`: files have changed, and the API refuses for so long that a restart is worth a try.
    pub fn health(&self, now: Instant) -> Result<(), String> {
        let is_worth_a_restart = {
            let known = self.known();
            known.trouble.as_ref().is_some_and(|trouble| !trouble.files.is_empty())
                && known
                    .refused
                    .as_ref()
                    .is_some_and(|refused| now.saturating_duration_since(refused.since) >= PATIENCE)
        };
        match self.told(now).filter(|_| is_worth_a_restart) {
            Some(told) => Err(told),
            None => Ok(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// Makes connections with what was found, and asks the API whether it takes them.
    async fn tried(&self, look: Look, was_anonymous: bool) -> Result<(Access, Connections), Unfit> {
        let found = look.access().await?;
        if found.is_anonymous() && !was_anonymous {
            return Err(Unfit::Anonymous);
        }
        let connections = Connections::of(&found, &self.options)?;
        let request = Request::get(ASKED).header(USER_AGENT, HeaderValue::from_static(AGENT)).body(Body::empty());
        let request = request.map_err(|error| Unfit::Request(error.into()))?;
        match timeout(TRIAL, connections.lane(Lane::Work).oneshot(request)).await {
            Err(_) => Err(Unfit::NoAnswer(format!("no answer within {TRIAL:?}"))),
            Ok(Err(error)) => Err(Unfit::Request(error)),
            Ok(Ok(response)) => match response.status() {
                StatusCode::UNAUTHORIZED => Err(Unfit::Unauthorized),
                status if is_a_proxys(status) => Err(Unfit::NoAnswer(status.to_string())),
                _ => Ok((found, connections)),
            },
        }
    }
}

impl Used {
    fn new(files: Files, found: &Access) -> Self {
        let now = Instant::now();
        let valid = found.expires.map(|expires| expires.duration_since(Clock::system().wall()));
        let due = valid.map(|valid| {
            let wait = valid.saturating_sub(MARGIN).max(valid / 2);
            now + Duration::try_from(wait).unwrap_or_default()
        });
        let (is_anonymous, is_of_program) = (found.is_anonymous(), found.is_of_program);
        Self { files, is_anonymous, is_of_program, due, looked: now, ran: now }
    }

    /// Whether the program has to run though no file has changed.
    fn is_worth_a_run(&self, is_refused: bool) -> bool {
        let is_due = self.due.is_some_and(|due| due <= self.looked);
        let pause = if is_due { PACE } else { LOOK };
        self.is_of_program && (is_due || is_refused) && self.looked.saturating_duration_since(self.ran) >= pause
    }
}

/// The files that differ. A file that is no longer named belongs to a kubeconfig that differs.
fn changed(old: &Files, new: &Files) -> Vec<String> {
    let other = new.iter().filter(|(path, content)| old.get(*path) != Some(*content));
    other.map(|(path, _)| path.display().to_string()).collect()
}

/// Whether an answer is of a proxy before an API that is not there.
fn is_a_proxys(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// What an answer says of the credentials.
enum Verdict {
    Nothing,
    Taken,
    Refused(String),
}

impl Verdict {
    fn of<B>(answer: &Result<Response<B>, BoxError>) -> Self {
        match answer {
            Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                Self::Refused("401 Unauthorized".to_owned())
            }
            Ok(response) if is_a_proxys(response.status()) => Self::Nothing,
            Ok(_) => Self::Taken,
            Err(error) if is_of_tls(error.as_ref()) => Self::Refused(error_chain(error.as_ref())),
            Err(_) => Self::Nothing,
        }
    }
}

/// Whether an error comes from TLS. An `io::Error` hides its cause from [`std::error::Error::source`].
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>() || inner.is_some_and(|inner| is_of_tls(inner)) || error.source().is_some_and(is_of_tls)
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known();
        f.debug_struct("Credentials")
            .field("refused", &known.refused)
            .field("trouble", &known.trouble)
            .finish_non_exhaustive()
    }
}
