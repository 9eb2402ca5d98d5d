//! What of the driver's `CSIDriver` object does not fit a role that is served here.
//!
//! Kubernetes takes from the object, and not from the driver, whether volumes are attached, whether the scheduler reads their capacity
//! and which volumes kubelet mounts. A wrong field stops pods without an error of anyone, so each role says what it expects
//! ([`Wiring::expects`](super::Wiring::expects)), and `app` tells what does not fit. What kubelet alone uses stays unmentioned.

use std::collections::BTreeSet;
use std::fmt;

use crate::cluster::{Cache, CsiDriver, CsiDriverSpec};
use crate::csi::Capabilities;

/// Something that does not fit.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misfit {
    /// Its name in the metric.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is set, what does not fit, and what to do.
    pub text: &'static str,
}

/// How bad a misfit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// All works, but something is done in vain.
    Hint,
    /// Something does not work.
    Fault,
}

impl Severity {
    /// Its name in the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Hint => "hint",
            Self::Fault => "fault",
        }
    }
}

/// Misfits as constants, and `ALL` of them.
macro_rules! misfits {
    ($($(#[$doc:meta])* $id:ident = $severity:ident, $name:literal, $text:literal;)+) => {
        $($(#[$doc])* const $id: $crate::roles::driver_object::Misfit = $crate::roles::driver_object::Misfit {
            id: $name,
            severity: $crate::roles::driver_object::Severity::$severity,
            text: $text,
        };)+
        /// All of them.
        pub(super) const ALL: &[&$crate::roles::driver_object::Misfit] = &[$(&$id),+];
    };
}
pub(crate) use misfits;

/// No object of the driver's name exists.
pub const MISSING: Misfit = Misfit {
    id: "object_missing",
    severity: Severity::Fault,
    text: "the object does not exist: Kubernetes attaches every volume, the scheduler ignores capacity, and kubelet mounts no inline \
           volume. Create it: the driver's manifests have one",
};

/// All that does not fit.
pub type Misfits = BTreeSet<&'static Misfit>;

type Judge = Box<dyn Fn(&CsiDriverSpec, Option<&Capabilities>) -> Vec<&'static Misfit> + Send + Sync>;

/// What a role expects of the object.
pub struct Expectation {
    cache: Cache<CsiDriver>,
    known: &'static [&'static Misfit],
    judge: Judge,
    events: bool,
}

impl Expectation {
    /// `judge` says which of `known` an object has, where the driver can do this; `None`: nobody has asked it.
    pub(super) fn new(
        cache: Cache<CsiDriver>,
        known: &'static [&'static Misfit],
        judge: impl Fn(&CsiDriverSpec, Option<&Capabilities>) -> Vec<&'static Misfit> + Send + Sync + 'static,
        events: bool,
    ) -> Self {
        Self { cache, known, judge: Box::new(judge), events }
    }

    /// The same, told without Events.
    #[must_use]
    pub fn without_events(self) -> Self {
        Self { events: false, ..self }
    }

    /// Whether Events are written.
    pub fn has_events(&self) -> bool {
        self.events
    }

    /// The objects of all drivers.
    pub fn cache(&self) -> &Cache<CsiDriver> {
        &self.cache
    }

    /// All that could be found.
    pub fn known(&self) -> impl Iterator<Item = &'static Misfit> {
        std::iter::once(&MISSING).chain(self.known.iter().copied())
    }

    /// What does not fit.
    pub fn misfits(&self, object: Option<&CsiDriver>, driver: Option<&Capabilities>) -> Misfits {
        match object {
            None => Misfits::from([&MISSING]),
            Some(object) => (self.judge)(&object.spec, driver).into_iter().collect(),
        }
    }
}

impl fmt::Debug for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectation").field("known", &self.known).finish_non_exhaustive()
    }
}
