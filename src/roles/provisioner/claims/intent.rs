//! What is written on a claim before the driver is asked for its volume, so that nothing is lost with this process. Pure.
//!
//! ```json
//! {"v":1,"driver":"d","name":"pvc-…","class":{"name":"gold","uid":"…"},"node":"n1","source":{"snapshot":"snap-1"},
//!  "keys":["zone"],"terms":[["z1"],["z2"]],"preferred":[1,0],"digest":"0011223344556677"}
//! ```
//!
//! A *hint*, which anyone who may edit the claim could have written. All that a request is made of is derived again from the
//! claim and its class. Taken from here is only what the cluster may have forgotten, the topology and its node, and that only
//! as far as the class allows it ([`Intent::verify`]); and the volume's name, which another configuration makes in another
//! way, and that only if it is made of the claim's own uid ([`Intent::name_rule`]). The digest tells whether what is derived
//! now is what was sent then. The source's handle, which its objects can't tell any more once they were taken away by force,
//! is taken from here for a claim that wants no volume any more, and what the driver makes of it is deleted, whatever the
//! class says: else an editor could ask for the content of anybody's snapshot.
//!
//! Terms stand in the order sent, each with a value for each key, `null` where it has none. `"doubtful":true` is added where
//! no error of the driver may be taken for its last word any more, `"unfit":true` where a volume that can't be used is being
//! deleted: whoever asks again must delete what it is given ([`ClaimState`](super::state::ClaimState)).

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::StorageClass;

use super::request::NameRule;
use crate::roles::provisioner::sources::source::ContentSource;
use crate::roles::provisioner::topology::{Requirement, Segment, allowed};

/// The one version there is.
const VERSION: u32 = 1;

/// The most that an intent may take: half of what all annotations of an object may have.
pub const MOST_BYTES: usize = 128 * 1024;

/// What was sent to the driver, as far as it can't be derived again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Who was asked.
    pub driver: String,
    /// The volume's name.
    pub name: Option<String>,
    /// The class's name.
    pub class: String,
    /// The class's uid.
    pub class_uid: String,
    /// The node that the scheduler had chosen.
    pub node: Option<String>,
    /// What the volume was to be made from.
    pub source: Option<ContentSource>,
    /// From where the volume had to be reachable.
    pub requirement: Option<Requirement>,
    /// Of the request: `Request::digest`.
    pub digest: String,
    /// A volume may exist whatever error the driver answers.
    pub doubtful: bool,
    /// The volume that the driver has made is being deleted.
    pub unfit: bool,
}

