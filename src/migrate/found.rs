//! The sidecars of each workload of the manifest: those that can be replaced and those that stay. Pure.

use std::time::Duration;

use serde_json::Value as Json;
use serde_yaml::Value;

use crate::config::Config;
use crate::config::sidecar::{HttpProbe, Sidecar};
use crate::roles::sections;
use crate::roles::sidecars::leads;

use super::document::{self, Workload, list, string};
use super::expand::Variables;
use super::known::Known;
use super::map;
use super::replaced::{self, Old, declared, port_number};
use super::report::{Beside, Container, Fault, Report, listed};
use super::settle::{Source, path_of};
use super::sidecars::{self, Recognised, Start};
use super::version::Release;
use super::windows::{WINDOWS, is_windows};
use super::{MANIFEST, Wanted};

/// A workload and its sidecars.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) workload: Workload,
    /// The sidecars, those that stay included.
    pub(super) told: Vec<Container>,
    /// The places of the containers that are replaced.
    pub(super) places: Vec<usize>,
    /// Their settings.
    pub(super) sources: Vec<Source>,
    /// The roles that replace them.
    pub(super) roles: Vec<&'static str>,
    /// Faults of their flags: they only count if the workload is chosen.
    pub(super) faults: Vec<Fault>,
}

/// Looks through all workloads.
pub(super) fn look(workloads: Vec<Workload>, wanted: &Wanted, report: &mut Report) -> Vec<Found> {
    if workloads.is_empty() {
        let found = "no Deployment, StatefulSet or DaemonSet";
        report.faults.push(Fault::new(MANIFEST, found, "the workload of a driver's controller or node plugin"));
    }
    let schema = Config::schema(&sections());
    workloads.into_iter().map(|workload| Found::of(workload, wanted, &schema)).collect()
}

impl Found {
    fn of(workload: Workload, wanted: &Wanted, schema: &Json) -> Self {
        let mut found = Self {
            told: Vec::new(),
            places: Vec::new(),
            sources: Vec::new(),
            roles: Vec::new(),
            faults: Vec::new(),
            workload,
        };
        for (key, read) in found.workload.misread.clone() {
            let place = format!("{}, metadata.{key}", found.workload.title());
            let expected = "a text: put it in quotes, since kubectl reads YAML 1.1 and the API refuses the object";
            found.faults.push(Fault::new(place, read, expected));
        }
        let containers = found.workload.containers().to_vec();
        let is_windows = is_windows(&found.workload.pod);
        for (place, value) in containers.iter().enumerate() {
            if string(value, "name") == Some(replaced::CONTAINER) && !wanted.chooses_containers() {
                found.fault(
                    replaced::CONTAINER,
                    "a container of that name",
                    "a workload that has not been migrated yet; for the next driver of the pod give --socket or --container",
                );
            }
            match sidecars::recognise(value) {
                Some(recognised) if is_windows => found.keep(value, &recognised, WINDOWS),
                Some(recognised) => found.sidecar(place, value, &recognised, wanted, schema),
                None => {}
            }
        }
        let init: Vec<Value> = found.workload.init_containers().cloned().collect();
        for value in &init {
            if let Some(recognised) = sidecars::recognise(value) {
                found.keep(value, &recognised, "it is an init container: move it by hand");
            }
        }
        found
    }

    fn sidecar(&mut self, place: usize, value: &Value, recognised: &Recognised, wanted: &Wanted, schema: &Json) {
        let sidecar = match recognised.sidecar {
            Known::Hosted(sidecar) => sidecar,
            Known::Unhosted(sidecar) => return self.keep(value, recognised, &sidecars::why_unhosted(sidecar, value)),
        };
        if let Start::Wrapped(why) = &recognised.start {
            return self.keep(value, recognised, why);
        }
        let name = string(value, "name").unwrap_or_default().to_owned();
        if !wanted.containers.is_empty() && !wanted.containers.contains(&name) {
            return self.keep(value, recognised, "--container names others");
        }
        if let Some((field, expected)) = sidecars::misshapen(value) {
            let found = format!("{field} is {}", document::shape(&value[field]));
            self.fault(&name, &found, &format!("{expected}: the API refuses anything else"));
            return self.keep(value, recognised, "its fields cannot be read");
        }
        if recognised.start == Start::Shell {
            self.fault(&name, "a sidecar started by a shell, whose script is not read", "its flags in `args`");
            return self.keep(value, recognised, "it is started by a shell");
        }
        let namespace = self.workload.namespace.as_deref().or(wanted.namespace.as_deref());
        let variables = Variables::of(value, namespace);
        let title = format!("{}, container {name}", self.workload.title());
        let arguments = sidecars::arguments(value);
        let mut read = map::read(&title, &name, sidecar, &arguments, &variables, &|key| has_key(schema, key));
        if map::last(&read.settings, "csi.endpoint").is_none() {
            read.settings.push(map::default_endpoint(&name));
        }
        let own = map::last(&read.settings, "csi.endpoint").and_then(|it| it.value.as_str()).map(path_of);
        if let Some(socket) = wanted.socket.as_deref().filter(|socket| own != Some(path_of(socket))) {
            let why = format!("its socket is {}, not {socket}", own.unwrap_or_default());
            return self.keep(value, recognised, &why);
        }
        self.places.push(place);
        let assumed = wanted.version_of(&name, sidecar.name).and_then(Release::assumed);
        let image = || Release::of(string(value, "image").unwrap_or_default(), sidecar.signs.words);
        self.replace(value, sidecar, recognised, read, assumed.unwrap_or_else(image));
    }

