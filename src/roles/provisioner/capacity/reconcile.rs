//! The reconciler of slots. The policy is [`policy`](super::policy).
//!
//! `GetCapacity` gets the parameters of the class without those that are for the provisioner itself (the Go sidecar sends the
//! names of secrets, too), and no volume capabilities, because it is not known yet which ones a claim will want. It gets the segment
//! only if there is one, because a driver without topology must not get any.

use std::sync::Arc;

use thiserror::Error;
use tracing::debug;

use crate::cluster::{ApiErrorKind, CsiStorageCapacity, ObjectName, StorageClass};
use crate::process::error_chain;
use crate::proto::GetCapacityRequest;
use crate::queue::Cause;
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::{self, log_failure};
use crate::roles::kit::{self, AttemptError, End, Io, Op, Part, Reason, Reconcile, Run, Start, Telling, Written};
use crate::roles::provisioner::class::is_in_tree;
use crate::roles::provisioner::parameters::{self, ParameterError};
use crate::roles::provisioner::{metrics, names};

use super::context::Shared;
use super::desired::Slot;
use super::diff::{Capacity, Write};
use super::policy::{Step, View, next_step};
use super::progress::{Answer, Memory, Object, Progress};

/// Asks the driver.
const ASK: Op = Op("cannot ask for the capacity");
/// Creates, patches or deletes an object.
const WRITE: Op = Op("cannot write the capacity");
/// Reads an object that the watch has not shown.
const READ: Op = Op("cannot read the object of the capacity");

/// Why the driver's capacity cannot be published, beside failed requests.
#[derive(Debug, Error)]
pub(super) enum CapacityReason {
    /// The driver is not asked.
    #[error("the class's parameters cannot be used")]
    Parameters(#[source] ParameterError),
    /// The driver's answer makes no sense.
    #[error("the driver answers a capacity of {0} bytes")]
    Negative(i64),
}

impl Reason for CapacityReason {
    fn label(&self) -> &'static str {
        match self {
            Self::Parameters(_) => "InvalidParameters",
            Self::Negative(_) => "NegativeCapacity",
        }
    }

    fn gist(&self) -> String {
        report::gist(&error_chain(self))
    }
}

/// How often a write that conflicts with another one is tried again at once. Its only precondition is the uid, and a new object gets
/// another name each time.
const MAX_CONFLICTS: u32 = 3;

/// Why a step ended the attempt.
type Stop = kit::Stop<CapacityReason>;

/// What a step may do.
type Verbs<'a> = Io<'a, Slot>;

/// The reconciler of the queue of slots.
pub(super) struct Slots(pub(super) Arc<Shared>);

impl Reconcile for Slots {
    type Key = Slot;
    type View = View;
    type Memory = Memory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = CapacityReason;

    fn memory(&self) -> &kit::Memory<Memory> {
        &self.0.memory
    }

    fn is_there(&self, slot: &Slot, _: &str) -> bool {
        self.0.is_there(slot)
    }

    fn view(&self, slot: &Slot) -> Option<View> {
        Some(self.0.view(slot))
    }

    fn uid(view: &View) -> &str {
        &view.id
    }

