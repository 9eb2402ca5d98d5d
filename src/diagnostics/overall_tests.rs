use super::*;
use crate::diagnostics::report::tests::demo;
use crate::diagnostics::{Age, ApiReport};

type Change = fn(&mut StatusReport);

fn seconds(seconds: u64) -> Age {
    Age(Duration::from_secs(seconds))
}

/// A leader that has run for hours, hosts a role of the cluster and `liveness`, and has nothing to complain of.
fn calm() -> StatusReport {
    let mut calm = demo();
    calm.take_work(Vec::new(), None, 1);
    calm.caches.clear();
    calm.api = Some(ApiReport::default());
    calm.configuration.as_mut().unwrap().refused = None;
    let local = RoleReport {
        name: "liveness".to_owned(),
        scope: RoleScope::Local,
        lease: None,
        leader: None,
        term: None,
        ..calm.roles[0].clone()
    };
    calm.roles[1] = local;
    calm
}

fn driver(report: &mut StatusReport, state: DriverStatus) {
    report.driver.as_mut().unwrap().state = state;
}

fn cluster(report: &mut StatusReport, state: RoleStatus) {
    report.roles[0].state = state;
}

/// No replica leads, and the Lease cannot be read.
fn leaderless(report: &mut StatusReport) {
    cluster(report, RoleStatus::Standby);
    (report.roles[0].leader, report.roles[0].last_error) = (None, Some("connection refused".to_owned()));
}

fn api_lost(report: &mut StatusReport) {
    report.api.as_mut().unwrap().lost = Some(seconds(15));
}

/// The driver is gone, and the Lease was given up.
fn driver_killed(report: &mut StatusReport) {
    driver(report, DriverStatus::Lost);
    cluster(report, RoleStatus::WaitingForDriver);
    report.readiness[0].failure = Some("connection refused".to_owned());
}

fn no_socket(report: &mut StatusReport) {
    driver_killed(report);
    driver(report, DriverStatus::Connecting);
}

/// Only `liveness`.
fn local_alone(report: &mut StatusReport) {
    (report.driver, report.api) = (None, None);
    report.readiness.clear();
    report.roles.remove(0);
}

fn check_failed(report: &mut StatusReport) {
    report.roles.last_mut().unwrap().failure = Some("at the last check, 2m ago: not ready".to_owned());
}

fn young(report: &mut StatusReport) {
    report.uptime = seconds(59);
}

/// A state, the changes of the calm report that lead to it, and its word.
const STATES: [(&str, &[Change], Overall); 32] = [
    ("a leader", &[], Overall::Healthy),
    ("a leader for all drivers", &[|r| driver(r, DriverStatus::NotNeeded)], Overall::Healthy),
    (
        "a standby for all drivers",
        &[|r| driver(r, DriverStatus::NotNeeded), |r| cluster(r, RoleStatus::Standby)],
        Overall::Standby,
    ),
    ("local roles alone", &[local_alone], Overall::Healthy),
    ("a standby that hosts liveness", &[|r| cluster(r, RoleStatus::Standby)], Overall::Standby),
    (
        "one of two Leases is led elsewhere",
        &[|r| r.roles.push(RoleReport { state: RoleStatus::Standby, ..r.roles[0].clone() })],
        Overall::Healthy,
    ),
    ("nobody leads yet", &[leaderless, |r| r.roles[0].last_error = None], Overall::Standby),
    ("a standby whose Lease errs", &[leaderless, |r| r.roles[0].leader = Some("b".to_owned())], Overall::Standby),
    ("nobody leads, and the Lease errs", &[leaderless], Overall::Degraded),
    ("nobody leads, and the API is lost", &[leaderless, api_lost], Overall::Degraded),
    ("a standby, and the API is lost", &[|r| cluster(r, RoleStatus::Standby), api_lost], Overall::Degraded),
    ("a leader, and the API is lost", &[api_lost], Overall::Degraded),
    ("the driver is lost, and still served", &[|r| driver(r, DriverStatus::Lost)], Overall::Degraded),
    ("the driver is lost, and nothing served", &[driver_killed], Overall::Failing),
    ("the same of a standby", &[driver_killed, |r| cluster(r, RoleStatus::Standby)], Overall::Failing),
    ("a young process that has lost its driver", &[driver_killed, young], Overall::Failing),
    ("no socket yet", &[no_socket, young], Overall::Starting),
    ("a socket that never appears", &[no_socket], Overall::Failing),
    ("no connection to the cluster yet", &[no_socket, young, |r| r.driver = None], Overall::Starting),
    ("no connection to the cluster at all", &[no_socket, |r| r.driver = None], Overall::Failing),
    ("another driver", &[|r| driver(r, DriverStatus::Fatal)], Overall::Failing),
    ("liveness alone whose last check failed", &[local_alone, check_failed], Overall::Failing),
    ("a leader beside it", &[check_failed], Overall::Failing),
    ("a check failed when the process was young", &[local_alone, check_failed, young], Overall::Failing),
    ("a role that fails", &[|r| cluster(r, RoleStatus::Restarting)], Overall::Degraded),
    ("a local role that fails", &[|r| r.roles[1].state = RoleStatus::Restarting], Overall::Degraded),
    ("a daemon that stops", &[|r| cluster(r, RoleStatus::Stopped)], Overall::Degraded),
    ("a claim in back-off", &[|r| r.work_failing = 1], Overall::Degraded),
    ("a configuration that was refused", &[|r| r.configuration = demo().configuration], Overall::Degraded),
    ("a watch that broke", &[|r| r.caches = demo().caches], Overall::Degraded),
    ("not listed yet", &[|r| r.readiness[1].failure = Some("not listed".to_owned()), young], Overall::Starting),
    ("never listed", &[|r| r.readiness[1].failure = Some("not listed".to_owned())], Overall::Degraded),
];

#[test]
fn each_state_has_its_word() {
    for (state, changes, word) in STATES {
        let mut report = calm();
        for change in changes {
            change(&mut report);
        }
        assert_eq!(judge(&report), word, "{state}");
    }
}

#[test]
fn the_worse_part_counts() {
    use Overall::{Degraded, Failing, Healthy, Standby, Starting};
    assert!(Healthy < Standby && Standby < Starting && Starting < Degraded && Degraded < Failing);
    let mut report = calm();
    report.roles.clear();
    assert_eq!(judge(&report), Degraded, "a process for hours without a role");
    young(&mut report);
    assert_eq!(judge(&report), Starting);
}
