//! The driver's name, as the manifests tell it. Pure.
//!
//! | sign | where | counts if |
//! |---|---|---|
//! | `--driver-name` | the user | always |
//! | `--drivername`, `--driver-name`; `DRIVER_NAME`, `CSI_DRIVER_NAME` | a container of the workload | the value has a dot |
//! | `--kubelet-registration-path` | a container of the workload | the socket's folder has a dot: `csi-nfsplugin` is no driver |
//! | a `CSIDriver` object | the other objects | always |
//! | the two signs of a container | the other workloads | as above |
//! | a class's `provisioner` or `driver` | the other objects | the signs above say nothing, and no plugin in the tree has the name |
//!
//! A wrong name is worse than none: the Leases, the finalizers and the rights carry it. So signs that contradict each other are none.

use std::collections::BTreeMap;

use crate::app::UNKNOWN_DRIVER;

use super::document::{self, Document, Workload, string, strings};
use super::expand::Variables;
use super::report::{Driver, Fault};
use super::{MANIFEST, Wanted};

/// The driver of a workload, and the names that the manifests have where they do not have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// What the report says.
    pub(super) driver: Driver,
    is_known: bool,
    /// The signs that contradict each other, each as `name (where)`.
    contradictions: Vec<String>,
}

/// Names, each with the first place that says it.
type Names = BTreeMap<String, String>;

/// Looks for the name of the driver that `chosen` belongs to.
pub(super) fn identify(
    wanted: &Wanted,
    documents: &[Document],
    workloads: &[&Workload],
    chosen: &Workload,
) -> Identity {
    let mut own = Names::new();
    of_workload(chosen, wanted, "", &mut own);
    if let Some(name) = &wanted.driver {
        let other = own.iter().filter(|_| !own.contains_key(name));
        let contradictions = other.map(|(other, from)| format!("{other} ({from})")).collect();
        return Identity { contradictions, ..Identity::known(name, "from --driver-name") };
    }
    let mut others = Names::new();
    for name in document::csi_drivers(documents) {
        others.entry(name).or_insert_with(|| "from the CSIDriver object".to_owned());
    }
    for workload in workloads.iter().filter(|workload| workload.place() != chosen.place()) {
        of_workload(workload, wanted, &format!(" of {}", workload.title()), &mut others);
    }
    if own.is_empty() && others.is_empty() {
        others.extend(document::class_drivers(documents));
    }
    let names = if own.is_empty() { &others } else { &own };
    let is_confirmed = |name: &String| others.is_empty() || others.contains_key(name);
    match names.iter().next() {
        Some((name, from)) if names.len() == 1 && is_confirmed(name) => Identity::known(name, from),
        _ => {
            let all = own.iter().chain(&others);
            Identity {
                contradictions: all.map(|(name, from)| format!("{name} ({from})")).collect(),
                ..Identity::unknown()
            }
        }
    }
}

impl Identity {
    fn known(name: &str, from: &str) -> Self {
        let driver = Driver { name: name.to_owned(), from: from.to_owned() };
        Self { driver, is_known: true, contradictions: Vec::new() }
    }

    fn unknown() -> Self {
        Self { is_known: false, ..Self::known(UNKNOWN_DRIVER, "not known: give --driver-name") }
    }

    /// The name, if it is known.
    pub(super) fn name(&self) -> Option<&str> {
        Some(&*self.driver.name).filter(|_| self.is_known)
    }

    /// What to say if the user's name is none of those in the manifest.
    pub(super) fn doubt(&self) -> Option<String> {
        let name = self.name().filter(|_| !self.contradictions.is_empty())?;
        Some(format!(
            "--driver-name {name} is used, and the manifest says {}: if the driver does not answer {name} to GetPluginInfo, no replica can \
             lead, because rbac.yaml names other Leases than the daemon's",
            self.contradictions.join(", ")
        ))
    }

    /// What to say to a workload whose roles have Leases and rights, which need the name.
    pub(super) fn fault(&self) -> Fault {
        let found = match self.contradictions.as_slice() {
            [] => "no driver name".to_owned(),
            names => format!("several driver names: {}", names.join(", ")),
        };
        let expected = "--driver-name NAME, with the name that the driver answers to GetPluginInfo (`kubectl get csidrivers` lists the \
                        names): the names of Leases, finalizers and rights contain it";
        Fault { place: MANIFEST.to_owned(), found, expected: expected.to_owned(), can_be_left_out: false }
    }
}

