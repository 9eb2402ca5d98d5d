//! Compares the metrics of csi-attacher, csi-provisioner, csi-resizer and csi-snapshotter, scraped after real work, with the catalogue: shared
//! metrics have the same type, labels and buckets, and the catalogue lists all metrics that only these sidecars have. What
//! livenessprobe and node-driver-registrar have is known from their specification alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use csi_control_plane::process::Dial;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::roles::metrics::{catalogue, not_here};
use csi_control_plane::roles::{resizer, snapshotter};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::telemetry::names::{Kind, Metric};
use csi_control_plane::telemetry::{Meter, exposition as ours};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{peers, provisioners, resizers, snapshotters};
use crate::control_plane::free_port;
use crate::exposition::{Family, Sample, parse};
use crate::http;
use crate::world::World;
use crate::world::wait::asked;

/// Exposed only once a renewal of the Lease has met another process's write.
const SLOW_PATH: &str = "leader_election_slowpath_total";

/// A sidecar's metrics.
struct Scraped {
    sidecar: &'static str,
    families: BTreeMap<String, Family>,
}

/// Scrapes a sidecar once it has found another process's write on its Lease.
async fn scraped(world: &World, sidecar: &'static str, port: u16, lease: &str) -> Scraped {
    let leases = world.leases();
    let mut times = 0;
    let told = asked("a renewal that meets another write", async || {
        let told = http::get(&Dial::tcp(SocketAddr::from(([127, 0, 0, 1], port))), "/metrics").await;
        if told.contains(SLOW_PATH) {
            return Some(told);
        }
        times += 1;
        let write = Patch::Merge(json!({ "metadata": { "annotations": { "written": times.to_string() } } }));
        leases.patch(lease, &PatchParams::default(), &write).await.unwrap();
        None
    });
    Scraped { sidecar, families: parse(&told.await) }
}

/// The sidecars' metrics, after each of the things that they count: done, and failed once.
async fn theirs(world: &World) -> [Scraped; 4] {
    let (attachers, provisioners) = (free_port(), free_port());
    let (resizing, snapshotting) = (free_port(), free_port());
    // Nobody waits for their Leases, and on a busy machine they must not lose them: whatever they have counted were gone.
    let patient = ["--leader-election-lease-duration=120s", "--leader-election-renew-deadline=100s"];
    let endpoint = |port: u16| format!("--http-endpoint=127.0.0.1:{port}");
    let more = [endpoint(attachers), patient[0].to_owned(), patient[1].to_owned()];
    let attacher = peers::csi_attacher(world, &more);
    let endpoint = endpoint(provisioners);
    let more = [&*endpoint, patient[0], patient[1], "--enable-capacity", "--capacity-ownerref-level=-1"];
    let provisioner = provisioners::csi_provisioner(world, &more);
    let endpoint = format!("--http-endpoint=127.0.0.1:{resizing}");
    let theirs = resizers::csi_resizer(world, &[&endpoint, patient[0], patient[1]]);
    let endpoint = format!("--http-endpoint=127.0.0.1:{snapshotting}");
    let snapshotter = snapshotters::csi_snapshotter(world, &[&endpoint, patient[0], patient[1]]);

    let no_luck = || Action::fail(tonic::Code::Internal, "no luck");
    world.driver().inject(Fault::on(Method::CreateVolume, no_luck()).once());
    world.driver().inject(Fault::on(Method::DeleteVolume, no_luck()).once());
    let class = world.class("class", json!({})).await;
    let (node, claim) = (world.node("node").await, world.claim("claim", &class, json!({})).await);
    let volume = world.bound(&claim).await.name_any();
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    world.detached(&attachment).await;
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume).await;
    let (small, _) = world.sizable_device("small").await;
    world.ask_for(&small, "2Gi").await;
    world.sized(&small, "2Gi").await;
    world.driver().inject(Fault::on(Method::CreateSnapshot, no_luck()).once());
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    world.delete_snapshot_and_wait(&cut).await;

    let driver = world.driver_name();
    let scraped = [
        scraped(world, "csi-attacher", attachers, &csi_attacher::lease(driver)).await,
        scraped(world, "csi-provisioner", provisioners, &driver.replace('.', "-")).await,
        scraped(world, "csi-resizer", resizing, &resizer::names::lease(driver)).await,
        scraped(world, "csi-snapshotter", snapshotting, &snapshotter::names::lease(driver)).await,
    ];
    attacher.stop().await;
    provisioner.stop().await;
    theirs.stop().await;
    snapshotter.stop().await;
    scraped
}

