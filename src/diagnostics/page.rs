//! The status page: one self-contained HTML document.
//!
//! No script, no asset, no font: it works through `kubectl port-forward`, behind a strict content security policy and
//! saved to a file. It reloads itself. Every value goes through [`Text`], because driver names and errors are a driver's
//! words, not ours. Colour never speaks alone: each badge says its state.

#[path = "page_configuration.rs"]
mod configuration;

use std::fmt::{self, Display, Write as _};

use jiff::Timestamp;

use super::report::{
    CacheReport, ConditionReport, DriverReport, DriverStatus, Overall, QueueReport, RoleReport, RoleStatus,
    StatusReport, TableReport, WorkReport,
};

/// The page's style, which the server allows by its hash.
pub(super) const STYLE: &str = include_str!("page.css");

/// A value in HTML text or in a quoted attribute.
struct Text<T>(T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                _ => self.0.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// How a badge looks.
#[derive(Clone, Copy)]
enum Tone {
    Good,
    Calm,
    Busy,
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Calm => "calm",
            Self::Busy => "busy",
            Self::Bad => "bad",
        }
    }
}

fn badge(tone: Tone, word: &'static str) -> String {
    format!("<span class=\"badge {}\">{word}</span>", tone.class())
}

fn overall(state: Overall) -> (Tone, &'static str) {
    match state {
        Overall::Healthy => (Tone::Good, "healthy"),
        Overall::Standby => (Tone::Calm, "standby"),
        Overall::Starting => (Tone::Busy, "starting"),
        Overall::Degraded => (Tone::Busy, "degraded"),
        Overall::Failing => (Tone::Bad, "failing"),
    }
}

fn driver_state(state: DriverStatus) -> (Tone, &'static str) {
    match state {
        DriverStatus::Connecting => (Tone::Busy, "connecting"),
        DriverStatus::Ready => (Tone::Good, "ready"),
        DriverStatus::Lost => (Tone::Bad, "lost"),
        DriverStatus::Fatal => (Tone::Bad, "fatal"),
    }
}

fn role_state(state: RoleStatus) -> (Tone, &'static str) {
    match state {
        RoleStatus::WaitingForDriver => (Tone::Busy, "waiting for driver"),
        RoleStatus::Standby => (Tone::Calm, "standby"),
        RoleStatus::Serving => (Tone::Good, "serving"),
        RoleStatus::Restarting => (Tone::Bad, "restarting"),
        RoleStatus::Stopped => (Tone::Calm, "stopped"),
    }
}

/// The whole page. Writing to a `String` never fails, so its results are dropped throughout.
pub fn render(report: &StatusReport) -> String {
    let mut out = String::with_capacity(16 * 1024);
    let driver = report.driver.as_ref();
    let name = driver.and_then(|driver| driver.name.as_deref()).unwrap_or("driver not known yet");
    let (tone, word) = overall(report.overall);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"5\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{word} · {name}</title><style>{STYLE}</style></head>\n<body><div class=\"page\">\n\
         <header class=\"{tone}\"><p class=\"product\">csi-control-plane <span>{version}</span></p>\
         <h1>{name}</h1>{badge}<p class=\"when\">up {uptime} · since {started} · as of {now}</p></header>\n<main>\n",
        name = Text(name),
        tone = tone.class(),
        version = Text(&report.version),
        badge = badge(tone, word),
        uptime = report.uptime,
        started = utc(report.started),
        now = utc(report.now),
    );
    notices(&mut out, report);
    tiles(&mut out, report);
    work(&mut out, report);
    roles(&mut out, &report.roles);
    for shown in &report.tables {
        own_table(&mut out, shown);
    }
    if let Some(driver) = driver {
        self::driver(&mut out, driver);
    }
    out.push_str("<div class=\"pair\">\n");
    caches(&mut out, &report.caches);
    queues(&mut out, &report.queues);
    out.push_str("</div>\n");
    if let Some(shown) = &report.configuration {
        configuration::section(&mut out, shown);
    }
    health(&mut out, report);
    out.push_str(
        "</main>\n<footer>Reloads every 5 s. <a href=\"/status.json\">status.json</a> <a href=\"/metrics\">metrics</a> \
         <a href=\"/readyz?verbose\">readyz</a> <a href=\"/livez?verbose\">livez</a></footer>\n</div></body></html>\n",
    );
    out
}

