//! The four requests of an election, each with its own timeout, guard and typed error.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

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
            Self::Refused { code: 404, .. } => "not_found",
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

    /// The Lease has changed: read it again.
    pub(super) fn is_outrun(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 409, .. })
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
        self.within("create", limit, self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the Lease that we have seen; a newer version is a conflict.
    pub(super) async fn replace(&self, seen: &Lease, record: &Record, limit: Duration) -> Result<Lease, LeaseError> {
        let lease = self.filled(seen.clone(), record);
        let params = PostParams::default();
        self.within("update", limit, self.api.replace(&self.settings.name, &params, &lease)).await
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
            Ok(answer) => answer.map_err(|error| LeaseError::new(operation, name, error)),
            Err(_) => Err(LeaseError::Timeout { operation, lease: name.clone(), timeout }),
        };
        let outcome = result.as_ref().err().map_or("ok", LeaseError::label);
        self.count(operation, outcome);
        result
    }

    /// Counts a request, or a failed watch. A successful watch has no end and is not counted.
    pub(super) fn count(&self, operation: &str, outcome: &str) {
        let labels = [("verb", operation), ("resource", "leases"), ("outcome", outcome)];
        self.meter.counter(&names::API_REQUESTS, &labels).increment(1);
    }
}
