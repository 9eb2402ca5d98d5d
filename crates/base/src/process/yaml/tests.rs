use serde_json::{Value as Json, json};
use serde_yaml::{Mapping, Value};

use super::{Unreadable, is_plain, quoted, read, read_document, text, write};

/// Odd texts. `plain` is what kubectl's reader makes of one that stands without quotes behind a key, `refused` that it makes
/// nothing of it. `just translation` asks that reader for each of them again, and for what we write.
const SCALARS: &str = include_str!("scalars.jsonl");

/// Texts of several lines, with what kubectl's reader makes of them.
const SHAPES: &str = include_str!("shapes.jsonl");

fn scalars() -> Vec<Json> {
    SCALARS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn as_json(value: &Value) -> Json {
    serde_json::to_value(value).unwrap()
}

fn is_same(one: &Json, two: &Json) -> bool {
    one == two || one.as_f64().is_some_and(|number| Some(number) == two.as_f64())
}

/// One document in which a text stands wherever it can.
fn everywhere(odd: &str) -> Value {
    let odd = Value::from(odd);
    let pair: Mapping = [("value".into(), odd.clone()), (odd.clone(), "key".into())].into_iter().collect();
    let list = Value::Sequence(vec![odd.clone(), Value::Sequence(vec![odd.clone()]), pair.clone().into()]);
    let below: Mapping = [("list".into(), list), ("pair".into(), pair.into())].into_iter().collect();
    Value::Mapping([("spec".into(), below.into()), ("text".into(), odd)].into_iter().collect())
}

#[test]
fn a_plain_scalar_is_what_kubectl_takes_it_for() {
    assert!(scalars().len() >= 250);
    for row in scalars() {
        let odd = row["text"].as_str().unwrap();
        let ours = read(&format!("a: {odd}\n")).map(|value| as_json(&value["a"]));
        if let Some(plain) = row.get("plain") {
            assert!(ours.as_ref().is_ok_and(|ours| is_same(ours, plain)), "{odd:?}: {ours:?}, kubectl: {plain}");
        } else if row.get("refused").is_some() {
            assert!(ours.is_err(), "{odd:?}: {ours:?}, kubectl refuses it");
        }
    }
}

#[test]
fn what_is_written_is_read_as_the_same_by_every_reader() {
    for row in scalars() {
        let odd = row["text"].as_str().unwrap();
        let value = everywhere(odd);
        let written = write(&value);
        assert_eq!(read(&written).as_ref(), Ok(&value), "{written}");
        assert_eq!(serde_yaml::from_str::<Value>(&written).unwrap(), value, "YAML 1.2: {written}");
        for one in [text(odd).into_owned(), quoted(odd)] {
            assert!(!one.contains('\n'), "{one}");
            let line = format!("a: {one} # why\n");
            assert_eq!(read(&line).unwrap()["a"], odd, "{line}");
            assert_eq!(serde_yaml::from_str::<Value>(&line).unwrap()["a"], odd, "YAML 1.2: {line}");
        }
    }
}

#[test]
fn only_a_text_that_is_one_for_kubectl_goes_without_quotes() {
    for row in scalars() {
        let odd = row["text"].as_str().unwrap();
        assert!(!is_plain(odd) || row["plain"] == odd, "{odd:?}");
    }
    for word in
        ["attacher", "--v=5", "$(ADDRESS)", "/csi/csi.sock", "10m", "1Gi", "a.b/c-d_e", "csi-control-plane:demo.csi"]
    {
        assert!(is_plain(word), "{word}");
    }
}

#[test]
fn values_that_are_no_texts_keep_their_kind() {
    let value = read("{a: 0400, b: yes, c: ~, d: 1.5, e: -3, f: [], g: {}, h: [[], {}], i: 1e300}").unwrap();
    let expected = json!({
        "a": 256, "b": true, "c": null, "d": 1.5, "e": -3, "f": [], "g": {}, "h": [[], {}], "i": 1e300,
    });
    assert_eq!(as_json(&value), expected);
    assert_eq!(as_json(&read(&write(&value)).unwrap()), expected);
    assert_eq!(write(&Value::Null), "null\n");
    assert_eq!(write(&Mapping::new().into()), "{}\n");
}

#[test]
fn keys_are_texts_as_in_json() {
    let value = read("yes: 1\n0400: 2\n1.5: 3\n'no': 4\n").unwrap();
    assert_eq!(as_json(&value), json!({"true": 1, "256": 2, "1.5": 3, "no": 4}));
    for odd in ["[a]: 1", "{a: b}: 1", "~: 1"] {
        assert!(read(odd).is_err(), "{odd}");
    }
}

#[test]
fn tags_are_obeyed() {
    let value = read("{a: !!str 0400, b: !!int '7', c: !!float 1, d: ! 5, e: !own 6, f: !!str}").unwrap();
    assert_eq!(as_json(&value), json!({"a": "0400", "b": 7, "c": 1, "d": "5", "e": "6", "f": ""}));
    for odd in ["!!int a", "!!bool 1", "!!null a", "a: .inf", "a: .nan"] {
        assert!(read(odd).is_err(), "{odd}");
    }
}

/// A merge key brings what stands above it anew and what stands below not: so go.yaml.in/yaml/v2 does it, unlike YAML's own text.
#[test]
fn merge_keys_are_expanded_as_kubectl_does() {
    for (text, expected) in [
        ("{a: &a {x: 1, w: 2}, b: {<<: *a, w: 3}}", json!({"x": 1, "w": 3})),
        ("{a: &a {x: 1, w: 2}, b: {w: 3, <<: *a}}", json!({"x": 1, "w": 2})),
        ("{a: &a {x: 1, w: 2}, b: {<<: [*a, {x: 4, z: 5}]}}", json!({"x": 1, "w": 2, "z": 5})),
        ("{a: &a {x: 1}, b: {<<: {x: 2, <<: *a}, z: 3}}", json!({"x": 1, "z": 3})),
        ("{a: &a {x: 1}, b: {<<: *a, <<: {w: 2}}}", json!({"x": 1, "w": 2})),
        ("{a: &a {x: {p: 1}}, b: {<<: *a, x: {q: 2}}}", json!({"x": {"q": 2}})),
        ("{a: &a {x: 1}, b: {'<<': *a}}", json!({"<<": {"x": 1}})),
        ("{a: &a [1, 2], b: *a}", json!([1, 2])),
        ("{a: &a x, b: {*a : 1}}", json!({"x": 1})),
    ] {
        assert_eq!(as_json(&read(text).unwrap()["b"]), expected, "{text}");
    }
    for odd in
        ["{<<: 1}", "{<<: [1]}", "{a: &a [1], b: {<<: *a}}", "{a: &a [{x: 1}], b: {<<: *a}}", "a: &a {b: *a}", "a: *b"]
    {
        assert!(read(odd).is_err(), "{odd}");
    }
}

#[test]
fn faults_name_their_line() {
    for (odd, line) in [("a: 1\nb: [\n", 2), ("a: 1\nb: .inf\n", 2), ("a: 1\nb: *c\n", 2), ("a: 'x'#c\nb: .inf\n", 2)] {
        assert_eq!(read(odd).unwrap_err().line, line, "{odd:?}");
    }
}

/// kubectl sends the last one, and says nothing.
#[test]
fn of_a_key_that_stands_twice_the_last_counts_and_is_told() {
    for (text, value, repeated) in [
        ("a: 1\nc: 1\na: 2\n", json!({"a": 2, "c": 1}), vec![(3, "a")]),
        ("a: {b: 1, b: {c: 1, c: 2}}\n", json!({"a": {"b": {"c": 2}}}), vec![(1, "c"), (1, "b")]),
        ("1: a\n'1': b\n", json!({"1": "b"}), vec![(2, "1")]),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}\n", json!({"a": {"b": 1}, "c": {"b": 2}}), vec![]),
    ] {
        let document = read_document(text).unwrap();
        assert_eq!(as_json(&document.value), value, "{text}");
        let told: Vec<_> = document.repeated.iter().map(|(line, key)| (*line, key.as_str())).collect();
        assert_eq!(told, repeated, "{text}");
    }
}

