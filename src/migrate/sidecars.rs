//! Which Go sidecar a container is. Pure.
//!
//! By its command, else by its image's name (in any registry, mirrored, with a digest), else by its own name, else by flags
//! that no other program has. The weaker signs count only together with `--csi-address`, which every sidecar has and no
//! driver. Where another program starts a sidecar, its arguments name it (`wrapped`): it is known, and stays.

use serde_yaml::Value;

use super::document::{self, Document, list, name_of, string, strings};
use super::flags::{self, Given};
use super::known::{Known, named, of_image};
use super::replaced::CONTAINER;
use super::report::listed;
use super::version;
use super::wrapped;
use crate::config::flags::SHARED;
use crate::config::sidecar::{Sidecar, Unhosted};
use crate::roles::sidecars::hosted;

/// What a container was found to be.
#[derive(Debug, Clone)]
pub(super) struct Recognised {
    /// The sidecar.
    pub(super) sidecar: Known,
    /// By what.
    pub(super) by: &'static str,
    /// What starts it.
    pub(super) start: Start,
}

/// What starts a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// Its own program, with its flags.
    Itself,
    /// A shell, which has its image for itself.
    Shell,
    /// Another program, so that the arguments are not only the sidecar's flags: why it stays.
    Wrapped(String),
}

/// Which sidecar a container is; `None`: another program.
pub(super) fn recognise(container: &Value) -> Option<Recognised> {
    let command = strings(container, "command");
    let image = string(container, "image").unwrap_or_default();
    let program = command.first().map(|path| wrapped::base(path));
    let is_shell = program.is_some_and(wrapped::is_shell);
    let found = |known: Option<Known>, by, start: &Start| {
        let start = start.clone();
        known.map(|sidecar| Recognised { sidecar, by, start })
    };
    let by_flags = |is_hosted| {
        let arguments = arguments(container);
        let has = |flag: &&str| arguments.iter().any(|argument| flag_name(argument) == Some(*flag));
        let mut all = Known::all().filter(|known| known.is_hosted() == is_hosted && calls_a_driver(container));
        all.find(|known| known.signs().flags.iter().any(has))
    };
    // Its image may be named as a sidecar's and hold another program: what runs is what counts.
    if let Some(program) = program.filter(|_| !is_shell) {
        let wrapped = |why: fn(&str) -> String| Start::Wrapped(why(program));
        let own = if program.strip_suffix(".sh").is_some() { wrapped(wrapped::why) } else { Start::Itself };
        return found(named(program), "its command", &own)
            .or_else(|| found(wrapped::sidecar(container), "its arguments", &wrapped(wrapped::why)))
            .or_else(|| found(of_image(image), "its image", &wrapped(wrapped::why_image)))
            .or_else(|| found(by_flags(false), "its flags", &Start::Itself));
    }
    let own = if is_shell { Start::Shell } else { Start::Itself };
    let wrapped = || Start::Wrapped(wrapped::why(if is_shell { "a shell" } else { "the image's own program" }));
    let by_name = |is_hosted| {
        let known = named(string(container, "name").unwrap_or_default());
        known.filter(|known| known.is_hosted() == is_hosted && calls_a_driver(container))
    };
    let of_name = "its name and --csi-address";
    // Upstream's program that is all sidecars may have their flags, too, and an old name is a part of a new one.
    found(of_image(image), "its image", &own)
        .or_else(|| found(wrapped::sidecar(container), "its arguments", &wrapped()))
        .or_else(|| found(by_flags(false), "its flags", &own))
        .or_else(|| found(by_name(true), of_name, &own))
        .or_else(|| found(by_flags(true), "its flags", &own))
        .or_else(|| found(by_name(false), of_name, &own))
}

/// Whether a container has the flag that every sidecar has, and no driver: it calls the driver.
pub(super) fn calls_a_driver(container: &Value) -> bool {
    arguments(container).iter().any(|argument| flag_name(argument) == Some("csi-address"))
}

/// Whether a container that is no sidecar that is known may be one all the same.
pub(super) fn may_be_one(container: &Value) -> bool {
    calls_a_driver(container) || recognise(container).is_some()
}

