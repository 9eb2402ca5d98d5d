//! Manifests against `sigs.k8s.io/yaml`, the reader of kubectl and of the API server: what ours makes of a text, and what that
//! one makes of a text that we write.

use std::path::Path;

use csi_control_plane::migrate::{Manifest, Wanted, migrate};
use csi_control_plane::process::yaml;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::{count, library};

const SCALARS: &str = include_str!("../../crates/base/src/process/yaml/scalars.jsonl");
const SHAPES: &str = include_str!("../../crates/base/src/process/yaml/shapes.jsonl");

/// The manifest as kubectl reads it.
fn theirs(texts: &[String]) -> Vec<Result<Value, String>> {
    let questions: Vec<Value> = texts.iter().map(|text| json!({ "ask": "yaml", "text": text })).collect();
    let value = |answer: Value| match answer.get("answer") {
        Some(answer) => Ok(answer["value"].clone()),
        None => Err(answer.to_string()),
    };
    library(&questions).into_iter().map(value).collect()
}

fn ours(text: &str) -> Result<Value, String> {
    yaml::read(text).map(|value| serde_json::to_value(value).unwrap()).map_err(|error| error.to_string())
}

/// The same, with numbers by their value: JSON knows no other difference.
fn is_same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let is_in_both = |(key, one): (&String, &Value)| two.get(key).is_some_and(|two| is_same(one, two));
            one.len() == two.len() && one.iter().all(is_in_both)
        }
        _ => one == two,
    }
}

/// Both read all of these texts, as the same.
fn read_alike(texts: &[String]) {
    for (text, theirs) in texts.iter().zip(theirs(texts)) {
        match (ours(text), theirs) {
            (Ok(ours), Ok(theirs)) => assert!(is_same(&ours, &theirs), "{text}\nours: {ours}\ntheirs: {theirs}"),
            (ours, theirs) => panic!("{text}\nours: {ours:?}\ntheirs: {theirs:?}"),
        }
    }
}

fn odd_texts() -> Vec<String> {
    let row = |line: &str| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned();
    SCALARS.lines().map(row).collect()
}

/// A text as a value, in a list and as a key.
fn everywhere(odd: &str) -> Value {
    json!({ "value": odd, "list": [odd, [odd], { "value": odd }], "key": { odd: odd } })
}

fn written(value: &Value) -> String {
    yaml::write(&serde_yaml::to_value(value).unwrap())
}

#[test]
fn the_table_of_scalars_is_what_kubectl_reads() {
    let rows: Vec<Value> = SCALARS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<String> = rows.iter().map(|row| format!("a: {}\n", row["text"].as_str().unwrap())).collect();
    for (row, theirs) in rows.iter().zip(theirs(&texts)) {
        match row.get("plain") {
            Some(plain) => assert!(is_same(plain, &theirs.unwrap()["a"]), "{row}"),
            None if row.get("refused").is_some() => assert!(theirs.is_err(), "{row}: {theirs:?}"),
            None => {}
        }
    }
}

#[test]
fn kubectl_reads_what_we_write() {
    let mut runner = TestRunner::deterministic();
    let some = "[-+0-9_.:eExobTZ]{1,10}|\\PC{0,12}|[ \\n\\t:#'\"\\\\a-]{0,10}";
    let mut texts = odd_texts();
    texts.extend((0..count()).map(|_| some.new_tree(&mut runner).unwrap().current()));
    let values: Vec<Value> = texts.iter().map(|text| everywhere(text)).collect();
    let documents: Vec<String> = values.iter().map(written).collect();
    for ((value, document), theirs) in values.iter().zip(&documents).zip(theirs(&documents)) {
        assert_eq!(theirs.as_ref(), Ok(value), "{document}");
    }
    let lines: Vec<String> = texts
        .iter()
        .flat_map(|text| [format!("a: {} # b\n", yaml::text(text)), format!("a: {}\n", yaml::quoted(text))])
        .collect();
    for (nth, (line, theirs)) in lines.iter().zip(theirs(&lines)).enumerate() {
        assert_eq!(theirs, Ok(json!({ "a": texts[nth / 2] })), "{line}");
    }
}

#[test]
fn merge_keys_and_tags_are_read_alike() {
    let texts = [
        "{a: &a {x: 1, y: 2}, b: {<<: *a, y: 3}}",
        "{a: &a {x: 1, y: 2}, b: {y: 3, <<: *a}}",
        "{a: &a {x: 1, y: 2}, b: {<<: [*a, {x: 4, z: 5}]}}",
        "{a: &a {x: 1}, b: {<<: {x: 2, <<: *a}, z: 3}}",
        "{a: &a {x: 1}, b: {<<: *a, <<: {y: 2}}}",
        "{a: &a {x: {p: 1}}, b: {<<: *a, x: {q: 2}}}",
        "{a: &a {x: 1}, b: {'<<': *a}}",
        "{a: !!str 0400, b: !!int '7', c: !!float 1, d: ! 5, e: !own 6, f: !!str ''}",
        "yes: 1\n0400: 2\n1.5: 3\n'no': 4\n",
        "a: >\n  folded\n  text\nb: |+\n  kept\n\nc: 'it''s'\nd: \"\\x41\\u00e9\"\n",
        "x: &x\n- 1\n- two\ny: *x\nz:\n- <<: {a: 1}\n  b: 2\n",
    ];
    read_alike(&texts.map(str::to_owned));
}

