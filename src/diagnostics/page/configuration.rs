//! The page's section about the configuration file.

use std::fmt::Write as _;

use super::markup::{Text, chips, code, row, table};
use crate::diagnostics::ConfigurationReport;

/// What is in effect, and every fault of what is not.
pub(super) fn section(out: &mut String, configuration: &ConfigurationReport) {
    const COLUMNS: [&str; 4] = ["key", "found", "allowed", "where"];
    if let Some(refused) = &configuration.refused {
        let rows: Vec<String> = refused
            .faults
            .iter()
            .map(|fault| {
                let key = if fault.key.is_empty() { "(the whole file)" } else { &fault.key };
                let origin = fault.origin.as_deref().unwrap_or_default();
                row(&COLUMNS, &[&code(key), &Text(&fault.found), &Text(&fault.allowed), &Text(origin)], "", None)
            })
            .collect();
        if !rows.is_empty() {
            let note = format!("{}, refused for {}", rows.len(), refused.since);
            table(out, "Faults of the new configuration", &note, &COLUMNS, &rows, "");
        }
    }
    let _ = writeln!(
        out,
        "<section><h2>Configuration</h2>\n<dl><div><dt>file</dt><dd>{}</dd></div><div><dt>in effect</dt><dd>for {}</dd></div>\
         <div><dt>changes</dt><dd>{}</dd></div></dl>",
        code(&configuration.source),
        configuration.since,
        configuration.changes,
    );
    chips(out, "last changed", &configuration.last_changed);
    out.push_str("</section>\n");
}
