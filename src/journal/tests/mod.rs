//! Journals over the sandbox's API: real HTTP on a simulated network, in paused time, with exactly the rights that a
//! journal asks for.

mod faults;
mod opening;
mod records;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fixtures::{Asked, place};
use super::{Journal, JournalError, LeftReason, OpenError, Opened, Place, clear_lost, rules};
use crate::cluster::rbac::Rule;
use crate::cluster::{Api, ApiOptions, ClientOptions, Clients, ClusterAccess};
use crate::election::Term;
use crate::process::{Clock, Rng, Tasks, error_chain};
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::resources::{Resource, find};
use crate::sandbox::api::{self as sandbox, Connections, Grant, Identity, PatchBody, PolicyRule};
use crate::sandbox::network::Network;
use crate::telemetry::Meter;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const TOKEN: &str = "token-of-me";

/// An API, and daemons that share it.
struct Rig {
    server: sandbox::Api,
    network: Network,
    clock: Clock,
    meter: Meter,
    tasks: Tasks,
}

/// A journal that runs.
struct Running {
    journal: Journal<Asked>,
    opened: Vec<Opened<Asked>>,
    adopted: Arc<Mutex<Vec<Opened<Asked>>>>,
}

fn configmaps() -> &'static Resource {
    find("", "v1", "configmaps").unwrap()
}

/// What somebody with these rights may do.
fn identity(rules: &[Rule]) -> Identity {
    let grant = |rule: &Rule| Grant {
        namespace: Some("storage".to_owned()),
        rule: PolicyRule {
            api_groups: vec![rule.api_group.clone()],
            resources: vec![rule.resource.clone()],
            resource_names: rule.resource_names.iter().cloned().collect(),
            verbs: rule.verbs.iter().cloned().collect(),
        },
    };
    Identity::limited("me", rules.iter().map(grant).collect())
}

impl Rig {
    fn new() -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let server = sandbox::Api::new(sandbox::ApiOptions {
            tokens: [(TOKEN.into(), identity(&rules(Some("demo-csi"), false)))].into(),
            ..sandbox::ApiOptions::new(clock, Rng::seeded(1))
        });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "storage" } });
        server.create_value(namespace).unwrap();
        let (network, (tasks, _)) = (Network::new(), Tasks::new("rig"));
        let incoming = network.listen("api").unwrap();
        let stop = CancellationToken::new();
        tasks.spawn("api", sandbox::serve(server.clone(), incoming, Connections::default(), stop));
        Self { server, network, clock, meter: Meter::new(), tasks }
    }

    async fn api(&self) -> Api {
        let access = ClusterAccess::Endpoint { dial: self.network.dial("me", "api"), token: Some(TOKEN.into()) };
        let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
        Api::new(clients.work, &ApiOptions::default(), self.meter.clone())
    }

    fn term(&self) -> Term {
        Term::permanent(&CancellationToken::new(), self.clock)
    }

    /// Opens the journal, as a new leader does.
    async fn try_open(&self) -> Result<(Journal<Asked>, Vec<Opened<Asked>>), OpenError> {
        Journal::open(&self.term(), self.api().await, place(), self.meter.clone(), self.clock).await
    }

    /// Opens it, and lets it run until it is dropped with the rig.
    async fn start(&self) -> Running {
        let (journal, opened) = self.try_open().await.unwrap();
        self.run(journal, opened)
    }

    fn run(&self, journal: Journal<Asked>, opened: Vec<Opened<Asked>>) -> Running {
        let adopted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&adopted);
        self.tasks.spawn("journal", journal.clone().run(move |entry| seen.lock().unwrap().push(entry)));
        Running { journal, opened, adopted }
    }

    /// What a segment holds, as `key: text`.
    fn data(&self, n: usize) -> Option<Value> {
        let object = self.server.object(configmaps(), "storage", &format!("demo-csi-journal-{n}"))?;
        Some(object.get("data").cloned().unwrap_or_else(|| json!({})))
    }

    /// The keys of all segments.
    fn keys(&self) -> Vec<String> {
        let objects = self.server.objects(configmaps(), "storage").unwrap();
        let keys = |object: &Value| match object.get("data").and_then(Value::as_object) {
            Some(data) => data.keys().cloned().collect::<Vec<_>>(),
            None => Vec::new(),
        };
        let mut keys: Vec<String> = objects.iter().flat_map(|object| keys(object)).collect();
        keys.sort();
        keys
    }

    /// As `kubectl patch configmap --type=merge` does.
    fn edit(&self, n: usize, patch: Value) {
        let name = format!("demo-csi-journal-{n}");
        self.server.patch_object(configmaps(), "storage", &name, PatchBody::Merge(patch), false).unwrap();
    }

    /// Creates a segment with these entries, as a daemon writes them.
    fn fill(&self, n: usize, entries: serde_json::Map<String, Value>) {
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("demo-csi-journal-{n}"), "namespace": "storage",
                "labels": { "csi-control-plane.io/journal": "demo.csi" },
                "annotations": { "csi-control-plane.io/journal-version": "1" } },
        });
        object = self.server.create_value(object).unwrap().as_ref().clone();
        let marked = |(key, mut entry): (String, Value)| {
            entry["in"] = object["metadata"]["uid"].clone();
            entry["since"] = json!("1");
            (key, Value::from(entry.to_string()))
        };
        let data: serde_json::Map<String, Value> = entries.into_iter().map(marked).collect();
        self.edit(n, json!({ "data": data }));
    }

    fn delete(&self, n: usize) {
        self.server.delete_object(configmaps(), "storage", &format!("demo-csi-journal-{n}")).unwrap();
    }

    /// Writes to the journal so far.
    fn writes(&self) -> u64 {
        ["create", "patch", "update", "delete"].iter().map(|verb| self.server.audit().count(verb, "configmaps")).sum()
    }

    fn fault(&self, verb: &str, action: Action, times: u64) {
        self.server.faults().add(Fault::on(Matching::any().resource("configmaps").verb(verb), action).times(times));
    }
}

impl Running {
    /// Records a volume's entry.
    async fn keep(&self, name: &str) -> Result<(), JournalError> {
        self.journal.record(name, &Asked::volume(name)).await
    }

    fn opened(&self) -> Vec<&str> {
        self.opened.iter().map(|entry| entry.key.as_str()).collect()
    }

    fn adopted(&self) -> Vec<String> {
        self.adopted.lock().unwrap().iter().map(|entry| entry.key.clone()).collect()
    }
}

/// Waits until `is_so`, for a bounded time.
async fn until(within: Duration, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(10 * MS).await;
        }
    };
    tokio::time::timeout(within, wait).await.expect("it never happens");
}
