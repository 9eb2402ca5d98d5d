//! Parses YAML text to a tree, and also finds duplicate keys, numbers of more than 64 bits, and the line of any key.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// What the text says.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// All of it; of a key that stands twice, the first.
    pub(super) value: Value,
    /// What the value does not show.
    pub(super) unusual: Unusual,
}

/// What a tree of JSON cannot hold, by the paths of its keys.
#[derive(Debug, Default)]
pub(super) struct Unusual {
    /// Keys that stand twice.
    pub(super) duplicates: Vec<Vec<String>>,
    /// Whole numbers of more than 64 bits, with their digits. In the tree they are fractions, which no key for whole numbers takes.
    pub(super) wide: Vec<(Vec<String>, String)>,
}

/// Reads a text. Nothing but comments is null.
pub(super) fn parse(text: &str) -> Result<Tree, serde_yaml::Error> {
    let mut unusual = Unusual::default();
    if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "---") {
        return Ok(Tree::default());
    }
    let reader = Reader { path: Vec::new(), unusual: &mut unusual };
    let value = reader.deserialize(serde_yaml::Deserializer::from_str(text))?;
    Ok(Tree { value, unusual })
}

struct Reader<'a> {
    path: Vec<String>,
    unusual: &'a mut Unusual,
}

impl Reader<'_> {
    fn wide(self, near: f64, digits: String) -> Value {
        self.unusual.wide.push((self.path, digits));
        near.into()
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    #[expect(clippy::cast_precision_loss, reason = "its digits are kept beside the tree")]
    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(self.wide(value as f64, value.to_string()))
    }

    #[expect(clippy::cast_precision_loss, reason = "its digits are kept beside the tree")]
    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(self.wide(value as f64, value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Infinity and NaN have no place in JSON; as text they fail the check for a number, and are shown.
        Ok(Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) =
            items.next_element_seed(Reader { path: self.path.clone(), unusual: &mut *self.unusual })?
        {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let mut path = self.path.clone();
            path.push(key.clone());
            let value = entries.next_value_seed(Reader { path: path.clone(), unusual: &mut *self.unusual })?;
            if map.contains_key(&key) {
                self.unusual.duplicates.push(path);
            } else {
                map.insert(key, value);
            }
        }
        if let Some(merged) = map.remove(MERGE) {
            merge(&mut map, merged);
        }
        Ok(Value::Object(map))
    }
}

/// YAML's key for a mapping, or a list of them, whose keys count where they are not given.
const MERGE: &str = "<<";

fn merge(into: &mut Map<String, Value>, from: Value) {
    match from {
        Value::Object(entries) => {
            for (key, value) in entries {
                into.entry(key).or_insert(value);
            }
        }
        Value::Array(all) if all.iter().all(Value::is_object) => all.into_iter().for_each(|one| merge(into, one)),
        other => drop(into.insert(MERGE.to_owned(), other)),
    }
}

/// The line on which the key at `path` stands for the `nth` time (0: the first), counted from 1.
///
/// The parser knows the position of an error and of nothing else. So the text is read once more by a visitor that walks
/// to the key and fails there.
pub(super) fn locate(text: &str, path: &[String], nth: usize) -> Option<usize> {
    let mut left = nth;
    let error = Walk { path, left: &mut left }.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    if !error.to_string().contains(ARRIVED) {
        return None;
    }
    Some(error.location()?.line())
}

const ARRIVED: &str = "\u{1}arrived";

struct Walk<'a> {
    path: &'a [String],
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((wanted, rest)) = self.path.split_first() else { return Ok(()) };
        while let Some(met) = entries.next_key_seed(Meet { wanted, last: rest.is_empty(), left: &mut *self.left })? {
            if met && !rest.is_empty() {
                entries.next_value_seed(Walk { path: rest, left: &mut *self.left })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Meet<'a> {
    wanted: &'a str,
    last: bool,
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Meet<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Meet<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<bool, E> {
        let met = key == self.wanted;
        if met && self.last {
            if *self.left == 0 {
                return Err(E::custom(ARRIVED));
            }
            *self.left -= 1;
        }
        Ok(met)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn keys_are_located_in_block_and_flow_style() {
        let text = "# a comment\ncsi: { timeout: 1s,\n  endpoint: /x }\nroles:\n\n  attacher:\n    'workers': 5\n  reconciler:\n";
        for (key, line) in [
            ("csi", 2),
            ("csi.timeout", 2),
            ("csi.endpoint", 3),
            ("roles.attacher", 6),
            ("roles.attacher.workers", 7),
            ("roles.reconciler", 8),
        ] {
            assert_eq!(locate(text, &path(key), 0), Some(line), "{key}");
        }
        assert_eq!(locate(text, &path("csi.nothing"), 0), None);
        assert_eq!(locate(text, &path("csi.timeout.deeper"), 0), None);
    }

    #[test]
    fn a_second_occurrence_is_noted_and_located() {
        let text = "csi:\n  timeout: 1s\n  timeout: 2s\n";
        let tree = parse(text).unwrap();
        assert_eq!(tree.value, json!({"csi": {"timeout": "1s"}}));
        assert_eq!(tree.unusual.duplicates, [path("csi.timeout")]);
        assert_eq!(locate(text, &path("csi.timeout"), 1), Some(3));
    }

    #[test]
    fn scalars_keep_the_type_that_yaml_1_2_gives_them() {
        let tree = parse("a: yes\nb: 0644\nc: true\nd: ~\ne: 1.5\nf: .nan\ng: -3\n1: x\n").unwrap();
        assert_eq!(
            tree.value,
            json!({"a": "yes", "b": "0644", "c": true, "d": null, "e": 1.5, "f": "NaN", "g": -3, "1": "x"})
        );
    }

    #[test]
    fn a_merge_key_gives_what_is_not_given_and_is_no_key_itself() {
        let text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [{z: 4}, *a, {x: 5}]}\nd: {<<: 6}\n";
        assert_eq!(
            parse(text).unwrap().value,
            json!({"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2, "z": 4}, "d": {"<<": 6}})
        );
    }

    #[test]
    fn a_text_without_content_is_null() {
        for text in ["", "\n", "# only a comment\n", "---\n# x\n"] {
            assert_eq!(parse(text).unwrap().value, Value::Null, "{text:?}");
        }
    }
}