/// Public manifests, and what else kubectl's reader takes. `just translation` asks that reader for each of them.
#[test]
fn shapes_that_kubectl_reads_are_read() {
    for row in SHAPES.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()) {
        let text = row["text"].as_str().unwrap();
        let ours = read(text).map(|value| as_json(&value));
        assert!(
            ours.as_ref().is_ok_and(|ours| is_same(ours, &row["value"])),
            "{text:?}: {ours:?}, kubectl: {}",
            row["value"]
        );
    }
    for (lines, text) in [(99, "a:\n#\n- b\n"), (5000, "#\na: 1\n"), (200, "a: [\n#\nb]\n"), (200, "a:\n- b\n#\n- c\n")]
    {
        let long = text.replace("#\n", &"# a comment\n".repeat(lines));
        assert_eq!(read(&long), read(&text.replace("#\n", "")), "{text:?}");
    }
}

/// What that reader refuses is refused, although a new spelling would do.
#[test]
fn what_kubectl_refuses_is_refused() {
    for text in [
        "a:\n\tb: 1\n",
        "a: {\n\tb: 1\n}\nc:\n\td: 1\n",
        "a: \"\\q\"\n",
        "a: \"\\'\n",
        "a: [b\n",
        "a: 'b\n---\nc'\n",
        "a: b: c\n",
        "a: {{ .b }}\n",
        "a: @b\n",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
    let endless = "- 'a'#b\n".repeat(1001);
    assert!(read(&endless).unwrap_err().text.contains("1000 places"));
}

#[test]
fn a_tab_in_an_indentation_is_told_with_its_place() {
    for (odd, line, column) in [("a:\n\tb: 1\n", 2, 1), ("a:\n  b: 1\n\tc: 1\n", 3, 1)] {
        let text = format!("a tab in the indentation, at column {column}: YAML takes spaces only");
        assert_eq!(read(odd), Err(Unreadable { line, text }), "{odd:?}");
    }
    let text = read("tab: 1\nb: |\n  x\n  \ty\ntab: .inf\n").unwrap_err().text;
    assert!(text.contains("JSON does not have"), "{text}");
}

/// Each line doubles the one above: thirty lines would be a billion values.
#[test]
fn aliases_that_grow_without_end_are_refused() {
    let lines = (1..40).map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}, *a{0}]\n", at - 1));
    let bomb: String = std::iter::once("a0: &a0 [1]\n".to_owned()).chain(lines).collect();
    assert!(read(&bomb).unwrap_err().text.contains("aliases"));
}

#[test]
fn a_text_of_several_lines_is_written_as_such() {
    let value = read("{a: \"x\\ny\\n\", b: [\"x\\n\\n y\"], c: {d: \"#!/bin/sh\\n\\techo\\n\"}}").unwrap();
    assert_eq!(write(&value), "a: |\n  x\n  y\nb:\n- |-\n  x\n\n   y\nc:\n  d: \"#!/bin/sh\\n\\techo\\n\"\n");
    assert_eq!(read(&write(&value)), Ok(value));
}

proptest::proptest! {
    #[test]
    fn any_text_survives(odd in "\\PC{0,12}|[-+0-9_.:eExobTZ ]{1,12}|[ \\n\\t:#'\"\\\\a-]{0,10}") {
        let value = everywhere(&odd);
        proptest::prop_assert_eq!(read(&write(&value)), Ok(value.clone()));
        proptest::prop_assert_eq!(serde_yaml::from_str::<Value>(&write(&value)).unwrap(), value);
    }
}
