//! The verbs over a real wire: what they read again, and what they do when the term is over. A role of one verb plays each of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Known};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cluster::{PersistentVolume, patch};
use crate::csi::CsiOptions;
use crate::election::Term;
use crate::process::Clock;
use crate::proto::ControllerUnpublishVolumeRequest;
use crate::queue::{Activation, Cause, Outcome, RetrySection};
use crate::roles::kit::drive::Next;
use crate::roles::kit::{Controllers, End, Memory, NoReason, Reconcile, Run, Start, Telling, queues};
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources::find;
use crate::sandbox::driver::{Action as DriverAction, Fault as DriverFault, Method, Profile};
use crate::sandbox::testbed::harness::RoleHarness;

const NAME: &str = "pv-1";
const OURS: &str = "example.com/ours";
const OP: Op = Op("cannot write");

/// One verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Confirm,
    AddFinalizer,
    RemoveFinalizer,
    Delete,
    Call,
    CallAndConfirm,
}

/// A role that does its verb once, for the volume as it was seen at first.
struct OneVerb {
    store: Store<PersistentVolume>,
    memory: Memory<()>,
    seen: PersistentVolume,
    verb: Verb,
    /// Whether the verb records an answer of the driver.
    records: bool,
    /// How each try has ended.
    ends: Arc<Known<Vec<&'static str>>>,
}

impl OneVerb {
    async fn play(&self, io: &Io<'_, String>) -> Result<&'static str, Stop<NoReason>> {
        let written = |written| match written {
            Written::Kept => "kept",
            Written::Ended => "ended",
            Written::NotFound(_) => "not found",
        };
        let (store, seen) = (&self.store, &self.seen);
        let call = async || {
            let request = ControllerUnpublishVolumeRequest { volume_id: "vol-1".into(), ..Default::default() };
            io.call(async move |driver| driver.controller_unpublish_volume(request).await).await
        };
        match self.verb {
            Verb::Confirm => Ok(match io.confirm(store, seen).await? {
                Confirmed::Yes => "confirmed",
                Confirmed::NotFound => "not found",
                Confirmed::Replaced => "replaced",
            }),
            Verb::AddFinalizer => {
                let patch = patch::add_finalizer(&seen.metadata, OURS, &BTreeMap::new()).unwrap();
                io.write(store, seen, (Part::Object, &patch), OP).await.map(written)
            }
            Verb::RemoveFinalizer => {
                let patch = patch::remove_finalizer(&seen.metadata, OURS).unwrap();
                io.write(store, seen, (Part::Object, &patch), OP).await.map(written)
            }
            Verb::Delete => io.delete(store, seen, OP).await.map(written),
            Verb::Call => call().await.map(|_| "called"),
            Verb::CallAndConfirm => {
                call().await?;
                io.confirm(store, seen).await.map(|_| "both")
            }
        }
    }
}

impl Reconcile for OneVerb {
    type Key = String;
    type View = String;
    type Memory = ();
    type Progress = (bool, bool);
    type Step = ();
    type Answer = ();
    type Reason = NoReason;

    fn memory(&self) -> &Memory<()> {
        &self.memory
    }

    fn is_there(&self, _: &String, _: &str) -> bool {
        true
    }

    fn view(&self, _: &String) -> Option<String> {
        Some(format!("{} {}", self.seen.metadata.uid, self.records))
    }

    fn uid(view: &String) -> &str {
        view
    }

    fn begin(view: &String, _: Start) -> (bool, bool) {
        (false, view.ends_with("true"))
    }

    fn next_step(_: &String, (is_done, _): &(bool, bool)) -> Next<()> {
        if *is_done { Next::Done } else { Next::Do(()) }
    }

    fn has_answer((_, records): &(bool, bool)) -> bool {
        *records
    }

    async fn perform(&self, (): (), _: &String, _: &(bool, bool), io: &Io<'_, String>) -> Result<(), Stop<NoReason>> {
        let end = self.play(io).await;
        self.ends.lock().unwrap().push(match &end {
            Ok(end) => end,
            Err(Stop::TermOver) => "over",
            Err(Stop::LookAgain) => "again",
            Err(_) => "failed",
        });
        // A role would view the object anew.
        if matches!(end, Err(Stop::LookAgain)) { Ok(()) } else { end.map(drop) }
    }

    fn apply((): &mut (), (is_done, _): &mut (bool, bool), (): ()) {
        *is_done = true;
    }

    fn ended((): &mut (), (is_done, _): &mut (bool, bool), _: &End<'_, NoReason>) {
        *is_done = true;
    }

    fn tell(_: &String, _: &(bool, bool), _: &End<'_, NoReason>, _: &Run<'_>) -> Vec<Telling> {
        Vec::new()
    }

