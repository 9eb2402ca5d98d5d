//! From a workload with Go sidecars to one with this daemon: the verb `migrate`.
//!
//! ```text
//!  manifest ──> document ──> sidecars ──> flags · expand ──> map ──> settle ──> file ──> config::load ──> Plan
//!  (YAML)       workloads    which is     Go's command       flag    several    the       the real        the rights
//!                            which        line, $(NAME)      to key  agree      file      loader
//!                  └──────────────────── container · resources · outline ──> workload, patched
//! ```
//!
//! - A sidecar is replaced if [`ROLES`](crate::roles::ROLES) hosts its role, and a flag is mapped if the schema has its key. So a new role or key
//!   is used as soon as it exists; until then the sidecar stays as it is.
//! - No flag is dropped silently: each flag is reported as mapped, dropped with the reason, or undecided. Undecided
//!   flags are faults, reported all at once, unless the user set [`Wanted::lenient`].
//! - [`config::load`] has accepted the written configuration, and the rights are those that `check` prints.
//! - No I/O: text in, texts out.

mod advice;
mod alone;
mod annotations;
mod assumed;
mod choice;
#[cfg(test)]
mod compare_tests;
mod container;
mod defaults;
mod document;
mod driver;
#[cfg(test)]
mod driver_tests;
mod elsewhere;
mod expand;
mod file;
mod files;
#[cfg(test)]
mod fixtures_tests;
mod flags;
mod found;
#[cfg(test)]
mod gates_tests;
mod known;
mod listen;
mod live;
mod manifests;
mod map;
#[cfg(test)]
mod node_shapes_tests;
#[cfg(test)]
mod node_tests;
mod notes;
mod objects;
mod outline;
mod placeholders;
mod ports;
mod replaced;
pub mod report;
#[cfg(test)]
mod report_tests;
mod resources;
mod rights;
mod rollout;
mod security;
mod settle;
mod sidecars;
mod signs;
mod steps;
mod taken;
#[cfg(test)]
mod tests;
mod version;
#[cfg(test)]
mod version_tests;
mod windows;
mod workload;
mod wrapped;
#[cfg(test)]
mod wrapped_tests;
#[cfg(test)]
mod yaml_tests;

use serde_json::json;

use crate::app::Plan;
use crate::config::{self, File, Loaded, Sources};
use crate::process::error_chain;
use crate::roles::sections;
use crate::roles::sidecars::leads;

pub use files::{Files, Outcome};
pub use manifests::Manifest;

use container::New;
use driver::Identity;
use elsewhere::Elsewhere;
use found::Found;
use manifests::Stream;
use ports::Origin;
use replaced::Old;
use report::{Fault, Lenient, Report};
use settle::Chosen;
use steps::{Steps, Stopped};
use workload::Change;

/// The default name of the image, as in the chart. No registry has it.
pub const IMAGE: &str = "csi-control-plane";
/// The place of the fault of a workload as a whole.
const MANIFEST: &str = "the manifest";
/// Told where comments are lost.
const REWRITTEN: &str = "the workload is not in YAML's block style: it was written anew, without its comments";

/// The input of a migration.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The manifests: the workload is in one of them.
    pub manifests: Vec<Manifest>,
    /// The driver's name, where the manifest does not tell it.
    pub driver: Option<String>,
    /// The namespace of a workload that names none.
    pub namespace: Option<String>,
    /// Which workload, where several have sidecars that can be replaced: `name` or `kind/name`.
    pub workload: Option<String>,
    /// The sidecars that are replaced, by the names of their containers; none: all.
    pub containers: Vec<String>,
    /// The socket of the driver whose sidecars are replaced; none: there is one.
    pub socket: Option<String>,
    /// The versions of sidecars that the user says, each with the sidecar's or its container's name.
    pub assumed: Vec<(String, String)>,
    /// The daemon's image, in whatever registry the user has pushed it to.
    pub image: Option<String>,
    /// The secrets that the daemon may read, by namespace and name; none: all of the cluster.
    pub secrets: Vec<(String, String)>,
    /// How messages call the folder of the files; none: they go to the standard output.
    pub folder: Option<String>,
    /// What of the undecided is left out.
    pub lenient: Lenient,
}

