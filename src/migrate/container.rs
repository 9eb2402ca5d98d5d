//! The daemon's container, made from those that it replaces: their mounts, variables, resources and user. Pure.

use serde_yaml::{Mapping, Value};

use super::document::{self, Workload, is_one_of, string, strings};
use super::file::{FOLDER, NAME};
use super::notes::{Notes, Weight};
use super::ports::Ports;
use super::replaced::{CONTAINER, Old, numbered, uses_host_network};
use super::report::{Report, listed};
use super::resources;
use super::security;
use crate::process::yaml;

/// The volume that holds the configuration.
const VOLUME: &str = "csi-control-plane-config";

/// What the new container is.
#[derive(Debug, Clone, Copy)]
pub(super) struct New<'a> {
    /// Which of the pod's daemons it is, from 1: a pod with several drivers has several.
    pub(super) number: usize,
    /// Its image.
    pub(super) image: &'a str,
    /// Where it listens, and what it declares.
    pub(super) ports: &'a Ports,
    /// The namespace of what the daemon keeps in the cluster that it serves, if that is another cluster.
    pub(super) there: Option<&'a str>,
}

/// Makes the container.
pub(super) fn build(old: &[Old<'_>], workload: &Workload, new: &New<'_>, report: &mut Report) -> Value {
    let New { number, image, ports, there } = *new;
    let listen = ports.listen;
    let (pod, Report { notes, faults, .. }) = (&workload.pod, report);
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
    if !ports.declared.is_empty() {
        put("ports", list(ports.declared.iter().cloned()));
    }
    // On the host's network the kubelet reaches the node's loopback, if the probe names it.
    let host = listen.ip().is_loopback().then(|| listen.ip().to_string());
    if host.is_some() && !uses_host_network(pod) {
        notes.check(format!(
            "{listen} is the pod's own: the kubelet can't reach it, so the container has no probes; set `diagnostics.listen` to \
             [::]:{} and add them",
            listen.port()
        ));
    } else {
        put("livenessProbe", probe("/livez", host.as_deref(), listen.port(), 10, 6));
        put("readinessProbe", probe("/readyz", host.as_deref(), listen.port(), 5, 3));
    }
    for one in old {
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let Some(old) = one.value.get(probe).filter(|probe| !probe.is_null()) else { continue };
            let runs = if old.get("exec").is_some() {
                "runs a program of the sidecar's image, and"
            } else {
                "asks the sidecar, and"
            };
            notes.know(format!(
                "{probe} of {}: it {runs} goes with it; the daemon's probes ask its diagnostics",
                one.name
            ));
        }
        for (field, why) in unused(one.value) {
            notes.check(format!("{field} of {} is dropped: {why}", one.name));
        }
    }
    let values: Vec<&Value> = old.iter().map(|old| old.value).collect();
    if let Some(sum) = resources::sum(&values) {
        put("resources", sum);
    }
    if let Some(context) = security::context(old, workload, notes, faults) {
        put("securityContext", context);
    }
    let mut mounts = union(old, "volumeMounts", mount_path, notes);
    let own = [("name", numbered(VOLUME, number).into()), ("mountPath", FOLDER.into()), ("readOnly", true.into())];
    mounts.push(map(own));
    put("volumeMounts", list(mounts));
    for (key, name) in [("volumeDevices", "devicePath"), ("resizePolicy", "resourceName")] {
        let named = |entry: &Value| string(entry, name).unwrap_or_default().to_owned();
        let entries = union(old, key, named, notes);
        if !entries.is_empty() {
            put(key, list(entries));
        }
    }
    container.into()
}

