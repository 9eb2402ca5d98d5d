//! Reads this node's `CSINode`: a kubelet that has lost the driver does not say so (node-and-health spec B4).
//!
//! Only with `csiNodeInterval`. It needs the API server, the right to read `CSINode`s, and the node's name. If it cannot read, nothing
//! is concluded, and the registration goes on as without.

use std::future::pending;

use serde_json::Value;
use tokio::time::sleep;
use tracing::warn;

use super::config::RegistrarSection;
use super::decide::{DriverSeen, Missing};
use super::shown::Shown;
use crate::cluster::rbac::Rule;
use crate::cluster::{ApiError, ConnectError, CsiNode, ObjectName};
use crate::config::RoleSection;
use crate::process::{error_chain, watch};
use crate::roles::{LocalContext, Reader};

/// Why it is not known whether the driver is there.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("NODE_NAME is not set: set it from the pod's spec.nodeName")]
    Node,
    #[error("cannot connect to the API server")]
    Connect(#[source] ConnectError),
    #[error("cannot read the CSINode")]
    Read(#[source] ApiError),
}

/// The right, if the section asks for it.
pub(super) fn rules(section: &Value) -> Vec<Rule> {
    let section: Option<RegistrarSection> = RoleSection::read(section).ok();
    let asks = section.is_some_and(|section| !section.csi_node_interval.is_zero());
    let reason = "announce the driver again if this node's CSINode has lost it";
    asks.then(|| Rule::cluster("storage.k8s.io", "csinodes", &["get"], reason)).into_iter().collect()
}

/// Looks for ever, as often as the section says.
pub(super) async fn watch_csi_node(
    cx: &LocalContext,
    mut sections: watch::Receiver<RegistrarSection>,
    driver: &watch::Receiver<DriverSeen>,
    shown: &Shown,
    missing: &watch::Sender<Option<Missing>>,
) {
    let (mut reader, mut told) = (None, None);
    loop {
        let pause = sections.borrow_and_update().csi_node_interval;
        if pause.is_zero() {
            (reader, told) = (None, None);
            missing.send_replace(None);
            shown.change(|shown| shown.csi_node = None);
        }
        let due = async { if pause.is_zero() { pending().await } else { sleep(pause).await } };
        tokio::select! {
            biased;
            changed = sections.changed() => {
                if changed.is_err() {
                    return pending().await;
                }
                continue;
            }
            () = due => {}
        }
        let Some(name) = driver.borrow().name.clone() else { continue };
        let text = match look(cx, &mut reader, &name).await {
            Ok(true) => {
                missing.send_replace(None);
                "has the driver".to_owned()
            }
            Ok(false) => {
                let now = cx.clock.now();
                missing.send_modify(|missing| *missing = Some(Missing::again(*missing, now)));
                "does not have the driver".to_owned()
            }
            Err(unknown) => {
                let reason = error_chain(&unknown);
                if told.as_ref() != Some(&reason) {
                    warn!(reason, "cannot see whether this node's CSINode has the driver");
                }
                told = Some(reason.clone());
                shown.change(|shown| shown.csi_node = Some(reason));
                continue;
            }
        };
        told = None;
        shown.change(|shown| shown.csi_node = Some(text));
    }
}

/// Whether the `CSINode` has the driver. A missing `CSINode` has none: the kubelet makes it with a registration.
async fn look(cx: &LocalContext, reader: &mut Option<Reader>, driver: &str) -> Result<bool, Unknown> {
    let node = cx.cluster.node.as_deref().ok_or(Unknown::Node)?;
    let reader = match reader {
        Some(reader) => reader,
        None => reader.insert(cx.cluster.connect(&cx.meter).await.map_err(Unknown::Connect)?),
    };
    let found = reader.get_opt::<CsiNode>(&ObjectName::cluster(node)).await.map_err(Unknown::Read)?;
    Ok(found.is_some_and(|found| found.node_id(driver).is_some()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_section_that_asks_for_it_needs_a_right() {
        assert!(rules(&json!({})).is_empty());
        let rules = rules(&json!({ "csiNodeInterval": "2m" }));
        let [rule] = rules.as_slice() else { panic!("{rules:?}") };
        assert_eq!(
            (rule.resource.as_str(), rule.verbs.iter().map(String::as_str).collect::<Vec<_>>()),
            ("csinodes", vec!["get"])
        );
    }
}
