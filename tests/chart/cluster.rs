//! A real API server accepts the rendered chart, and the manifests in deploy/.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::accounts;
use crate::chart::helm::{self, Rendered, root};
use crate::chart::kept;
use crate::chart::matrix;
use crate::chart::monitors;
use crate::chart::node;
use crate::shared;
use crate::world::until_some;

fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Applies an object. Strictly: a field that the server does not know is an error.
pub(crate) async fn apply(client: &kube::Client, object: &Value, dry: bool) -> Result<(), String> {
    let mut how = PatchParams::apply("chart-tests").validation_strict();
    how.dry_run = dry;
    let name = object["metadata"]["name"].as_str().unwrap();
    let patched = api(client, object).patch(name, &how, &Patch::Apply(object)).await;
    patched.map(|_| ()).map_err(|error| format!("{} {name}: {error}", object["kind"]))
}

#[tokio::test]
async fn a_real_api_server_takes_everything_that_is_rendered() {
    let client = shared::api().await.client().await;
    for namespace in [helm::NAMESPACE, "leases", "tenants", "csi-driver"] {
        accounts::namespace(&client, namespace).await;
    }
    monitors::install(&client).await;
    let mut faults = Vec::new();
    let (mut taken, mut examples) = (0, 0);
    for case in matrix::all() {
        for object in case.rendered().objects {
            faults.extend(apply(&client, &object, true).await.map_err(|it| format!("{}: {it}", case.name)).err());
            taken += 1;
        }
    }
    for object in helm::with(&node::values(), &[]).unwrap().objects {
        faults.extend(apply(&client, &object, true).await.map_err(|it| format!("node plugin: {it}")).err());
    }
    let mut parents = 0;
    for object in helm::parent(&[]).objects {
        faults.extend(apply(&client, &object, true).await.map_err(|it| format!("parent: {it}")).err());
        parents += usize::from(object["kind"] == "StatefulSet");
    }
    assert_eq!(parents, 1);
    for (name, _) in kept::DEPLOYED {
        let folder = root().join("deploy").join(name);
        let read = |file: &str| Rendered::of(std::fs::read_to_string(folder.join(file)).unwrap()).objects;
        for object in read("namespace.yaml") {
            faults.extend(apply(&client, &object, object["kind"] != "Namespace").await.err());
        }
        for object in read("manifests.yaml") {
            faults.extend(apply(&client, &object, true).await.map_err(|it| format!("deploy/{name}: {it}")).err());
            taken += 1;
        }
        if folder.join("example.yaml").exists() {
            for object in read("example.yaml") {
                faults.extend(apply(&client, &object, true).await.map_err(|it| format!("deploy/{name}: {it}")).err());
                examples += 1;
            }
        }
    }
    assert_eq!(examples, 3, "a class, a claim and a pod");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(taken > 60, "{taken}");
    // The server looks: a field that it does not know is refused.
    let mut odd = matrix::case("attacher").rendered().one("Deployment").clone();
    odd["spec"]["template"]["spec"]["replicaz"] = 1.into();
    let told = apply(&client, &odd, true).await.unwrap_err();
    assert!(told.contains("replicaz"), "{told}");
}

/// Whether admission lets a pod of this set of values into a namespace that enforces the restricted standard.
async fn is_admitted(client: &kube::Client, namespace: &str, name: &str) -> Result<(), String> {
    let rendered = matrix::case(name).rendered();
    let mut pod = rendered.pod().clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "pod".into();
    pod["metadata"]["namespace"] = namespace.into();
    let how = PostParams { dry_run: true, ..PostParams::default() };
    let made = api(client, &pod).create(&how, &serde_json::from_value(pod).unwrap()).await;
    made.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_pod_is_admitted_under_the_restricted_standard() {
    let client = shared::api().await.client().await;
    let label = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": label}});
    apply(&client, &space, false).await.unwrap();
    let spaces: Api<Namespace> = Api::all(client.clone());
    until_some(spaces, "restricted", "there", |it: Option<&Namespace>| it.is_some()).await;
    is_admitted(&client, "restricted", "attacher").await.unwrap();
    let refused = is_admitted(&client, "restricted", "root-driver").await.unwrap_err();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}
