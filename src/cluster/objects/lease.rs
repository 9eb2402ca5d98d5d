//! A Lease, as it is read by those that take no part in its election. Pure.

use super::{received, unless_empty};
use crate::cluster::meta::Meta;

received! {
    /// A Lease.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Lease {
        /// Name, uid and version.
        pub metadata: Meta,
        /// `spec`.
        pub spec: LeaseSpec = default,
    }

    /// Who holds it, and until when.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct LeaseSpec {
        /// The holder. `None`: it was released.
        #[serde(default, deserialize_with = "unless_empty")]
        pub holder_identity: Option<String>,
        /// When the holder has renewed it, by the holder's clock: it can be compared with itself alone.
        pub renew_time: Option<String>,
        /// How long a renewal counts, in seconds.
        pub lease_duration_seconds: Option<u32>,
    }
}