/// The differences between the sidecar's metrics and the catalogue.
fn differences(metric: &Metric, family: Option<&Family>) -> Vec<String> {
    let Some(family) = family else { return vec!["they don't have it".to_owned()] };
    let (kind, buckets) = match metric.kind {
        Kind::Counter => ("counter", &[][..]),
        Kind::Gauge => ("gauge", &[][..]),
        Kind::Histogram(buckets) => ("histogram", buckets),
    };
    let mut found = Vec::new();
    if family.kind != kind {
        found.push(format!("a {} there, a {kind} here", family.kind));
    }
    let labels = |sample: &Sample| labels_but_le(sample).into_iter().map(|(label, _)| label).collect();
    let here: BTreeSet<String> = metric.labels.iter().map(ToString::to_string).collect();
    let there: BTreeSet<BTreeSet<String>> = family.samples.iter().map(labels).collect();
    if there != BTreeSet::from([here.clone()]) {
        found.push(format!("labels {there:?} there, {here:?} here"));
    }
    // Each series has all of them; the first one's are as good as any.
    let first = family.samples.first().map(labels_but_le);
    let of_first = family.samples.iter().filter(|sample| Some(labels_but_le(sample)) == first);
    let bounds =
        of_first.filter_map(|sample| sample.label("le")?.parse::<f64>().ok()).filter(|bound| bound.is_finite());
    let bounds: Vec<f64> = bounds.collect();
    if bounds != buckets {
        found.push(format!("buckets {bounds:?} there, {buckets:?} here"));
    }
    found
}

fn labels_but_le(sample: &Sample) -> Vec<(String, String)> {
    sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect()
}

#[tokio::test]
async fn what_the_catalogue_says_to_be_the_go_sidecars_is_theirs_and_what_it_lacks_is_told() {
    let world = World::snapshotting(|_| {}).await;
    let theirs = theirs(&world).await;

    let mut differ = Vec::new();
    for metric in catalogue() {
        let Some(whose) = metric.of_go_sidecars() else { continue };
        for Scraped { sidecar, families } in &theirs {
            if whose.starts_with("all") || whose == *sidecar {
                let found = differences(metric, families.get(metric.name));
                differ.extend(found.into_iter().map(|what| format!("{sidecar}: {}: {what}", metric.name)));
            }
        }
    }

    // What is there besides: the process, as ours, and what is not here.
    let not_here = not_here();
    let of_process = parse(&ours(&Meter::new()));
    let mut told: BTreeSet<(&str, &str)> = BTreeSet::new();
    for Scraped { sidecar, families } in &theirs {
        for (name, family) in families {
            let is_catalogued = catalogue().any(|metric| metric.name == name);
            if let Some(here) = of_process.get(name) {
                if family.kind != here.kind {
                    differ.push(format!("{sidecar}: {name}: a {} there, a {} here", family.kind, here.kind));
                }
            } else if !is_catalogued {
                match not_here.iter().find(|(foreign, _)| foreign.covers(name)) {
                    Some((foreign, _)) => drop(told.insert((foreign.name, sidecar))),
                    None => differ.push(format!("{sidecar}: {name}: not here, and in no list of what is not")),
                }
            }
        }
    }
    let listed =
        not_here.iter().flat_map(|(foreign, sidecars)| sidecars.iter().map(|sidecar| (foreign.name, *sidecar)));
    let is_scraped = |(_, sidecar): &(&str, &str)| theirs.iter().any(|it| it.sidecar == *sidecar);
    let missed = listed.filter(|listed| is_scraped(listed) && !told.contains(listed));
    differ.extend(
        missed.map(|(name, sidecar)| format!("{sidecar}: {name}: in the list of what is not here, and not there")),
    );
    assert!(differ.is_empty(), "{differ:#?}");
}
