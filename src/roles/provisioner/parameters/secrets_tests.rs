use super::*;
use proptest::prelude::*;

use crate::cluster::{Meta, SmolStr, VolumeSpec};
use crate::roles::provisioner::fixtures::DRIVER;

/// The results of Go 1.26's `os.Expand` for each, with every name in angle brackets.
#[rustfmt::skip]
const GO: &[(&str, &str)] = &[
    ("", ""),
    ("plain", "plain"),
    ("$a", "<a>"),
    ("${a}", "<a>"),
    ("$a$b", "<a><b>"),
    ("${a}${b}", "<a><b>"),
    ("x$a.y", "x<a>.y"),
    ("x${pv.name}y", "x<pv.name>y"),
    ("$", "$"),
    ("a$", "a$"),
    ("$$", "<$>"),
    ("$$a", "<$>a"),
    ("${}", ""),
    ("a${}b", "ab"),
    ("${", ""),
    ("a${b", "ab"),
    ("${$}", "<$>"),
    ("${*}", "<*>"),
    ("${*a}", "<*a>"),
    ("$*", "<*>"),
    ("$1", "<1>"),
    ("$12", "<1>2"),
    ("${1}", "<1>"),
    ("${12}", "<12>"),
    ("$-x", "<->x"),
    ("$ ", "$ "),
    ("$.", "$."),
    ("$é", "$é"),
    ("é$aé", "é<a>é"),
    ("${é}", "<é>"),
    ("${a b}", "<a b>"),
    ("${pvc.annotations['x/y']}", "<pvc.annotations['x/y']>"),
    ("$pv.name", "<pv>.name"),
    ("${a}}", "<a>}"),
    ("{$a}", "{<a>}"),
    ("${{a}}", "<{a>}"),
    ("$_a", "<_a>"),
    ("$a_b-c", "<a_b>-c"),
    ("${a$b}", "<a$b>"),
    ("$a}", "<a>}"),
    ("a$%b", "a$%b"),
    ("${-}", "<->"),
    ("${?}x", "<?>x"),
    ("${!x}", "<!x>"),
    ("$\0", "$\0"),
    ("$@", "<@>"),
    ("${#}", "<#>"),
    ("$#a", "<#>a"),
    ("${.", "."),
    ("b$*{", "b<*>{"),
    ("*$_bbb{", "*<_bbb>{"),
    ("}.1a", "}.1a"),
    ("11$$_", "11<$>_"),
    ("}a{--é", "}a{--é"),
    (".{a1_", ".{a1_"),
    ("éa$.1}a", "éa$.1}a"),
    ("{{.*-$", "{{.*-$"),
    ("a_}$_", "a_}<_>"),
    ("{_a", "{_a"),
    ("$bb-.a{", "<bb>-.a{"),
    ("_$_$", "_<_>$"),
    ("a._é}1-", "a._é}1-"),
    ("-$11{", "-<1>1{"),
    (".1*{*é", ".1*{*é"),
    ("-1*éa", "-1*éa"),
    ("1a1", "1a1"),
    ("-{a-}", "-{a-}"),
    ("*éb11", "*éb11"),
    (".1é", ".1é"),
    (".a-1é_$$", ".a-1é_<$>"),
    ("-}aéa", "-}aéa"),
    ("{a1{é$", "{a1{é$"),
    ("a_*", "a_*"),
    (".é1-aa", ".é1-aa"),
    ("$__", "<__>"),
    ("..$", "..$"),
    ("aba", "aba"),
    ("b.$", "b.$"),
    ("éb1.", "éb1."),
    ("*a$.$}*", "*a$.$}*"),
    ("$a$bb1", "<a><bb1>"),
    ("éa$11", "éa<1>1"),
    ("__{1", "__{1"),
    ("_b_1-.é", "_b_1-.é"),
    ("._{_}{a}", "._{_}{a}"),
    (".b-.", ".b-."),
    ("1${-aéa", "1-aéa"),
    ("_aa1a--", "_aa1a--"),
    ("1{_a_", "1{_a_"),
    ("{a}1$-1", "{a}1<->1"),
    ("11.-b", "11.-b"),
    ("}$-é.}", "}<->é.}"),
    ("a*1_", "a*1_"),
    ("-a*}*é", "-a*}*é"),
    ("*{-*bé", "*{-*bé"),
    ("{{_é", "{{_é"),
    ("--1éa", "--1éa"),
    ("}é{$_", "}é{<_>"),
    ("$$_", "<$>_"),
    ("{*-{}b", "{*-{}b"),
    ("-}-.-", "-}-.-"),
    ("é$b_", "é<b_>"),
    ("1$bé{b{*", "1<b>é{b{*"),
    ("1{b._", "1{b._"),
    ("*}a1-", "*}a1-"),
    ("-a$1", "-a<1>"),
    ("*bé.", "*bé."),
    (".$1$", ".<1>$"),
];

