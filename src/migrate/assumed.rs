//! The versions that the user says, and flags that a version does not know. Pure.

use super::Wanted;
use super::document::unique;
use super::found::Found;
use super::notes::Notes;
use super::report::FlagLine;

/// Says which version is assumed, and which flags of a container its version does not know.
pub(super) fn notes(wanted: &Wanted, found: &Found, notes: &mut Notes) {
    for source in &found.sources {
        let (container, sidecar) = (&source.container, source.sidecar);
        let assumed = wanted.version_of(container, sidecar.name);
        if let Some(version) = assumed {
            notes.know(format!("{container}: the version is {version}, as --assume says, whatever the image's tag is"));
        }
        let Some(told) = found.told.iter().find(|told| told.name == *container) else { continue };
        let absent = |(name, shown): (&str, String)| {
            Some(format!("{shown} ({})", source.release.absence(sidecar.changes, name)?))
        };
        let strange = unique(told.flags.iter().flat_map(names).filter_map(absent));
        if !strange.is_empty() {
            let tag = source.release.tag().unwrap_or_default();
            let advice = if assumed.is_some() {
                "the version that --assume says cannot be the one that runs"
            } else {
                "if you know the version that runs, say it with --assume"
            };
            notes.check(format!(
                "{container}: {} {tag} does not know {}, and does not start with it: {advice}",
                sidecar.name,
                strange.join(", ")
            ));
        }
    }
}

/// The flag of a line and its gate, since the gates are told one by one, and how they are shown.
fn names(line: &FlagLine) -> impl Iterator<Item = (&str, String)> {
    let flag = line.given.trim_start_matches('-');
    let (flag, value) = flag.split_once(['=', ' ']).unwrap_or((flag, ""));
    let gate = value.split_once('=').map(|(gate, _)| gate.trim()).filter(|_| flag == "feature-gates");
    [Some((flag, format!("--{flag}"))), gate.map(|gate| (gate, format!("the gate {gate}")))].into_iter().flatten()
}
