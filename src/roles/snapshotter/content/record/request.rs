//! What `CreateSnapshot` and `CreateVolumeGroupSnapshot` are asked: the name and the parameters (snapshotter spec 5.2, 5.3), the same until the driver's final
//! answer. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Object as _;
use crate::roles::snapshotter::names;

use super::intent::{Intent, IntentClass};
use super::kind::{Class, Content};
use super::{error::InvalidSnapshot, facts, facts::ClassView, intent};

/// The keys of a class that are not the driver's begin with this.
const RESERVED: &str = "csi.storage.k8s.io/";
/// The keys under it that the snapshot-controller and the roles read, and the driver is not told.
const NOT_PASSED_ON: [&str; 8] = [
    "csi.storage.k8s.io/snapshotter-secret-name",
    "csi.storage.k8s.io/snapshotter-secret-namespace",
    "csi.storage.k8s.io/snapshotter-list-secret-name",
    "csi.storage.k8s.io/snapshotter-list-secret-namespace",
    "csi.storage.k8s.io/group-snapshotter-secret-name",
    "csi.storage.k8s.io/group-snapshotter-secret-namespace",
    "csi.storage.k8s.io/group-snapshotter-get-secret-name",
    "csi.storage.k8s.io/group-snapshotter-get-secret-namespace",
];

/// How snapshots are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRule {
    /// What a name begins with, before a dash.
    pub prefix: String,
    /// How many digits of the uid follow; `None`: all, with their dashes.
    pub uuid_length: Option<usize>,
}

impl NameRule {
    /// The name of the snapshot for the `VolumeSnapshot` with this uid.
    pub fn name(&self, uid: &str) -> String {
        let uid = match self.uuid_length {
            None => uid.to_owned(),
            Some(length) => uid.chars().filter(|c| *c != '-').take(length).collect(),
        };
        format!("{}-{uid}", self.prefix)
    }
}

/// What goes into a request beyond the content and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRules {
    /// Our driver.
    pub driver: String,
    /// How snapshots are called.
    pub names: NameRule,
    /// Whether the driver gets the names of the objects.
    pub extra_metadata: bool,
}

/// All that the driver is asked, but for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The snapshot's name.
    pub name: String,
    /// The driver's ids of the volumes: of a snapshot, one.
    pub sources: Vec<String>,
    /// The driver's parameters.
    pub parameters: BTreeMap<String, String>,
}

impl Request {
    /// The volumes whose turns the call takes, in the order in which everybody takes them.
    pub fn turns(&self) -> Vec<String> {
        let volumes: BTreeSet<&String> = self.sources.iter().collect();
        volumes.into_iter().cloned().collect()
    }
}

/// A request, and what the content says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the driver is asked.
    pub request: Request,
    /// The annotation that records it.
    pub intent: String,
    /// Whether the request is the one that the annotation records. Otherwise no error is the final answer to that one.
    pub is_as_recorded: bool,
    /// Whether the content bore another writer's mark before the request was recorded: a snapshot that is older than the content was
    /// then taken for another one.
    pub is_inherited: bool,
}

impl Asked {
    /// The same request as the content with this uid records it.
    #[must_use]
    pub fn for_content(mut self, uid: &str) -> Self {
        // Cannot fail: this program has written it.
        if let Ok(intent) = serde_json::from_str::<Intent>(&self.intent) {
            self.intent = intent.for_content(uid).to_text();
        }
        self
    }
}

