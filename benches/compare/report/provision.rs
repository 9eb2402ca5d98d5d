//! The lines of the provisioner.

use super::line::Target::{AtLeast, AtMost, None, Worst};
use super::line::Unit::{Count, Megabytes, Milliseconds, PerSecond};
use super::line::{Target, Unit, Wanted};
use super::{BARE, BARE_WITHOUT_INTENT, PROVISIONER, PROVISIONER_TUNED, US, US_WITHOUT_INTENT};

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let mut wanted = Vec::new();
    let mut add = |what: String, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(what, scenario, them, figure, US, figure, unit, target));
    };
    if let Some(burst) = scenario.strip_prefix("provision-burst-") {
        let (count, latency) = burst.split_once('-').unwrap_or((burst, "0ms"));
        let is_quick = latency == "0ms";
        let of = if is_quick { format!("of {count}") } else { format!("of {count}, driver takes {latency}") };
        // The targets are for a driver that answers at once: a slow one is the same wait for everyone.
        let at_once = |target| if is_quick { target } else { None };
        add(format!("provision {of}, defaults"), PROVISIONER, "provision.rate", PerSecond, at_once(AtLeast(40.0)));
        add(format!("delete {of}, defaults"), PROVISIONER, "delete.rate", PerSecond, at_once(AtLeast(40.0)));
        let mut tuned = |what: &str, figure, unit, target| {
            let what = what.replacen("{}", &of, 1);
            add(format!("{what}, tuned"), PROVISIONER_TUNED, figure, unit, target);
        };
        tuned("provision {}", "provision.rate", PerSecond, at_once(AtLeast(1.2)));
        tuned("provision {}: p99", "provision.p99_ms", Milliseconds, None);
        tuned("delete {}", "delete.rate", PerSecond, at_once(AtLeast(2.0)));
        tuned("delete {}: p99", "delete.p99_ms", Milliseconds, None);
        tuned("CreateVolume calls per claim, burst {}", "provision.calls_each", Count, Worst(1.0));
        tuned("DeleteVolume calls per volume, burst {}", "delete.calls_each", Count, Worst(1.0));
        tuned("API requests per claim provisioned, burst {}", "provision.requests_each", Count, AtMost(1.0));
        tuned("API requests per volume deleted, burst {}", "delete.requests_each", Count, AtMost(1.0));
        tuned("CPU per claim provisioned, burst {}", "provision.cpu_each_ms", Milliseconds, at_once(AtMost(0.4)));
        tuned("CPU per volume deleted, burst {}", "delete.cpu_each_ms", Milliseconds, at_once(AtMost(0.4)));
        tuned("peak RSS, provision and delete {}", "peak_rss_bytes", Megabytes, None);
        let mut bare = |what: &str, figure, unit, target| {
            let what = format!("{}, tuned; ours without durable intent", what.replace("{}", &of));
            wanted.push(Wanted(what, scenario, PROVISIONER_TUNED, figure, US_WITHOUT_INTENT, figure, unit, target));
        };
        bare("provision {}", "provision.rate", PerSecond, at_once(AtLeast(1.2)));
        bare("API requests per claim provisioned, burst {}", "provision.requests_each", Count, AtMost(1.0));
        bare("CPU per claim provisioned, burst {}", "provision.cpu_each_ms", Milliseconds, at_once(AtMost(0.4)));
        for (alike, us) in [("as we do", BARE), ("the volume alone", BARE_WITHOUT_INTENT)] {
            let what = format!("provision {of}, tuned; in our place a client that only writes, {alike}");
            let rate = "provision.rate";
            wanted.push(Wanted(what, scenario, PROVISIONER_TUNED, rate, us, rate, PerSecond, None));
        }
    } else if scenario == "provision-single" {
        add("one claim on an idle server: p50".to_owned(), PROVISIONER_TUNED, "provision.p50_ms", Milliseconds, None);
        add("one deletion on an idle server: p50".to_owned(), PROVISIONER_TUNED, "delete.p50_ms", Milliseconds, None);
    } else if scenario == "provision-start" {
        add("start to first volume".to_owned(), PROVISIONER, "first_ms", Milliseconds, None);
    }
    wanted
}
