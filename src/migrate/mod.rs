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
mod assumed;
mod container;
mod defaults;
mod document;
mod driver;
#[cfg(test)]
mod driver_tests;
mod elsewhere;
mod expand;
mod file;
#[cfg(test)]
mod fixtures_tests;
mod flags;
mod found;
mod known;
mod listen;
mod live;
mod manifests;
mod map;
#[cfg(test)]
mod node_shapes_tests;
#[cfg(test)]
mod node_tests;
mod outline;
mod placeholders;
mod ports;
pub mod report;
mod resources;
mod rights;
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

pub use manifests::Manifest;

use container::{New, Old};
use driver::Identity;
use elsewhere::Elsewhere;
use found::Found;
use manifests::Stream;
use ports::Origin;
use report::{Fault, Report};
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
    /// Whether to leave out what is undecided.
    pub lenient: bool,
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

/// The result of a migration.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What was found.
    pub report: Report,
    /// The files to apply; none if there are faults.
    pub files: Option<Files>,
}

impl Outcome {
    /// The faults for a terminal, below the most important news: whether there are files at all.
    pub fn faults_text(&self) -> String {
        let faults = self.report.faults_text();
        match &self.files {
            Some(_) => faults,
            None if faults.is_empty() => "nothing was written\n".to_owned(),
            None => format!("nothing was written: {faults}"),
        }
    }
}

/// The files of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The configuration file alone, for `check`.
    pub config: String,
    /// The ConfigMap that holds it.
    pub config_map: String,
    /// The rights, as `check` prints them, but for secrets that were named.
    pub rbac: String,
    /// Those rights, given to the workload's service account.
    pub bindings: String,
    /// The workload, patched, without the other objects of the manifest.
    pub workload: String,
    /// The workload as it was, for the way back.
    pub original: String,
}

