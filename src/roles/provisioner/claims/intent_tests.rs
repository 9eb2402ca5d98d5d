use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::roles::provisioner::fixtures::{DRIVER, class};

const UID: &str = "6f1a0c3d-02e4-4a55-9d7b-1c2b3a495867";

fn term(pairs: &[(&str, &str)]) -> Segment {
    Segment::new(pairs.iter().copied())
}

fn zones(names: &[&str], start: usize) -> Requirement {
    let requisite: Vec<Segment> = names.iter().map(|zone| term(&[("zone", zone)])).collect();
    let mut preferred = requisite.clone();
    preferred.rotate_left(start);
    Requirement { requisite, preferred }
}

fn intent(requirement: Option<Requirement>) -> Intent {
    Intent {
        driver: DRIVER.into(),
        name: Some(format!("pvc-{UID}")),
        class: "gold".into(),
        class_uid: "class-1".into(),
        node: Some("n1".into()),
        source: None,
        requirement,
        digest: "0011223344556677".into(),
        doubtful: false,
        unfit: false,
    }
}

/// A class that allows only these zones.
fn allowing(zones: &[&str]) -> StorageClass {
    let expression = json!({"key": "zone", "values": zones});
    class(json!({"allowedTopologies": [{"matchLabelExpressions": [expression]}]}))
}

