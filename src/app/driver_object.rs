//! Tells what of the driver's `CSIDriver` object does not fit the roles that are served here: on the status page, in the log, in a
//! metric, and in Events on the object. A role speaks only during its terms, so that of several replicas the leader alone does.
//!
//! A watch follows the object: people edit it, delete it and create it again. Without the right to read it, only the missing right is
//! reported, by the watch itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::cluster::{CsiDriver, EventKind, EventTarget, ObjectName};
use crate::diagnostics::Fact;
use crate::election::Term;
use crate::roles::{Expectation, Misfit, Misfits, RoleContext, Severity};
use crate::telemetry::{Meter, names};

/// The reason of the Events.
const REASON: &str = "CSIDriverMisfit";
/// The pause between a change of the object and the next look at it. To change an immutable field, people delete the object and create it
/// again: the pause skips the moment without an object.
const SETTLE: Duration = Duration::from_secs(2);

/// Tells what the served roles have found. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct DriverObject {
    driver: Arc<str>,
    meter: Meter,
    found: Found,
}

/// What each served role has found.
#[derive(Debug, Clone, Default)]
struct Found(Arc<Mutex<BTreeMap<&'static str, Misfits>>>);

impl Found {
    /// The faults of all roles, as text for people.
    fn faults(&self, driver: &str) -> Vec<String> {
        let faults = all(&self.0.lock()).into_iter().filter(|misfit| misfit.severity == Severity::Fault);
        faults.map(|misfit| format!("CSIDriver {driver}: {}.", misfit.text)).collect()
    }

    /// The hints of a role, as facts about it.
    fn hints(&self, role: &str) -> Vec<Fact> {
        let found = self.0.lock();
        let hints = found.get(role).into_iter().flatten().filter(|misfit| misfit.severity == Severity::Hint);
        hints.map(|misfit| Fact::new("CSIDriver object", misfit.text)).collect()
    }
}

fn all(found: &BTreeMap<&'static str, Misfits>) -> Misfits {
    found.values().flatten().copied().collect()
}

/// The misfits of one object that have their Events.
#[derive(Debug, Default)]
struct Told {
    uid: Option<String>,
    misfits: Misfits,
}

impl Told {
    /// The misfits that have no Event yet on the object with this uid.
    fn fresh(&self, uid: Option<&str>, misfits: &Misfits) -> Misfits {
        if uid == self.uid.as_deref() { misfits - &self.misfits } else { misfits.clone() }
    }
}

impl DriverObject {
    /// Shows faults on the board.
    pub(super) fn on(context: &RoleContext) -> Self {
        let RoleContext { driver, board, meter, .. } = context;
        let (driver, found): (Arc<str>, _) = (driver.name.as_str().into(), Found::default());
        let (of, shown) = (Arc::clone(&driver), found.clone());
        board.notices(move || shown.faults(&of)).forever();
        Self { driver, meter: meter.clone(), found }
    }

    /// Tells what does not fit a role, until this is dropped.
    pub(super) async fn tell(
        &self,
        role: &'static str,
        expectation: &Expectation,
        context: &RoleContext,
        term: &Term,
    ) -> ! {
        let _until_dropped = Telling { of: self, role, expectation };
        let found = self.found.clone();
        let _facts = context.board.facts(role, move || found.hints(role));
        let objects = expectation.cache();
        let news = Arc::new(Notify::new());
        let bell = Arc::clone(&news);
        let _subscription = objects.subscribe(move |_| bell.notify_one());
        objects.synced().await;
        let (name, mut told) = (ObjectName::cluster(&*self.driver), Told::default());
        loop {
            let object = objects.get(&name);
            let misfits = expectation.misfits(object.as_deref(), Some(&context.driver.capabilities));
            let (before, now) = self.set(role, expectation, misfits.clone());
            self.log(&before, &now);
            let uid = object.as_ref().map(|object| object.metadata.uid.to_string());
            if let Some(object) = object.filter(|_| expectation.has_events()) {
                for misfit in told.fresh(uid.as_deref(), &misfits) {
                    event(context, &object, misfit, term);
                }
            }
            told = Told { uid, misfits };
            news.notified().await;
            sleep(SETTLE).await;
        }
    }

    fn log(&self, before: &Misfits, now: &Misfits) {
        let driver = &*self.driver;
        for Misfit { id, severity, text } in now - before {
            match severity {
                Severity::Fault => warn!(driver, misfit = id, "the CSIDriver object does not fit: {text}"),
                Severity::Hint => info!(driver, misfit = id, "the CSIDriver object costs something: {text}"),
            }
        }
        for Misfit { id, .. } in before - now {
            info!(driver, misfit = id, "the CSIDriver object fits again");
        }
    }

    /// Replaces what a role has found, and counts it. Returns what all roles had found before, and what they have now: another role may
    /// have found the same.
    fn set(&self, role: &'static str, expectation: &Expectation, misfits: Misfits) -> (Misfits, Misfits) {
        // Two roles do not count at once.
        let mut found = self.found.0.lock();
        let before = all(&found);
        found.insert(role, misfits);
        let now = all(&found);
        for misfit in expectation.known() {
            let labels = [("driver_name", &*self.driver), ("misfit", misfit.id), ("severity", misfit.severity.label())];
            let is_found = now.contains(misfit);
            self.meter.gauge(&names::DRIVER_OBJECT_MISFIT, &labels).set(f64::from(u8::from(is_found)));
        }
        (before, now)
    }
}

/// A role that is served. Once it is no longer, it says nothing.
struct Telling<'a> {
    of: &'a DriverObject,
    role: &'static str,
    expectation: &'a Expectation,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.of.set(self.role, self.expectation, Misfits::new());
    }
}

