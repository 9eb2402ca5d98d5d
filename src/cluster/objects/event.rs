//! Events that were told already: a role that starts reads them once, so that it does not repeat itself. Never cached. Pure.

use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;

use super::{ObjectReference, or_default};
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default")]
    involved_object: ObjectReference,
    #[serde(rename = "type", default, deserialize_with = "or_default")]
    type_: SmolStr,
    #[serde(default, deserialize_with = "or_default")]
    reason: SmolStr,
    #[serde(default, deserialize_with = "or_default")]
    message: String,
    #[serde(default, deserialize_with = "or_default")]
    source: WireSource,
    last_timestamp: Option<Moment>,
}

#[derive(Default, Deserialize)]
struct WireSource {
    #[serde(default, deserialize_with = "or_default")]
    component: String,
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