    fn replace(
        &mut self,
        value: &Value,
        sidecar: &'static Sidecar,
        recognised: &Recognised,
        read: map::Read,
        release: Release,
    ) {
        self.faults.extend(read.faults);
        for role in sidecar.roles {
            if !self.roles.contains(role) {
                self.roles.push(role);
            }
        }
        let endpoint = map::last(&read.settings, "csi.endpoint");
        let socket = endpoint.and_then(|setting| socket(value, setting.value.as_str()?));
        let told = self.container(value, recognised, None);
        let container = told.name.clone();
        let settings = read.settings;
        self.sources.push(Source { sidecar, container, settings, socket, release });
        self.told.push(Container { roles: sidecar.roles.to_vec(), flags: read.lines, ..told });
    }

    fn keep(&mut self, value: &Value, recognised: &Recognised, why: &str) {
        let told = self.container(value, recognised, Some(why.to_owned()));
        self.told.push(told);
    }

    fn container(&self, value: &Value, recognised: &Recognised, kept: Option<String>) -> Container {
        Container {
            workload: self.workload.title(),
            name: string(value, "name").unwrap_or_default().to_owned(),
            sidecar: recognised.sidecar.name(),
            recognised_by: recognised.by,
            roles: Vec::new(),
            kept,
            flags: Vec::new(),
            defaults: Vec::new(),
        }
    }

    fn fault(&mut self, container: &str, found: &str, expected: &str) {
        let place = format!("{}, container {container}", self.workload.title());
        self.faults.push(Fault::new(place, found, expected));
    }

    /// The containers that were asked for, and are not replaced.
    pub(super) fn unknown(&self, containers: &[String]) -> Option<Fault> {
        let is_replaced = |name: &&String| self.sources.iter().any(|source| source.container == **name);
        let unknown: Vec<&str> = containers.iter().filter(|name| !is_replaced(name)).map(String::as_str).collect();
        let found = format!("--container {}, which is no sidecar that can be replaced", listed(&unknown, "and"));
        let expected = "names of sidecars' containers, as the report has them";
        (!unknown.is_empty()).then(|| Fault::new(self.workload.title(), found, expected))
    }

    /// Versions that the user says, and there is no sidecar of that name.
    pub(super) fn unassumed(&self, assumed: &[(String, String)]) -> Vec<Fault> {
        let is_there = |name: &str| self.sources.iter().any(|it| it.container == name || it.sidecar.name == name);
        let unknown = assumed.iter().filter(|(name, _)| !is_there(name));
        let names: Vec<&str> = self.sources.iter().flat_map(|it| [it.sidecar.name, &*it.container]).collect();
        let fault = |(name, version): &(String, String)| {
            let found = format!("--assume {name}={version}, and no sidecar that is replaced has this name");
            Fault::new(self.workload.title(), found, format!("one of {}", names.join(", ")))
        };
        unknown.map(fault).collect()
    }

    /// The containers that are no sidecars that are known, and the init containers that seem to be one.
    fn others(&self) -> impl Iterator<Item = &Value> {
        let init = self.workload.init_containers().filter(|container| sidecars::may_be_one(container));
        let all = self.workload.containers().iter().chain(init);
        all.filter(|container| sidecars::recognise(container).is_none())
    }

    /// The containers that are no sidecars, and why they stay.
    pub(super) fn beside(&self) -> Vec<Beside> {
        self.others().map(|container| self.stays_because(container, sidecars::beside(container))).collect()
    }

    fn stays_because(&self, container: &Value, why: String) -> Beside {
        let name = string(container, "name").unwrap_or_default().to_owned();
        Beside { workload: self.workload.title(), name, why }
    }

    /// The sidecars that stay, and the containers that may be one, and why.
    pub(super) fn kept(&self) -> Vec<Beside> {
        let seeming = self.others().filter_map(|it| Some(self.stays_because(it, sidecars::hint(it)?)));
        let kept = self.told.iter().filter_map(|one| {
            let why = one.kept.clone().filter(|why| why != WINDOWS)?;
            Some(Beside { workload: one.workload.clone(), name: one.name.clone(), why })
        });
        seeming.chain(kept).collect()
    }

