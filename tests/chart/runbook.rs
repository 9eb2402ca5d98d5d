//! Each alert of the chart has its place in docs/operations.md. Read from the template's text: no set of values has them all.

use std::collections::BTreeSet;

use crate::helm;

/// What follows `mark` on the lines that begin with it.
fn named(text: &str, mark: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(mark)).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn each_alert_has_its_heading_in_the_runbook_and_each_such_heading_an_alert() {
    let read = |file: &str| std::fs::read_to_string(helm::root().join(file)).unwrap();
    let alerts = named(&read("charts/csi-control-plane/templates/prometheusrule.yaml"), "- alert:");
    let headings = named(&read("docs/operations.md"), "### CsiControlPlane");
    let headings: Vec<String> = headings.into_iter().map(|rest| format!("CsiControlPlane{rest}")).collect();
    assert!(alerts.len() >= 14, "{alerts:?}");
    assert_eq!(headings.iter().collect::<BTreeSet<_>>().len(), headings.len(), "a heading is there twice");
    assert_eq!(headings, alerts, "docs/operations.md tells of the alerts in the order of the template");
}
