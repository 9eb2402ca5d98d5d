//! Objects for the tests of this folder.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{PersistentVolumeClaim, StorageClass};

pub(super) use crate::roles::kit::fixtures::merged;

use crate::roles::provisioner::claims::request::{
    NameRule, ProvisionRules, Request, RequestError, RequestInput, build,
};

pub(super) const DRIVER: &str = "disk.example.com";

pub(super) fn claim(patch: Value) -> PersistentVolumeClaim {
    serde_json::from_value(merged(claim_value(), patch)).unwrap()
}

pub(super) fn claim_value() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "data", "uid": "6f1a-02", "resourceVersion": "77"},
        "spec": {
            "storageClassName": "gold",
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    })
}

pub(super) fn class(patch: Value) -> StorageClass {
    let base = json!({
        "metadata": {"name": "gold", "uid": "class-1"},
        "provisioner": DRIVER,
        "parameters": {"type": "ssd"},
        "reclaimPolicy": "Delete",
    });
    serde_json::from_value(merged(base, patch)).unwrap()
}

pub(super) fn rules() -> ProvisionRules {
    ProvisionRules {
        driver: DRIVER.to_owned(),
        names: NameRule { prefix: "pvc".to_owned(), uuid_length: None },
        multi_writer: false,
        topology: true,
        default_fs_type: String::new(),
        extra_create_metadata: false,
        publish_readonly: false,
        attributes_classes: true,
    }
}

pub(super) fn request(claim: Value, class: Value) -> Request {
    request_by(&rules(), claim, class)
}

pub(super) fn request_by(rules: &ProvisionRules, claim: Value, class: Value) -> Request {
    attempt(claim, class, rules).unwrap()
}

pub(super) fn attempt(claim: Value, class: Value, rules: &ProvisionRules) -> Result<Request, RequestError> {
    let (claim, class) = (self::claim(claim), self::class(class));
    build(&RequestInput {
        claim: &claim,
        class: &class,
        rules,
        source: None,
        requirement: None,
        attributes_class: None,
    })
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