#[test]
fn the_table_of_shapes_is_what_kubectl_reads() {
    let rows: Vec<Value> = SHAPES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<String> = rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect();
    for (row, theirs) in rows.iter().zip(theirs(&texts)) {
        assert!(theirs.as_ref().is_ok_and(|theirs| is_same(&row["value"], theirs)), "{row}: {theirs:?}");
    }
    read_alike(&texts);
}

/// A value in each style, with the lines, blanks, tabs and comments that people and other programs put into it.
fn styled() -> impl Strategy<Value = String> {
    let words = "(one|two|x: y|a#b|- d|\\{z\\}|\\[w\\]|k:v)";
    let line_end = "\n{1,3} {0,6}\t?";
    let continued = |quote: &str, ends: &str| format!("{quote}{words}(({ends}| ){words}){{0,3}}({ends})?{quote}#?");
    let item = "(a|\"b\"|'c d'|k: v|-f|-|\\{e: f\\})";
    let entry = "(a: 1|\"b\": c|'d':  e|f: \\[g\\]|h: )";
    let blank = "( |\n {0,6}\t?|\n# c\n)?";
    let forms = [
        continued("'", line_end),
        continued("\"", &format!("{line_end}|\\\\\n {{0,4}}")),
        "[|>][-+]?( # c|#c)?(\n {6}(one|two: x| # d)|\n {0,6}|\n {8}three){0,4}(\n {4}# c)?".to_owned(),
        format!("\\[{blank}({item}{blank},{blank}){{0,3}}\\]"),
        format!("\\{{{blank}({entry}{blank},{blank}){{0,3}}\\}}"),
        "(one|!!str 1|&x two|\"it\\\\'s\"|1|yes|)(\n {6}three){0,2}( # c)?".to_owned(),
    ];
    proptest::strategy::Union::new(forms.map(|form| proptest::string::string_regex(&form).unwrap()))
}

/// Mappings and lists of such values, with keys that may stand twice.
fn documents() -> impl Strategy<Value = String> {
    let value = || styled();
    let key = "(a|b|\"c\"|d e)";
    let comment = "(\n# c|\n   # c|\n|\n \t)?";
    (key, value(), comment, key, value(), value(), "\n?").prop_map(|(one, first, comment, two, second, third, end)| {
        format!("{one}: {first}{comment}\nlist:\n- {second}\n- x:\n    {two}: {third}\n    last: 1{end}")
    })
}

#[test]
fn what_kubectl_reads_in_whichever_style_is_read_alike() {
    let mut runner = TestRunner::deterministic();
    let texts: Vec<String> = (0..count()).map(|_| documents().new_tree(&mut runner).unwrap().current()).collect();
    let mut taken = 0;
    for (text, theirs) in texts.iter().zip(theirs(&texts)) {
        let Ok(theirs) = theirs else { continue };
        taken += 1;
        let ours = ours(text);
        assert!(ours.as_ref().is_ok_and(|ours| is_same(ours, &theirs)), "{text}\nours: {ours:?}\ntheirs: {theirs}");
    }
    assert!(taken > count() / 4, "the texts are too odd: kubectl takes {taken} of {}", count());
}

/// A manifest that is no YAML before it is rendered.
const TEMPLATE: &str = "not-rendered.yaml";

/// The drivers' own manifests, and everything that a migration makes of them.
#[test]
fn manifests_and_their_migrations_are_read_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if path.ends_with(TEMPLATE) {
            let theirs = theirs(std::slice::from_ref(&text)).remove(0);
            assert!(ours(&text).is_err() && theirs.is_err(), "{TEMPLATE}: {theirs:?}");
            continue;
        }
        let name = path.display().to_string();
        let manifests = vec![Manifest { name, text: text.clone() }];
        let wanted = Wanted {
            manifests,
            driver: Some("demo.csi.example.com".to_owned()),
            lenient: csi_control_plane::migrate::report::Lenient::Everything,
            ..Wanted::default()
        };
        documents.extend(text.split("\n---").map(str::to_owned));
        if let Some(files) = migrate(&wanted).files {
            documents.extend(
                files
                    .named()
                    .into_iter()
                    .flat_map(|(_, text)| text.split("\n---").map(str::to_owned).collect::<Vec<_>>()),
            );
        }
    }
    assert!(documents.len() > 30, "{}", documents.len());
    read_alike(&documents);
}
