//! Whether the kube-controller-manager that was active as attach/detach controller is gone: by its Lease.
//!
//! The Lease does not say whether its holder has that controller (attach-detach spec 1). But once the process that was active does not hold
//! it any more, nothing is known of one, as at the beginning of a term.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::cluster::{Lease, LeaseSpec, ObjectName};
use crate::process::ErrorChain;
use crate::roles::kit::TermScope;

/// Where the Lease is.
pub(super) const LEASE: [&str; 2] = ["kube-system", "kube-controller-manager"];
/// Between two looks at it.
const LOOK: Duration = Duration::from_secs(10);
/// A holder that has not renewed it for so many times its duration does not lead: it ends itself before the first is over.
const DURATIONS: u32 = 4;
/// The duration, if the Lease does not say it: kube-controller-manager's default.
const DURATION: u32 = 15;

/// Why the process that was active is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// It does not hold the Lease any more.
    Replaced,
    /// It has not renewed the Lease.
    Silent,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [namespace, name] = LEASE;
        let what = match self {
            Self::Replaced => "has another holder, or none",
            Self::Silent => "is not renewed any more",
        };
        write!(f, "the Lease {namespace}/{name} {what}")
    }
}

/// The Lease as it was first seen since the other controller was active, and when its holder has renewed it for the last time.
#[derive(Debug, Default)]
struct Watched(Option<(LeaseSpec, Instant)>);

impl Watched {
    /// Takes in the Lease as it is now. Why the first holder is gone, if it is. A Lease that does not exist says nothing: its holder makes it
    /// anew.
    fn look(&mut self, lease: Option<LeaseSpec>, now: Instant) -> Option<Gone> {
        let lease = lease?;
        let Some((held, renewed)) = &mut self.0 else {
            self.0 = lease.holder_identity.is_some().then_some((lease, now));
            return None;
        };
        if held.holder_identity != lease.holder_identity {
            return Some(Gone::Replaced);
        }
        if held.renew_time != lease.renew_time {
            (*held, *renewed) = (lease, now);
        }
        let seconds = held.lease_duration_seconds.unwrap_or(DURATION).saturating_mul(DURATIONS);
        let is_silent = now.saturating_duration_since(*renewed) >= Duration::from_secs(seconds.into());
        is_silent.then_some(Gone::Silent)
    }
}

/// Waits until the kube-controller-manager that leads now does not lead any more. For ever, if its Lease cannot be read.
pub(super) async fn is_gone(scope: &TermScope) -> Gone {
    let [namespace, name] = LEASE;
    let (name, mut watched, mut is_said) = (ObjectName::namespaced(namespace, name), Watched::default(), false);
    loop {
        let name = &name;
        let Ok(read) = scope.in_task(|api| async move { api.get_opt::<Lease>(name).await }).await else {
            return pending().await;
        };
        match read {
            Ok(lease) => {
                if let Some(why) = watched.look(lease.map(|lease| lease.spec), scope.clock.now()) {
                    return why;
                }
            }
            Err(error) if is_said => debug!(error = %ErrorChain(&error), "cannot read the Lease {name}"),
            Err(error) => {
                is_said = true;
                warn!(
                    error = %ErrorChain(&error),
                    "cannot read the Lease {name}: as long as that is so, the role does not begin again by itself"
                );
            }
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewed: u32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()).filter(|it| !it.is_empty()),
            renew_time: Some(format!("2026-01-01T00:00:{renewed:02}Z")),
            lease_duration_seconds: Some(15),
        }
    }

    /// The verdict on the last of these Leases, each seen so many seconds after the first.
    fn verdict(seen: &[(u64, Option<LeaseSpec>)]) -> Option<Gone> {
        let (begun, mut watched) = (Instant::now(), Watched::default());
        let look =
            |(at, lease): &(u64, Option<LeaseSpec>)| watched.look(lease.clone(), begun + Duration::from_secs(*at));
        let mut verdicts: Vec<_> = seen.iter().map(look).collect();
        let last = verdicts.pop().flatten();
        assert!(verdicts.iter().all(Option::is_none), "{verdicts:?}");
        last
    }

    #[tokio::test(start_paused = true)]
    async fn d28_a_process_is_gone_once_it_does_not_hold_its_lease() {
        let (lease, unset) = (|holder, renewed| Some(spec(holder, renewed)), || Some(LeaseSpec::default()));
        for (case, seen, expected) in [
            ("nothing is known of who was active", vec![(0, None), (99, None)], None),
            ("it takes part in no election", vec![(0, unset()), (99, unset())], None),
            ("the first that is seen is watched", vec![(0, None), (5, unset()), (9, lease("a", 1))], None),
            ("it renews", vec![(0, lease("a", 1)), (59, lease("a", 2)), (118, lease("a", 3))], None),
            ("another one leads", vec![(0, lease("a", 1)), (9, lease("b", 2))], Some(Gone::Replaced)),
            ("it has ended", vec![(0, lease("a", 1)), (9, lease("", 2))], Some(Gone::Replaced)),
            ("its Lease was deleted by hand", vec![(0, lease("a", 1)), (99, None)], None),
            ("and is made anew", vec![(0, lease("a", 1)), (9, None), (19, lease("a", 2))], None),
            ("it pauses", vec![(0, lease("a", 1)), (59, lease("a", 1))], None),
            ("it is silent", vec![(0, lease("a", 1)), (9, lease("a", 2)), (69, lease("a", 2))], Some(Gone::Silent)),
        ] {
            assert_eq!(verdict(&seen), expected, "{case}");
        }
    }
}
