//! What is written of the runs: every figure as JSON, the comparison as a table and as a chart.

use crate::Run;
use crate::arguments::Arguments;

/// Who compares.
pub(crate) const US: &str = "csi-control-plane";

/// The runs of an earlier comparison.
pub(crate) fn read_runs(arguments: &Arguments) -> Vec<Run> {
    let Ok(text) = std::fs::read_to_string(arguments.results.join("results.json")) else { return Vec::new() };
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(document["runs"].clone()).unwrap()
}

pub(crate) fn write(arguments: &Arguments, runs: &[Run]) -> String {
    std::fs::create_dir_all(&arguments.results).unwrap();
    let text = serde_json::to_string_pretty(&serde_json::json!({ "runs": runs })).unwrap();
    std::fs::write(arguments.results.join("results.json"), text + "\n").unwrap();
    String::new()
}
