//! The parts of the daemon: roles and their tables, the driver, caches, queues, the process.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use super::markup::{Text, Tone, badge, chips, code, or_dash, row, table, utc};
use super::{driver_state, role_state};
use crate::diagnostics::report::{
    CacheReport, ConditionReport, DriverReport, QueueReport, RoleReport, StatusReport, TaskFailureReport,
};
use crate::diagnostics::shown::Bytes;
use crate::diagnostics::table::{Cell, ColumnReport, ColumnType, TableReport};

pub(super) fn roles(out: &mut String, roles: &[RoleReport]) {
    const COLUMNS: [&str; 6] = ["role", "state", "leader", "#term", "#term age", "#restarts"];
    let rows: Vec<String> = roles
        .iter()
        .map(|role| {
            let (tone, word) = role_state(role.state);
            let mut below = String::new();
            if let Some(lease) = &role.lease {
                let _ = write!(below, "<span class=\"fact\">lease {}</span>", code(lease));
            }
            for fact in &role.facts {
                let _ = write!(below, "<span class=\"fact\">{} <b>{}</b></span>", Text(&fact.name), Text(&fact.value));
            }
            row(
                &COLUMNS,
                &[
                    &format_args!("<b>{}</b>", Text(&role.name)),
                    &badge(tone, word),
                    &role.leader.as_deref().map_or_else(|| or_dash(None), code),
                    &or_dash(role.term.as_ref().map(|term| term as &dyn Display)),
                    &or_dash(role.term_age.as_ref().map(|age| age as &dyn Display)),
                    &role.restarts,
                ],
                &below,
                role.failure.as_deref().or(role.last_error.as_deref()),
            )
        })
        .collect();
    table(out, "Roles", "", &COLUMNS, &rows, "No role is configured.");
}

/// A role's own table, whose every word is escaped. The row's error is shown below the row. A table without rows is not shown.
pub(super) fn own_table(out: &mut String, shown: &TableReport) {
    if shown.rows_total == 0 {
        return;
    }
    let (errors, shown_columns): (Vec<_>, Vec<_>) =
        shown.columns.iter().partition(|column| column.kind == ColumnType::Error);
    let heading =
        |column: &&ColumnReport| format!("{}{}", if is_number(column) { "#" } else { "" }, Text(&column.title));
    let names: Vec<String> = shown_columns.iter().map(heading).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells = |cells: &BTreeMap<String, Cell>| {
        let text = |column: &&ColumnReport| match (cells.get(&column.name), column.kind) {
            (None | Some(Cell::Nothing), _) => or_dash(None),
            (Some(Cell::Number(bytes)), ColumnType::Bytes) => Bytes(*bytes).to_string(),
            (Some(cell), _) => Text(cell).to_string(),
        };
        let texts: Vec<String> = shown_columns.iter().map(text).collect();
        let texts: Vec<&dyn Display> = texts.iter().map(|text| text as &dyn Display).collect();
        let failure = errors.iter().find_map(|column| cells.get(&column.name)?.text());
        row(&names, &texts, "", failure)
    };
    let rows: Vec<String> = shown.rows.iter().map(cells).collect();
    let mut note = Text(&shown.role).to_string();
    if shown.rows_total > rows.len() {
        let _ = write!(note, ", the first {} of {}", rows.len(), shown.rows_total);
    }
    table(out, &Text(&shown.title).to_string(), &note, &names, &rows, "Nothing to show.");
}

fn is_number(column: &ColumnReport) -> bool {
    matches!(column.kind, ColumnType::Count | ColumnType::Seconds | ColumnType::Bytes)
}