/// What the containers of a workload say.
fn of_workload(workload: &Workload, wanted: &Wanted, place: &str, names: &mut Names) {
    let namespace = workload.namespace.as_deref().or(wanted.namespace.as_deref());
    for container in workload.containers() {
        let variables = Variables::of(container, namespace);
        let title = format!("container {}{place}", string(container, "name").unwrap_or_default());
        let mut found = |name: Option<&str>, sign: &str| {
            if let Some(name) = name.filter(|name| is_name(name)) {
                names.entry(name.to_owned()).or_insert_with(|| format!("from {sign} of {title}"));
            }
        };
        let arguments = strings(container, "command").into_iter().chain(strings(container, "args"));
        let arguments: Vec<String> =
            arguments.map(|argument| variables.expand(&argument).unwrap_or_default()).collect();
        for (at, argument) in arguments.iter().enumerate() {
            let Some(bare) = argument.strip_prefix('-').map(|rest| rest.trim_start_matches('-')) else { continue };
            let behind = || arguments.get(at + 1).map_or("", String::as_str);
            let (flag, value) = bare.split_once('=').unwrap_or_else(|| (bare, behind()));
            match flag {
                "drivername" | "driver-name" => found(Some(value), "an argument"),
                "kubelet-registration-path" => found(folder_of(value), "--kubelet-registration-path"),
                _ => {}
            }
        }
        for variable in ["DRIVER_NAME", "CSI_DRIVER_NAME"] {
            found(variables.text(variable), &format!("the variable {variable}"));
        }
    }
}

/// `/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock` is in `ebs.csi.aws.com`.
fn folder_of(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').nth(1)
}

/// Whether a text is a driver's name as the CSI specification wants it. Names without a dot exist, but most texts without a
/// dot are none.
fn is_name(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.contains('.')
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        && is_end(text.chars().next())
        && is_end(text.chars().last())
}

#[cfg(test)]
mod tests {
    use super::super::{Manifest, Outcome, migrate};
    use super::*;

    const CONTROLLER: &str = "kind: Deployment\nmetadata: {name: d, namespace: ns}\nspec:\n  template:\n    spec:\n      containers:\n      \
        - {name: a, image: \"x/csi-attacher:v4.12.0\", args: [--csi-address=/csi/s, --leader-election]}\n";

    fn driver_container(fields: &str) -> String {
        format!("{CONTROLLER}      - {{name: driver, image: x/driver, {fields}}}\n")
    }

    fn node(path: &str) -> String {
        format!(
            "kind: DaemonSet\nmetadata: {{name: node, namespace: ns}}\nspec:\n  template:\n    spec:\n      containers:\n      - {{name: r, \
             image: \"x/other\", env: [{{name: REG, value: {path}}}], args: [--kubelet-registration-path=$(REG)]}}\n"
        )
    }

