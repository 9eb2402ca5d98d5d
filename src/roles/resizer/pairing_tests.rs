//! Tables of how the changes of a claim meet with their writes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::fixtures::{claim, progress, rules, view, volume};
use super::job::Job;
use super::pairing::{Meeting, meet, meeting, merged};
use super::progress::{Answer, Memory, Pairing, Progress};
use super::reconcile::Changes;
use super::step::{Begin, Offer, Place, Step, Write};
use super::view::{Partner, Rules, View};
use crate::roles::kit::Reconcile as _;

const LONG: Duration = Duration::from_secs(1);

fn paired(job: Job, partner: Partner) -> (View, Progress) {
    let mut view = view(job, claim(json!({})), Some(volume(json!({}))));
    (view.rules, view.partner) = (Arc::new(Rules { pairs: true, ..rules() }), Some(partner));
    (view, progress(job))
}

fn partner(pairing: Pairing) -> Partner {
    Partner { is_wanted: true, is_at_work: true, pairing }
}

fn offer(place: Place, version: &str) -> Offer {
    Offer { place, version: version.into(), patch: json!({ "metadata": { "uid": "claim-uid" } }) }
}

fn mark() -> Write {
    Write::BeginExpansion(Begin { sets_resizing: true, ..Begin::default() })
}

#[test]
fn z50_both_jobs_of_a_claim_share_a_turn_only_where_calls_are_paired() {
    for pairs in [true, false] {
        let group = |job, uid: &str| {
            let mut view = view(job, claim(json!({ "metadata": { "uid": uid } })), None);
            view.rules = Arc::new(Rules { pairs, ..rules() });
            Changes::group(&view).map(str::to_owned)
        };
        let own = group(Job::Expand, "u1");
        assert_eq!((own.is_some(), &own), (pairs, &group(Job::Modify, "u1")));
        assert_eq!(own == group(Job::Expand, "u2"), !pairs, "another claim with the same volume waits");
    }
    let (mut alone, progress) = paired(Job::Expand, partner(Pairing::None));
    alone.partner = None;
    assert_eq!(meet(&alone, &progress, mark()), Step::Write(mark()));
}

#[test]
fn z50_two_patches_of_one_version_are_one_write() {
    let size = json!({ "metadata": { "uid": "u", "resourceVersion": "1" },
        "status": { "allocatedResources": { "storage": "2Gi" }, "conditions": [{ "type": "Resizing" }] } });
    let class = json!({ "metadata": { "uid": "u" },
        "status": { "modifyVolumeStatus": { "status": "InProgress" }, "conditions": [{ "type": "ModifyingVolume" }] } });
    let both = json!({ "metadata": { "uid": "u", "resourceVersion": "1" }, "status": {
        "allocatedResources": { "storage": "2Gi" }, "modifyVolumeStatus": { "status": "InProgress" },
        "conditions": [{ "type": "Resizing" }, { "type": "ModifyingVolume" }] } });
    assert_eq!(merged(size, class), both);

    // The first one offers, the second one takes that, and the first one sees it.
    let (first, mut progress) = paired(Job::Expand, partner(Pairing::None));
    let Step::Meet(write, offer) = meet(&first, &progress, mark()) else { panic!("it waits") };
    let (mut memory, mut other) = (Memory::default(), Memory::default());
    memory.intends(&Step::Meet(write.clone(), offer.clone()));
    let begin = Write::BeginModification("gold".to_owned());
    let (second, mut others) = paired(Job::Modify, partner(memory.pairing.clone()));
    let step = meet(&second, &others, begin.clone());
    assert_eq!(step, Step::WriteBoth(begin.clone(), offer.clone()));
    let looks = |other: &Memory, version: &str| {
        let (mut now, _) = paired(Job::Expand, partner(other.pairing.clone()));
        let changed = claim(json!({ "metadata": { "resourceVersion": version } }));
        now.claim = Arc::new(changed);
        meeting(&now, &write, &offer, LONG)
    };
    other.intends(&step);
    assert_eq!((looks(&other, "7"), looks(&other, "9")), (Meeting::Waits, Meeting::Waits), "however long it takes");
    other.apply(&mut others, Answer::WroteBoth(begin, offer.place, offer.version.clone()));
    assert_eq!(looks(&other, "9"), Meeting::Written);
    other.intends(&Step::Confirm);
    assert_eq!(looks(&other, "9"), Meeting::Written, "also when the other one has gone on");
    memory.apply(&mut progress, Answer::Wrote(write.clone()));
    memory.intends(&Step::Confirm);
    assert_eq!(memory.pairing, Pairing::None);
}