#[test]
fn templates_expand_as_go_expands_them() {
    for (template, expected) in GO {
        let mut names = Vec::new();
        // The first pass collects the names, because a value must outlive the call.
        expand(template, |name| {
            names.push(format!("<{name}>"));
            ""
        });
        let mut values = names.iter();
        assert_eq!(expand(template, |_| values.next().unwrap()), *expected, "{template:?}");
    }
}

proptest! {
    #[test]
    fn no_template_makes_it_panic_and_one_without_a_dollar_is_itself(text in "[${}ab_.é*1'-]{0,24}|\\PC{0,24}") {
        let expanded = expand(&text, |_| "");
        prop_assert!(expanded.len() <= text.len());
        if !text.contains('$') {
            prop_assert_eq!(expanded, text);
        }
    }

    #[test]
    fn braces_name_anything_but_a_brace(name in "[^{}$]{2,20}", around in "[^$]{0,5}") {
        let template = format!("{around}${{{name}}}{around}");
        let mut seen = String::new();
        let expanded = expand(&template, |token| { seen = token.to_owned(); "VALUE" });
        prop_assert_eq!(expanded, format!("{around}VALUE{around}"));
        prop_assert_eq!(seen, name);
    }

    #[test]
    fn what_a_claim_says_never_chooses_the_namespace(name in "[a-z.-]{1,20}", annotation in "[a-z.-]{1,20}") {
        let annotations = PackedMap::from_iter([("k", annotation)]);
        let owner = SecretOwner { volume: "pv", namespace: "ns", claim: &name, annotations: Some(&annotations) };
        for namespace in ["${pvc.name}", "${pvc.annotations['k']}", "x${pvc.name}"] {
            let parameters = class("n", namespace);
            let error = resolve(&parameters, SecretUse::Provisioner, owner).unwrap_err();
            let is_refused = matches!(error, SecretError::UnknownTokens { field: "namespace", .. });
            prop_assert!(is_refused, "{}", error);
        }
    }
}

fn class(name: &str, namespace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("csi.storage.k8s.io/provisioner-secret-name".to_owned(), name.to_owned()),
        ("csi.storage.k8s.io/provisioner-secret-namespace".to_owned(), namespace.to_owned()),
    ])
}

fn at(namespace: &str, name: &str) -> SecretReference {
    SecretReference { name: name.to_owned(), namespace: namespace.to_owned() }
}

fn of_claim(name: &str, namespace: &str) -> Result<Option<SecretReference>, SecretError> {
    let annotations = [("team", "blue"), ("x/y", "slash"), ("bad", "Not Valid"), ("empty", "")];
    let annotations = annotations.into_iter().collect();
    let owner = SecretOwner { volume: "pvc-1", namespace: "shop", claim: "data", annotations: Some(&annotations) };
    resolve(&class(name, namespace), SecretUse::Provisioner, owner)
}

#[test]
fn templates_are_filled_from_the_claim_and_the_volume() {
    for (name, namespace, expected) in [
        ("fixed", "fixed-ns", at("fixed-ns", "fixed")),
        ("${pvc.name}", "${pvc.namespace}", at("shop", "data")),
        ("${pv.name}", "${pv.name}", at("pvc-1", "pvc-1")),
        ("${pvc.namespace}-${pvc.name}.${pv.name}", "a-${pvc.namespace}", at("a-shop", "shop-data.pvc-1")),
        ("${pvc.annotations['team']}", "ns", at("ns", "blue")),
        ("s-${pvc.annotations['x/y']}-${pvc.annotations['team']}", "ns", at("ns", "s-slash-blue")),
        // As Go treats malformed text.
        ("a${}b", "ns", at("ns", "ab")),
        ("a${b", "ns", at("ns", "ab")),
    ] {
        assert_eq!(of_claim(name, namespace), Ok(Some(expected)), "{namespace}/{name}");
    }
}

#[test]
fn row_19_annotations_may_name_the_provisioners_secret_and_every_other() {
    for secret in SecretUse::ALL {
        let parameters = BTreeMap::from([
            ("csi.storage.k8s.io/secret-name".to_owned(), "${pvc.annotations['a']}".to_owned()),
            ("csi.storage.k8s.io/secret-namespace".to_owned(), "ns".to_owned()),
        ]);
        let annotations = PackedMap::from_iter([("a", "value")]);
        let owner = SecretOwner { volume: "pv", namespace: "shop", claim: "data", annotations: Some(&annotations) };
        assert_eq!(resolve(&parameters, secret, owner), Ok(Some(at("ns", "value"))));
    }
}