/// What needs attention, said first.
fn notices(out: &mut String, report: &StatusReport) {
    let mut notice = |tone: Tone, what: &dyn Display, why: &dyn Display| {
        let _ = writeln!(
            out,
            "<p class=\"notice {}\"><strong>{}</strong> <bdi>{}</bdi></p>",
            tone.class(),
            Text(what),
            Text(why)
        );
    };
    let failed = |conditions: &[ConditionReport]| -> Vec<(String, String)> {
        let pair = |condition: &ConditionReport| Some((condition.name.clone(), condition.failure.clone()?));
        conditions.iter().filter_map(pair).collect()
    };
    for (name, reason) in failed(&report.liveness) {
        notice(Tone::Bad, &format_args!("Not alive: {name}."), &reason);
    }
    if let Some(driver) = report.driver.as_ref().filter(|driver| driver.state != DriverStatus::Ready) {
        let (tone, word) = driver_state(driver.state);
        let reason = driver.last_error.as_deref().unwrap_or("no answer yet");
        notice(tone, &format_args!("Driver {word} for {}.", driver.since), &reason);
    }
    for (name, reason) in failed(&report.readiness) {
        notice(Tone::Busy, &format_args!("Not ready: {name}."), &reason);
    }
    if let Some(refused) = report.configuration.as_ref().and_then(|it| it.refused.as_ref()) {
        notice(
            Tone::Bad,
            &format_args!("Configuration refused for {}; the old one stays.", refused.since),
            &refused.summary,
        );
    }
    for warning in &report.warnings {
        notice(Tone::Calm, &"Note.", warning);
    }
}

fn tiles(out: &mut String, report: &StatusReport) {
    let serving = report.roles.iter().filter(|role| role.state == RoleStatus::Serving).count();
    let waiting: usize = report.queues.iter().map(|queue| queue.depth).sum();
    let running: usize = report.queues.iter().map(|queue| queue.running).sum();
    let objects: usize = report.caches.iter().map(|cache| cache.objects).sum();
    let alarm = if report.work_failing > 0 { " class=\"alarm\"" } else { "" };
    let _ = writeln!(
        out,
        "<ul class=\"tiles\"><li><b>{serving}<i>/{roles}</i></b><span>roles serving</span></li>\
         <li><b>{total}</b><span>being worked on</span></li><li{alarm}><b>{failing}</b><span>failing</span></li>\
         <li><b>{running}</b><span>running now</span></li><li><b>{waiting}</b><span>waiting for a worker</span></li>\
         <li><b>{objects}</b><span>objects cached</span></li></ul>",
        roles = report.roles.len(),
        total = report.work_total,
        failing = report.work_failing,
    );
}

/// A table with these columns; `#` before a name marks a column of numbers.
fn table(out: &mut String, title: &str, note: &str, columns: &[&str], rows: &[String], empty: &str) {
    let _ = writeln!(out, "<section><h2>{title}<small>{note}</small></h2>");
    if rows.is_empty() {
        let _ = writeln!(out, "<p class=\"empty\">{empty}</p></section>");
        return;
    }
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in columns {
        let _ = match column.strip_prefix('#') {
            Some(number) => write!(out, "<th scope=\"col\" class=\"n\">{number}</th>"),
            None => write!(out, "<th scope=\"col\">{column}</th>"),
        };
    }
    out.push_str("</tr></thead>\n");
    for row in rows {
        let _ = writeln!(out, "<tbody>{row}</tbody>");
    }
    out.push_str("</table></div></section>\n");
}

/// One row: the cells under their columns' names, then what belongs below them over the whole width.
fn row(columns: &[&str], cells: &[&dyn Display], below: &str, error: Option<&str>) -> String {
    let mut out = String::from("<tr>");
    for (column, cell) in columns.iter().zip(cells) {
        let (class, label) = column.strip_prefix('#').map_or(("", *column), |label| (" class=\"n\"", label));
        let _ = write!(out, "<td{class} data-label=\"{label}\">{cell}</td>");
    }
    out.push_str("</tr>");
    let width = columns.len();
    if !below.is_empty() {
        let _ = write!(out, "<tr class=\"below\"><td colspan=\"{width}\">{below}</td></tr>");
    }
    if let Some(error) = error {
        let _ = write!(out, "<tr class=\"error\"><td colspan=\"{width}\"><bdi>{}</bdi></td></tr>", Text(error));
    }
    out
}

/// A point in time for people.
fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", Text(text))
}

fn or_dash(value: Option<&dyn Display>) -> String {
    value.map_or_else(|| "<span class=\"none\">–</span>".to_owned(), |value| Text(value).to_string())
}

fn work(out: &mut String, report: &StatusReport) {
    const COLUMNS: [&str; 7] = ["object", "role", "lane", "state", "#age", "#failed", "#next try"];
    let rows: Vec<String> = report.work.iter().map(|item| work_row(&COLUMNS, item)).collect();
    // Only who leads knows that nothing is to be done.
    let empty = match report.overall {
        Overall::Healthy => "Nothing to do: everything is as Kubernetes wants it.",
        Overall::Standby => "Another replica leads: nothing is worked on here.",
        Overall::Starting | Overall::Degraded | Overall::Failing => "Nothing is being worked on.",
    };
    let note = match report.work_total {
        0 => String::new(),
        total if total > report.work.len() => {
            format!("the {} most urgent of {total}, {} failing", rows.len(), report.work_failing)
        }
        total => format!("{total}, {} failing", report.work_failing),
    };
    table(out, "Volumes being worked on", &note, &COLUMNS, &rows, empty);
}

