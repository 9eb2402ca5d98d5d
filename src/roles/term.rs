//! How the work of a term ends.

use futures::future::select_all;

use crate::cluster::Subscription;
use crate::election::Term;
use crate::process::TaskEnds;

use super::role::RoleError;

/// Waits for `work`, which ends after the term is over and the work in flight has ended, or earlier with an error.
/// `tasks` and `subscriptions` belong to the term: no task should end before it, and no subscriber should panic.
pub async fn finish(
    work: impl Future<Output = Result<(), RoleError>>,
    term: &Term,
    tasks: &mut TaskEnds,
    subscriptions: &[Subscription],
) -> Result<(), RoleError> {
    tokio::select! {
        biased;
        // A lost lease ends everything at once: another replica may lead already.
        () = term.lost() => Ok(()),
        result = work => result,
        Some(end) = tasks.next() => Err(RoleError::TaskEnded(end)),
        error = panicked(subscriptions) => Err(error),
    }
}

/// Waits until one of the subscribers has panicked. It gets no more changes, so the term cannot continue.
pub async fn panicked(subscriptions: &[Subscription]) -> RoleError {
    if subscriptions.is_empty() {
        return std::future::pending().await;
    }
    let (message, _, _) = select_all(subscriptions.iter().map(|subscription| Box::pin(subscription.panicked()))).await;
    RoleError::SubscriberPanicked(message)
}
