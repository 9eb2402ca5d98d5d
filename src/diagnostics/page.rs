//! The status page: one self-contained HTML document.
//!
//! It loads no assets or fonts: it works through `kubectl port-forward`, with a strict content security policy, and
//! saved to a file. A few lines of script ([`SCRIPT`]) update the page in place, and show when the daemon does not
//! answer any more; without script the page reloads itself. The search is a form, and the server searches, because the
//! browser gets only the most urgent items. Every value goes through [`Text`], because driver names and errors come
//! from the driver. Colour is never the only information: each badge also has a text. This file decides the order, by
//! urgency: problems, failing work, other work, the parts of the daemon.

mod configuration;
mod done;
mod markup;
mod parts;
mod stopped;
mod work;

use std::fmt::{Display, Write as _};

use self::markup::{Text, Tone, badge, utc};
use super::report::{ConditionReport, DriverStatus, Overall, RoleStatus, StatusReport, WorkCounts};

/// The page's style, which the server allows by its hash.
pub(super) const STYLE: &str = include_str!("page.css");
/// The page's script, which the server allows by its hash.
pub(super) const SCRIPT: &str = include_str!("page.js");

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
        DriverStatus::NotNeeded => (Tone::Calm, "not needed"),
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
    let mut out = String::with_capacity(32 * 1024);
    let driver = report.driver.as_ref();
    // Roles that work without the cluster share no connection to the driver, and those for all drivers need none.
    let unnamed = match driver {
        Some(driver) if driver.state == DriverStatus::NotNeeded => "all drivers of the cluster",
        None if !report.roles.is_empty() => "daemon without a cluster",
        _ => "driver not known yet",
    };
    let name = driver.and_then(|driver| driver.name.as_deref()).unwrap_or(unnamed);
    let (tone, word) = overall(report.overall);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\
         <meta name=\"color-scheme\" content=\"light dark\">{icon}\
         <title>{word} · {name}</title><style>{STYLE}</style></head>\n<body><div class=\"page\">\n\
         <p id=\"stale\" class=\"notice bad\" role=\"status\" hidden></p>\n\
         <header id=\"state\" class=\"{tone}\" data-live><p class=\"product\">csi-control-plane <span>{version}</span></p>\
         <h1>{name}</h1>{badge}<p class=\"when\">up {uptime} · since {started} · as of {now}</p></header>\n<main>\n",
        icon = icon(tone),
        name = Text(name),
        tone = tone.class(),
        version = Text(&report.version),
        badge = badge(tone, word),
        uptime = report.uptime,
        started = utc(report.started),
        now = utc(report.now),
    );
    out.push_str("<div id=\"attention\" data-live>\n");
    notices(&mut out, report);
    tiles(&mut out, report);
    out.push_str("</div>\n");
    work::find_form(&mut out, report);
    out.push_str("<div id=\"parts\" data-live>\n");
    done::objects(&mut out, report);
    work::work(&mut out, report);
    parts::roles(&mut out, &report.roles);
    for shown in &report.tables {
        parts::own_table(&mut out, shown);
    }
    done::done(&mut out, report);
    if let Some(driver) = driver.filter(|driver| driver.state != DriverStatus::NotNeeded) {
        parts::driver(&mut out, driver);
    }
    out.push_str("<div class=\"pair\">\n");
    parts::caches(&mut out, &report.caches);
    parts::queues(&mut out, &report.queues);
    out.push_str("</div>\n");
    if let Some(shown) = &report.configuration {
        configuration::section(&mut out, shown);
    }
    parts::health(&mut out, report);
    let _ = writeln!(
        out,
        "</div>\n</main>\n<footer><span>Refreshes every 5 s.</span> <a href=\"/status.json\">status.json</a> \
         <a href=\"/metrics\">metrics</a> <a href=\"/readyz?verbose\">readyz</a> <a href=\"/livez?verbose\">livez</a></footer>\n\
         </div><script>{SCRIPT}</script></body></html>"
    );
    out
}

/// A dot in the state's colour, for the browser's tab.
fn icon(tone: Tone) -> String {
    let colour = match tone {
        Tone::Good => "1a9e5f",
        Tone::Calm => "6f83a8",
        Tone::Busy => "d98a00",
        Tone::Bad => "d22f3d",
    };
    format!(
        "<link id=\"icon\" rel=\"icon\" data-live href=\"data:image/svg+xml,%3Csvg xmlns='http:%2F%2Fwww.w3.org/2000/svg' \
         viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='7' fill='%23{colour}'/%3E%3C/svg%3E\">"
    )
}

/// The problems, at the top.
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
    if let Some(driver) = report.driver.as_ref().filter(|driver| driver.is_missed()) {
        let (tone, word) = driver_state(driver.state);
        let reason = driver.last_error.as_deref().unwrap_or("no answer yet");
        notice(tone, &format_args!("Driver {word} for {}.", driver.since), &reason);
    }
    if let Some((api, lost)) = report.api.as_ref().and_then(|api| Some((api, api.lost?))) {
        let what = format_args!("The Kubernetes API has not answered for {lost} ({} failures).", api.failures);
        notice(Tone::Bad, &what, &api.last_error.as_deref().unwrap_or_default());
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

/// What there is, in numbers. The states add up to what is in progress.
fn tiles(out: &mut String, report: &StatusReport) {
    let serving = report.roles.iter().filter(|role| role.state == RoleStatus::Serving).count();
    let WorkCounts { running, waiting, backing_off, delayed } = report.work_states;
    let alarm = if report.work_failing > 0 { " class=\"alarm\"" } else { "" };
    let failing = match report.work_failing {
        0 => String::new(),
        failing => format!("<i> · {failing} failing</i>"),
    };
    let _ = writeln!(
        out,
        "<ul class=\"tiles\"><li><b>{serving}<i>/{roles}</i></b><span>roles serving</span></li>\
         <li><b>{total}</b><span>in progress{failing}</span></li><li><b>{running}</b><span>running</span></li>\
         <li><b>{waiting}</b><span>waiting</span></li><li{alarm}><b>{backing_off}</b><span>backing off</span></li>\
         <li><b>{delayed}</b><span>delayed</span></li></ul>",
        roles = report.roles.len(),
        total = report.work_total,
    );
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