#[test]
fn unknown_tokens_are_all_named_at_once_and_wait_for_an_edit() {
    for (name, namespace, field, unknown) in [
        ("${a}-${b}-${a}", "ns", "name", &["a", "b"][..]),
        ("$pv.name", "ns", "name", &["pv"]),
        ("${pvc.annotations['absent']}", "ns", "name", &["pvc.annotations['absent']"]),
        ("${pvc.annotations[team]}", "ns", "name", &["pvc.annotations[team]"]),
        ("${pvc.labels['team']}", "ns", "name", &["pvc.labels['team']"]),
        ("n", "${pvc.name}", "namespace", &["pvc.name"]),
        ("n", "${pvc.annotations['team']}", "namespace", &["pvc.annotations['team']"]),
        ("$$", "ns", "name", &["$"]),
    ] {
        let error = of_claim(name, namespace).unwrap_err();
        let SecretError::UnknownTokens { field: at, unknown: all, .. } = &error else { panic!("{error}") };
        assert_eq!((*at, all.iter().map(String::as_str).collect::<Vec<_>>()), (field, unknown.to_vec()));
        assert!(unknown.iter().all(|token| error.to_string().contains(token)), "{error}");
        assert_eq!(error.finality(), Finality::NoChange);
    }
}

#[test]
fn what_no_object_can_be_called_is_refused_with_template_and_value() {
    let long = "a".repeat(64);
    for (name, namespace, field) in [
        ("${pvc.annotations['bad']}", "ns", "name"),
        ("${pvc.annotations['empty']}", "ns", "name"),
        ("Upper", "ns", "name"),
        ("a/b", "ns", "name"),
        ("..", "ns", "name"),
        ("n", "a.b", "namespace"),
        ("n", "-a", "namespace"),
        ("n", "A", "namespace"),
        ("n", &long, "namespace"),
        ("n", "${}", "namespace"),
    ] {
        let error = of_claim(name, namespace).unwrap_err();
        assert!(matches!(&error, SecretError::InvalidName { field: at, .. } if *at == field), "{error}");
    }
    let error = of_claim("${pvc.annotations['bad']}", "ns").unwrap_err().to_string();
    assert!(error.contains("\"Not Valid\"") && error.contains("${pvc.annotations['bad']}"), "{error}");
}

#[test]
fn names_follow_rfc_1123() {
    let (label, too_long) = ("a".repeat(63), "a".repeat(64));
    for (text, as_label, as_subdomain) in [
        ("a", true, true),
        ("a-b", true, true),
        ("0", true, true),
        ("a.b", false, true),
        (&label, true, true),
        (&too_long, false, true),
        ("", false, false),
        ("-", false, false),
        ("a-", false, false),
        ("a.", false, false),
        (".a", false, false),
        ("a..b", false, false),
        ("a.-b", false, false),
        ("a_b", false, false),
        ("ä", false, false),
    ] {
        assert_eq!((is_label(text), is_subdomain(text)), (as_label, as_subdomain), "{text}");
    }
    assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
}

fn volume(annotations: &[(&str, &str)], class: Option<&str>, claim: bool) -> PersistentVolume {
    let annotations = annotations.iter().copied().collect();
    let of = ClaimRef { namespace: "shop".into(), name: "data".into(), uid: None };
    PersistentVolume {
        metadata: Meta { name: "pvc-1".into(), annotations: Some(annotations), ..Meta::default() },
        spec: VolumeSpec {
            storage_class_name: class.map(SmolStr::from),
            claim_ref: claim.then(|| Box::new(of)),
            ..VolumeSpec::default()
        },
        ..PersistentVolume::default()
    }
}

const PROVISIONED_BY: &str = ANNOTATION_PROVISIONED_BY;
const SECRET_NAME: &str = ANNOTATION_DELETION_SECRET_NAME;
const SECRET_NAMESPACE: &str = ANNOTATION_DELETION_SECRET_NAMESPACE;

#[test]
fn row_28_the_secret_on_the_volume_survives_its_class() {
    let noted = volume(&[(SECRET_NAME, "s"), (SECRET_NAMESPACE, "ns")], Some("gold"), true);
    let other = class("other", "elsewhere");
    for parameters in [None, Some(&other)] {
        assert_eq!(for_deletion(&noted, parameters, &[], DRIVER), Ok(DeletionSecret::At(at("ns", "s"))));
    }
    for pair in [("", ""), ("s", ""), ("", "ns")] {
        let empty = volume(&[(SECRET_NAME, pair.0), (SECRET_NAMESPACE, pair.1)], Some("gold"), true);
        assert_eq!(for_deletion(&empty, Some(&other), &[], DRIVER), Ok(DeletionSecret::None), "{pair:?}");
    }
}

