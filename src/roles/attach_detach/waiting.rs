//! The pods that wait for volumes, and what each of them waits for, as the status page shows it.

use crate::cluster::ObjectName;
use crate::diagnostics::{Cell, Table, table};

use super::context::Context;
use super::volume::{news, observe};

/// The table.
pub(super) const TABLE: Table = table! {
    "waitingPods", "Pods that wait for volumes":
    text("pod", "pod"), text("node", "node"), text("volume", "volume"), error("waitsFor", "waits for")
};

/// Its rows.
pub(super) fn rows(cx: &Context) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for wishes in cx.memory.pods.collect(|wishes| Some(wishes.clone())) {
        let Some(pod) = &wishes.pod else { continue };
        let node = pod.node.as_deref().unwrap_or_default();
        let row = |volume: Option<String>, why: String| -> Vec<Cell> {
            let volume = volume.map_or(Cell::Nothing, Cell::from);
            vec![ObjectName::of(pod.as_ref()).to_string().into(), node.to_owned().into(), volume, why.into()]
        };
        rows.extend(wishes.open().map(|why| row(None, why.to_string())));
        for wish in wishes.wanted() {
            let view = observe(cx, &wish.id);
            rows.extend(news::waits(&view, node, pod).map(|why| row(Some(wish.id.to_string()), why)));
        }
    }
    rows
}