/// Why a sidecar stays that no role replaces, with what it says that it does.
pub(super) fn why_unhosted(sidecar: &Unhosted, container: &Value) -> String {
    let does = sidecar.does.and_then(|name| {
        let all = arguments(container);
        let at = all.iter().position(|argument| flag_name(argument) == Some(name))?;
        let given = all[at].split_once('=').map(|(_, value)| value).or_else(|| all.get(at + 1).map(String::as_str))?;
        Some(format!("it does the work of {given}; "))
    });
    does.unwrap_or_default() + sidecar.why
}

/// The first field of a container that does not have the shape that the API requires, and that shape. Its content would be lost.
pub(super) fn misshapen(container: &Value) -> Option<(&'static str, &'static str)> {
    let is_text = |item: &Value| item.is_string() || item.is_number() || item.is_bool();
    let check = |key: &'static str, wanted: &'static str, is_one: &dyn Fn(&Value) -> bool| {
        let value = container.get(key).filter(|value| !value.is_null())?;
        let is_sound = value.as_sequence().is_some_and(|items| items.iter().all(is_one));
        (!is_sound).then_some((key, wanted))
    };
    let texts = "a list of texts, one for each argument";
    check("command", texts, &is_text)
        .or_else(|| check("args", texts, &is_text))
        .or_else(|| check("env", "a list of variables, each with a name", &Value::is_mapping))
        .or_else(|| check("envFrom", "a list of sources", &Value::is_mapping))
        .or_else(|| check("ports", "a list of ports", &Value::is_mapping))
        .or_else(|| check("volumeMounts", "a list of mounts", &Value::is_mapping))
}

/// The sidecars that a container seems to be, although no sidecar was recognised: it has `--csi-address`, a sidecar knows all its flags,
/// and at least one of them is not a flag of every sidecar. If several sidecars know them all, the gates of `--feature-gates` decide.
fn resembled(container: &Value) -> Vec<&'static str> {
    let (given, odd) = flags::parse(&arguments(container), |name| {
        hosted().into_iter().find_map(|sidecar| sidecar.flag(name)).map(|flag| flag.takes)
    });
    let is_every_sidecars = |one: &Given| SHARED.iter().any(|shared| shared.name == one.name);
    if !odd.is_empty() || !given.iter().any(|one| one.name == "csi-address") || given.iter().all(is_every_sidecars) {
        return Vec::new();
    }
    let gates = |sidecar: &Sidecar| {
        let all = given.iter().filter(|one| one.name == "feature-gates").flat_map(|one| one.value.split(','));
        let names = all.filter_map(|gate| gate.split_once('=')).map(|(name, _)| name.trim());
        names.filter(|name| sidecar.gate(name).is_some() || sidecar.locked_gate(name).is_some()).count()
    };
    let knows_all = |sidecar: &&Sidecar| given.iter().all(|one| sidecar.flag(&one.name).is_some());
    let known: Vec<_> = hosted().into_iter().filter(knows_all).map(|sidecar| (gates(sidecar), sidecar.name)).collect();
    let most = known.iter().map(|(count, _)| *count).max();
    known.into_iter().filter(|(count, _)| Some(*count) == most).map(|(_, name)| name).collect()
}

/// What to say of a container that seems to be a sidecar and is called otherwise; `None`: it does not seem to be one.
pub(super) fn hint(container: &Value) -> Option<String> {
    let resembled = Some(resembled(container)).filter(|names| !names.is_empty())?;
    let seems = format!("its flags are those of {}", listed(&resembled, "or"));
    Some(if strings(container, "command").is_empty() {
        format!(
            "{seems}, and neither its image nor its name says so: if it is one, give the container its name in the manifest"
        )
    } else {
        format!("{seems}, and its command is another program: if it is one all the same, replace it by hand")
    })
}

/// Why a container that is no sidecar stays.
pub(super) fn beside(container: &Value) -> String {
    hint(container).unwrap_or_else(|| why(container).to_owned())
}

/// Why the controllers stay that work for all drivers.
pub(super) const OF_ALL_DRIVERS: &str =
    "it serves all drivers of the cluster, and is no sidecar of one: no role does its work";

