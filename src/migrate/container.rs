//! The daemon's container, made from those that it replaces: their mounts, variables, resources and user. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_yaml::{Mapping, Value};

use super::document::{string, strings};
use super::file::{FOLDER, NAME};
use super::resources;
use crate::process::yaml;

/// The daemon's container is called like this, and the volume of its configuration begins so.
pub(super) const CONTAINER: &str = "csi-control-plane";
/// The volume that holds the configuration.
const VOLUME: &str = "csi-control-plane-config";

/// What the new container is.
#[derive(Debug, Clone, Copy)]
pub(super) struct New<'a> {
    /// Which of the pod's daemons it is, from 1: a pod with several drivers has several.
    pub(super) number: usize,
    /// Its image.
    pub(super) image: &'a str,
    /// Where it listens.
    pub(super) listen: SocketAddr,
    /// The container that stays and declares the port of `listen` on the node.
    pub(super) declared_by: Option<&'a str>,
    /// The namespace of what the daemon keeps in the cluster that it serves, if that is another cluster.
    pub(super) there: Option<&'a str>,
}

/// The name of a thing of one of the daemons of a pod.
pub(super) fn numbered(name: &str, number: usize) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

/// How many daemons a pod has.
pub(super) fn daemons(containers: &[Value]) -> usize {
    let is_daemon = |container: &&Value| {
        let rest = string(container, "name").and_then(|name| name.strip_prefix(CONTAINER));
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<usize>().is_ok())
        })
    };
    containers.iter().filter(is_daemon).count()
}

/// A container that is replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Old<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// All of it.
    pub(super) value: &'a Value,
    /// Why a command at its end is not needed, if it is not.
    pub(super) at_end: Option<&'static str>,
}

/// Makes the container.
pub(super) fn build(old: &[Old<'_>], pod: &Value, new: &New<'_>, notes: &mut Vec<String>) -> Value {
    let New { number, image, listen, declared_by, there } = *new;
    let mut container = Mapping::new();
    let mut put = |key: &str, value: Value| container.insert(key.into(), value);
    put("name", numbered(CONTAINER, number).into());
    put("image", image.into());
    for key in ["imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"] {
        if let Some(value) = first(old, key, notes) {
            put(key, value);
        }
    }
    if let Some(lifecycle) = lifecycle(old, notes) {
        put("lifecycle", lifecycle);
    }
    put("args", list(["run", "--config", &format!("{FOLDER}/{NAME}")].map(Value::from)));
    put("env", variables(old, there, notes));
    let from: Vec<Value> = union(old, "envFrom", yaml::write, notes);
    if !from.is_empty() {
        put("envFrom", list(from));
    }
    if let Some(other) = declared_by {
        notes.push(format!(
            "container {other} declares port {} of the node, so the daemon's does not: the API refuses a pod that declares one twice",
            listen.port()
        ));
    } else {
        let name = ports(old).find(|(_, port, _)| *port == listen.port()).and_then(|(_, _, name)| name);
        let name = name.unwrap_or("http-metrics");
        let port = [("name", name.into()), ("containerPort", listen.port().into()), ("protocol", "TCP".into())];
        put("ports", list([map(port)]));
    }
    // On the host's network the kubelet reaches the node's loopback, if the probe names it.
    let host = listen.ip().is_loopback().then(|| listen.ip().to_string());
    if host.is_some() && !uses_host_network(pod) {
        notes.push(format!(
            "{listen} is the pod's own: the kubelet can't reach it, so the container has no probes; set `diagnostics.listen` to \
             [::]:{} and add them",
            listen.port()
        ));
    } else {
        put("livenessProbe", probe("/livez", host.as_deref(), listen.port(), 10, 6));
        put("readinessProbe", probe("/readyz", host.as_deref(), listen.port(), 5, 3));
    }
    for one in old {
        let runs = |probe: &&&str| one.value.get(**probe).and_then(|probe| probe.get("exec")).is_some();
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"].iter().filter(runs) {
            notes.push(format!(
                "{probe} of {}: it runs a program of the sidecar's image, and goes with it; the daemon's probes ask its diagnostics",
                one.name
            ));
        }
    }
    let values: Vec<&Value> = old.iter().map(|old| old.value).collect();
    if let Some(sum) = resources::sum(&values) {
        put("resources", sum);
    }
    if let Some(context) = security(old, pod, notes) {
        put("securityContext", context);
    }
    let mut mounts = union(old, "volumeMounts", mount_path, notes);
    let own = [("name", numbered(VOLUME, number).into()), ("mountPath", FOLDER.into()), ("readOnly", true.into())];
    mounts.push(map(own));
    put("volumeMounts", list(mounts));
    container.into()
}

