//! The security context of the daemon's container: the widest of those that it replaces, since one process does the work of all of
//! them. Pure.
//!
//! | field | what is taken |
//! |---|---|
//! | `privileged`, `allowPrivilegeEscalation` | on, if one had it on |
//! | `readOnlyRootFilesystem` | on, if all had it on |
//! | `runAsUser`, `runAsGroup`, `runAsNonRoot` | root's, if one ran as root; else the one user that they name |
//! | `capabilities` | all that were added, without those that all had dropped |
//! | `seccompProfile`, `appArmorProfile`, `procMount` | the one that confines least |
//! | `seLinuxOptions` | those that were set |
//! | any other | the first |
//!
//! A field that all have the same is taken without a word, and any other is told with its reason. Two values of which neither is the
//! wider, such as two users who are not root, are a fault.

use serde_yaml::{Mapping, Value};

use super::document::{Workload, is_one_of, string, strings, unique};
use super::notes::Notes;
use super::replaced::Old;
use super::report::Fault;

/// The annotation of a pod with the platform's rules for it.
const PLATFORM: &str = "openshift.io/required-scc";
/// The rules that give a pod its user, or refuse root.
const RULES: &str = "restricted restricted-v2 restricted-v3 nonroot nonroot-v2 hostaccess hostnetwork hostnetwork-v2";
/// The type of `SELinux` that is not confined.
const UNCONFINED_TYPE: &str = "spc_t";

/// As whom a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    /// As root, because its manifest says so, or because it says nothing and the image has no other user.
    Root,
    /// As this one.
    Named(i64),
    /// As the user of its image, who is not root.
    OfImage,
    /// As the one that the platform gives.
    OfPlatform,
}

/// The contexts that become one.
struct Merge<'a> {
    old: &'a [Old<'a>],
    pod: Option<&'a Value>,
    platform: Option<&'a str>,
    title: String,
    context: Mapping,
    notes: &'a mut Notes,
    faults: &'a mut Vec<Fault>,
}

/// The context of the daemon's container; `None`: there is nothing to say.
pub(super) fn context(
    old: &[Old<'_>],
    workload: &Workload,
    notes: &mut Notes,
    faults: &mut Vec<Fault>,
) -> Option<Value> {
    let platform = workload.annotations.get(PLATFORM).map(String::as_str).filter(|rule| is_one_of(RULES, rule));
    let pod = workload.pod.get("securityContext");
    let mut merge = Merge { old, pod, platform, title: workload.title(), context: Mapping::new(), notes, faults };
    merge.users();
    merge.widest("privileged", |one| i64::from(one.is("privileged")));
    merge.widest("allowPrivilegeEscalation", |one| {
        i64::from(one.own("allowPrivilegeEscalation").is_none_or(|value| value.as_bool() == Some(true)))
    });
    merge.widest("readOnlyRootFilesystem", |one| i64::from(!one.is("readOnlyRootFilesystem")));
    merge.widest("procMount", |one| i64::from(one.text("procMount") == Some("Unmasked")));
    merge.capabilities();
    for profile in ["seccompProfile", "appArmorProfile"] {
        merge.profile(profile);
    }
    merge.se_linux();
    merge.others();
    let Merge { context, .. } = merge;
    (!context.is_empty()).then(|| context.into())
}

/// One container's context, with the pod's behind it.
#[derive(Clone, Copy)]
struct One<'a> {
    name: &'a str,
    own: Option<&'a Value>,
    pod: Option<&'a Value>,
}

impl<'a> One<'a> {
    fn own(self, key: &str) -> Option<&'a Value> {
        self.own?.get(key).filter(|value| !value.is_null())
    }

    /// The container's own value, else the pod's.
    fn effective(self, key: &str) -> Option<&'a Value> {
        self.own(key).or_else(|| self.pod?.get(key)).filter(|value| !value.is_null())
    }

    fn is(self, key: &str) -> bool {
        self.effective(key).and_then(Value::as_bool) == Some(true)
    }

    fn text(self, key: &str) -> Option<&'a str> {
        self.effective(key).and_then(Value::as_str)
    }

    fn user(self, platform: Option<&str>) -> User {
        match self.effective("runAsUser").and_then(Value::as_i64) {
            Some(0) => User::Root,
            Some(id) => User::Named(id),
            None if self.is("runAsNonRoot") => User::OfImage,
            None if platform.is_some() => User::OfPlatform,
            None => User::Root,
        }
    }

    /// The capabilities in one of its two lists, spelled alike.
    fn capabilities(self, list: &str) -> Vec<String> {
        let names = self.own("capabilities").map(|all| strings(all, list)).unwrap_or_default();
        names.iter().map(|name| bare(name)).collect()
    }

    fn drops(self, capability: &str) -> bool {
        self.capabilities("drop").iter().any(|dropped| dropped == capability || dropped == "ALL")
    }
}

