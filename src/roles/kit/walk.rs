//! Walks over all objects of a kind: there may be a hundred thousand.

use tokio::task::yield_now;

/// The objects that are looked at before other tasks of the thread get their turn: less than a millisecond's work.
const PORTION: usize = 256;

/// Looks at each of these objects. Other tasks get their turn in between, so objects may change meanwhile.
pub async fn look_at_each<T>(objects: impl IntoIterator<Item = T>, mut look: impl FnMut(T)) {
    for (number, object) in objects.into_iter().enumerate() {
        if number > 0 && number % PORTION == 0 {
            yield_now().await;
        }
        look(object);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_long_walk_leaves_others_their_turn_and_looks_at_each_object_once() {
        let seen = Cell::new(0);
        let mut walk = Box::pin(look_at_each(0..=2 * PORTION, |number| {
            assert_eq!(number, seen.replace(number + 1));
        }));
        for expected in [PORTION, 2 * PORTION] {
            assert_eq!(walk.as_mut().now_or_never(), None);
            assert_eq!(seen.get(), expected);
        }
        walk.await;
        assert_eq!(seen.get(), 2 * PORTION + 1);
        let few = look_at_each(0..PORTION, |_| {});
        assert!(few.now_or_never().is_some(), "a short walk is one step");
    }
}
