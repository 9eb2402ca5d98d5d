//! Values of the API's enumerations that the daemon does not know (`docs/spec/values.md`): each is logged once for its object, and is a
//! row of the status page for as long as the object has it. Such a value often means that nothing is done, which must not be silent.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::cluster::{Cached, Change, ObjectName, PersistentVolume};
use crate::diagnostics::{Cell, Table, table};
use crate::process::Clock;

use super::controllers::Controllers;
use super::report::FailureLog;

/// The status page's table.
const TABLE: Table = table! {
    "unknownValues", "Values that are not known":
        text("object", "object"), text("field", "field"), text("value", "value"), text("follows", "what follows")
};

/// The access modes of volumes and claims.
const ACCESS_MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
/// The modes of volumes and claims.
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

/// A value that is not among the known ones of its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownValue {
    /// The path of the field.
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// What the daemon does because of it.
    pub follows: &'static str,
}

impl UnknownValue {
    /// `None`: the value is known, or not set.
    pub fn find(field: &'static str, value: Option<&str>, known: &[&str], follows: &'static str) -> Option<Self> {
        let value = value.filter(|value| !value.is_empty() && !known.contains(value))?;
        Some(Self { field, value: value.to_owned(), follows })
    }
}

/// An unknown `spec.volumeMode` of a claim or a volume.
pub fn of_volume_mode(mode: Option<&str>) -> Option<UnknownValue> {
    UnknownValue::find("spec.volumeMode", mode, VOLUME_MODES, "the volume counts as a file system")
}

/// Unknown values of the volumes of a driver, which are to be attached or changed.
pub fn of_served_volumes(driver: String) -> impl Fn(&PersistentVolume) -> Vec<UnknownValue> + Send + Sync + 'static {
    move |volume| if volume.served_by() == Some(driver.as_str()) { of_served_volume(volume) } else { Vec::new() }
}

fn of_served_volume(volume: &PersistentVolume) -> Vec<UnknownValue> {
    let follows = "ignored beside a known mode; without one the volume is refused";
    let mode = |mode| UnknownValue::find("spec.accessModes", Some(mode), ACCESS_MODES, follows);
    let modes = volume.spec.access_modes.iter().filter_map(|it| mode(it.as_str()));
    of_volume_mode(volume.spec.volume_mode.as_deref()).into_iter().chain(modes).collect()
}

/// The unknown values that a role has seen in its term.
#[derive(Debug)]
pub struct UnknownValues {
    clock: Clock,
    /// By the object's uid.
    objects: Mutex<BTreeMap<String, Seen>>,
    log: FailureLog,
}

#[derive(Debug)]
struct Seen {
    kind: &'static str,
    name: ObjectName,
    values: Vec<UnknownValue>,
}

impl UnknownValues {
    /// None yet. The table is on the status page for as long as the term lasts.
    pub fn shown(clock: Clock, controllers: &mut Controllers) -> Arc<Self> {
        let values = Arc::new(Self { clock, objects: Mutex::default(), log: FailureLog::default() });
        controllers.show_table(&TABLE, &values, Self::rows);
        values
    }

