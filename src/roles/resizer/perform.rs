//! Each step's request or call. It makes no decisions: they come from [`policy`](super::policy).

use std::collections::HashMap;
use std::time::Duration;

use tonic::Code;

use crate::cluster::{Cache, ObjectName, Patch};
use crate::proto::{CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest};
use crate::roles::kit::{self, AttemptError, Io, Part, Secret, Store, Written};

use super::claim::status;
use super::context::Context;
use super::error::{InvalidChange, LOAD_SECRET, Wait, is_infeasible_modification};
use super::expand::policy::waits_after;
use super::job::{Job, WorkKey};
use super::names;
use super::pairing::{self, Meeting, merged};
use super::progress::{Answer, Expanded, Progress, Refused};
use super::report;
use super::step::{Expand, Modify, Offer, Place, Step, Write};
use super::view::View;
use super::waiting::infeasible_text;
use super::writes;

/// Why a step ended the attempt.
pub(super) type Stop = kit::Stop<InvalidChange>;

/// What a step may do.
pub(super) type Verbs<'a> = Io<'a, WorkKey>;

/// What a step works with.
pub(super) type Act<'a, 'io> = kit::Act<'a, 'io, Context, View, Progress, WorkKey>;

/// Between two looks for the other change.
const LOOK: Duration = Duration::from_millis(5);

impl Act<'_, '_> {
    /// Does one step.
    pub(super) async fn perform(&self, step: Step) -> Result<Answer, Stop> {
        let (cx, now, io) = (self.cx, self.seen, self.io);
        match step {
            Step::Settled => Ok(Answer::Nothing),
            Step::Wait(wait) => Err(self.waits(wait).into()),
            Step::ReadSecret(place) => {
                let secret = io.secret(&place).await?;
                Ok(Answer::Secret(secret.map_err(|failure| LOAD_SECRET.failed(failure))?))
            }
            Step::LookUp(class) => self.look_up(class).await,
            Step::Confirm => {
                let read = io.confirm(&cx.stores.claims, now.claim.as_ref()).await?;
                Ok(if read.is_there("claim", &now.name().to_string())? { Answer::Nothing } else { Answer::Gone })
            }
            Step::Expand(wanted) => self.expand(*wanted).await,
            Step::LeaveToNode(size) => Ok(Answer::LeftToNode(size)),
            Step::Modify(wanted) => self.modify(*wanted).await,
            Step::Write(wanted) => self.write(wanted, None).await,
            Step::WriteBoth(wanted, offer) => self.write(wanted, Some(offer)).await,
            Step::Meet(wanted, offer) => Ok(self.meet(wanted, offer).await),
            Step::NodeHasBegun => Ok(Answer::Wrote(Write::LeftToNode { begun: None, retries: None })),
            Step::DropAnswer => Ok(Answer::Dropped),
            Step::Fail(error) => Err(error.into()),
            Step::Refuse(reason) => Err(reason.into()),
        }
    }

    /// Asks the API for a class that the cache lacks.
    async fn look_up(&self, class: String) -> Result<Answer, Stop> {
        let Some(classes) = &self.cx.classes else { return Ok(Answer::Nothing) };
        let (name, reason) = (ObjectName::cluster(&class), InvalidChange::NoClass(class.clone()));
        match self.io.lacks(&Store::of(classes), &name, reason).await {
            Stop::Failed(AttemptError::Reason(InvalidChange::NoClass(_))) => {
                let is_begun = self.seen.begun_name() == Some(&*class);
                Ok(Answer::NoClass(is_begun.then(|| (class, self.cx.scope.clock.now()))))
            }
            stop => Err(stop),
        }
    }

