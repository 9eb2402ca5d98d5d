//! What people and backup tools do to the journal.

use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use crate::journal::{Origin, SPOILT};
use crate::mutants::Mutant;
use crate::play::{Play, Step};
use crate::world::{LEASE, text};

/// Something that is done to the journal. Objects and entries go by their rank among those that are there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meddling {
    DropSegment(usize),
    DropEntry(usize),
    SpoilSegment {
        rank: usize,
        away: Duration,
    },
    /// A user restores an old copy.
    Restore {
        rank: usize,
        place: Restore,
    },
}

/// Where an old object of the journal is put.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Restore {
    /// Its entries into the object of its name.
    There,
    /// In the place of the object of its name.
    Anew,
    /// Under the name of another segment.
    Elsewhere,
}

impl Play {
    /// People meddle with the journal.
    pub(crate) fn meddle(&mut self, meddling: Meddling) {
        let segments: Vec<String> = self.model().journal.segments.keys().cloned().collect();
        let nth = |rank: usize| (!segments.is_empty()).then(|| segments[rank % segments.len()].clone());
        match meddling {
            Meddling::DropSegment(rank) => {
                let Some(name) = nth(rank) else { return };
                let _ = self.api().delete::<ConfigMap>(LEASE.0, &name);
            }
            Meddling::DropEntry(rank) => {
                let entries: Vec<(String, String)> = {
                    let model = self.model();
                    let of = model.journal.segments.iter();
                    of.flat_map(|(name, lines)| lines.keys().map(|key| (name.clone(), key.clone()))).collect()
                };
                if !entries.is_empty() {
                    let (name, key) = &entries[rank % entries.len()];
                    self.patch_segment(name, &json!({ key: null }));
                }
            }
            Meddling::SpoilSegment { rank, away } => {
                let Some(name) = nth(rank) else { return };
                self.patch_segment(&name, &json!({ SPOILT: "{" }));
                self.after(away, Step::RepairJournal);
            }
            Meddling::Restore { rank, place } => self.restore(rank, place),
        }
    }

    /// An object of the journal comes back as it was once.
    fn restore(&self, rank: usize, place: Restore) {
        let old = {
            let model = self.model();
            let saved = &model.journal.saved;
            // The newest ones most often.
            let from = if rank.is_multiple_of(2) { saved.len().saturating_sub(3) } else { 0 };
            saved.get(from..).filter(|of| !of.is_empty()).map(|of| of[rank % of.len()].clone())
        };
        let Some(old) = old else { return };
        let name = text(&old, "/metadata/name");
        let name = match place {
            Restore::There => return self.patch_segment(name, &old["data"]),
            Restore::Anew => name.to_owned(),
            Restore::Elsewhere => format!("{}-{}", name.rsplit_once('-').map_or(name, |(stem, _)| stem), rank % 4),
        };
        let _ = self.api().delete::<ConfigMap>(LEASE.0, &name);
        let meta = json!({ "namespace": LEASE.0, "name": name, "labels": old["metadata"]["labels"],
            "annotations": old["metadata"]["annotations"] });
        if self.world.mutant == Some(Mutant::ForgedCopies) {
            self.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta }));
            return self.forge(&name, &old["data"]);
        }
        self.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": old["data"] }));
    }

    /// Writes entries as if they had been written for this object.
    fn forge(&self, name: &str, data: &Value) {
        let Ok(object) = self.api().get::<ConfigMap>(LEASE.0, name) else { return };
        let uid = object.metadata.uid.unwrap_or_default();
        let data = data.as_object().into_iter().flatten();
        let forged: Map<String, Value> = data
            .filter_map(|(key, line)| {
                let mut line: Value = serde_json::from_str(line.as_str()?).ok()?;
                line["in"] = uid.clone().into();
                Some((key.clone(), line.to_string().into()))
            })
            .collect();
        self.patch_segment(name, &forged.into());
    }

    /// The damage is repaired.
    pub(crate) fn repair_journal(&self) {
        let segments: Vec<String> = self.model().journal.segments.keys().cloned().collect();
        for name in segments {
            self.patch_segment(&name, &json!({ SPOILT: null }));
        }
    }

    /// People do as the status page says: they delete what they have put back.
    pub(crate) fn dismiss(&self) {
        let segments = self.model().journal.segments.clone();
        for (name, lines) in segments {
            let theirs = lines.into_iter().filter(|(_, line)| line.origin != Origin::Daemon);
            let theirs: Map<String, Value> = theirs.map(|(key, _)| (key, Value::Null)).collect();
            self.patch_segment(&name, &theirs.into());
        }
    }

    fn patch_segment(&self, name: &str, data: &Value) {
        let _ = self.api().patch::<ConfigMap>(LEASE.0, name, PatchBody::Merge(json!({ "data": data })));
    }
}
