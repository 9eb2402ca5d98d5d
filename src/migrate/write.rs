//! The files of one workload: its configuration, its rights, the changed workload, and the steps. Pure.

use serde_json::json;

use crate::app::Plan;
use crate::config::{self, File, Loaded, Sources};
use crate::process::error_chain;
use crate::roles::sections;
use crate::roles::sidecars::leads;

use super::container::{self, New};
use super::document::{self, Document};
use super::driver::Identity;
use super::elsewhere::{self, Elsewhere};
use super::files::Files;
use super::found::Found;
use super::ports::{self, Ports};
use super::replaced::{self, Old};
use super::report::{Fault, Report};
use super::settle::{self, Chosen, Settled};
use super::steps::{self, Steps, Stopped};
use super::workload::{self, Change};
use super::{IMAGE, MANIFEST, REWRITTEN, Wanted};
use super::{advice, alone, annotations, assumed, defaults, file, objects, rights};

/// Makes the files; `port` is the diagnostics' on the host's network where nothing else says one.
pub(super) fn files(
    wanted: &Wanted,
    manifest: &str,
    documents: &[Document],
    found: &mut Found,
    identity: &Identity,
    port: u16,
    report: &mut Report,
) -> Option<Files> {
    let namespace = found.workload.namespace.clone().or_else(|| wanted.namespace.clone());
    let namespace = namespace.as_deref();
    let (chosen, ports) = settings(wanted, found, namespace, port, report);
    let stopped = Stopped::of(&found.without_a_lease(), &found.workload, &mut report.notes);
    if let Some(told) = found.workload.rollout.note() {
        report.notes.know(told);
    }
    let elsewhere = Elsewhere::of(&chosen);
    if let Some(elsewhere) = &elsewhere {
        report.notes.must(elsewhere.note());
    }
    let text = file::configuration(&chosen, &found.roles, &found.workload.title());
    let loaded = load(&text, &chosen, report)?;
    let has_leases = found.sources.iter().any(|source| leads(source.sidecar));
    advice::grace(&loaded, &found.workload, has_leases, &mut report.notes);
    let sidecars: Vec<_> = found.sources.iter().map(|source| source.sidecar).collect();
    let made_anew = advice::of_sidecars(&sidecars, &loaded, &found.workload, &found.probes(), &mut report.notes);
    for warning in &loaded.warnings {
        // What a note says of a key is about this workload.
        let key = warning.split(' ').next().unwrap_or_default();
        if !report.notes.texts().any(|note| note.contains(key)) {
            report.notes.check(warning);
        }
    }
    let there = elsewhere.as_ref().map_or(namespace, |elsewhere| elsewhere.namespace.as_deref());
    let plan = plan(&loaded, identity, there, report)?;
    let rbac = advice::secrets(&plan, &wanted.secrets, &mut report.notes);
    if namespace.is_none() {
        report.notes.must(format!(
            "the workload names no namespace, so the manifests say {}: give --namespace, or put it in",
            Plan::UNKNOWN_NAMESPACE
        ));
    }
    let number = replaced::daemons(found.workload.containers()) + 1;
    let config_map = replaced::numbered(&format!("{}-csi-control-plane", found.workload.name), number);
    let image = wanted.image.clone().unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
    if wanted.image.is_none() {
        report.notes.must(advice::no_image(&image));
    }
    let there = there.filter(|there| elsewhere.is_some() && namespace != Some(*there));
    let new = New { number, image: &image, ports: &ports, there };
    let (original, workload) = written(manifest, documents, found, &new, &config_map, report)?;
    advice::replicas(&found.workload, &mut report.notes);
    if let Some(told) = advice::owner(&found.workload) {
        report.notes.must(told);
    }
    let steps = Steps {
        workload: &found.workload,
        number,
        config_map: &config_map,
        namespace,
        driver: identity.name(),
        elsewhere: elsewhere.as_ref(),
        has_rights: !rbac.is_empty(),
        stopped,
        returns: steps::returns(&found.sources, &loaded),
        made_anew,
        leases: (
            steps::leases(found, &plan),
            loaded.config.leader_election.namespace.or_else(|| namespace.map(str::to_owned)),
        ),
    };
    report.next = steps.lines(wanted.folder.as_deref());
    Some(Files {
        config_map: file::config_map(&config_map, namespace, &text),
        bindings: match &elsewhere {
            None => rights::bindings(&rbac, &found.workload.pod, namespace),
            Some(_) => rights::bindings_of_user(&rbac, elsewhere::USER),
        },
        rbac,
        config: text,
        workload,
        original,
    })
}

