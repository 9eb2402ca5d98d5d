//! The four requests of an election, each with its own timeout, guard and typed error.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use kube::core::Status;

use super::record::Record;
use super::settings::LeaseSettings;
use crate::telemetry::{Meter, names};

/// A request about the Lease failed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The API answered, and refused.
    #[error("cannot {operation} lease {lease:?}: {code} {reason}: {message}")]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// Which Lease.
        lease: String,
        /// The HTTP status code.
        code: u16,
        /// The API's reason.
        reason: String,
        /// The API's message.
        message: String,
    },
    /// The Lease cannot be created, because the cluster does not have its namespace.
    #[error(
        "cannot create lease {lease:?}: the cluster has no namespace {namespace:?}: create it, or name another one in \
         leaderElection.namespace"
    )]
    NoNamespace {
        /// Which Lease.
        lease: String,
        /// The namespace that does not exist.
        namespace: String,
    },
    /// There was no answer in time. A write may still have happened.
    #[error("cannot {operation} lease {lease:?}: no answer within {timeout:?}")]
    Timeout {
        /// What was tried.
        operation: &'static str,
        /// Which Lease.
        lease: String,
        /// For how long.
        timeout: Duration,
    },
    /// There was no valid answer. A write may still have happened.
    #[error("cannot {operation} lease {lease:?}")]
    Failed {
        /// What was tried.
        operation: &'static str,
        /// Which Lease.
        lease: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl LeaseError {
    pub(super) fn new(operation: &'static str, lease: &str, error: kube::Error) -> Self {
        let lease = lease.to_owned();
        let source: Box<dyn Error + Send + Sync> = match error {
            kube::Error::Api(status) => {
                let (code, reason, message) = (status.code, status.reason, status.message);
                return Self::Refused { operation, lease, code, reason, message };
            }
            // Their own text would repeat the source's text.
            kube::Error::Service(error) => error,
            kube::Error::HyperError(error) => error.into(),
            kube::Error::ReadEvents(error) => error.into(),
            other => other.into(),
        };
        Self::Failed { operation, lease, source }
    }

    /// The name for metrics and the log: the same names as for other requests, because one alert covers both.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused { code: 401, .. } => "unauthorized",
            Self::Refused { code: 403, .. } => "forbidden",
            Self::NoNamespace { .. } | Self::Refused { code: 404, .. } => "not_found",
            Self::Refused { code: 409, .. } => "conflict",
            Self::Refused { code: 410, .. } => "gone",
            Self::Refused { code: 422, .. } => "invalid",
            Self::Refused { code: 429, .. } => "too_many_requests",
            Self::Refused { code: 500.., .. } => "server_error",
            Self::Refused { .. } => "unexpected",
            Self::Timeout { .. } => "timeout",
            Self::Failed { .. } => "connection",
        }
    }

    /// Another client has written the Lease, so that ours was not written: read it again. A 404 says so of a
    /// replacement only: the Lease was deleted. For a creation a 404 is about the namespace, or the API's group.
    pub(super) fn is_outrun(&self) -> bool {
        match self {
            Self::Refused { code: 409, .. } => true,
            Self::Refused { code: 404, operation, .. } => *operation == UPDATE,
            _ => false,
        }
    }

    /// Whether the API has refused the request, and will until people change the cluster or the configuration. A refused
    /// token is none: tokens are renewed.
    pub(super) fn needs_people(&self) -> bool {
        match self {
            Self::NoNamespace { .. } => true,
            Self::Refused { code, .. } => (400..500).contains(code) && !matches!(code, 401 | 408 | 409 | 410 | 429),
            Self::Timeout { .. } | Self::Failed { .. } => false,
        }
    }
}

/// The writes.
const CREATE: &str = "create";
const UPDATE: &str = "update";

/// Whether the API has refused a creation because the namespace does not exist. A 404 without these details says that the
/// API does not serve Leases.
fn is_about_the_namespace(operation: &str, status: &Status) -> bool {
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    operation == CREATE && status.code == 404 && kind == Some("namespaces")
}

