//! Which capacities a change of a volume may have changed. Pure.
//!
//! A PersistentVolume is written after the driver has answered: created after `CreateVolume`, resized after `ControllerExpandVolume`, and
//! gone after `DeleteVolume`. So an answer of `GetCapacity` after the change knows of it, whichever process has called the driver.
//!
//! A volume takes its room in the segments of its node affinity. All classes there are asked for again, because they may share the
//! storage. An affinity by labels that no segment has, as of a volume that was made by hand, or of another node's daemon, touches none.

use crate::cluster::{Change, Origin, PersistentVolume, Reach, TopologyExpression, TopologySelectorTerm, VolumeSpec};
use crate::roles::provisioner::topology::{Segment, flatten};
use crate::translation::csi_form;

use super::invalidation::Invalid;

/// What to ask the driver for again after the change.
pub fn invalid_after(change: &Change<PersistentVolume>, driver: &str) -> Vec<Invalid> {
    // All that is there when the term begins is asked for then.
    if change.origin == Origin::Replay {
        return Vec::new();
    }
    let place = |volume: &PersistentVolume| place_of(volume, driver);
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    if let (Some(old), Some(new)) = (old, new)
        && old.metadata.uid == new.metadata.uid
        && old.spec.node_affinity == new.spec.node_affinity
    {
        return if has_other_size(old, new) { place(new).into_iter().collect() } else { Vec::new() };
    }
    old.into_iter().chain(new).filter_map(place).collect()
}

/// Whether the volume has grown. A size that was not read before is no news.
fn has_other_size(old: &PersistentVolume, new: &PersistentVolume) -> bool {
    let size = |volume: &PersistentVolume| volume.spec.resize.as_ref()?.capacity.clone();
    size(old).zip(size(new)).is_some_and(|(old, new)| old != new)
}

/// Where a volume of our driver takes its room.
fn place_of(volume: &PersistentVolume, driver: &str) -> Option<Invalid> {
    if volume.served_by() != Some(driver) {
        return None;
    }
    let spec = csi_form(volume, driver).ok()?;
    let class = || volume.spec.storage_class_name.as_deref().unwrap_or_default().to_owned();
    Some(segments_of(&spec).map_or_else(|| Invalid::Anywhere(class()), Invalid::Segments))
}

