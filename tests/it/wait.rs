//! Waits for expected states: with watches if possible, otherwise by polling.

use std::fmt::{Debug, Display};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take before it counts as never, on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between the first looks at what can only be asked, not awaited, and at most between later ones. Who has waited for long need not
/// look so often: a look costs the lists of a whole cluster.
const LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// Awaits what must come, within [`PATIENCE`].
pub(crate) async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Looks again and again, within [`PATIENCE`], until there is an answer.
pub(crate) async fn asked<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    settled(what, PATIENCE, async || look().await.ok_or("there is no answer")).await
}

/// Looks again and again, within this time, until nothing is missing. What the last look missed is told in the end. The time
/// between two looks grows to a twentieth of the time that has passed.
pub(crate) async fn settled<T, W: Display>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, W>,
) -> T {
    let mut missing = None;
    let begun = Instant::now();
    let looks = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(still) => missing = Some(still),
            }
            sleep((begun.elapsed() / 20).clamp(LOOK, LONGEST_LOOK)).await;
        }
    };
    let found = timeout(within, looks).await;
    found.unwrap_or_else(|_| panic!("never came: {what}; {}", missing.map_or_else(String::new, |it| it.to_string())))
}

/// Watches one object until it, or its absence, satisfies a condition.
pub(crate) async fn until_some<K>(api: Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let wait = async {
        // Boxed, or it would be a part of every scenario's own state.
        let mut watch = Box::pin(watch_object(api, name).default_backoff());
        while let Some(seen) = watch.next().await {
            // A broken watch begins again by itself.
            let Ok(object) = seen else { continue };
            last = object;
            if holds(last.as_ref()) {
                return;
            }
        }
    };
    let waited = timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "{name} never came to: {what}; it is {last:#?}");
    last
}