fn work_row(columns: &[&'static str], item: &WorkReport) -> String {
    let failed = item.attempts > 0 || item.last_error.is_some();
    let state = match (item.running, item.next_try, failed) {
        (true, _, _) => badge(Tone::Good, "running"),
        (false, Some(_), true) => badge(Tone::Bad, "backing off"),
        (false, Some(_), false) => badge(Tone::Calm, "delayed"),
        (false, None, _) => badge(Tone::Calm, "waiting"),
    };
    let next = item.next_try.map(|age| format!("in {age}"));
    let key = format!("<code class=\"key\">{}</code>", Text(&item.key));
    let object = match &item.subject {
        Some(subject) => format!("<span class=\"subject\">{}</span>{key}", Text(subject)),
        None => key,
    };
    row(
        columns,
        &[
            &object,
            &Text(&item.role),
            &Text(&item.lane),
            &state,
            &item.age,
            &item.attempts,
            &or_dash(next.as_ref().map(|next| next as &dyn Display)),
        ],
        "",
        item.last_error.as_deref(),
    )
}

fn roles(out: &mut String, roles: &[RoleReport]) {
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
                role.last_error.as_deref(),
            )
        })
        .collect();
    table(out, "Roles", "", &COLUMNS, &rows, "No role is configured.");
}

/// A role's own table, whose every word is escaped.
fn own_table(out: &mut String, shown: &TableReport) {
    let names: Vec<String> = shown.columns.iter().map(|column| Text(column).to_string()).collect();
    let columns: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells = |cells: &Vec<String>| {
        let texts: Vec<Text<&String>> = cells.iter().map(Text).collect();
        let texts: Vec<&dyn Display> = texts.iter().map(|text| text as &dyn Display).collect();
        row(&columns, &texts, "", None)
    };
    let rows: Vec<String> = shown.rows.iter().map(cells).collect();
    let mut note = Text(&shown.role).to_string();
    if shown.rows_total > rows.len() {
        let _ = write!(note, ", the first {} of {}", rows.len(), shown.rows_total);
    }
    table(out, &Text(&shown.title).to_string(), &note, &columns, &rows, "Nothing to show.");
}

fn driver(out: &mut String, driver: &DriverReport) {
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
    configuration::chips(out, "capabilities", &driver.capabilities);
    out.push_str("</section>\n");
}

fn caches(out: &mut String, caches: &[CacheReport]) {
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

fn queues(out: &mut String, queues: &[QueueReport]) {
    const COLUMNS: [&str; 5] = ["queue", "#waiting", "#running", "#delayed", "#oldest"];
    let rows: Vec<String> = queues
        .iter()
        .map(|queue| {
            let oldest = or_dash(queue.oldest_age.as_ref().map(|age| age as &dyn Display));
            row(&COLUMNS, &[&code(&queue.name), &queue.depth, &queue.running, &queue.delayed, &oldest], "", None)
        })
        .collect();
    table(out, "Queues", "", &COLUMNS, &rows, "No role serves a term here.");
}

fn health(out: &mut String, report: &StatusReport) {
    const COLUMNS: [&str; 3] = ["when", "task", "how it ended"];
    let failures: Vec<String> = report
        .task_failures
        .iter()
        .map(|failure| {
            let cells: [&dyn Display; 3] = [&utc(failure.at), &code(&failure.task), &Text(&failure.fate)];
            row(&COLUMNS, &cells, "", None)
        })
        .collect();
    if !failures.is_empty() {
        let note = format!("{} since the start", report.task_failures_total);
        table(out, "Tasks that ended unexpectedly", &note, &COLUMNS, &failures, "");
    }
    let conditions: Vec<String> = [("ready", &report.readiness), ("alive", &report.liveness)]
        .into_iter()
        .flat_map(|(kind, conditions)| {
            conditions.iter().map(move |condition| {
                let (tone, word) = if condition.failure.is_some() { (Tone::Bad, "fails") } else { (Tone::Good, "ok") };
                format!("<span class=\"fact\">{kind}: {} {}</span>", Text(&condition.name), badge(tone, word))
            })
        })
        .collect();
    if conditions.is_empty() && report.tasks.is_empty() {
        return;
    }
    let _ = writeln!(out, "<section><h2>Process</h2>");
    if !conditions.is_empty() {
        let _ = writeln!(out, "<h3>checks</h3><p class=\"facts\">{}</p>", conditions.concat());
    }
    configuration::chips(out, "tasks", &report.tasks);
    out.push_str("</section>\n");
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
