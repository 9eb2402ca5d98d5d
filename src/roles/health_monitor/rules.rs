//! The rights that the health monitor needs beyond its caches', each with its reason.

use crate::cluster::EventRecorder;
use crate::cluster::rbac::Rule;

use super::config::{HealthMonitorSection, Report};

/// The rules for this configuration.
pub(super) fn rules(section: &HealthMonitorSection) -> Vec<Rule> {
    let mut rules = vec![
        Rule::cluster("", "persistentvolumeclaims", &["get"], "read a claim again before its health is written"),
        EventRecorder::rule(),
    ];
    if section.report != Report::Events {
        let why = "record what is wrong with the volume of a claim";
        rules.push(Rule::cluster("", "persistentvolumeclaims/status", &["patch"], why));
    }
    if section.report != Report::Status {
        let why = "read what Events of earlier terms have reported of the health of volumes";
        rules.push(Rule::cluster("", "events", &["list"], why));
    }
    if section.node_watch {
        let why = "read which failures of nodes Events of earlier terms have reported";
        rules.push(Rule::cluster("", "events", &["list"], why));
    }
    rules
}
