//! Strategic merge patches of one object: members by their path, conditions by their type.
//!
//! A list of conditions has several writers: kubelet and kube-controller-manager write their types into a claim's status
//! while a resizer writes its own. A merge patch would replace the whole list. A strategic merge patch names each
//! condition that it adds, changes or removes, and the server leaves all others alone, whatever a cache has missed.
//!
//! ```text
//! {"metadata": {"uid": …, "resourceVersion": …},            what the server compares: 422 and 409
//!  "status": {"allocatedResourceStatuses": {"storage": null},
//!             "conditions": [{"type": "Resizing", "status": "True", …}, {"$patch": "delete", "type": "NodeResizeError"}]}}
//! ```
//!
//! The server knows merge keys of its own kinds only: it answers 415 for a custom resource, which takes JSON Patches.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Guard, Patch, preconditions};
use crate::cluster::meta::Meta;

/// One entry of `status.conditions`, as it must be after the patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Which condition it is: the list's merge key.
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Why, in one word; if empty, the condition has no reason afterwards.
    pub reason: &'a str,
    /// Why, for people; if empty, the condition has no message afterwards.
    pub message: &'a str,
    /// When the condition was last checked; `None` keeps the server's value.
    pub probed: Option<Timestamp>,
    /// When the status last changed; `None` keeps the server's value.
    pub changed: Option<Timestamp>,
}

impl Condition<'_> {
    fn to_value(&self) -> Value {
        // The server keeps each member that the patch does not name, so an empty text is named: null removes it.
        let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        let mut value = json!({
            "type": self.type_,
            "status": self.status,
            "reason": text(self.reason),
            "message": text(self.message),
        });
        for (member, time) in [("lastProbeTime", self.probed), ("lastTransitionTime", self.changed)] {
            if let Some(time) = time {
                // The API keeps whole seconds.
                value[member] = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
            }
        }
        value
    }
}

/// A strategic merge patch that is being put together. Of two changes of one member the later counts.
///
/// ```
/// use csi_control_plane::cluster::Meta;
/// use csi_control_plane::cluster::patch::{Guard, StrategicPatch};
///
/// let claim = Meta { uid: "u1".into(), ..Meta::default() };
/// let done = StrategicPatch::of(&claim, Guard::Uid)
///     .set(&["status", "capacity", "storage"], "2Gi")
///     .remove(&["status", "allocatedResourceStatuses", "storage"])
///     .remove_condition("Resizing")
///     .into_patch();
/// assert_eq!(done.map(|patch| patch.content_type()), Some("application/strategic-merge-patch+json"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StrategicPatch {
    preconditions: Map<String, Value>,
    changes: Map<String, Value>,
    conditions: Vec<(String, Value)>,
}

impl StrategicPatch {
    /// A patch of the object of `meta`. The server refuses it (409, 422) if `guard` no longer holds, even if the patch
    /// would change nothing.
    pub fn of(meta: &Meta, guard: Guard) -> Self {
        Self { preconditions: preconditions(meta, guard), changes: Map::new(), conditions: Vec::new() }
    }

    /// Sets the member at `path`, which the server makes if it is not there. The other members of an object that stands
    /// there already stay.
    #[must_use]
    pub fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        put(&mut self.changes, path, value.into());
        self
    }

    /// Removes the member at `path`, and no other: a map that this empties disappears by itself.
    #[must_use]
    pub fn remove(self, path: &[&str]) -> Self {
        self.set(path, Value::Null)
    }

    /// Adds the condition, or replaces the condition of its type. Conditions of other types stay.
    #[must_use]
    pub fn set_condition(self, condition: &Condition<'_>) -> Self {
        let value = condition.to_value();
        self.condition(condition.type_, value)
    }

    /// Removes the condition of this type, if there is one.
    #[must_use]
    pub fn remove_condition(self, type_: &str) -> Self {
        self.condition(type_, json!({ "$patch": "delete", "type": type_ }))
    }

    fn condition(mut self, type_: &str, value: Value) -> Self {
        match self.conditions.iter_mut().find(|(held, _)| held == type_) {
            Some((_, held)) => *held = value,
            None => self.conditions.push((type_.to_owned(), value)),
        }
        self
    }

    /// The patch. `None` if it changes nothing: no request.
    pub fn into_patch(self) -> Option<Patch> {
        let Self { preconditions, mut changes, conditions } = self;
        if changes.is_empty() && conditions.is_empty() {
            return None;
        }
        if !conditions.is_empty() {
            let conditions: Vec<Value> = conditions.into_iter().map(|(_, value)| value).collect();
            put(&mut changes, &["status", "conditions"], conditions.into());
        }
        for (member, value) in preconditions {
            put(&mut changes, &["metadata", &member], value);
        }
        Some(Patch::Strategic(Value::Object(changes)))
    }
}