    /// A trigger that looks at each object of a kind with `find`.
    pub fn of<K: Cached>(
        self: &Arc<Self>,
        find: impl Fn(&K) -> Vec<UnknownValue> + Send + Sync + 'static,
    ) -> impl Fn(&Change<K>) + Send + Sync + 'static {
        let values = Arc::clone(self);
        move |change| {
            if let Some(gone) = change.gone() {
                values.forget(&gone.meta().uid);
            }
            if let Some(new) = change.new.as_deref() {
                values.see(new, find(new));
            }
        }
    }

    /// The object has these unknown values, and no others.
    pub fn see<K: Cached>(&self, object: &K, found: Vec<UnknownValue>) {
        let uid = &*object.meta().uid;
        if found.is_empty() {
            self.forget(uid);
            return;
        }
        let (kind, name) = (K::KIND, ObjectName::of(object));
        let mut objects = self.objects.lock();
        let told = objects.get(uid).map(|seen| seen.values.as_slice()).unwrap_or_default();
        for value in found.iter().filter(|value| !told.contains(value)) {
            self.log(kind, &name, value);
        }
        objects.insert(uid.to_owned(), Seen { kind, name, values: found });
    }

    /// The object is gone.
    fn forget(&self, uid: &str) {
        self.objects.lock().remove(uid);
    }

    /// The objects of a kind in a namespace are not watched any more.
    pub fn forget_all(&self, kind: &str, namespace: &str) {
        self.objects.lock().retain(|_, seen| seen.kind != kind || seen.name.namespace() != Some(namespace));
    }

    /// The rows of the status page.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let objects = self.objects.lock();
        let row = |seen: &Seen, value: &UnknownValue| {
            let object = format!("{} {}", seen.kind, seen.name);
            vec![object, value.field.to_owned(), value.value.clone(), value.follows.to_owned()]
        };
        let rows = |seen: &Seen| seen.values.iter().map(|value| row(seen, value)).collect::<Vec<Vec<String>>>();
        let mut rows: Vec<_> = objects.values().flat_map(rows).collect();
        rows.sort();
        rows.into_iter().map(|row| row.into_iter().map(Cell::from).collect()).collect()
    }

    /// A thousand objects with the same value are a warning for each step of a back-off, and lines at level debug.
    fn log(&self, kind: &str, name: &ObjectName, UnknownValue { field, value, follows }: &UnknownValue) {
        if let Some(left_out) = self.log.warns(&format!("{kind} {field} {value}"), self.clock.now()) {
            warn!(kind, object = %name, field, value, follows, left_out, "the API has a value that is not known");
        } else {
            debug!(kind, object = %name, field, value, follows, "the API has a value that is not known");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::kit::fixtures::{Warnings, change, merged};

    fn values() -> Arc<UnknownValues> {
        Arc::new(UnknownValues { clock: Clock::system(), objects: Mutex::default(), log: FailureLog::default() })
    }

    fn volume(name: &str, mode: &str) -> Value {
        json!({ "metadata": { "name": name, "uid": name }, "spec": { "volumeMode": mode } })
    }

    #[test]
    fn only_what_is_set_and_not_listed_is_unknown() {
        for (value, expected) in
            [(None, None), (Some(""), None), (Some("A"), None), (Some("a"), Some("a")), (Some("New"), Some("New"))]
        {
            let found = UnknownValue::find("field", value, &["A", "B"], "nothing");
            assert_eq!(found.map(|it| it.value).as_deref(), expected, "{value:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_told_once_for_its_object_and_shown_for_as_long_as_the_object_has_it() {
        let (values, warnings) = (values(), Warnings::begin());
        let look = values.of(of_served_volume);
        let shown = || {
            values
                .rows()
                .into_iter()
                .map(|row| row[..3].iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let odd = volume("a", "Tape");
        look(&change(None, Some(&odd)));
        look(&change(Some(&odd), Some(&merged(odd.clone(), json!({ "metadata": { "resourceVersion": "2" } })))));
        assert_eq!((shown(), warnings.count()), (vec!["PersistentVolume a spec.volumeMode Tape".to_owned()], 1));
        let modes = merged(odd.clone(), json!({ "spec": { "accessModes": ["ReadWriteOnce", "WriteOnly"] } }));
        look(&change(Some(&odd), Some(&modes)));
        assert_eq!((shown().len(), warnings.count()), (2, 2), "another value is another line");
        look(&change(Some(&modes), Some(&volume("a", "Block"))));
        assert_eq!(shown(), Vec::<String>::new(), "the value is gone");
        look(&change(None, Some(&odd)));
        let other = merged(volume("a", "Block"), json!({ "metadata": { "uid": "other" } }));
        look(&change(Some(&odd), Some(&other)));
        assert_eq!(shown(), Vec::<String>::new(), "another object has the name");
        look(&change(None, Some(&odd)));
        look(&change(Some(&odd), None));
        assert_eq!(shown(), Vec::<String>::new(), "the object is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_objects_with_one_value_are_a_thousand_rows_and_one_warning() {
        let (values, warnings) = (values(), Warnings::begin());
        let look = values.of(of_served_volume);
        for number in 0..1000 {
            look(&change(None, Some(&volume(&format!("pv-{number}"), "Tape"))));
        }
        assert_eq!((values.rows().len(), warnings.count()), (1000, 1));
    }
}