impl Wanted {
    /// The version that the user says for a container, which is called by its name or by that of its sidecar.
    fn version_of(&self, container: &str, sidecar: &str) -> Option<&str> {
        let said = |name: &str| self.assumed.iter().find(|(of, _)| of == name).map(|(_, version)| version.as_str());
        said(container).or_else(|| said(sidecar))
    }

    /// Whether the user says which sidecars of the pod are replaced.
    fn chooses_containers(&self) -> bool {
        !self.containers.is_empty() || self.socket.is_some()
    }
}

/// Migrates one workload.
pub fn migrate(wanted: &Wanted) -> Outcome {
    let mut report = Report::default();
    let stream = Stream::of(&wanted.manifests);
    let documents = match document::read(&stream.text) {
        Ok(documents) => documents,
        Err(faults) => {
            report.faults.extend(placeholders::of_text(&stream));
            if !report.faults.is_empty() {
                return Outcome { report, files: None };
            }
            report.faults.extend(faults.into_iter().map(|syntax| Fault {
                place: stream.place(syntax.line),
                found: syntax.text,
                expected: "YAML".to_owned(),
                leave_out: None,
            }));
            return Outcome { report, files: None };
        }
    };
    let unrendered: Vec<_> = document::workloads(&documents)
        .iter()
        .map(|workload| (workload.place(), placeholders::of_workload(&stream, &documents, workload)))
        .collect();
    let repeated: Vec<Vec<String>> = documents.iter().map(|document| advice::repeated(document, &stream)).collect();
    let Some((original, documents)) = cleaned(&stream.text, documents, &mut report) else {
        return Outcome { report, files: None };
    };
    let mut found = found::look(document::workloads(&documents), wanted, &mut report);
    let Some(chosen) = choice::choose(&found, &documents, wanted, &mut report) else {
        let is_asked_for = |place| found.iter().any(|it| it.workload.place() == place && it.is_asked_for(wanted));
        let unrendered = unrendered.into_iter().filter(|(place, _)| is_asked_for(*place));
        let unrendered: Vec<_> = unrendered.flat_map(|(_, faults)| faults).collect();
        if !unrendered.is_empty() {
            report.faults = unrendered;
        }
        report.containers = found.into_iter().flat_map(|found| found.told).collect();
        return Outcome { report, files: None };
    };
    report.beside = found[chosen].beside();
    report.beside.extend(
        found
            .iter()
            .filter(|other| other.workload.place() != found[chosen].workload.place())
            .flat_map(Found::of_all_drivers),
    );
    for (_, other) in found.iter_mut().enumerate().filter(|(index, _)| *index != chosen) {
        other.leave("its workload was not chosen");
    }
    let place = found[chosen].workload.place();
    let unrendered: Vec<_> =
        unrendered.into_iter().filter(|(own, _)| *own == place).flat_map(|(_, faults)| faults).collect();
    if !unrendered.is_empty() {
        report.faults = unrendered;
        report.containers = found.into_iter().flat_map(|found| found.told).collect();
        return Outcome { report, files: None };
    }
    let workloads: Vec<_> = found.iter().map(|found| &found.workload).collect();
    let driver_of = |found: &Found| driver::identify(wanted, &documents, &workloads, &found.workload);
    let identity = driver_of(&found[chosen]);
    let origin = |found: &Found| Origin::of(&driver_of(found).driver.name, found, wanted.namespace.as_deref());
    let origins: Vec<Origin> = found.iter().map(origin).collect();
    let taken = found.iter().flat_map(Found::node_ports).collect();
    let port = ports::on_host(&origins, &taken)[chosen];
    report.workload = Some(found[chosen].workload.title());
    for told in repeated.into_iter().nth(found[chosen].workload.document).into_iter().flatten() {
        report.notes.check(told);
    }
    let files = files(wanted, &original, &documents, &mut found[chosen], &identity, port, &mut report);
    if files.is_some()
        && let Some(told) = choice::what_stays(&found, chosen)
    {
        report.notes.know(told);
    }
    if wanted.chooses_containers() && found[chosen].keeps_a_sidecar() && files.is_some() {
        let next = wanted
            .folder
            .as_ref()
            .map_or_else(|| "the workload".to_owned(), |folder| format!("{folder}/workload.yaml"));
        report.notes.know(format!(
            "the pod keeps sidecars: a run on {next} moves those of the next driver. The way back is in reverse order: what was moved last \
             goes back first, since its original.yaml has the daemons of the moves before it"
        ));
    }
    // Of pods without Leases and rights nothing has the driver's name.
    let is_needless = identity.name().is_none() && files.as_ref().is_some_and(|files| files.rbac.is_empty());
    report.driver = Some(identity.driver).filter(|_| !is_needless);
    report.containers = found.into_iter().flat_map(|found| found.told).collect();
    report.faults.extend(report::unheeded(&wanted.lenient, &report.faults));
    let files = files.filter(|_| report.is_clean(&wanted.lenient));
    if files.is_some() {
        for Fault { place, found, .. } in std::mem::take(&mut report.faults) {
            report.notes.check(format!("left out, as --lenient says: {place}: {found}"));
        }
    }
    if files.is_none() {
        // The steps name files that are not written.
        report.next.clear();
    }
    Outcome { report, files }
}

