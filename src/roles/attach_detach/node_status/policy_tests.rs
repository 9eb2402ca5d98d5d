//! Attach-detach spec 8, row by row.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn node(attached: &[&str]) -> Arc<NodeState> {
    let list: Vec<Value> = attached.iter().map(|name| json!({ "name": name, "devicePath": "" })).collect();
    Arc::new(
        serde_json::from_value(json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "7" },
            "status": { "volumesAttached": list } }))
        .unwrap(),
    )
}

fn id(handle: &str) -> VolumeId {
    VolumeId::new("demo", handle)
}

fn name(handle: &str) -> String {
    id(handle).name().to_owned()
}

fn view(attached: &[&str], reports: &[(&str, Report)], asked: &[&str]) -> View {
    View {
        name: "n".to_owned(),
        node: Some(node(attached)),
        is_managed: true,
        is_written: true,
        permit: Permit::Yes,
        reports: reports.iter().map(|(handle, report)| (id(handle), *report)).collect(),
        asked: asked.iter().map(|handle| (id(handle), "uid".into())).collect(),
        coming: 0,
        came: 0,
        wanted: BTreeMap::new(),
        gathering: None,
        now: Instant::now(),
    }
}

fn names(list: &[AttachedVolume]) -> Vec<&str> {
    list.iter().map(|volume| &*volume.name).collect()
}

const FRESH: Progress = Progress { is_fresh: true, is_gone: false };

#[test]
fn case_7_and_section_5_say_when_a_name_is_reported() {
    let live =
        Attachment { is_attached: true, is_deleting: false, is_wanted: true, is_withdrawn: false, is_kept: true };
    for (row, attachment, expected) in [
        ("5.11", live, Report::Yes),
        ("5.3", Attachment { is_wanted: false, ..live }, Report::AsIs),
        ("5.9", Attachment { is_attached: false, ..live }, Report::No),
        ("5.4", Attachment { is_deleting: true, is_wanted: false, ..live }, Report::No),
        ("5.14 and D16", Attachment { is_deleting: true, ..live }, Report::No),
        ("7a", Attachment { is_withdrawn: true, is_wanted: false, ..live }, Report::No),
        ("7d, it may still be deleted", Attachment { is_kept: false, ..live }, Report::AsIs),
        ("7a, wanted again, until the volume knows", Attachment { is_withdrawn: true, ..live }, Report::No),
    ] {
        assert_eq!(report(attachment), expected, "{row}");
    }
}

#[test]
fn cases_2_and_6_the_list_keeps_what_is_not_csis_and_sorts_its_own() {
    let ebs = AttachedVolume { name: "kubernetes.io/aws-ebs/vol-1".into(), device_path: "/dev/x".into() };
    let own = |handle: &str, path: &str| AttachedVolume { name: name(handle).into(), device_path: path.into() };
    let held = [own("b", "/dev/y"), ebs.clone(), own("stale", ""), own("out", "")];
    let reports = BTreeMap::from([
        (id("a"), Report::Yes),
        (id("b"), Report::AsIs),
        (id("c"), Report::AsIs),
        (id("out"), Report::No),
    ]);
    assert_eq!(list(&held, &reports), [ebs, own("a", ""), own("b", "/dev/y")]);
    // Row 6 and D11: a node that is made anew gets its report back.
    assert_eq!(names(&list(&[], &reports)), [name("a")]);
}

#[test]
fn case_3_an_equal_list_is_not_written_and_case_1_one_write_has_all() {
    let reports = [("a", Report::Yes), ("b", Report::Yes)];
    assert_eq!(next_step(&view(&[&name("a"), &name("b")], &reports, &[]), &Progress::default()), Next::Done);
    assert_eq!(next_step(&view(&[&name("b"), &name("a")], &reports, &[]), &Progress::default()), Next::Done);
    let Next::Do(Step::Write(list)) = next_step(&view(&[&name("gone")], &reports, &[]), &Progress::default()) else {
        panic!("nothing is written")
    };
    assert_eq!(names(&list), [name("a"), name("b")]);
    let Patch::Merge(patch) = patch(&node(&[]), &list) else { panic!("no merge patch") };
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        (keys(&patch), keys(&patch["status"])),
        (vec!["metadata".to_owned(), "status".to_owned()], vec!["volumesAttached".to_owned()]),
        "row 8"
    );
    assert_eq!((&patch["metadata"]["resourceVersion"], &patch["metadata"]["uid"]), (&json!("7"), &json!("u")), "row 2");
}

