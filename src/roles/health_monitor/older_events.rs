//! What Events have reported before this term (spec C4). A term reads them when it begins, and again until the API server has answered:
//! otherwise the end of what the last leader has reported would never be reported.

use std::time::Duration;

use tracing::warn;

use crate::cluster::ToldEvent;
use crate::election::TermOver;
use crate::process::ErrorChain;

use super::context::Context;
use super::names;

/// How long after a failure Events are read again.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

/// The Events of the health monitors for this driver with one of two reasons.
#[derive(Debug)]
pub(super) struct OlderEvents {
    /// Something is wrong.
    pub(super) wrong: Vec<ToldEvent>,
    /// It has ended.
    pub(super) ended: Vec<ToldEvent>,
}

/// Reads the Events with these reasons. `subject`: what they are about, for people. `None`: they cannot be read now; log and status page
/// say why.
pub(super) async fn read(
    cx: &Context,
    subject: &'static str,
    [wrong, ended]: [&'static str; 2],
) -> Result<Option<OlderEvents>, TermOver> {
    let list = |reason: &'static str| {
        cx.scope.in_task(async move |api| api.find::<ToldEvent>(&format!("reason={reason}")).await)
    };
    let (wrong, ended) = (list(wrong).await?, list(ended).await?);
    let read = wrong.and_then(|wrong| Ok(OlderEvents { wrong, ended: ended? }));
    let error = read.as_ref().err().map(|error| ErrorChain(error).to_string());
    if cx.note_unread(subject, error.as_deref())
        && let Some(error) = error
    {
        warn!(error, "cannot read the Events about {subject}: some may be repeated; trying again");
    }
    let component = names::event_source(&cx.scope.driver_name);
    Ok(read.ok().map(|mut read| {
        read.wrong.retain(|event| event.component == component);
        read.ended.retain(|event| event.component == component);
        read
    }))
}
