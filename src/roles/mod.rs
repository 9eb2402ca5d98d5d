//! The roles: what a row of sidecars did, one folder each.

pub mod attacher;
pub mod reconciler;

use crate::config::RoleSection;

/// Every role's section of the configuration file, one line per role.
pub const SECTIONS: &[RoleSection] = &[
    RoleSection::of::<attacher::AttacherSection>("attacher"),
    RoleSection::of::<reconciler::ReconcilerSection>("reconciler"),
];
