//! One call at a time changes a volume, a snapshot or a group; and none changes what another reads. Pure.
//!
//! A call is under way from its begin at the driver to its end there, or until its caller waits no more. Calls of several callers may meet:
//! the driver is told of a caller's death too late, and the Go sidecars are several callers at any time. A driver may want an expansion and a
//! modification of one volume together (resizer spec 5, `pairCalls`).

use std::collections::BTreeMap;

use super::rpc::Rpc;
use super::violation::{Invariant, Violation};

/// A pair of calls that some drivers want together.
const PAIR: [&str; 2] = ["ControllerExpandVolume", "ControllerModifyVolume"];

/// The calls that met. `takes_pairs`: the driver is one that wants [`PAIR`].
pub(super) fn violations(rpcs: &[&Rpc], takes_pairs: bool) -> Vec<Violation> {
    let mut under_way: BTreeMap<(&str, u64), Vec<&Rpc>> = BTreeMap::new();
    let mut found = Vec::new();
    let mut calls: Vec<&Rpc> = rpcs.iter().copied().filter(|rpc| !rpc.changes.is_empty()).collect();
    calls.sort_by_key(|rpc| (rpc.begin, rpc.line));
    for call in calls {
        let others = under_way.entry((&call.caller.0, call.caller.1)).or_default();
        others.retain(|other| is_under_way(other, call));
        let is_wanted = |other: &Rpc| {
            let methods = [&*call.method, &*other.method];
            takes_pairs && PAIR.iter().all(|method| methods.contains(method))
        };
        for other in others.iter().filter(|other| !is_wanted(other)) {
            if let Some(subject) = shared(other, call) {
                let told = format!("{} while {} was under way", call.method, other.method);
                found.push(Violation::new(Invariant::OneAtATime, subject, told, [other.words(), call.words()]));
            }
        }
        others.push(call);
    }
    found
}

/// Whether a call's caller still waited for it when another one began.
fn is_under_way(call: &Rpc, at: &Rpc) -> bool {
    // An end is written before its answer leaves.
    call.end.as_ref().is_none_or(|(end, _)| *end > at.begin) && call.deadline.is_none_or(|deadline| deadline > at.begin)
}

/// What both change, or one changes and the other reads.
fn shared<'a>(one: &'a Rpc, other: &'a Rpc) -> Option<&'a str> {
    let changes = |rpc: &Rpc, subject: &String| rpc.changes.contains(subject);
    let reads = |rpc: &Rpc, subject: &String| rpc.reads.as_ref() == Some(subject);
    let by_other = other.changes.iter().find(|it| changes(one, it) || reads(one, it));
    by_other.or_else(|| one.changes.iter().find(|it| reads(other, it))).map(String::as_str)
}