/// The request for a content: the one that it records, else the one that its class says now.
pub fn plan<K: Content>(
    content: &K,
    class: ClassView<'_, K::Class>,
    rules: &RequestRules,
) -> Result<Asked, InvalidSnapshot> {
    if !facts::has_sources(content) {
        return Err(InvalidSnapshot::NoSource);
    }
    let sources = content.sources().to_vec();
    // One that does not count is written over, and the log says so.
    let recorded = intent::read(content, &rules.driver).unwrap_or_default();
    match recorded {
        Some(Intent { name, parameters: Some(parameters), is_inherited, .. }) => {
            let intent = recorded_text(content);
            Ok(Asked { request: Request { name, sources, parameters }, intent, is_as_recorded: true, is_inherited })
        }
        Some(recorded) => {
            let (parameters, _) = of_class(content, class, rules)?;
            let is_as_recorded = intent::digest(&recorded.name, &sources, &parameters) == recorded.digest;
            let (intent, is_inherited) = (recorded_text(content), recorded.is_inherited);
            let request = Request { name: recorded.name, sources, parameters };
            Ok(Asked { request, intent, is_as_recorded, is_inherited })
        }
        None => {
            let uid = content.owner().uid.as_str();
            if uid.is_empty() {
                return Err(InvalidSnapshot::Unbound { of: K::NAMES.word, content: content.meta().name.to_string() });
            }
            let (parameters, class) = of_class(content, class, rules)?;
            let name = rules.names.name(uid);
            let is_inherited = facts::has_mark(content);
            let intent = Intent::new(&content.meta().uid, &rules.driver, &name, &sources, &parameters, Some(class));
            let intent = intent.inherited(is_inherited).to_text();
            Ok(Asked { request: Request { name, sources, parameters }, intent, is_as_recorded: true, is_inherited })
        }
    }
}

/// The name of the snapshot that a content is to get: the one that it records, else the one that the rules make.
pub fn name(content: &impl Content, rules: &RequestRules) -> String {
    let recorded = intent::read(content, &rules.driver).unwrap_or_default();
    recorded.map_or_else(|| rules.names.name(&content.owner().uid), |recorded| recorded.name)
}

fn recorded_text(content: &impl Content) -> String {
    content.meta().annotation(names::ANNOTATION_SNAPSHOTTING).unwrap_or_default().to_owned()
}