/// Why an intent can't be used. The claim still stands as one for which a volume may exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntentError {
    /// Not what we write.
    #[error("the annotation is not a provisioning intent: {0}")]
    Malformed(String),
    /// Written by a later version.
    #[error("the annotation has version {0}: expected {VERSION}")]
    Version(u32),
    /// Longer than any of ours.
    #[error("the annotation has {0} bytes: at most {MOST_BYTES} are written")]
    TooLong(usize),
    /// Another driver's.
    #[error("the annotation is of driver {found}: expected {expected}")]
    Driver {
        /// Whose.
        found: String,
        /// Ours.
        expected: String,
    },
    /// A place that the class does not allow.
    #[error("the annotation names the topology {place}, which StorageClass \"{class}\" does not allow")]
    NotAllowed {
        /// The place.
        place: String,
        /// The class.
        class: String,
    },
    /// No place, where the class allows only some.
    #[error("the annotation names no topology, and StorageClass \"{0}\" allows only some")]
    Anywhere(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: u32,
    driver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    class: WireClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<WireSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terms: Option<Vec<Vec<Option<String>>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preferred: Option<Vec<usize>>,
    digest: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    doubtful: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unfit: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireClass {
    name: String,
    uid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WireSource {
    Snapshot(String),
    Volume(String),
}

/// Only the version: another one may have any other shape.
#[derive(Deserialize)]
struct WireVersion {
    v: u32,
}

/// Makes a requirement one that an intent can hold. What is *sent* must have gone through here, or what is kept would not be it.
///
/// `others` is what the rest of the annotation needs at most: names of driver, class and node. Too many places are cut to the
/// most preferred ones that fit; those begin with the selected node's.
pub fn fit(requirement: Requirement, others: usize) -> Requirement {
    // Preferred places that are no requisite ones have no index; no planner makes them.
    let known: BTreeSet<&Segment> = requirement.requisite.iter().collect();
    let preferred: Vec<Segment> = requirement.preferred.iter().filter(|term| known.contains(term)).cloned().collect();
    let requirement = Requirement { preferred, ..requirement };
    let room = MOST_BYTES.saturating_sub(others);
    if written(&requirement) <= room {
        return requirement;
    }
    // Without an order every place is as good as the next.
    let order = if requirement.preferred.is_empty() { &requirement.requisite } else { &requirement.preferred };
    let (mut fits, mut too_many) = (0, order.len());
    while too_many - fits > 1 {
        let most = fits + (too_many - fits) / 2;
        if written(&first(&requirement, order, most)) <= room {
            fits = most;
        } else {
            too_many = most;
        }
    }
    // One place is always written: none would mean every place.
    first(&requirement, order, fits.max(1))
}

fn first(requirement: &Requirement, order: &[Segment], most: usize) -> Requirement {
    let kept: BTreeSet<&Segment> = order.iter().take(most).collect();
    let of = |terms: &[Segment]| terms.iter().filter(|term| kept.contains(term)).cloned().collect();
    Requirement { requisite: of(&requirement.requisite), preferred: of(&requirement.preferred) }
}

/// How many bytes a requirement takes in an intent.
fn written(requirement: &Requirement) -> usize {
    let (keys, terms, preferred) = columns(requirement);
    let parts = [serde_json::to_string(&keys), serde_json::to_string(&terms), serde_json::to_string(&preferred)];
    // And the names of the three members.
    parts.iter().flatten().map(String::len).sum::<usize>() + 32
}

/// Keys, rows of values, order of preference.
type Columns<'a> = (Vec<&'a str>, Vec<Vec<Option<&'a str>>>, Vec<usize>);

/// The requirement as columns: every key once, a row for each place, and the order of preference by row.
fn columns(requirement: &Requirement) -> Columns<'_> {
    let keys: BTreeSet<&str> = requirement.requisite.iter().flat_map(|term| term.pairs().map(|(key, _)| key)).collect();
    let terms = requirement.requisite.iter().map(|term| keys.iter().map(|key| term.get(key)).collect()).collect();
    let at: HashMap<&Segment, usize> = requirement.requisite.iter().enumerate().map(|(at, term)| (term, at)).collect();
    let preferred = requirement.preferred.iter().filter_map(|term| at.get(term).copied()).collect();
    (keys.into_iter().collect(), terms, preferred)
}

impl Intent {
    /// As it is written on the claim.
    pub fn encode(&self) -> String {
        let owned = |text: &str| text.to_owned();
        let (mut keys, mut terms, mut preferred) = (None, None, None);
        if let Some(requirement) = &self.requirement {
            let columns = columns(requirement);
            keys = Some(columns.0.into_iter().map(owned).collect());
            terms = Some(
                columns.1.into_iter().map(|row| row.into_iter().map(|value| value.map(owned)).collect()).collect(),
            );
            preferred = Some(columns.2);
        }
        let class = WireClass { name: self.class.clone(), uid: self.class_uid.clone() };
        let (driver, name, node) = (self.driver.clone(), self.name.clone(), self.node.clone());
        let source = self.source.clone().map(|source| match source {
            ContentSource::Snapshot(handle) => WireSource::Snapshot(handle),
            ContentSource::Volume(handle) => WireSource::Volume(handle),
        });
        let (digest, doubtful, unfit) = (self.digest.clone(), self.doubtful, self.unfit);
        let wire =
            Wire { v: VERSION, driver, name, class, node, source, keys, terms, preferred, digest, doubtful, unfit };
        // PackedMap and numbers alone: there is nothing that could not be written.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads what [`Self::encode`] wrote. Whoever wrote it: nothing of it is believed yet.
    pub fn parse(text: &str) -> Result<Self, IntentError> {
        if text.len() > MOST_BYTES {
            return Err(IntentError::TooLong(text.len()));
        }
        let malformed = |error: serde_json::Error| IntentError::Malformed(error.to_string());
        let WireVersion { v } = serde_json::from_str(text).map_err(malformed)?;
        if v != VERSION {
            return Err(IntentError::Version(v));
        }
        let wire: Wire = serde_json::from_str(text).map_err(malformed)?;
        let requirement = match (wire.keys, wire.terms, wire.preferred) {
            (None, None, None) => None,
            (Some(keys), Some(terms), Some(preferred)) => Some(requirement(&keys, &terms, &preferred)?),
            _ => return Err(odd("keys, terms and preferred belong together")),
        };
        Ok(Self {
            driver: wire.driver,
            name: wire.name,
            class: wire.class.name,
            class_uid: wire.class.uid,
            node: wire.node,
            source: wire.source.map(|source| match source {
                WireSource::Snapshot(handle) => ContentSource::Snapshot(handle),
                WireSource::Volume(handle) => ContentSource::Volume(handle),
            }),
            requirement,
            digest: wire.digest,
            doubtful: wire.doubtful,
            unfit: wire.unfit,
        })
    }

    /// How the volume's name was made, if it is one that the claim of this uid may have: or an editor could ask for somebody
    /// else's volume by its name.
    pub fn name_rule(&self, uid: &str) -> Option<NameRule> {
        NameRule::of(self.name.as_deref()?, uid)
    }

    /// Checks what may be taken from an intent against the class as it is now, and returns it: the requirement that was sent.
    ///
    /// `topology`: whether the driver takes requirements. A class that was replaced under the same name is the class that
    /// counts; the digest will tell that the request is another.
    pub fn verify(
        self,
        driver: &str,
        class: &StorageClass,
        topology: bool,
    ) -> Result<Option<Requirement>, IntentError> {
        if self.driver != driver {
            return Err(IntentError::Driver { found: self.driver, expected: driver.to_owned() });
        }
        let class_name = || class.metadata.name.to_string();
        let Some(requirement) = self.requirement.filter(|_| topology) else {
            // Asking for no place in particular would be a way round what the class allows.
            let is_free = !topology || class.allowed_topologies.is_empty();
            return if is_free { Ok(None) } else { Err(IntentError::Anywhere(class_name())) };
        };
        // Preferred places are requisite ones.
        match requirement.requisite.iter().find(|place| !allowed(place, &class.allowed_topologies)) {
            Some(place) => Err(IntentError::NotAllowed { place: place.to_string(), class: class_name() }),
            None => Ok(Some(requirement)),
        }
    }
}

fn odd(what: &str) -> IntentError {
    IntentError::Malformed(what.to_owned())
}

fn requirement(keys: &[String], rows: &[Vec<Option<String>>], order: &[usize]) -> Result<Requirement, IntentError> {
    if keys.iter().collect::<BTreeSet<_>>().len() != keys.len() || keys.iter().any(String::is_empty) {
        return Err(odd("a key is empty, or there twice"));
    }
    if rows.is_empty() {
        return Err(odd("there are no terms"));
    }
    let mut requisite = Vec::with_capacity(rows.len());
    for row in rows {
        if row.len() != keys.len() {
            return Err(odd("a term has not one value for each key"));
        }
        let pairs = keys.iter().zip(row).filter_map(|(key, value)| value.as_deref().map(|value| (key.as_str(), value)));
        let term = Segment::new(pairs);
        if term.is_empty() {
            return Err(odd("a term is empty"));
        }
        requisite.push(term);
    }
    if requisite.iter().collect::<BTreeSet<_>>().len() != requisite.len() {
        return Err(odd("a term is there twice"));
    }
    if order.iter().collect::<BTreeSet<_>>().len() != order.len() {
        return Err(odd("a preferred term is there twice"));
    }
    let preferred: Option<Vec<Segment>> = order.iter().map(|at| requisite.get(*at).cloned()).collect();
    let preferred = preferred.ok_or_else(|| odd("a preferred term is not there"))?;
    Ok(Requirement { requisite, preferred })
}

#[cfg(test)]
#[path = "intent_tests.rs"]
mod tests;
