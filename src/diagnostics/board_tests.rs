use super::*;
use crate::diagnostics::report::tests::demo;
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
    let fact = |value: &str| Fact { name: "last pass".to_owned(), value: value.to_owned() };
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
    let rows = || (0..1000).map(|number| vec![format!("<zone {number}>")]).collect();
    let shown = board.table("provisioner", "Room", &["segment", "#free"], rows);
    let report = board.report();
    let table = &report.tables[0];
    assert_eq!(
        (table.rows.len(), table.rows_total, table.rows[3].clone()),
        (WORK_SHOWN, 1000, vec!["<zone 3>".to_owned(), String::new()])
    );
    let page = crate::diagnostics::render_page(&report);
    assert!(page.contains("Room<small>provisioner, the first 200 of 1000</small>"), "{page}");
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
