//! The metrics of what all roles share, described. Each role describes its own in its `metrics.rs`. Where a Go sidecar has a metric
//! of the same meaning, ours has its name, labels and buckets.

/// A metric's name, kind and help text.
#[derive(Debug, PartialEq)]
pub struct Metric {
    /// The name as scraped.
    pub name: &'static str,
    /// What is recorded.
    pub kind: Kind,
    /// The labels, in the order in which they are rendered.
    pub labels: &'static [&'static str],
    /// One sentence for the `# HELP` line.
    pub help: &'static str,
    /// The Go sidecars that have a metric of this name, with these labels and the same meaning; empty: it is ours alone.
    pub go: &'static [&'static str],
}

impl Metric {
    /// What it is measured in, as its name says.
    pub fn unit(&self) -> &'static str {
        if self.name.ends_with("_seconds") {
            "seconds"
        } else if self.name.ends_with("_bytes") {
            "bytes"
        } else if self.name.ends_with("_entries") {
            "entries"
        } else {
            ""
        }
    }

    /// The Go sidecars that have it, in words; `None`: it is ours alone.
    pub fn of_go_sidecars(&self) -> Option<&'static str> {
        self.go.first().copied()
    }
}

/// What a Go sidecar exposes and we do not. `tests/cluster` scrapes them and holds the lists: neither more nor less.
#[derive(Debug)]
pub struct Foreign {
    /// The family's name; with a star at its end, all that begin so.
    pub name: &'static str,
    /// Why it is not here, or what is here instead.
    pub why: &'static str,
}

impl Foreign {
    /// Whether a family is meant.
    pub fn covers(&self, family: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == family, |beginning| family.starts_with(beginning))
    }
}

/// Whose metrics those are that every Go sidecar has.
const LIB_UTILS: &str = "all (csi-lib-utils)";
const CLIENT_GO: &str = "all (client-go)";

const LINKED: &str = "from the linked API server library; not about volumes";
const REGISTRY: &str = "about the metrics registry itself";
const NETWORK: &str = "about the pod's network; the kubelet has such metrics";

/// What the sidecars have besides that are built with the libraries of Kubernetes 1.36 and before.
pub const NOT_HERE_UNTIL_1_36: &[Foreign] = &[
    Foreign { name: "aggregator_discovery_nopeer_requests_total", why: LINKED },
    Foreign { name: "aggregator_discovery_peer_aggregated_cache_hits_total", why: LINKED },
    Foreign { name: "aggregator_discovery_peer_aggregated_cache_misses_total", why: LINKED },
    Foreign { name: "apiserver_client_certificate_expiration_seconds", why: LINKED },
];

/// What every Go sidecar has from the libraries that all are built with, and dashboards may ask for in vain.
pub const NOT_HERE: &[Foreign] = &[
    Foreign { name: "go_*", why: "Go's runtime; the daemon is not a Go program" },
    Foreign { name: "aggregator_discovery_aggregation_count_total", why: LINKED },
    Foreign { name: "apiserver_audit_event_total", why: LINKED },
    Foreign { name: "apiserver_audit_requests_rejected_total", why: LINKED },
    Foreign { name: "apiserver_storage_data_key_generation_duration_seconds", why: LINKED },
    Foreign { name: "apiserver_storage_data_key_generation_failures_total", why: LINKED },
    Foreign { name: "apiserver_storage_envelope_transformation_cache_misses_total", why: LINKED },
    Foreign { name: "apiserver_validation_declarative_validation_mismatch_total", why: LINKED },
    Foreign { name: "apiserver_validation_declarative_validation_panic_total", why: LINKED },
    Foreign { name: "apiserver_validation_duplicate_validation_error_total", why: LINKED },
    Foreign { name: "apiserver_webhooks_x509_insecure_sha1_total", why: LINKED },
    Foreign { name: "apiserver_webhooks_x509_missing_san_total", why: LINKED },
    Foreign { name: "cardinality_enforcement_unexpected_categorizations_total", why: REGISTRY },
    Foreign { name: "disabled_metrics_total", why: REGISTRY },
    Foreign { name: "hidden_metrics_total", why: REGISTRY },
    Foreign { name: "registered_metrics_total", why: REGISTRY },
    Foreign { name: "process_network_receive_bytes_total", why: NETWORK },
    Foreign { name: "process_network_transmit_bytes_total", why: NETWORK },
    Foreign {
        name: "process_virtual_memory_max_bytes",
        why: "the limit of the address space, which is usually not set",
    },
];

/// What a metric records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A count that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution with these upper bounds, in the metric's unit.
    Histogram(&'static [f64]),
}

/// csi-lib-utils' buckets for RPCs.
pub const RPC_BUCKETS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// component-base's buckets for work queues: ten decades from 10 ns. They multiply by ten, and two products are not the decimal
/// number; a bound is a label, so that the sum of theirs and ours needs the same.
const QUEUE_BUCKETS: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// Entries of one commit, up to a burst of several hundred claims.
const COMMIT_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

