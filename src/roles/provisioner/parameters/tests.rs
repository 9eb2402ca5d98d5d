use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Every secret with its keys, the deprecated ones first.
const SECRETS: [(SecretUse, &[&str], &[&str]); 7] = [
    (
        SecretUse::Provisioner,
        &["csiProvisionerSecretName", "csi.storage.k8s.io/provisioner-secret-name"],
        &["csiProvisionerSecretNamespace", "csi.storage.k8s.io/provisioner-secret-namespace"],
    ),
    (
        SecretUse::ControllerPublish,
        &["csiControllerPublishSecretName", "csi.storage.k8s.io/controller-publish-secret-name"],
        &["csiControllerPublishSecretNamespace", "csi.storage.k8s.io/controller-publish-secret-namespace"],
    ),
    (
        SecretUse::NodeStage,
        &["csiNodeStageSecretName", "csi.storage.k8s.io/node-stage-secret-name"],
        &["csiNodeStageSecretNamespace", "csi.storage.k8s.io/node-stage-secret-namespace"],
    ),
    (
        SecretUse::NodePublish,
        &["csiNodePublishSecretName", "csi.storage.k8s.io/node-publish-secret-name"],
        &["csiNodePublishSecretNamespace", "csi.storage.k8s.io/node-publish-secret-namespace"],
    ),
    (
        SecretUse::ControllerExpand,
        &["csi.storage.k8s.io/controller-expand-secret-name"],
        &["csi.storage.k8s.io/controller-expand-secret-namespace"],
    ),
    (
        SecretUse::NodeExpand,
        &["csi.storage.k8s.io/node-expand-secret-name"],
        &["csi.storage.k8s.io/node-expand-secret-namespace"],
    ),
    (
        SecretUse::ControllerModify,
        &["csi.storage.k8s.io/controller-modify-secret-name"],
        &["csi.storage.k8s.io/controller-modify-secret-namespace"],
    ),
];

const DEFAULT_PAIR: [(&str, &str); 2] =
    [("csi.storage.k8s.io/secret-name", "dn"), ("csi.storage.k8s.io/secret-namespace", "dns")];

#[test]
fn every_secret_is_found_under_its_old_and_new_keys_in_any_mixture() {
    for (secret, names, namespaces) in SECRETS {
        for name in names {
            for namespace in namespaces {
                let own = map(&[(name, "n"), (namespace, "ns")]);
                assert_eq!(
                    template(&own, secret),
                    Ok(Some(Template { namespace: "ns", name: "n" })),
                    "{name} {namespace}"
                );
                for (other, _, _) in SECRETS.iter().filter(|(other, _, _)| *other != secret) {
                    assert_eq!(template(&own, *other), Ok(None), "{name} is not {}'s", other.label());
                }
            }
        }
    }
}

#[test]
fn the_default_pair_stands_for_every_secret_without_its_own() {
    for (secret, names, namespaces) in SECRETS {
        let mut parameters = map(&DEFAULT_PAIR);
        assert_eq!(template(&parameters, secret), Ok(Some(Template { namespace: "dns", name: "dn" })));
        parameters.extend(map(&[(names[0], "n"), (namespaces[0], "ns")]));
        assert_eq!(template(&parameters, secret), Ok(Some(Template { namespace: "ns", name: "n" })));
        assert_eq!(template(&BTreeMap::new(), secret), Ok(None));
    }
}

#[test]
fn half_a_pair_is_an_error_even_beside_a_default() {
    for (secret, names, namespaces) in SECRETS {
        let (name, namespace) = (*names.last().unwrap(), *namespaces.last().unwrap());
        for (given, missing) in [(name, namespace), (namespace, name)] {
            let mut parameters = map(&DEFAULT_PAIR);
            parameters.extend(map(&[(given, "x")]));
            let error = template(&parameters, secret).unwrap_err();
            assert!(matches!(error, ParameterError::Half { missing: key, .. } if key == missing), "{error}");
            assert!(error.to_string().contains(missing), "{error}");
        }
    }
    for (key, value) in DEFAULT_PAIR {
        assert!(matches!(template(&map(&[(key, value)]), SecretUse::NodeStage), Err(ParameterError::Half { .. })));
    }
}