/// Whether Leases can be created in this namespace: the API is asked for a creation that it does not store.
pub async fn rehearse(client: kube::Client, settings: LeaseSettings, limit: Duration) -> Result<(), LeaseError> {
    let lease = LeaseClient::new(client, settings, Meter::new());
    let metadata = ObjectMeta { name: Some(lease.settings.name.clone()), ..ObjectMeta::default() };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match lease.within(CREATE, limit, lease.api.create(&params, &Lease { metadata, spec: None })).await {
        Ok(_) => Ok(()),
        // There is one.
        Err(error) if error.is_outrun() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads and writes one Lease.
pub(super) struct LeaseClient {
    pub(super) api: Api<Lease>,
    pub(super) settings: LeaseSettings,
    meter: Meter,
}

impl LeaseClient {
    pub(super) fn new(client: kube::Client, settings: LeaseSettings, meter: Meter) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, meter }
    }

    /// Reads the Lease, if there is one. Like the other requests, it takes no longer than `limit`.
    pub(super) async fn look(&self, limit: Duration) -> Result<Option<Lease>, LeaseError> {
        self.within("get", limit, self.api.get_opt(&self.settings.name)).await
    }

    /// Creates the Lease. Another process may be faster.
    pub(super) async fn create(&self, record: &Record, limit: Duration) -> Result<Lease, LeaseError> {
        let metadata = ObjectMeta {
            name: Some(self.settings.name.clone()),
            namespace: Some(self.settings.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = self.filled(Lease { metadata, spec: None }, record);
        self.within(CREATE, limit, self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the Lease that we have seen; a newer version is a conflict.
    pub(super) async fn replace(&self, seen: &Lease, record: &Record, limit: Duration) -> Result<Lease, LeaseError> {
        let lease = self.filled(seen.clone(), record);
        let params = PostParams::default();
        self.within(UPDATE, limit, self.api.replace(&self.settings.name, &params, &lease)).await
    }

    fn filled(&self, mut lease: Lease, record: &Record) -> Lease {
        record.write_to(&mut lease);
        if !self.settings.labels.is_empty() {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(self.settings.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        lease
    }

    async fn within<T>(
        &self,
        operation: &'static str,
        timeout: Duration,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, LeaseError> {
        let name = &self.settings.name;
        let result = match tokio::time::timeout(timeout, request).await {
            Ok(Err(kube::Error::Api(status))) if is_about_the_namespace(operation, &status) => {
                Err(LeaseError::NoNamespace { lease: name.clone(), namespace: self.settings.namespace.clone() })
            }
            Ok(answer) => answer.map_err(|error| LeaseError::new(operation, name, error)),
            Err(_) => Err(LeaseError::Timeout { operation, lease: name.clone(), timeout }),
        };
        let outcome = result.as_ref().err().map_or("ok", LeaseError::label);
        self.count(operation, "leases", outcome);
        result
    }

    /// Counts a request, or a failed watch. A successful watch has no end and is not counted.
    pub(super) fn count(&self, operation: &str, resource: &str, outcome: &str) {
        let labels = [("verb", operation), ("resource", resource), ("outcome", outcome)];
        self.meter.counter(&names::API_REQUESTS, &labels).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/spec/writes.md.
    #[test]
    fn an_answer_to_a_write_of_the_lease_means_one_thing_for_each_verb() {
        #[derive(Debug, PartialEq)]
        enum Means {
            Outrun,
            People,
            Passing,
        }
        use Means::{Outrun, Passing, People};
        for (code, create, update) in [
            (400, People, People),
            (401, Passing, Passing),
            (403, People, People),
            (404, People, Outrun),
            (409, Outrun, Outrun),
            (410, Passing, Passing),
            (422, People, People),
            (429, Passing, Passing),
            (500, Passing, Passing),
            (504, Passing, Passing),
        ] {
            for (operation, expected) in [(CREATE, create), (UPDATE, update)] {
                let (lease, reason, message) = (String::new(), String::new(), String::new());
                let error = LeaseError::Refused { operation, lease, code, reason, message };
                let means = match (error.is_outrun(), error.needs_people()) {
                    (true, _) => Outrun,
                    (false, true) => People,
                    (false, false) => Passing,
                };
                assert_eq!(means, expected, "{operation} {code}");
            }
        }
    }

    #[test]
    fn a_missing_namespace_is_told_from_an_api_without_leases() {
        let status = |kind: &str, code: u16| -> Status {
            serde_json::from_value(serde_json::json!({ "code": code, "details": { "kind": kind, "name": "x" } }))
                .unwrap()
        };
        assert!(is_about_the_namespace(CREATE, &status("namespaces", 404)));
        assert!(!is_about_the_namespace(CREATE, &status("leases", 404)));
        assert!(!is_about_the_namespace(CREATE, &serde_json::from_value(serde_json::json!({ "code": 404 })).unwrap()));
        assert!(!is_about_the_namespace(CREATE, &status("namespaces", 403)), "a namespace that is being deleted");
        assert!(
            !is_about_the_namespace(UPDATE, &status("namespaces", 404)),
            "the lease was deleted with it: read first"
        );
    }
}
