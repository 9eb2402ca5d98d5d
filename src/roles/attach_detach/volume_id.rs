//! Which volume, and what it is called: by the driver and its id of the volume, never by the name of a PersistentVolume, because two
//! PersistentVolumes may be of one volume (attach-detach spec 0). Pure.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::cluster::names::{CSI_VOLUME, Name};

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(Name);

impl VolumeId {
    /// The volume that `driver` calls `handle`.
    pub fn new(driver: &str, handle: &str) -> Self {
        Self(Name(format!("{CSI_VOLUME}{driver}^{handle}").into()))
    }

    /// The volume of this name in a Node's status; `None` if it is of no CSI driver.
    pub fn of_name(name: &str) -> Option<Self> {
        // No driver's name has a `^`, and any handle may.
        let (driver, _) = name.strip_prefix(CSI_VOLUME)?.split_once('^')?;
        (!driver.is_empty()).then(|| Self(Name(name.into())))
    }

    /// Its name in a Node's status.
    pub fn name(&self) -> &str {
        &self.0.0
    }

    /// The driver.
    pub fn driver(&self) -> &str {
        self.parts().0
    }

    /// The driver's id of it.
    pub fn handle(&self) -> &str {
        self.parts().1
    }

    /// The name of the VolumeAttachment that attaches it to a node. The kubelet looks for this name.
    pub fn attachment_name(&self, node: &str) -> String {
        let (driver, handle) = self.parts();
        let digest = Sha256::new().chain_update(handle).chain_update(driver).chain_update(node).finalize();
        let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        "csi-".chars().chain(digits.filter_map(|digit| char::from_digit(digit.into(), 16))).collect()
    }

    fn parts(&self) -> (&str, &str) {
        self.name()[CSI_VOLUME.len()..].split_once('^').unwrap_or_default()
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name()[CSI_VOLUME.len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d24_any_handle_has_a_name_and_is_found_again_in_it() {
        for handle in ["vol-1", "a^b", "/path/to it", "^", &"x".repeat(300)] {
            let id = VolumeId::new("demo.csi", handle);
            assert_eq!(VolumeId::of_name(id.name()), Some(id.clone()));
            assert_eq!((id.driver(), id.handle()), ("demo.csi", handle));
            let name = id.attachment_name("node-1");
            assert!(name.len() == 68 && name.starts_with("csi-"), "{name}");
        }
        for foreign in ["", "kubernetes.io/aws-ebs/vol-1", "kubernetes.io/csi/demo", "kubernetes.io/csi/^vol"] {
            assert_eq!(VolumeId::of_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_name_of_an_attachment_is_what_the_kubelet_computes() {
        // echo -n vol-1demo.csinode-1 | sha256sum
        let name = VolumeId::new("demo.csi", "vol-1").attachment_name("node-1");
        assert_eq!(name, "csi-5e53eaa973e6f037a41cfb9e3120362a33c37498af20b7d9b7de97925868f796");
    }
}
