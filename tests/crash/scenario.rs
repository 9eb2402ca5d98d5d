//! The work in progress when the daemon is killed, the changes that users make while it is down, and the expected end.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method, Node, Profile};
use serde_json::json;
use tonic::Code;

use super::attachments;
use super::play::Death;
use super::snapshots;
use super::world::{DATA, MARKER, SOURCE, World, ZONE};

/// The setting that there is no journal.
const NO_JOURNAL: &str = "durableIntent: false";
/// Claims that come at once.
const SEVERAL: [&str; 4] = ["one", "two", "three", "four"];

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It has its volume.
    Bound,
    /// It is gone, and so is its volume.
    Gone,
    /// It is gone, and its volume, if it had one, was kept.
    Kept,
    /// It has its volume, or waits for one.
    BoundOrWaiting,
    /// Of a snapshot: it is ready to use.
    Ready,
    /// Of a snapshot: it is gone.
    Untaken,
    /// Of a snapshot: it is gone, and what the driver had of it, if anything, was kept.
    Left,
}

/// One scenario.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: String,
    /// The driver, as far as it is not the usual one.
    pub(crate) profile: fn(&mut Profile),
    /// The provisioner's configuration, as far as it is not the usual one.
    pub(crate) section: String,
    /// The daemons take snapshots, and a snapshot-controller works beside them.
    pub(crate) takes_snapshots: bool,
    /// The cluster has the kinds of groups of snapshots, too.
    pub(crate) takes_groups: bool,
    /// The daemons attach what pods want, beside kubelets.
    pub(crate) attaches: bool,
    /// The node that the daemon is on, where each node has one.
    pub(crate) node: Option<&'static str>,
    /// The existing objects, in stages that each come to rest.
    pub(crate) before: Vec<fn(&World)>,
    /// The driver's fault from then on.
    pub(crate) faults: fn() -> Vec<Fault>,
    /// The act. From here on the daemon dies.
    pub(crate) act: fn(&World),
    /// The end of the claims if no daemon dies.
    pub(crate) undisturbed: Vec<(&'static str, End)>,
    /// The acts of people while no daemon works.
    pub(crate) meanwhile: fn(&World),
    /// The end of the claims after that.
    pub(crate) ends: Vec<(&'static str, End)>,
}

impl Scenario {
    /// Whether a secret is at stake.
    pub(crate) fn has_secret(&self) -> bool {
        let mut profile = Profile::default();
        (self.profile)(&mut profile);
        profile.provision_secrets != Profile::default().provision_secrets
    }

    /// Whether its daemon may die so. On a node another one is never there before the first has ended: nobody leads there.
    pub(crate) fn can_die(&self, how: Death) -> bool {
        self.node.is_none() || how == Death::Killed
    }

    pub(crate) fn new(name: &str, before: Vec<fn(&World)>, act: fn(&World)) -> Self {
        Self {
            name: name.to_owned(),
            profile: |_| {},
            section: String::new(),
            takes_snapshots: false,
            takes_groups: false,
            attaches: false,
            node: None,
            before,
            faults: Vec::new,
            act,
            undisturbed: vec![(DATA, End::Bound)],
            meanwhile: |_| {},
            ends: vec![(DATA, End::Bound)],
        }
    }

    /// The same, with this done while no daemon works.
    pub(crate) fn and(&self, name: &str, meanwhile: fn(&World), ends: &[(&'static str, End)]) -> Self {
        let name = format!("{}; {name}", self.name);
        Self { name, meanwhile, ends: ends.to_vec(), ..self.clone() }
    }

    /// The same, whose claim is deleted while no daemon works.
    fn and_deleted(&self) -> Self {
        self.and("deleted meanwhile", delete_data, &[(DATA, End::Gone)])
    }

    /// The same without the journal, as the Go sidecar works.
    pub(crate) fn without_intent(&self) -> Self {
        let name = format!("{}; without durable intent", self.name);
        let section = format!("\x20   {NO_JOURNAL}\n{}", self.section);
        Self { name, section, ..self.clone() }
    }

    /// Whether each call to the driver is in the journal.
    pub(crate) fn is_durable(&self) -> bool {
        !self.section.contains(NO_JOURNAL)
    }
}

fn delete_data(world: &World) {
    world.delete_pod();
    world.delete_claim(DATA);
}

fn zones(profile: &mut Profile) {
    profile.services.insert(2);
    profile.segments = ["a", "b"].map(|zone| [(ZONE.to_owned(), zone.to_owned())].into()).into();
}

fn zoned_class(world: &World) {
    world.class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
    world.node("one", "a");
    world.node("two", "b");
}

fn source(world: &World) {
    world.class(json!({}));
    world.claim(SOURCE, json!({}));
}

fn create(action: Action) -> Fault {
    Fault::on(Method::CreateVolume, action)
}

/// A claim of a class that provisions at once.
pub(crate) fn immediate() -> Scenario {
    Scenario::new("immediate", vec![|world| world.class(json!({}))], |world| world.claim(DATA, json!({})))
}

/// The same, deleted while no daemon works.
pub(crate) fn immediate_deleted() -> Scenario {
    immediate().and_deleted()
}

/// A bound claim is deleted.
pub(crate) fn deletion() -> Scenario {
    let mut scenario = Scenario::new(
        "deletion",
        vec![|world| world.class(json!({})), |world| world.claim(DATA, json!({}))],
        |world| world.delete_claim(DATA),
    );
    scenario.undisturbed = vec![(DATA, End::Gone)];
    scenario.ends = vec![(DATA, End::Gone)];
    scenario
}

/// Every scenario.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = vec![
        immediate(),
        immediate_deleted(),
        immediate().and(
            "class replaced meanwhile",
            |world| {
                world.delete_class();
                world.class(json!({}));
            },
            &[(DATA, End::Bound)],
        ),
        immediate().and("bound to another meanwhile", World::bind_elsewhere, &[(DATA, End::Bound)]),
        deletion(),
    ];
    all.extend(kept());
    all.extend(several());
    all.extend(retained());
    all.extend(first_consumer());
    all.extend(on_a_node());
    all.extend(sources());
    all.extend(answers());
    all.extend(secrets());
    all.extend(snapshots::all());
    all.extend(attachments::all());
    all
}

/// A user keeps the data of a claim: sets its volume to `Retain`, and deletes claim and PersistentVolume.
fn kept() -> Vec<Scenario> {
    let gone = [(DATA, End::Gone)];
    let retained: fn(&World) = |world| world.class(json!({ "reclaimPolicy": "Retain" }));
    let retained = Scenario { before: vec![retained], ..immediate() };
    let retained = Scenario { name: "of a class that retains".to_owned(), ..retained };
    let mut by_hand = deletion();
    "kept by hand".clone_into(&mut by_hand.name);
    by_hand.act = |world| world.keep_data(false);
    vec![
        immediate().and("kept meanwhile", |world| world.keep_data(false), &gone),
        immediate().and("kept by force meanwhile", |world| world.keep_data(true), &gone),
        retained.and("kept by force meanwhile", |world| world.keep_data(true), &[(DATA, End::Kept)]),
        by_hand,
    ]
}

/// Claims whose entries share their writes; the driver takes its time with one of them.
fn several() -> Vec<Scenario> {
    let ends = |end: End| SEVERAL.map(|claim| (claim, end)).to_vec();
    let mut all = Scenario::new("several", vec![|world| world.class(json!({}))], |world| {
        for claim in SEVERAL {
            world.claim(claim, json!({}));
        }
    });
    all.faults =
        || vec![create(Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".to_owned() }).once()];
    all.undisturbed = ends(End::Bound);
    all.ends = ends(End::Bound);
    let mut half = ends(End::Bound);
    half[0].1 = End::Gone;
    half[3].1 = End::Gone;
    let half = all.and(
        "half of them deleted meanwhile",
        |world| {
            world.delete_claim(SEVERAL[0]);
            world.delete_claim(SEVERAL[3]);
        },
        &half,
    );
    vec![half, all]
}

fn retained() -> Vec<Scenario> {
    let create = Scenario::new("retained", vec![|world| world.class(json!({ "reclaimPolicy": "Retain" }))], |world| {
        world.claim(DATA, json!({}));
    });
    let deleted = create.and("deleted meanwhile", delete_data, &[(DATA, End::Kept)]);
    let mut gone = Scenario::new(
        "retained, deletion",
        vec![|world| world.class(json!({ "reclaimPolicy": "Retain" })), |world| world.claim(DATA, json!({}))],
        |world| world.delete_claim(DATA),
    );
    gone.undisturbed = vec![(DATA, End::Kept)];
    gone.ends = vec![(DATA, End::Kept)];
    vec![create, deleted, gone]
}

fn first_consumer() -> Vec<Scenario> {
    let mut scenario = Scenario::new("first consumer", vec![zoned_class], |world| {
        world.claim(DATA, json!({}));
        world.pod();
    });
    scenario.profile = zones;
    let node_gone = scenario.and("node gone meanwhile", |world| world.delete_node("one"), &[(DATA, End::Bound)]);
    let mut full = scenario.clone();
    "no room".clone_into(&mut full.name);
    full.faults = || vec![create(Action::fail(Code::ResourceExhausted, "full")).once()];
    let full_deleted = full.and_deleted();
    let full_gone = full.and("node gone meanwhile", |world| world.delete_node("one"), &[(DATA, End::Bound)]);
    vec![scenario.and_deleted(), scenario, node_gone, full, full_deleted, full_gone]
}

/// The same where the claim is given a node by the scheduler, or taken by the daemon of a node, of which one is played.
fn on_a_node() -> Vec<Scenario> {
    let on_node = |scenario: Scenario| Scenario {
        section: "\x20   nodeDeployment: { enabled: true, baseDelay: 200ms, maxDelay: 400ms }\n".to_owned(),
        profile: |profile| {
            zones(profile);
            let here = Node { segments: [(ZONE.to_owned(), "a".to_owned())].into(), ..Node::default() };
            profile.nodes = [("one".to_owned(), here)].into();
        },
        node: Some("one"),
        ..scenario
    };
    let taken: fn(&World) = |world| {
        world.class(json!({}));
        world.node("one", "a");
    };
    let given: fn(&World) = |world| {
        world.class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
        world.node("one", "a");
    };
    let taken = on_node(Scenario::new("node, immediate", vec![taken], |world| world.claim(DATA, json!({}))));
    let given = on_node(Scenario::new("node, first consumer", vec![given], |world| {
        world.claim(DATA, json!({}));
        world.pod();
    }));
    vec![taken.and_deleted(), taken, given.and_deleted(), given]
}

/// The node whose daemon takes a claim. It is deleted while its daemon does not work.
pub(crate) fn on_a_node_deleted() -> Scenario {
    on_a_node().remove(0)
}

fn sources() -> Vec<Scenario> {
    let both = [(DATA, End::Gone), (SOURCE, End::Gone)];
    let mut clone = Scenario::new("clone", vec![source], |world| world.claim_from("PersistentVolumeClaim"));
    clone.undisturbed = vec![(DATA, End::Bound), (SOURCE, End::Bound)];
    clone.ends.clone_from(&clone.undisturbed);
    let mut restore = Scenario::new("restore", vec![source, World::snapshot], |world| {
        world.claim_from("VolumeSnapshot");
    });
    restore.undisturbed.clone_from(&clone.undisturbed);
    restore.ends.clone_from(&clone.undisturbed);
    vec![
        clone.and("deleted meanwhile", delete_data, &[(DATA, End::Gone), (SOURCE, End::Bound)]),
        clone.and(
            "deleted with its source meanwhile",
            |world| {
                delete_data(world);
                world.delete_claim(SOURCE);
            },
            &both,
        ),
        clone.and(
            "source deleted meanwhile",
            |world| world.delete_claim(SOURCE),
            &[(DATA, End::BoundOrWaiting), (SOURCE, End::Gone)],
        ),
        clone,
        restore.and("deleted meanwhile", delete_data, &[(DATA, End::Gone), (SOURCE, End::Bound)]),
        restore.and(
            "deleted with its snapshot and its claim meanwhile",
            |world| {
                delete_data(world);
                world.delete_snapshot();
                world.delete_claim(SOURCE);
            },
            &both,
        ),
        restore.and("snapshot deleted meanwhile", World::delete_snapshot, &[(DATA, End::BoundOrWaiting)]),
        restore,
    ]
}

/// What drivers answer before they are done.
fn answers() -> Vec<Scenario> {
    let named = |name: &str, faults: fn() -> Vec<Fault>| Scenario { name: name.to_owned(), faults, ..immediate() };
    let late = named("in background", || {
        vec![create(Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".to_owned() }).times(2)]
    });
    let slow = named("slow", || vec![create(Action::Late(Duration::from_secs(4))).once()]);
    let small = named("too small", || vec![create(Action::Lie(Lie::Size(1 << 20))).once()]);
    let refused = named("refused once", || vec![create(Action::fail(Code::Internal, "no such pool")).once()]);
    let silent = named("no volume told", || vec![create(Action::Lie(Lie::NoVolume)).once()]);
    let forgotten = Scenario {
        name: "source forgotten".to_owned(),
        faults: || vec![create(Action::Lie(Lie::ForgetSource)).once()],
        before: vec![source],
        act: |world| world.claim_from("PersistentVolumeClaim"),
        ..immediate()
    };
    let mut stuck = deletion();
    "deletion, slow".clone_into(&mut stuck.name);
    stuck.faults = || vec![Fault::on(Method::DeleteVolume, Action::Late(Duration::from_secs(4))).once()];
    let all = [late, slow, small, refused, silent, forgotten];
    let deleted: Vec<Scenario> = all.iter().map(Scenario::and_deleted).collect();
    all.into_iter().chain(deleted).chain([stuck]).collect()
}

fn secrets() -> Vec<Scenario> {
    let class: fn(&World) = |world| {
        world.secret();
        world.class(json!({ "parameters": {
            "csi.storage.k8s.io/provisioner-secret-name": "access",
            "csi.storage.k8s.io/provisioner-secret-namespace": "default" } }));
    };
    let claim: fn(&World) = |world| world.claim(DATA, json!({}));
    let profile: fn(&mut Profile) = |profile| {
        profile.provision_secrets.0.insert("password".to_owned(), MARKER.to_owned());
    };
    let create = Scenario { profile, ..Scenario::new("with a secret", vec![class], claim) };
    let delete =
        Scenario { name: "deletion with a secret".to_owned(), profile, before: vec![class, claim], ..deletion() };
    vec![create.and_deleted(), create, delete]
}
