//! Which of the workloads of the files is migrated, and what is said of the others. Pure.

use crate::roles::sidecars::hosted;

use super::document::Document;
use super::found::Found;
use super::report::{Beside, Fault, Report, listed};
use super::sidecars;
use super::windows::{WINDOWS, is_windows};
use super::{MANIFEST, Wanted};

/// Told where all sidecars go.
pub(super) const NO_SIDECAR: &str = "no Go sidecar is left in this pod: when you do not want to go back any more, you can delete the RBAC \
                                     that only the sidecars used";

/// The workload that is migrated: the only one with sidecars that can be replaced, or the one that was asked for.
pub(super) fn choose(found: &[Found], documents: &[Document], wanted: &Wanted, report: &mut Report) -> Option<usize> {
    let is_asked_for = |one: &Found| one.is_asked_for(wanted);
    if let Some(name) = wanted.workload.as_ref().filter(|_| !found.is_empty() && !found.iter().any(is_asked_for)) {
        let titles: Vec<String> = found.iter().map(|one| one.workload.title()).collect();
        let expected = format!("--workload with one of {}", titles.join(", "));
        report.faults.push(Fault::new(MANIFEST, format!("no workload {name}"), expected));
        return None;
    }
    let fit: Vec<usize> =
        (0..found.len()).filter(|index| !found[*index].places.is_empty() && is_asked_for(&found[*index])).collect();
    if let [only] = fit.as_slice() {
        report.faults.extend(found[*only].faults.iter().cloned());
        report.faults.extend(found[*only].unknown(&wanted.containers));
        report.faults.extend(found[*only].unassumed(&wanted.assumed));
        return Some(*only);
    }
    let hosted: Vec<&str> = hosted().into_iter().map(|sidecar| sidecar.name).collect();
    let (found_text, expected) = if fit.is_empty() {
        // A sidecar that could not be read at all may be why.
        report.faults.extend(found.iter().filter(|one| is_asked_for(one)).flat_map(|one| one.faults.iter().cloned()));
        let asked_for: Vec<&Found> = found.iter().filter(|one| is_asked_for(one)).collect();
        let makers = found.iter().filter_map(|one| Some((one, sidecars::maker(one.workload.containers())?)));
        let makers = makers.map(|(one, variable)| {
            format!("{} makes the sidecars in its program, from its variable {variable}", one.workload.title())
        });
        let settings = sidecars::settings(documents).into_iter().map(|(object, key)| {
            format!("{object} has settings of sidecars, such as {key}, from which an operator makes them")
        });
        let makers: Vec<_> = makers.chain(settings).collect();
        let made = if makers.is_empty() {
            ""
        } else {
            ": the workload that it has made, from `kubectl get -o yaml`; it puts its own sidecars back when it looks again, so it must \
             be told to leave them out, or be stopped"
        };
        let windows = asked_for.iter().filter(|one| is_windows(&one.workload.pod));
        let windows = windows.map(|one| format!("{}: {WINDOWS}", one.workload.title()));
        let kept = asked_for.iter().flat_map(|one| [one.kept(), one.of_all_drivers()]).flatten();
        let kept = kept.map(|Beside { workload, name, why }| format!("container {name} of {workload}: {why}"));
        let whys = windows.chain(makers).chain(kept).map(|why| format!("; {why}"));
        (
            format!("no sidecar that can be replaced{}", whys.collect::<String>()),
            format!("one of {}{made}", hosted.join(", ")),
        )
    } else {
        let names: Vec<String> = fit.iter().map(|index| found[*index].workload.title()).collect();
        let are_alike = names.iter().all(|name| *name == names[0]);
        let expected = if are_alike { "the file of one alone" } else { "one, chosen by --workload KIND/NAME" };
        (format!("{} workloads: {}", fit.len(), names.join(", ")), expected.to_owned())
    };
    if !found.is_empty() {
        report.faults.push(Fault::new(MANIFEST, found_text, expected));
    }
    None
}

/// What to say of the RBAC of the sidecars, which those use that stay, also in other workloads of the manifests.
pub(super) fn what_stays(found: &[Found], chosen: usize) -> Option<String> {
    let keeps: Vec<usize> = (0..found.len()).filter(|index| found[*index].keeps_a_sidecar()).collect();
    if keeps.contains(&chosen) {
        return None;
    }
    let titles: Vec<String> = keeps.into_iter().map(|index| found[index].workload.title()).collect();
    Some(if titles.is_empty() {
        NO_SIDECAR.to_owned()
    } else {
        format!("sidecars stay in {}: keep the RBAC that they use", listed(&titles, "and"))
    })
}