#[test]
fn d35_names_are_gathered_for_a_moment_while_more_are_on_their_way_and_nothing_is_taken_out() {
    let milliseconds = Duration::from_millis;
    let coming = |attached: &[&str], gathered_for: Option<Duration>| {
        let view = view(attached, &[("a", Report::Yes), ("b", Report::No)], &[]);
        View { coming: 1, gathering: gathered_for.map(|time| view.now - time), ..view }
    };
    let write = || Next::Do(Step::Write(list(&[], &coming(&[], None).reports)));
    let next = |view: &View| next_step(view, &Progress::default());
    let (gather, wait) = (|time| Next::Do(Step::Gather(time)), |time| Next::Do(Step::Wait(time)));
    assert_eq!(next(&coming(&[], None)), gather(GATHERED_FOR));
    assert_eq!(next(&coming(&[], Some(milliseconds(30)))), wait(GATHERED_FOR.saturating_sub(milliseconds(30))));
    assert_eq!(next(&coming(&[], Some(GATHERED_FOR))), write(), "a slow one keeps nobody waiting");
    assert_eq!(next(&View { coming: 0, ..coming(&[], Some(milliseconds(30))) }), write(), "the last one is there");
    // A kubelet looks more seldom the longer a pod has waited.
    for (waited, time) in [(800, 250), (4000, 1000), (3_600_000, 2000)] {
        let wanted = BTreeMap::from([(id("a"), milliseconds(waited)), (id("b"), Duration::from_secs(9))]);
        assert_eq!(next(&View { wanted: wanted.clone(), ..coming(&[], None) }), gather(milliseconds(time)));
        let gathered = View { wanted, ..coming(&[], Some(milliseconds(time - 1))) };
        assert_eq!(next(&gathered), wait(milliseconds(1)));
    }
    assert_eq!(next(&coming(&[&name("b")], None)), write(), "a name that is to be taken out");
    let on_its_way =
        Attachment { is_attached: false, is_deleting: false, is_wanted: true, is_withdrawn: false, is_kept: true };
    assert!(on_its_way.is_on_its_way());
    for other in [
        Attachment { is_attached: true, ..on_its_way },
        Attachment { is_deleting: true, ..on_its_way },
        Attachment { is_wanted: false, ..on_its_way },
        Attachment { is_withdrawn: true, ..on_its_way },
    ] {
        assert!(!other.is_on_its_way(), "{other:?}");
    }
}

#[test]
fn section_7_a_withdrawal_is_confirmed_by_a_write_or_a_read_of_its_own() {
    let asked = |attached: &[&str]| view(attached, &[("a", Report::No)], &["a"]);
    let confirm = Next::Do(Step::Confirm(vec![(id("a"), "uid".into())]));
    let listed = asked(&[&name("a")]);
    assert_eq!(next_step(&listed, &Progress::default()), Next::Do(Step::Write(Vec::new())));
    assert_eq!(next_step(&listed, &FRESH), Next::Do(Step::Write(Vec::new())), "the answer has it still");
    assert_eq!(next_step(&asked(&[]), &FRESH), confirm);
    assert_eq!(next_step(&asked(&[]), &Progress::default()), Next::Do(Step::Read), "7b: not the cache");
    // Row 5: without the node, nothing is waited for.
    let gone = View { node: None, ..asked(&[]) };
    assert_eq!(next_step(&gone, &Progress::default()), confirm);
    assert_eq!(next_step(&listed, &Progress { is_gone: true, ..FRESH }), confirm);
    let nothing = View { asked: Vec::new(), ..gone };
    assert_eq!(next_step(&nothing, &Progress::default()), Next::Done);
    // writeNodeStatus: false
    let unwritten = View { is_written: false, ..asked(&[&name("a")]) };
    assert_eq!(next_step(&unwritten, &Progress::default()), Next::Do(Step::Read));
    assert_eq!(next_step(&unwritten, &FRESH), confirm);
}

#[test]
fn a_frozen_node_and_a_closed_guard_write_nothing() {
    let ready = || view(&[], &[("a", Report::Yes)], &["b"]);
    assert_eq!(next_step(&View { is_managed: false, ..ready() }, &FRESH), Next::Done, "9.8");
    assert_eq!(next_step(&View { permit: Permit::No, ..ready() }, &FRESH), Next::Done, "1");
    let left = std::time::Duration::from_secs(5);
    let delayed = View { permit: Permit::After(left), ..ready() };
    assert_eq!(next_step(&delayed, &FRESH), Next::Do(Step::Wait(left)));
}

proptest! {
    #[test]
    fn i6_only_what_was_seen_attached_is_reported_and_the_rest_stays(
        held in prop::collection::vec((0_u8..6, any::<bool>()), 0..8),
        facts in prop::collection::btree_map(0_u8..6, any::<(bool, bool, bool, bool, bool)>(), 0..6),
    ) {
        let entry = |(number, is_csi): &(u8, bool)| AttachedVolume {
            name: if *is_csi { name(&number.to_string()) } else { format!("kubernetes.io/aws-ebs/{number}") }.into(),
            device_path: "/dev/x".into(),
        };
        let held: Vec<AttachedVolume> = held.iter().map(entry).collect();
        let attachments: BTreeMap<VolumeId, Attachment> = facts
            .iter()
            .map(|(number, &(is_attached, is_deleting, is_wanted, is_withdrawn, is_kept))| {
                (id(&number.to_string()), Attachment { is_attached, is_deleting, is_wanted, is_withdrawn, is_kept })
            })
            .collect();
        let reports = attachments.iter().map(|(id, attachment)| (id.clone(), report(*attachment))).collect();
        let list = list(&held, &reports);
        let others = |list: &[AttachedVolume]| {
            list.iter().filter(|it| !it.name.starts_with(CSI_VOLUME)).cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(others(&held), others(&list));
        for volume in list.iter().filter_map(|volume| VolumeId::of_name(&volume.name)) {
            let attachment = attachments.get(&volume).copied();
            prop_assert!(attachment.is_some_and(|it| it.is_attached && !it.is_deleting && !it.is_withdrawn), "{volume}");
        }
    }
}
