use super::*;
use std::io;
use tracing::{debug, error, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::telemetry::fixtures::Paper;

/// The lines, each an object.
fn lines(paper: &Paper) -> Vec<serde_json::Value> {
    paper.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn log(level: &str, format: LogFormat, story: impl FnOnce(&LogLevel)) -> Paper {
    let paper = Paper::default();
    let settings = LogSettings { level: level.to_owned(), format };
    let (layer, handle) = layer(&settings, Clock::system(), false, paper.clone()).unwrap();
    tracing::subscriber::with_default(Registry::default().with(layer), || story(&handle));
    paper
}

#[derive(Debug, thiserror::Error)]
#[error("cannot attach")]
struct Outer(#[source] io::Error);

#[test]
fn a_line_has_the_fields_of_the_event_and_of_every_span_around_it() {
    let paper = log("info", LogFormat::Json, |_| {
        let attach = info_span!("attach", role = "attacher", volume = "v-1", node = tracing::field::Empty);
        attach.record("node", "node-a");
        let _attach = attach.entered();
        let _publish = info_span!("publish", otel.kind = "client", volume = "v-2", attempt = 3).entered();
        let cause = Outer(io::Error::other("no route"));
        error!(error = &cause as &(dyn std::error::Error + 'static), took = 0.5, level = "odd", "attach failed");
    });
    let lines = lines(&paper);
    assert_eq!(lines.len(), 1);
    let ts = lines[0]["ts"].as_str().unwrap();
    assert!(ts.len() == 27 && ts.ends_with('Z'), "{ts}");
    let mut line = lines[0].clone();
    line.as_object_mut().unwrap().remove("ts");
    assert_eq!(
        line,
        serde_json::json!({
            "level": "ERROR", "target": module_path!(), "message": "attach failed", "span": "attach:publish",
            "error": "cannot attach: no route", "took": 0.5, "field_level": "odd",
            "volume": "v-2", "attempt": 3, "role": "attacher", "node": "node-a",
        })
    );
    assert!(paper.text().starts_with("{\"ts\":"), "{}", paper.text());
}

#[test]
fn a_value_with_line_breaks_stays_on_its_line() {
    let paper = log("info", LogFormat::Json, |_| info!(error = "a\nb\"}\n{", "first\nsecond"));
    assert_eq!(paper.text().lines().count(), 1);
    assert_eq!(lines(&paper)[0]["error"], "a\nb\"}\n{");
    assert_eq!(lines(&paper)[0]["message"], "first\nsecond");
}

#[test]
fn spans_survive_a_level_that_hides_their_events() {
    let paper = log("error", LogFormat::Json, |_| {
        let _span = info_span!("attach", volume = "v-1").entered();
        info!("hidden");
        error!("shown");
    });
    assert_eq!(lines(&paper).len(), 1);
    assert_eq!(lines(&paper)[0]["volume"], "v-1");
}

#[test]
fn the_level_changes_while_running() {
    let paper = log("info", LogFormat::Json, |level| {
        debug!("one");
        level.set("debug").unwrap();
        debug!("two");
        assert!(level.set("loud").is_err());
        debug!("three");
        level.set("warn").unwrap();
        info!("four");
    });
    let messages: Vec<_> = lines(&paper).iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["two", "three"]);
}

#[test]
fn chatty_libraries_speak_only_when_asked_by_name() {
    let story = |_: &LogLevel| {
        debug!(target: "h2::codec", "frame");
        error!(target: "kube_client::client::builder", "told by us already");
        debug!(target: "csi_control_plane::csi", "ours");
    };
    let paper = log("debug", LogFormat::Json, story);
    assert_eq!(lines(&paper).len(), 1, "{}", paper.text());
    let paper = log("debug,h2=debug,kube_client::client::builder=error", LogFormat::Json, story);
    assert_eq!(lines(&paper).len(), 3, "{}", paper.text());
    assert_eq!(log("off", LogFormat::Json, |_| error!(target: "h2", "x")).text(), "");
}

/// "eof in poll: Custom {…}" says to nobody what has happened, and the watch's own line does.
#[test]
fn kubes_own_words_are_for_those_who_look_for_a_fault() {
    let story = |_: &LogLevel| {
        tracing::warn!(target: "kube_client::client", "eof in poll: Custom");
        tracing::warn!(target: "kube_runtime::watcher", "watch list error with 403: Api");
    };
    for (level, lines) in [("info", 0), ("warn", 0), ("debug", 2), ("info,kube_client=warn", 1)] {
        assert_eq!(log(level, LogFormat::Json, story).text().lines().count(), lines, "{level}");
    }
}

#[test]
fn a_misspelt_level_is_an_error_and_not_a_silent_log() {
    for level in ["inof", "", " ", "info,dbug", "csi=loud"] {
        assert!(parse_level(level).is_err(), "{level}");
    }
    for level in ["info", "WARN", "off", "info,csi_control_plane::csi=trace", "kube_runtime=debug"] {
        assert!(parse_level(level).is_ok(), "{level}");
    }
}

#[test]
fn text_is_for_people() {
    let paper = log("info", LogFormat::Text, |_| info!(volume = "v-1", "attached"));
    assert!(paper.text().contains(" INFO ") && paper.text().contains("attached volume=\"v-1\""), "{}", paper.text());
    assert!(!paper.text().contains('\u{1b}'));
}

#[test]
fn a_field_that_is_recorded_again_is_told_once_with_its_last_value() {
    let paper = log("info", LogFormat::Text, |_| {
        let span = info_span!("attachment", role = "attacher", operation = tracing::field::Empty);
        let _span = span.clone().entered();
        for operation in ["attach", "attach", "detach"] {
            span.record("operation", operation);
        }
        info!(attempt = 3, "trying again");
    });
    let line = paper.text();
    let expected =
        format!("attachment{{role=\"attacher\" operation=\"detach\"}}: {}: trying again attempt=3\n", module_path!());
    assert!(line.ends_with(&expected), "{line}");
}

/// What an object's line looked like after a night of failures: each attempt records its fields on the object's span again.
#[test]
fn a_line_is_as_long_after_65_attempts_as_after_one() {
    let width = |format: LogFormat, attempts: usize| {
        let paper = log("info", format, |_| {
            let span = info_span!("attachment", role = "attacher", operation = tracing::field::Empty);
            for _ in 0..attempts {
                let _span = span.enter();
                span.record("operation", "attach");
                let call = info_span!("csi_rpc", otel.kind = "client", code = tracing::field::Empty);
                call.record("code", "Internal");
                call.in_scope(|| info!(error = "no room", "trying again"));
            }
        });
        let text = paper.text();
        assert_eq!(text.lines().count(), attempts);
        let last = text.lines().last().unwrap().to_owned();
        assert_eq!(last.matches("operation").count(), 1, "{last}");
        last.len()
    };
    for format in [LogFormat::Text, LogFormat::Json] {
        assert_eq!(width(format, 65), width(format, 1), "{format:?}");
    }
}
