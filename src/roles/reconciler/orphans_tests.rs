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
            orphans.compare(begun + *minute * MINUTE, 5, unknown(&["v"]), true);
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
        orphans.compare(begun + minute * MINUTE, 2, unknown(handles), true);
        assert_eq!(shown(&orphans), expected, "{minute}");
    }
}

#[test]
fn a_failed_listing_and_one_that_cannot_be_compared_change_nothing() {
    let (mut orphans, begun) = (Orphans::default(), Instant::now());
    orphans.compare(begun, 1, unknown(&["v"]), true);
    orphans.failed("no luck".to_owned());
    orphans.cannot_tell("no right".to_owned());
    assert_eq!((orphans.waiting(), orphans.failed.as_deref()), (1, Some("no luck")));
    orphans.compare(begun + HOUR, 1, unknown(&["v"]), true);
    assert_eq!((shown(&orphans), &orphans.failed, &orphans.unclear), (vec!["v"], &None, &None));
    orphans.failed("no luck".to_owned());
    assert_eq!(shown(&orphans), ["v"], "what was told before is still true");
    orphans.cannot_tell("no right".to_owned());
    assert_eq!(shown(&orphans), [""; 0], "it may be known");
}

#[test]
fn what_appears_while_a_request_is_open_does_not_count_and_what_was_there_before_goes_on() {
    let (mut orphans, begun) = (Orphans::default(), Instant::now());
    orphans.compare(begun, 1, unknown(&["old"]), true);
    orphans.compare(begun + MINUTE, 2, unknown(&["old", "new"]), false);
    assert_eq!((orphans.waiting(), orphans.undecided), (1, 1));
    orphans.compare(begun + HOUR, 2, unknown(&["old", "new"]), true);
    assert_eq!((shown(&orphans), orphans.waiting(), orphans.undecided), (vec!["old"], 1, 0));
    orphans.compare(begun + 2 * HOUR, 2, unknown(&["old", "new"]), false);
    assert_eq!(shown(&orphans), ["new", "old"]);
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

proptest! {
    /// An orphan is unknown in all listings of an hour, the first of which admits it.
    #[test]
    fn an_orphan_is_what_all_listings_of_an_hour_have(
        passes in proptest::collection::vec((1_u32..40, proptest::collection::btree_set(0_usize..3, 0..3), any::<bool>(), 0_u8..4), 1..20)
    ) {
        const HANDLES: [&str; 3] = ["a", "b", "c"];
        let (mut orphans, mut now) = (Orphans::default(), Instant::now());
        let mut history = Vec::new();
        for (minutes, there, admits, fate) in passes {
            now += minutes * MINUTE;
            if fate == 0 {
                orphans.failed("no luck".to_owned());
                continue;
            }
            let handles: Vec<&str> = there.iter().map(|at| HANDLES[*at]).collect();
            orphans.compare(now, 3, unknown(&handles), admits);
            history.push((now, there, admits));
            for (at, handle) in HANDLES.iter().enumerate() {
                let run: Vec<_> = history.iter().rev().take_while(|(_, there, _)| there.contains(&at)).collect();
                let first = run.iter().rev().find(|(.., admits)| *admits).map(|(first, ..)| *first);
                let expected = first.is_some_and(|first| now - first >= HOUR);
                prop_assert_eq!(shown(&orphans).contains(handle), expected, "{} {:?}", handle, history);
            }
        }
    }
}
