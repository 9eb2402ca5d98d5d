//! How the work of a term ends.

use futures::future::select_all;

use crate::cluster::Subscription;
use crate::election::Term;
use crate::process::TaskEnds;

use super::role::RoleError;

/// Waits for `work`, which ends by itself once the term is over and what was in flight has ended, or earlier in an error. `tasks`
/// and `subscriptions` are those of the term: none of the tasks should end before it, and no subscriber should panic.
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

/// Waits until one of the subscribers has panicked. The cache tells it nothing more, so the term cannot go on.
pub async fn panicked(subscriptions: &[Subscription]) -> RoleError {
    if subscriptions.is_empty() {
        return std::future::pending().await;
    }
    let (message, _, _) = select_all(subscriptions.iter().map(|subscription| Box::pin(subscription.panicked()))).await;
    RoleError::SubscriberPanicked(message)
}
