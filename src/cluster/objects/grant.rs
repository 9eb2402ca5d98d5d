//! What a namespace allows others to refer to, by the Gateway API's CRD. Listed when needed, never cached. Pure.

use serde::{Deserialize, Deserializer};

use crate::cluster::meta::Meta;

use super::or_default;

/// Objects of one namespace that objects of others may refer to: every `from` may refer to every `to`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReferenceGrant {
    /// The object's metadata; its namespace is that of the objects referred to.
    pub metadata: Meta,
    /// Who may refer.
    pub from: Vec<GrantFrom>,
    /// To what.
    pub to: Vec<GrantTo>,
}

/// Who may refer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GrantFrom {
    /// The kind's API group; empty for the core group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind.
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    /// The namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
}

/// What may be referred to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GrantTo {
    /// The kind's API group; empty for the core group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind.
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    /// One object; unset for all of the kind.
    pub name: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    #[serde(default, deserialize_with = "or_default")]
    from: Vec<GrantFrom>,
    #[serde(default, deserialize_with = "or_default")]
    to: Vec<GrantTo>,
}

impl<'de> Deserialize<'de> for ReferenceGrant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(from)?;
        Ok(Self { metadata, from: spec.from, to: spec.to })
    }
}
