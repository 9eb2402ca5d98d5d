//! What the rest of the provisioner tells of its deeds, so that capacity is asked for when it has changed.

use tokio::sync::mpsc;

use crate::roles::provisioner::topology::Term;

/// Tells. Clones tell the same; without a listener nothing happens.
#[derive(Debug, Clone)]
pub struct CapacityHints(Option<mpsc::UnboundedSender<Hint>>);

/// Listens.
#[derive(Debug)]
pub struct CapacityHintReceiver(pub(super) mpsc::UnboundedReceiver<Hint>);

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hint {
    /// A class, wherever.
    Class(String),
    /// All classes at these places.
    Places(Vec<Term>),
}

impl CapacityHints {
    /// A teller and its listener.
    pub fn new() -> (Self, CapacityHintReceiver) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(Some(sender)), CapacityHintReceiver(receiver))
    }

    /// Tells nobody: capacity is off.
    pub fn off() -> Self {
        Self(None)
    }

    /// A volume of a class was made, reachable from these places only, if any.
    pub fn provisioned(&self, class: &str, affinity: Option<&[Term]>) {
        self.tell(affinity.map_or_else(|| Hint::Class(class.to_owned()), |places| Hint::Places(places.to_vec())));
    }

    /// A volume of a class could not be made: perhaps there is less room than we said.
    pub fn failed(&self, class: &str) {
        self.tell(Hint::Class(class.to_owned()));
    }

    /// A volume was deleted that was reachable from these places only; without any, from everywhere.
    pub fn deleted(&self, affinity: Option<&[Term]>) {
        self.tell(Hint::Places(affinity.map_or_else(|| vec![Term::default()], <[Term]>::to_vec)));
    }

    fn tell(&self, hint: Hint) {
        if let Some(sender) = &self.0 {
            // Nobody listens once the term is over.
            let _ = sender.send(hint);
        }
    }
}