    fn moved(parts: &[String]) -> Outcome {
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: parts.join("---\n") }];
        migrate(&Wanted { manifests, ..Wanted::default() })
    }

    #[test]
    fn a_name_from_the_user_that_the_manifest_contradicts_is_used_and_told() {
        let part = driver_container("args: [--drivername=d.example.com]");
        for (name, is_told) in [("d.example.com", false), ("other.example.com", true)] {
            let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: part.clone() }];
            let outcome = migrate(&Wanted { manifests, driver: Some(name.to_owned()), ..Wanted::default() });
            assert_eq!(outcome.report.driver.unwrap().name, name);
            let told = "--driver-name other.example.com is used, and the manifest says d.example.com (from an argument of container driver)";
            assert_eq!(
                outcome.report.notes.iter().any(|note| note.starts_with(told)),
                is_told,
                "{:#?}",
                outcome.report.notes
            );
        }
    }

    #[test]
    fn the_name_is_found_wherever_the_manifests_have_it() {
        let controller = || CONTROLLER.to_owned();
        let object = |kind: &str, fields: &str| format!("kind: {kind}\nmetadata: {{name: o.example.com}}\n{fields}\n");
        for (parts, name, from) in [
            (
                vec![driver_container("args: [--drivername=d.example.com]")],
                "d.example.com",
                "an argument of container driver",
            ),
            (vec![driver_container("args: [-driver-name, d.example.com]")], "d.example.com", "an argument of"),
            (
                vec![driver_container("args: [\"--drivername=$(NAME)\"], env: [{name: NAME, value: d.example.com}]")],
                "d.example.com",
                "an argument of",
            ),
            (
                vec![driver_container("env: [{name: DRIVER_NAME, value: d.example.com}]")],
                "d.example.com",
                "the variable DRIVER_NAME of container driver",
            ),
            (
                vec![driver_container("args: [--kubelet-registration-path=/k/plugins/d.example.com/csi.sock]")],
                "d.example.com",
                "--kubelet-registration-path of container driver",
            ),
            (
                vec![controller(), node("/var/lib/kubelet/plugins/d.example.com/csi.sock")],
                "d.example.com",
                "--kubelet-registration-path of container r of DaemonSet ns/node",
            ),
            (vec![controller(), object("CSIDriver", "spec: {}")], "o.example.com", "the CSIDriver object"),
            (
                vec![driver_container("args: [--drivername=o.example.com]"), object("CSIDriver", "spec: {}")],
                "o.example.com",
                "an argument of",
            ),
            (vec![controller(), object("StorageClass", "provisioner: plain-name")], "plain-name", "the StorageClass"),
            (vec![controller(), object("VolumeSnapshotClass", "driver: c.example.com")], "c.example.com", "the Vol"),
        ] {
            let Outcome { report, files } = moved(&parts);
            assert!(files.is_some(), "{parts:?}: {}", report.faults_text());
            let driver = report.driver.unwrap();
            assert_eq!(driver.name, name, "{parts:?}");
            assert!(driver.from.starts_with(&format!("from {from}")), "{}", driver.from);
            let rbac = files.unwrap().rbac;
            assert!(rbac.contains(&format!("csi-control-plane:{name}:attacher")), "unique to the driver: {rbac}");
        }
    }

    #[test]
    fn a_role_that_needs_the_name_is_refused_without_one() {
        let class = "kind: StorageClass\nmetadata: {name: s}\nprovisioner: kubernetes.io/aws-ebs\n".to_owned();
        let csi_driver = |name: &str| format!("kind: CSIDriver\nmetadata: {{name: {name}}}\n");
        let controller = || CONTROLLER.to_owned();
        let nameless = "no driver name";
        for (parts, found) in [
            (vec![controller()], nameless),
            (vec![driver_container("args: [--drivername=plain]")], nameless),
            (vec![driver_container("args: [\"--drivername=$(GONE)\"]")], nameless),
            (vec![controller(), node("/var/lib/kubelet/plugins/csi-nfsplugin/csi.sock")], nameless),
            (vec![controller(), class], nameless),
            (
                vec![controller(), csi_driver("a.example.com"), csi_driver("b.example.com")],
                "several driver names: a.example.com (from the CSIDriver object), b.example.com (from the CSIDriver object)",
            ),
            (
                vec![controller(), csi_driver("a.example.com"), node("/k/plugins/b.example.com/csi.sock")],
                "several driver names: a.example.com (from the CSIDriver object), b.example.com (from --kubelet-registration-path of \
                 container r of DaemonSet ns/node)",
            ),
            (
                vec![driver_container("args: [--drivername=a.example.com]"), csi_driver("b.example.com")],
                "several driver names: a.example.com (from an argument of container driver), b.example.com (from the CSIDriver object)",
            ),
        ] {
            let Outcome { report, files } = moved(&parts);
            assert_eq!((files, &report.next), (None, &vec![]), "{parts:?}");
            let faults: Vec<_> = report.faults.iter().map(|fault| (&*fault.found, fault.can_be_left_out)).collect();
            assert_eq!(faults, [(found, false)], "{parts:?}");
            assert!(report.faults[0].expected.starts_with("--driver-name NAME"), "{:?}", report.faults);
        }
    }

    #[test]
    fn roles_without_leases_and_rights_need_no_name() {
        let text =
            CONTROLLER.replace("csi-attacher:v4.12.0", "livenessprobe:v2.17.0").replace(", --leader-election", "");
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
        let Outcome { report, files } =
            migrate(&Wanted { manifests, folder: Some("m".to_owned()), ..Wanted::default() });
        assert_eq!(files.expect("no fault").rbac, "");
        assert!(report.next.iter().all(|step| !step.contains(UNKNOWN_DRIVER)), "{:?}", report.next);
        assert!(
            report.next.iter().all(|step| !step.contains("rbac.yaml")),
            "kubectl refuses an empty file: {:?}",
            report.next
        );
    }
}
