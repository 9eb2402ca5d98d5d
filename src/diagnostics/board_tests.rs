use super::*;
use crate::diagnostics::report::tests::{CAPACITY, demo};
use crate::diagnostics::report::{DriverStatus, RoleStatus};
use crate::process::TaskFate;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn board() -> Board {
    Board::new("0.1.0", Clock::simulated("2026-11-21T06:00:00Z".parse().unwrap()))
}

fn queue(work: Vec<WorkReport>) -> (impl Fn() -> QueueReport, impl Fn() -> Vec<WorkReport>) {
    (|| demo().queues[0].clone(), move || work.clone())
}

#[tokio::test(start_paused = true)]
async fn a_report_asks_every_source_when_it_is_made() {
    let board = board();
    let lost = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&lost);
    board
        .driver(move || {
            let mut driver = demo().driver.unwrap();
            if seen.load(Ordering::Relaxed) {
                driver.state = DriverStatus::Lost;
            }
            driver
        })
        .forever();
    board.role(|| demo().roles[0].clone()).forever();
    board.caches(|| vec![demo().caches[0].clone()]).forever();
    board.tasks(|| vec!["b.x".to_owned(), "a.y".to_owned()]).forever();
    board.warnings(vec!["odd".to_owned()]).forever();
    tokio::time::advance(Duration::from_secs(61)).await;

    let report = board.report();
    assert_eq!(report.overall, Overall::Healthy);
    assert_eq!(
        (report.uptime, report.now.to_string().as_str()),
        (Age(Duration::from_secs(61)), "2026-11-21T06:01:01Z")
    );
    assert_eq!((report.roles[0].state, report.tasks[0].as_str()), (RoleStatus::Serving, "a.y"));
    assert_eq!(report.warnings, ["odd"]);
    lost.store(true, Ordering::Relaxed);
    assert_eq!(board.report().overall, Overall::Degraded);
}

