//! The driver's name, as the manifests tell it. Pure.
//!
//! | sign | where | weight |
//! |---|---|---|
//! | `--driver-name` | the user | decides |
//! | `--drivername`, `--driver-name`; `DRIVER_NAME`, `CSI_DRIVER_NAME` | a container of the workload | certain |
//! | the only `CSIDriver` object, whose driver's controller or node plugin is the only such workload of the files | the other objects | certain |
//! | the only `CSIDriver` object, whose name the folder of the workload's socket has | the other objects | certain |
//! | the only `CSIDriver` object, whose name the workload's node plugin has: a `DaemonSet` of its namespace with its driver's image | the other objects | certain if no further such workload is there |
//! | the folder in `--kubelet-registration-path` | a container of the workload | a doubt of another name, else a guess |
//! | any other `CSIDriver`; a sign of another workload of the namespace; a class's `provisioner` or `driver` | the other objects | a guess |
//! | a workload of another namespace, and a `CSIDriver` that it names | the other objects | none: another driver's |
//!
//! A text without a dot is a name if a `CSIDriver` object has it: `csi-nfsplugin` is none.
//!
//! A wrong name is worse than none: the Leases, the finalizers and the rights carry it. So a guess is only told, and signs that
//! contradict each other are none.

use std::collections::{BTreeMap, BTreeSet};

use crate::app::UNKNOWN_DRIVER;

use super::document::{self, Document, Workload};
use super::report::{Driver, Fault};
use super::signs::{self, Sign};
use super::{MANIFEST, Wanted};

/// The driver of a workload, and the names that the manifests have where they do not have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// What the report says.
    pub(super) driver: Driver,
    is_known: bool,
    /// The signs that contradict each other, or are no more than guesses.
    others: Vec<Evidence>,
}

/// What a sign says about the driver of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// It names this driver.
    Certain,
    /// It is about this workload and may mean another name: it takes the certainty of other signs away.
    Doubt,
    /// It may be another driver's.
    Guess,
}

/// A name with its sign.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Evidence {
    name: String,
    from: String,
    weight: Weight,
}

/// Looks for the name of the driver that `chosen` belongs to.
pub(super) fn identify(
    wanted: &Wanted,
    documents: &[Document],
    workloads: &[&Workload],
    chosen: &Workload,
) -> Identity {
    let objects: BTreeSet<String> = document::csi_drivers(documents).into_iter().collect();
    let own = signs::of(chosen, wanted, &objects);
    if let Some(name) = &wanted.driver {
        let is_confirmed = own.iter().any(|sign| sign.name == *name);
        let others = own.iter().filter(|_| !is_confirmed).map(|sign| Evidence::of(sign, Weight::Certain, ""));
        let others = others.collect();
        return Identity { others, ..Identity::known(name, "from --driver-name") };
    }
    let namespace = |it: &Workload| it.namespace.clone().or_else(|| wanted.namespace.clone());
    let images = signs::images(chosen);
    let mut others = Vec::new();
    for other in workloads.iter().filter(|other| other.place() != chosen.place()) {
        let signs = signs::of(other, wanted, &objects);
        let is_near = namespace(other) == namespace(chosen);
        let has_image = !signs::images(other).is_disjoint(&images);
        let is_node_plugin = is_near && other.kind == "DaemonSet" && has_image;
        if !signs.is_empty() || signs::may_be_a_drivers(other) {
            others.push(Other { title: other.title(), is_near, is_node_plugin, signs });
        }
    }
    verdict(weighed(&own, &others, &objects, &document::class_drivers(documents)))
}

/// Another workload that may be a driver's.
#[derive(Debug, Clone)]
struct Other {
    title: String,
    /// Whether it is in the namespace of the chosen one.
    is_near: bool,
    /// Whether it is a `DaemonSet` there, and runs an image that the chosen one runs, too, beside the sidecars.
    is_node_plugin: bool,
    signs: Vec<Sign>,
}

