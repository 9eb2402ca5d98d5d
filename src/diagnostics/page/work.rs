//! The work in progress: a section for each queue that is not empty, failing items first.

use std::fmt::Write as _;

use super::markup::{Text, Tone, badge, or_dash, row, table};
use super::stopped::stopped;
use crate::diagnostics::backlog::WorkState;
use crate::diagnostics::report::{Overall, QueueReport, RoleScope, RoleStatus, StatusReport, WorkReport};
use crate::diagnostics::table::{Cell, ColumnType, TableReport};

const COLUMNS: [&str; 7] = ["object", "role", "lane", "state", "#age", "#failed tries", "#next try"];

/// The search form for work items and the roles' tables. The server searches, so that it finds items that are not on
/// the page, and works without script.
pub(super) fn find_form(out: &mut String, report: &StatusReport) {
    let find = report.find.as_deref().unwrap_or_default();
    let _ = write!(
        out,
        "<form class=\"find\" role=\"search\" method=\"get\" action=\"/\"><input type=\"search\" name=\"find\" \
         value=\"{}\" placeholder=\"Find a claim, volume, node, error\" aria-label=\"Find\" maxlength=\"200\" \
         autocomplete=\"off\" spellcheck=\"false\"><button>Find</button>",
        Text(find)
    );
    if !find.is_empty() {
        out.push_str("<a href=\"/\">show all</a>");
    }
    out.push_str("</form>\n");
}

pub(super) fn work(out: &mut String, report: &StatusReport) {
    let mut is_any = false;
    out.push_str("<div class=\"work\">\n");
    for queue in &report.queues {
        let shown: Vec<&WorkReport> = report.work.iter().filter(|item| item.is_of(queue)).collect();
        if shown.is_empty() {
            continue;
        }
        is_any = true;
        let rows: Vec<String> = shown.iter().map(|item| work_row(item)).collect();
        let (title, note) = (Text(&queue.title).to_string(), note(report, queue, rows.len()));
        table(out, &title, &note, &COLUMNS, &rows, "");
    }
    out.push_str("</div>\n");
    if is_any {
        return;
    }
    table(out, "In progress", "", &COLUMNS, &[], &Text(empty(report)).to_string());
}

/// Why there is no work to show.
fn empty(report: &StatusReport) -> String {
    let mut of_cluster = report.roles.iter().filter(|role| role.scope == RoleScope::Cluster);
    // Only a leader knows that there is no work.
    let leads = of_cluster.clone().any(|role| role.state == RoleStatus::Serving);
    let stopped = stopped(report);
    let found = match &report.find {
        Some(_) if !report.objects.is_empty() && leads && stopped.is_none() => found_idle(report).to_owned(),
        Some(_) if report.work_total > 0 => format!("None of the {} items in progress matches.", report.work_total),
        Some(_) if report.objects.is_empty() && report.done.is_empty() => {
            "Nothing matches: no object in the caches, and no work in progress.".to_owned()
        }
        _ => String::new(),
    };
    match (found.is_empty(), stopped, report.overall) {
        (true, Some(stopped), _) => stopped,
        (false, Some(stopped), _) => format!("{found} {stopped}"),
        (false, None, _) => found,
        (true, None, _) if !report.roles.is_empty() && of_cluster.next().is_none() => {
            "No role here works with the cluster.".to_owned()
        }
        (true, None, Overall::Healthy) => "No work: every volume is in the state that Kubernetes wants.".to_owned(),
        (true, None, Overall::Standby) => "Another replica leads: this replica does no work.".to_owned(),
        (true, None, Overall::Starting | Overall::Degraded | Overall::Failing) => "No work in progress.".to_owned(),
    }
}

/// What a leader knows about found objects that are in no queue.
fn found_idle(report: &StatusReport) -> &'static str {
    let fails = |table: &TableReport| {
        let mut errors = table.columns.iter().filter(|column| column.kind == ColumnType::Error);
        errors.any(|column| table.rows.iter().any(|row| row.get(&column.name).is_some_and(|it| *it != Cell::Nothing)))
    };
    if report.objects.iter().any(|object| object.last_error.is_some()) || report.tables.iter().any(fails) {
        "No work in progress for what was found. What fails, or waits, is shown with its reason."
    } else {
        "Nothing is wrong with what was found: no work in progress, and no failure."
    }
}

/// The total, and how many items are shown.
fn note(report: &StatusReport, queue: &QueueReport, shown: usize) -> String {
    let total = queue.depth + queue.running + queue.delayed;
    let mut note = match &report.find {
        Some(_) if queue.found > shown => format!("the {shown} most urgent of {} found among {total}", queue.found),
        Some(_) => format!("{shown} found among {total}"),
        None if total > shown => format!("the {shown} most urgent of {total}"),
        None => total.to_string(),
    };
    for (count, word) in [(queue.failing, "failing"), (queue.running, "running")] {
        if count > 0 {
            let _ = write!(note, " · {count} {word}");
        }
    }
    note
}

/// A key that users chose is shown first; a key that is a checksum is shown below its subject.
pub(super) fn object(key: &str, subject: Option<&str>) -> String {
    let code = format!("<code class=\"key\">{}</code>", Text(key));
    match (subject, subject.and_then(|subject| subject.strip_prefix(key))) {
        (Some(_), Some(more)) => {
            let more = more.trim_start_matches(':').trim_start();
            format!("<span class=\"subject\">{}</span><span class=\"more\">{}</span>", Text(key), Text(more))
        }
        (Some(subject), None) => format!("<span class=\"subject\">{}</span>{code}", Text(subject)),
        (None, _) => code,
    }
}

fn work_row(item: &WorkReport) -> String {
    let state = match item.state() {
        WorkState::Running => Tone::Good,
        WorkState::BackingOff => Tone::Bad,
        WorkState::Delayed | WorkState::Waiting => Tone::Calm,
    };
    let next = item.next_try.map(|age| format!("in {age}"));
    row(
        &COLUMNS,
        &[
            &object(&item.key, item.subject.as_deref()),
            &Text(&item.role),
            &Text(&item.lane),
            &badge(state, item.state().word()),
            &item.age,
            &item.attempts,
            &or_dash(next.as_ref().map(|next| next as &dyn std::fmt::Display)),
        ],
        "",
        item.last_error.as_deref(),
    )
}
