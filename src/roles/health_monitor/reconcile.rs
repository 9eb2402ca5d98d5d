//! The reconciler of volumes, each with one request or call for each step. The policy is [`policy`](super::policy).

use std::collections::HashMap;
use std::sync::Arc;

use tonic::Code;

use crate::cluster::ObjectName;
use crate::csi::Client;
use crate::proto::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse,
};
use crate::queue::Outcome;
use crate::roles::kit::drive::Next;
use crate::roles::kit::{
    AttemptError, End, Io, Memory, NoReason, Op, Part, Reconcile, Run, Start, Stop, Telling, Written,
};

use super::condition::Condition;
use super::context::Context;
use super::policy::{Step, Write, next_step};
use super::report;
use super::source::{Question, Source};
use super::view::{self, Answer, Found, News, Progress, View};

/// Writes what is wrong with a volume.
const WRITE: Op = Op("cannot write the health of the volume into the status of its claim");

/// The reconciler of the queue of volumes. A key is the driver's id of a volume, because one answer is for all claims of it (H24).
#[derive(Debug)]
pub(super) struct Volumes(pub(super) Arc<Context>);

impl Reconcile for Volumes {
    type Key = String;
    type View = View;
    type Memory = view::Memory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<view::Memory> {
        &self.0.memory
    }

    fn view(&self, handle: &String) -> Option<View> {
        self.0.view(handle)
    }

    fn is_there(&self, handle: &String, _: &str) -> bool {
        !self.0.volumes(handle).is_empty()
    }

    fn uid(view: &View) -> &str {
        &view.handle
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    async fn perform(
        &self,
        step: Step,
        view: &View,
        progress: &Progress,
        io: &Io<'_, String>,
    ) -> Result<Answer, Stop<NoReason>> {
        match step {
            Step::UseListed(listed) => Ok(Answer::Listed(listed)),
            Step::Ask(question) => {
                let found = self.ask(view, question, io).await?;
                Ok(Answer::Found(found, self.0.scope.clock.now()))
            }
            Step::Write(write) => self.write(view, write, io).await,
            Step::Report(news) => Ok(self.report(view, progress, news)),
        }
    }

    fn tell_step(view: &View, _: &Progress, answer: &Answer) -> Vec<Telling> {
        report::tell_step(view, answer)
    }

    fn apply(memory: &mut view::Memory, progress: &mut Progress, answer: Answer) {
        memory.apply(progress, answer);
    }

    fn tell(first: &View, _: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, end, run)
    }

    fn retry(_: &View, _: &Progress, error: &AttemptError<NoReason>) -> Outcome {
        // A driver that is down has no use for ten thousand questions every ten seconds.
        if error.driver().is_some() { Outcome::Retry { cap: None } } else { error.outcome() }
    }
}

impl Volumes {
    async fn ask(&self, view: &View, question: Question, io: &Io<'_, String>) -> Result<Found, Stop<NoReason>> {
        let (source, begun) = (Source::Get(question), self.0.scope.clock.now());
        let (volume_id, is_migrated) = (view.handle.clone(), view.is_migrated);
        let answer = match question {
            Question::Health => {
                let request = ControllerGetVolumeHealthRequest { volume_id, secrets: HashMap::new() };
                let call = async move |driver: Client| {
                    driver.for_migrated(is_migrated).controller_get_volume_health(request).await
                };
                io.call(call).await.map(|answer| of_health(&view.handle, answer))
            }
            Question::Condition => {
                let request = ControllerGetVolumeRequest { volume_id };
                let call =
                    async move |driver: Client| driver.for_migrated(is_migrated).controller_get_volume(request).await;
                io.call(call).await.map(of_volume)
            }
        };
        match answer {
            Ok(found) => {
                self.0.probed(source, begun, if found == Found::Nothing { "NoAnswer" } else { "OK" }, None);
                Ok(found)
            }
            Err(Stop::Failed(AttemptError::Driver(error))) => {
                // A driver that does not know a volume has answered.
                let is_answer = matches!(error.code, Code::NotFound | Code::Unimplemented);
                self.0.probed(source, begun, error.label(), (!is_answer).then(|| error.to_string()));
                match error.code {
                    Code::NotFound => Ok(Found::Missing),
                    Code::Unimplemented => {
                        self.0.deny(source);
                        Ok(Found::Nothing)
                    }
                    _ => Err(error.into()),
                }
            }
            Err(stop) => Err(stop),
        }
    }

    async fn write(&self, view: &View, write: Write, io: &Io<'_, String>) -> Result<Answer, Stop<NoReason>> {
        let Some(claim) = view.claims.iter().find(|claim| *claim.metadata.uid == *write.claim) else {
            return Ok(Answer::Wrote(write.claim));
        };
        let patch = write.patch(claim);
        let written = io.write(&self.0.claims, claim.as_ref(), (Part::Status, &patch), WRITE).await?;
        if matches!(written, Written::Kept) && !write.conditions.is_empty() {
            self.0.wrote(claim);
        }
        Ok(Answer::Wrote(write.claim))
    }

    fn report(&self, view: &View, progress: &Progress, news: Vec<News>) -> Answer {
        if let Some(Found::Condition(condition)) = &progress.found {
            for claim in &view.claims {
                self.0.gauges.show(&ObjectName::of(claim.as_ref()), condition.abnormal());
            }
        }
        Answer::Reported(news, view.at)
    }
}

/// What an answer of CSI 1.13 says of this volume.
fn of_health(handle: &str, answer: ControllerGetVolumeHealthResponse) -> Found {
    let own = answer.volume_health.filter(|health| health.volume_id.is_empty() || health.volume_id == handle);
    own.map_or(Found::Nothing, |health| Found::Condition(Condition::of_health(&health)))
}

/// What an answer of a driver before says.
fn of_volume(answer: ControllerGetVolumeResponse) -> Found {
    let condition = answer.status.and_then(|status| status.volume_condition);
    condition.map_or(Found::Nothing, |condition| Found::Condition(Condition::of_condition(&condition)))
}
