use super::*;
use proptest::prelude::*;
use serde_json::json;

fn wire(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        bytes.push(if value == 0 { byte } else { byte | 0x80 });
        if value == 0 {
            return bytes;
        }
    }
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [wire(field << 3 | 2), wire(content.len() as u64), content.to_vec()].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [wire(field << 3), wire(value)].concat()
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
}

#[test]
fn a_secret_is_read() {
    let meta = [bytes(1, b"s"), bytes(2, b""), bytes(8, b""), bytes(11, &[bytes(1, b"a"), bytes(2, b"b")].concat())];
    let raw = [bytes(1, &meta.concat()), bytes(2, &[bytes(1, b"key"), bytes(2, b"foo")].concat()), bytes(3, b"Opaque")];
    assert_eq!(
        decode(&envelope("v1", "Secret", &raw.concat())).unwrap(),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"a": "b"}},
               "data": {"key": "Zm9v"}, "type": "Opaque"})
    );
}

#[test]
fn a_lease_keeps_its_zeros_and_microseconds() {
    let renewed = [number(1, 1_600_000_000), number(2, 0)].concat();
    let spec = [bytes(1, b""), number(2, 15), bytes(4, &renewed), number(5, 0)].concat();
    assert_eq!(
        decode(&envelope("coordination.k8s.io/v1", "Lease", &bytes(2, &spec))).unwrap()["spec"],
        json!({"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2020-09-13T12:26:40.000000Z",
               "leaseTransitions": 0})
    );
}

#[test]
fn inlined_members_stand_in_their_parent() {
    let csi = [bytes(1, b"demo.csi"), bytes(2, b"vol-1"), number(3, 0)].concat();
    let source = bytes(22, &csi);
    let capacity = [bytes(1, b"storage"), bytes(2, &bytes(1, b"1Gi"))].concat();
    let spec = [bytes(1, &capacity), bytes(2, &source), bytes(3, b"ReadWriteOnce")].concat();
    assert_eq!(
        decode(&envelope("v1", "PersistentVolume", &bytes(2, &spec))).unwrap()["spec"],
        json!({"capacity": {"storage": "1Gi"}, "csi": {"driver": "demo.csi", "volumeHandle": "vol-1"},
               "accessModes": ["ReadWriteOnce"]})
    );
}

#[test]
fn what_is_no_body_is_said_to_be_none() {
    assert_eq!(decode(b"{}"), Err(Garbled::Prefix));
    let unknown = Garbled::Unknown { api_version: "v1".into(), kind: "Gadget".into() };
    assert_eq!(decode(&envelope("v1", "Gadget", b"")), Err(unknown));
    assert!(matches!(decode(&envelope("v1", "Secret", &[0x0a, 0x7f])), Err(Garbled::Malformed(_))));
}

#[test]
fn every_message_that_a_field_names_is_in_the_table() {
    let plain = ["s", "i", "b", "y", "d", "Quantity", "IntOrString", "RawExtension", "Time", "MicroTime", "FieldsV1"];
    for (message, fields) in SCHEMA.iter() {
        for field in fields.values() {
            assert!(plain.contains(&field.of) || SCHEMA.contains_key(field.of), "{message}.{}", field.name);
        }
    }
    // What was installed comes as JSON only; workloads are made by people, with kubectl, which sends JSON too.
    for resource in resources::RESOURCES.iter().filter(|it| !it.optional && it.group != "apps") {
        assert!(SCHEMA.keys().any(|name| name.ends_with(&format!(".{}", resource.kind))), "{}", resource.kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn garbage_never_panics(raw in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&envelope("v1", "Pod", &raw));
        let _ = decode(&raw);
    }
}
