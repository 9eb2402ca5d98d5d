//! How members of objects are read: which of them may be missing, and what null means. Pure.

use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;

/// Types that are read from what the API sends, under the API's names of their members. A member may be missing or null if its type is
/// an `Option`, or if `= default` stands behind it. No other may.
macro_rules! received {
    ($($(#[$about:meta])* $vis:vis struct $name:ident $(<$lifetime:lifetime>)? {
        $($(#[$about_member:meta])* $member_vis:vis $member:ident: $type:ty $(= $default:ident)?,)*
    })*) => { $(
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        $(#[$about])*
        $vis struct $name $(<$lifetime>)? {
            $(
                $(#[$about_member])*
                $(#[serde($default, deserialize_with = "crate::cluster::objects::members::or_default")])?
                $member_vis $member: $type,
            )*
        }
    )* };
}

pub(super) use received;

/// A member that may be missing or null. Go writes an empty list that has no `omitempty` as null: the `CSINode` of a node
/// without drivers says `drivers: null`, and one such node must not stop the cache of them all.
pub(super) fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A name that is unset when empty.
pub(super) fn unless_empty<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de> + AsRef<str>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(from).map(|text| text.filter(|text| !text.as_ref().is_empty()))
}

/// A quantity as it is written. A server sends text; a number would be understood by it too, so it is here.
pub(super) fn quantity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SmolStr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Text(SmolStr),
        Number(serde_json::Number),
    }
    Ok(Option::<Wire>::deserialize(from)?.map(|wire| match wire {
        Wire::Text(text) => text,
        Wire::Number(number) => number.to_string().into(),
    }))
}
