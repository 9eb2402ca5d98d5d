use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster::SmolStr;
use crate::cluster::quantity::QuantityError;
use crate::csi::PluginService;
use crate::roles::provisioner::finality::Finality;
use crate::roles::provisioner::fixtures::{DRIVER, attempt, claim, class, map, merged, request, rules};
use crate::roles::provisioner::parameters::ParameterError;
use crate::roles::provisioner::topology::Segment;

fn refused(of: Value, from: Value) -> RequestError {
    attempt(of, from, &rules()).unwrap_err()
}

#[test]
fn names_are_prefix_and_uid() {
    let uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    for (length, expected) in [
        (None, "pvc-1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
        (Some(8), "pvc-1b4e28ba"),
        (Some(10), "pvc-1b4e28ba2f"),
        (Some(32), "pvc-1b4e28ba2fa111d2883f0016d3cca427"),
        (Some(99), "pvc-1b4e28ba2fa111d2883f0016d3cca427"),
    ] {
        let rule = NameRule { prefix: "pvc".into(), uuid_length: length };
        assert_eq!(rule.volume_name(uid).as_deref(), Ok(expected));
    }
    let rule = |prefix: &str, uuid_length| NameRule { prefix: prefix.into(), uuid_length };
    assert_eq!(rule("pvc", None).volume_name(""), Err(RequestError::NoUid));
    for bad in [rule("", None), rule("pvc", Some(0)), rule("PVC", None), rule("p_v", None), rule("-", None)] {
        let error = bad.volume_name(uid).unwrap_err();
        assert!(matches!(error, RequestError::VolumeName { .. }), "{bad:?}");
        assert_eq!(error.finality(), Finality::Finished);
    }
}

#[test]
fn each_access_mode_has_its_csi_mode() {
    use Mode::{
        MultiNodeMultiWriter, MultiNodeReaderOnly, SingleNodeMultiWriter, SingleNodeSingleWriter, SingleNodeWriter,
    };
    for (mode, without, with) in [
        ("ReadWriteMany", MultiNodeMultiWriter, MultiNodeMultiWriter),
        ("ReadOnlyMany", MultiNodeReaderOnly, MultiNodeReaderOnly),
        ("ReadWriteOnce", SingleNodeWriter, SingleNodeMultiWriter),
        ("ReadWriteOncePod", SingleNodeWriter, SingleNodeSingleWriter),
    ] {
        let modes = [SmolStr::from(mode)];
        assert_eq!(access_modes(&modes, false), Ok(vec![without]));
        assert_eq!(access_modes(&modes, true), Ok(vec![with]));
    }
    let all = ["ReadOnlyMany", "ReadWriteOnce"].map(SmolStr::from);
    assert_eq!(access_modes(&all, false), Ok(vec![MultiNodeReaderOnly, SingleNodeWriter]), "in the claim's order");
    for multi_writer in [false, true] {
        let odd = ["ReadWriteOnce", "ReadWriteTwice"].map(SmolStr::from);
        assert_eq!(access_modes(&odd, multi_writer), Err(RequestError::AccessMode("ReadWriteTwice".into())));
        assert_eq!(access_modes(&[], multi_writer), Err(RequestError::NoAccessMode));
    }
}

#[test]
fn a_plain_claim_becomes_a_plain_request() {
    let made = request(json!({}), json!({"mountOptions": ["noatime", "ro"]}));
    let sent = made.to_proto(HashMap::from([("user".to_owned(), "x".to_owned())]));
    assert_eq!(sent.name, "pvc-6f1a-02");
    assert_eq!(sent.capacity_range, Some(CapacityRange { required_bytes: 10 << 30, limit_bytes: 0 }));
    assert_eq!(sent.parameters, HashMap::from([("type".to_owned(), "ssd".to_owned())]));
    assert_eq!(sent.secrets.len(), 1);
    assert!(sent.volume_content_source.is_none() && sent.accessibility_requirements.is_none());
    assert!(sent.mutable_parameters.is_empty());
    let [capability] = &sent.volume_capabilities[..] else { panic!("one mode, one capability") };
    let Some(AccessType::Mount(mount)) = &capability.access_type else { panic!("not a mount") };
    assert_eq!((mount.fs_type.as_str(), &mount.mount_flags[..]), ("", &["noatime".to_owned(), "ro".to_owned()][..]));
    assert_eq!(mount.volume_mount_group, "");
}

#[test]
fn sizes_round_up_and_no_size_is_zero() {
    for (storage, expected) in [(json!("10Gi"), 10 << 30), (json!("1500m"), 2), (json!("1e3"), 1000), (json!(null), 0)]
    {
        let made = request(json!({"spec": {"resources": {"requests": {"storage": storage}}}}), json!({}));
        assert_eq!(made.required_bytes, expected);
    }
    let error = refused(json!({"spec": {"resources": {"requests": {"storage": "9Ei"}}}}), json!({}));
    assert_eq!(error, RequestError::Size(QuantityError::Overflow("9Ei".into())));
    assert_eq!(error.finality(), Finality::Finished);
}

#[test]
fn a_claims_volume_mode_that_is_not_known_is_a_file_system() {
    for (mode, is_block) in [("Block", true), ("Filesystem", false), ("block", false), ("Tape", false), ("", false)] {
        let made = request(json!({"spec": {"volumeMode": mode}}), json!({}));
        assert_eq!(made.plan.volume_mode.as_deref(), Some(mode), "the PersistentVolume has the claim's word");
        let found = made.capabilities().iter().all(|one| matches!(one.access_type, Some(AccessType::Block(_))));
        assert_eq!(found, is_block, "{mode:?}");
    }
}

#[test]
fn row_34_a_raw_device_has_no_file_system() {
    let block = json!({"spec": {"volumeMode": "Block", "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}});
    let made = request(block, json!({"parameters": {"csi.storage.k8s.io/fstype": "xfs"}}));
    assert_eq!(made.plan.fs_type, None);
    assert_eq!(made.capabilities().len(), 2);
    assert!(made.capabilities().iter().all(|one| one.access_type == Some(AccessType::Block(BlockVolume {}))));
}

#[test]
fn metadata_is_told_only_on_request() {
    let with = ProvisionRules { extra_create_metadata: true, ..rules() };
    assert_eq!(
        attempt(json!({}), json!({}), &with).unwrap().parameters,
        map(&[
            ("csi.storage.k8s.io/pv/name", "pvc-6f1a-02"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("type", "ssd"),
        ])
    );
    assert_eq!(attempt(json!({}), json!({}), &rules()).unwrap().parameters, map(&[("type", "ssd")]));
}

#[test]
fn what_is_wrong_with_claim_or_class_is_final_and_what_may_come_is_not() {
    let bad_template = json!({"parameters": {
        "csi.storage.k8s.io/secret-name": "${pvc.annotations['a']}", "csi.storage.k8s.io/secret-namespace": "ns",
    }});
    for (of, from, label, state) in [
        (json!({"spec": {"selector": {}}}), json!({}), "Selector", Finality::Finished),
        (json!({"spec": {"accessModes": ["Odd"]}}), json!({}), "AccessModes", Finality::Finished),
        (json!({"spec": {"accessModes": []}}), json!({}), "AccessModes", Finality::Finished),
        (json!({"metadata": {"uid": null}}), json!({}), "VolumeName", Finality::Finished),
        (json!({}), json!({"provisioner": "other"}), "ForeignClass", Finality::Finished),
        (json!({}), json!({"provisioner": "kubernetes.io/aws-ebs"}), "ForeignClass", Finality::Finished),
        (json!({}), json!({"parameters": {"fstype": "a", "FSTYPE": "b"}}), "Parameters", Finality::Finished),
        (json!({}), json!({"parameters": {"csi.storage.k8s.io/pvc/name": "x"}}), "Parameters", Finality::Finished),
        (json!({}), bad_template, "SecretReference", Finality::NoChange),
        (json!({"spec": {"volumeAttributesClassName": "fast"}}), json!({}), "AttributesClass", Finality::NoChange),
    ] {
        let error = refused(of, from);
        assert_eq!((error.label(), error.finality()), (label, state), "{error}");
    }
}

#[test]
fn row_04_every_secret_is_found_and_none_of_its_keys_is_sent() {
    let from = json!({"parameters": {
        "csi.storage.k8s.io/secret-name": "shared", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
        "csi.storage.k8s.io/controller-modify-secret-name": "modify",
        "csi.storage.k8s.io/controller-modify-secret-namespace": "kube-system",
    }});
    let made = request(json!({}), from);
    let shared = SecretReference { name: "shared".into(), namespace: "shop".into() };
    assert_eq!(made.secret, Some(shared.clone()));
    assert_eq!(made.plan.secrets.len(), SecretUse::ALL.len());
    for (secret, reference) in &made.plan.secrets {
        let modify = SecretReference { name: "modify".into(), namespace: "kube-system".into() };
        assert_eq!(reference, if *secret == SecretUse::ControllerModify { &modify } else { &shared });
    }
    assert_eq!(made.parameters, map(&[("type", "ssd")]));
}

#[test]
fn a_class_of_attributes_must_be_the_drivers() {
    let (of, from, rules) = (claim(json!({"spec": {"volumeAttributesClassName": "fast"}})), class(json!({})), rules());
    let attributes = |driver: &str| VolumeAttributesClass {
        driver: driver.to_owned(),
        parameters: map(&[("iops", "9")]),
        ..VolumeAttributesClass::default()
    };
    let with = |attributes: &VolumeAttributesClass| {
        build(&RequestInput {
            claim: &of,
            class: &from,
            rules: &rules,
            source: None,
            requirement: None,
            attributes_class: Some(attributes),
        })
    };
    let made = with(&attributes(DRIVER)).unwrap();
    assert_eq!(made.mutable_parameters, map(&[("iops", "9")]));
    assert_eq!(made.plan.attributes_class.as_deref(), Some("fast"));
    let error = with(&attributes("other.example.com")).unwrap_err();
    assert!(error.to_string().contains("other.example.com") && error.to_string().contains(DRIVER), "{error}");
    assert_eq!(error.finality(), Finality::Finished);
}

#[test]
fn only_a_single_mode_for_readers_on_request_is_read_only() {
    for (modes, allowed, expected) in [
        (&["ReadOnlyMany"][..], true, true),
        (&["ReadOnlyMany"], false, false),
        (&["ReadOnlyMany", "ReadWriteMany"], true, false),
        (&["ReadOnlyMany", "ReadOnlyMany"], true, false),
        (&["ReadWriteOnce"], true, false),
    ] {
        let rules = ProvisionRules { publish_readonly: allowed, ..rules() };
        let made = attempt(json!({"spec": {"accessModes": modes}}), json!({}), &rules).unwrap();
        assert_eq!(made.plan.read_only, expected, "{modes:?}");
    }
}

/// The gate `VolumeAttributesClass` off, as in csi-provisioner: no class is looked for, nothing of it is sent or stored.
#[test]
fn a_class_of_attributes_is_ignored_where_the_configuration_says_so() {
    let (of, from) = (claim(json!({"spec": {"volumeAttributesClassName": "fast"}})), class(json!({})));
    let rules = ProvisionRules { attributes_classes: false, ..rules() };
    let input = RequestInput {
        claim: &of,
        class: &from,
        rules: &rules,
        source: None,
        requirement: None,
        attributes_class: None,
    };
    let made = build(&input).unwrap();
    assert_eq!(made.plan.attributes_class, None);
    assert!(made.mutable_parameters.is_empty());
    assert_eq!(rules.attributes_class(&of), None, "nothing is read for it");
}

#[test]
fn each_request_needs_its_capabilities_and_says_what_for() {
    use ControllerRpc::{CloneVolume, CreateDeleteSnapshot, CreateDeleteVolume, ModifyVolume};
    let snapshot = Source::Snapshot { namespace: "shop".into(), name: "s".into() };
    let clone = Source::Claim { namespace: "shop".into(), name: "c".into() };
    let modified = json!({"spec": {"volumeAttributesClassName": "fast"}});
    let off = ProvisionRules { attributes_classes: false, ..rules() };
    for (of, source, rules, needed) in [
        (json!({}), &Source::None, rules(), &[CreateDeleteVolume][..]),
        (json!({}), &snapshot, rules(), &[CreateDeleteVolume, CreateDeleteSnapshot]),
        (json!({}), &clone, rules(), &[CreateDeleteVolume, CloneVolume]),
        (modified.clone(), &Source::None, rules(), &[CreateDeleteVolume, ModifyVolume]),
        (modified.clone(), &Source::None, off, &[CreateDeleteVolume]),
        (json!({"spec": {"volumeAttributesClassName": ""}}), &Source::None, rules(), &[CreateDeleteVolume]),
    ] {
        let of = claim(of);
        assert_eq!(
            check_capabilities(
                &rules,
                &Capabilities::offering(&[PluginService::ControllerService], needed),
                &of,
                source
            ),
            Ok(())
        );
        for lacking in needed {
            let others: Vec<_> = needed.iter().filter(|one| *one != lacking).copied().collect();
            let error = check_capabilities(
                &rules,
                &Capabilities::offering(&[PluginService::ControllerService], &others),
                &of,
                source,
            )
            .unwrap_err();
            assert!(error.to_string().contains(lacking.as_str_name()), "{error}");
            assert_eq!(error.finality(), Finality::Finished);
        }
        assert!(
            check_capabilities(&rules, &Capabilities::offering(&[], needed), &of, source).is_err(),
            "no controller"
        );
    }
}

fn requirement(zones: &[&str]) -> Requirement {
    let terms: Vec<Segment> = zones.iter().map(|zone| Segment::new([("zone", *zone)])).collect();
    Requirement { requisite: terms.clone(), preferred: terms }
}

#[test]
fn row_07_a_retry_sends_the_same_requirement_in_the_same_order() {
    let places = requirement(&["a", "b", "c"]);
    let turned = Requirement { preferred: [&places.requisite[1..], &places.requisite[..1]].concat(), ..places.clone() };
    let made = Request { requirement: Some(turned), ..request(json!({}), json!({})) };
    let (first, second) = (made.to_proto(HashMap::new()), made.to_proto(HashMap::new()));
    assert_eq!(first, second);
    let zones = |topologies: &[crate::proto::Topology]| -> Vec<String> {
        topologies.iter().map(|topology| topology.segments["zone"].clone()).collect()
    };
    let sent = first.accessibility_requirements.unwrap();
    assert_eq!(
        (zones(&sent.requisite), zones(&sent.preferred)),
        (vec!["a".to_owned(), "b".into(), "c".into()], vec!["b".to_owned(), "c".into(), "a".into()])
    );
}

#[test]
fn row_44_no_secret_is_printed() {
    let sent = request(json!({}), json!({})).to_proto(HashMap::from([("key".to_owned(), "hunter2".to_owned())]));
    assert!(!format!("{sent:?}").contains("hunter2"));
}

#[test]
fn an_unknown_reserved_key_is_named_in_the_error() {
    let error = refused(json!({}), json!({"parameters": {"csi.storage.k8s.io/typo": "x"}}));
    assert_eq!(error, RequestError::Parameters(ParameterError::UnknownKey("csi.storage.k8s.io/typo".into())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a claim's author writes, a request is made or refused, never a panic; and it is the same each time.
    #[test]
    fn any_claim_is_built_or_refused(
        storage in "[0-9.]{0,6}[a-zA-Z]{0,3}", modes in proptest::collection::vec("[A-Za-z]{0,16}|ReadWriteOnce", 0..3),
        volume_mode in "Block|Filesystem|[a-z]{0,5}", note in "\\PC{0,10}",
    ) {
        let of = json!({
            "metadata": {"annotations": {"n": note}},
            "spec": {"volumeMode": volume_mode, "accessModes": modes, "resources": {"requests": {"storage": storage}}},
        });
        let from = merged(json!({}), json!({"parameters": {
            "csi.storage.k8s.io/secret-name": "${pvc.annotations['n']}", "csi.storage.k8s.io/secret-namespace": "ns",
        }}));
        let made = attempt(of.clone(), from.clone(), &rules());
        prop_assert_eq!(&made, &attempt(of, from, &rules()));
        if let Ok(made) = made {
            let secret = made.secret.unwrap();
            prop_assert!(is_subdomain(&secret.name) && secret.namespace == "ns");
        }
    }
}

#[test]
fn j8_a_name_tells_which_claims_it_may_have_been_made_for() {
    let uid = "6f1a02de-1111-4222-8333-0123456789ab";
    let names = |uuid_length| NameRule { prefix: "pvc".to_owned(), uuid_length };
    for (name, length, expected) in [
        ("pvc-6f1a02de-1111-4222-8333-0123456789ab", None, true),
        // With another prefix, with fewer digits: the rule was another when it was made.
        ("old-shop-6f1a02de-1111-4222-8333-0123456789ab", None, true),
        ("pvc-6f1a02de11114222", None, true),
        ("old-6f1a02de", Some(16), true),
        ("pvc-6f1a", Some(4), true),
        ("pvc-6f1a", None, false),
        ("pvc-6f1a02df", None, false),
        ("pvc-6f1a02de-1111-4222-8333-0123456789ac", None, false),
        ("data", None, false),
        ("pvc-", Some(0), false),
        ("", None, false),
    ] {
        assert_eq!(names(length).may_be_of(name, uid), expected, "{name} {length:?}");
    }
    assert!(names(None).may_be_of("pvc-short", "short"), "not every server's uids have dashes");
    for (name, expected) in
        [("pvc-6f1a02de-1111-4222-8333-0123456789ab", Some(uid)), (uid, None), ("pvc-6f1a02de", None), ("é", None)]
    {
        assert_eq!(whole_uid(name), expected, "{name}");
    }
}
