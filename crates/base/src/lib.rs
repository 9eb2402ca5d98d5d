//! What the daemon and the sandbox share: general tools, the CSI messages, and the names and notations of Kubernetes and gRPC.

mod codes;
mod in_tree;
pub mod process;
pub mod proto;
pub mod quantity;
pub mod redact;

pub use codes::code_name;
pub use in_tree::InTree;
