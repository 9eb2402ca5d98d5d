//! Where a Secret is. Pure.

use serde::Serialize;

use super::received;

received! {
    /// Where a Secret is.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
    pub struct SecretRef {
        /// Its name.
        pub name: String = default,
        /// Its namespace.
        pub namespace: String = default,
    }
}
