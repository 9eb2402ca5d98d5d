//! The overall state: one word for the whole process. Pure.
//!
//! Roles of the cluster and local roles are judged apart, and the worst of all verdicts counts: a `liveness` that listens
//! says nothing about a Lease, and a leader nothing about the kubelet. docs/status.md says what each word means.

use std::time::Duration;

use super::report::{DriverStatus, Overall, RoleReport, RoleScope, RoleStatus, StatusReport};

/// How long a process may be not ready before that is a failure. The containers of a pod start one after another, each
/// after its image is there.
const START: Duration = Duration::from_secs(60);

/// The worst of what is wrong.
pub(super) fn judge(report: &StatusReport) -> Overall {
    let of_scope = |scope| report.roles.iter().filter(move |role| role.scope == scope).collect::<Vec<_>>();
    let cluster = of_scope(RoleScope::Cluster);
    let parts = [whole(report), of_each(report, &of_scope(RoleScope::Local)), of_each(report, &cluster)];
    parts.into_iter().max().unwrap_or(Overall::Starting).max(of_cluster(report, &cluster))
}

/// What is not ready: that takes a while at a start.
fn not_ready(report: &StatusReport, later: Overall) -> Overall {
    if report.uptime.0 < START { Overall::Starting } else { later }
}

/// What belongs to no role.
fn whole(report: &StatusReport) -> Overall {
    let is_refused = report.configuration.as_ref().is_some_and(|configuration| configuration.refused.is_some());
    if is_refused || report.work_failing > 0 || report.caches.iter().any(|cache| cache.last_error.is_some()) {
        Overall::Degraded
    } else if report.roles.is_empty() || report.readiness.iter().any(|condition| condition.failure.is_some()) {
        not_ready(report, Overall::Degraded)
    } else {
        Overall::Healthy
    }
}

/// What each of these roles says of itself.
fn of_each(report: &StatusReport, roles: &[&RoleReport]) -> Overall {
    let of = |role: &&RoleReport| match role.state {
        _ if role.failure.is_some() => Overall::Failing,
        RoleStatus::Restarting | RoleStatus::Stopped => Overall::Degraded,
        RoleStatus::WaitingForDriver => not_ready(report, Overall::Degraded),
        RoleStatus::Standby | RoleStatus::Serving => Overall::Healthy,
    };
    roles.iter().map(of).max().unwrap_or(Overall::Healthy)
}

/// The driver, the API and the Leases, which only the roles of the cluster need.
fn of_cluster(report: &StatusReport, roles: &[&RoleReport]) -> Overall {
    if roles.is_empty() {
        return Overall::Healthy;
    }
    let is_any = |state| roles.iter().any(|role| role.state == state);
    let serves = is_any(RoleStatus::Serving);
    let driver = match report.driver.as_ref().map(|driver| driver.state) {
        Some(DriverStatus::Lost) if serves => Overall::Degraded,
        Some(DriverStatus::Lost | DriverStatus::Fatal) => Overall::Failing,
        Some(DriverStatus::Connecting) | None => not_ready(report, Overall::Failing),
        Some(DriverStatus::Ready | DriverStatus::NotNeeded) if is_any(RoleStatus::Standby) && !serves => {
            Overall::Standby
        }
        Some(DriverStatus::Ready | DriverStatus::NotNeeded) => Overall::Healthy,
    };
    let is_lost = report.api.as_ref().is_some_and(|api| api.lost.is_some());
    let is_leaderless = roles.iter().any(|role| role.waits_for_a_leader() && role.last_error.is_some());
    driver.max(if is_lost || is_leaderless { Overall::Degraded } else { Overall::Healthy })
}

#[cfg(test)]
#[path = "overall_tests.rs"]
mod tests;
