//! Maps a volume's Kubernetes access modes to the CSI volume capability. Pure.
//!
//! | access modes | driver without `SINGLE_NODE_MULTI_WRITER` | with it |
//! |---|---|---|
//! | `ReadWriteOncePod` alone | single-node writer | single-node single-writer |
//! | `ReadWriteOncePod` and any other | refused | refused |
//! | `ReadWriteMany`, whatever else | multi-node multi-writer | the same |
//! | `ReadOnlyMany` and `ReadWriteOnce` | refused | refused |
//! | `ReadOnlyMany` | multi-node reader-only | the same |
//! | `ReadWriteOnce` | single-node writer | single-node multi-writer |
//! | none, or none that is known | refused | refused |

use std::collections::BTreeSet;

use crate::proto::VolumeCapability;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

/// Access modes that do not map to one CSI mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessModeError {
    /// The exclusive mode beside others.
    #[error("access mode ReadWriteOncePod cannot be combined with others: {}", list(.0))]
    NotExclusive(BTreeSet<String>),
    /// Readers on many nodes and a writer on one: CSI has no mode for it.
    #[error("access modes ReadOnlyMany and ReadWriteOnce cannot be combined")]
    ReadersAndWriter,
    /// No known access mode.
    #[error("unsupported access modes: {}", list(.0))]
    Unsupported(BTreeSet<String>),
}

fn list(modes: &BTreeSet<String>) -> String {
    if modes.is_empty() { "none".to_owned() } else { modes.iter().map(String::as_str).collect::<Vec<_>>().join(", ") }
}

/// The capability of a volume with these access modes: a raw device if `block`, else a file system of this type mounted
/// with these flags. `multi_writer` says whether the driver knows the finer single-node modes.
pub fn capability(
    access_modes: &[impl AsRef<str>],
    block: bool,
    fs_type: &str,
    mount_flags: &[impl AsRef<str>],
    multi_writer: bool,
) -> Result<VolumeCapability, AccessModeError> {
    let mode = access_mode(access_modes, multi_writer)?;
    let access_type = if block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: mount_flags.iter().map(|flag| flag.as_ref().to_owned()).collect(),
            volume_mount_group: String::new(),
        })
    };
    Ok(VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) })
}