    async fn expand(&self, wanted: Expand) -> Result<Answer, Stop> {
        let (now, size) = (self.seen, wanted.size);
        let request = ControllerExpandVolumeRequest {
            volume_id: wanted.volume_id,
            capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
            secrets: self.secrets(),
            volume_capability: Some(wanted.capability),
        };
        let is_migrated = now.volume.as_ref().is_some_and(|volume| volume.spec.in_tree.is_some());
        let timeout = now.rules.section.resize_timeout;
        let call = self.io.call(async move |driver| {
            driver.for_migrated(is_migrated).with_own_timeout(timeout).controller_expand_volume(request).await
        });
        let answer = match call.await {
            Ok(answer) => answer,
            Err(stop) => return self.refused((size.to_string(), stop), |code| waits_after(now, code)),
        };
        let size_now = match answer.capacity_bytes {
            0 => {
                tracing::info!(
                    volume = now.volume_name(),
                    "the driver's answer has no size: the requested size counts"
                );
                size
            }
            less if less < size => {
                let fault = InvalidChange::TooSmall { asked: size, answered: less };
                return Ok(Answer::Faulty(fault, self.cx.scope.clock.wall()));
            }
            size => size,
        };
        Ok(Answer::Expanded(Expanded { asked: size, size: size_now, needs_node: answer.node_expansion_required }))
    }

    async fn modify(&self, wanted: Modify) -> Result<Answer, Stop> {
        let request = ControllerModifyVolumeRequest {
            volume_id: wanted.volume_id,
            secrets: self.secrets(),
            mutable_parameters: wanted.parameters.into_iter().collect(),
        };
        let timeout = self.seen.rules.section.modify_timeout;
        let call =
            self.io.call(async move |driver| driver.with_own_timeout(timeout).controller_modify_volume(request).await);
        match call.await {
            Ok(_) => Ok(Answer::Modified(wanted.class)),
            Err(stop) => self.refused((wanted.class, stop), is_infeasible_modification),
        }
    }

    /// What the driver's error says of what was asked for.
    fn refused(&self, (asked, stop): (String, Stop), is_infeasible: impl Fn(Code) -> bool) -> Result<Answer, Stop> {
        let now = self.seen;
        let Stop::Failed(AttemptError::Driver(error)) = stop else { return Err(stop) };
        let may_be_in_use = error.code == Code::FailedPrecondition && now.job == Job::Expand;
        let in_use = (may_be_in_use && now.rules.section.in_use_check).then(|| now.name());
        let is_infeasible = is_infeasible(error.code);
        let refused = Refused { asked, error, is_infeasible, is_recorded: false };
        Ok(Answer::Refused { refused, at: self.cx.scope.clock.wall(), in_use })
    }

    /// Writes, and with it what the other change offers.
    async fn write(&self, write: Write, with: Option<Offer>) -> Result<Answer, Stop> {
        let (stores, now, io) = (&self.cx.stores, self.seen, self.io);
        let Some(patch) = writes::patch(now, self.progress, &write) else { return Ok(Answer::Wrote(write)) };
        let patch = match (patch, &with) {
            (Patch::Strategic(patch), Some(offer)) => Patch::Strategic(merged(offer.patch.clone(), patch)),
            (patch, _) => patch,
        };
        let written = match (write.place(), &now.volume) {
            (Place::Claim, _) => io.write(&stores.claims, now.claim.as_ref(), (Part::Status, &patch), write.op()).await,
            (Place::Volume, Some(volume)) => {
                match io.write(&stores.volumes, volume.as_ref(), (Part::Object, &patch), write.op()).await {
                    Ok(Written::NotFound(error)) => Err(error.into()),
                    written => written,
                }
            }
            (Place::Volume, None) => return Ok(Answer::Nothing),
        };
        match written {
            Ok(Written::Kept) => {}
            Ok(Written::Ended | Written::NotFound(_)) => return Ok(Answer::Gone),
            // The driver's error is reported, even if the claim cannot say it.
            Err(Stop::Failed(error)) if write == Write::Refusal => {
                report::log_unrecorded(&self.cx.scope, now, &error);
                return Ok(Answer::Wrote(write));
            }
            Err(stop) => return Err(stop),
        }
        if let Some(reason) = self.not_stored(&write) {
            return Err(reason.into());
        }
        Ok(match with {
            Some(offer) => Answer::WroteBoth(write, offer.place, offer.version),
            None => Answer::Wrote(write),
        })
    }

