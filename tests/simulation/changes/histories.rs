//! Histories of daemons that are broken on purpose: the checks must find each of them out. A check that cannot fail proves nothing.

use csi_control_plane::sandbox::driver::{Method, Outcome};
use serde_json::{Value, json};
use tonic::Code;

use super::invariants::Rule;
use super::objects::{CLAIMS, VOLUMES};
use super::story::{GIB, Story};
use crate::stage::sent;
use crate::world::{DAEMONS, MARKER};

const UNKNOWN: Code = Code::DeadlineExceeded;

#[test]
fn a_sound_life_breaks_nothing() {
    let ok = || Outcome::Ok;
    let less = || ("/spec/resources/requests/storage", json!("2Gi"));
    let stories = [
        ("grown and changed", Story::new().grown().changed()),
        ("changed and grown", Story::new().changed().grown()),
        (
            "both at once, as a pair",
            Story::new()
                .paired()
                .begun("4Gi")
                .modifying("a")
                .expands(4)
                .modifies("a")
                .has(4 * GIB, "a")
                .ends(ok())
                .classed("a")
                .modified("a")
                .sized("4Gi")
                .done("4Gi"),
        ),
        (
            "repeated after a lost answer",
            Story::new()
                .changed()
                .begun("4Gi")
                .expands(4)
                .refused(UNKNOWN)
                .after(1)
                .expands(4)
                .has(4 * GIB, "a")
                .ends(ok())
                .sized("4Gi")
                .done("4Gi"),
        ),
        (
            "less after a final error",
            Story::new()
                .changed()
                .begun("4Gi")
                .expands(4)
                .refused(Code::Internal)
                .tells("Internal")
                .by("user")
                .writes(CLAIMS, &[less()])
                .by(DAEMONS[0])
                .begun("2Gi")
                .expands(2)
                .has(2 * GIB, "a")
                .ends(ok())
                .sized("2Gi")
                .done("2Gi"),
        ),
        (
            "less at once after an infeasible size",
            Story::new()
                .changed()
                .by("user")
                .writes(CLAIMS, &[less()])
                .by(DAEMONS[0])
                .begun("4Gi")
                .after(60)
                .expands(4)
                .refused(Code::OutOfRange)
                .tells("OutOfRange")
                .begun("2Gi")
                .expands(2)
                .has(2 * GIB, "a")
                .ends(ok())
                .sized("2Gi")
                .done("2Gi"),
        ),
        (
            "finished by its node, which fails first",
            Story::new()
                .changed()
                .begun("4Gi")
                .expands(4)
                .has(4 * GIB, "a")
                .ends(ok())
                .sized("4Gi")
                .state("NodeResizePending", "4Gi")
                .by("kubelet")
                .state("NodeResizeInfeasible", "4Gi")
                .by(DAEMONS[0])
                .state("NodeResizePending", "4Gi")
                .by("kubelet")
                .done("4Gi"),
        ),
    ];
    for (what, story) in stories {
        assert_eq!(story.rests(&[]).broken(), [], "{what}");
    }
    let sinks = Story::new().node_only().sized("4Gi").state("NodeResizePending", "4Gi");
    let sinks = sinks.by("kubelet").state("NodeResizeInfeasible", "4Gi").by(DAEMONS[0]).sized("2Gi");
    assert_eq!(sinks.broken(), [], "a record of what only nodes reach");
}

