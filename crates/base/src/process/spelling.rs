//! Ids that may be one, however they are spelled. Pure.

/// An id as a key: two ids that may be of one thing have the same. A cloud may ignore the case of letters, and write an id as it was
/// written last, or as its documents do (kubernetes#79009, azuredisk-csi-driver#95); a path may end with a slash.
///
/// ```
/// use csi_control_plane_base::process::folded;
///
/// assert_eq!(folded("/subscriptions/s/resourceGroups/MC_RG/disks/d/"), folded("/subscriptions/s/resourcegroups/mc_rg/disks/d"));
/// assert_ne!(folded("vol-1"), folded("vol-2"));
/// ```
pub fn folded(id: &str) -> String {
    let trimmed = id.trim_end_matches('/');
    if trimmed.is_empty() { id.to_owned() } else { trimmed.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn letters_case_and_a_last_slash_make_no_other_id() {
        for (one, other, same) in [
            ("vol-A", "VOL-a", true),
            ("/a/b", "/A/b/", true),
            ("/", "/", true),
            ("", "", true),
            ("", "/", false),
            ("vol-1", "vol-10", false),
            ("a/b", "a//b", false),
            ("größe", "GRöSSE", false),
        ] {
            assert_eq!(folded(one) == folded(other), same, "{one}, {other}");
        }
    }

    proptest! {
        /// A key of a key is the same key, so equal keys make classes.
        #[test]
        fn a_key_is_its_own_key(id in ".{0,40}") {
            prop_assert_eq!(folded(&folded(&id)), folded(&id));
        }
    }
}