#[test]
fn whoever_is_not_met_in_time_writes_alone_and_so_does_whoever_is_let_down() {
    let (short, half) = (Duration::from_millis(50), Duration::from_millis(500));
    for (write, patience) in [(mark(), short), (Write::Refusal, half), (Write::Expanded(2 << 30), half)] {
        let (now, _) = paired(Job::Expand, partner(Pairing::None));
        let offer = offer(Place::Claim, "7");
        let just_before = patience.saturating_sub(Duration::from_millis(1));
        assert_eq!(meeting(&now, &write, &offer, just_before), Meeting::Waits, "{write:?}");
        assert_eq!(meeting(&now, &write, &offer, patience), Meeting::Over, "{write:?}");
    }
    let (mut now, mut progress) = paired(Job::Expand, partner(Pairing::None));
    progress.offered = Some("7".into());
    assert_eq!(meet(&now, &progress, mark()), Step::Write(mark()), "once for each version");
    now.claim = Arc::new(claim(json!({ "metadata": { "resourceVersion": "8" } })));
    assert_eq!(meeting(&now, &mark(), &offer(Place::Claim, "7"), Duration::ZERO), Meeting::Outdated);
    assert!(matches!(meet(&now, &progress, mark()), Step::Meet(..)));
}

#[test]
fn patches_of_other_objects_stay_apart_and_hold_nobody_up() {
    let (now, progress) = paired(Job::Expand, partner(Pairing::None));
    let offers = partner(Pairing::Offers(offer(Place::Volume, now.version(Place::Volume))));
    let now = View { partner: Some(offers), ..now };
    assert_eq!(meet(&now, &progress, mark()), Step::Write(mark()));
    assert_eq!(meeting(&now, &mark(), &offer(Place::Claim, "7"), Duration::ZERO), Meeting::Over);
}

/// Whoever has written both goes on at once, and the other one learns of that a moment later.
#[test]
fn an_offer_of_an_earlier_version_is_neither_taken_nor_in_the_way() {
    for place in [Place::Claim, Place::Volume] {
        let (now, progress) = paired(Job::Expand, partner(Pairing::Offers(offer(place, "earlier"))));
        for write in [mark(), Write::Expanded(2 << 30)] {
            assert!(matches!(meet(&now, &progress, write.clone()), Step::Meet(..)), "{place:?} {write:?}");
            assert_eq!(meeting(&now, &write, &offer(Place::Claim, "7"), Duration::ZERO), Meeting::Waits);
        }
    }
}

/// Whether the other change is wanted, whether it is at work, and which writes wait for it.
#[test]
fn a_mark_waits_for_what_is_wanted_and_a_result_only_for_what_is_at_work() {
    for (is_wanted, is_at_work, marks, results) in
        [(true, true, true, true), (true, false, true, false), (false, true, true, true), (false, false, false, false)]
    {
        let (now, progress) = paired(Job::Expand, Partner { is_wanted, is_at_work, pairing: Pairing::None });
        let waits = |write: Write| matches!(meet(&now, &progress, write), Step::Meet(..));
        assert_eq!((waits(mark()), waits(Write::Expanded(2 << 30))), (marks, results), "{is_wanted} {is_at_work}");
        assert!(!waits(Write::RemoveNote) && !waits(Write::Cancel) && !waits(Write::Pending));
    }
}

#[test]
fn the_end_of_an_attempt_lets_the_other_one_go() {
    let (mut memory, mut progress) = (Memory::default(), progress(Job::Expand));
    memory.intends(&Step::Meet(mark(), offer(Place::Claim, "7")));
    assert!(memory.is_at_work);
    memory.ended(&mut progress, &crate::roles::kit::End::Settled);
    assert_eq!(memory, Memory::default());
}