    /// The containers of programs that serve all drivers of the cluster.
    pub(super) fn of_all_drivers(&self) -> Vec<Beside> {
        self.beside().into_iter().filter(|beside| beside.why == sidecars::OF_ALL_DRIVERS).collect()
    }

    /// Whether the user asks for this workload, or for none.
    pub(super) fn is_asked_for(&self, wanted: &Wanted) -> bool {
        wanted.workload.as_ref().is_none_or(|name| {
            let Workload { kind, name: own, .. } = &self.workload;
            name == own || name.split_once('/').is_some_and(|(k, n)| k.eq_ignore_ascii_case(kind) && n == own)
        })
    }

    /// Whether the pod keeps a sidecar, or a container that may be one.
    pub(super) fn keeps_a_sidecar(&self) -> bool {
        self.told.iter().any(|container| container.kept.is_some()) || self.others().any(sidecars::may_be_one)
    }

    /// Nothing of this workload is replaced after all.
    pub(super) fn leave(&mut self, why: &str) {
        for container in self.told.iter_mut().filter(|container| container.kept.is_none()) {
            (container.kept, container.roles, container.flags) = (Some(why.to_owned()), Vec::new(), Vec::new());
        }
    }

    /// The containers that are replaced.
    pub(super) fn replaced(&self) -> Vec<Old<'_>> {
        let containers = self.workload.containers();
        let old = |place: &usize| containers.get(*place);
        let ends = self.sources.iter().map(|source| source.sidecar.at_end);
        let replaced = self.places.iter().filter_map(old).zip(ends);
        replaced.map(|(value, at_end)| Old { name: string(value, "name").unwrap_or_default(), value, at_end }).collect()
    }

    /// The liveness probes over HTTP of the containers that stay.
    pub(super) fn probes(&self) -> Vec<HttpProbe> {
        self.stays().filter_map(probe).collect()
    }

    /// The containers that stay, and the init containers that do not end.
    pub(super) fn stays(&self) -> impl Iterator<Item = &Value> {
        let containers = self.workload.containers().iter().enumerate();
        let stays = containers.filter(|(place, _)| !self.places.contains(place)).map(|(_, value)| value);
        let is_beside = |container: &&Value| string(container, "restartPolicy") == Some("Always");
        stays.chain(self.workload.init_containers().filter(is_beside))
    }

    /// The kind of object that a sidecar locks, if its flag says it: versions that have the flag may lock other objects than
    /// Leases.
    fn lock_of(&self, source: &Source) -> Option<&str> {
        let told = self.told.iter().find(|told| told.name == source.container)?;
        let flag = told.flags.iter().rev().find(|line| line.given.contains("leader-election-type"))?;
        flag.given.split_once(['=', ' ']).map(|(_, kind)| kind)
    }

    /// The sidecars that hold no Lease: without leader election, or so old that they hold another object. They could
    /// work at the same time as the daemon.
    pub(super) fn without_a_lease(&self) -> Vec<&str> {
        let has_lease = |source: &&Source| {
            let holds_leases = match self.lock_of(source) {
                Some(kind) => kind == "leases",
                None => !source.release.is_before(source.sidecar.lease_since),
            };
            // One per node is led by nobody, there as here.
            source.is_on("leaderElection.enabled") && holds_leases || source.is_per_node()
        };
        self.sources
            .iter()
            .filter(|source| leads(source.sidecar) && !has_lease(source))
            .map(|source| source.container.as_str())
            .collect()
    }
}

/// A container's liveness probe, if it asks over HTTP.
fn probe(container: &Value) -> Option<HttpProbe> {
    let name = string(container, "name").unwrap_or_default();
    let probe = container.get("livenessProbe")?;
    let port = probe.get("httpGet")?.get("port")?;
    let named = |wanted: &str| Some(declared(container).find(|it| it.name() == Some(wanted))?.port);
    let port = port_number(port).or_else(|| named(port.as_str()?))?;
    // The API's default.
    let seconds = probe.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(1);
    Some(HttpProbe { container: name.to_owned(), port, timeout: Duration::from_secs(seconds) })
}

/// Whether the schema has a key.
fn has_key(schema: &Json, key: &str) -> bool {
    key.split('.').try_fold(schema, |schema, part| schema.get("properties")?.get(part)).is_some()
}

/// The volume that a socket is in, and its path there.
fn socket(container: &Value, endpoint: &str) -> Option<(String, String)> {
    let inside = |mount: &Value| {
        let folder = string(mount, "mountPath")?.trim_end_matches('/').to_owned();
        let rest = path_of(endpoint).strip_prefix(&folder)?.strip_prefix('/')?.to_owned();
        let below = string(mount, "subPath").map(|sub| format!("{}/{rest}", sub.trim_matches('/')));
        Some((folder.len(), (string(mount, "name")?.to_owned(), below.unwrap_or(rest))))
    };
    list(container, "volumeMounts").filter_map(inside).max_by_key(|(length, _)| *length).map(|(_, place)| place)
}