#[test]
fn annotations_that_name_nothing_are_an_error_that_says_so() {
    for (name, namespace, told) in [
        ("../pods", "ns", "the name \"../pods\""),
        ("a?b", "ns", "the name \"a?b\""),
        ("s", "kube-system/secrets", "the namespace \"kube-system/secrets\""),
        ("s", "..", "the namespace \"..\""),
    ] {
        let noted = volume(&[(SECRET_NAME, name), (SECRET_NAMESPACE, namespace)], Some("gold"), true);
        let error = for_deletion(&noted, None, &[], DRIVER).unwrap_err();
        assert!(error.to_string().starts_with(told), "{error}");
    }
}

#[test]
fn only_allowed_namespaces_are_read_from_annotations() {
    let noted = volume(&[(SECRET_NAME, "s"), (SECRET_NAMESPACE, "kube-system")], Some("gold"), true);
    let allowed = ["storage".to_owned(), "kube-system".to_owned()];
    assert!(for_deletion(&noted, None, &allowed, DRIVER).is_ok());
    let error = for_deletion(&noted, None, &allowed[..1], DRIVER).unwrap_err();
    assert!(error.to_string().contains("kube-system/s"), "{error}");
}

#[test]
fn a_class_leads_into_no_other_namespaces_than_annotations_may() {
    // Whoever can remove the annotations can also write the claim's namespace in the volume's own claimRef.
    let bare = volume(&[(PROVISIONED_BY, DRIVER)], Some("gold"), true);
    let of_claim = class("s", "${pvc.namespace}");
    let allowed = ["storage".to_owned(), "shop".to_owned()];
    assert_eq!(for_deletion(&bare, Some(&of_claim), &allowed, DRIVER), Ok(DeletionSecret::At(at("shop", "s"))));
    let error = for_deletion(&bare, Some(&of_claim), &allowed[..1], DRIVER).unwrap_err();
    assert!(matches!(&error, SecretError::ForbiddenNamespace { namespace, .. } if namespace == "shop"), "{error}");
    assert_eq!(for_deletion(&bare, Some(&BTreeMap::new()), &allowed[..1], DRIVER), Ok(DeletionSecret::None));
}

#[test]
fn a_volume_without_annotations_asks_its_class() {
    let old = volume(&[(PROVISIONED_BY, DRIVER)], Some("gold"), true);
    let templates = class("${pvc.name}-${pv.name}", "${pvc.namespace}");
    assert_eq!(for_deletion(&old, Some(&templates), &[], DRIVER), Ok(DeletionSecret::At(at("shop", "data-pvc-1"))));
    assert_eq!(for_deletion(&old, Some(&BTreeMap::new()), &[], DRIVER), Ok(DeletionSecret::None));
    assert!(matches!(for_deletion(&old, None, &[], DRIVER), Ok(DeletionSecret::Unknown(_))), "class gone");
    assert_eq!(for_deletion(&volume(&[], None, true), None, &[], DRIVER), Ok(DeletionSecret::None), "no class at all");
    let half = volume(&[(SECRET_NAME, "s")], Some("gold"), true);
    assert_eq!(
        for_deletion(&half, Some(&BTreeMap::new()), &[], DRIVER),
        Ok(DeletionSecret::None),
        "one annotation is none"
    );
    let annotated = class("${pvc.annotations['a']}", "ns");
    let error = for_deletion(&old, Some(&annotated), &[], DRIVER).unwrap_err();
    assert!(matches!(error, SecretError::UnknownTokens { .. }), "annotations are gone with the claim: {error}");
}

#[test]
fn row_24_a_volume_without_a_claim_is_deleted_without_a_crash() {
    let loose = volume(&[(PROVISIONED_BY, DRIVER)], Some("gold"), false);
    assert!(matches!(for_deletion(&loose, Some(&class("n", "ns")), &[], DRIVER), Ok(DeletionSecret::Unknown(_))));
    assert_eq!(for_deletion(&loose, Some(&BTreeMap::new()), &[], DRIVER), Ok(DeletionSecret::None));
}

#[test]
fn r61_a_volume_that_people_made_misses_no_secret() {
    // Its class is only a name to match claims by, or one that provisions nothing.
    for annotations in [&[][..], &[(PROVISIONED_BY, "another.example.com")]] {
        for claim in [true, false] {
            let made = volume(annotations, Some("manual"), claim);
            assert_eq!(for_deletion(&made, None, &[], DRIVER), Ok(DeletionSecret::None), "{annotations:?} {claim}");
        }
        let loose = volume(annotations, Some("gold"), false);
        assert_eq!(for_deletion(&loose, Some(&class("n", "ns")), &[], DRIVER), Ok(DeletionSecret::None));
    }
    let people = volume(&[], Some("gold"), true);
    let of_class = for_deletion(&people, Some(&class("${pvc.name}", "ns")), &[], DRIVER);
    assert_eq!(of_class, Ok(DeletionSecret::At(at("ns", "data"))), "a class that is there is asked all the same");
}
