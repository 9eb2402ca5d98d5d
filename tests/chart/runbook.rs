//! Each alert of the chart has a heading in docs/operations.md, and can link to it. The alerts are read from the
//! template's text, because no set of values renders all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::chart::helm;
use crate::chart::matrix;

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

/// The arguments of each command that a user copies from a console block of a document, as a shell passes them on: the
/// programs in them only write down their arguments.
fn pasted(document: &str, program: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(helm::root().join(document)).unwrap();
    let mut commands: Vec<String> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for command in block.split("$ ").skip(1).filter(|command| command.starts_with(program)) {
            // A command goes on where its line does not end: after \ and |, and within quotes.
            let mut lines = command.lines();
            let mut whole = lines.next().unwrap().to_owned();
            let goes_on = |it: &str| it.ends_with(['\\', '|']) || it.matches('\'').count() % 2 == 1;
            for line in lines {
                if !goes_on(&whole) {
                    break;
                }
                whole = format!("{whole}\n{line}");
            }
            commands.push(whole);
        }
    }
    let shell = |command: &String| {
        let first = command.split(" |").next().unwrap();
        let script = format!("{program}() {{ printf '%s\\0' \"$@\"; }}\n{first}");
        let output = std::process::Command::new("bash").args(["-euc", &script]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
    };
    commands.iter().map(shell).collect()
}

#[test]
fn columns_that_stand_on_two_lines_arrive_as_one_argument() {
    let commands = pasted("docs/operations.md", "kubectl");
    let columns: Vec<&String> =
        commands.iter().flatten().filter(|argument| argument.starts_with("custom-columns=")).collect();
    assert_eq!(columns.len(), 2, "{commands:#?}");
    for argument in columns {
        assert!(!argument.contains(['\\', '\n', ' ']), "kubectl would take this for a column's name: {argument:?}");
        let columns = argument["custom-columns=".len()..].split(',');
        assert!(columns.into_iter().all(|column| column.matches(":.").count() == 1), "{argument}");
    }
}