    fn retry(_: &String, _: &(bool, bool), _: &AttemptError<NoReason>) -> Outcome {
        Outcome::Forget
    }
}

/// A volume in the API and in a store.
struct World {
    harness: RoleHarness,
    scope: Arc<TermScope>,
    store: Store<PersistentVolume>,
}

impl World {
    async fn new(term: impl FnOnce(Clock) -> Term) -> Self {
        let harness = RoleHarness::with(Profile::default()).await;
        let cache = harness.caches.want::<PersistentVolume>();
        let scope = TermScope::new(&harness.context, &term(harness.context.clock));
        let world = Self { scope: Arc::new(scope), store: Store::of(&cache), harness };
        world.create(&[]);
        world.harness.watch();
        cache.synced().await;
        world
    }

    async fn of_permanent_term() -> Self {
        Self::new(|clock| Term::permanent(&CancellationToken::new(), clock)).await
    }

    fn create(&self, finalizers: &[&str]) {
        let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": NAME, "finalizers": finalizers },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": self.harness.context.driver.name, "volumeHandle": NAME } } });
        self.harness.testbed.api.create_value(volume).unwrap();
    }

    /// The volume as the store has it now.
    fn seen(&self) -> PersistentVolume {
        self.store.named(NAME).unwrap().as_ref().clone()
    }

    /// Does one verb in an attempt, and says how it ended.
    async fn play(&self, verb: Verb, seen: &PersistentVolume) -> &'static str {
        self.try_verb(verb, seen, false).await
    }

    async fn try_verb(&self, verb: Verb, seen: &PersistentVolume, records: bool) -> &'static str {
        let (role, ends) = (&self.harness.context, Arc::new(Known::new(Vec::new())));
        let backoff = <RetrySection>::default().backoff();
        let queue = queues::make(role, "test", &[("one", 1)], backoff, |_: &String| tracing::Span::none());
        let mut controllers = Controllers::new("test", &role.board, &self.scope);
        controllers.drive(
            &queue,
            "test",
            |_| None,
            OneVerb {
                store: self.store.clone(),
                memory: Memory::default(),
                seen: seen.clone(),
                verb,
                records,
                ends: Arc::clone(&ends),
            },
        );
        queue.add(NAME.to_owned(), Activation::of(Cause::Changed));
        let tried = async {
            while ends.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            served = controllers.serve() => served.unwrap(),
            () = tried => {}
        }
        let ends = ends.lock().unwrap();
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends[0]
    }

    /// How many requests of this verb the API got for volumes.
    fn count(&self, verb: &str) -> u64 {
        self.harness.testbed.api.audit().count(verb, "persistentvolumes")
    }

    /// The next write is answered so.
    fn answer(&self, action: Action) {
        let on = Matching::any().verb("patch").resource("persistentvolumes");
        self.harness.testbed.api.faults().add(Fault::on(on, action).nth(1));
    }

    fn patch(&self, patch: serde_json::Value) {
        self.harness
            .testbed
            .api
            .patch::<k8s_openapi::api::core::v1::PersistentVolume>("", NAME, PatchBody::Merge(patch))
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_confirmed_by_a_read_and_its_namesake_is_not_taken_for_it() {
    let world = World::of_permanent_term().await;
    let seen = world.seen();
    let mut former = seen.clone();
    former.metadata.uid = "of-its-former-life".into();
    assert_eq!(world.play(Verb::Confirm, &former).await, "replaced");
    assert!(!world.store.is_confirmed(&former) && !world.store.is_confirmed(&seen));
    assert_eq!(world.play(Verb::Confirm, &seen).await, "confirmed");
    assert!(world.store.is_confirmed(&seen));
    assert_eq!(world.count("get"), 2);
    // It goes, and comes again: an answer that was on its way confirms neither.
    world.harness.testbed.api.delete::<k8s_openapi::api::core::v1::PersistentVolume>("", NAME).unwrap();
    assert_eq!(world.play(Verb::Confirm, &seen).await, "not found");
    world.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_write_brings_is_in_the_store_and_is_confirmed() {
    let world = World::of_permanent_term().await;
    let before = world.seen();
    assert_eq!(world.play(Verb::AddFinalizer, &before).await, "kept");
    let after = world.seen();
    assert!(after.metadata.has_finalizer(OURS) && world.store.is_confirmed(&after));
    // Another role has written it meanwhile: the next look comes before the write.
    assert_eq!(world.play(Verb::AddFinalizer, &before).await, "again");
    assert_eq!((world.count("patch"), world.count("get")), (1, 0));
    // Its last finalizer.
    world.harness.testbed.api.delete::<k8s_openapi::api::core::v1::PersistentVolume>("", NAME).unwrap();
    assert_eq!(world.play(Verb::RemoveFinalizer, &after).await, "ended");
    world.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_holds_stays_after_its_deletion_and_its_namesake_is_not_deleted() {
    let world = World::of_permanent_term().await;
    let mut former = world.seen();
    former.metadata.uid = "of-its-former-life".into();
    assert_eq!(world.play(Verb::Delete, &former).await, "not found");
    assert_eq!(world.play(Verb::AddFinalizer, &world.seen()).await, "kept");
    assert_eq!(world.play(Verb::Delete, &world.seen()).await, "kept");
    assert!(world.seen().metadata.deletion_timestamp.is_some(), "the answer is in the store");
    assert_eq!(world.play(Verb::RemoveFinalizer, &world.seen()).await, "ended");
    world.create(&[]);
    let is_new = || world.store.named(NAME).is_some_and(|it| it.metadata.deletion_timestamp.is_none());
    while !is_new() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.play(Verb::Delete, &world.seen()).await, "ended");
    world.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_an_old_view_reads_again_and_any_other_failure_does_not() {
    let resource = find("", "v1", "persistentvolumes").unwrap();
    let not_found = || Action::Refuse(Rejection::not_found(resource, NAME));
    let conflict = || Action::Refuse(Rejection::conflict(resource, NAME));
    let down = || Action::Refuse(Rejection::internal("down"));
    for (answer, end, reads) in [(not_found(), "again", 1), (conflict(), "failed", 1), (down(), "failed", 0)] {
        let world = World::of_permanent_term().await;
        world.answer(answer);
        let seen = world.seen();
        assert_eq!((world.play(Verb::AddFinalizer, &seen).await, world.count("get")), (end, reads));
        world.harness.testbed.tear_down().await;
    }
    // The API has a newer version, and has it no more.
    let world = World::of_permanent_term().await;
    let (seen, held) = (world.seen(), Matching::any().resource("persistentvolumes"));
    world.harness.testbed.api.faults().hold_watches(held);
    world.patch(json!({ "metadata": { "finalizers": ["example.com/other"] } }));
    assert_eq!(world.play(Verb::AddFinalizer, &seen).await, "again");
    assert!(world.seen().metadata.has_finalizer("example.com/other"), "what was read is in the store");
    world.patch(json!({ "metadata": { "finalizers": null } }));
    world.harness.testbed.api.delete::<k8s_openapi::api::core::v1::PersistentVolume>("", NAME).unwrap();
    assert_eq!(world.play(Verb::AddFinalizer, &world.seen()).await, "not found");
    world.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_records_an_answer_of_the_driver_is_tried_a_few_times_unless_the_api_asks_for_a_long_pause() {
    let down = || Rejection::service_unavailable("down");
    for (refusal, records, end, tries) in [
        (down(), false, "failed", 1),
        (down(), true, "failed", 5),
        (Rejection::too_many_requests(60), true, "failed", 1),
        (Rejection::forbidden("", "persistentvolumes", NAME, "no"), true, "failed", 1),
    ] {
        let world = World::of_permanent_term().await;
        let on = Matching::any().verb("patch").resource("persistentvolumes");
        world.harness.testbed.api.faults().add(Fault::on(on, Action::Refuse(refusal)));
        let seen = world.seen();
        assert_eq!((world.try_verb(Verb::AddFinalizer, &seen, records).await, world.count("patch")), (end, tries));
        world.harness.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r52_nothing_is_sent_after_the_term_and_a_call_that_fails_after_it_is_no_failure_of_the_object() {
    let lasts = CsiOptions::default().timeout / 2;
    let world = World::new(|clock| Term::unattended(clock, lasts)).await;
    let hang = DriverFault::on(Method::ControllerUnpublishVolume, DriverAction::Hang);
    world.harness.testbed.driver.inject(hang);
    let seen = world.seen();
    assert_eq!(world.play(Verb::Call, &seen).await, "over");
    assert_eq!(world.harness.testbed.driver.calls_of(Method::ControllerUnpublishVolume).len(), 1);
    assert!(world.scope.term.is_over());
    let before = world.harness.testbed.api.audit().entries().len();
    // What records an answer is tried as long as the Lease is not lost.
    for verb in [Verb::Confirm, Verb::AddFinalizer, Verb::Call] {
        assert_eq!(world.try_verb(verb, &seen, true).await, "over", "{verb:?}");
    }
    assert_eq!(world.harness.testbed.api.audit().entries().len(), before);
    assert_eq!(world.harness.testbed.driver.calls_of(Method::ControllerUnpublishVolume).len(), 1);
    world.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_with_two_verbs_is_an_error_of_its_role() {
    let world = World::of_permanent_term().await;
    let seen = world.seen();
    let played = std::panic::AssertUnwindSafe(tokio::time::timeout(
        Duration::from_secs(5),
        world.play(Verb::CallAndConfirm, &seen),
    ));
    // The attempt panics, so its end is never seen.
    assert!(played.catch_unwind().await.is_ok_and(|end| end.is_err()));
    world.harness.testbed.tear_down().await;
}