#[test]
fn old_and_new_key_for_the_same_is_an_error_that_says_which_to_keep() {
    for (secret, names, namespaces) in SECRETS.iter().filter(|(_, names, _)| names.len() == 2) {
        for doubled in [names, namespaces] {
            let mut parameters = map(&[(names[1], "x"), (namespaces[1], "x")]);
            parameters.insert(doubled[0].to_owned(), "x".to_owned());
            let error = template(&parameters, *secret).unwrap_err();
            assert!(matches!(error, ParameterError::TwoKeys { .. }), "{error}");
            assert!(doubled.iter().all(|key| error.to_string().contains(key)), "{error}");
        }
    }
}

#[test]
fn a_present_but_empty_key_is_an_error() {
    for (secret, names, namespaces) in SECRETS {
        for (name, namespace) in [("", "ns"), ("n", ""), ("", "")] {
            let parameters = map(&[(names[0], name), (namespaces[0], namespace)]);
            assert!(matches!(template(&parameters, secret), Err(ParameterError::Empty(_))), "{}", secret.label());
        }
    }
}

#[test]
fn the_file_system_is_the_new_keys_the_old_ones_in_any_case_or_the_default() {
    for (pairs, expected) in [
        (&[][..], "xfs"),
        (&[("csi.storage.k8s.io/fstype", "ext3")], "ext3"),
        (&[("fstype", "ext3")], "ext3"),
        (&[("fsType", "ext3")], "ext3"),
        (&[("FSTYPE", "ext3")], "ext3"),
        (&[("fstype", "")], "xfs"),
        (&[("csi.storage.k8s.io/fstype", "")], "xfs"),
        (&[("CSI.storage.k8s.io/fstype", "ext3")], "xfs"),
        (&[("fs-type", "ext3")], "xfs"),
    ] {
        assert_eq!(fs_type(&map(pairs), "xfs").as_deref(), Ok(expected), "{pairs:?}");
    }
}

#[test]
fn row_49_without_a_default_no_file_system_is_named() {
    assert_eq!(fs_type(&BTreeMap::new(), "").as_deref(), Ok(""));
}

#[test]
fn two_file_systems_are_an_error_even_if_they_agree() {
    for pairs in [[("fstype", "a"), ("csi.storage.k8s.io/fstype", "a")], [("fstype", "a"), ("fsType", "b")]] {
        let error = fs_type(&map(&pairs), "").unwrap_err();
        assert!(pairs.iter().all(|(key, _)| error.to_string().contains(key)), "{error}");
    }
}

#[test]
fn row_04_every_key_of_ours_is_taken_out_and_the_deprecated_ones_stay() {
    let mut ours = map(&DEFAULT_PAIR);
    ours.insert(FS_TYPE.to_owned(), "xfs".to_owned());
    let mut theirs = map(&[
        ("type", "ssd"),
        ("fsType", "xfs"),
        ("", "nameless"),
        ("CSI.storage.k8s.io/fstype", "other case"),
        ("csi.storage.k8s.io", "no slash"),
        ("x/csi.storage.k8s.io/fstype", "inside"),
    ]);
    for (_, names, namespaces) in SECRETS {
        for key in names.iter().chain(namespaces) {
            let group = if key.starts_with(PREFIX) { &mut ours } else { &mut theirs };
            group.insert((*key).to_owned(), "x".to_owned());
        }
    }
    assert_eq!(ours.len(), 1 + 2 + 2 * 7);
    let both: BTreeMap<_, _> = ours.into_iter().chain(theirs.clone()).collect();
    assert_eq!(for_driver(&both), Ok(theirs));
}

#[test]
fn an_unknown_reserved_key_is_refused_by_name() {
    for key in [
        "csi.storage.k8s.io/",
        "csi.storage.k8s.io/fsType",
        "csi.storage.k8s.io/Secret-Name",
        "csi.storage.k8s.io/provisioner-secret",
        "csi.storage.k8s.io/pvc/name",
        "csi.storage.k8s.io/pvc/namespace",
        "csi.storage.k8s.io/pv/name",
    ] {
        let error = for_driver(&map(&[(key, "x"), ("type", "ssd")])).unwrap_err();
        assert_eq!(error, ParameterError::UnknownKey(key.to_owned()));
        assert!(error.to_string().contains(key));
    }
}
