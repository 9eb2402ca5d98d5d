//! In-tree volumes as the CSI drivers see them that have taken their plugins over, and back (migration spec). Pure.
//!
//! ```text
//!   PersistentVolume, pod's volume, StorageClass          PersistentVolume that the driver has made
//!        with an in-tree source or plugin                        for a class of the plugin
//!                     │                                                    │
//!      volume_to_csi · pod_volume_to_csi · class_to_csi             volume_to_in_tree
//!                     v                                                    v
//!          what the driver is called with                        what the cluster stores
//! ```
//!
//! - **One in-tree plugin per driver, one driver per plugin.** [`InTree`](crate::cluster::InTree) is the table; nothing is
//!   configured. [`csi_form()`] refuses a volume whose plugin's successor is not the driver that this daemon stands beside.
//! - **Handles are the Go library's, byte for byte**: kubelet and kube-controller-manager hash them into names. A test of the cluster
//!   suite compares each answer with `k8s.io/csi-translation-lib`'s, over thousands of objects.
//! - **Where the library loses something, crashes or takes its pick by chance, this does not.** Each such place says so.
//! - **Nothing is written that says who serves a volume**: `pv.kubernetes.io/migrated-to` is kube-controller-manager's.
//!
//! Imports only the types of `cluster`.

mod class;
mod csi_form;
mod csi_volume;
mod ebs_id;
mod error;
mod handles;
mod in_tree;
mod pod_volume;
mod regions;
#[cfg(test)]
mod tests;
mod topology;
mod volume;

pub use class::class_to_csi;
pub use csi_form::{NotServed, csi_form, csi_volume};
pub use csi_volume::CsiVolume;
pub use error::{EbsIdError, RegionError, TranslationError};
pub use handles::repair_handle;
pub use in_tree::volume_to_in_tree;
pub use pod_volume::{PodVolume, pod_volume_to_csi};
pub use volume::volume_to_csi;
