//! Access modes as the journal stores them: by their names in CSI. Pure.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

use crate::proto::volume_capability::access_mode::Mode;

pub(super) fn serialize<S: Serializer>(modes: &[Mode], to: S) -> Result<S::Ok, S::Error> {
    modes.iter().map(Mode::as_str_name).collect::<Vec<_>>().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Mode>, D::Error> {
    let named = |name: &String| {
        Mode::from_str_name(name).ok_or_else(|| D::Error::custom(format!("unknown access mode {name}")))
    };
    Vec::<String>::deserialize(from)?.iter().map(named).collect()
}
