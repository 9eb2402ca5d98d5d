//! Which build this is. Pure.

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, as the build was told it (`CSI_CONTROL_PLANE_COMMIT`) or found it in an archive that git has made; else
/// `unknown`, because a build in a checkout does not ask git.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// Both, for people.
pub const FULL_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ")");
