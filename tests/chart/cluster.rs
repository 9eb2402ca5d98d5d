//! A real API server takes what the chart renders, and the daemon works with no more than that.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::accounts;
use crate::ground::Ground;
use crate::helm::{self, Rendered, root};
use crate::matrix;
use crate::objects;
use crate::shared;
use crate::world::{World, until_some};

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
async fn apply(client: &kube::Client, object: &Value, dry: bool) -> Result<(), String> {
    let mut how = PatchParams::apply("chart-tests").validation_strict();
    how.dry_run = dry;
    let name = object["metadata"]["name"].as_str().unwrap();
    let patched = api(client, object).patch(name, &how, &Patch::Apply(object)).await;
    patched.map(|_| ()).map_err(|error| format!("{} {name}: {error}", object["kind"]))
}

/// The kinds of the Prometheus operator, without what it thinks of their content.
async fn monitoring_kinds(client: &kube::Client) {
    for kind in ["PodMonitor", "ServiceMonitor", "PrometheusRule"] {
        let plural = format!("{}s", kind.to_lowercase());
        let name = format!("{plural}.monitoring.coreos.com");
        let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
            },
        });
        apply(client, &definition, false).await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        until_some(definitions, &name, "served", |it: Option<&CustomResourceDefinition>| {
            let conditions = it.and_then(|it| it.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Established" && it.status == "True"))
        })
        .await;
    }
}

#[tokio::test]
async fn a_real_api_server_takes_everything_that_is_rendered() {
    let client = shared().await.client().await;
    for namespace in [helm::NAMESPACE, "leases", "tenants", "csi-driver"] {
        accounts::namespace(&client, namespace).await;
    }
    monitoring_kinds(&client).await;
    let mut faults = Vec::new();
    let mut taken = 0;
    for case in matrix::all() {
        for object in case.rendered().objects {
            faults.extend(apply(&client, &object, true).await.map_err(|it| format!("{}: {it}", case.name)).err());
            taken += 1;
        }
    }
    for name in ["attacher", "csi-driver-host-path"] {
        let folder = root().join("deploy").join(name);
        let read = |file: &str| Rendered::of(std::fs::read_to_string(folder.join(file)).unwrap()).objects;
        for object in read("namespace.yaml") {
            faults.extend(apply(&client, &object, object["kind"] != "Namespace").await.err());
        }
        for object in read("manifests.yaml") {
            faults.extend(apply(&client, &object, true).await.map_err(|it| format!("deploy/{name}: {it}")).err());
            taken += 1;
        }
    }
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
    let client = shared().await.client().await;
    let label = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": label}});
    apply(&client, &space, false).await.unwrap();
    let spaces: Api<Namespace> = Api::all(client.clone());
    until_some(spaces, "restricted", "there", |it: Option<&Namespace>| it.is_some()).await;
    is_admitted(&client, "restricted", "attacher").await.unwrap();
    let refused = is_admitted(&client, "restricted", "root-driver").await.unwrap_err();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}

/// Installs what the chart renders for a driver, without the workload, and starts the daemon as its pod would.
async fn install(world: &World, namespace: &str, secret: &str) -> crate::ground::Daemon {
    let mut values = matrix::case("attacher").values;
    values["driver"]["name"] = world.driver_name().into();
    objects::merge(&mut values["config"], objects::config());
    values["rbac"]["secrets"]["named"] = json!([{"namespace": namespace, "names": [secret]}]);
    let rendered = helm::with(&values, &["--namespace", namespace]).unwrap();
    let (ground, client): (&Ground, _) = (world.sandbox(), world.client());
    accounts::namespace(&client, namespace).await;
    for object in rendered.objects.iter().filter(|it| it["kind"] != "Deployment") {
        apply(&client, object, false).await.unwrap();
    }
    let account = rendered.pod()["spec"]["serviceAccountName"].as_str().unwrap();
    let token = accounts::issue(&client, namespace, account).await;
    ground.start_as(&world.name("pod"), rendered.config(), namespace, &token).await
}

#[tokio::test]
async fn the_daemon_attaches_and_detaches_under_exactly_the_rendered_account() {
    let world = World::new().await;
    let namespace = world.name("release");
    let daemon = install(&world, &namespace, "named").await;
    let secrets: Api<Secret> = Api::namespaced(world.client(), &namespace);
    for name in ["named", "unnamed"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"user": "me"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let with_secret =
        |name: &str| json!({"csi": {"controllerPublishSecretRef": {"name": name, "namespace": namespace}}});
    let node = world.node("node").await;
    let plain = world.volume("plain").await;
    let secret = world.volume_with("secret", with_secret("named")).await;
    for volume in [&plain, &secret] {
        let attachment = world.attach(volume, &node).await;
        world.attached(&attachment).await;
        assert!(world.is_published(volume, &node));
        world.detached(&attachment).await;
        assert!(!world.is_published(volume, &node));
    }
    let refused = |metrics: &str| metrics.lines().filter(|line| line.contains("outcome=\"forbidden\"")).count();
    let metrics = world.metrics(&daemon).await;
    assert_eq!(refused(&metrics), 0, "{metrics}");
    assert!(metrics.contains("resource=\"leases\",outcome=\"ok\""), "{metrics}");

    let other = world.volume_with("other", with_secret("unnamed")).await;
    let attachment = world.attach(&other, &node).await;
    world.failed(&attachment, "forbidden").await;
    assert!(refused(&world.metrics(&daemon).await) > 0, "what the alert RightMissing looks at");
    daemon.stop().await.unwrap();
}