/// The segments that the node affinity names. `None`: it does not say.
fn segments_of(spec: &VolumeSpec) -> Option<Vec<Segment>> {
    // Other operators only narrow what these say.
    let selector = |term: &Reach| TopologySelectorTerm {
        match_label_expressions: term
            .match_expressions
            .iter()
            .filter(|requirement| requirement.operator == "In")
            .map(|requirement| TopologyExpression {
                key: requirement.key.to_string(),
                values: requirement.values.iter().map(ToString::to_string).collect(),
            })
            .collect(),
    };
    let terms: Vec<TopologySelectorTerm> = spec.node_affinity.iter().map(selector).collect();
    let says = !terms.is_empty() && terms.iter().all(|term| !term.match_label_expressions.is_empty());
    flatten(&terms).ok().filter(|_| says)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{Cached as _, Fields};

    const DRIVER: &str = "ebs.csi.aws.com";

    fn volume(change: &Value) -> PersistentVolume {
        let mut object = json!({ "metadata": { "name": "pv", "uid": "1" }, "spec": { "storageClassName": "fast",
            "capacity": { "storage": "1Gi" }, "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } } });
        for (key, value) in change.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        let mut volume: PersistentVolume = serde_json::from_value(object).unwrap();
        volume.trim(DRIVER, Fields::RESIZE | Fields::MIGRATION);
        volume
    }

    /// With an affinity of these terms; each requirement is a key, an operator and its values.
    fn at(terms: &[&[(&str, &str, &[&str])]]) -> Value {
        let one = |(key, operator, values): &(&str, &str, &[&str])| json!({ "key": key, "operator": operator, "values": values });
        let terms: Vec<Value> =
            terms.iter().map(|term| json!({ "matchExpressions": term.iter().map(one).collect::<Vec<_>>() })).collect();
        json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } })
    }

    fn zone(name: &str) -> Segment {
        Segment::new([("zone", name)])
    }

    fn news(old: Option<&PersistentVolume>, new: Option<&PersistentVolume>) -> Vec<Invalid> {
        let shared = |volume: Option<&PersistentVolume>| volume.cloned().map(Arc::new);
        invalid_after(&Change { old: shared(old), new: shared(new), origin: Origin::Watch }, DRIVER)
    }

    #[test]
    fn a_volume_touches_the_segments_of_each_term_and_its_class_if_it_does_not_say_where_it_is() {
        let anywhere = || Invalid::Anywhere("fast".to_owned());
        let two = Segment::new([("zone", "z1"), ("rack", "A")]);
        let many: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let in_tree = json!({ "csi": null, "awsElasticBlockStore": { "volumeID": "aws://z1/vol-1" } });
        let mut translated = at(&[&[("topology.kubernetes.io/zone", "In", &["z1"])]]);
        translated["csi"] = Value::Null;
        translated["awsElasticBlockStore"] = in_tree["awsElasticBlockStore"].clone();
        for (change, expected) in [
            (at(&[&[("zone", "In", &["z1"])]]), Some(Invalid::Segments(vec![zone("z1")]))),
            (at(&[&[("zone", "In", &["z1"]), ("rack", "In", &["A"])]]), Some(Invalid::Segments(vec![two]))),
            // Several terms, and a term of several places.
            (
                at(&[&[("zone", "In", &["z1"])], &[("zone", "In", &["z2", "z3"])]]),
                Some(Invalid::Segments(vec![zone("z1"), zone("z2"), zone("z3")])),
            ),
            (at(&[&[("zone", "In", &["z1"]), ("zone", "NotIn", &["z9"])]]), Some(Invalid::Segments(vec![zone("z1")]))),
            // The affinity does not say where the volume is, or in too many words.
            (json!({}), Some(anywhere())),
            (at(&[&[("zone", "Exists", &[])]]), Some(anywhere())),
            (at(&[&[("zone", "In", &["z1"])], &[("zone", "NotIn", &["z1"])]]), Some(anywhere())),
            (at(&[&[("a", "In", &many), ("b", "In", &many)]]), Some(anywhere())),
            (json!({ "storageClassName": null }), Some(Invalid::Anywhere(String::new()))),
            // An in-tree volume of our plugin is where its translation says; others are not ours.
            (translated, Some(Invalid::Segments(vec![Segment::new([("topology.ebs.csi.aws.com/zone", "z1")])]))),
            (in_tree, Some(anywhere())),
            (json!({ "csi": { "driver": "other", "volumeHandle": "vol-1" } }), None),
            (json!({ "csi": null, "hostPath": { "path": "/" } }), None),
        ] {
            let volume = volume(&change);
            let expected: Vec<Invalid> = expected.into_iter().collect();
            assert_eq!(news(None, Some(&volume)), expected, "created: {change}");
            assert_eq!(news(Some(&volume), None), expected, "deleted: {change}");
        }
    }

    #[test]
    fn a_volume_that_is_created_deleted_or_grown_is_news_and_nothing_else_is() {
        let small = volume(&at(&[&[("zone", "In", &["z1"])]]));
        let with = |change: &dyn Fn(&mut PersistentVolume)| {
            let mut volume = small.clone();
            change(&mut volume);
            volume
        };
        let resize = |size: &str| {
            let mut spec = at(&[&[("zone", "In", &["z1"])]]);
            spec["capacity"] = json!({ "storage": size });
            volume(&spec)
        };
        let moved = volume(&at(&[&[("zone", "In", &["z2"])]]));
        let mut unread = small.clone();
        unread.trim(DRIVER, Fields::MIGRATION);
        let namesake = with(&|volume| volume.metadata.uid = "2".into());
        let bound = with(&|volume| volume.phase = Some("Bound".into()));
        let finalized = with(&|volume| volume.metadata.finalizers = Some(["f".into()].into()));
        let place = |name: &str| Invalid::Segments(vec![zone(name)]);
        for (what, old, new, expected) in [
            ("created", None, Some(&small), vec![place("z1")]),
            ("deleted", Some(&small), None, vec![place("z1")]),
            ("grown", Some(&small), Some(&resize("2Gi")), vec![place("z1")]),
            ("moved", Some(&small), Some(&moved), vec![place("z1"), place("z2")]),
            ("deleted and made anew", Some(&small), Some(&namesake), vec![place("z1"), place("z1")]),
            ("bound", Some(&small), Some(&bound), vec![]),
            ("protected", Some(&small), Some(&finalized), vec![]),
            ("read with its size for the first time", Some(&unread), Some(&small), vec![]),
        ] {
            assert_eq!(news(old, new), expected, "{what}");
        }
        let there = Change { old: None, new: Some(Arc::new(small)), origin: Origin::Replay };
        assert_eq!(invalid_after(&there, DRIVER), [], "it was there before");
    }
}
