//! The steps that refresh one slot: one question to the driver, one look at the API, one write.
//!
//! `GetCapacity` gets the parameters of the class without those that are for the provisioner itself (the Go sidecar sends the
//! names of secrets, too), and no volume capabilities, because nobody knows yet which ones a claim will want. It gets the segment
//! only if there is one, because a driver without topology must not get any.
//!
//! The index is a cache: `perform` puts the answers of the driver and of the API there, so that triggers and the status page see
//! them at once.

use std::sync::Arc;

use thiserror::Error;
use tracing::debug;

use crate::cluster::{Api, ApiErrorKind, CsiStorageCapacity, ObjectName, Patch, StorageClass};
use crate::process::error_chain;
use crate::proto::GetCapacityRequest;
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::report::{self, log_failure};
use crate::roles::kit::{self, Attempt, Next, Op, Reason, Reconciler, TermScope};
use crate::roles::provisioner::class::is_in_tree;
use crate::roles::provisioner::parameters::{self, ParameterError};

use super::context::Shared;
use super::decide::{self, Event, State, Step, View};
use super::desired::Slot;
use super::diff::{Capacity, Write};

const ASK: Op = Op("cannot ask for the capacity");
const WRITE: Op = Op("cannot write the capacity");
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

type AttemptError = kit::AttemptError<CapacityReason>;
type Stop = kit::Stop<CapacityReason>;

/// Refreshes slots.
pub(super) struct Refresher(pub(super) Arc<Shared>);

impl Reconciler for Refresher {
    type Key = Slot;
    type State = State;
    type View = View;
    type Step = Step;
    type Event = Event;
    type End = ();
    type Reason = CapacityReason;

    fn scope(&self) -> &TermScope {
        &self.0.cx.scope
    }

    fn begin(&self, ticket: &Ticket<Slot>) -> Option<State> {
        Some(State { confirms: ticket.causes().contains(Cause::Resync), is_answered: false })
    }

    fn observe(&self, slot: &Slot, _: &State) -> View {
        let (class, objects, writes) = {
            let index = self.0.index();
            (index.desired().wants(slot).cloned(), index.objects(slot), index.writes(slot))
        };
        let cache = &self.0.cx.stores.capacities;
        let unwatched = objects.iter().filter(|object| cache.get(&ObjectName::of(object.as_ref())).is_none());
        View { slot: slot.clone(), class, unwatched: unwatched.cloned().collect(), objects, writes }
    }

    fn next_step(&self, view: &View, state: &State) -> Next<Step, ()> {
        decide::next_step(view, state)
    }

    /// Never: an answer of `GetCapacity` that nobody publishes does no harm.
    fn has_answer(&self, _: &State) -> bool {
        false
    }

    async fn perform(&self, step: Step, view: &View, _: &State, _: &mut Attempt<'_, Slot>) -> Result<Event, Stop> {
        match step {
            Step::Ask(class) => {
                let capacity = self.ask(&view.slot, &class).await?;
                self.0.index().set_capacity(&view.slot, self.scope().clock.now(), capacity);
                Ok(Event::Answered)
            }
            Step::Confirm(objects) => {
                self.confirm(&objects).await?;
                Ok(Event::Confirmed)
            }
            Step::Write(write) => {
                match write {
                    Write::Create(body) => self.create(&body).await?,
                    Write::Update(object, patch) => self.update(&object, &patch).await?,
                    Write::Delete(objects) => self.delete(&objects).await?,
                }
                Ok(Event::Written)
            }
        }
    }

    fn apply(&self, state: &mut State, event: Event) {
        decide::apply(state, event);
    }

    /// Only the API can say what became of the objects: one that the index loses although it exists would get a twin.
    async fn refresh(&self, view: &View, error: &AttemptError) -> Result<Option<Event>, Stop> {
        let cache = &self.0.cx.stores.capacities;
        // After a conflict the same write may succeed: its only precondition is the uid, and a new object gets another name.
        let mut is_worth_it = error.api().is_some_and(|error| error.kind() == ApiErrorKind::Conflict);
        for object in &view.objects {
            let found = read_again(self.api()?, cache, object.as_ref()).await.map_err(|error| READ.failed(error))?;
            if found == Freshness::Gone {
                self.0.index().remove_object(object);
            }
            is_worth_it |= found != Freshness::Same;
        }
        Ok(is_worth_it.then_some(Event::Written))
    }