impl Files {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, &str); 6] {
        [
            ("config.yaml", &self.config),
            ("configmap.yaml", &self.config_map),
            ("rbac.yaml", &self.rbac),
            ("bindings.yaml", &self.bindings),
            ("workload.yaml", &self.workload),
            ("original.yaml", &self.original),
        ]
    }

    /// All that is applied, as one stream of documents.
    pub fn stream(&self) -> String {
        let mut stream = String::new();
        for text in [&self.config_map, &self.rbac, &self.bindings, &self.workload] {
            if !text.starts_with("---") && !text.is_empty() {
                stream.push_str("---\n");
            }
            stream.push_str(text);
        }
        stream
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
                can_be_left_out: false,
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
    let Some(chosen) = found::choose(&found, wanted, &mut report) else {
        let unrendered: Vec<_> = unrendered.into_iter().flat_map(|(_, faults)| faults).collect();
        if !unrendered.is_empty() {
            report.faults = unrendered;
        }
        report.containers = found.into_iter().flat_map(|found| found.told).collect();
        return Outcome { report, files: None };
    };
    report.beside = found[chosen].beside();
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
    report.notes.extend(repeated.into_iter().nth(found[chosen].workload.document).into_iter().flatten());
    report.notes.extend(identity.doubt());
    let files = files(wanted, &original, &documents, &mut found[chosen], &identity, port, &mut report);
    if files.is_some() {
        report.notes.extend(found::what_stays(&found, chosen));
    }
    report.driver = Some(identity.driver);
    report.containers = found.into_iter().flat_map(|found| found.told).collect();
    let files = files.filter(|_| report.is_clean(wanted.lenient));
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
        report.notes.push(format!("from a running cluster, without the fields that the server sets: {object}"));
    }
    if !is_kept {
        report.notes.push(REWRITTEN.to_owned());
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
    report.notes.append(&mut settled.notes);
    report.faults.append(&mut settled.faults);
    let mut chosen = settled.chosen;
    let listen = ports::diagnostics(&mut chosen, found, port, &mut report.notes);
    assumed::notes(wanted, found, &mut report.notes);
    defaults::keep(&mut chosen, found, &mut report.notes);
    defaults::tell(&chosen, listen, found);
    let stopped = Stopped::of(&found.without_a_lease(), &found.workload, &mut report.notes);
    if let Some(namespace) = &namespace
        && !chosen.iter().any(|one| one.key == "leaderElection.namespace")
    {
        let (key, because) = ("leaderElection.namespace".to_owned(), "the workload's own".to_owned());
        chosen.push(Chosen { key, value: json!(namespace), because });
    }
    let elsewhere = Elsewhere::of(&chosen);
    report.notes.extend(elsewhere.iter().map(Elsewhere::note));
    report.faults.extend(elsewhere::disagreement(&found.sources));
    report.faults.extend(settle::two_namespaces(&found.sources, namespace.as_deref()));
    let text = file::configuration(&chosen, &found.roles, &found.workload.title());
    let loaded = load(&text, &chosen, report)?;
    advice::grace(&loaded, &found.workload, &mut report.notes);
    let sidecars: Vec<_> = found.sources.iter().map(|source| source.sidecar).collect();
    let made_anew = advice::of_sidecars(&sidecars, &loaded, &found.workload, &found.probes(), &mut report.notes);

    let own = elsewhere.as_ref().map_or(namespace.as_deref(), |elsewhere| elsewhere.namespace.as_deref());
    let plan = match identity.name() {
        Some(name) => Plan::of(&loaded, name, own),
        None => Plan::of_some_driver(&loaded, own),
    };
    let plan =
        plan.map_err(|error| report.faults.push(beyond(error_chain(&error), "a configuration that is valid"))).ok()?;
    let rbac = advice::secrets(&plan, &wanted.secrets, &mut report.notes);
    if namespace.is_none() {
        report.notes.push(format!(
            "the workload names no namespace, so the manifests say {}: give --namespace, or put it in",
            Plan::UNKNOWN_NAMESPACE
        ));
    }
    if identity.name().is_none() && !plan.manifests.is_empty() {
        report.faults.push(identity.fault());
    }
    let number = container::daemons(found.workload.containers()) + 1;
    let config_map = container::numbered(&format!("{}-csi-control-plane", found.workload.name), number);
    let old: Vec<Old<'_>> = found.replaced();
    let image = wanted.image.clone().unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
    if wanted.image.is_none() {
        report.notes.push(advice::no_image(&image));
    }
    let there = elsewhere.as_ref().and_then(|elsewhere| elsewhere.namespace.as_deref());
    let there = there.filter(|there| namespace.as_deref() != Some(there));
    let declared_by = found.declaring_on_node(listen.port());
    let new = New { number, image: &image, listen, declared_by, there };
    let container = container::build(&old, &found.workload.pod, &new, &mut report.notes);
    let volume = container::volume(&config_map, number);
    let change = Change { remove: &found.places, container: &container, volume: &volume };
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
        report.notes.push(REWRITTEN.to_owned());
    }
    advice::replicas(&found.workload, &mut report.notes);
    report.notes.extend(advice::owner(&found.workload));
    let steps = Steps {
        workload: &found.workload,
        config_map: &config_map,
        namespace: namespace.as_deref(),
        driver: identity.name(),
        elsewhere: elsewhere.as_ref(),
        has_rights: !rbac.is_empty(),
        stopped,
        returns: steps::returns(&found.sources),
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

/// A fault that should not occur once the flags are understood. It is reported anyway, because otherwise nothing would
/// say why there are no files.
fn beyond(found: String, expected: &str) -> Fault {
    Fault { place: MANIFEST.to_owned(), found, expected: expected.to_owned(), can_be_left_out: false }
}

/// Loads the configuration with the real loader. If it refuses a value, the fault names the flag of this value.
fn load(text: &str, chosen: &[Chosen], report: &mut Report) -> Option<Loaded> {
    let file = File { name: file::NAME.to_owned(), text: text.to_owned() };
    match config::load(&Sources { file: Some(file), ..Sources::default() }, &sections()) {
        Ok(loaded) => {
            report.notes.extend(loaded.warnings.iter().cloned());
            Some(loaded)
        }
        Err(rejected) => {
            for fault in rejected.faults {
                let from = chosen.iter().find(|one| one.key == fault.key).map(|one| format!(" ({})", one.because));
                report.faults.push(Fault {
                    place: format!("{}{}", fault.key, from.unwrap_or_default()),
                    found: fault.found,
                    expected: fault.allowed,
                    can_be_left_out: false,
                });
            }
            None
        }
    }
}