/// The first value of a field. Other values are told.
fn first(old: &[Old<'_>], key: &str, notes: &mut Vec<String>) -> Option<Value> {
    let value = |old: &Old<'_>| old.value.get(key).filter(|value| !value.is_null()).cloned();
    let (name, found) = old.iter().find_map(|old| Some((old.name, value(old)?)))?;
    for other in old.iter().filter(|other| value(other).is_some_and(|theirs| theirs != found)) {
        notes.push(format!("{key}: {} has another one than {name}; that of {name} is kept", other.name));
    }
    Some(found)
}

/// The hooks that need no program of a sidecar's image: the daemon's image has the daemon alone.
fn lifecycle(old: &[Old<'_>], notes: &mut Vec<String>) -> Option<Value> {
    let mut kept = Mapping::new();
    for one in old {
        for (hook, handler) in one.value.get("lifecycle").and_then(Value::as_mapping).into_iter().flatten() {
            let name = hook.as_str().unwrap_or_default();
            if let Some(exec) = handler.get("exec") {
                let command = strings(exec, "command").join(" ");
                let needless = one.at_end.filter(|_| name == "preStop");
                notes.push(format!(
                    "lifecycle.{name} of {} is dropped: it runs `{command}`, and the daemon's image has no shell and no other program; {}",
                    one.name,
                    needless.unwrap_or("if you need what it does, do it in another container"),
                ));
            } else if !handler.is_null() && !kept.contains_key(hook) {
                notes.push(format!("lifecycle.{name} of {} is kept", one.name));
                kept.insert(hook.clone(), handler.clone());
            }
        }
    }
    (!kept.is_empty()).then(|| kept.into())
}

/// The volume of the configuration.
pub(super) fn volume(config_map: &str, number: usize) -> Value {
    map([("name", numbered(VOLUME, number).into()), ("configMap", map([("name", config_map.into())]))])
}

/// The ports that the containers declare: container, port, name.
pub(super) fn ports<'a>(old: &[Old<'a>]) -> impl Iterator<Item = (&'a str, u16, Option<&'a str>)> {
    old.iter().flat_map(|old| declared(old.value).map(|(port, name)| (old.name, port, name)))
}

/// The ports that a container declares: port, name.
pub(super) fn declared(container: &Value) -> impl Iterator<Item = (u16, Option<&str>)> {
    let entries = container.get("ports").and_then(Value::as_sequence).into_iter().flatten();
    entries.filter_map(|entry| {
        let port = u16::try_from(entry.get("containerPort")?.as_u64()?).ok()?;
        Some((port, string(entry, "name")))
    })
}

