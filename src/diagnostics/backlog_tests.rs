use std::time::Duration;

use super::*;
use crate::diagnostics::report::tests::demo;
use crate::diagnostics::shown::{Age, ERROR_SHOWN};
use proptest::prelude::*;

#[test]
fn a_long_error_is_cut_between_two_characters() {
    let mut report = demo();
    let mut item = report.work[0].clone();
    item.last_error = Some("é".repeat(100_000));
    report.take_work(vec![item], None, 1);
    let shown = report.work[0].last_error.as_deref().unwrap();
    assert!(shown.ends_with("é…") && shown.len() <= ERROR_SHOWN + '…'.len_utf8());
}

/// Work of a queue: the failing ones first in age.
fn item(queue: &str, number: usize, error: Option<&str>) -> WorkReport {
    let mut item = demo().work[4].clone();
    item.queue = queue.to_owned();
    item.key = format!("{queue}-{number}");
    item.last_error = error.map(str::to_owned);
    item
}

#[test]
fn a_thousand_attachments_do_not_hide_a_claim() {
    let mut report = demo();
    let mut work: Vec<WorkReport> = (0..1000).map(|number| item("attachments", number, Some("no"))).collect();
    work.extend((0..3).map(|number| item("claims", number, None)));
    report.take_work(work, None, 10);
    let of = |queue: &str| report.work.iter().filter(|item| item.queue == queue).count();
    assert_eq!((of("attachments"), of("claims"), report.work_total), (7, 3, 1003));
    assert!(report.work.is_sorted_by_key(|item| Reverse(item.failing())));
}

#[test]
fn what_is_looked_for_is_found_among_all_of_it() {
    let mut report = demo();
    let work: Vec<WorkReport> =
        (0..1000).map(|number| item("csi-attacher-va", number, (number == 997).then_some("Pool is FULL"))).collect();
    report.take_work(work.clone(), Find::of(" full  waiting ").as_ref(), 10);
    let keys: Vec<&str> = report.work.iter().map(|item| item.key.as_str()).collect();
    assert_eq!((keys, report.work_total, report.queues[0].found), (vec!["csi-attacher-va-997"], 1000, 1));
    assert_eq!(report.find.as_deref(), Some("full waiting"));
    report.take_work(work, Find::of("va-1").as_ref(), 10);
    assert_eq!((report.work.len(), report.queues[0].found), (10, 111));
    assert_eq!(Find::of("  "), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_cap_keeps_the_most_urgent_and_counts_all(
        items in proptest::collection::vec((0u64..50, 0u32..3), 0..60), limit in 0usize..20
    ) {
        let work: Vec<WorkReport> = items.iter().enumerate().map(|(number, (age, attempts))| WorkReport {
            role: "r".to_owned(), queue: "q".to_owned(), key: format!("{number}"), subject: None, lane: String::new(), age: Age(Duration::from_secs(*age)),
            attempts: *attempts, next_try: None, running: false, last_error: None,
        }).collect();
        let (mut all, mut capped) = (demo(), demo());
        all.take_work(work.clone(), None, usize::MAX);
        capped.take_work(work.clone(), None, limit);
        prop_assert_eq!(&capped.work[..], &all.work[..limit.min(work.len())]);
        prop_assert_eq!((capped.work_total, capped.work_failing), (work.len(), items.iter().filter(|i| i.1 > 0).count()));
        prop_assert!(all.work.windows(2).all(|w| (w[0].failing(), w[0].age) >= (w[1].failing(), w[1].age)));
    }
}

#[test]
fn what_is_called_as_a_found_object_is_found_with_it() {
    let object = |name: &str, handle: Option<&str>| ObjectReport {
        name: name.to_owned(),
        handle: handle.map(str::to_owned),
        ..demo().objects[0].clone()
    };
    let find = Find::of("shop/data").unwrap();
    assert!(!find.is_in(["vol-1", "12"].into_iter()));
    let find = find.with(&[object("pvc-1", Some("vol-1")), object("snapcontent-1", None)]);
    for texts in [["vol-1", "12"], ["snapshotter", "snapcontent-1"], ["pvc-9", "claim SHOP/data"]] {
        assert!(find.is_in(texts.into_iter()), "{texts:?}");
    }
    assert!(!find.is_in(["vol-11", "pvc-12"].into_iter()), "a part of a name is another name");
    assert_eq!(find.to_string(), "shop/data");
}
