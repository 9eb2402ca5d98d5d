//! What is to be done, many times over: the objects, when one is done, and what the driver was asked.

mod all;
pub(crate) mod attach;
mod both;
mod capacity;
mod pods;
mod provision;
mod resize;
mod snapshot;

use std::collections::BTreeMap;
use std::ops::Range;

use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::Value;

pub(crate) use all::All;
pub(crate) use attach::Attach;
pub(crate) use both::Both;
pub(crate) use capacity::Capacity;
pub(crate) use pods::{MANAGER, Pods};
pub(crate) use provision::Provision;
pub(crate) use resize::Resize;
pub(crate) use snapshot::Snapshot;

use crate::arguments::Arguments;
use crate::support;
use crate::write::{Placed, Write, Writes};

/// What the bench itself puts there, in the place of users and of controllers.
pub(crate) enum There {
    /// An object, and its status if it has one.
    Object(Placed, Option<Value>),
    /// A claim and its volume, as the PersistentVolume controller leaves them: bound to each other.
    Bound { claim: Placed, volume: Placed },
}

impl There {
    /// An object without a status.
    pub(crate) fn plain(placed: Placed) -> Self {
        Self::Object(placed, None)
    }

    /// The same of another driver.
    pub(crate) fn of(self, driver: &str) -> Self {
        let spelled = |driver: &str| driver.replace('.', "-");
        let moved = |object: &Value| -> Value {
            let text = object.to_string().replace(support::DRIVER, driver);
            serde_json::from_str(&text.replace(&spelled(support::DRIVER), &spelled(driver))).unwrap()
        };
        let placed = |it: Placed| Placed { object: moved(&it.object), ..it };
        match self {
            Self::Object(object, status) => Self::Object(placed(object), status),
            Self::Bound { claim, volume } => Self::Bound { claim: placed(claim), volume: placed(volume) },
        }
    }

    /// The collection of an object that is not bound to another.
    pub(crate) fn collection(&self) -> Option<&'static str> {
        match self {
            Self::Object(placed, _) => Some(placed.collection),
            Self::Bound { .. } => None,
        }
    }
}

/// What an event says of the work on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// It is wanted, from now on.
    Begun,
    /// It is done.
    Done,
    /// It is to be undone.
    Deleted,
    /// It is undone.
    Gone,
}

/// What an event says: of which object, by its name, and what. The flag: it was the event of a deletion.
pub(crate) type Reading = fn(&Value, bool) -> (String, Vec<Moment>);

/// What an event says of an object that is wanted until it is deleted.
fn life(object: &Value, is_done: bool, has_ended: bool) -> (String, Vec<Moment>) {
    let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
    let mut moments = vec![Moment::Begun];
    if is_done && !is_deleted && !has_ended {
        moments.push(Moment::Done);
    }
    if is_deleted || has_ended {
        moments.push(Moment::Deleted);
    }
    if has_ended {
        moments.push(Moment::Gone);
    }
    (object["metadata"]["name"].as_str().unwrap().to_owned(), moments)
}

/// A request to have something undone.
pub(crate) enum Undo {
    /// An object is deleted.
    Delete(&'static str, String),
    /// This is merged into an object or into its status: collection, name, subresource, patch.
    Merge(&'static str, String, &'static str, Value),
}

/// What a workload is, in names.
pub(crate) struct Facts {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// The sidecars whose work it is.
    pub(crate) sidecars: &'static [&'static str],
    /// What doing and undoing it is called.
    pub(crate) verbs: [&'static str; 2],
    /// Where the objects are that are to be done.
    pub(crate) collection: &'static str,
    /// The collections whose events tell how far an object is.
    pub(crate) watched: &'static [&'static str],
    /// What they tell.
    pub(crate) reading: Reading,
    /// The resources that a contender's requests for it are about.
    pub(crate) resources: &'static [&'static str],
    /// The Leases of its contenders.
    pub(crate) leases: &'static [&'static str],
    /// The RPCs that do and undo it.
    pub(crate) methods: [Method; 2],
}

