//! What has been done last, and the objects that a search finds: what a page without any trouble has to say.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use super::markup::{Text, or_dash, row, table, utc};
use super::work::object;
use crate::diagnostics::report::{DoneReport, ObjectReport, StatusReport};
use crate::diagnostics::shown::Age;

/// A section for each role that has done something, in the order of the roles, the newest first.
pub(super) fn done(out: &mut String, report: &StatusReport) {
    const COLUMNS: [&str; 5] = ["object", "done", "#took", "#failed tries", "#when"];
    let done_row = |item: &DoneReport| {
        let ago = Age(Duration::try_from(report.now.duration_since(item.at)).unwrap_or_default());
        let when = format!("<span title=\"{}\">{ago} ago</span>", utc(item.at));
        let cells: [&dyn Display; 5] =
            [&object(&item.key, item.subject.as_deref()), &Text(&item.what), &item.took, &item.attempts, &when];
        row(&COLUMNS, &cells, "", None)
    };
    for role in &report.roles {
        let rows: Vec<String> = report.done.iter().filter(|item| item.role == role.name).map(done_row).collect();
        if rows.is_empty() {
            continue;
        }
        let note = if report.find.is_some() {
            format!("{} found among the last", rows.len())
        } else {
            format!("the last {}", rows.len())
        };
        table(out, &format!("Done by the {}", Text(&role.name)), &note, &COLUMNS, &rows, "");
    }
}

/// Where the objects are that the search has found. Nothing without a search, or if it has found none.
pub(super) fn objects(out: &mut String, report: &StatusReport) {
    const COLUMNS: [&str; 3] = ["object", "kind", "state"];
    if report.objects.is_empty() {
        return;
    }
    let object_row = |object: &ObjectReport| {
        let name = format!("<span class=\"subject\">{}</span>", Text(&object.name));
        let state = or_dash(object.state.as_ref().map(|state| state as &dyn Display));
        row(&COLUMNS, &[&name, &Text(&object.kind), &state], "", object.last_error.as_deref())
    };
    let rows: Vec<String> = report.objects.iter().map(object_row).collect();
    let mut note = rows.len().to_string();
    if report.objects_total > rows.len() {
        let _ = write!(note, " of {}", report.objects_total);
    }
    table(out, "Found", &note, &COLUMNS, &rows, "");
}
