//! Random plays: see [`super::play`].

use proptest::prelude::*;

use super::play::{Act, Fate, Play};

/// What happens without faults.
fn good() -> impl Strategy<Value = Act> {
    let span = prop_oneof![6 => 1u64..100, 3 => 1000u64..5000, 1 => 20_000u64..50_000];
    prop_oneof![
        10 => (0u8..6, 0u8..3).prop_map(|(name, content)| Act::Record(name, content)),
        6 => (0u8..6).prop_map(Act::Remove),
        16 => Just(Act::Request),
        5 => (0usize..5).prop_map(Act::Perform),
        14 => (0usize..5).prop_map(|which| Act::Answer(which, Fate::Arrives)),
        6 => span.prop_map(Act::Pass),
    ]
}

fn fault() -> impl Strategy<Value = Act> {
    let fate = prop_oneof![2 => Just(Fate::Refused), 2 => Just(Fate::Lost), 3 => Just(Fate::Late)];
    prop_oneof![
        7 => (0usize..5, fate).prop_map(|(which, fate)| Act::Answer(which, fate)),
        4 => (0usize..5).prop_map(Act::Land),
        1 => (0usize..4).prop_map(Act::Delete),
        1 => (0usize..4, 0usize..4).prop_map(|(n, which)| Act::DropKey(n, which)),
        1 => (0usize..4, 0usize..4).prop_map(|(n, which)| Act::EditKey(n, which)),
        1 => (0usize..4).prop_map(Act::Break),
        3 => Just(Act::Repair),
        1 => (0usize..4).prop_map(Act::Other),
        1 => Just(Act::RemoveOther),
    ]
}

fn play(acts: Vec<Act>) {
    let mut play = Play::new();
    for act in acts {
        play.act(act);
    }
    play.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_happens_entries_are_neither_lost_nor_left_behind(acts in prop::collection::vec(prop_oneof![4 => good(), 1 => fault()], 1..250)) {
        play(acts);
    }

    #[test]
    fn the_same_without_faults(acts in prop::collection::vec(good(), 1..250)) {
        play(acts);
    }
}