/// The manifest without what an API server has written into it, for the way there and for the way back.
fn cleaned(
    text: &str,
    documents: Vec<document::Document>,
    report: &mut Report,
) -> Option<(String, Vec<document::Document>)> {
    let live::Cleaned { text, told, is_kept } = live::clean(text, &documents)?;
    if told.is_empty() {
        return Some((text, documents));
    }
    for object in told {
        report.notes.know(format!("from a running cluster, without the fields that the server sets: {object}"));
    }
    if !is_kept {
        report.notes.know(REWRITTEN);
    }
    let documents = document::read(&text).ok()?;
    Some((text, documents))
}

fn files(
    wanted: &Wanted,
    manifest: &str,
    documents: &[document::Document],
    found: &mut Found,
    identity: &Identity,
    port: u16,
    report: &mut Report,
) -> Option<Files> {
    let namespace = found.workload.namespace.clone().or_else(|| wanted.namespace.clone());
    let mut settled = settle::settle(&found.sources);
    report.notes.append(settled.notes);
    report.faults.append(&mut settled.faults);
    let mut chosen = settled.chosen;
    let ports = ports::diagnostics(&mut chosen, found, port, &mut report.notes);
    assumed::notes(wanted, found, &mut report.notes);
    defaults::keep(&mut chosen, found, &mut report.notes);
    defaults::tell(&chosen, ports.listen, found, &mut report.notes);
    let stopped = Stopped::of(&found.without_a_lease(), &found.workload, &mut report.notes);
    if let Some(namespace) = &namespace
        && !chosen.iter().any(|one| one.key == "leaderElection.namespace")
    {
        let (key, because) = ("leaderElection.namespace".to_owned(), "the workload's own".to_owned());
        chosen.push(Chosen { key, value: json!(namespace), because });
    }
    if let Some(told) = found.workload.rollout.note() {
        report.notes.know(told);
    }
    let elsewhere = Elsewhere::of(&chosen);
    if let Some(elsewhere) = &elsewhere {
        report.notes.must(elsewhere.note());
    }
    report.faults.extend(elsewhere::disagreement(&found.sources));
    report.faults.extend(settle::two_namespaces(&found.sources, namespace.as_deref()));
    let text = file::configuration(&chosen, &found.roles, &found.workload.title());
    let loaded = load(&text, &chosen, report)?;
    let has_leases = found.sources.iter().any(|source| leads(source.sidecar));
    advice::grace(&loaded, &found.workload, has_leases, &mut report.notes);
    let sidecars: Vec<_> = found.sources.iter().map(|source| source.sidecar).collect();
    let made_anew = advice::of_sidecars(&sidecars, &loaded, &found.workload, &found.probes(), &mut report.notes);

    let own = elsewhere.as_ref().map_or(namespace.as_deref(), |elsewhere| elsewhere.namespace.as_deref());
    let plan = match identity.name() {
        Some(name) => Plan::of(&loaded, name, own),
        None => Plan::of_some_driver(&loaded, own),
    };
    let plan =
        plan.map_err(|error| report.faults.push(beyond(error_chain(&error), "a configuration that is valid"))).ok()?;
    if !plan.manifests.is_empty()
        && let Some(told) = identity.doubt()
    {
        report.notes.check(told);
    }
    let rbac = advice::secrets(&plan, &wanted.secrets, &mut report.notes);
    if namespace.is_none() {
        report.notes.must(format!(
            "the workload names no namespace, so the manifests say {}: give --namespace, or put it in",
            Plan::UNKNOWN_NAMESPACE
        ));
    }
    if identity.name().is_none() && !plan.manifests.is_empty() {
        report.faults.push(identity.fault());
    }
    let number = replaced::daemons(found.workload.containers()) + 1;
    let config_map = replaced::numbered(&format!("{}-csi-control-plane", found.workload.name), number);
    let image = wanted.image.clone().unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
    if wanted.image.is_none() {
        report.notes.must(advice::no_image(&image));
    }
    let there = elsewhere.as_ref().and_then(|elsewhere| elsewhere.namespace.as_deref());
    let there = there.filter(|there| namespace.as_deref() != Some(there));
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
        namespace: namespace.as_deref(),
        driver: identity.name(),
        elsewhere: elsewhere.as_ref(),
        has_rights: !rbac.is_empty(),
        stopped,
        returns: steps::returns(&found.sources, &loaded),
        made_anew,
        leases: (steps::leases(found, &plan), loaded.config.leader_election.namespace.or_else(|| namespace.clone())),
    };
    report.next = steps.lines(wanted.folder.as_deref());
    Some(Files {
        config_map: file::config_map(&config_map, namespace.as_deref(), &text),
        bindings: match &elsewhere {
            None => rights::bindings(&rbac, &found.workload.pod, namespace.as_deref()),
            Some(_) => rights::bindings_of_user(&rbac, elsewhere::USER),
        },
        rbac,
        config: text,
        workload,
        original,
    })
}

