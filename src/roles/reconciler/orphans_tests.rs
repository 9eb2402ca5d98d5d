//! What counts as unknown, and for how long until it is shown.

use proptest::prelude::*;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const DEMO: &str = "demo.csi.example.com";
const GCE: &str = "pd.csi.storage.gke.io";

fn item(handle: &str) -> Item {
    Item::of(handle.to_owned())
}

fn unknown(handles: &[&str]) -> Unknown<'static> {
    Unknown::all(IdKind::Volume, DEMO, handles.iter().map(|handle| item(handle)))
}

/// The same, while the requests of these claims are open.
fn unknown_with(handles: &[&str], open: &[&str], in_progress: &[&str]) -> Unknown<'static> {
    let mut unknown = unknown(handles);
    for uid in in_progress {
        unknown.claim(uid, false);
    }
    for uid in open {
        unknown.claim(uid, true);
    }
    unknown
}

fn shown(orphans: &Orphans) -> Vec<&str> {
    orphans.shown().map(|orphan| &*orphan.item.handle).collect()
}

fn left(unknown: Unknown<'_>) -> Vec<String> {
    unknown.into_items().map(|item| item.handle).collect()
}

#[test]
fn an_hour_between_two_listings_makes_an_orphan_and_nothing_less() {
    for (minutes, expected) in [
        (&[0][..], &[][..]),
        (&[0, 59], &[]),
        (&[0, 60], &["v"]),
        (&[0, 30, 59], &[]),
        (&[0, 30, 60], &["v"]),
        (&[70, 129], &[]),
        (&[70, 130], &["v"]),
    ] {
        let (mut orphans, begun) = (Orphans::default(), Instant::now());
        for minute in minutes {
            orphans.compare(begun + *minute * MINUTE, 5, unknown(&["v"]));
        }
        assert_eq!(shown(&orphans), expected, "{minutes:?}");
        assert_eq!((orphans.waiting(), orphans.listed), (1 - expected.len(), Some(5)), "{minutes:?}");
    }
}

#[test]
fn what_is_known_in_between_or_not_listed_begins_anew() {
    let (mut orphans, begun) = (Orphans::default(), Instant::now());
    for (minute, handles, expected) in [
        (0, &["a", "B"][..], &[][..]),
        (60, &["a", "b"], &["a", "b"]),
        (61, &["b"], &["b"]),
        (62, &["a", "b"], &["b"]),
        (121, &["a", "b"], &["b"]),
        (122, &["a", "b"], &["a", "b"]),
    ] {
        orphans.compare(begun + minute * MINUTE, 2, unknown(handles));
        assert_eq!(shown(&orphans), expected, "{minute}");
    }
}

#[test]
fn a_failed_listing_and_one_that_cannot_be_compared_change_nothing() {
    let (mut orphans, begun) = (Orphans::default(), Instant::now());
    orphans.compare(begun, 1, unknown(&["v"]));
    orphans.failed("no luck".to_owned());
    orphans.cannot_tell("no right".to_owned());
    assert_eq!((orphans.waiting(), orphans.failed.as_deref()), (1, Some("no luck")));
    orphans.compare(begun + HOUR, 1, unknown(&["v"]));
    assert_eq!((shown(&orphans), &orphans.failed, &orphans.unclear), (vec!["v"], &None, &None));
    orphans.failed("no luck".to_owned());
    assert_eq!(shown(&orphans), ["v"], "what was told before is still true");
    orphans.cannot_tell("no right".to_owned());
    assert_eq!(shown(&orphans), [""; 0], "it may be known");
}

