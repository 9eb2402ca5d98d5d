use super::super::report::tests::{CAPACITY, demo};
use super::super::report::{RoleReport, RoleScope};
use super::super::table::{Cell, TableReport};
use super::*;

const HOSTILE: &str = "</style><script>alert(1)</script><img src=x onerror='alert(2)'>\" onmouseover=\"alert(3)&";

/// Every text of the report, replaced by hostile ones.
fn hostile() -> StatusReport {
    fn poison(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = HOSTILE.to_owned(),
            serde_json::Value::Array(items) => items.iter_mut().for_each(poison),
            serde_json::Value::Object(fields) => {
                // What is not free text: points in time and states.
                let typed = ["started", "now", "at", "overall", "scope", "state", "because", "type"];
                fields
                    .iter_mut()
                    .filter(|(name, _)| !typed.contains(&name.as_str()))
                    .for_each(|(_, value)| poison(value));
            }
            _ => {}
        }
    }
    let mut report = demo();
    report.readiness[0].failure = Some(String::new());
    let driver = report.driver.as_mut().unwrap();
    driver.state = DriverStatus::Lost;
    driver.last_error = Some(String::new());
    report.roles[0].failure = Some(String::new());
    let mut json = serde_json::to_value(report).unwrap();
    poison(&mut json);
    serde_json::from_value(json).unwrap()
}

#[test]
fn no_value_of_a_hostile_driver_becomes_markup() {
    let page = render(&hostile());
    let markup = page.replace(STYLE, "").replace(&format!("<script>{SCRIPT}</script>"), "");
    assert!(!markup.contains("<script") && !markup.contains("<img") && !markup.contains("onmouseover=\""), "{markup}");
    assert_eq!(markup.matches("</style>").count(), 1);
    // As many as there are free texts in the report: none was left out, and each is escaped once.
    assert!(markup.matches("&lt;script&gt;alert(1)").count() > 40, "{markup}");
    assert!(!markup.contains("&amp;lt;"));
}

#[test]
fn every_tag_is_closed() {
    for report in [demo(), hostile()] {
        let page = render(&report).replace(STYLE, "").replace(SCRIPT, "");
        for tag in [
            "section", "table", "tbody", "tr", "td", "div", "p", "ul", "li", "span", "b", "bdi", "code", "main", "h2",
            "dl", "form", "header",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}

#[test]
fn the_page_says_what_there_is_to_know() {
    let page = render(&demo());
    for text in [
        "degraded · demo.csi.example.com",
        "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>",
        "<small>5 · 2 failing · 3 running</small>",
        "PUBLISH_UNPUBLISH_VOLUME",
        "UNKNOWN(42)",
        "external-attacher-leader-demo-csi-example-com",
        "csi-control-plane-6f7c9d_1f0a9c3e",
        "12m20s",
        "in 38s",
        "backing off",
        "is still attached to node",
        "csi-attacher-va",
        "VolumeAttachment",
        "that no role tells yet",
        "Done by the attacher<small>the last 1</small>",
        "pvc-5a77 on node-c",
        "<span title=\"2026-11-21 06:01:58 UTC\">2m12s ago</span>",
        "pvc-1f7e40aa-c2d8 is attached to node-a",
        "attacher.drift",
        "<strong>The Kubernetes API has not answered for 4.0s (2 failures).</strong> <bdi>GET /api: no answer within 10s</bdi>",
        "OTEL_PROPAGATORS",
        "name=\"viewport\"",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("<script").count(), 1, "ours alone");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains(" src="));
}

#[test]
fn an_empty_report_is_a_page_too() {
    let mut report = demo();
    report.driver = None;
    report.overall = Overall::Starting;
    report.take_work(Vec::new(), None, 0);
    for list in [&mut report.tasks, &mut report.warnings] {
        list.clear();
    }
    report.roles.clear();
    report.done.clear();
    report.objects.clear();
    report.caches.clear();
    report.queues.clear();
    report.task_failures.clear();
    report.readiness.clear();
    let page = render(&report);
    for text in ["driver not known yet", "No work in progress", "No role is configured", "starting"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn what_was_looked_for_stands_in_the_form_and_is_no_markup() {
    let mut report = demo();
    report.find = Some(HOSTILE.to_owned());
    let page = render(&report).replace(STYLE, "").replace(SCRIPT, "");
    assert!(page.contains("value=\"&lt;/style&gt;") && page.contains("<a href=\"/\">show all</a>"));
    assert!(!page.contains("<img") && !page.contains("onmouseover=\""));
    report.take_work(Vec::new(), None, 0);
    report.objects.clear();
    (report.work_total, report.find) = (5000, Some("x".to_owned()));
    assert!(render(&report).contains("None of the 5000 items in progress matches."));
}

#[test]
fn an_error_stands_below_its_row_and_not_in_a_column() {
    let mut report = demo();
    let rows = vec![
        vec!["fast".into(), "zone=c".into(), Cell::Nothing, Cell::Nothing, Cell::Nothing, "deadline exceeded".into()],
        vec!["fast".into(), "zone=d".into(), 1_610_612_736_usize.into()],
    ];
    report.tables = vec![TableReport::new("provisioner", &CAPACITY, rows, 2)];
    let page = render(&report);
    assert!(page.contains("<td class=\"n\" data-label=\"capacity\">1.5Gi</td>"), "{page}");
    assert!(page.contains("<tr class=\"error\"><td colspan=\"5\"><bdi>deadline exceeded</bdi>"), "{page}");
    assert!(!page.contains("last error"));
}

#[test]
fn under_a_dead_driver_the_page_says_what_is_stopped_and_why() {
    let mut report = demo();
    report.take_work(Vec::new(), None, 0);
    report.objects.clear();
    let driver = report.driver.as_mut().unwrap();
    (driver.state, driver.last_error) = (DriverStatus::Lost, Some("connection <refused>".to_owned()));
    report.roles[0].state = RoleStatus::WaitingForDriver;
    let why = "attacher: stopped, because the driver has been lost for 1h25m: connection &lt;refused&gt;.";
    report.done.clear();
    let nothing = "Nothing matches: no object in the caches, and no work in progress. ";
    for (find, begin) in [(None, ""), (Some("shop/data"), nothing)] {
        report.find = find.map(str::to_owned);
        let page = render(&report);
        assert!(page.contains(&format!("<p class=\"empty\">{begin}{why}")), "{page}");
        assert!(!page.contains("No work in progress."));
    }
    report.find = None;
    (report.driver, report.api) = (None, None);
    report.roles.truncate(1);
    report.roles[0] = RoleReport { scope: RoleScope::Local, state: RoleStatus::Serving, ..report.roles[0].clone() };
    assert!(render(&report).contains("No role here works with the cluster."));
}
