//! One write for both jobs of a claim, where they share a turn and come with their writes at the same time (resizer spec 5.3).
//!
//! ```text
//! first job:  offers its patch ── waits ──┬── the other has written both                  Meeting::Written
//!                                         └── nobody came, or the other writes elsewhere  Meeting::Write(its own)
//! second job: finds the offer ───────────────────────────────────────────────────────────  Meeting::Write(both)
//! ```
//!
//! Only patches that were made from one version of an object are put together. If the write fails, the job that wrote it reports
//! that, and the other looks again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cluster::{Patch, SmolStr};

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The claim's status.
    Claim,
    /// The volume's object.
    Volume,
}

/// What has come of an offer.
#[derive(Debug)]
pub enum Meeting {
    /// This job writes. If both jobs' writes are in the patch, the other is told by [`Told::written`].
    Write(Patch, Told),
    /// The other job has written both.
    Written,
    /// The other job would have written both, and could not.
    LookAgain,
}

/// The other job, which waits to be told. It looks again if it never is.
#[derive(Debug, Default)]
pub struct Told(Option<oneshot::Sender<Answer>>);

impl Told {
    /// Both are written.
    pub fn written(self) {
        if let Some(other) = self.0 {
            // Whoever no longer waits has ended.
            let _ = other.send(Answer::Written);
        }
    }
}

#[derive(Debug)]
enum Answer {
    Written,
    /// The other job has nothing to write here.
    WriteAlone,
}

#[derive(Debug)]
struct Offer {
    place: Place,
    version: SmolStr,
    patch: Value,
    other: oneshot::Sender<Answer>,
}

/// Where the jobs of one turn leave their patches for each other.
#[derive(Debug, Default)]
pub struct Desk(Mutex<Option<Offer>>);

impl Desk {
    /// Comes with a patch that was made from this version. `patience`: how long the other job is waited for.
    pub async fn meet(&self, place: Place, version: &str, patch: &Patch, patience: Duration) -> Meeting {
        let Patch::Strategic(ours) = patch else { return Meeting::Write(patch.clone(), Told::default()) };
        let alone = || Meeting::Write(patch.clone(), Told::default());
        let answer = {
            let mut desk = self.desk();
            match desk.take() {
                Some(theirs) if theirs.place == place && theirs.version == version => {
                    let both = Patch::Strategic(merged(theirs.patch, ours.clone()));
                    return Meeting::Write(both, Told(Some(theirs.other)));
                }
                // It waits for what never comes.
                Some(theirs) => drop(theirs.other.send(Answer::WriteAlone)),
                None => {}
            }
            if patience.is_zero() {
                return alone();
            }
            let (other, answer) = oneshot::channel();
            *desk = Some(Offer { place, version: version.into(), patch: ours.clone(), other });
            answer
        };
        self.wait(answer, patience).await.map_or_else(alone, |answer| match answer {
            Ok(Answer::Written) => Meeting::Written,
            Ok(Answer::WriteAlone) => alone(),
            Err(_) => Meeting::LookAgain,
        })
    }

    /// What the other job says; nothing if it has not come.
    async fn wait(
        &self,
        mut answer: oneshot::Receiver<Answer>,
        patience: Duration,
    ) -> Option<Result<Answer, oneshot::error::RecvError>> {
        if let Ok(said) = timeout(patience, &mut answer).await {
            return Some(said);
        }
        // Who closes while nobody has taken the offer takes it back.
        let offer = self.desk().take();
        if offer.is_some() {
            return None;
        }
        Some(answer.await)
    }

    fn desk(&self) -> MutexGuard<'_, Option<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both patches in one: members of both, and the items of both lists. What both say they say alike.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (name, value) in other {
                let both = match one.remove(&name) {
                    Some(held) => merged(held, value),
                    None => value,
                };
                one.insert(name, both);
            }
            Value::Object(one)
        }
        (Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            Value::Array(one)
        }
        (_, other) => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    fn patch(body: Value) -> Patch {
        Patch::Strategic(body)
    }

    fn size() -> Patch {
        patch(json!({ "metadata": { "uid": "u", "resourceVersion": "1" },
            "status": { "allocatedResources": { "storage": "2Gi" }, "conditions": [{ "type": "Resizing" }] } }))
    }

    fn class() -> Patch {
        patch(json!({ "metadata": { "uid": "u" },
            "status": { "modifyVolumeStatus": { "status": "InProgress" }, "conditions": [{ "type": "ModifyingVolume" }] } }))
    }

    #[tokio::test(start_paused = true)]
    async fn z50_two_patches_of_one_version_are_one_write() {
        let (desk, size) = (Desk::default(), size());
        let second = async {
            let Meeting::Write(both, told) = desk.meet(Place::Claim, "1", &class(), LONG).await else { panic!() };
            told.written();
            both
        };
        let (first, both) = tokio::join!(desk.meet(Place::Claim, "1", &size, LONG), second);
        assert!(matches!(first, Meeting::Written), "{first:?}");
        let expected = json!({ "metadata": { "uid": "u", "resourceVersion": "1" }, "status": {
            "allocatedResources": { "storage": "2Gi" }, "modifyVolumeStatus": { "status": "InProgress" },
            "conditions": [{ "type": "Resizing" }, { "type": "ModifyingVolume" }] } });
        assert_eq!(both, patch(expected));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_not_met_in_time_writes_alone() {
        let desk = Desk::default();
        for patience in [Duration::ZERO, LONG] {
            let began = tokio::time::Instant::now();
            let Meeting::Write(own, _) = desk.meet(Place::Claim, "1", &size(), patience).await else { panic!() };
            assert_eq!((own, began.elapsed() < patience + LONG / 10), (size(), true));
        }
        assert!(desk.desk().is_none(), "nothing stays for the next one");
    }

    #[tokio::test(start_paused = true)]
    async fn patches_of_other_versions_or_objects_stay_apart_and_hold_nobody_up() {
        for (place, version) in [(Place::Claim, "2"), (Place::Volume, "1")] {
            let (desk, size, class) = (Desk::default(), size(), class());
            let began = tokio::time::Instant::now();
            let second = desk.meet(place, version, &class, Duration::ZERO);
            let (first, second) = tokio::join!(desk.meet(Place::Claim, "1", &size, LONG), second);
            let own = |meeting: &Meeting| matches!(meeting, Meeting::Write(_, Told(None)));
            assert!(own(&first) && own(&second), "{first:?} {second:?}");
            assert!(began.elapsed() < LONG, "the first knows at once that nobody comes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_let_down_looks_again() {
        let (desk, size) = (Desk::default(), size());
        let second = async { drop(desk.meet(Place::Claim, "1", &class(), LONG).await) };
        let (first, ()) = tokio::join!(desk.meet(Place::Claim, "1", &size, LONG), second);
        assert!(matches!(first, Meeting::LookAgain), "{first:?}");
    }
}
