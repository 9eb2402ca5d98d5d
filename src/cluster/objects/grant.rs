//! What a namespace allows others to refer to, by the Gateway API's CRD. Listed when needed, never cached. Pure.

use serde::{Deserialize, Deserializer};

use crate::cluster::meta::Meta;

use super::received;

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

received! {
    /// Who may refer.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GrantFrom {
        /// The kind's API group; empty for the core group.
        pub group: String = default,
        /// The kind.
        pub kind: String = default,
        /// The namespace.
        pub namespace: String = default,
    }

    /// What may be referred to.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GrantTo {
        /// The kind's API group; empty for the core group.
        pub group: String = default,
        /// The kind.
        pub kind: String = default,
        /// One object; unset for all of the kind.
        pub name: Option<String>,
    }

    struct Wire {
        metadata: Meta,
        spec: WireSpec = default,
    }

    #[derive(Default)]
    struct WireSpec {
        from: Vec<GrantFrom> = default,
        to: Vec<GrantTo> = default,
    }
}

impl<'de> Deserialize<'de> for ReferenceGrant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(from)?;
        Ok(Self { metadata, from: spec.from, to: spec.to })
    }
}