/// A daemon's act, and the invariant that it breaks.
type Broken = Vec<(Rule, &'static str, Story)>;

fn of_calls() -> Broken {
    use Rule::{I1, I2, I3, I4, I11, I13};
    let publishes = |story: Story| story.sends(Method::ControllerPublishVolume, |_| {});
    let open = || Story::new().begun("4Gi").expands(4).refused(UNKNOWN).after(1);
    let open_class = || Story::new().modifying("a").modifies("a").refused(UNKNOWN).after(1);
    let ok = || Outcome::Ok;
    vec![
        (I1, "expands while a call runs", Story::new().begun("4Gi").expands(4).expands(4)),
        (I1, "modifies while it expands", Story::new().begun("4Gi").modifying("a").expands(4).modifies("a")),
        (I1, "expands while it attaches", publishes(Story::new()).begun("4Gi").expands(4)),
        (I1, "attaches while a pair runs", publishes(Story::new().paired().begun("4Gi").expands(4))),
        (I2, "expands without a mark", Story::new().expands(4)),
        (I2, "expands to another size", Story::new().begun("4Gi").expands(5)),
        (
            I2,
            "expands again while the claim says that it is infeasible",
            Story::new().state("ControllerResizeInfeasible", "4Gi").expands(4),
        ),
        (I2, "expands again while the claim says that it was refused", {
            let told = |type_: &str, time: &str| json!({ "type": type_, "lastTransitionTime": time });
            let (begun, refused) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
            let told = json!([told("Resizing", begun), told("ControllerResizeError", refused)]);
            Story::new().begun("4Gi").writes(CLAIMS, &[("/status/conditions", told)]).expands(4)
        }),
        (I3, "modifies again while the claim says that it is infeasible", {
            let said = json!({ "status": "Infeasible", "targetVolumeAttributesClassName": "a" });
            Story::new().writes(CLAIMS, &[("/status/modifyVolumeStatus", said)]).modifies("a")
        }),
        (I3, "modifies without a mark", Story::new().modifies("a")),
        (I3, "modifies to another class", Story::new().modifying("a").modifies("b")),
        (I4, "begins less while a call may run", open().begun("2Gi")),
        (I4, "calls with less while a call may run", open().tells("Internal").begun("2Gi").expands(2)),
        (I11, "expands again at once", open().expands(4).refused(UNKNOWN).expands(4)),
        (I11, "modifies again at once", open_class().modifies("a").refused(UNKNOWN).modifies("a")),
        (
            I11,
            "expands twice for one change of the wish",
            Story::new()
                .begun("4Gi")
                .expands(4)
                .refused(Code::Internal)
                .tells("Internal")
                .by("user")
                .writes(CLAIMS, &[("/spec/resources/requests/storage", json!("5Gi"))])
                .by(DAEMONS[0])
                .begun("5Gi")
                .expands(5)
                .refused(Code::Internal)
                .expands(5),
        ),
        (
            I11,
            "does not wait after an infeasible size",
            Story::new().begun("4Gi").expands(4).refused(Code::OutOfRange).after(9).expands(4),
        ),
        (I13, "repeats with another size", open().tells("Internal").begun("5Gi").expands(5)),
        (I13, "repeats with another class", open_class().modifying("b").modifies("b")),
        (
            I13,
            "expands again after that was recorded",
            Story::new().begun("4Gi").expands(4).has(4 * GIB, "").ends(ok()).sized("4Gi").expands(4),
        ),
        (
            I13,
            "modifies again after that was recorded",
            Story::new().modifying("a").modifies("a").ends(ok()).classed("a").modifies("a"),
        ),
    ]
}

fn of_writes() -> Broken {
    use Rule::{I5, I6, I7, I8, I9, I10, I12, I15, Lease};
    let ok = || Outcome::Ok;
    let told = json!([{ "type": "ControllerResizeError", "message": format!("the password {MARKER} is wrong") }]);
    let left = json!([{ "type": "Resizing" }]);
    let stray = ("/spec/claimRef/uid", json!("of-another-claim"));
    let pending = || Story::new().begun("4Gi").has(4 * GIB, "").sized("4Gi").state("NodeResizePending", "4Gi");
    let refused = Story::new().modifying("a").modifies("a").refused(UNKNOWN);
    vec![
        (I5, "lets a volume sink", Story::new().grown().sized("2Gi")),
        (I5, "lets a claim sink", Story::new().grown().done("2Gi")),
        (I5, "says more than the volume has", Story::new().begun("4Gi").done("4Gi")),
        (I5, "records more than the driver has", Story::new().begun("4Gi").sized("4Gi")),
        (I6, "tells a node before the volume says it", Story::new().begun("4Gi").state("NodeResizePending", "4Gi")),
        (I7, "says a class that the driver does not have", Story::new().modifying("a").classed("a").modified("a")),
        (I7, "tells the claim first", Story::new().modifying("a").modifies("a").ends(ok()).modified("a")),
        (I7, "takes an error for a success", refused.classed("a").modified("a")),
        (I8, "takes a state away from a node", pending().begun("4Gi")),
        (I9, "writes a label", Story::new().writes(CLAIMS, &[("/metadata/labels/theirs", json!("x"))])),
        (
            I9,
            "changes what a claim asks for",
            Story::new().writes(CLAIMS, &[("/spec/resources/requests/storage", json!("2Gi"))]),
        ),
        (I9, "wipes conditions of others", {
            let theirs = [("/status/conditions", json!([{ "type": "Unused", "status": "True" }]))];
            Story::new().by("others").writes(CLAIMS, &theirs).by(DAEMONS[0]).tells("Internal")
        }),
        (I9, "writes a finalizer", Story::new().writes(VOLUMES, &[("/metadata/finalizers", json!(["x"]))])),
        (
            I10,
            "expands what is another claim's",
            Story::new()
                .begun("4Gi")
                .by("admin")
                .writes(VOLUMES, std::slice::from_ref(&stray))
                .by(DAEMONS[0])
                .expands(4),
        ),
        (
            I10,
            "marks what is another claim's",
            Story::new().by("admin").writes(VOLUMES, &[stray]).by(DAEMONS[0]).begun("4Gi"),
        ),
        (I10, "gives a volume another driver's class", Story::new().modifying("foreign").modifies("foreign")),
        (I12, "tells a secret", Story::new().writes(CLAIMS, &[("/status/conditions", told)])),
        (I15, "is done with a condition", {
            let done = [("/status/allocatedResourceStatuses", Value::Null), ("/status/conditions", left)];
            Story::new().begun("4Gi").has(4 * GIB, "").sized("4Gi").writes(CLAIMS, &done)
        }),
        (Lease, "calls without the Lease", Story::new().begun("4Gi").by(DAEMONS[1]).expands(4)),
        (Lease, "writes without the Lease", Story::new().by(DAEMONS[1]).begun("4Gi")),
    ]
}

fn of_the_end() -> Broken {
    use Rule::{I10, I13, I14, I15, Quota};
    let left = json!([{ "type": "Resizing" }]);
    let whole = || Story::new().grown().changed();
    vec![
        (I10, "reads what is another driver's", Story::new().asks(&[sent("get", CLAIMS, "claim-theirs", 200)])),
        (I13, "forgets to expand", Story::new().changed().rests(&[])),
        (I13, "forgets to modify", Story::new().grown().rests(&[])),
        (I13, "says what the driver does not have", whole().has(2 * GIB, "b").rests(&[])),
        (I14, "reads for ever", whole().rests(&[sent("get", CLAIMS, "claim-0", 200)])),
        (I14, "writes for ever", whole().rests(&[sent("patch", VOLUMES, "pv-0", 200)])),
        (I14, "watches pods for ever", whole().rests(&[sent("watch", "pods", "", 200)])),
        (I15, "leaves a condition behind", whole().writes(CLAIMS, &[("/status/conditions", left)]).rests(&[])),
        (Quota, "asks for more than the quota allows", Story::new().asks(&[sent("patch", CLAIMS, "claim-0", 403)])),
    ]
}

#[test]
fn each_broken_daemon_is_found_out() {
    let stories: Broken = [of_calls(), of_writes(), of_the_end()].into_iter().flatten().collect();
    let unproven: Vec<_> = Rule::ALL.iter().filter(|(rule, _)| stories.iter().all(|(it, ..)| it != rule)).collect();
    assert!(unproven.is_empty(), "nothing shows that these can fail: {unproven:?}");
    for (rule, what, story) in stories {
        let found = story.broken();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
    }
}
