//! Each alert of the chart has a heading in docs/operations.md, and can link to it. The alerts are read from the
//! template's text, because no set of values renders all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::helm;
use crate::matrix;

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

#[test]
fn an_alert_leads_to_its_heading_where_the_values_say_where_the_runbook_is() {
    let alerts = |change: &dyn Fn(&mut Value)| -> Vec<Value> {
        let mut values = matrix::case("everything").values;
        change(&mut values);
        let rendered = helm::with(&values, &[]).unwrap();
        let groups = rendered.one("PrometheusRule")["spec"]["groups"].as_array().unwrap().clone();
        groups.into_iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    };
    let linked = alerts(&|_| {});
    assert!(linked.len() >= 14, "{linked:#?}");
    for alert in linked {
        // A heading's anchor is its text in lower case.
        let anchor = alert["alert"].as_str().unwrap().to_lowercase();
        assert_eq!(alert["annotations"]["runbook_url"], format!("https://git.example.com/operations.md#{anchor}"));
    }
    let unlinked = alerts(&|it| it["monitoring"]["rules"]["runbookUrl"] = "".into());
    assert!(
        unlinked
            .iter()
            .all(|it| it["annotations"]["runbook_url"].is_null() && it["annotations"]["summary"] != json!(null))
    );
}