fn of_class<K: Content>(
    content: &K,
    class: ClassView<'_, K::Class>,
    rules: &RequestRules,
) -> Result<(BTreeMap<String, String>, IntentClass), InvalidSnapshot> {
    let class = match class {
        ClassView::Ours(class) => class,
        ClassView::Unnamed => {
            return Err(InvalidSnapshot::NoClass { of: K::NAMES.word, content: content.meta().name.to_string() });
        }
        ClassView::Missing(name) => return Err(InvalidSnapshot::ClassMissing(K::NAMES.classes, name.to_owned())),
        ClassView::Unread(name, why) => {
            return Err(InvalidSnapshot::ClassUnread(K::NAMES.classes, name.to_owned(), why.to_owned()));
        }
        // The decision comes before: a content of a foreign class is left alone.
        ClassView::Foreign(class) => {
            return Err(InvalidSnapshot::ClassMissing(K::NAMES.classes, class.meta().name.to_string()));
        }
    };
    let mut parameters = for_driver(class.parameters())?;
    if rules.extra_metadata {
        let owner = content.owner();
        let told = [owner.name.as_str(), owner.namespace.as_str(), &*content.meta().name];
        parameters
            .extend(K::NAMES.metadata.into_iter().zip(told).map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    let class = IntentClass { name: class.meta().name.to_string(), uid: class.meta().uid.to_string() };
    Ok((parameters, class))
}

/// The parameters that the driver gets: all but ours.
fn for_driver(parameters: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, InvalidSnapshot> {
    let mut kept = BTreeMap::new();
    for (key, value) in parameters {
        if !key.starts_with(RESERVED) {
            kept.insert(key.clone(), value.clone());
        } else if !NOT_PASSED_ON.contains(&key.as_str()) {
            return Err(InvalidSnapshot::UnknownParameter(key.clone()));
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{CLASSES, DRIVER, SNAPSHOT_UID, class, content, request_rules};
    use super::*;
    use crate::cluster::VolumeSnapshotContent;

    #[test]
    fn a_name_is_made_of_the_snapshots_uid() {
        let name = |uuid_length| NameRule { prefix: "snapshot".into(), uuid_length }.name(SNAPSHOT_UID);
        assert_eq!(name(None), format!("snapshot-{SNAPSHOT_UID}"));
        assert_eq!(name(Some(8)), format!("snapshot-{}", &SNAPSHOT_UID[..8]));
        assert_eq!(name(Some(32)), format!("snapshot-{}", SNAPSHOT_UID.replace('-', "")));
    }

    #[test]
    fn s37_our_keys_are_not_passed_on_and_unknown_ones_of_the_prefix_are_refused() {
        let of = |key: &str| {
            let class = class(json!({ "parameters": { key: "x", "csiFoo": "y", "tier": null } }));
            plan(&content(json!({})), ClassView::Ours(&class), &request_rules()).map(|asked| asked.request.parameters)
        };
        for key in NOT_PASSED_ON {
            assert_eq!(of(key).unwrap(), BTreeMap::from([("csiFoo".to_owned(), "y".to_owned())]), "{key}");
        }
        let odd = "csi.storage.k8s.io/fstype";
        assert_eq!(of(odd), Err(InvalidSnapshot::UnknownParameter(odd.into())));
        let unnamed = plan(&content(json!({})), ClassView::Unnamed, &request_rules());
        assert_eq!(unnamed, Err(InvalidSnapshot::NoClass { of: "snapshot", content: "content-1".into() }));
        let missing = plan(&content(json!({})), ClassView::Missing("fast"), &request_rules());
        assert_eq!(missing, Err(InvalidSnapshot::ClassMissing(CLASSES, "fast".into())));
        let unread = plan(&content(json!({})), ClassView::Unread("fast", "no right"), &request_rules());
        assert_eq!(unread, Err(InvalidSnapshot::ClassUnread(CLASSES, "fast".into(), "no right".into())));
        let unbound = content(json!({ "spec": { "volumeSnapshotRef": { "uid": null } } }));
        let of_nobody = InvalidSnapshot::Unbound { of: "snapshot", content: "content-1".into() };
        assert_eq!(plan(&unbound, ClassView::Ours(&class(json!({}))), &request_rules()), Err(of_nobody));
    }

    #[test]
    fn the_names_of_the_objects_go_along_if_they_are_asked_for() {
        let rules = RequestRules { extra_metadata: true, ..request_rules() };
        let asked = plan(&content(json!({})), ClassView::Ours(&class(json!({}))), &rules).unwrap();
        let told = |key: &str| asked.request.parameters.get(key).map(String::as_str);
        let [name, namespace, content] = VolumeSnapshotContent::NAMES.metadata;
        assert_eq!((told(name), told(namespace), told(content)), (Some("snap"), Some("shop"), Some("content-1")));
        assert_eq!(told("tier"), Some("1"));
    }

    #[test]
    fn s41_what_is_recorded_is_asked_whatever_class_and_configuration_say_by_now() {
        let first = plan(&content(json!({})), ClassView::Ours(&class(json!({}))), &request_rules()).unwrap();
        let annotations = json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOTTING: first.intent } } });
        let begun = content(annotations);
        let other = RequestRules {
            names: NameRule { prefix: "other".into(), uuid_length: Some(4) },
            extra_metadata: true,
            driver: DRIVER.into(),
        };
        let edited = class(json!({ "parameters": { "tier": "2" } }));
        for class in [ClassView::Ours(&edited), ClassView::Missing("fast")] {
            assert_eq!(plan(&begun, class, &other).unwrap(), first);
        }
    }

    #[test]
    fn parameters_that_were_too_long_to_record_are_the_classes_and_compared() {
        let long = class(json!({ "parameters": { "key": "x".repeat(70_000) } }));
        let first = plan(&content(json!({})), ClassView::Ours(&long), &request_rules()).unwrap();
        let begun = content(json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOTTING: first.intent } } }));
        assert_eq!(plan(&begun, ClassView::Ours(&long), &request_rules()).unwrap(), first);
        let edited = plan(&begun, ClassView::Ours(&class(json!({}))), &request_rules()).unwrap();
        assert!(!edited.is_as_recorded, "no error to this is final for what was asked first");
        assert_eq!(edited.intent, first.intent);
    }
}
