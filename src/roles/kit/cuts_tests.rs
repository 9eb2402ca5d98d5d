//! Cuts a role after a verb of [`Io`](super::Io), as SIGKILL does, and sees that the next leader comes to the same end.
//!
//! A test runs in one thread, so what a cut needs is this thread's.

use std::cell::Cell;
use std::fmt::Debug;

use tokio_util::sync::CancellationToken;

use crate::election::Term;
use crate::roles::kit::served::Served;

thread_local! {
    static PASSED: Cell<usize> = const { Cell::new(0) };
    static CUT_AFTER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A verb is done. If the role is to be cut here, its attempt goes no further.
pub(crate) async fn pass() {
    let passed = PASSED.get() + 1;
    PASSED.set(passed);
    if CUT_AFTER.get() == Some(passed) {
        std::future::pending::<()>().await;
    }
}

/// Plays a scenario to its end, then once more for each verb that it took, cut after that verb. `scene` sets the objects, `end` says how
/// it has ended, once it has.
pub(crate) async fn assert_the_same_end<E: PartialEq + Debug>(
    scene: impl AsyncFn() -> Served,
    end: impl Fn(&Served) -> Option<E>,
) {
    let (expected, verbs) = play(&scene, &end, None).await;
    assert!(verbs > 0, "nothing was done");
    for cut in 1..=verbs {
        let (ended, _) = play(&scene, &end, Some(cut)).await;
        assert_eq!(ended, expected, "cut after verb {cut} of {verbs}");
    }
}

/// How it ended, and how many verbs that took.
async fn play<E>(
    scene: &impl AsyncFn() -> Served,
    end: &impl Fn(&Served) -> Option<E>,
    cut: Option<usize>,
) -> (E, usize) {
    let world = scene().await;
    let term = || Term::permanent(&CancellationToken::new(), world.context.clock);
    PASSED.set(0);
    CUT_AFTER.set(cut);
    world.serve(term());
    // Another key may have gone further meanwhile.
    world.until("an end, or the cut", |world| end(world).is_some() || cut.is_some_and(|cut| PASSED.get() >= cut)).await;
    if cut.is_some() {
        world.die().await;
        CUT_AFTER.set(None);
        world.serve(term());
        world.until("the end", |world| end(world).is_some()).await;
    }
    world.rest().await;
    let (ended, verbs) = (end(&world), PASSED.get());
    world.testbed.tear_down().await;
    (ended.expect("it has ended, and stays so"), verbs)
}
