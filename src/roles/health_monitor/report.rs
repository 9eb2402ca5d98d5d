//! What is reported of a volume: Events on its claims, metrics, log lines. Pure, but for the log.

use tracing::info;

use crate::cluster::{EventKind, EventTarget};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{End, NoReason, Run, Telling};

use super::view::{Answer, News, View, What};
use super::{metrics, names};

/// What is reported as soon as it is known.
pub(super) fn tell_step(view: &View, answer: &Answer) -> Vec<Telling> {
    let Answer::Reported(news, _) = answer else { return Vec::new() };
    news.iter().flat_map(|news| tell_news(view, news)).collect()
}

fn tell_news(view: &View, News { claim, what }: &News) -> Vec<Telling> {
    let Some(claim) = view.claims.iter().find(|it| *it.metadata.uid == **claim) else { return Vec::new() };
    let on = EventTarget::of(claim.as_ref());
    let event = |kind, reason: &'static str, note: String| Telling::Event { on, kind, reason: reason.into(), note };
    match what {
        What::Abnormal(text) => {
            info!(volume = view.handle, claim = %claim.metadata.name, text, "the volume is not healthy");
            vec![event(EventKind::Warning, names::ABNORMAL, text.clone()), Telling::Did("reported", None)]
        }
        What::Normal => {
            let note = "The Volume returns to the healthy state".to_owned();
            vec![event(EventKind::Normal, names::NORMAL, note), Telling::Did("reported", None)]
        }
        What::Unknown(kinds) => {
            let listed = kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let note =
                format!("The CSI driver reported volume health conditions of a type unknown to this monitor: {listed}");
            let count = |kind: &i32| Telling::Count(&metrics::UNKNOWN_CONDITIONS, vec![("status", kind.to_string())]);
            let event = event(EventKind::Warning, names::UNKNOWN, note);
            std::iter::once(event).chain(kinds.iter().map(count)).collect()
        }
        What::Missing => {
            let note = format!("the CSI driver does not know the volume {:?}", view.handle);
            vec![event(EventKind::Warning, names::NOT_FOUND, note)]
        }
    }
}

/// What is reported of the end of an attempt.
pub(super) fn tell(first: &View, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
    if let End::Failed(error) = end {
        log_failure!(run, error, { volume = first.handle, }, "cannot find out the health of the volume");
    }
    Vec::new()
}
