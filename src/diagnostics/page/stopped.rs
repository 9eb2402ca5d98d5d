//! What is stopped, and why: what an empty list of work does not say. Pure.

use std::fmt::Write as _;

use crate::diagnostics::report::{DriverStatus, RoleReport, RoleScope, RoleStatus, StatusReport};

/// What is stopped, with the reasons. `None`: nothing is.
pub(super) fn stopped(report: &StatusReport) -> Option<String> {
    let cluster: Vec<&RoleReport> = report.roles.iter().filter(|role| role.scope == RoleScope::Cluster).collect();
    let of = |wanted: &dyn Fn(&RoleReport) -> bool| -> Vec<&RoleReport> {
        cluster.iter().copied().filter(|role| wanted(role)).collect()
    };
    let mut sentences = Vec::new();
    let mut tell = |roles: &[&RoleReport], why: String, reason: Option<&str>| {
        let mut sentence = format!("{}: {why}", names(roles));
        if let Some(reason) = reason {
            let _ = write!(sentence, ": {}", reason.trim_end_matches('.'));
        }
        sentence.push('.');
        sentences.push(sentence);
    };
    let waiting = of(&|role| role.state == RoleStatus::WaitingForDriver);
    let driver = report.driver.as_ref().filter(|driver| driver.is_missed());
    match driver {
        Some(driver) if driver.state == DriverStatus::Lost && waiting.is_empty() && !cluster.is_empty() => {
            let why = format!("each call waits for the driver, which has been lost for {}", driver.since);
            tell(&cluster, why, driver.last_error.as_deref());
        }
        Some(driver) if !waiting.is_empty() => {
            let why = match driver.state {
                DriverStatus::Connecting => {
                    format!("stopped, because the driver has not answered for {}", driver.since)
                }
                DriverStatus::Fatal => "stopped, because another driver answers".to_owned(),
                _ => format!("stopped, because the driver has been lost for {}", driver.since),
            };
            tell(&waiting, why, driver.last_error.as_deref());
        }
        _ if !waiting.is_empty() => tell(&waiting, "not begun yet".to_owned(), None),
        _ => {}
    }
    let leaderless = of(&RoleReport::waits_for_a_leader);
    if let Some(role) = leaderless.first() {
        tell(&leaderless, "stopped, because no replica is known to lead".to_owned(), role.last_error.as_deref());
    }
    for role in of(&|role| role.state == RoleStatus::Restarting) {
        tell(&[role], "stopped until it is served again after an error".to_owned(), role.last_error.as_deref());
    }
    let ended = of(&|role| role.state == RoleStatus::Stopped);
    if !ended.is_empty() {
        tell(&ended, "stopped for good, because the daemon ends".to_owned(), None);
    }
    let api = report.api.as_ref().and_then(|api| Some((api.lost?, api)));
    if let Some((lost, api)) = api.filter(|_| !cluster.is_empty()) {
        let why = format!("the Kubernetes API has not answered for {lost}, and new work is not seen");
        tell(&cluster, why, api.last_error.as_deref());
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// `attacher, provisioner and resizer`.
fn names(roles: &[&RoleReport]) -> String {
    let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::diagnostics::report::tests::demo;
    use crate::diagnostics::{Age, ApiReport};

    /// Two roles of the cluster that are served, and one that needs none.
    fn served() -> StatusReport {
        let mut report = demo();
        report.api = Some(ApiReport::default());
        report.roles[1] = RoleReport { name: "resizer".to_owned(), ..report.roles[0].clone() };
        let local = RoleReport { scope: RoleScope::Local, name: "liveness".to_owned(), ..report.roles[0].clone() };
        report.roles.push(local);
        report
    }

    fn all(report: &mut StatusReport, state: RoleStatus) {
        report.roles[..2].iter_mut().for_each(|role| role.state = state);
    }

    fn driver(report: &mut StatusReport, state: DriverStatus) {
        let driver = report.driver.as_mut().unwrap();
        (driver.state, driver.since, driver.last_error) =
            (state, Age(Duration::from_secs(100)), Some("connection refused".to_owned()));
    }

    type Change = fn(&mut StatusReport);

    const WAITING: Change = |report| all(report, RoleStatus::WaitingForDriver);
    const LEADERLESS: Change = |report| {
        all(report, RoleStatus::Standby);
        for role in &mut report.roles[..2] {
            (role.leader, role.last_error) = (None, Some("cannot read the lease".to_owned()));
        }
    };

    #[test]
    fn what_is_stopped_is_named_with_its_reason() {
        let cases: [(&[Change], Option<&str>); 10] = [
            (&[], None),
            (&[|r| all(r, RoleStatus::Standby)], None),
            (
                &[|r| driver(r, DriverStatus::Lost), WAITING],
                Some("attacher and resizer: stopped, because the driver has been lost for 1m40s: connection refused."),
            ),
            (
                &[|r| driver(r, DriverStatus::Connecting), WAITING],
                Some(
                    "attacher and resizer: stopped, because the driver has not answered for 1m40s: connection refused.",
                ),
            ),
            (
                &[|r| driver(r, DriverStatus::Fatal), WAITING],
                Some("attacher and resizer: stopped, because another driver answers: connection refused."),
            ),
            (
                &[|r| driver(r, DriverStatus::Lost)],
                Some(
                    "attacher and resizer: each call waits for the driver, which has been lost for 1m40s: connection refused.",
                ),
            ),
            (&[WAITING], Some("attacher and resizer: not begun yet.")),
            (
                &[LEADERLESS],
                Some("attacher and resizer: stopped, because no replica is known to lead: cannot read the lease."),
            ),
            (
                &[|r| (r.roles[1].state, r.roles[1].last_error) = (RoleStatus::Restarting, Some("no port".to_owned()))],
                Some("resizer: stopped until it is served again after an error: no port."),
            ),
            (
                &[|r| r.api.as_mut().unwrap().lost = Some(Age(Duration::from_secs(15)))],
                Some("attacher and resizer: the Kubernetes API has not answered for 15s, and new work is not seen."),
            ),
        ];
        for (number, (changes, words)) in cases.into_iter().enumerate() {
            let mut report = served();
            for change in changes {
                change(&mut report);
            }
            assert_eq!(stopped(&report).as_deref(), words, "case {number}");
        }
    }
}
