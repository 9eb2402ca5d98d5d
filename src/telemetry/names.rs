//! Every metric, described. Where a Go sidecar has a metric of the same meaning, ours has its name, labels and buckets.

/// A metric's name, kind and help text.
#[derive(Debug)]
pub struct Metric {
    /// The name as scraped.
    pub name: &'static str,
    /// What is recorded.
    pub kind: Kind,
    /// The labels, in the order in which they are rendered.
    pub labels: &'static [&'static str],
    /// One sentence for the `# HELP` line.
    pub help: &'static str,
}

impl Metric {
    /// What it is measured in, as its name says.
    pub fn unit(&self) -> &'static str {
        if self.name.ends_with("_seconds") {
            "seconds"
        } else if self.name.ends_with("_bytes") {
            "bytes"
        } else {
            ""
        }
    }

    /// The Go sidecars that have a metric of this name, with these labels and the same meaning.
    pub fn of_go_sidecars(&self) -> Option<&'static str> {
        let families = [
            ("csi_sidecar_", "all (csi-lib-utils)"),
            ("workqueue_", "all (client-go)"),
            ("leader_election_", "all (client-go)"),
            ("controller_persistentvolume", "csi-provisioner"),
            ("csistoragecapacities_", "csi-provisioner"),
        ];
        families.into_iter().find(|(prefix, _)| self.name.starts_with(prefix)).map(|(_, sidecars)| sidecars)
    }
}

/// What Go sidecars expose and we do not. `tests/cluster` scrapes them and holds the list: neither more nor less.
#[derive(Debug)]
pub struct Foreign {
    /// The family's name; with a star at its end, all that begin so.
    pub name: &'static str,
    /// The sidecars that have it.
    pub sidecars: &'static [&'static str],
    /// Why it is not here, or what is here instead.
    pub why: &'static str,
}

impl Foreign {
    /// Whether a family is meant.
    pub fn covers(&self, family: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == family, |beginning| family.starts_with(beginning))
    }
}

const BOTH: &[&str] = &["csi-attacher", "csi-provisioner"];
const LINKED: &str = "of the API server's library, which is linked in: nothing of volumes";
const REGISTRY: &str = "of the registry of metrics itself";
const NETWORK: &str = "of the pod's network, which the kubelet's metrics have";
const SCRAPES: &str = "scrapes of itself; Prometheus has `scrape_duration_seconds` and `up`";

/// What dashboards of the Go sidecars may ask for in vain.
pub const NOT_HERE: &[Foreign] = &[
    Foreign { name: "go_*", sidecars: BOTH, why: "Go's runtime: it is no Go program" },
    Foreign { name: "aggregator_discovery_aggregation_count_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "aggregator_discovery_nopeer_requests_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "aggregator_discovery_peer_aggregated_cache_hits_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "aggregator_discovery_peer_aggregated_cache_misses_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_audit_event_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_audit_requests_rejected_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_client_certificate_expiration_seconds", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_storage_data_key_generation_duration_seconds", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_storage_data_key_generation_failures_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_storage_envelope_transformation_cache_misses_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_validation_declarative_validation_mismatch_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_validation_declarative_validation_panic_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_validation_duplicate_validation_error_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_webhooks_x509_insecure_sha1_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "apiserver_webhooks_x509_missing_san_total", sidecars: BOTH, why: LINKED },
    Foreign { name: "cardinality_enforcement_unexpected_categorizations_total", sidecars: BOTH, why: REGISTRY },
    Foreign { name: "disabled_metrics_total", sidecars: BOTH, why: REGISTRY },
    Foreign { name: "hidden_metrics_total", sidecars: BOTH, why: REGISTRY },
    Foreign { name: "registered_metrics_total", sidecars: BOTH, why: REGISTRY },
    Foreign { name: "process_network_receive_bytes_total", sidecars: BOTH, why: NETWORK },
    Foreign { name: "process_network_transmit_bytes_total", sidecars: BOTH, why: NETWORK },
    Foreign {
        name: "process_virtual_memory_max_bytes",
        sidecars: BOTH,
        why: "the limit of the address space, which nobody sets",
    },
    Foreign { name: "promhttp_metric_handler_requests_in_flight", sidecars: &["csi-provisioner"], why: SCRAPES },
    Foreign { name: "promhttp_metric_handler_requests_total", sidecars: &["csi-provisioner"], why: SCRAPES },
];