fn variables(old: &[Old<'_>], there: Option<&str>, notes: &mut Vec<String>) -> Value {
    let named = |entry: &Value| string(entry, "name").unwrap_or_default().to_owned();
    let variables = union(old, "env", named, notes);
    // The sidecars do not read it, and the daemon would follow it to another cluster.
    let (unread, mut variables): (Vec<_>, Vec<_>) =
        variables.into_iter().partition(|entry| named(entry) == "KUBECONFIG");
    if !unread.is_empty() {
        notes.push(
            "env: KUBECONFIG is left out: the sidecars read --kubeconfig alone, and the daemon would follow the variable".to_owned(),
        );
    }
    if let Some(there) = there {
        variables.retain(|entry| named(entry) != "POD_NAMESPACE");
        variables.push(map([("name", "POD_NAMESPACE".into()), ("value", there.into())]));
    }
    let is_proxy = |name: &String| ["HTTP_PROXY", "HTTPS_PROXY"].contains(&&*name.to_uppercase());
    let proxies: Vec<String> = variables.iter().map(named).filter(is_proxy).collect();
    if !proxies.is_empty() {
        notes.push(format!(
            "env: {} is copied: as the sidecars, the daemon reaches the Kubernetes API through this proxy unless NO_PROXY lists the API \
             server",
            proxies.join(" and ")
        ));
    }
    for (name, path) in [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")] {
        if !variables.iter().any(|entry| string(entry, "name") == Some(name)) {
            let source = map([("fieldRef", map([("fieldPath", path.into())]))]);
            variables.push(map([("name", name.into()), ("valueFrom", source)]));
        }
    }
    list(variables)
}

/// The entries of all containers, one a key. Where two have one key and differ, the first counts, and it is told.
fn union(old: &[Old<'_>], list: &str, key: impl Fn(&Value) -> String, notes: &mut Vec<String>) -> Vec<Value> {
    let mut found: Vec<(String, &str, Value)> = Vec::new();
    for one in old {
        for entry in one.value.get(list).and_then(Value::as_sequence).into_iter().flatten() {
            let name = key(entry);
            match found.iter().find(|(known, ..)| *known == name) {
                None => found.push((name, one.name, entry.clone())),
                Some((_, first, known)) if !is_same(known, entry) => {
                    notes.push(format!(
                        "{list}: {name} differs between {} and {first}; the value of {first} is used",
                        one.name
                    ));
                }
                Some(_) => {}
            }
        }
    }
    found.into_iter().map(|(.., entry)| entry).collect()
}

/// Equal, but for a slash at the end of a path.
fn is_same(one: &Value, two: &Value) -> bool {
    one == two
        || (one.get("mountPath").is_some()
            && mount_path(one) == mount_path(two)
            && ["name", "subPath", "readOnly", "mountPropagation"].iter().all(|key| one.get(key) == two.get(key)))
}

fn mount_path(mount: &Value) -> String {
    let path = string(mount, "mountPath").unwrap_or_default();
    path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path).to_owned()
}

/// What a sidecar has in its security context and the daemon's container, which is made from the first, has not; and the reverse.
fn differs(name: &str, theirs: Option<&Value>, first: &str, ours: Option<&Value>) -> String {
    let fields = |context: Option<&Value>| -> BTreeMap<String, String> {
        let all = context.and_then(Value::as_mapping).into_iter().flatten();
        // In JSON, which is YAML on one line.
        all.filter_map(|(key, value)| Some((key.as_str()?.to_owned(), serde_json::to_string(value).ok()?))).collect()
    };
    let (theirs, ours) = (fields(theirs), fields(ours));
    let told = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let different = one.iter().filter(|(key, value)| other.get(*key) != Some(value));
        let told: Vec<String> = different.map(|(key, value)| format!("{key}: {value}")).collect();
        if told.is_empty() { "no such field".to_owned() } else { told.join(", ") }
    };
    let of_privilege = if theirs.get("privileged") == ours.get("privileged") {
        ""
    } else {
        ": where SELinux is on, only a privileged container reaches the socket of a privileged driver"
    };
    format!(
        "securityContext: {name} has {}, the daemon's container, made from {first}, has {}; compare them in workload.yaml{of_privilege}",
        told(&theirs, &ours),
        told(&ours, &theirs)
    )
}

/// The driver's socket belongs to the driver's user: as whom the sidecars reached it, so must we.
fn security(old: &[Old<'_>], pod: &Value, notes: &mut Vec<String>) -> Option<Value> {
    let own = |old: &Old<'_>| old.value.get("securityContext").filter(|context| !context.is_null()).cloned();
    let first = old.first().and_then(own);
    for other in old.iter().skip(1).filter(|other| own(other) != first) {
        notes.push(differs(other.name, own(other).as_ref(), old[0].name, first.as_ref()));
    }
    let says = |context: Option<&Value>, key: &str| context.and_then(|context| context.get(key)).is_some();
    let pods = pod.get("securityContext");
    let is_told = ["runAsUser", "runAsNonRoot"].iter().any(|key| says(first.as_ref(), key) || says(pods, key));
    if is_told {
        return first;
    }
    notes.push(
        "securityContext: the manifest sets no user, so the sidecars ran as the user of their images, root; with runAsUser: 0 the \
         daemon can use the driver's socket. Remove it if the user of the daemon's image, 65532, may use the socket"
            .to_owned(),
    );
    let mut context = first.as_ref().and_then(Value::as_mapping).cloned().unwrap_or_default();
    context.insert("runAsUser".into(), 0.into());
    Some(context.into())
}

/// Whether the pod has no network of its own: its ports are the node's.
pub(super) fn uses_host_network(pod: &Value) -> bool {
    pod.get("hostNetwork").and_then(Value::as_bool) == Some(true)
}

fn probe(path: &str, host: Option<&str>, port: u16, period: u64, failures: u64) -> Value {
    let mut get = Mapping::new();
    get.insert("path".into(), path.into());
    get.insert("port".into(), port.into());
    if let Some(host) = host {
        get.insert("host".into(), host.into());
    }
    map([
        ("httpGet", get.into()),
        ("periodSeconds", period.into()),
        ("timeoutSeconds", 3.into()),
        ("failureThreshold", failures.into()),
    ])
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect::<Mapping>().into()
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Sequence(items.into_iter().collect())
}