fn access_mode(access_modes: &[impl AsRef<str>], multi_writer: bool) -> Result<Mode, AccessModeError> {
    let modes: BTreeSet<&str> = access_modes.iter().map(AsRef::as_ref).collect();
    let owned = || modes.iter().map(|&mode| mode.to_owned()).collect();
    let has = |mode| modes.contains(mode);
    if has("ReadWriteOncePod") {
        return match (modes.len(), multi_writer) {
            (1, false) => Ok(Mode::SingleNodeWriter),
            (1, true) => Ok(Mode::SingleNodeSingleWriter),
            _ => Err(AccessModeError::NotExclusive(owned())),
        };
    }
    if has("ReadWriteMany") {
        return Ok(Mode::MultiNodeMultiWriter);
    }
    match (has("ReadOnlyMany"), has("ReadWriteOnce")) {
        (true, true) => Err(AccessModeError::ReadersAndWriter),
        (true, false) => Ok(Mode::MultiNodeReaderOnly),
        (false, true) if multi_writer => Ok(Mode::SingleNodeMultiWriter),
        (false, true) => Ok(Mode::SingleNodeWriter),
        (false, false) => Err(AccessModeError::Unsupported(owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RWO: &str = "ReadWriteOnce";
    const ROX: &str = "ReadOnlyMany";
    const RWX: &str = "ReadWriteMany";
    const RWOP: &str = "ReadWriteOncePod";

    fn owned(modes: &[&str]) -> Vec<String> {
        modes.iter().map(|m| (*m).to_owned()).collect()
    }

    #[test]
    fn access_modes_map_as_in_the_table_r26() {
        use Mode::{
            MultiNodeMultiWriter, MultiNodeReaderOnly, SingleNodeMultiWriter, SingleNodeSingleWriter, SingleNodeWriter,
        };
        // (access modes, without the capability, with it); `None` is refused.
        let table: &[(&[&str], Option<Mode>, Option<Mode>)] = &[
            (&[RWOP], Some(SingleNodeWriter), Some(SingleNodeSingleWriter)),
            (&[RWOP, RWOP], Some(SingleNodeWriter), Some(SingleNodeSingleWriter)),
            (&[RWOP, RWO], None, None),
            (&[RWOP, ROX], None, None),
            (&[RWX, RWOP], None, None),
            (&[RWOP, "New"], None, None),
            (&[RWX], Some(MultiNodeMultiWriter), Some(MultiNodeMultiWriter)),
            (&[RWX, ROX], Some(MultiNodeMultiWriter), Some(MultiNodeMultiWriter)),
            (&[RWO, RWX], Some(MultiNodeMultiWriter), Some(MultiNodeMultiWriter)),
            (&[RWO, ROX, RWX], Some(MultiNodeMultiWriter), Some(MultiNodeMultiWriter)),
            (&[ROX, RWO], None, None),
            (&[RWO, ROX], None, None),
            (&[ROX], Some(MultiNodeReaderOnly), Some(MultiNodeReaderOnly)),
            (&[RWO], Some(SingleNodeWriter), Some(SingleNodeMultiWriter)),
            (&[RWO, RWO], Some(SingleNodeWriter), Some(SingleNodeMultiWriter)),
            (&[RWO, "New"], Some(SingleNodeWriter), Some(SingleNodeMultiWriter)),
            (&[], None, None),
            (&["New"], None, None),
            (&["readwriteonce"], None, None),
        ];
        for (modes, plain, fine) in table {
            assert_eq!(access_mode(&owned(modes), false).ok(), *plain, "{modes:?} without");
            assert_eq!(access_mode(&owned(modes), true).ok(), *fine, "{modes:?} with");
        }
    }

    #[test]
    fn refusals_say_what_cannot_be() {
        let text = |modes: &[&str]| access_mode(&owned(modes), true).unwrap_err().to_string();
        assert_eq!(text(&[]), "unsupported access modes: none");
        assert_eq!(text(&["B", "A"]), "unsupported access modes: A, B");
        assert_eq!(text(&[ROX, RWO]), "access modes ReadOnlyMany and ReadWriteOnce cannot be combined");
        assert_eq!(
            text(&[RWOP, RWO]),
            "access mode ReadWriteOncePod cannot be combined with others: ReadWriteOnce, ReadWriteOncePod"
        );
    }

    #[test]
    fn a_raw_block_volume_has_no_file_system_r13() {
        let capability = capability(&owned(&[RWO]), true, "ext4", &owned(&["noatime"]), false).unwrap();
        assert_eq!(capability.access_type, Some(AccessType::Block(BlockVolume {})));
        assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeWriter);
    }

    #[test]
    fn a_mounted_volume_carries_type_and_flags_as_given_r27() {
        for fs_type in ["", "xfs"] {
            let capability = capability(&owned(&[RWX]), false, fs_type, &owned(&["ro", "noatime"]), false).unwrap();
            let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("not a mount") };
            assert_eq!(mount.fs_type, fs_type);
            assert_eq!(mount.mount_flags, ["ro", "noatime"]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn order_and_repetition_of_access_modes_do_not_matter(
            modes in proptest::collection::vec(proptest::sample::select(vec![RWO, ROX, RWX, RWOP, "New"]), 0..6),
            multi_writer: bool,
        ) {
            let mut doubled = owned(&modes);
            let once = access_mode(&doubled, multi_writer);
            doubled.reverse();
            doubled.extend(owned(&modes));
            prop_assert_eq!(access_mode(&doubled, multi_writer), once);
        }
    }
}
