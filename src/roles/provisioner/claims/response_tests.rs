use serde_json::json;

use super::*;
use crate::proto::{Topology, Volume};
use crate::roles::provisioner::fixtures::{map, request};
use crate::roles::provisioner::sources::source::ContentSource;

fn term(pairs: &[(&str, &str)]) -> Segment {
    Segment::new(pairs.iter().copied())
}

fn wanting(zones: &[&str]) -> Request {
    let requisite: Vec<Segment> = zones.iter().map(|zone| term(&[("zone", zone)])).collect();
    let requirement = Requirement { preferred: requisite.clone(), requisite };
    Request { requirement: Some(requirement), ..request(json!({}), json!({})) }
}

fn answer(capacity: i64, places: &[&[(&str, &str)]]) -> CreateVolumeResponse {
    let accessible_topology =
        places.iter().map(|pairs| Topology { segments: map(pairs).into_iter().collect() }).collect();
    let volume = Volume {
        volume_id: "vol-1".into(),
        capacity_bytes: capacity,
        volume_context: map(&[("shard", "7")]).into_iter().collect(),
        content_source: None,
        accessible_topology,
    };
    CreateVolumeResponse { volume: Some(volume) }
}

const ASKED: i64 = 10 << 30;

#[test]
fn rows_45_and_55_the_size_is_the_drivers_exactly_or_the_requested_one() {
    let asked = request(json!({}), json!({}));
    for (answered, expected) in [(0, ASKED), (ASKED, ASKED), (ASKED + 1, ASKED + 1), (i64::MAX, i64::MAX)] {
        assert_eq!(check_response(&asked, &answer(answered, &[])).unwrap().capacity_bytes, expected);
    }
    for answered in [1, ASKED - 1, -1, i64::MIN] {
        let error = check_response(&asked, &answer(answered, &[])).unwrap_err();
        assert_eq!(error, ResponseError::TooSmall { id: "vol-1".into(), created: answered, requested: ASKED });
        assert!(error.must_delete());
    }
    let sizeless = Request { required_bytes: 0, ..asked };
    assert_eq!(check_response(&sizeless, &answer(0, &[])).unwrap().capacity_bytes, 0);
    assert!(check_response(&sizeless, &answer(-5, &[])).is_err());
}

#[test]
fn s0_an_answer_without_volume_or_id_is_an_error_and_nothing_can_be_deleted() {
    let asked = request(json!({}), json!({}));
    let mut nameless = answer(0, &[]);
    nameless.volume.as_mut().unwrap().volume_id.clear();
    for (response, expected) in
        [(CreateVolumeResponse { volume: None }, ResponseError::NoVolume), (nameless, ResponseError::NoId)]
    {
        let error = check_response(&asked, &response).unwrap_err();
        assert_eq!(error, expected);
        assert!(!error.must_delete());
    }
}

#[test]
fn row_54_a_driver_that_ignores_the_source_has_its_volume_deleted() {
    for source in [ContentSource::Snapshot("snap".into()), ContentSource::Volume("vol-0".into())] {
        let asked = Request { content_source: Some(source.clone()), ..request(json!({}), json!({})) };
        let error = check_response(&asked, &answer(0, &[])).unwrap_err();
        assert_eq!(error, ResponseError::SourceIgnored("vol-1".into()));
        assert!(error.must_delete());
        let mut made = answer(0, &[]);
        made.volume.as_mut().unwrap().content_source = Some(source.to_proto());
        assert!(check_response(&asked, &made).is_ok());
    }
}

#[test]
fn places_are_taken_only_from_a_driver_that_has_them() {
    let mut asked = request(json!({}), json!({}));
    let places = answer(0, &[&[("zone", "z1")], &[], &[("zone", "z2")]]);
    let found = check_response(&asked, &places).unwrap().affinity;
    assert_eq!(found, Some(vec![term(&[("zone", "z1")]), term(&[("zone", "z2")])]));
    assert_eq!(check_response(&asked, &answer(0, &[])).unwrap().affinity, None);
    asked.plan.topology = false;
    assert_eq!(check_response(&asked, &places).unwrap().affinity, None);
    assert!(check_response(&asked, &answer(0, &[&[]])).is_ok(), "nobody looks");
}

#[test]
fn s0_a_volume_in_empty_places_is_deleted_instead_of_never_saved() {
    let error = check_response(&request(json!({}), json!({})), &answer(0, &[&[], &[]])).unwrap_err();
    assert!(matches!(error, ResponseError::Nowhere { .. }) && error.must_delete());
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn only_a_place_that_is_surely_elsewhere_is_refused() {
    let asked = wanting(&["z1", "z2"]);
    for (places, expected) in [
        (&[][..], true),
        (&[&[("zone", "z1")][..]][..], true),
        (&[&[("zone", "z2"), ("rack", "a")]], true),
        (&[&[("region", "r")]], true),
        (&[&[("zone", "z9")], &[("zone", "z1")]], true),
        (&[&[("zone", "z9")]], false),
        (&[&[("zone", "z9"), ("rack", "a")], &[("zone", "z10")]], false),
    ] {
        let result = check_response(&asked, &answer(0, places));
        assert_eq!(result.is_ok(), expected, "{places:?}");
        if let Err(error) = result {
            assert!(error.must_delete());
            let text = error.to_string();
            assert!(text.contains("zone=z9") && text.contains("(zone=z1), (zone=z2)"), "{text}");
        }
    }
}

#[test]
fn what_the_api_could_not_hold_is_refused() {
    let mut huge = answer(0, &[]);
    huge.volume.as_mut().unwrap().volume_context.insert("x".into(), "y".repeat(1 << 20));
    let error = check_response(&request(json!({}), json!({})), &huge).unwrap_err();
    assert!(matches!(error, ResponseError::TooMuch(size) if size > 1 << 20) && error.must_delete());
}

#[test]
fn m18_a_volume_that_the_plugin_cannot_have_is_deleted() {
    let mut asked = request(json!({}), json!({}));
    asked.plan.driver = "csi.vsphere.vmware.com".into();
    asked.plan.in_tree = true;
    let error = check_response(&asked, &answer(0, &[])).unwrap_err();
    assert_eq!(error, ResponseError::NoInTreeForm { id: "vol-1".into(), source: TranslationError::NoVolumePath });
    assert!(error.must_delete());
    asked.plan.in_tree = false;
    assert!(check_response(&asked, &answer(0, &[])).is_ok());
}