    async fn conclude(&self, ticket: &Ticket<Slot>, _: State, ended: Result<(), AttemptError>) -> Outcome {
        self.0.counts_changed.notify_one();
        let Err(error) = ended else { return Outcome::Settled };
        log_failure!(
            self.0.failures,
            self.scope().clock.now(),
            &error,
            { attempt = ticket.attempt() + 1, },
            "could not refresh the capacity"
        );
        let message = error.message();
        ticket.note(message.clone());
        self.0.index().set_error(ticket.key(), message);
        error.outcome()
    }
}

impl Refresher {
    fn api(&self) -> Result<&Api, Stop> {
        Ok(self.scope().api.use_now()?)
    }

    async fn ask(&self, slot: &Slot, class: &StorageClass) -> Result<Capacity, Stop> {
        let scope = self.scope();
        let reject = |reason: CapacityReason| Stop::from(AttemptError::from(reason));
        let parameters =
            parameters::for_driver(&class.parameters).map_err(|error| reject(CapacityReason::Parameters(error)))?;
        let request = GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters: parameters.into_iter().collect(),
            accessible_topology: (!slot.segment.is_empty()).then(|| slot.segment.to_proto()),
        };
        let client = scope.driver.use_now()?.for_migrated(is_in_tree(class, &scope.driver_name));
        let call = client.get_capacity(request);
        let answer = scope.term.during(call).await?.map_err(|error| ASK.failed(error))?;
        let sizes = [Some(answer.available_capacity), answer.maximum_volume_size];
        if let Some(negative) = sizes.into_iter().flatten().find(|bytes| *bytes < 0) {
            return Err(reject(CapacityReason::Negative(negative)));
        }
        Ok(Capacity { available: answer.available_capacity, maximum_volume_size: answer.maximum_volume_size })
    }

    /// Another client may have deleted an object before the watch has shown it. Then no watch will say that it is gone.
    async fn confirm(&self, objects: &[Arc<CsiStorageCapacity>]) -> Result<(), Stop> {
        for object in objects {
            let found = self.api()?.get_opt::<CsiStorageCapacity>(&ObjectName::of(object.as_ref())).await;
            let found = found.map_err(|error| READ.failed(error))?;
            if found.is_none_or(|found| found.metadata.uid != object.metadata.uid) {
                self.0.index().remove_object(object);
            }
        }
        Ok(())
    }

    async fn create(&self, body: &serde_json::Value) -> Result<(), Stop> {
        let name = ObjectName::namespaced(self.0.index().namespace(), "");
        let created = self.api()?.create::<CsiStorageCapacity>(&name, body).await;
        let object = created.map_err(|error| WRITE.failed(error))?;
        debug!(object = %object.metadata.name, "created a csistoragecapacity");
        // Before the watch shows it, so that the next attempt does not create a second one.
        self.0.index().set_object(&Arc::new(object));
        Ok(())
    }

    async fn update(&self, object: &CsiStorageCapacity, patch: &Patch) -> Result<(), Stop> {
        let patched = self.api()?.patch::<CsiStorageCapacity>(&ObjectName::of(object), patch).await;
        self.keep(patched.map_err(|error| WRITE.failed(error))?);
        Ok(())
    }

    async fn delete(&self, objects: &[Arc<CsiStorageCapacity>]) -> Result<(), Stop> {
        for object in objects {
            let uid = &object.metadata.uid;
            match self.api()?.delete::<CsiStorageCapacity>(&ObjectName::of(object.as_ref()), uid).await {
                // A finalizer still holds the object. It has a deletion timestamp, and so it does not count any more.
                Ok(Some(terminating)) => self.keep(terminating),
                Ok(None) => self.0.index().remove_object(object),
                Err(error) if error.kind() == ApiErrorKind::NotFound => self.0.index().remove_object(object),
                Err(error) => return Err(WRITE.failed(error).into()),
            }
        }
        Ok(())
    }

    /// Puts the API's answer to a write into the index and into the cache.
    fn keep(&self, object: CsiStorageCapacity) {
        self.0.index().set_object(&Arc::new(object.clone()));
        self.0.cx.stores.capacities.apply_own_write(object);
    }
}