/// Metrics as constants, and `ALL` of them.
macro_rules! metrics {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $kind:expr, [$($label:literal),*], $help:literal $(, of $go:expr)?;)+) => {
        $($(#[$doc])* pub const $id: $crate::telemetry::names::Metric = $crate::telemetry::names::Metric {
            name: $name,
            kind: $kind,
            labels: &[$($label),*],
            help: $help,
            go: &[$($go)?],
        };)+
        /// All of them.
        pub const ALL: &[$crate::telemetry::names::Metric] = &[$($id),+];
    };
}
pub(crate) use metrics;

metrics! {
    /// Every RPC to the driver.
    CSI_OPERATIONS = "csi_sidecar_operations_seconds", Kind::Histogram(RPC_BUCKETS), ["driver_name", "method_name", "grpc_status_code"],
        "[ALPHA] Container Storage Interface operation duration with gRPC error code status total", of LIB_UTILS;
    /// Keys that wait for a worker.
    QUEUE_DEPTH = "workqueue_depth", Kind::Gauge, ["name"], "[ALPHA] Current depth of workqueue", of CLIENT_GO;
    /// Keys added.
    QUEUE_ADDS = "workqueue_adds_total", Kind::Counter, ["name"], "[ALPHA] Total number of adds handled by workqueue", of CLIENT_GO;
    /// Wait between add and start.
    QUEUE_WAIT = "workqueue_queue_duration_seconds", Kind::Histogram(QUEUE_BUCKETS), ["name"],
        "[ALPHA] How long in seconds an item stays in workqueue before being requested.", of CLIENT_GO;
    /// Time in a worker.
    QUEUE_WORK = "workqueue_work_duration_seconds", Kind::Histogram(QUEUE_BUCKETS), ["name"],
        "[ALPHA] How long in seconds processing an item from workqueue takes.", of CLIENT_GO;
    /// Sum of the ages of the work in progress.
    QUEUE_UNFINISHED = "workqueue_unfinished_work_seconds", Kind::Gauge, ["name"],
        "[ALPHA] How many seconds of work has been done that is in progress and hasn't been observed by work_duration.", of CLIENT_GO;
    /// Age of the oldest work in progress.
    QUEUE_LONGEST = "workqueue_longest_running_processor_seconds", Kind::Gauge, ["name"],
        "[ALPHA] How many seconds has the longest running processor for workqueue been running.", of CLIENT_GO;
    /// Delayed retries.
    QUEUE_RETRIES = "workqueue_retries_total", Kind::Counter, ["name"], "[ALPHA] Total number of retries handled by workqueue", of CLIENT_GO;
    /// Age of the oldest key not yet settled.
    QUEUE_OLDEST = "csi_control_plane_workqueue_oldest_age_seconds", Kind::Gauge, ["name"],
        "Seconds since the oldest key that is not yet settled was first added.";
    /// Whether this process leads.
    LEADER_STATUS = "leader_election_master_status", Kind::Gauge, ["name"],
        "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", of CLIENT_GO;
    /// Slow renewals.
    LEADER_SLOWPATH = "leader_election_slowpath_total", Kind::Counter, ["name"],
        "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.", of CLIENT_GO;
    /// Requests to the Kubernetes API.
    API_REQUESTS = "csi_control_plane_api_requests_total", Kind::Counter, ["verb", "resource", "outcome"],
        "Requests to the Kubernetes API by verb, resource and outcome (ok or the kind of error). Watches, and lists that fill the caches, count only if they fail.";
    /// Whether the API is lost.
    API_LOST = "csi_control_plane_api_lost", Kind::Gauge, [], "1 while the Kubernetes API does not answer, for all roles, leases and watches together.";
    /// Outages of the API.
    API_OUTAGES = "csi_control_plane_api_outages_total", Kind::Counter, [], "How often the Kubernetes API has stopped answering.";
    /// Objects held.
    CACHE_OBJECTS = "csi_control_plane_cache_objects", Kind::Gauge, ["kind"], "Objects held in the shared cache.";
    /// Lists made by a watch.
    CACHE_RELISTS = "csi_control_plane_cache_relists_total", Kind::Counter, ["kind"], "Lists made to start or restart the watch of a kind.";
    /// Kinds that cannot be read.
    CACHE_UNREADABLE = "csi_control_plane_cache_unreadable", Kind::Gauge, ["kind"],
        "1 while a kind that the cluster has cannot be listed or watched. What needs no such objects goes on.";
    /// Broken watches.
    CACHE_WATCH_ERRORS = "csi_control_plane_cache_watch_errors_total", Kind::Counter, ["kind"], "Lists and watches of a kind that failed.";
    /// Whether the driver answers.
    DRIVER_READY = "csi_control_plane_driver_ready", Kind::Gauge, ["driver_name"], "1 while the driver is connected and ready.";
    /// What of the driver's object does not fit.
    DRIVER_OBJECT_MISFIT = "csi_control_plane_driver_object_misfit", Kind::Gauge, ["driver_name", "misfit", "severity"],
        "1 while the driver's CSIDriver object does not fit what is served here: a fault stops something, a hint costs something. Set only by who leads.";
    /// The limit of an RPC.
    RPC_LIMIT = "csi_control_plane_rpc_concurrency_limit", Kind::Gauge, ["driver_name", "method_name"],
        "How many calls of an RPC may be in flight at once. Set once the driver has refused so many that there are fewer.";
    /// Connections made.
    DRIVER_CONNECTIONS = "csi_control_plane_driver_connections_total", Kind::Counter, [], "Connections made to the driver's socket.";
    /// Role state.
    ROLE_SERVING = "csi_control_plane_role_serving", Kind::Gauge, ["role"], "1 while the role serves a term.";
    /// Role restarts.
    ROLE_RESTARTS = "csi_control_plane_role_restarts_total", Kind::Counter, ["role"], "Terms of a role that ended in an error.";
    /// Tasks that ended unexpectedly.
    TASK_FAILURES = "csi_control_plane_task_failures_total", Kind::Counter, ["task"], "Tasks that ended unexpectedly.";
    /// Kubernetes Events.
    EVENTS = "csi_control_plane_events_total", Kind::Counter, ["reason", "result"],
        "Kubernetes Events by reason: written, counted (a repeated Event), dropped (over the rate limit, or the term ended), failed.";
    /// Entries of a journal.
    JOURNAL_ENTRIES = "csi_control_plane_journal_entries", Kind::Gauge, ["driver_name"],
        "Entries of the journal: requests to the driver whose outcome is not final yet.";
    /// Bytes of a journal.
    JOURNAL_BYTES = "csi_control_plane_journal_bytes", Kind::Gauge, ["driver_name"],
        "Bytes of the entries on the journal's objects, those that are about to be removed included.";
    /// Age of the oldest entry.
    JOURNAL_OLDEST = "csi_control_plane_journal_oldest_entry_age_seconds", Kind::Gauge, ["driver_name"],
        "Seconds since the oldest entry of the journal was recorded.";
    /// Entries that are left alone.
    JOURNAL_LEFT_OVER = "csi_control_plane_journal_left_over", Kind::Gauge, ["driver_name"],
        "Entries of the journal that the daemon does not act on, because they do not prove that no PersistentVolume was stored: their volumes may be left over.";
    /// Entries on objects that they were not written for.
    JOURNAL_FOREIGN = "csi_control_plane_journal_foreign_entries", Kind::Gauge, ["driver_name"],
        "Entries of the journal that were not written for the ConfigMap that they are in: copies, which the daemon does not act on.";
    /// Entries in the journals of nodes that are gone.
    JOURNAL_LOST = "csi_control_plane_journal_lost_node_entries", Kind::Gauge, ["driver_name"],
        "Entries in the journals of nodes that are gone (nodeDeployment): their volumes may be left over in the nodes' storage.";
    /// Whether a journal cannot be opened.
    JOURNAL_UNREADABLE = "csi_control_plane_journal_unreadable", Kind::Gauge, ["driver_name"],
        "1 while the leader cannot open the journal: it serves no claim until it can, and counts none as waiting.";
    /// Writes to a journal.
    JOURNAL_COMMITS = "csi_control_plane_journal_commits_total", Kind::Counter, ["driver_name", "result"],
        "Writes to the journal by result: ok, conflict (another writer has changed the object), refused, lost (no answer).";
    /// Entries per write.
    JOURNAL_COMMIT_ENTRIES = "csi_control_plane_journal_commit_entries", Kind::Histogram(COMMIT_BUCKETS), ["driver_name"],
        "Entries that one write to the journal made durable.";
    /// Entries that another writer has deleted.
    JOURNAL_REWRITTEN = "csi_control_plane_journal_entries_rewritten_total", Kind::Counter, ["driver_name"],
        "Entries of the journal that were deleted or edited by another writer, and written again.";
    /// Changes of the configuration file.
    CONFIG_RELOADS = "csi_control_plane_config_reloads_total", Kind::Counter, ["result"],
        "Changes of the configuration file while running: applied, or refused (faults, needsRestart, noRole, unreadable).";
    /// Whether the file is in effect.
    CONFIG_LAST_SUCCESSFUL = "csi_control_plane_config_last_reload_successful", Kind::Gauge, [],
        "1 while the current configuration file is in effect, 0 while it is refused and an older one stays in effect.";
    /// When the file was last found good.
    CONFIG_LAST_SUCCESS = "csi_control_plane_config_last_reload_success_timestamp_seconds", Kind::Gauge, [],
        "When the daemon last applied the configuration file, or found it unchanged, in seconds since 1970.";
    /// Spans on their way to the collector.
    TRACE_SPANS = "csi_control_plane_trace_spans_total", Kind::Counter, ["outcome"],
        "Spans that the collector accepted (exported), that it refused or did not answer (failed), and that were dropped because the queue was full (dropped).";
    /// What runs.
    BUILD_INFO = "csi_control_plane_build_info", Kind::Gauge, ["version", "commit"], "Always 1; the labels say which version of which commit runs.";
}