/// The workload as it was, alone, and with the daemon in place of the sidecars.
fn written(
    manifest: &str,
    documents: &[document::Document],
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
        report.faults.push(beyond(what, "`containers` and `volumes` as lists"));
        return None;
    };
    if !is_kept {
        report.notes.know(REWRITTEN);
    }
    Some((original, workload))
}

/// A fault that should not occur once the flags are understood. It is reported anyway, because otherwise nothing would
/// say why there are no files.
fn beyond(found: String, expected: &str) -> Fault {
    Fault { place: MANIFEST.to_owned(), found, expected: expected.to_owned(), leave_out: None }
}

/// Loads the configuration with the real loader. If it refuses a value, the fault names the flag of this value.
fn load(text: &str, chosen: &[Chosen], report: &mut Report) -> Option<Loaded> {
    let file = File { name: file::NAME.to_owned(), text: text.to_owned() };
    match config::load(&Sources { file: Some(file), ..Sources::default() }, &sections()) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                report.notes.check(warning);
            }
            Some(loaded)
        }
        Err(rejected) => {
            for fault in rejected.faults {
                let from = chosen.iter().find(|one| one.key == fault.key).map(|one| format!(" ({})", one.because));
                report.faults.push(Fault {
                    place: format!("{}{}", fault.key, from.unwrap_or_default()),
                    found: fault.found,
                    expected: fault.allowed,
                    leave_out: None,
                });
            }
            None
        }
    }
}