pub(super) fn driver(out: &mut String, driver: &DriverReport) {
    let (tone, word) = driver_state(driver.state);
    let _ = write!(out, "<section><h2>Driver</h2>\n<dl>");
    let mut item = |label: &str, value: &dyn Display| {
        let _ = write!(out, "<div><dt>{label}</dt><dd>{value}</dd></div>");
    };
    item("state", &format_args!("{} for {}", badge(tone, word), driver.since));
    item("name", &driver.name.as_deref().map_or_else(|| or_dash(None), code));
    item("version", &or_dash(driver.vendor_version.as_ref().map(|version| version as &dyn Display)));
    item("endpoint", &code(&driver.endpoint));
    item("connections", &driver.connections);
    item("generation", &driver.generation);
    out.push_str("</dl>\n");
    if let Some(error) = &driver.last_error {
        let _ = writeln!(out, "<p class=\"problem\"><bdi>{}</bdi></p>", Text(error));
    }
    chips(out, "capabilities", &driver.capabilities);
    out.push_str("</section>\n");
}

pub(super) fn caches(out: &mut String, caches: &[CacheReport]) {
    const COLUMNS: [&str; 5] = ["kind", "state", "#objects", "#last event", "#lists"];
    let rows: Vec<String> = caches
        .iter()
        .map(|cache| {
            let state = match (cache.last_error.is_some(), cache.synced) {
                (true, _) => badge(Tone::Bad, "broken"),
                (false, true) => badge(Tone::Good, "synced"),
                (false, false) => badge(Tone::Busy, "listing"),
            };
            let last = cache.last_event.map(|age| format!("{age} ago"));
            row(
                &COLUMNS,
                &[
                    &Text(&cache.kind),
                    &state,
                    &cache.objects,
                    &or_dash(last.as_ref().map(|last| last as &dyn Display)),
                    &cache.relists,
                ],
                "",
                cache.last_error.as_deref(),
            )
        })
        .collect();
    table(out, "Caches", "", &COLUMNS, &rows, "Nothing is watched yet.");
}

pub(super) fn queues(out: &mut String, queues: &[QueueReport]) {
    const COLUMNS: [&str; 5] = ["queue", "#waiting", "#running", "#delayed", "#oldest"];
    let rows: Vec<String> = queues
        .iter()
        .map(|queue| {
            let oldest = or_dash(queue.oldest_age.as_ref().map(|age| age as &dyn Display));
            // The name that the metrics use is for those who look for it.
            let title = format!("<span title=\"{}\">{}</span>", Text(&queue.name), Text(&queue.title));
            row(&COLUMNS, &[&title, &queue.depth, &queue.running, &queue.delayed, &oldest], "", None)
        })
        .collect();
    table(out, "Queues", "", &COLUMNS, &rows, "No role serves a term here.");
}

pub(super) fn health(out: &mut String, report: &StatusReport) {
    const COLUMNS: [&str; 3] = ["when", "task", "how it ended"];
    let failures: Vec<String> = report
        .task_failures
        .iter()
        .map(|failure: &TaskFailureReport| {
            let cells: [&dyn Display; 3] = [&utc(failure.at), &code(&failure.task), &Text(&failure.fate)];
            row(&COLUMNS, &cells, "", None)
        })
        .collect();
    if !failures.is_empty() {
        let note = format!("{} since the start", report.task_failures_total);
        table(out, "Tasks that ended unexpectedly", &note, &COLUMNS, &failures, "");
    }
    let condition = |condition: &ConditionReport| {
        let (tone, word) = if condition.failure.is_some() { (Tone::Bad, "fails") } else { (Tone::Good, "ok") };
        format!("<span class=\"fact\">ready: {} {}</span>", Text(&condition.name), badge(tone, word))
    };
    let conditions: Vec<String> = report.readiness.iter().map(condition).collect();
    if conditions.is_empty() && report.tasks.is_empty() {
        return;
    }
    let _ = writeln!(out, "<section><h2>Process</h2>");
    if !conditions.is_empty() {
        let _ = writeln!(out, "<h3>checks</h3><p class=\"facts\">{}</p>", conditions.concat());
    }
    chips(out, "tasks", &report.tasks);
    out.push_str("</section>\n");
}