/// What a metric records.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A count that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution with these upper bounds, in seconds.
    Histogram(&'static [f64]),
}

/// csi-lib-utils' buckets for RPCs.
const RPC_BUCKETS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// component-base's buckets for work queues: ten decades from 10 ns. They multiply by ten, and two products are not the decimal
/// number; a bound is a label, so that the sum of theirs and ours needs the same.
const QUEUE_BUCKETS: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
/// Prometheus' own buckets, where theirs uses them.
const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From an attach on an idle machine to one that outlived several back-offs.
const OPERATION_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

macro_rules! metrics {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $kind:expr, [$($label:literal),*], $help:literal;)+) => {
        $($(#[$doc])* pub const $id: Metric = Metric { name: $name, kind: $kind, labels: &[$($label),*], help: $help };)+
        /// The catalogue: what `/metrics` can ever show.
        pub const ALL: &[Metric] = &[$($id),+];
    };
}

metrics! {
    /// Every RPC to the driver.
    CSI_OPERATIONS = "csi_sidecar_operations_seconds", Kind::Histogram(RPC_BUCKETS), ["driver_name", "method_name", "grpc_status_code"],
        "[ALPHA] Container Storage Interface operation duration with gRPC error code status total";
    /// Keys that wait for a worker.
    QUEUE_DEPTH = "workqueue_depth", Kind::Gauge, ["name"], "[ALPHA] Current depth of workqueue";
    /// Keys added.
    QUEUE_ADDS = "workqueue_adds_total", Kind::Counter, ["name"], "[ALPHA] Total number of adds handled by workqueue";
    /// Wait between add and start.
    QUEUE_WAIT = "workqueue_queue_duration_seconds", Kind::Histogram(QUEUE_BUCKETS), ["name"],
        "[ALPHA] How long in seconds an item stays in workqueue before being requested.";
    /// Time in a worker.
    QUEUE_WORK = "workqueue_work_duration_seconds", Kind::Histogram(QUEUE_BUCKETS), ["name"],
        "[ALPHA] How long in seconds processing an item from workqueue takes.";
    /// Sum of the ages of the work in progress.
    QUEUE_UNFINISHED = "workqueue_unfinished_work_seconds", Kind::Gauge, ["name"],
        "[ALPHA] How many seconds of work has been done that is in progress and hasn't been observed by work_duration.";
    /// Age of the oldest work in progress.
    QUEUE_LONGEST = "workqueue_longest_running_processor_seconds", Kind::Gauge, ["name"],
        "[ALPHA] How many seconds has the longest running processor for workqueue been running.";
    /// Delayed retries.
    QUEUE_RETRIES = "workqueue_retries_total", Kind::Counter, ["name"], "[ALPHA] Total number of retries handled by workqueue";
    /// Age of the oldest key not yet settled.
    QUEUE_OLDEST = "csi_control_plane_workqueue_oldest_age_seconds", Kind::Gauge, ["name"],
        "Seconds since the oldest key that is not yet settled was first added.";
    /// Whether this process leads.
    LEADER_STATUS = "leader_election_master_status", Kind::Gauge, ["name"],
        "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.";
    /// Slow renewals.
    LEADER_SLOWPATH = "leader_election_slowpath_total", Kind::Counter, ["name"],
        "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.";
    /// Requests to the Kubernetes API.
    API_REQUESTS = "csi_control_plane_api_requests_total", Kind::Counter, ["verb", "resource", "outcome"],
        "Requests to the Kubernetes API by verb, resource and outcome (ok or the error's kind). Of watches, and of the lists that fill the caches, only those that failed.";
    /// Objects held.
    CACHE_OBJECTS = "csi_control_plane_cache_objects", Kind::Gauge, ["kind"], "Objects held in the shared cache.";
    /// Lists made by a watch.
    CACHE_RELISTS = "csi_control_plane_cache_relists_total", Kind::Counter, ["kind"], "Lists made to start or restart the watch of a kind.";
    /// Broken watches.
    CACHE_WATCH_ERRORS = "csi_control_plane_cache_watch_errors_total", Kind::Counter, ["kind"], "Lists and watches of a kind that failed.";
    /// From creation to attached, from deletion to detached.
    OPERATION_DURATION = "csi_control_plane_attachment_duration_seconds", Kind::Histogram(OPERATION_BUCKETS), ["driver_name", "operation"],
        "Seconds from the moment a volume attachment was seen to want an operation (attach or detach) until it was done, retries included.";
    /// Failed attempts.
    OPERATION_ERRORS = "csi_control_plane_attachment_errors_total", Kind::Counter, ["driver_name", "operation", "error"],
        "Attempts to attach or detach that failed, by the error's label.";
    /// Attachments whose last attempt failed.
    OPERATION_FAILING = "csi_control_plane_attachments_failing", Kind::Gauge, ["driver_name", "operation"],
        "Volume attachments whose last attempt to attach or detach failed.";
    /// Reconciler passes.
    RECONCILE_PASSES = "csi_control_plane_reconcile_passes_total", Kind::Counter, ["driver_name", "result"],
        "Passes of ListVolumes over the driver, by result.";
    /// Duration of a pass.
    RECONCILE_DURATION = "csi_control_plane_reconcile_duration_seconds", Kind::Histogram(RPC_BUCKETS), ["driver_name"],
        "Seconds that one complete pass of ListVolumes took.";
    /// Confirmed mismatches.
    DRIFT = "csi_control_plane_drift_total", Kind::Counter, ["driver_name", "direction"],
        "Attachments whose recorded state and the driver's answer disagreed twice with nothing in flight, by direction (attach or detach).";
    /// Volumes made.
    PROVISION_TOTAL = "controller_persistentvolumeclaim_provision_total", Kind::Counter, ["class", "source"],
        "Total number of persistent volumes provisioned succeeded. Broken down by storage class name and source of the claim.";
    /// Attempts to make one that failed.
    PROVISION_FAILED = "controller_persistentvolumeclaim_provision_failed_total", Kind::Counter, ["class", "source"],
        "Total number of persistent volume provision failed attempts. Broken down by storage class name and source of the claim.";
    /// Time that it took.
    PROVISION_DURATION = "controller_persistentvolumeclaim_provision_duration_seconds", Kind::Histogram(DEFAULT_BUCKETS), ["class", "source"],
        "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. Broken down by storage class name and source of the claim.";
    /// Volumes deleted.
    DELETE_TOTAL = "controller_persistentvolume_delete_total", Kind::Counter, ["class"],
        "Total number of persistent volumes deleted succeeded. Broken down by storage class name.";
    /// Attempts to delete one that failed.
    DELETE_FAILED = "controller_persistentvolume_delete_failed_total", Kind::Counter, ["class"],
        "Total number of persistent volume delete failed attempts. Broken down by storage class name.";
    /// Time that it took.
    DELETE_DURATION = "controller_persistentvolume_delete_duration_seconds", Kind::Histogram(DEFAULT_BUCKETS), ["class"],
        "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. Broken down by storage class name.";
    /// Capacity objects wanted.
    CAPACITY_GOAL = "csistoragecapacities_desired_goal", Kind::Gauge, [], "Number of CSIStorageCapacity objects that are supposed to be managed automatically.";
    /// Those that exist.
    CAPACITY_CURRENT = "csistoragecapacities_desired_current", Kind::Gauge, [], "Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.";
    /// Those that should not.
    CAPACITY_OBSOLETE = "csistoragecapacities_obsolete", Kind::Gauge, [], "Number of CSIStorageCapacity objects that exist and will be deleted automatically. Objects that exist and may need an update are not considered obsolete and therefore not included in this value.";
    /// Age of the oldest claim without a volume.
    CLAIMS_OLDEST = "csi_control_plane_claims_oldest_pending_age_seconds", Kind::Gauge, ["driver_name"],
        "Seconds since the oldest claim that waits for us to make its volume was created, or was given a node if it waits for its first pod.";
    /// Claims of which the driver has not said the last word.
    CLAIMS_IN_BACKGROUND = "csi_control_plane_claims_in_background", Kind::Gauge, ["driver_name"],
        "Claims for which the driver beside us may be making a volume although its call has ended.";
    /// Volumes that exist in the driver alone.
    UNSAVED_VOLUMES = "csi_control_plane_unsaved_volumes", Kind::Gauge, ["driver_name"],
        "Volumes that were made but whose PersistentVolume could not be written yet.";
    /// Work of an earlier leader that was taken up.
    VOLUMES_RESUMED = "csi_control_plane_volumes_resumed_total", Kind::Counter, ["driver_name", "result"],
        "Claims whose volume an earlier leader had begun to make, by what became of them: saved, found (stored already), reclaimed, left (another's by now), finished or reschedule (the driver's final no), abandoned (its node is gone).";
    /// Volumes that were not left behind.
    VOLUMES_RECLAIMED = "csi_control_plane_volumes_reclaimed_total", Kind::Counter, ["driver_name"],
        "Volumes that were made for a claim that is no more, and deleted again.";
    /// Whether the driver answers.
    DRIVER_READY = "csi_control_plane_driver_ready", Kind::Gauge, ["driver_name"], "1 while the driver is connected and ready.";
    /// Connections made.
    DRIVER_CONNECTIONS = "csi_control_plane_driver_connections_total", Kind::Counter, [], "Connections made to the driver's socket.";
    /// Role state.
    ROLE_SERVING = "csi_control_plane_role_serving", Kind::Gauge, ["role"], "1 while the role serves a term.";
    /// Role restarts.
    ROLE_RESTARTS = "csi_control_plane_role_restarts_total", Kind::Counter, ["role"], "Terms of a role that ended in an error.";
    /// Tasks that ended unexpectedly.
    TASK_FAILURES = "csi_control_plane_task_failures_total", Kind::Counter, ["task"], "Tasks that ended although they should have gone on.";
    /// Kubernetes Events.
    EVENTS = "csi_control_plane_events_total", Kind::Counter, ["reason", "result"],
        "Kubernetes Events by reason: written, counted (the same again), dropped (over the budget, or the term ended), failed.";
    /// Changes of the configuration file.
    CONFIG_RELOADS = "csi_control_plane_config_reloads_total", Kind::Counter, ["result"],
        "Changes of the configuration file while running: applied, or refused (faults, needsRestart, noRole, unreadable).";
    /// Whether the file is in effect.
    CONFIG_LAST_SUCCESSFUL = "csi_control_plane_config_last_reload_successful", Kind::Gauge, [],
        "1 while the configuration file as it is now is in effect, 0 while it is refused and an older one stays.";
    /// When the file was last found good.
    CONFIG_LAST_SUCCESS = "csi_control_plane_config_last_reload_success_timestamp_seconds", Kind::Gauge, [],
        "When the configuration file was last found to be in effect or came into effect, at the start or after a change, in seconds since 1970.";
    /// Spans on their way to the collector.
    TRACE_SPANS = "csi_control_plane_trace_spans_total", Kind::Counter, ["outcome"],
        "Spans that reached the collector (exported), that it refused or did not answer for (failed), and that found the queue full (dropped).";
    /// What runs.
    BUILD_INFO = "csi_control_plane_build_info", Kind::Gauge, ["version"], "Always 1; the label says which version runs.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_histograms_have_rising_buckets() {
        let names: BTreeSet<_> = ALL.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(!buckets.is_empty() && buckets.windows(2).all(|w| w[0] < w[1]), "{}", metric.name);
            }
        }
    }
}