/// Writes `value` at `path`, below objects that are made where they are missing.
fn put(map: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [member] => drop(map.insert((*member).to_owned(), value)),
        [parent, rest @ ..] => {
            let holder = map.entry(*parent).or_insert(Value::Null);
            if !holder.is_object() {
                *holder = Value::Object(Map::new());
            }
            if let Value::Object(holder) = holder {
                put(holder, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

    fn claim() -> Meta {
        Meta { uid: "u1".into(), resource_version: Some("7".into()), ..Meta::default() }
    }

    fn body(patch: StrategicPatch) -> Value {
        patch.into_patch().map_or(Value::Null, |patch| json!(patch))
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The begin mark of a fresh expansion, as the resizer's specification writes it.
    #[test]
    fn one_patch_sets_members_and_merges_conditions() {
        let resizing = Condition {
            type_: "Resizing",
            status: "True",
            changed: Some(time("2026-01-01T00:00:00.987654Z")),
            ..Condition::default()
        };
        let begin = StrategicPatch::of(&claim(), Guard::Version)
            .remove(&["metadata", "annotations", NOT_REQUIRED])
            .set(&["status", "allocatedResources", "storage"], "20Gi")
            .set(&["status", "allocatedResourceStatuses", "storage"], "ControllerResizeInProgress")
            .set_condition(&resizing)
            .remove_condition("FileSystemResizePending")
            .remove_condition("NodeResizeError");
        assert_eq!(
            body(begin),
            json!({
                "metadata": { "uid": "u1", "resourceVersion": "7", "annotations": { NOT_REQUIRED: null } },
                "status": {
                    "allocatedResources": { "storage": "20Gi" },
                    "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
                    "conditions": [
                        { "type": "Resizing", "status": "True", "reason": null, "message": null,
                            "lastTransitionTime": "2026-01-01T00:00:00Z" },
                        { "$patch": "delete", "type": "FileSystemResizePending" },
                        { "$patch": "delete", "type": "NodeResizeError" },
                    ],
                },
            })
        );
    }

    #[test]
    fn a_condition_names_all_that_it_has_and_has_not() {
        let condition = Condition { type_: "ModifyingVolume", status: "True", ..Condition::default() };
        let bare = json!({ "type": "ModifyingVolume", "status": "True", "reason": null, "message": null });
        let full = json!({ "type": "ModifyingVolume", "status": "True", "reason": "Internal", "message": "no room",
            "lastProbeTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        for (condition, expected) in [
            (condition.clone(), bare),
            (
                Condition {
                    reason: "Internal",
                    message: "no room",
                    probed: Some(time("2026-01-02T03:04:05Z")),
                    changed: Some(time("2026-01-01T00:00:00Z")),
                    ..condition
                },
                full,
            ),
        ] {
            let patch = StrategicPatch::of(&claim(), Guard::Uid).set_condition(&condition);
            let status = json!({ "conditions": [expected] });
            assert_eq!(body(patch), json!({ "metadata": { "uid": "u1" }, "status": status }));
        }
    }

    #[test]
    fn a_guard_says_how_much_must_be_as_it_was() {
        let change = |meta: &Meta, guard| StrategicPatch::of(meta, guard).set(&["status", "x"], 1);
        for (meta, guard, expected) in [
            (claim(), Guard::Uid, json!({ "uid": "u1" })),
            (claim(), Guard::Version, json!({ "uid": "u1", "resourceVersion": "7" })),
        ] {
            assert_eq!(body(change(&meta, guard)), json!({ "metadata": expected, "status": { "x": 1 } }), "{guard:?}");
        }
        let forged = change(&claim(), Guard::Uid).set(&["metadata", "uid"], "u2");
        assert_eq!(body(forged)["metadata"], json!({ "uid": "u1" }), "a change does not replace a precondition");
    }

    #[test]
    fn the_later_of_two_changes_counts_and_no_change_is_no_request() {
        let of = || StrategicPatch::of(&claim(), Guard::Version);
        assert_eq!(of().into_patch(), None);
        assert_eq!(of().set(&[], "x").into_patch(), None);
        let set = Condition { type_: "A", status: "True", ..Condition::default() };
        for (patch, expected) in [
            (of().set(&["a", "b"], 1).set(&["a", "c"], 2), json!({ "a": { "b": 1, "c": 2 } })),
            (of().set(&["a", "b"], 1).remove(&["a"]), json!({ "a": null })),
            (of().remove(&["a"]).set(&["a", "b"], 1), json!({ "a": { "b": 1 } })),
            (
                of().set_condition(&set).remove_condition("B").remove_condition("A"),
                json!({ "status": { "conditions": [
                    { "$patch": "delete", "type": "A" }, { "$patch": "delete", "type": "B" } ] } }),
            ),
        ] {
            let mut expected = expected;
            expected["metadata"] = json!({ "uid": "u1", "resourceVersion": "7" });
            assert_eq!(body(patch), expected);
        }
    }
}
