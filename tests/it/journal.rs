//! The provisioner's journal as people see it: ConfigMaps in the daemons' namespace, with one entry for each claim
//! whose request has no final answer. This file is the contract of the stored form, so it uses no code of the daemon.

use std::collections::BTreeMap;

use csi_control_plane::roles::provisioner::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, settled, until_some};

/// On each segment: the driver.
pub(crate) const LABEL: &str = "csi-control-plane.io/journal";
/// On each segment: how its entries are written.
pub(crate) const VERSION: &str = "csi-control-plane.io/journal-version";
/// On each segment with node deployment: the node.
pub(crate) const NODE: &str = "csi-control-plane.io/node";
/// How many segments a journal has.
pub(crate) const SEGMENTS: usize = 16;
/// Where they are.
const NAMESPACE: &str = "kube-system";

/// The entries of these segments, by the claims' uids. What is no JSON is shown as the text that it is.
pub(crate) fn entries(segments: &[ConfigMap]) -> BTreeMap<String, Value> {
    let texts = segments.iter().flat_map(|it| it.data.iter().flatten());
    texts.map(|(uid, text)| (uid.clone(), serde_json::from_str(text).unwrap_or_else(|_| json!(text)))).collect()
}

impl World {
    /// The ConfigMaps beside the journal, its own included.
    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// The name of a segment of a daemon that is on no node in particular.
    pub(crate) fn segment(&self, number: usize) -> String {
        format!("{}-journal-{number}", names::lease(self.driver_name()))
    }

    /// The same with its namespace, as messages name it.
    pub(crate) fn segment_shown(&self, number: usize) -> String {
        format!("{NAMESPACE}/{}", self.segment(number))
    }

    /// The journal's objects, of every node.
    pub(crate) async fn segments(&self) -> Vec<ConfigMap> {
        let ours = ListParams::default().labels(&format!("{LABEL}={}", self.driver_name()));
        self.config_maps().list(&ours).await.unwrap().items
    }

    /// The journal's objects of one node.
    pub(crate) async fn segments_of(&self, node: &str) -> Vec<ConfigMap> {
        let mut segments = self.segments().await;
        segments.retain(|it| it.annotations().get(NODE).is_some_and(|of| of == node));
        segments
    }

    /// Waits until a node has no segment any more.
    pub(crate) async fn segments_gone(&self, node: &str) {
        settled("a node without segments", PATIENCE, async || {
            let left = self.segments_of(node).await;
            if left.is_empty() { Ok(()) } else { Err(format!("there are {left:#?}")) }
        })
        .await;
    }

    /// The journal's entries, by the claims' uids.
    pub(crate) async fn journal(&self) -> BTreeMap<String, Value> {
        entries(&self.segments().await)
    }

    /// Waits until the journal's entries satisfy a condition, and returns them.
    pub(crate) async fn journal_until(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        settled(what, PATIENCE, async || {
            let found = self.journal().await;
            if holds(&found) { Ok(found) } else { Err(format!("the journal holds {found:#?}")) }
        })
        .await
    }

    /// Whether the journal has an entry of the claim now.
    pub(crate) async fn is_recorded(&self, claim: &str) -> bool {
        self.journal().await.contains_key(&self.claim_uid(claim).await)
    }

    /// Waits until the journal has an entry of the claim, and returns it.
    pub(crate) async fn recorded(&self, claim: &str) -> Value {
        let uid = self.claim_uid(claim).await;
        self.journal_until(&format!("{claim} is recorded"), |it| it.contains_key(&uid)).await.remove(&uid).unwrap()
    }

    /// Waits until the journal has no entry of the claim any more.
    pub(crate) async fn forgotten(&self, claim: &str) {
        let uid = self.claim_uid(claim).await;
        self.journal_until(&format!("{claim} is forgotten"), |it| !it.contains_key(&uid)).await;
    }

    /// Waits until the journal has no entry at all.
    pub(crate) async fn journal_is_empty(&self) {
        self.journal_until("an empty journal", BTreeMap::is_empty).await;
    }

    /// Applies a merge patch to a segment by hand.
    pub(crate) async fn patch_segment(&self, name: &str, patch: Value) {
        self.config_maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Deletes a segment by hand.
    pub(crate) async fn delete_segment(&self, name: &str) {
        self.config_maps().delete(name, &DeleteParams::default()).await.unwrap();
        until_some(self.config_maps(), name, "gone", |it: Option<&ConfigMap>| it.is_none()).await;
    }

    /// Puts a segment in the place of what is there by hand, if anything is there: `sound` is one that was read before.
    pub(crate) async fn restore_segment(&self, sound: &ConfigMap) {
        let name = sound.name_any();
        let mut segment = sound.clone();
        let there = self.config_maps().get_opt(&name).await.unwrap();
        segment.metadata.uid = there.as_ref().and_then(|it| it.metadata.uid.clone());
        segment.metadata.resource_version = there.as_ref().and_then(|it| it.metadata.resource_version.clone());
        let params = PostParams::default();
        match there {
            Some(_) => drop(self.config_maps().replace(&name, &params, &segment).await.unwrap()),
            None => drop(self.config_maps().create(&params, &segment).await.unwrap()),
        }
    }

    /// Writes entries by hand, as a daemon before would have left them. There is a segment of this name already.
    pub(crate) async fn write_entries(&self, segment: &str, entries: &BTreeMap<String, Value>) {
        let texts: BTreeMap<&String, String> = entries.iter().map(|(uid, entry)| (uid, entry.to_string())).collect();
        self.patch_segment(segment, json!({ "data": texts })).await;
    }
}
