//! What one attempt of the stage before a claim has done so far. Pure. What the term remembers is the claim's
//! [`Race`].

use crate::cluster::{ApiErrorKind, SmolStr};
use crate::proto::GetCapacityResponse;
use crate::roles::kit::{AttemptError, End, NoReason, Op};

use crate::roles::provisioner::node::contention::{Holder, Race, has_room};

/// Selects this node for the claim.
pub const BECOME_OWNER: Op = Op("cannot select this node for the claim");
/// Reads the Node that is selected for the claim.
pub const READ_NODE: Op = Op("cannot check whether the claim's node still exists");
/// Removes a deleted node from the claim.
pub const RELEASE_OWNERSHIP: Op = Op("cannot remove the deleted node from the claim");

/// Why the stage failed.
pub type NodeError = AttemptError<NoReason>;

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug, Default)]
pub struct Progress {
    /// Whether the API has the node of this name, which the claim had selected.
    pub holder: Option<(String, Holder)>,
    /// The driver's answers for the first of this node's places.
    pub room: Vec<GetCapacityResponse>,
    /// The driver has room, or could not be asked.
    pub has_room: bool,
    /// The deleted node that was removed from the claim. Its journal is not cleared yet.
    pub freed: Option<String>,
    /// A write was forbidden.
    pub refused: Option<Refused>,
    /// The claim is left to others.
    pub is_left: bool,
}

/// A write that was forbidden. Admission may refuse an old version of a claim that it would accept now.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The version of the claim that was seen.
    pub version: Option<SmolStr>,
    /// The refusal.
    pub error: NodeError,
}

/// What a step has brought.
#[derive(Debug)]
pub enum Answer {
    /// Nothing to remember: the next view shows it.
    Nothing,
    /// From now on the contention stands so: a wait has begun, or the driver has no room.
    Race(Race),
    /// Whether the node of this name exists.
    Holder(String, Holder),
    /// The driver has room for the claim here, or cannot say.
    HasRoom,
    /// The driver's answer for one of several places.
    Room(GetCapacityResponse),
    /// Another writer was faster: its change is in the next view.
    Lost,
    /// A write was forbidden; whether it was a try to take the claim.
    Refused(Refused, bool),
    /// The deleted node of this name was removed from the claim.
    Freed(String),
    /// The journal of the deleted node is cleared, if that is possible now.
    JournalCleared,
    /// The claim is left to others for good.
    Left,
}

/// What a step has brought.
pub fn apply(race: &mut Race, progress: &mut Progress, answer: Answer) {
    match answer {
        Answer::Nothing => {}
        Answer::Race(now) => (*race, progress.holder) = (now, None),
        Answer::Holder(node, found) => progress.holder = Some((node, found)),
        Answer::HasRoom => progress.has_room = true,
        Answer::Room(answer) => progress.room.push(answer),
        Answer::Lost => race.lost(),
        Answer::Refused(refused, takes) => {
            progress.refused = Some(refused);
            if takes {
                race.lost();
            }
        }
        Answer::Freed(node) => progress.freed = Some(node),
        Answer::JournalCleared => progress.freed = None,
        Answer::Left => (*race, progress.is_left) = (Race::default(), true),
    }
}

/// What the end of the attempt means for the contention: if another node was selected before our write, the next wait is longer.
pub fn ended(race: &mut Race, end: &End<'_, NoReason>) {
    if let End::Failed(error) = end
        && error.is_of(BECOME_OWNER)
        && error.is_stale()
    {
        race.lost();
    }
}

/// Whether a volume of this size fits, by the driver's answers and the one that has come last. `None`: there are more places to ask for.
pub fn room(before: &[GetCapacityResponse], last: &GetCapacityResponse, places: usize, bytes: i64) -> Option<bool> {
    let answers: Vec<GetCapacityResponse> = before.iter().chain([last]).copied().collect();
    (answers.len() >= places).then(|| has_room(&answers, bytes))
}

/// Whether the API has refused a write because of an admission policy.
pub fn is_forbidden(error: &NodeError) -> bool {
    error.api().is_some_and(|error| error.kind() == ApiErrorKind::Forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::kit::End;

    fn answer(available_capacity: i64) -> GetCapacityResponse {
        GetCapacityResponse { available_capacity, ..GetCapacityResponse::default() }
    }

    #[test]
    fn each_place_is_asked_for_before_there_is_no_room() {
        assert_eq!(room(&[], &answer(10), 1, 10), Some(true));
        assert_eq!(room(&[], &answer(9), 1, 10), Some(false));
        assert_eq!(room(&[], &answer(9), 2, 10), None);
        assert_eq!(room(&[answer(9)], &answer(10), 2, 10), Some(true));
        assert_eq!(room(&[answer(10)], &answer(9), 2, 10), Some(true));
        assert_eq!(room(&[answer(9)], &answer(9), 2, 10), Some(false));
    }

    #[test]
    fn a_new_wait_asks_for_the_node_again_and_a_claim_that_is_left_is_forgotten() {
        let (mut race, mut progress) = (Race::default(), Progress::default());
        apply(&mut race, &mut progress, Answer::Lost);
        assert_ne!(race, Race::default());
        let held = race.clone();
        apply(&mut race, &mut progress, Answer::Holder("n2".to_owned(), Holder::There));
        assert_eq!(progress.holder, Some(("n2".to_owned(), Holder::There)));
        apply(&mut race, &mut progress, Answer::Race(held));
        assert_eq!(progress.holder, None);
        ended(&mut race, &End::Settled);
        apply(&mut race, &mut progress, Answer::Left);
        assert!(progress.is_left && race == Race::default());
    }
}
