//! The Leases of a world's daemons, as seen in the API.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use super::{World, until_some};

/// Where the daemons keep them.
const NAMESPACE: &str = "kube-system";

/// The holder of a Lease, if there is one.
pub(crate) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|it| !it.is_empty())
}

impl World {
    /// The Leases beside each other: those of other worlds, too.
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Waits until the Lease of this name is held.
    pub(crate) async fn lease_held(&self, name: &str) -> Lease {
        self.lease_held_by(name, "held", |_| true).await
    }

    /// Waits until the Lease of this name is held by someone of whom `holds` is true.
    pub(crate) async fn lease_held_by(&self, name: &str, what: &str, holds: impl Fn(&str) -> bool) -> Lease {
        let is_held = |lease: Option<&Lease>| lease.and_then(holder).is_some_and(&holds);
        until_some(self.leases(), name, what, is_held).await.unwrap()
    }
}