#[tokio::test(start_paused = true)]
async fn what_a_role_tells_of_itself_stands_beside_its_state_while_it_tells() {
    let board = board();
    let fact = |value: &str| Fact::new("last pass", value);
    let told = board.facts("attacher", move || vec![fact("a minute ago")]);
    board.facts("nobody", move || vec![fact("never")]).forever();
    board.role(|| demo().roles[0].clone()).forever();
    assert_eq!(board.report().roles[0].facts, [fact("a minute ago")]);
    drop(told);
    assert_eq!(board.report().roles[0].facts, []);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_registration_is_off_the_board() {
    let board = board();
    let (queue, work) = queue(demo().work);
    let term = board.queue(queue, work);
    let ready = board.readiness("caches", || Err("not synced".to_owned()));
    assert_eq!((board.report().queues.len(), board.report().work_total), (1, 5));
    assert!(!board.readyz().answer("").healthy);
    drop((term, ready));
    assert_eq!((board.report().queues.len(), board.report().work_total), (0, 0));
    assert!(board.readyz().answer("").healthy);
    assert!(board.leases().answer("").healthy);
}

#[tokio::test(start_paused = true)]
async fn a_source_may_use_the_board_itself() {
    let board = board();
    let inner = board.clone();
    let nested = move || {
        inner.warnings(vec!["odd".to_owned()]).forever();
        if inner.leases().answer("").healthy { Ok(()) } else { Err("not led".to_owned()) }
    };
    board.readiness("nested", nested).forever();
    assert!(board.readyz().answer("").healthy);
}

#[tokio::test(start_paused = true)]
async fn a_roles_table_is_shown_while_it_is_registered_capped_and_with_every_cell() {
    let board = board();
    let rows = || (0..1000).map(|number| vec![format!("<zone {number}>").into()]).collect();
    let shown = board.table("provisioner", &CAPACITY, rows);
    let report = board.report();
    let table = &report.tables[0];
    assert_eq!(
        (table.rows.len(), table.rows_total, table.rows[3].values().cloned().collect::<Vec<_>>()),
        (WORK_SHOWN, 1000, [vec![Cell::Nothing; 3], vec!["<zone 3>".into()], vec![Cell::Nothing; 2]].concat())
    );
    let page = crate::diagnostics::render_page(&report);
    assert!(page.contains("Capacity by segment<small>provisioner, the first 200 of 1000</small>"), "{page}");
    assert!(page.contains("&lt;zone 3&gt;") && !page.contains("<zone"));
    drop(shown);
    assert!(board.report().tables.is_empty());
}

#[tokio::test(start_paused = true)]
async fn five_thousand_volumes_make_a_short_report_with_the_right_totals() {
    let board = board();
    let sample = demo().work[4].clone();
    let many = (0..5000).map(|number| WorkReport { key: format!("csi-{number}"), ..sample.clone() }).collect();
    let (queue, work) = queue(many);
    board.queue(queue, work).forever();
    let report = board.report();
    assert_eq!((report.work.len(), report.work_total, report.work_failing), (WORK_SHOWN, 5000, 0));
    assert!(crate::diagnostics::render_page(&report).len() < 200_000);
}

#[tokio::test(start_paused = true)]
async fn the_last_task_failures_are_kept_and_all_are_counted() {
    let board = board();
    for number in 0..50 {
        let fate = TaskFate::Panicked(format!("no {number}"));
        board.task_failed(&TaskEnd { task: "attacher.serve".to_owned(), fate });
    }
    let report = board.report();
    assert_eq!((report.task_failures.len(), report.task_failures_total), (FAILURES_KEPT, 50));
    assert_eq!(report.task_failures[0].fate, "panicked: no 49");
}

#[tokio::test(start_paused = true)]
async fn the_last_twenty_of_each_role_are_shown_newest_first() {
    let board = board();
    let sample = demo().done[0].clone();
    for role in ["attacher", "provisioner"] {
        let sample = sample.clone();
        let item = move |second: i64| DoneReport {
            role: role.to_owned(),
            key: format!("{role}-{second}"),
            at: Timestamp::from_second(1_800_000_000 + second).unwrap(),
            ..sample.clone()
        };
        board.done(move || (0..30).map(&item).collect()).forever();
    }
    let done = board.report().done;
    assert_eq!((done.len(), done[0].key.as_str(), done[39].key.as_str()), (40, "attacher-29", "provisioner-10"));
    let found = board.report_on("provisioner-29").done;
    assert_eq!(found.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["provisioner-29"]);
}

#[tokio::test(start_paused = true)]
async fn a_search_says_where_a_healthy_object_is_and_that_nothing_is_wrong() {
    let board = board();
    board.role(|| demo().roles[0].clone()).forever();
    let all = [
        ("db/data", "Bound, pvc-1", None),
        ("db/other", "Pending", None),
        ("csi-1", "pvc-2 is not attached to node-a", Some("no")),
    ];
    let report = |(name, state, error): &(&str, &str, Option<&str>)| ObjectReport {
        kind: "PersistentVolumeClaim".to_owned(),
        name: (*name).to_owned(),
        state: Some((*state).to_owned()),
        handle: None,
        last_error: error.map(str::to_owned),
    };
    board
        .objects(move |finds| {
            let found = all.iter().filter(|(name, state, _)| finds(&["PersistentVolumeClaim", name, state]));
            found.map(report).collect()
        })
        .forever();
    assert_eq!(board.report().objects, [], "without a search nothing is looked at");
    let report = board.report_on("DB/data");
    assert_eq!((report.objects.len(), report.objects_total), (1, 1));
    let page = crate::diagnostics::render_page(&report);
    for text in ["Found<small>1</small>", "db/data", "Bound, pvc-1", "Nothing is wrong with what was found"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let page = crate::diagnostics::render_page(&board.report_on("csi-1"));
    assert!(!page.contains("Nothing is wrong") && page.contains("<bdi>no</bdi>"), "{page}");
    let page = crate::diagnostics::render_page(&board.report_on("nowhere"));
    assert!(!page.contains("Nothing is wrong") && page.contains("Nothing matches"), "{page}");
}
