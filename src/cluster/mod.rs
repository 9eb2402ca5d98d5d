//! The Kubernetes side: clients, caches, patches, events, and the names that are visible from outside.
//!
//! ```text
//!            ┌ work ──────> Api ──────── get, patch, secrets, Events
//!  Clients ──┼ watch ─────> Caches ───── one watch per kind ──> Cache<K> ──> subscribers
//!            └ election ──> (the elector)                          ^
//!                            Api's answers, applied ──────────────┘
//! ```
//!
//! - **Three sets of connections**, so that neither work nor watches can starve a Lease.
//! - **Cached objects only move forward**: versions are compared, and a complete list shows which objects are gone. Our
//!   own writes count as soon as the server has answered, before the watch delivers them.
//! - **Deletes are delivered**, also those that happened while no watch was open.
//! - **Credentials are renewed under the clients**, which never end for that: see `credentials`.
//! - **No write without a precondition, no request without a change, no retry without a decision.**
//!
//! Imports only `process` and `telemetry` of this crate. A pure file says so in its first lines.

mod access;
mod api;
mod cache;
mod caches;
mod certificate;
mod change;
mod clients;
mod config;
mod connections;
mod credentials;
mod error;
mod event_book;
mod events;
mod exec;
mod fanout;
mod foreign;
mod kubeconfig;
mod list_watch;
mod managers;
mod meta;
mod moment;
pub mod names;
mod objects;
mod outage;
mod packed_map;
mod packing;
mod pass;
pub mod patch;
pub mod rbac;
mod route;
mod scope;
mod shares;
mod slots;
mod subscription;
#[cfg(test)]
mod tests;
mod tls;
mod trouble;
mod verifier;
mod watch;
mod watch_error;
mod watch_events;

pub use access::{ClusterAccess, ConnectError, ServiceAccount};
pub use api::{Api, ApiOptions, History, SecretData, SecretNotText};
pub use base::{InTree, quantity};
pub use cache::{Cache, CacheStatus, Each, WriteTurn};
pub use caches::{Caches, Finds, Sighting, WatchHandle};
pub use change::{Change, Origin};
pub use clients::Clients;
pub use config::KubernetesSection;
pub use connections::ClientOptions;
pub use credentials::Credentials;
pub use error::{ApiError, ApiErrorKind, Verb};
pub use event_book::{EventKind, EventTarget};
pub use events::{EventRecorder, EventSource};
pub use fanout::{Fanout, News};
pub use managers::Managers;
pub use meta::Meta;
pub use moment::Moment;
pub use names::ObjectName;
pub use objects::{
    AttachedVolume, AwsDisk, AzureDisk, AzureFile, BY_ATTRIBUTES_CLASS, BY_CLAIM, BY_CLASS, BY_HANDLE, BY_NODE,
    BY_POD_CLAIM, BY_SELECTED_NODE, BY_SOURCE, BY_SUCCESSOR, BY_VOLUME, Cached, ClaimCondition, ClaimHealth, ClaimRef,
    ClaimResize, ClaimSpec, ClaimStatus, ConfigMap, ConfigMapMeta, ContentStatus, CsiDriver, CsiDriverSpec, CsiNode,
    CsiNodeDriver, CsiNodeSpec, CsiSource, CsiStorageCapacity, DataSource, Fields, GceDisk, GrantFrom, GrantTo,
    GroupMember, GroupSource, GroupStatus, HealthCondition, IdKind, InTreeSource, InTreeVolume, IndexName, Lease,
    LeaseSpec, MemberList, ModifyStatus, Node, NodeReady, NodeRequirement, NodeState, Object, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, Pod, PodAttach, Reach, ReferenceGrant, SecretRef, SnapshotError,
    StorageClass, ToldEvent, TopologyExpression, TopologySelectorTerm, UNSPECIFIED, VolumeAttachment,
    VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus, VolumeAttributesClass, VolumeById,
    VolumeError, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeResize, VolumeSnapshot,
    VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotStatus, VolumeSpec, VsphereVolume, source_key,
};
pub use outage::{Outage, OutageStatus};
pub use packed_map::PackedMap;
pub use packing::Packed;
pub use patch::Patch;
pub use scope::{Need, Viewpoint, WatchScope};
pub use smol_str::SmolStr;
pub use subscription::Subscription;
pub use tls::TlsError;
pub use watch_events::{WatchEvent, watch_events};