/// Passes, each with its minute, the volumes, the open requests, the claims in progress, and what is shown, waits and is doubtful.
type Story = &'static [(u32, &'static [&'static str], &'static [&'static str], &'static [&'static str], Expected)];
type Expected = (&'static [&'static str], usize, usize);

#[test]
fn a_volume_is_doubtful_only_while_a_request_is_open_that_may_have_made_it() {
    const OLD: &[&str] = &["old"];
    const BOTH: &[&str] = &["new", "old"];
    let stories: &[(&str, Story)] = &[
        (
            "what was listed before the claim was seen is not its volume",
            &[
                (0, OLD, &[], &[], (&[], 1, 0)),
                (1, BOTH, &["r"], &[], (&[], 1, 1)),
                (60, BOTH, &["r"], &[], (OLD, 0, 1)),
            ],
        ),
        (
            "a request that stays open holds back what appears after it and nothing else",
            &[
                (0, OLD, &["r"], &[], (&[], 0, 1)),
                (60, BOTH, &["r"], &[], (&[], 0, 2)),
                (600, BOTH, &["r"], &[], (&[], 0, 2)),
            ],
        ),
        (
            "requests that come and go hold nothing back for long",
            &[
                (0, OLD, &["a"], &[], (&[], 0, 1)),
                (1, OLD, &["a", "b"], &[], (&[], 0, 1)),
                (2, OLD, &["b", "c"], &[], (&[], 1, 0)),
                (61, OLD, &["d", "e"], &[], (&[], 1, 0)),
                (62, OLD, &["e"], &[], (OLD, 0, 0)),
            ],
        ),
        (
            "the hour begins when the doubt ends",
            &[(0, OLD, &["r"], &[], (&[], 0, 1)), (60, OLD, &[], &[], (&[], 1, 0)), (120, OLD, &[], &[], (OLD, 0, 0))],
        ),
        (
            "a claim in progress may have asked before, and asks again: what has counted goes on",
            &[
                (0, OLD, &[], &["r"], (&[], 1, 0)),
                (59, OLD, &["r"], &["r"], (&[], 0, 1)),
                (60, OLD, &["r"], &["r"], (&[], 0, 1)),
                (61, OLD, &[], &["r"], (OLD, 0, 0)),
                (62, OLD, &["r"], &["r"], (&[], 0, 1)),
            ],
        ),
        (
            "the request of a deleted claim is known since the claim was",
            &[
                (0, OLD, &[], &["r"], (&[], 1, 0)),
                (60, OLD, &["r"], &[], (&[], 0, 1)),
                (61, OLD, &[], &[], (OLD, 0, 0)),
            ],
        ),
        (
            "a claim that was gone and is seen again is a new one",
            &[(0, OLD, &[], &["r"], (&[], 1, 0)), (1, OLD, &[], &[], (&[], 1, 0)), (60, OLD, &["r"], &[], (OLD, 0, 0))],
        ),
        (
            "a volume that is listed again after it was not may be the request's",
            &[
                (0, OLD, &[], &[], (&[], 1, 0)),
                (60, OLD, &["r"], &[], (OLD, 0, 0)),
                (61, &[], &["r"], &[], (&[], 0, 0)),
                (62, OLD, &["r"], &[], (&[], 0, 1)),
            ],
        ),
    ];
    for (what, story) in stories {
        let (mut orphans, begun) = (Orphans::default(), Instant::now());
        for (minute, handles, open, in_progress, expected) in *story {
            orphans.compare(begun + *minute * MINUTE, 2, unknown_with(handles, open, in_progress));
            assert_eq!(
                (&*shown(&orphans), orphans.waiting(), orphans.undecided()),
                *expected,
                "{what}: minute {minute}"
            );
        }
    }
}

#[test]
fn a_handle_is_known_however_it_is_spelled() {
    for (driver, listed, handle, is_known) in [
        (DEMO, "vol-1", "vol-1", true),
        (DEMO, "/Groups/MC_RG/disks/d", "/groups/mc_rg/disks/D/", true),
        (DEMO, "vol-1", "vol-10", false),
        (GCE, "projects/p/zones/z/disks/d", "projects/UNSPECIFIED/zones/z/disks/d", true),
        (GCE, "projects/p/zones/z/disks/d", "projects/UNSPECIFIED/zones/other/disks/d", false),
    ] {
        let mut unknown = Unknown::all(IdKind::Volume, driver, [item(listed)]);
        unknown.know(handle);
        assert_eq!(unknown.is_empty(), is_known, "{listed} {handle}");
    }
    let mut unknown =
        Unknown::all(IdKind::Volume, GCE, ["z1", "z2"].map(|z| item(&format!("projects/p/zones/{z}/disks/d"))));
    unknown.know("projects/p/zones/z1/disks/d");
    assert_eq!(left(unknown), ["projects/p/zones/z2/disks/d"], "one name in two zones");
}

#[test]
fn a_volume_is_known_by_the_name_that_its_id_or_its_context_has() {
    let named = |handle: &str, name: Option<&str>| Item { name: name.map(str::to_owned), ..item(handle) };
    let all = || {
        let items =
            [named("/disks/PVC-1", None), named("vol-2", Some("pvc-2")), named("vol-3", Some("pvc-33")), item("vol-4")];
        Unknown::all(IdKind::Volume, DEMO, items)
    };
    for (names, found, rest) in [
        (&[][..], &[][..], &["/disks/PVC-1", "vol-2", "vol-3", "vol-4"][..]),
        (&["pvc-1"], &["pvc-1"], &["vol-2", "vol-3", "vol-4"]),
        (&["PVC-2", "pvc-9"], &["PVC-2"], &["/disks/PVC-1", "vol-3", "vol-4"]),
        (&["pvc-1", "pvc-2", "pvc-33"], &["pvc-1", "pvc-2", "pvc-33"], &["vol-4"]),
        (&["vol-4", "pvc-33"], &["pvc-33", "vol-4"], &["/disks/PVC-1", "vol-2"]),
        (&[""], &[], &["/disks/PVC-1", "vol-2", "vol-3", "vol-4"]),
    ] {
        let mut unknown = all();
        assert_eq!(unknown.know_named(names).into_iter().collect::<Vec<_>>(), found, "{names:?}");
        assert_eq!(left(unknown), rest, "{names:?}");
    }
}

#[test]
fn an_inline_volume_of_a_pod_is_no_orphan() {
    let hash = "0123456789abcdef".repeat(4);
    let ids = [format!("csi-{hash}"), hash.clone(), format!("csi-{hash}0"), format!("csi-{}g", &hash[1..])];
    let all = |kind| left(Unknown::all(kind, DEMO, ids.iter().map(|id| item(id)))).len();
    assert_eq!((all(IdKind::Volume), all(IdKind::Snapshot)), (3, 4));
}

#[test]
fn snapshots_are_known_by_their_volume_and_by_their_group() {
    let of = |handle: &str, source: &str, group: &str| {
        let told = |id: &str| Some(id.to_owned()).filter(|id| !id.is_empty());
        Item { source: told(source), group: told(group), ..item(handle) }
    };
    let all = || {
        Unknown::all(IdKind::Snapshot, DEMO, [of("s1", "V1", ""), of("s2", "v2", "G"), of("s3", "", "g2"), item("s4")])
    };
    let mut unknown = all();
    unknown.know_of_volume("v1");
    assert_eq!(left(unknown), ["s2", "s3", "s4"]);
    let mut unknown = all();
    unknown.know_of_group("g");
    assert_eq!(left(unknown), ["s1", "s3", "s4"]);
}

/// What a pass sees, by the model's own numbers: volumes, open requests, claims in progress.
type Pass = (u32, BTreeSet<usize>, BTreeSet<usize>, BTreeSet<usize>, u8);

fn numbers(most: usize) -> impl Strategy<Value = BTreeSet<usize>> {
    proptest::collection::btree_set(0..most, 0..most)
}

proptest! {
    /// An orphan is unknown in all listings since one that was an hour ago and left no doubt, and the last one leaves none.
    #[test]
    fn an_orphan_is_what_all_listings_of_an_hour_have_and_no_open_request_may_have_made(
        passes in proptest::collection::vec((1_u32..40, numbers(3), numbers(3), numbers(3), 0_u8..4), 1..20)
    ) {
        const HANDLES: [&str; 3] = ["a", "b", "c"];
        const CLAIMS: [&str; 3] = ["x", "y", "z"];
        let (mut orphans, mut now, mut history) = (Orphans::default(), Instant::now(), Vec::<(Instant, Pass)>::new());
        for pass in passes {
            now += pass.0 * MINUTE;
            if pass.4 == 0 {
                orphans.failed("no luck".to_owned());
                continue;
            }
            let named = |of: &[&'static str], numbers: &BTreeSet<usize>| numbers.iter().map(|at| of[*at]).collect::<Vec<_>>();
            let (there, open, in_progress) = (named(&HANDLES, &pass.1), named(&CLAIMS, &pass.2), named(&CLAIMS, &pass.3));
            orphans.compare(now, 3, unknown_with(&there, &open, &in_progress));
            history.push((now, pass));
            let run = |end: usize, holds: &dyn Fn(&Pass) -> bool| {
                history[..=end].iter().rev().take_while(|(_, pass)| holds(pass)).last().map(|(at, _)| *at)
            };
            let seen = |end, volume: usize| run(end, &|pass| pass.1.contains(&volume));
            let since = |end, claim: usize| run(end, &|pass| pass.2.contains(&claim) || pass.3.contains(&claim));
            for (volume, handle) in HANDLES.iter().enumerate() {
                let is_clear = |end: &usize| history[*end].1.2.iter().all(|claim| since(*end, *claim) > seen(*end, volume));
                let last = history.len() - 1;
                let counted = (0..=last).filter(|end| Some(history[*end].0) >= seen(last, volume) && is_clear(end)).min();
                let expected = seen(last, volume).is_some()
                    && is_clear(&last)
                    && counted.is_some_and(|end| now - history[end].0 >= HOUR);
                prop_assert_eq!(shown(&orphans).contains(handle), expected, "{} {:?}", handle, history);
            }
        }
    }

    /// However requests begin, are answered, refused and begun again, whenever they make their volumes, and whoever leads: the volume of an
    /// open request is never shown, and neither is one that a `PersistentVolume` names.
    #[test]
    fn the_volume_of_an_open_request_is_never_shown(events in proptest::collection::vec((0_usize..3, 0_u8..14), 1..120)) {
        #[expect(clippy::struct_excessive_bools, reason = "each changes by itself")]
        #[derive(Debug, Default, Clone)]
        struct Claim { was: bool, exists: bool, is_open: bool, has_made: bool, is_stored: bool }
        const UIDS: [&str; 3] = ["x", "y", "z"];
        const VOLUMES: [&str; 3] = ["of-x", "of-y", "of-z"];
        let (mut orphans, mut now) = (Orphans::default(), Instant::now());
        let mut claims: [Claim; 3] = std::array::from_fn(|_| Claim::default());
        let mut listing: Option<(Instant, Vec<usize>)> = None;
        for (at, event) in events {
            now += MINUTE;
            let claim = &mut claims[at];
            match event {
                // No other claim ever has its uid.
                0 if !claim.was => (claim.was, claim.exists) = (true, true),
                1 => claim.is_open |= claim.exists,
                2 => claim.has_made |= claim.is_open,
                3 if claim.is_open && claim.has_made => (claim.is_stored, claim.is_open, claim.exists) = (true, false, false),
                // Refused: the driver may have made it all the same.
                4 => claim.is_open = false,
                5 => claim.exists = false,
                6 => orphans = Orphans::default(),
                7 => now += HOUR,
                8..=10 => {
                    let there = (0..3).filter(|at| claims[*at].has_made).collect();
                    listing.get_or_insert((now, there));
                }
                _ => {
                    let Some((begun, there)) = listing.take() else { continue };
                    let mut unknown = Unknown::all(IdKind::Volume, DEMO, there.iter().map(|at| item(VOLUMES[*at])));
                    for (at, claim) in claims.iter().enumerate() {
                        if claim.is_stored {
                            unknown.know(VOLUMES[at]);
                        }
                        if claim.is_open || claim.exists {
                            unknown.claim(UIDS[at], claim.is_open);
                        }
                    }
                    orphans.compare(begun, there.len(), unknown);
                    for (at, claim) in claims.iter().enumerate() {
                        let is_shown = shown(&orphans).contains(&VOLUMES[at]);
                        prop_assert!(!is_shown || !(claim.is_open || claim.is_stored), "{} {:?}", VOLUMES[at], claim);
                    }
                }
            }
        }
    }
}