/// The first value of a field. Other values are told.
fn first(old: &[Old<'_>], key: &str, notes: &mut Notes) -> Option<Value> {
    let value = |old: &Old<'_>| old.value.get(key).filter(|value| !value.is_null()).cloned();
    let (name, found) = old.iter().find_map(|old| Some((old.name, value(old)?)))?;
    for other in old.iter().filter(|other| value(other).is_some_and(|theirs| theirs != found)) {
        notes.check(format!("{key}: {} has another one than {name}; that of {name} is kept", other.name));
    }
    Some(found)
}

/// The hooks that need no program of a sidecar's image: the daemon's image has the daemon alone.
fn lifecycle(old: &[Old<'_>], notes: &mut Notes) -> Option<Value> {
    let mut kept = Mapping::new();
    for one in old {
        for (hook, handler) in one.value.get("lifecycle").and_then(Value::as_mapping).into_iter().flatten() {
            let name = hook.as_str().unwrap_or_default();
            if let Some(exec) = handler.get("exec") {
                let command = strings(exec, "command").join(" ");
                let needless = one.at_end.filter(|_| name == "preStop");
                let weight = if needless.is_some() { Weight::GoodToKnow } else { Weight::Check };
                let told = format!(
                    "lifecycle.{name} of {} is dropped: it runs `{command}`, and the daemon's image has no shell and no other program; {}",
                    one.name,
                    needless.unwrap_or("if you need what it does, do it in another container"),
                );
                notes.add(weight, told);
            } else if !handler.is_null() && !kept.contains_key(hook) {
                notes.know(format!("lifecycle.{name} of {} is kept", one.name));
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

fn variables(old: &[Old<'_>], there: Option<&str>, notes: &mut Notes) -> Value {
    let variables = union(old, "env", named, notes);
    // The sidecars do not read it, and the daemon would follow it to another cluster.
    let (unread, mut variables): (Vec<_>, Vec<_>) =
        variables.into_iter().partition(|entry| named(entry) == "KUBECONFIG");
    if !unread.is_empty() {
        notes.know(
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
        notes.know(format!(
            "env: {} is copied: as the sidecars, the daemon reaches the Kubernetes API through this proxy unless NO_PROXY lists the API \
             server",
            listed(&proxies, "and")
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

/// The name of an entry of a list.
fn named(entry: &Value) -> String {
    string(entry, "name").unwrap_or_default().to_owned()
}

/// The entries of all containers, one a key. Where two have one key and differ, the first counts, and it is told.
fn union(old: &[Old<'_>], list: &str, key: impl Fn(&Value) -> String, notes: &mut Notes) -> Vec<Value> {
    let mut found: Vec<(String, &str, Value)> = Vec::new();
    for one in old {
        for entry in document::list(one.value, list) {
            let name = key(entry);
            match found.iter().find(|(known, ..)| *known == name) {
                None => found.push((name, one.name, entry.clone())),
                // It was for the arguments that go with the sidecar.
                Some(_) if list == "env" && !is_read(&name, old) => {}
                Some((_, first, known)) if !is_same(known, entry) => {
                    notes.check(format!(
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

/// Whether the daemon, or a library in it, reads a variable, itself or as a part of another one. `NAMESPACE` it does not: it has
/// `POD_NAMESPACE`.
fn is_read(variable: &str, old: &[Old<'_>]) -> bool {
    const READ: &str = "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT NODE_NAME POD_NAME \
                        POD_NAMESPACE SSL_CERT_DIR SSL_CERT_FILE";
    let is_read = |name: &str| {
        is_one_of(READ, &name.to_uppercase()) || ["CSI_CONTROL_PLANE_", "OTEL_"].iter().any(|it| name.starts_with(it))
    };
    let is_part = |entry: &Value| string(entry, "value").is_some_and(|text| text.contains(&format!("$({variable})")));
    let mut all = old.iter().flat_map(|one| document::list(one.value, "env"));
    is_read(variable) || all.any(|entry| is_read(&named(entry)) && is_part(entry))
}

/// The fields of a container that the daemon's does not take over, each with the reason.
fn unused(container: &Value) -> Vec<(&str, &'static str)> {
    const TAKEN: &str = "name image command args env envFrom ports resources volumeMounts volumeDevices securityContext lifecycle \
                         livenessProbe readinessProbe startupProbe imagePullPolicy terminationMessagePath terminationMessagePolicy \
                         resizePolicy stdin stdinOnce tty";
    let fields = container.as_mapping().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let fields = fields.filter_map(|(key, _)| key.as_str()).filter(|key| !is_one_of(TAKEN, key));
    let why = |field: &str| match field {
        "workingDir" => "the daemon's paths are absolute",
        _ => "it is not known what the daemon's container would do with it; add it there if you need it",
    };
    fields.map(|field| (field, why(field))).collect()
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