/// What is to be done, many times over.
pub(crate) trait Workload: Send + Sync {
    /// What it is, in names.
    fn facts(&self) -> Facts;
    /// What its scenarios' names begin with.
    fn prefix(&self) -> String {
        format!("{}-", self.facts().name)
    }
    /// Whether it is about telling the scheduler how much room there is.
    fn tells_capacity(&self) -> bool {
        false
    }
    /// Whether the cluster has the kinds of snapshots.
    fn has_snapshots(&self) -> bool {
        false
    }
    /// Whether its contenders elect a leader while they are idle: what they then ask for is part of what they cost.
    fn elects_when_idle(&self) -> bool {
        false
    }
    /// How many objects there are in the end, where nobody asks for them one by one.
    fn size(&self) -> usize {
        0
    }
    /// Whether a scenario of this kind says something about it.
    fn suits(&self, kind: &str) -> bool;
    /// Whether a contender without a throttle, too, may stand still for a quarter of an hour, so that everyone is cut at the bound.
    fn may_stall(&self) -> bool {
        false
    }
    /// Whether doing it again, after it was undone, is other work.
    fn repeats(&self) -> bool {
        false
    }
    /// What is asked for to have an object undone: its name, and that of what was made of it.
    fn undo(&self, name: &str, made: &str) -> Vec<Undo>;
    /// What is asked for to have an object that is not done left alone.
    fn give_up(&self, name: &str, made: &str) -> Vec<Undo> {
        self.undo(name, made)
    }
    /// Every collection that holds objects of one time. They are emptied before the next.
    fn collections(&self) -> Vec<&'static str>;

    /// What is there before everything else.
    fn ground(&self) -> Vec<Placed>;
    /// What is there before the object of this number.
    fn before(&self, number: usize) -> Vec<There>;
    /// The object of this number.
    fn object(&self, number: usize) -> Value;
    /// What has the object of this number done: it is created, unless it is there before.
    fn begin(&self, number: usize) -> Vec<Write> {
        vec![Write::Create(Placed { collection: self.facts().collection, object: self.object(number) })]
    }
    /// Whether the bench attaches what a contender has made an attachment for.
    fn is_attached_here(&self) -> bool {
        false
    }
    /// All that there is once it is done.
    fn settled(&self, number: usize) -> Vec<There>;

    /// What has to be written for an object until it is done, by the name of the contender that writes nothing else:
    /// for [`crate::bare`].
    fn bare(&self) -> &'static [(&'static str, Writes)] {
        &[]
    }

    /// The driver.
    fn profile(&self) -> Profile;
    /// What the driver has to know before.
    fn seed(&self, driver: &Driver, numbers: Range<usize>) {
        let handles: Vec<String> = numbers.map(support::handle).collect();
        driver.seed(handles.iter().map(String::as_str));
    }
    /// What it would know if all of these were done.
    fn seed_done(&self, driver: &Driver, numbers: Range<usize>);
}

/// Those that were asked for.
pub(crate) fn chosen(arguments: &Arguments) -> Vec<Box<dyn Workload>> {
    let capacity = Capacity { segments: arguments.segments };
    let all: [Box<dyn Workload>; 9] = [
        Box::new(Attach),
        Box::new(Provision),
        Box::new(Resize),
        Box::new(Snapshot { polls: 0 }),
        Box::new(Snapshot { polls: 3 }),
        Box::new(Both),
        Box::new(All),
        Box::new(capacity),
        Box::new(Pods),
    ];
    all.into_iter().filter(|one| Arguments::wants(&arguments.workloads, one.facts().name)).collect()
}

/// How many calls of this method came beyond one for each volume.
pub(crate) fn duplicates(driver: &Driver, method: Method) -> usize {
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in driver.calls_of(method) {
        *calls.entry(call.name.clone().or_else(|| call.volume.clone()).unwrap_or_default()).or_default() += 1;
    }
    calls.values().map(|count| count - 1).sum()
}
