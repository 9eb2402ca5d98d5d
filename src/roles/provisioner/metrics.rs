//! The metrics of the provisioner. Those that do not begin with `csi_control_plane_` are csi-provisioner's.

use super::sidecar::SIDECAR;
use crate::telemetry::names::{Foreign, Kind, NOT_HERE, NOT_HERE_UNTIL_1_36, metrics};

/// Prometheus' own buckets, where csi-provisioner uses them.
const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// From the least pause between two answers over the default poll, which comes after 60 to 66 seconds, to an hour.
const AGE_BUCKETS: &[f64] = &[1.0, 5.0, 15.0, 30.0, 60.0, 70.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// The metrics of csi-provisioner that this daemon does not have.
pub const FOREIGN: &[&[Foreign]] = &[
    NOT_HERE,
    NOT_HERE_UNTIL_1_36,
    &[
        Foreign { name: "promhttp_metric_handler_requests_in_flight", why: SCRAPES },
        Foreign { name: "promhttp_metric_handler_requests_total", why: SCRAPES },
    ],
];
const SCRAPES: &str = "about scrapes; Prometheus has `scrape_duration_seconds` and `up`";

metrics! {
    /// Volumes created.
    PROVISION_TOTAL = "controller_persistentvolumeclaim_provision_total", Kind::Counter, ["class", "source"],
        "Total number of persistent volumes provisioned succeeded. Broken down by storage class name and source of the claim.", of SIDECAR.name;
    /// Failed attempts to create a volume.
    PROVISION_FAILED = "controller_persistentvolumeclaim_provision_failed_total", Kind::Counter, ["class", "source"],
        "Total number of persistent volume provision failed attempts. Broken down by storage class name and source of the claim.", of SIDECAR.name;
    /// Seconds to create a volume.
    PROVISION_DURATION = "controller_persistentvolumeclaim_provision_duration_seconds", Kind::Histogram(DEFAULT_BUCKETS), ["class", "source"],
        "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. Broken down by storage class name and source of the claim.", of SIDECAR.name;
    /// Volumes deleted.
    DELETE_TOTAL = "controller_persistentvolume_delete_total", Kind::Counter, ["class"],
        "Total number of persistent volumes deleted succeeded. Broken down by storage class name.", of SIDECAR.name;
    /// Failed attempts to delete a volume.
    DELETE_FAILED = "controller_persistentvolume_delete_failed_total", Kind::Counter, ["class"],
        "Total number of persistent volume delete failed attempts. Broken down by storage class name.", of SIDECAR.name;
    /// Seconds to delete a volume.
    DELETE_DURATION = "controller_persistentvolume_delete_duration_seconds", Kind::Histogram(DEFAULT_BUCKETS), ["class"],
        "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. Broken down by storage class name.", of SIDECAR.name;
    /// Capacity objects that should exist.
    CAPACITY_GOAL = "csistoragecapacities_desired_goal", Kind::Gauge, [], "Number of CSIStorageCapacity objects that are supposed to be managed automatically.", of SIDECAR.name;
    /// Capacity objects that exist and should.
    CAPACITY_CURRENT = "csistoragecapacities_desired_current", Kind::Gauge, [], "Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.", of SIDECAR.name;
    /// Capacity objects that exist and should not.
    CAPACITY_OBSOLETE = "csistoragecapacities_obsolete", Kind::Gauge, [], "Number of CSIStorageCapacity objects that exist and will be deleted automatically. Objects that exist and may need an update are not considered obsolete and therefore not included in this value.", of SIDECAR.name;
    /// Age of the oldest capacity.
    CAPACITY_OLDEST = "csi_control_plane_capacity_oldest_age_seconds", Kind::Gauge, ["driver_name"],
        "Age of the oldest capacity: seconds since the driver answered for the class and segment. One without an answer counts from when it was wanted.";
    /// How old capacities become.
    CAPACITY_REPLACED_AGE = "csi_control_plane_capacity_replaced_age_seconds", Kind::Histogram(AGE_BUCKETS), ["driver_name"],
        "How old the last capacity of a class in a segment was when the driver answered the next one: seconds between two answers.";
    /// Age of the oldest claim without a volume.
    CLAIMS_OLDEST = "csi_control_plane_claims_oldest_pending_age_seconds", Kind::Gauge, ["driver_name"],
        "Seconds since the oldest pending claim for this driver was created, or got a node if it waits for its first pod.";
    /// Claims for which the driver has given no final answer.
    CLAIMS_IN_BACKGROUND = "csi_control_plane_claims_in_background", Kind::Gauge, ["driver_name"],
        "Claims for which the driver may still be creating a volume after its call has ended.";
    /// Volumes that exist at the driver and have no PersistentVolume yet.
    UNSAVED_VOLUMES = "csi_control_plane_unsaved_volumes", Kind::Gauge, ["driver_name"],
        "Volumes that were created but whose PersistentVolume could not be written yet.";
    /// Requests of an earlier leader that this leader continued.
    VOLUMES_RESUMED = "csi_control_plane_volumes_resumed_total", Kind::Counter, ["driver_name", "result"],
        "Claims whose volume an earlier leader had begun to create, by result: saved, found (already stored), reclaimed, left (another PersistentVolume has the volume), finished or reschedule (the driver's final refusal), left_over (kept without proof that no PersistentVolume was stored), abandoned (the node is gone).";
    /// Volumes that no claim wanted any more and that were deleted again.
    VOLUMES_RECLAIMED = "csi_control_plane_volumes_reclaimed_total", Kind::Counter, ["driver_name"],
        "Volumes that were created for a claim that no longer wants them, and deleted again.";
}