    /// A server without the feature gate accepts the write and drops the field.
    fn not_stored(&self, write: &Write) -> Option<InvalidChange> {
        let claim = self.cx.stores.claims.get(&self.seen.name())?;
        let status = status(&claim);
        match write {
            Write::BeginExpansion(begin) if begin.allocated.is_some() && status.allocated.is_none() => {
                Some(InvalidChange::NotStored("status.allocatedResources of claims", "RecoverVolumeExpansionFailure"))
            }
            Write::BeginModification(_) | Write::Pending | Write::Foreign(..) if status.modify.is_none() => {
                Some(InvalidChange::NotStored("status.modifyVolumeStatus of claims", "VolumeAttributesClass"))
            }
            _ => None,
        }
    }

    /// Waits until the other change has written what this one offers, or does not come.
    async fn meet(&self, write: Write, offer: Offer) -> Answer {
        let (cx, begun) = (self.cx, self.cx.scope.clock.now());
        while let Some(now) = cx.view(&self.seen.key()) {
            let waited = cx.scope.clock.now().saturating_duration_since(begun);
            match pairing::meeting(&now, &write, &offer, waited) {
                Meeting::Waits => tokio::time::sleep(LOOK).await,
                Meeting::Written => return Answer::Wrote(write),
                Meeting::Outdated => break,
                Meeting::Over => return Answer::NotMet(offer.version),
            }
        }
        Answer::Nothing
    }

    /// Why nothing is done now, in words.
    fn waits(&self, wait: Wait) -> InvalidChange {
        let (cx, now) = (self.cx, self.seen);
        let pods_trouble = |before: &str| {
            cx.in_use.trouble(&now.name()).map(|trouble| format!("{before}{trouble}")).unwrap_or_default()
        };
        let mut warns = matches!(wait, Wait::Pods | Wait::Class(_));
        let says = match &wait {
            Wait::Node => "the node has to expand the file system".to_owned(),
            // The end of the last pod wakes the key. If the daemon cannot watch the pods, the text says so.
            Wait::Pods => report::in_use_text(now) + &pods_trouble("; "),
            Wait::PodList => format!("the pods that may use the volume are not listed yet{}", pods_trouble(": ")),
            Wait::Infeasible(_) => refused_text(now).unwrap_or_else(|| infeasible_text(now.job)).to_owned(),
            Wait::NodeRetry(_) => "the node could not expand the file system".to_owned(),
            Wait::Class(reason) => reason.to_string(),
            Wait::Classes => {
                // The API stores a class's name only if it serves classes.
                cx.classes.iter().for_each(Cache::look_again);
                let classes = cx.classes.as_ref();
                // A kind that is being installed is there in a moment.
                warns = classes.is_some_and(|classes| classes.status().last_error.is_some());
                classes.and_then(Cache::unknown).unwrap_or_else(|| "VolumeAttributesClasses are off".to_owned())
            }
            Wait::Volume | Wait::Driver => String::new(),
        };
        InvalidChange::Waits { wait, says, warns }
    }

    /// The secret for the call.
    fn secrets(&self) -> HashMap<String, String> {
        self.progress.secret.as_ref().map(Secret::texts).unwrap_or_default()
    }
}

/// The driver's words, which the claim keeps for the next leader.
fn refused_text(now: &View) -> Option<&str> {
    let condition = match now.job {
        Job::Expand => names::CONTROLLER_RESIZE_ERROR,
        Job::Modify => names::MODIFY_VOLUME_ERROR,
    };
    let told = now.claim.status.resize.as_ref()?.condition(condition)?;
    Some(&*told.message).filter(|words| !words.is_empty())
}