/// The table above.
fn weighed(own: &[Sign], others: &[Other], objects: &BTreeSet<String>, classes: &[(String, String)]) -> Vec<Evidence> {
    let weight = |sign: &Sign| if sign.is_said { Weight::Certain } else { Weight::Doubt };
    let mut evidence: Vec<_> = own.iter().map(|sign| Evidence::of(sign, weight(sign), "")).collect();
    let has = |signs: &[Sign], name: &str| signs.iter().any(|sign| sign.name == name);
    let is_of_others = |name: &str| others.iter().any(|it| !it.is_near && has(&it.signs, name));
    let is_near = |name: &str| others.iter().any(|it| it.is_near && has(&it.signs, name));
    for name in objects.iter().filter(|name| has(own, name) || is_near(name) || !is_of_others(name)) {
        let is_only = |signs: &[Sign]| signs.iter().all(|sign| sign.name == *name);
        let is_agreed =
            is_only(own) && others.iter().all(|it| it.is_node_plugin && is_only(&it.signs)) && is_near(name);
        let is_this = others.is_empty() || has(own, name) || is_agreed;
        let weight = if objects.len() == 1 && is_this { Weight::Certain } else { Weight::Guess };
        evidence.push(Evidence { name: name.clone(), from: "from the CSIDriver object".to_owned(), weight });
    }
    for other in others.iter().filter(|other| other.is_near) {
        let place = format!(" of {}", other.title);
        evidence.extend(other.signs.iter().map(|sign| Evidence::of(sign, Weight::Guess, &place)));
    }
    if evidence.is_empty() {
        let class = |(name, from): &(String, String)| {
            let (name, from) = (name.clone(), from.clone());
            Evidence { name, from, weight: Weight::Guess }
        };
        evidence.extend(classes.iter().map(class));
    }
    evidence
}

/// The name that is certain, unless anything about the workload itself speaks for another one.
fn verdict(evidence: Vec<Evidence>) -> Identity {
    let first = evidence.iter().find(|one| one.weight == Weight::Certain);
    let is_doubted = |name: &str| evidence.iter().any(|one| one.weight != Weight::Guess && one.name != name);
    match first {
        Some(one) if !is_doubted(&one.name) => Identity::known(&one.name, &one.from),
        // A guess adds nothing to names that contradict each other already.
        Some(_) => {
            let others = evidence.into_iter().filter(|one| one.weight != Weight::Guess).collect();
            Identity { others, ..Identity::unknown() }
        }
        None => Identity { others: evidence, ..Identity::unknown() },
    }
}

impl Evidence {
    fn of(sign: &Sign, weight: Weight, place: &str) -> Self {
        Self { name: sign.name.clone(), from: format!("from {}{place}", sign.from), weight }
    }
}

impl Identity {
    fn known(name: &str, from: &str) -> Self {
        let driver = Driver { name: name.to_owned(), from: from.to_owned() };
        Self { driver, is_known: true, others: Vec::new() }
    }

    fn unknown() -> Self {
        Self {
            is_known: false,
            ..Self::known(
                UNKNOWN_DRIVER,
                "not known: give --driver-name, or the driver's CSIDriver object with -f csidriver.yaml",
            )
        }
    }

    /// The name, if it is known.
    pub(super) fn name(&self) -> Option<&str> {
        Some(&*self.driver.name).filter(|_| self.is_known)
    }

    /// Each name with the first place that has it.
    fn names(&self) -> BTreeMap<&str, &str> {
        let mut names = BTreeMap::new();
        for one in &self.others {
            names.entry(&*one.name).or_insert(&*one.from);
        }
        names
    }

    /// The same as a text.
    fn told(&self) -> String {
        self.names().iter().map(|(name, from)| format!("{name} ({from})")).collect::<Vec<_>>().join(", ")
    }

    /// What to say if the user's name is none of those in the manifest.
    pub(super) fn doubt(&self) -> Option<String> {
        let name = self.name().filter(|_| !self.others.is_empty())?;
        Some(format!(
            "--driver-name {name} is used, and the manifest says {}: if the driver does not answer {name} to GetPluginInfo, no replica can \
             lead, because rbac.yaml names other Leases than the daemon's",
            self.told()
        ))
    }

    /// What to say to a workload whose roles have Leases and rights, which need the name.
    pub(super) fn fault(&self) -> Fault {
        let names = self.names();
        let (found, name) = match names.keys().collect::<Vec<_>>().as_slice() {
            [] => ("no driver name".to_owned(), "NAME, with the name that the driver answers".to_owned()),
            [only] => (
                format!("a guess, and no sign that is certain: {}", self.told()),
                format!("{only} if this is the name that the driver answers"),
            ),
            _ => {
                let told = format!("several driver names: {}", self.told());
                (told, "NAME, with the name that the driver answers".to_owned())
            }
        };
        let expected = format!(
            "--driver-name {name} to GetPluginInfo (`kubectl get csidrivers` lists the names), or the driver's own CSIDriver object in a file \
             beside this workload alone (-f csidriver.yaml): the names of Leases, finalizers and rights contain it"
        );
        Fault::new(MANIFEST, found, expected)
    }
}
