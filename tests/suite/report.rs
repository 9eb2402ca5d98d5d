//! What the suite has said. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// What became of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// The suite itself found that it does not apply, for this reason.
    DoesNotApply(String),
    /// Nobody asked for it, for this reason: a label that was not wanted, or what its name has.
    NotSelected(String),
}

/// The labels for which specs are not selected, the first that holds first.
const UNWANTED: [&str; 9] = [
    "Feature:Windows",
    "Feature:SELinux",
    "Feature:snapshotmetadata",
    "Disruptive",
    "Serial",
    "Slow",
    "Feature:volumegroupsnapshot",
    "Feature:VolumeSnapshotDataSource",
    "Feature:VolumeAttributesClass",
];

/// The specs, and what became of them.
pub(super) struct Report(Vec<(String, Verdict)>);

impl Report {
    /// Reads ginkgo's report, of `--json-report`. Specs that were left out have a part of their name
    /// in common, and a reason.
    pub(super) fn of(report: &Value, left_out: (&str, &str)) -> Self {
        let suites = report.as_array().into_iter().flatten();
        let specs = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
        let told = |spec| {
            let name = name(spec)?;
            let reason = name.contains(left_out.0).then_some(left_out.1);
            let verdict = verdict(spec, reason);
            Some((name, verdict))
        };
        Self(specs.filter_map(told).collect())
    }

    /// This report, and what another one says of the specs that were not selected in this one.
    pub(super) fn and(mut self, other: Self) -> Self {
        let mut others: BTreeMap<String, Verdict> = other.0.into_iter().collect();
        for (name, verdict) in self.0.iter_mut().filter(|(_, it)| matches!(it, Verdict::NotSelected(_))) {
            match others.remove(name) {
                None | Some(Verdict::NotSelected(_)) => {}
                Some(other) => *verdict = other,
            }
        }
        self
    }

    fn count(&self, of: impl Fn(&Verdict) -> bool) -> usize {
        self.0.iter().filter(|(_, verdict)| of(verdict)).count()
    }

    /// How many specs were run to an end of theirs.
    pub(super) fn applied(&self) -> usize {
        self.count(|it| matches!(it, Verdict::Passed | Verdict::Failed))
    }

    pub(super) fn failed(&self) -> usize {
        self.count(|it| *it == Verdict::Failed)
    }

    /// The figures, the specs that failed, and the reasons of those that were not run.
    pub(super) fn text(&self) -> String {
        let mut reasons: [BTreeMap<&str, usize>; 2] = [BTreeMap::new(), BTreeMap::new()];
        for (_, verdict) in &self.0 {
            match verdict {
                Verdict::DoesNotApply(reason) => *reasons[0].entry(reason).or_default() += 1,
                Verdict::NotSelected(label) => *reasons[1].entry(label).or_default() += 1,
                Verdict::Passed | Verdict::Failed => {}
            }
        }
        let [skipped, unselected] = reasons;
        let sum = |counts: &BTreeMap<&str, usize>| counts.values().sum::<usize>();
        let mut text = format!(
            "Of {} specs {} apply: {} passed, {} failed. {} do not apply, {} were not selected.\n",
            self.0.len(),
            self.applied(),
            self.count(|it| *it == Verdict::Passed),
            self.failed(),
            sum(&skipped),
            sum(&unselected),
        );
        let mut list = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = write!(text, "\n{title}:\n{}", lines.concat());
            }
        };
        let failed = self.0.iter().filter(|(_, verdict)| *verdict == Verdict::Failed);
        list("Failed", failed.map(|(name, _)| format!("- {name}\n")).collect());
        let lines = |counts: BTreeMap<&str, usize>| counts.iter().map(|(why, n)| format!("- {n} {why}\n")).collect();
        list("Does not apply, in the suite's words", lines(skipped));
        list("Not selected, by label or reason", lines(unselected));
        text
    }
}

/// The name of a spec that is the suite's, without what all have. Its program has specs for other things than drivers, too.
fn name(spec: &Value) -> Option<String> {
    let containers = spec["ContainerHierarchyTexts"].as_array()?;
    let mut texts = containers.iter().chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    texts.next()?.starts_with("External Storage ").then(|| texts.collect::<Vec<_>>().join(" "))
}