fn event(context: &RoleContext, object: &CsiDriver, misfit: &Misfit, term: &Term) {
    let kind = match misfit.severity {
        Severity::Fault => EventKind::Warning,
        Severity::Hint => EventKind::Normal,
    };
    context.events.record_standing(&EventTarget::of(object), kind, REASON, misfit.text, term.permit());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::plan;
    use crate::cluster::Caches;
    use crate::roles::driver_object::MISSING;

    #[test]
    fn each_misfit_has_its_row_in_the_documentation_and_fits_an_event() {
        let sections = ["attacher", "provisioner"].map(|role| (role, serde_json::json!({}))).into();
        let roles = plan::load(&sections, &Caches::new()).unwrap();
        let known: Misfits =
            roles.iter().filter_map(|role| role.active.expectation.as_ref()).flat_map(Expectation::known).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/messages.md");
        let text = std::fs::read_to_string(path).unwrap();
        let chapter = text.split_once("\n## The CSIDriver object\n").unwrap().1.split_once("\n## ").unwrap().0;
        let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let found: BTreeMap<&str, &str> =
            rows.map(|(id, rest)| (id, rest.split_once(" |").unwrap_or_default().0)).collect();
        let expected: BTreeMap<&str, &str> = known.iter().map(|misfit| (misfit.id, misfit.severity.label())).collect();
        assert_eq!(found, expected, "docs/messages.md, and the roles");
        // The limit of the text of an Event.
        assert!(known.iter().all(|misfit| misfit.text.len() < 1024 && !misfit.text.ends_with('.')));
    }

    #[test]
    fn each_misfit_of_an_object_is_told_once_and_again_after_it_was_mended_or_the_object_made_anew() {
        const OTHER: Misfit = Misfit { id: "other", severity: Severity::Hint, text: "" };
        let (none, one, both) = (Misfits::new(), Misfits::from([&OTHER]), Misfits::from([&OTHER, &MISSING]));
        let told =
            |uid: Option<&str>, misfits: &Misfits| Told { uid: uid.map(str::to_owned), misfits: misfits.clone() };
        for (told, uid, now, expected) in [
            (Told::default(), Some("a"), &both, &both),
            (told(Some("a"), &one), Some("a"), &one, &none),
            (told(Some("a"), &one), Some("a"), &both, &Misfits::from([&MISSING])),
            (told(Some("a"), &both), Some("a"), &none, &none),
            (told(Some("a"), &none), Some("a"), &one, &one),
            (told(Some("a"), &one), Some("b"), &one, &one),
            (told(None, &Misfits::from([&MISSING])), Some("b"), &one, &one),
        ] {
            assert_eq!(told.fresh(uid, now), *expected, "{told:?} {uid:?} {now:?}");
        }
    }
}
