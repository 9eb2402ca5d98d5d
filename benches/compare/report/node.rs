//! The lines of the sidecar of a node's pod: liveness and registrar in one process, which talks to no API server.

use super::line::Target::{None, Ours};
use super::line::Unit::{Megabytes, Milliseconds};
use super::line::{Line, Target, Unit};
use super::roles::line;
use super::spread::Spread;
use super::{NODE, US};
use crate::run::Run;

/// Memory of livenessprobe v2.19 alone. Nobody has measured it here, so that it counts as measured no time.
const QUOTED: Spread = Spread { median: 19e6, least: 19e6, most: 19e6, count: 0 };
const RSS: &str = "RSS of the sidecar of a node's pod; theirs: livenessprobe v2.19 alone, quoted and not measured";
const ANONYMOUS: &str = "RSS of the sidecar of a node's pod, without what is mapped from its binary";
/// A third of what both programs take together.
const MEMORY: Target = Ours(8e6);
/// Far below the second after which the kubelet looks at its directory again.
const START: Target = Ours(100.0);

/// The lines, if it was measured.
pub(super) fn lines(runs: &[Run]) -> Vec<Line> {
    let of = |what: &str, figure: &str, unit: Unit, theirs: Spread, target: Target| {
        let ours = Spread::figure(runs, NODE, US, figure)?;
        Some(line(what.to_owned(), NODE, unit, theirs, ours, target))
    };
    let all = [
        of(RSS, "rss_bytes", Megabytes, QUOTED, MEMORY),
        of(ANONYMOUS, "anonymous_bytes", Megabytes, Spread::NONE, None),
        of(
            "start of the sidecar of a node's pod to its registration socket",
            "first_ms",
            Milliseconds,
            Spread::NONE,
            START,
        ),
        of("binary of the sidecar of a node's pod", "binary_bytes", Megabytes, Spread::NONE, None),
    ];
    all.into_iter().flatten().collect()
}
