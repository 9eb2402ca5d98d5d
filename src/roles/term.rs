//! How the work of a term ends.

use crate::election::Term;
use crate::process::TaskEnds;

use super::role::RoleError;

/// Waits for `work`, which ends by itself once the term is over and what was in flight has ended. `tasks` are those of the term:
/// none of them should end before it.
pub async fn finish(work: impl Future, term: &Term, tasks: &mut TaskEnds) -> Result<(), RoleError> {
    tokio::select! {
        biased;
        // A lost lease ends everything at once: another replica may lead already.
        () = term.lost() => Ok(()),
        _ = work => Ok(()),
        Some(end) = tasks.next() => Err(RoleError::TaskEnded(end)),
    }
}
