//! Events that were told already: a role that starts reads them once, so that it does not repeat itself. Never cached. Pure.

use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;

use super::{ObjectReference, received};
use crate::cluster::meta::Meta;
use crate::cluster::moment::Moment;

/// An Event on the server (node-and-health spec C4).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToldEvent {
    /// The object's metadata.
    pub metadata: Meta,
    /// What it is about.
    pub about: ObjectReference,
    /// `Normal` or `Warning`.
    pub type_: SmolStr,
    /// What it is, in one word.
    pub reason: SmolStr,
    /// What it is, for people.
    pub message: String,
    /// Who told it.
    pub component: String,
    /// When it was told last.
    pub last: Option<Moment>,
}

received! {
    struct Wire {
        metadata: Meta,
        involved_object: ObjectReference = default,
        #[serde(rename = "type")]
        type_: SmolStr = default,
        reason: SmolStr = default,
        message: String = default,
        source: WireSource = default,
        last_timestamp: Option<Moment>,
    }

    #[derive(Default)]
    struct WireSource {
        component: String = default,
    }
}

impl<'de> Deserialize<'de> for ToldEvent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(from)?;
        Ok(Self {
            metadata: wire.metadata,
            about: wire.involved_object,
            type_: wire.type_,
            reason: wire.reason,
            message: wire.message,
            component: wire.source.component,
            last: wire.last_timestamp,
        })
    }
}