/// The settings that all sidecars together amount to, and the daemon's ports.
fn settings(
    wanted: &Wanted,
    found: &mut Found,
    namespace: Option<&str>,
    port: u16,
    report: &mut Report,
) -> (Vec<Chosen>, Ports) {
    let Settled { mut chosen, notes, faults } = settle::settle(&found.sources);
    report.notes.append(notes);
    report.faults.extend(faults);
    report.faults.extend(elsewhere::disagreement(&found.sources));
    report.faults.extend(settle::two_namespaces(&found.sources, namespace));
    let ports = ports::diagnostics(&mut chosen, found, port, &mut report.notes);
    assumed::notes(wanted, found, &mut report.notes);
    defaults::keep(&mut chosen, found, &mut report.notes);
    defaults::side_by_side(&mut chosen, found, &mut report.notes);
    defaults::tell(&chosen, ports.listen, found, &mut report.notes);
    if let Some(namespace) = namespace
        && !chosen.iter().any(|one| one.key == "leaderElection.namespace")
    {
        let (key, because) = ("leaderElection.namespace".to_owned(), "the workload's own".to_owned());
        chosen.push(Chosen { key, value: json!(namespace), because });
    }
    (chosen, ports)
}

/// The rights in this namespace, and what they need to know of the driver's name.
fn plan(loaded: &Loaded, identity: &Identity, namespace: Option<&str>, report: &mut Report) -> Option<Plan> {
    let plan = match identity.name() {
        Some(name) => Plan::of(loaded, name, namespace),
        None => Plan::of_some_driver(loaded, namespace),
    };
    let wrong = |error| report.faults.push(Fault::new(MANIFEST, error_chain(&error), "a configuration that is valid"));
    let plan = plan.map_err(wrong).ok()?;
    if !plan.manifests.is_empty() {
        if let Some(told) = identity.doubt() {
            report.notes.check(told);
        }
        if identity.name().is_none() {
            report.faults.push(identity.fault());
        }
    }
    Some(plan)
}

/// The workload as it was, alone, and with the daemon in place of the sidecars.
fn written(
    manifest: &str,
    documents: &[Document],
    found: &Found,
    new: &New<'_>,
    config_map: &str,
    report: &mut Report,
) -> Option<(String, String)> {
    let old: Vec<Old<'_>> = found.replaced();
    let container = container::build(&old, &found.workload, new, report);
    let volume = container::volume(config_map, new.number);
    let daemon = replaced::numbered(replaced::CONTAINER, new.number);
    let Report { notes, faults, .. } = &mut *report;
    let annotations = annotations::edits(&old, &daemon, &found.workload, new.ports, notes, faults);
    objects::tell(documents, &old, &daemon, &found.workload, new.ports, notes);
    let change = Change { remove: &found.places, container: &container, volume: &volume, annotations: &annotations };
    let patched = alone::text(manifest, documents, &found.workload).and_then(|(original, is_kept)| {
        let documents = document::read(&original).ok()?;
        let workload = document::workloads(&documents).into_iter().next()?;
        let (patched, is_patch_kept) = workload::patch(&original, &documents, &workload, &change)?;
        Some((original, patched, is_kept && is_patch_kept))
    });
    let Some((original, workload, is_kept)) = patched else {
        let what = format!("{}, whose pod template cannot be changed", found.workload.title());
        report.faults.push(Fault::new(MANIFEST, what, "`containers` and `volumes` as lists"));
        return None;
    };
    if !is_kept {
        report.notes.know(REWRITTEN);
    }
    Some((original, workload))
}

/// Loads the configuration with the real loader. If it refuses a value, the fault names the flag of this value.
fn load(text: &str, chosen: &[Chosen], report: &mut Report) -> Option<Loaded> {
    let file = File { name: file::NAME.to_owned(), text: text.to_owned() };
    match config::load(&Sources { file: Some(file), ..Sources::default() }, &sections()) {
        Ok(loaded) => Some(loaded),
        Err(rejected) => {
            for fault in rejected.faults {
                let from = chosen.iter().find(|one| one.key == fault.key).map(|one| format!(" ({})", one.because));
                let place = format!("{}{}", fault.key, from.unwrap_or_default());
                report.faults.push(Fault::new(place, fault.found, fault.allowed));
            }
            None
        }
    }
}
