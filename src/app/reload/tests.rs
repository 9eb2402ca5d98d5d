//! Readings of a file, in order, and what becomes of them.

use std::collections::{BTreeSet, VecDeque};

use super::*;

const OLD: &str = "roles: {attacher: {}, reconciler: {}}\n";
const NEW: &str = "roles: {attacher: {workers: 7}, reconciler: {}}\n";

fn reloader(readings: &[Read], variables: &[(&str, &str)]) -> Reloader {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let source = Source::Played(Arc::new(Mutex::new(readings.iter().cloned().collect::<VecDeque<_>>())));
    let configuration = Configuration { source, variables, flags: Vec::new(), nudge: Arc::default(), level: None };
    let current = configuration.load(OLD.to_owned()).unwrap();
    Reloader::new(Some(configuration), current, Clock::system(), Meter::new())
}

#[expect(clippy::unnecessary_wraps, reason = "a reading is one or the other")]
fn good(text: &str) -> Read {
    Ok(text.to_owned())
}

/// The next change, brought into effect as the daemon does.
async fn change(reloader: &mut Reloader) -> Change {
    let (loaded, change) = reloader.next(Dependencies::new).await;
    reloader.applied(loaded, change.clone());
    change
}

/// The value of a metric.
fn metric(reloader: &Reloader, line: &str) -> String {
    let text = reloader.meter.render();
    let found = text.lines().find_map(|it| it.strip_prefix(line)).unwrap_or_default();
    found.trim().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_being_written_is_not_judged_before_it_rests() {
    let half = "roles: {attacher: {workers: 7}}\n";
    let torn = "roles: {attacher: {work";
    let readings = [good(OLD), good(OLD), good(torn), good(""), good(half), good(NEW), good(NEW)];
    let mut reloader = reloader(&readings, &[]);
    let change = change(&mut reloader).await;
    assert_eq!((change.restarted, change.removed), (["attacher"].into(), BTreeSet::new()));
    assert_eq!(metric(&reloader, "csi_control_plane_config_reloads_total{result=\"applied\"}"), "1");
    for label in ["faults", "noRole"] {
        assert_eq!(metric(&reloader, &format!("csi_control_plane_config_reloads_total{{result=\"{label}\"}}")), "");
    }
}

#[tokio::test(start_paused = true)]
async fn each_bad_content_is_told_once_with_all_its_faults_and_the_old_one_stays() {
    let bad = good("csi: {timeout: 15}\nroles: {attacher: {workers: 0}, painter: {}}\n");
    let gone: Read = Err("no such file".to_owned());
    let fixed = good("csi: {endpoint: /other}\nroles: {attacher: {}, reconciler: {}}\n");
    // Twice each, for a file must rest; and then a few looks more.
    let mut readings = Vec::new();
    for read in [&bad, &gone, &fixed, &bad] {
        readings.extend(std::iter::repeat_n(read.clone(), 5));
    }
    let mut reloader = reloader(&readings, &[]);
    let standing = reloader.standing();
    let begun = reloader.clock.now();
    let refused = || standing.report(begun).refused;
    assert_eq!(metric(&reloader, "csi_control_plane_config_last_reload_successful"), "1");
    let mut seen: Vec<RefusedBecause> = Vec::new();
    for _ in 0..60 {
        // Dropped and called again, as the daemon does whenever something else happens.
        let nothing = tokio::time::timeout(Duration::from_secs(1), reloader.next(Dependencies::new)).await;
        assert!(nothing.is_err(), "nothing of this can be applied");
        if let Some(report) = refused().filter(|report| seen.last() != Some(&report.because)) {
            seen.push(report.because);
        }
    }
    assert_eq!(
        seen,
        [RefusedBecause::Faults, RefusedBecause::Unreadable, RefusedBecause::NeedsRestart, RefusedBecause::Faults]
    );
    for (label, count) in [("faults", "2"), ("unreadable", "1"), ("needsRestart", "1")] {
        let line = format!("csi_control_plane_config_reloads_total{{result=\"{label}\"}}");
        assert_eq!(metric(&reloader, &line), count, "{label}");
    }
    assert_eq!(metric(&reloader, "csi_control_plane_config_last_reload_successful"), "0");
    let report = refused().unwrap();
    let keys: Vec<&str> = report.faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["csi.timeout", "roles.attacher.workers", "roles.painter"]);
    assert_eq!(report.faults[0].origin.as_deref(), Some("played.yaml:1"));
    assert_eq!(reloader.current().roles["attacher"]["workers"], 100);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_over_when_the_file_says_again_what_is_in_effect_or_something_better() {
    let bad = good("roles: {painter: {}}\n");
    // More than the two that must agree: a look that is dropped half-way has read once.
    let mut readings = Vec::new();
    for read in [&bad, &good(OLD), &bad, &good(NEW)] {
        readings.extend(std::iter::repeat_n(read.clone(), 5));
    }
    let mut reloader = reloader(&readings, &[]);
    let standing = reloader.standing();
    let begun = reloader.clock.now();
    let mut was = Vec::new();
    while reloader.current().roles["attacher"]["workers"] == 100 {
        let next = tokio::time::timeout(Duration::from_millis(500), change(&mut reloader)).await;
        let is = standing.report(begun).refused.is_some();
        if was.last() != Some(&is) {
            was.push(is);
        }
        if next.is_ok() {
            break;
        }
    }
    assert_eq!(was, [false, true, false, true, false]);
    assert_eq!(metric(&reloader, "csi_control_plane_config_last_reload_successful"), "1");
    let report = standing.report(reloader.clock.now());
    assert_eq!((report.changes, report.last_changed), (1, vec!["roles.attacher.workers".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_the_environment_says_stands_over_every_new_file() {
    let hidden = "csi: {timeout: 33s}\nroles: {attacher: {}, reconciler: {}}\n";
    let variables = [("CSI_CONTROL_PLANE_CSI__TIMEOUT", "20s")];
    let mut reloader = reloader(&[good(hidden), good(hidden), good(hidden), good(NEW)], &variables);
    let change = change(&mut reloader).await;
    assert_eq!(change.restarted, ["attacher"].into());
    assert!(!change.calls, "the variable says the same as before");
    assert_eq!(reloader.current().config.csi.timeout, Duration::from_secs(20));
}

/// What the environment lacks it lacks for ever, so nothing of such a file is applied.
#[tokio::test(start_paused = true)]
async fn a_file_that_can_never_work_in_this_environment_is_refused_as_a_whole_with_its_keys() {
    let wants = "roles: {attacher: {workers: 7}, reconciler: {}, snapshotter: {nodeDeployment: {enabled: true}}}\n";
    for (variables, refused) in [(&[][..], true), (&[("NODE_NAME", "node-1")], false)] {
        let mut reloader = reloader(&[good(wants)], variables);
        let standing = reloader.standing();
        let begun = reloader.clock.now();
        let change = tokio::time::timeout(Duration::from_secs(10), reloader.next(Dependencies::new)).await;
        assert_eq!(change.is_err(), refused, "{variables:?}");
        let report = standing.report(begun).refused;
        let keys: Vec<String> = report.into_iter().flat_map(|it| it.faults).map(|fault| fault.key).collect();
        let expected: &[&str] = if refused { &["roles.snapshotter.nodeDeployment.enabled"] } else { &[] };
        assert_eq!(keys, expected, "{variables:?}");
    }
}
