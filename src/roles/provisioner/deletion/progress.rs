//! What one attempt at a volume knows beside the caches, and what each event changes. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::PersistentVolume;
use crate::roles::kit::Secret;
use crate::roles::provisioner::parameters::secrets::DeletionSecret;

/// What one attempt knows beside the caches.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct State {
    /// The volume as it was when the attempt began.
    pub first: Arc<PersistentVolume>,
    /// When the attempt began.
    pub begun: Instant,
    /// Whether the attempt may call the driver without another read of the volume.
    pub fresh: bool,
    /// The API no longer has the object.
    pub gone: bool,
    /// The driver has deleted the volume, in this attempt or in an earlier one of this term.
    pub deleted: bool,
    /// This daemon has nothing left to do. Finalizers of others may keep the object for a while.
    pub finished: bool,
    /// The handle that this attempt has locked, with the volume's name.
    pub locked: Option<String>,
    /// The secret for the call, and where the volume placed it when it was read.
    pub secret: Option<(DeletionSecret, Secret)>,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Volumes and attachments were listed.
    Listed,
    /// The journal has no entry for the volume.
    Forgotten,
    /// The volume has our finalizer.
    Protected,
    /// The volume is locked.
    Locked {
        /// The driver's id of the volume.
        handle: String,
        /// Whether the attempt had to wait for it.
        waited: bool,
    },
    /// The object was read before the call to the driver.
    Confirmed {
        /// Whether the API no longer has it.
        gone: bool,
    },
    /// The secret was read, or no secret is needed.
    SecretRead {
        /// Where the volume placed it.
        place: DeletionSecret,
        /// Its values.
        secret: Secret,
        /// Whether that took so long that the volume may be another one by now.
        waited: bool,
    },
    /// The driver has deleted the volume.
    Deleted,
    /// The object was deleted.
    Removed {
        /// Whether no finalizer keeps the object.
        gone: bool,
    },
    /// Our finalizer was removed.
    Released {
        /// Whether it was the last finalizer of an object that is being deleted.
        gone: bool,
    },
    /// A write failed, and the object was read again.
    Refreshed {
        /// Whether the API no longer has it.
        gone: bool,
    },
}

impl State {
    /// The state when an attempt begins. `fresh`: the cache is recent. `deleted`: the driver has deleted the volume
    /// before.
    pub fn new(first: Arc<PersistentVolume>, begun: Instant, fresh: bool, deleted: bool) -> Self {
        Self { first, begun, fresh, gone: false, deleted, finished: false, locked: None, secret: None }
    }

    /// Whether this daemon has finished with volume and object.
    pub fn is_complete(&self) -> bool {
        self.deleted && (self.finished || self.gone)
    }

    /// Changes the state by an event.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Forgotten | Event::Protected => {}
            // After a wait, what the attempt knew may be old.
            Event::Listed => self.fresh = false,
            Event::Locked { handle, waited } => {
                self.locked = Some(handle);
                self.fresh &= !waited;
            }
            Event::Confirmed { gone } => {
                self.fresh = true;
                self.gone = gone;
            }
            Event::SecretRead { place, secret, waited } => {
                self.secret = Some((place, secret));
                self.fresh &= !waited;
            }
            // The volume is unlocked.
            Event::Deleted => {
                self.deleted = true;
                self.locked = None;
            }
            Event::Removed { gone } | Event::Released { gone } => {
                self.finished = true;
                self.gone = gone;
            }
            Event::Refreshed { gone } => self.gone = gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;

    fn state() -> State {
        State::new(Arc::default(), Clock::system().now(), true, false)
    }

    fn after(events: impl IntoIterator<Item = Event>) -> State {
        let mut state = state();
        for event in events {
            state.apply(event);
        }
        state
    }

    fn locked(waited: bool) -> Event {
        Event::Locked { handle: "h".to_owned(), waited }
    }

    fn secret_read(waited: bool) -> Event {
        Event::SecretRead { place: DeletionSecret::None, secret: Secret::default(), waited }
    }

    #[test]
    fn a_wait_makes_what_is_known_old_and_a_read_makes_it_new() {
        assert!(after([locked(false)]).fresh);
        assert!(!after([locked(true)]).fresh);
        assert!(!after([Event::Listed, locked(false)]).fresh);
        assert!(after([locked(false), secret_read(false)]).fresh);
        assert!(!after([locked(false), secret_read(true)]).fresh);
        assert!(!after([locked(true), Event::Refreshed { gone: false }]).fresh, "a read of another purpose");
        assert!(after([locked(true), Event::Confirmed { gone: false }]).fresh);
        assert!(after([Event::Confirmed { gone: true }]).gone);
    }

    #[test]
    fn the_volume_stays_locked_until_the_driver_has_deleted_it() {
        let secret = secret_read(false);
        let before = after([locked(false), secret.clone()]);
        assert_eq!(before.locked.as_deref(), Some("h"));
        assert_eq!(before.secret, Some((DeletionSecret::None, Secret::default())));
        assert_eq!(after([locked(false), secret, Event::Deleted]).locked, None);
    }

    #[test]
    fn a_deletion_is_complete_once_the_driver_and_the_api_have_done_their_part() {
        for (events, expected) in [
            (vec![Event::Deleted], false),
            (vec![Event::Deleted, Event::Refreshed { gone: false }], false),
            (vec![Event::Deleted, Event::Refreshed { gone: true }], true),
            (vec![Event::Deleted, Event::Removed { gone: true }], true),
            (vec![Event::Deleted, Event::Removed { gone: false }], true),
            (vec![Event::Deleted, Event::Released { gone: false }], true),
            (vec![Event::Released { gone: false }], false),
            (vec![Event::Confirmed { gone: true }], false),
            (vec![Event::Protected, Event::Listed], false),
        ] {
            assert_eq!(after(events.clone()).is_complete(), expected, "{events:?}");
        }
    }
}