/// A capability's name without the prefix that some give it.
fn bare(capability: &str) -> String {
    let name = capability.to_uppercase();
    name.strip_prefix("CAP_").map(str::to_owned).unwrap_or(name)
}

impl<'a> Merge<'a> {
    fn all(&self) -> Vec<One<'a>> {
        let pod = self.pod;
        self.old.iter().map(|old| One { name: old.name, own: old.value.get("securityContext"), pod }).collect()
    }

    fn put(&mut self, key: &str, value: Option<&Value>) {
        if let Some(value) = value {
            self.context.insert(key.into(), value.clone());
        }
    }

    /// Takes the value of the first container with the highest rank, and says why.
    fn widest(&mut self, key: &str, rank: impl Fn(One<'a>) -> i64) {
        let all = self.all();
        let Some(widest) = all.iter().copied().map(&rank).max() else { return };
        let Some(one) = all.iter().copied().find(|one| rank(*one) == widest) else { return };
        // Where a field is nowhere, a container may be the wider by another field.
        let differs = |other: One<'a>| rank(other) != widest && other.own(key) != one.own(key);
        if all.iter().any(|other| differs(*other)) {
            self.told(key, one, differs);
        }
        self.put(key, one.own(key));
    }

    /// Says whose value is taken, and what the others have.
    fn told(&mut self, key: &str, taken: One<'a>, differs: impl Fn(One<'a>) -> bool) {
        let others = self.all().into_iter().filter(|other| differs(*other));
        let others: Vec<String> = others.map(|other| format!("{} had {}", other.name, shown(other.own(key)))).collect();
        let (value, name) = (shown(taken.own(key)), taken.name);
        self.notes.check(format!("securityContext.{key}: {value}, as {name} had it; {}", others.join(", ")));
    }

    fn fault(&mut self, key: &str, one: One<'a>, other: One<'a>, expected: &str) {
        let said = |one: One<'a>| format!("{} has {}", one.name, shown(one.effective(key)));
        let key = format!("securityContext.{key}");
        let found = format!("{}, and {}", said(one), said(other));
        self.faults.push(Fault::new(format!("{}, {key}", self.title), found, expected).left_out_as(key));
    }

    /// The driver's socket, and the folder in which the kubelet looks for registrations, belong to a user: as whom the sidecars
    /// reached them, so must the daemon.
    fn users(&mut self) {
        let (all, platform) = (self.all(), self.platform);
        let user = |one: &One<'a>| one.user(platform);
        let is_said = |one: &One<'a>| one.effective("runAsUser").is_some();
        let root = all.iter().find(|one| user(one) == User::Root && is_said(one));
        let root = root.or_else(|| all.iter().find(|one| user(one) == User::Root));
        let named = || all.iter().find(|one| matches!(user(one), User::Named(_)));
        let Some(taken) = root.or_else(named).or_else(|| all.first()).copied() else { return };
        if let User::Named(_) = taken.user(platform) {
            let is_another = |one: &&One<'a>| matches!(user(one), User::Named(_)) && user(one) != user(&taken);
            let group = |one: &One<'a>| one.effective("runAsGroup").and_then(Value::as_i64);
            let has_another = |one: &&One<'a>| user(one) == user(&taken) && group(one) != group(&taken);
            let expected = |what: &str| {
                format!(
                    "one {what} for all: the daemon is one process; let the sidecars run as one, or choose some with --container"
                )
            };
            if let Some(other) = all.iter().find(is_another) {
                self.fault("runAsUser", taken, *other, &expected("user"));
            } else if let Some(other) = all.iter().find(has_another) {
                self.fault("runAsGroup", taken, *other, &expected("group"));
            }
        }
        let is_of_image = taken.user(platform) == User::Root && !is_said(&taken);
        for key in ["runAsUser", "runAsGroup", "runAsNonRoot"] {
            let mine = taken.own(key).map(|value| (*value).clone());
            // What is added for it has a reason of its own.
            let is_added = is_of_image && key == "runAsUser";
            if !is_added && all.iter().any(|other| other.own(key) != taken.own(key)) {
                self.told(key, taken, |other| other.own(key) != taken.own(key));
            }
            self.put(key, mine.as_ref());
        }
        match taken.user(platform) {
            User::Root if is_of_image => {
                self.root_of_image(&taken, &all);
                self.context.insert("runAsUser".into(), 0.into());
            }
            User::OfPlatform => self.notes.know(format!(
                "securityContext: no runAsUser is added, because {PLATFORM}: {} gives the pod its user, or refuses root",
                platform.unwrap_or_default()
            )),
            _ => {}
        }
    }

    /// Says why the user is root, although no manifest says so.
    fn root_of_image(&mut self, taken: &One<'a>, all: &[One<'a>]) {
        let others = all.iter().filter(|other| other.user(self.platform) != User::Root);
        let others: Vec<String> =
            others.map(|other| format!("{} had {}", other.name, shown(other.effective("runAsUser")))).collect();
        self.notes.check(if others.is_empty() {
            "securityContext: the manifest sets no user, so the sidecars ran as the user of their images, root; with runAsUser: 0 the \
             daemon can use the driver's socket. Remove it if the user of the daemon's image, 65532, may use the socket"
                .to_owned()
        } else {
            format!(
                "securityContext.runAsUser: 0, because the manifest sets no user for {}, which ran as the user of its image, root; {}. \
                 Remove it if the user of the daemon's image, 65532, may do the same",
                taken.name,
                others.join(", ")
            )
        });
    }

    fn capabilities(&mut self) {
        const KEY: &str = "capabilities";
        let all = self.all();
        let Some(first) = all.first().copied() else { return };
        if all.iter().all(|one| one.own(KEY) == first.own(KEY)) {
            return self.put(KEY, first.own(KEY));
        }
        let added = unique(all.iter().flat_map(|one| one.capabilities("add")));
        let mut dropped = unique(all.iter().flat_map(|one| one.capabilities("drop")));
        // Dropped by name, a capability is gone, whether or not it was added.
        dropped.retain(|name| all.iter().all(|one| one.drops(name)) && !added.contains(name));
        if dropped.iter().any(|name| name == "ALL") {
            dropped = vec!["ALL".to_owned()];
        }
        let lists = [("add", added), ("drop", dropped)].into_iter().filter(|(_, names)| !names.is_empty());
        let lists = lists.map(|(list, names)| {
            let names: Vec<Value> = names.into_iter().map(Value::from).collect();
            (Value::from(list), Value::from(names))
        });
        let merged: Mapping = lists.collect();
        let had: Vec<String> = all.iter().map(|one| format!("{} had {}", one.name, shown(one.own(KEY)))).collect();
        let merged = (!merged.is_empty()).then(|| Value::from(merged));
        self.notes.check(format!(
            "securityContext.capabilities: {}: it adds what one of them added, and drops only what all of them dropped; {}",
            shown(merged.as_ref()),
            had.join(", ")
        ));
        self.put(KEY, merged.as_ref());
    }

    /// A profile that confines a container. A privileged one is not confined, whatever it says.
    fn profile(&mut self, key: &str) {
        let rank = |one: One<'a>| match one.effective(key).and_then(|profile| string(profile, "type")) {
            _ if one.is("privileged") => 3,
            Some("Unconfined") => 3,
            None => 2,
            Some("RuntimeDefault") => 1,
            Some(_) => 0,
        };
        let all = self.all();
        let confined = all.iter().filter(|one| rank(**one) < 2).copied().collect::<Vec<_>>();
        let differs = |one: &&One<'a>| one.effective(key) != confined[0].effective(key);
        if confined.len() == all.len()
            && let Some(other) = confined.iter().find(differs)
        {
            let expected = "one profile that suits all, since what a profile of the node allows is not known here";
            return self.fault(key, confined[0], *other, expected);
        }
        self.widest(key, rank);
    }

    fn se_linux(&mut self) {
        const KEY: &str = "seLinuxOptions";
        let all = self.all();
        let is_unconfined =
            |one: &One<'a>| one.effective(KEY).and_then(|it| string(it, "type")) == Some(UNCONFINED_TYPE);
        let set = |one: &One<'a>| one.effective(KEY).is_some();
        let taken = all.iter().find(|one| is_unconfined(one)).or_else(|| all.iter().find(|one| set(one))).copied();
        let Some(taken) = taken else { return };
        let differs = |other: One<'a>| other.effective(KEY) != taken.effective(KEY);
        let other = all.iter().find(|other| set(other) && differs(**other) && !is_unconfined(&taken));
        if let Some(other) = other {
            self.fault(KEY, taken, *other, "the same for all: neither of two is the wider");
        } else if all.iter().any(|other| differs(*other)) {
            self.told(KEY, taken, differs);
        }
        self.put(KEY, taken.own(KEY));
    }

    /// Fields that nothing is known of here.
    fn others(&mut self) {
        const KNOWN: &str = "privileged allowPrivilegeEscalation readOnlyRootFilesystem procMount capabilities seccompProfile \
                             appArmorProfile seLinuxOptions runAsUser runAsGroup runAsNonRoot";
        let all = self.all();
        let mappings = all.iter().filter_map(|one| one.own.and_then(Value::as_mapping));
        let keys = unique(mappings.flat_map(Mapping::keys).filter_map(Value::as_str));
        for key in keys.into_iter().filter(|key| !is_one_of(KNOWN, key)) {
            let Some(first) = all.iter().find(|one| one.own(key).is_some()).copied() else { continue };
            if all.iter().any(|other| other.own(key) != first.own(key)) {
                self.told(key, first, |other| other.own(key) != first.own(key));
            }
            self.put(key, first.own(key));
        }
    }
}

/// A value in one line: JSON is YAML.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| serde_json::to_string(value).unwrap_or_default())
}

#[cfg(test)]
#[path = "security_tests.rs"]
mod tests;
