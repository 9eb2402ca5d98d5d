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
//! - [`config::load`](crate::config::load) has accepted the written configuration, and the rights are those that `check` prints.
//! - This file reads the manifests and chooses the workload, `write` makes its files.
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
mod write;
#[cfg(test)]
mod yaml_tests;

pub use files::{Files, Outcome};
pub use manifests::Manifest;

use document::{Document, Workload};
use driver::Identity;
use found::Found;
use manifests::Stream;
use ports::Origin;
use report::{Fault, Lenient, Report};

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
    let files = match document::read(&stream.text) {
        Ok(documents) => moved(wanted, &stream, documents, &mut report),
        Err(syntax) => {
            report.faults = placeholders::of_syntax(&stream, syntax);
            None
        }
    };
    Outcome { report, files }
}

/// Looks for the workload and moves it.
fn moved(wanted: &Wanted, stream: &Stream, documents: Vec<Document>, report: &mut Report) -> Option<Files> {
    let unrendered = |workload: &Workload| (workload.place(), placeholders::of_workload(stream, &documents, workload));
    let unrendered: Vec<_> = document::workloads(&documents).iter().map(unrendered).collect();
    let repeated: Vec<Vec<String>> = documents.iter().map(|document| advice::repeated(document, stream)).collect();
    let (original, documents) = cleaned(&stream.text, documents, report)?;
    let mut found = found::look(document::workloads(&documents), wanted, report);
    let chosen = choice::choose(&found, &documents, wanted, report);
    let of = |index: usize, one: &Found| one.workload.place() == found[index].workload.place();
    let is_meant = |one: &&Found| chosen.map_or_else(|| one.is_asked_for(wanted), |index| of(index, one));
    let meant: Vec<_> = found.iter().filter(is_meant).map(|one| one.workload.place()).collect();
    let unrendered = unrendered.into_iter().filter(|(place, _)| meant.contains(place));
    let unrendered: Vec<Fault> = unrendered.flat_map(|(_, faults)| faults).collect();
    let Some(chosen) = chosen.filter(|_| unrendered.is_empty()) else {
        if !unrendered.is_empty() {
            report.faults = unrendered;
        }
        let asked_for = found.into_iter().filter(|one| one.is_asked_for(wanted));
        report.containers = asked_for.flat_map(|one| one.told).collect();
        return None;
    };
    report.workload = Some(found[chosen].workload.title());
    report.beside = found[chosen].beside();
    for (_, other) in found.iter_mut().enumerate().filter(|(index, _)| *index != chosen) {
        report.beside.extend(other.of_all_drivers());
        other.leave("its workload was not chosen");
    }
    for told in repeated.into_iter().nth(found[chosen].workload.document).into_iter().flatten() {
        report.notes.check(told);
    }
    let identities: Vec<Identity> = {
        let workloads: Vec<_> = found.iter().map(|one| &one.workload).collect();
        workloads.iter().map(|workload| driver::identify(wanted, &documents, &workloads, workload)).collect()
    };
    let origin =
        |(one, identity): (&Found, &Identity)| Origin::of(&identity.driver.name, one, wanted.namespace.as_deref());
    let origins: Vec<Origin> = found.iter().zip(&identities).map(origin).collect();
    let taken = found.iter().flat_map(Found::node_ports).collect();
    let port = ports::on_host(&origins, &taken)[chosen];
    let identity = &identities[chosen];
    let files = write::files(wanted, &original, &documents, &mut found[chosen], identity, port, report);
    if files.is_some() {
        told_of_what_stays(wanted, &found, chosen, report);
    }
    // Of pods without Leases and rights nothing has the driver's name.
    let is_needless = identity.name().is_none() && files.as_ref().is_some_and(|files| files.rbac.is_empty());
    report.driver = Some(identity.driver.clone()).filter(|_| !is_needless);
    report.containers = found.into_iter().flat_map(|one| one.told).collect();
    report.faults.extend(report::unheeded(&wanted.lenient, &report.faults));
    let files = files.filter(|_| report.is_clean(&wanted.lenient));
    if files.is_none() {
        // The steps name files that are not written.
        report.next.clear();
        return None;
    }
    for Fault { place, found, .. } in std::mem::take(&mut report.faults) {
        report.notes.check(format!("left out, as --lenient says: {place}: {found}"));
    }
    files
}

/// Says which sidecars stay, and what that means.
fn told_of_what_stays(wanted: &Wanted, found: &[Found], chosen: usize, report: &mut Report) {
    if let Some(told) = choice::what_stays(found, chosen) {
        report.notes.know(told);
    }
    if wanted.chooses_containers() && found[chosen].keeps_a_sidecar() {
        let next = wanted
            .folder
            .as_ref()
            .map_or_else(|| "the workload".to_owned(), |folder| format!("{folder}/workload.yaml"));
        report.notes.know(format!(
            "the pod keeps sidecars: a run on {next} moves those of the next driver. The way back is in reverse order: what was moved last \
             goes back first, since its original.yaml has the daemons of the moves before it"
        ));
    }
}

/// The manifest without what an API server has written into it, for the way there and for the way back.
fn cleaned(text: &str, documents: Vec<Document>, report: &mut Report) -> Option<(String, Vec<Document>)> {
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