#[test]
fn an_intent_is_written_as_the_documentation_shows_it() {
    let written = intent(Some(zones(&["z1", "z2"], 1))).encode();
    let expected = concat!(
        r#"{"v":1,"driver":"disk.example.com","name":"pvc-6f1a0c3d-02e4-4a55-9d7b-1c2b3a495867","#,
        r#""class":{"name":"gold","uid":"class-1"},"node":"n1","#,
        r#""keys":["zone"],"terms":[["z1"],["z2"]],"preferred":[1,0],"digest":"0011223344556677"}"#
    );
    assert_eq!(written, expected);
    let short = Intent { node: None, ..intent(None) }.encode();
    assert!(!short.contains("node") && !short.contains("keys") && !short.contains("terms"), "{short}");
    for (source, told) in [
        (ContentSource::Snapshot("snap-1".into()), r#""source":{"snapshot":"snap-1"}"#),
        (ContentSource::Volume("vol-1".into()), r#""source":{"volume":"vol-1"}"#),
    ] {
        let from = Intent { source: Some(source), ..intent(None) };
        assert!(from.encode().contains(told), "{}", from.encode());
        assert_eq!(Intent::parse(&from.encode()), Ok(from));
    }
    let marked = Intent { doubtful: true, unfit: true, ..intent(None) }.encode();
    assert!(marked.ends_with(r#""digest":"0011223344556677","doubtful":true,"unfit":true}"#), "{marked}");
}

#[test]
fn rows_07_and_09_what_was_sent_comes_back_in_its_order() {
    let mixed = Requirement {
        requisite: vec![term(&[("zone", "z1")]), term(&[("rack", "a"), ("zone", "z1")]), term(&[("disk", "ssd")])],
        preferred: vec![term(&[("disk", "ssd")]), term(&[("zone", "z1")])],
    };
    for requirement in [Some(zones(&["c", "a", "b"], 2)), Some(mixed), None] {
        let written = intent(requirement.clone());
        let read = Intent::parse(&written.encode()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.verify(DRIVER, &class(json!({})), true), Ok(requirement));
    }
}

#[test]
fn a_forged_place_is_refused_where_the_class_does_not_allow_it() {
    let class = allowing(&["z1", "z2"]);
    let verify = |requirement| Intent::parse(&intent(requirement).encode()).unwrap().verify(DRIVER, &class, true);
    assert_eq!(verify(Some(zones(&["z1", "z2"], 1))), Ok(Some(zones(&["z1", "z2"], 1))));
    let error = verify(Some(zones(&["z1", "z9"], 0))).unwrap_err();
    assert_eq!(error, IntentError::NotAllowed { place: "zone=z9".into(), class: "gold".into() });
    let wider = Requirement { requisite: vec![term(&[("rack", "a")])], preferred: vec![] };
    assert!(matches!(verify(Some(wider)), Err(IntentError::NotAllowed { .. })), "a place without the key");
    assert_eq!(verify(None), Err(IntentError::Anywhere("gold".into())), "no place is every place");
}

#[test]
fn an_intent_of_another_driver_or_for_a_driver_without_places_says_nothing() {
    let other = Intent { driver: "other".into(), ..intent(None) };
    assert!(matches!(other.verify(DRIVER, &class(json!({})), true), Err(IntentError::Driver { .. })));
    assert_eq!(intent(Some(zones(&["z9"], 0))).verify(DRIVER, &allowing(&["z1"]), false), Ok(None));
    assert_eq!(intent(None).verify(DRIVER, &allowing(&["z1"]), false), Ok(None));
}

fn forged(change: impl FnOnce(&mut Value)) -> Result<Intent, IntentError> {
    let mut value: Value = serde_json::from_str(&intent(Some(zones(&["z1", "z2"], 0))).encode()).unwrap();
    change(&mut value);
    Intent::parse(&value.to_string())
}

#[test]
fn what_we_do_not_write_is_not_read() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 18] = [
        ("a missing value", |v| v["terms"] = json!([[]])),
        ("a value too many", |v| v["terms"] = json!([["z1", "z2"]])),
        ("an empty term", |v| v["terms"] = json!([[null]])),
        ("no terms", |v| v["terms"] = json!([])),
        ("a term twice", |v| v["terms"] = json!([["z1"], ["z1"]])),
        ("a key twice", |v| (v["keys"], v["terms"]) = (json!(["zone", "zone"]), json!([["z1", "z2"]]))),
        ("an empty key", |v| v["keys"] = json!([""])),
        ("an index beyond", |v| v["preferred"] = json!([2])),
        ("an index twice", |v| v["preferred"] = json!([0, 0])),
        ("an index below", |v| v["preferred"] = json!([-1])),
        ("keys without terms", |v| drop(v.as_object_mut().unwrap().remove("terms"))),
        ("terms without order", |v| drop(v.as_object_mut().unwrap().remove("preferred"))),
        ("no digest", |v| drop(v.as_object_mut().unwrap().remove("digest"))),
        ("no driver", |v| drop(v.as_object_mut().unwrap().remove("driver"))),
        ("another member", |v| v["secret"] = json!({"name": "a"})),
        ("a number for a value", |v| v["terms"] = json!([[1]])),
        ("no class", |v| v["class"] = json!("gold")),
        ("no version", |v| drop(v.as_object_mut().unwrap().remove("v"))),
    ];
    for (what, change) in changes {
        assert!(matches!(forged(change), Err(IntentError::Malformed(_))), "{what}");
    }
    assert_eq!(forged(|v| *v = json!({"v": 2, "shape": "any"})), Err(IntentError::Version(2)));
    for text in ["", "null", "[]", "{", "\"\"", "{\"v\":1}"] {
        assert!(matches!(Intent::parse(text), Err(IntentError::Malformed(_))), "{text}");
    }
    let long = " ".repeat(MOST_BYTES + 1);
    assert_eq!(Intent::parse(&long), Err(IntentError::TooLong(MOST_BYTES + 1)));
}

#[test]
fn too_many_places_are_cut_to_the_most_preferred_and_what_is_sent_is_what_is_kept() {
    let names: Vec<String> = (0..20_000).map(|at| format!("node-{at:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = zones(&names, 19_990);
    let cut = fit(all.clone(), 1_000);
    assert!(cut.requisite.len() > 1_000 && cut.requisite.len() < all.requisite.len(), "{}", cut.requisite.len());
    assert_eq!(cut.preferred, all.preferred[..cut.preferred.len()], "the first preferred ones");
    assert_eq!(cut.requisite.len(), cut.preferred.len());
    assert!(cut.requisite.windows(2).all(|pair| pair[0] < pair[1]), "in the order that they had");
    let written = intent(Some(cut.clone())).encode();
    assert!(written.len() <= MOST_BYTES, "{}", written.len());
    assert_eq!(Intent::parse(&written).unwrap().requirement, Some(cut.clone()));
    assert_eq!(fit(cut.clone(), 1_000), cut, "cut once, it stays");
    let unordered = fit(Requirement { preferred: vec![], ..all }, 1_000);
    assert!(!unordered.requisite.is_empty() && unordered.preferred.is_empty());
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    let place = proptest::collection::btree_map("[a-c]", "[x-z\"é]{0,2}", 1..4);
    (proptest::collection::btree_set(place, 1..6), any::<usize>(), any::<usize>()).prop_map(|(places, start, kept)| {
        let requisite: Vec<Segment> = places.into_iter().map(Segment::new).collect();
        let mut preferred = requisite.clone();
        preferred.rotate_left(start % requisite.len());
        preferred.truncate(kept % (requisite.len() + 1));
        Requirement { requisite, preferred }
    })
}

proptest! {
    #[test]
    fn any_intent_reads_back(
        requirement in proptest::option::of(any_requirement()), node in proptest::option::of("\\PC{0,8}"), name in "\\PC{0,8}",
        doubtful in any::<bool>(), unfit in any::<bool>(),
    ) {
        let requirement = requirement.map(|one| fit(one, 0));
        let written = Intent { node, class: name, doubtful, unfit, ..intent(requirement) };
        prop_assert_eq!(Intent::parse(&written.encode()), Ok(written));
    }

    /// Whatever stands in the annotation: what comes out is allowed by the class, or nothing does.
    #[test]
    fn no_annotation_gets_past_the_class(requirement in any_requirement(), text in "\\PC{0,40}") {
        let class = class(json!({"allowedTopologies": [
            {"matchLabelExpressions": [{"key": "a", "values": ["x", "y"]}]},
            {"matchLabelExpressions": [{"key": "b", "values": ["z"]}, {"key": "c", "values": ["z"]}]},
        ]}));
        if let Ok(Some(taken)) = intent(Some(requirement)).verify(DRIVER, &class, true) {
            let both = taken.requisite.iter().chain(&taken.preferred);
            for place in both {
                let one = matches!(place.get("a"), Some("x" | "y"));
                let other = place.get("b") == Some("z") && place.get("c") == Some("z");
                prop_assert!(one || other, "{}", place);
            }
        }
        let _ = Intent::parse(&text);
    }

    #[test]
    fn whatever_fits_is_within_its_room(requirement in any_requirement(), others in 0_usize..MOST_BYTES + 10) {
        let cut = fit(requirement.clone(), others);
        prop_assert!(cut.requisite.iter().all(|term| requirement.requisite.contains(term)));
        prop_assert!(cut.requisite.len() == 1 || written(&cut) + others <= MOST_BYTES);
        prop_assert!(!cut.requisite.is_empty(), "no place would mean every place");
    }
}

#[test]
fn a_name_is_believed_only_if_it_is_made_of_the_claims_own_uid() {
    let named = |name: &str| Intent { name: Some(name.to_owned()), ..intent(None) }.name_rule(UID);
    let rule = |prefix: &str, uuid_length| Some(NameRule { prefix: prefix.to_owned(), uuid_length });
    let stripped = UID.replace('-', "");
    assert_eq!(named(&format!("pvc-{UID}")), rule("pvc", None));
    assert_eq!(named(&format!("my-cluster-{UID}")), rule("my-cluster", None));
    for length in [8, 20, 32] {
        assert_eq!(named(&format!("vol-{}", &stripped[..length])), rule("vol", Some(length)));
    }
    let other = "0a0b0c0d-02e4-4a55-9d7b-1c2b3a495867";
    let strangers = [
        format!("pvc-{other}"),
        format!("pvc-{}", &stripped[..7]),
        format!("pvc-{}", &stripped[1..20]),
        format!("pvc-{stripped}0"),
        UID.to_owned(),
        format!("-{UID}"),
        format!("PVC-{UID}"),
        format!("pvc{UID}"),
        format!("{}-{UID}", "a".repeat(253)),
        format!("pvc-{UID}-1"),
        "production-database".to_owned(),
        String::new(),
    ];
    for name in strangers {
        assert_eq!(named(&name), None, "{name}");
    }
    assert_eq!(intent(None).name_rule(""), None);
    assert_eq!(Intent { name: None, ..intent(None) }.name_rule(UID), None, "of a version that wrote none");
}