fn why(container: &Value) -> &'static str {
    let image = version::parts(string(container, "image").unwrap_or_default()).0;
    let arguments = arguments(container);
    let named = |word: &str| image.contains(word);
    let is_of_all = ["snapshot-controller", "snapshot-validation-webhook", "snapshot-conversion-webhook"];
    if is_of_all.iter().any(|word| named(word)) {
        OF_ALL_DRIVERS
    } else if named("kube-rbac-proxy") || arguments.iter().any(|argument| flag_name(argument) == Some("upstream")) {
        "it guards a port; a note says if that port closes"
    } else if string(container, "name").is_some_and(|name| name.starts_with(CONTAINER)) {
        "the daemon of another driver"
    } else if calls_a_driver(container) {
        "it has --csi-address and is no sidecar that is known: it calls the driver beside the daemon, as it did beside the sidecars"
    } else {
        "no Go sidecar"
    }
}

/// The `ConfigMap`s with settings of sidecars, each with the first of its keys: an operator such as Rook's makes the sidecars from them.
pub(super) fn settings(documents: &[Document]) -> Vec<(String, String)> {
    let words = upper_words();
    let first = |object: &Value| {
        let keys = object.get("data").and_then(Value::as_mapping)?.keys().filter_map(Value::as_str);
        let key = keys.into_iter().find(|key| words.iter().any(|word| key.contains(word.as_str())))?;
        Some((format!("ConfigMap {}", name_of(object).unwrap_or_default()), key.to_owned()))
    };
    let maps = document::objects(documents).filter(|object| string(object, "kind") == Some("ConfigMap"));
    maps.filter_map(first).collect()
}

/// The words by which sidecars are called, as variables have them: `CSI_PROVISIONER`.
fn upper_words() -> Vec<String> {
    Known::all().flat_map(|known| known.signs().words).map(|word| word.to_uppercase().replace('-', "_")).collect()
}

/// The variable from which a program makes sidecars, as Longhorn's and Rook's operators do: it holds a sidecar's image.
pub(super) fn maker(containers: &[Value]) -> Option<String> {
    let words = upper_words();
    let mut names = containers.iter().flat_map(|it| list(it, "env")).filter_map(|entry| string(entry, "name"));
    names.find(|name| name.ends_with("IMAGE") && words.iter().any(|word| name.contains(word))).map(str::to_owned)
}

/// The arguments that the sidecar itself reads.
pub(super) fn arguments(container: &Value) -> Vec<String> {
    strings(container, "command").into_iter().skip(1).chain(strings(container, "args")).collect()
}