    fn begin(_: &View, start: Start) -> Progress {
        Progress { confirms: start.causes.contains(Cause::Resync), ..Progress::default() }
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    async fn perform(&self, step: Step, view: &View, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        let capacities = &self.0.capacities;
        match step {
            Step::Ask(class) => {
                let capacity = self.ask(&view.slot, &class, io).await?;
                Ok(Answer::Capacity(self.0.cx.scope.clock.now(), capacity))
            }
            // Another client may have deleted it before the watch has shown it. Then no watch will say that it is gone.
            Step::Confirm(object) => {
                let found = io.get::<CsiStorageCapacity, _>(&ObjectName::of(object.as_ref()), READ).await?;
                let found = found.filter(|found| found.metadata.uid == object.metadata.uid);
                Ok(found.map_or(Answer::Gone(object), |found| Answer::There(Arc::new(found))))
            }
            Step::Write(Write::Create(body)) => {
                let name = ObjectName::namespaced(&view.template.namespace, "");
                let created = io.create::<CsiStorageCapacity, _>(&name, &body, WRITE).await;
                let created = created.inspect(|it| debug!(object = %it.metadata.name, "created a csistoragecapacity"));
                again(created.map(|created| Answer::There(Arc::new(created))), progress)
            }
            Step::Write(Write::Update(object, patch)) => {
                let written = io.write(capacities, object.as_ref(), (Part::Object, &patch), WRITE).await;
                again(written.map(|written| answer(&written, object, view)), progress)
            }
            // A finalizer may still hold the object. It has a deletion timestamp then, and so it does not count any more.
            Step::Write(Write::Delete(object)) => {
                let written = io.delete(capacities, object.as_ref(), WRITE).await?;
                Ok(answer(&written, object, view))
            }
        }
    }

    fn tell_step(view: &View, _: &Progress, answer: &Answer) -> Vec<Telling> {
        let (Answer::Capacity(at, _), Some((before, _))) = (answer, &view.memory.capacity) else { return Vec::new() };
        let driver = view.template.labels.get(names::LABEL_DRIVER_NAME).cloned().unwrap_or_default();
        let age = at.saturating_duration_since(*before);
        vec![Telling::Took(&metrics::CAPACITY_REPLACED_AGE, vec![("driver_name", driver)], age)]
    }

    fn apply(memory: &mut Memory, progress: &mut Progress, answer: Answer) {
        memory.apply(progress, answer);
    }

    fn ended(memory: &mut Memory, _: &mut Progress, end: &End<'_, CapacityReason>) {
        if let End::Failed(error) = end {
            // The last answer stays, and so does the object.
            memory.error = Some(error.message());
        }
    }

    fn tell(_: &View, _: &Progress, end: &End<'_, CapacityReason>, run: &Run<'_>) -> Vec<Telling> {
        if let End::Failed(error) = end {
            log_failure!(run, error, {}, "could not refresh the capacity");
        }
        Vec::new()
    }
}

impl Slots {
    async fn ask(&self, slot: &Slot, class: &StorageClass, io: &Verbs<'_>) -> Result<Capacity, Stop> {
        let parameters = parameters::for_driver(&class.parameters).map_err(CapacityReason::Parameters)?;
        let request = GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters: parameters.into_iter().collect(),
            accessible_topology: (!slot.segment.is_empty()).then(|| slot.segment.to_proto()),
        };
        let is_migrated = is_in_tree(class, &self.0.cx.scope.driver_name);
        let call = io.call(async move |driver| driver.for_migrated(is_migrated).get_capacity(request).await);
        let answer = call.await.map_err(|stop| match stop {
            Stop::Failed(AttemptError::Driver(error)) => ASK.failed(error).into(),
            stop => stop,
        })?;
        let sizes = [Some(answer.available_capacity), answer.maximum_volume_size];
        if let Some(negative) = sizes.into_iter().flatten().find(|bytes| *bytes < 0) {
            return Err(CapacityReason::Negative(negative).into());
        }
        Ok(Capacity { available: answer.available_capacity, maximum_volume_size: answer.maximum_volume_size })
    }
}

/// What a write has brought.
fn answer(written: &Written, object: Object, view: &View) -> Answer {
    match written {
        Written::Kept if view.memory.unwatched(&view.shown).any(|unwatched| *unwatched == object) => Answer::Unseen,
        Written::Kept => Answer::Written,
        Written::Ended | Written::NotFound(_) => Answer::Gone(object),
    }
}

/// After a conflict the same write may succeed.
fn again(written: Result<Answer, Stop>, progress: &Progress) -> Result<Answer, Stop> {
    let is_conflict = |error: &AttemptError<_>| error.api().is_some_and(|it| it.kind() == ApiErrorKind::Conflict);
    match written {
        Err(Stop::Failed(error)) if is_conflict(&error) && progress.conflicts < MAX_CONFLICTS => Ok(Answer::Conflict),
        written => written,
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "cuts_tests.rs"]
mod cuts_tests;
