//! Attaches and detaches volumes as VolumeAttachments ask for it.

mod config;

pub use config::AttacherSection;
