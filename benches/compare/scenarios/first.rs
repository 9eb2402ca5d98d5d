//! Volumes that were just provisioned are attached for the first time: by a process that knows of both, a write less.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::burst::{before, tell};
use super::{Bout, PATIENCE, Scenario, Scene, timeline};
use crate::Figures;
use crate::contender::{Contender, Share};
use crate::support;
use crate::workload::Provision;
use crate::workload::Workload;
use crate::workload::attach::ATTACHMENTS;
use crate::write::Placed;

/// So many claims are provisioned, then all of their volumes attached.
pub(crate) struct First {
    pub(crate) count: usize,
    pub(crate) bound: Option<Duration>,
}

impl Scenario for First {
    fn name(&self) -> String {
        format!("first-attach-{}", self.count)
    }

    fn takes(&self, _workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // Whoever does half of it comes to nothing.
        contender.share() != Share::Part && !contender.is_throttled()
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        12.0 + self.count as f64 / 40.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        self.measure(scene).boxed_local()
    }
}

impl First {
    async fn measure(&self, scene: Scene<'_>) -> Figures {
        let (Scene { stage, .. }, count) = (scene, self.count);
        let claims = timeline(stage, &Provision).await;
        let bout = Bout::begin(scene, Duration::ZERO, self.bound).await;
        let mut figures = Figures::new();

        // The first one, so that whatever is done once has been.
        stage.begin_one(&Provision, count).await;
        assert!(claims.until(PATIENCE, |counts| counts.done == 1).await, "it does not provision");
        let (_, volume) = claims.names_done(true).remove(0);
        stage.create(attachment(count, &volume)).await;
        assert!(bout.timeline.until(PATIENCE, |counts| counts.done == 1).await, "it does not attach");
        claims.clear();
        bout.timeline.clear();

        let start = before(&bout).await;
        let wait = claims.within(bout.limit, |counts| counts.done >= count);
        let ((), is_whole) = futures::join!(stage.begin(&Provision, 0..count, |_| ()), wait);
        tell(&bout, "provision", &claims.forth(), count, start, is_whole, &mut figures).await;

        let volumes = claims.names_done(true);
        let start = before(&bout).await;
        let made = volumes.len();
        let wait = bout.timeline.within(bout.limit, |counts| counts.done >= made);
        let attachments = volumes.iter().enumerate().map(|(number, (_, volume))| attachment(number, volume));
        let ((), is_attached) = futures::join!(stage.create_all(attachments), wait);
        tell(&bout, "attach", &bout.timeline.forth(), made, start, is_attached, &mut figures).await;
        figures.insert("peak_rss_bytes".to_owned(), bout.crew.memory().peak);
        bout.end().await;
        figures
    }
}

/// An attachment of a volume that was provisioned.
fn attachment(number: usize, volume: &str) -> Placed {
    let mut object = support::new_attachment(number);
    object["spec"]["source"]["persistentVolumeName"] = volume.into();
    Placed { collection: ATTACHMENTS, object }
}