fn verdict(spec: &Value, left_out: Option<&str>) -> Verdict {
    let message = spec["Failure"]["Message"].as_str().unwrap_or_default();
    match spec["State"].as_str().unwrap_or_default() {
        "passed" => Verdict::Passed,
        "skipped" | "pending" if message.is_empty() => {
            let containers = spec["ContainerHierarchyLabels"].as_array().into_iter().flatten();
            let labels = containers.chain([&spec["LeafNodeLabels"]]).filter_map(Value::as_array).flatten();
            let labels: Vec<&str> = labels.filter_map(Value::as_str).collect();
            let unwanted = UNWANTED.into_iter().find(|label| labels.contains(label));
            Verdict::NotSelected(left_out.or(unwanted).unwrap_or("without a focus on it").to_owned())
        }
        "skipped" => Verdict::DoesNotApply(reason(message)),
        // Also what was interrupted, ended by its time, or never came to a verdict.
        _ => Verdict::Failed,
    }
}

/// A reason to skip, without the driver's name: that is the same in all.
fn reason(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let words = first.trim_end_matches("skipping").trim_end_matches([' ', '-']).split(' ');
    let words: Vec<&str> = words.filter(|word| !word.contains("demo.csi.example.com")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(text: &str, state: &str, message: &str, labels: &[&str]) -> Value {
        json!({
            "ContainerHierarchyTexts": ["External Storage [Driver: demo.csi.example.com]", "volumes"],
            "ContainerHierarchyLabels": [null, []],
            "LeafNodeText": text, "LeafNodeLabels": labels, "State": state, "Failure": {"Message": message},
        })
    }

    #[test]
    fn each_spec_is_counted_once_and_each_skip_has_its_reason() {
        let unsupported = "Driver \"demo.csi.example.com\" does not support volume type \"InlineVolume\" - skipping";
        let report = Report::of(
            &json!([{"SpecReports": [
                {"ContainerHierarchyTexts": null, "State": "passed"},
                {"ContainerHierarchyTexts": ["[sig-node] Pods"], "State": "skipped"},
                spec("stores", "passed", "", &[]),
                spec("grows", "failed", "no", &[]),
                spec("hangs", "timedout", "too long", &["Slow"]),
                spec("inline", "skipped", unsupported, &[]),
                spec("inline again", "skipped", unsupported, &[]),
                spec("windows", "skipped", "", &["Slow", "Feature:Windows"]),
                spec("other", "skipped", "", &[]),
                spec("populates", "skipped", "", &[]),
            ]}]),
            ("populates", "no image"),
        );
        assert_eq!((report.applied(), report.failed()), (3, 2));
        let text = "Of 8 specs 3 apply: 1 passed, 2 failed. 2 do not apply, 3 were not selected.\n\n\
            Failed:\n- volumes grows\n- volumes hangs\n\n\
            Does not apply, in the suite's words:\n- 2 Driver does not support volume type \"InlineVolume\"\n\n\
            Not selected, by label or reason:\n- 1 Feature:Windows\n- 1 no image\n- 1 without a focus on it\n";
        assert_eq!(report.text(), text);
    }

    #[test]
    fn a_second_report_says_what_became_of_specs_that_the_first_had_not_selected() {
        let of = |states: [&str; 3]| {
            let [a, b, c] = states;
            let specs = [spec("a", a, "", &[]), spec("b", b, "", &[]), spec("c", c, "", &["Slow"])];
            Report::of(&json!([{"SpecReports": specs}]), ("populates", "no image"))
        };
        let both = of(["passed", "skipped", "skipped"]).and(of(["skipped", "failed", "skipped"]));
        let verdicts: Vec<Verdict> = both.0.into_iter().map(|(_, verdict)| verdict).collect();
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed, Verdict::NotSelected("Slow".to_owned())]);
    }

    #[test]
    fn no_report_has_no_spec() {
        assert_eq!(Report::of(&Value::Null, ("", "")).applied(), 0);
    }
}
