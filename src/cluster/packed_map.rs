//! A small map of texts that is created once and read often. It needs two allocations for any number of entries. Pure.
//!
//! A `BTreeMap<String, String>` of one entry takes half a kilobyte, and every volume has several such maps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map of texts by key, in the order of keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedMap {
    /// Key, value, key, value …
    all: Box<str>,
    /// Where each of them ends.
    ends: Box<[u32]>,
}

impl PackedMap {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(held, value)| (held == key).then_some(value))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Key and value of each entry, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut from = 0;
        self.ends.chunks_exact(2).map(move |ends| {
            let (middle, end) = (ends[0] as usize, ends[1] as usize);
            let entry = (&self.all[from..middle], &self.all[middle..end]);
            from = end;
            entry
        })
    }

    /// The keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// Drops the entries whose key is not wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        if self.keys().any(|key| !wanted(key)) {
            *self = Self::packed(self.iter().filter(|(key, _)| wanted(key)));
        }
    }

    /// As a map that can be changed.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Packs entries that are in the order of their keys, each key once.
    fn packed<'a>(entries: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Self {
        let sizes = entries.clone().map(|(key, value)| key.len() + value.len());
        let (count, size) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
        let (mut all, mut ends) = (String::with_capacity(size), Vec::with_capacity(2 * count));
        for (key, value) in entries {
            for text in [key, value] {
                all.push_str(text);
                // API objects are far smaller than 4 GiB.
                ends.push(u32::try_from(all.len()).unwrap_or(u32::MAX));
            }
        }
        Self { all: all.into(), ends: ends.into() }
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for PackedMap {
    /// Of several entries with one key the last counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        // Stable: those of one key stay in their order.
        entries.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let is_last = |at: usize| entries.get(at + 1).is_none_or(|(next, _)| next.as_ref() != entries[at].0.as_ref());
        let kept = (0..entries.len()).filter(|at| is_last(*at)).map(|at| &entries[at]);
        Self::packed(kept.map(|(key, value)| (key.as_ref(), value.as_ref())))
    }
}

impl From<&BTreeMap<String, String>> for PackedMap {
    fn from(map: &BTreeMap<String, String>) -> Self {
        Self::packed(map.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}

impl PartialEq<BTreeMap<String, String>> for PackedMap {
    fn eq(&self, map: &BTreeMap<String, String>) -> bool {
        self.iter().eq(map.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}

impl fmt::Debug for PackedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for PackedMap {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

/// A text that is borrowed from the input if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for PackedMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = PackedMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PackedMap, A::Error> {
                let mut entries: Vec<(Text<'de>, Text<'de>)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries.into_iter().map(|(key, value)| (key.0, value.0)).collect())
            }
        }
        from.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_wanted_entries_are_kept_and_an_empty_map_stays_one() {
        let mut texts: PackedMap = serde_json::from_value(json!({ "b": "2", "a": "1", "ü": "" })).unwrap();
        texts.retain(|key| key != "a");
        assert_eq!(texts.iter().collect::<Vec<_>>(), [("b", "2"), ("ü", "")]);
        texts.retain(|_| false);
        assert!(texts.is_empty() && texts == PackedMap::default());
        assert!(serde_json::from_value::<PackedMap>(json!({ "a": 1 })).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn it_is_the_map_that_it_was_made_of(entries in prop::collection::vec((".{0,4}", ".{0,9}"), 0..6)) {
            let map: BTreeMap<String, String> = entries.iter().cloned().collect();
            let texts: PackedMap = entries.into_iter().collect();
            prop_assert_eq!(&texts, &PackedMap::from(&map));
            prop_assert!(texts == map && texts.to_map() == map && texts.len() == map.len());
            for (key, value) in &map {
                prop_assert_eq!(texts.get(key), Some(value.as_str()));
            }
            let wire = serde_json::to_value(&texts).unwrap();
            prop_assert_eq!(&wire, &serde_json::to_value(&map).unwrap());
            prop_assert_eq!(serde_json::from_value::<PackedMap>(wire).unwrap(), texts);
        }
    }
}