fn flag_name(argument: &str) -> Option<&str> {
    let bare = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    Some(bare.split_once('=').map_or(bare, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::super::choice::NO_SIDECAR;
    use super::super::migrate;
    use super::super::tests::{attacher, wanted};
    use super::*;

    fn of(yaml: &str) -> Option<(&'static str, &'static str)> {
        recognise(&serde_yaml::from_str(yaml).unwrap()).map(|found| (found.sidecar.name(), found.by))
    }

    #[test]
    fn images_are_recognised_wherever_they_are_kept() {
        for (image, sidecar) in [
            ("registry.k8s.io/sig-storage/csi-attacher:v4.6.1", Some("csi-attacher")),
            ("quay.io/k8scsi/csi-provisioner", Some("csi-provisioner")),
            ("registry.corp:5000/mirror/csi-attacher@sha256:0123abcd", Some("csi-attacher")),
            ("public.ecr.aws/eks-distro/kubernetes-csi/external-provisioner:v4", Some("csi-provisioner")),
            ("quay.io/openshift/ose-csi-external-attacher:latest", Some("csi-attacher")),
            ("longhornio/csi-resizer:v1.13", Some("csi-resizer")),
            ("x/csi-snapshotter:v8", Some("csi-snapshotter")),
            ("x/livenessprobe:v2", Some("livenessprobe")),
            ("x/csi-node-driver-registrar:v2", Some("node-driver-registrar")),
            ("x/csi-external-health-monitor-controller:v0.15.0", Some("external-health-monitor-controller")),
            ("x/snapshot-controller:v8", None),
            ("csi-attacher.example.com/driver:v1", None),
            ("x/aws-ebs-csi-driver", None),
            ("", None),
        ] {
            assert_eq!(of(&format!("{{name: c, image: {image:?}}}")).map(|found| found.0), sidecar, "{image}");
        }
    }

    #[test]
    fn a_renamed_image_is_recognised_by_what_it_runs() {
        for (yaml, found) in [
            ("{image: x/all-in-one, command: [/bin/csi-attacher]}", Some(("csi-attacher", "its command"))),
            ("{image: x/csi-attacher, command: [/bin/driver]}", Some(("csi-attacher", "its image"))),
            (
                "{name: csi-attacher, image: x/y, args: [--csi-address=/s]}",
                Some(("csi-attacher", "its name and --csi-address")),
            ),
            ("{name: csi-attacher, image: x/y, args: [--endpoint=/s]}", None),
            (
                "{name: p, image: x/y, args: [-csi-address, /s, --strict-topology]}",
                Some(("csi-provisioner", "its flags")),
            ),
            ("{name: p, image: x/y, args: [--strict-topology]}", None),
            ("{image: x/csi-attacher, command: [/bin/sh, -c]}", Some(("csi-attacher", "its image"))),
        ] {
            assert_eq!(of(yaml), found, "{yaml}");
        }
    }

    #[test]
    fn what_has_the_flags_of_a_sidecar_and_another_name_seems_to_be_one() {
        for (arguments, seems) in [
            ("--csi-address=/s, --worker-threads=5, --feature-gates=Topology=true", "csi-provisioner"),
            ("--csi-address=/s, --timeout=5s, --workers=5", "csi-resizer"),
            ("--csi-address=/s, --default-fstype=ext4, --v=5", "csi-attacher or csi-provisioner"),
            ("-csi-address, /s, -retry-interval-max=1m, -resync-period=1m", "csi-resizer or csi-snapshotter"),
            // What every sidecar has, or another program too.
            ("--csi-address=/s, --timeout=5s, --leader-election, --v=5", ""),
            ("--csi-address=/s, --worker-threads=5, --speed=9", ""),
            ("--worker-threads=5, --default-fstype=ext4", ""),
            ("", ""),
        ] {
            for (command, remedy) in
                [("", "give the container its name"), ("command: [/bin/x], ", "replace it by hand")]
            {
                let container =
                    serde_yaml::from_str(&format!("{{name: c, image: x/y, {command}args: [{arguments}]}}")).unwrap();
                assert!(recognise(&container).is_none(), "{arguments}");
                let hint = hint(&container);
                assert_eq!(hint.is_some(), !seems.is_empty(), "{arguments}: {hint:?}");
                let told = hint.unwrap_or_default();
                let is_told = |text: &str| told.contains(text);
                assert!(
                    seems.is_empty() || is_told(&format!("its flags are those of {seems}, ")) && is_told(remedy),
                    "{told}"
                );
            }
        }
    }

    #[test]
    fn what_seems_to_be_a_sidecar_is_told_wherever_it_stays() {
        let seeming = "      - name: foo\n        image: x/y\n        args: [--csi-address=/csi/s, --feature-gates=Topology=true]\n";
        let beside = format!("{}{seeming}", attacher("[--csi-address=/csi/s, --leader-election]"));
        let report = migrate(&wanted(&beside)).report;
        let why = &report.beside.iter().find(|one| one.name == "foo").unwrap().why;
        assert!(why.starts_with("its flags are those of csi-provisioner, "), "{why}");
        assert!(!report.notes.texts().any(|note| note == NO_SIDECAR), "{report}");

        let outcome = migrate(&wanted(&beside.replace("csi-attacher", "bar")));
        let [fault] = outcome.report.faults.as_slice() else { panic!("{}", outcome.faults_text()) };
        assert!(
            fault.found.contains("; container foo of Deployment n/d: its flags are those of csi-provisioner, "),
            "{}",
            fault.found
        );
    }
}
