//! Validates a request's fields by the specification's rules, independent of the state. Pure.

use std::collections::BTreeMap;

use super::profile::Profile;
use super::refusal::Refusal;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::volume_capability::AccessType;
use base::proto::volume_capability::access_mode::Mode;
use base::proto::{CapacityRange, VolumeCapability};
use tonic::Code;

/// The general limit of string fields, in bytes.
const MAX_NAME: usize = 128;
/// The prefix of our page tokens. The rest is the last key of the page before.
const TOKEN: &str = "after/";

/// Refuses an empty required field.
pub(super) fn required(field: &str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() { Err(Refusal::invalid(format!("{field} is required"))) } else { Ok(()) }
}

/// Refuses names that are empty, too long, or hold control characters.
pub(super) fn name(field: &str, value: &str) -> Result<(), Refusal> {
    required(field, value)?;
    if value.len() > MAX_NAME {
        return Err(Refusal::invalid(format!("{field} is longer than {MAX_NAME} bytes")));
    }
    if value.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        return Err(Refusal::invalid(format!("{field} holds a control character")));
    }
    Ok(())
}

/// The access mode of a capability that has one; `Unknown` otherwise.
pub(super) fn mode(capability: &VolumeCapability) -> Mode {
    capability.access_mode.and_then(|m| Mode::try_from(m.mode).ok()).unwrap_or(Mode::Unknown)
}

/// Whether it is that of a device, and not of a file system.
pub(super) fn is_block(capability: &VolumeCapability) -> bool {
    matches!(capability.access_type, Some(AccessType::Block(_)))
}

/// Refuses a missing or incomplete capability, and access modes that the driver doesn't support.
pub(super) fn capability(profile: &Profile, capability: Option<&VolumeCapability>) -> Result<(), Refusal> {
    let Some(capability) = capability else { return Err(Refusal::invalid("volume_capability is required")) };
    if capability.access_type.is_none() {
        return Err(Refusal::invalid("volume_capability.access_type is required"));
    }
    match mode(capability) {
        Mode::Unknown => Err(Refusal::invalid("volume_capability.access_mode is missing or unknown")),
        mode @ (Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter)
            if !profile.has(Rpc::SingleNodeMultiWriter) =>
        {
            Err(Refusal::invalid(format!("access mode {} is not supported", mode.as_str_name())))
        }
        _ => Ok(()),
    }
}

/// Refuses an empty list of capabilities, and each that [`capability`] refuses.
pub(super) fn capabilities(profile: &Profile, list: &[VolumeCapability]) -> Result<(), Refusal> {
    if list.is_empty() {
        return Err(Refusal::invalid("volume_capabilities is required"));
    }
    list.iter().try_for_each(|c| capability(profile, Some(c)))
}

/// How widely a mode lets a volume be used: each rank includes those below.
fn rank(mode: Mode) -> u8 {
    match mode {
        Mode::MultiNodeMultiWriter => 3,
        Mode::MultiNodeSingleWriter => 2,
        Mode::MultiNodeReaderOnly => 1,
        _ => 0,
    }
}

/// Whether a volume made for `provisioned` can be used as `wanted`. A pre-provisioned volume can be used in any way.
pub(super) fn covers(provisioned: &[VolumeCapability], wanted: &VolumeCapability) -> bool {
    provisioned.is_empty()
        || provisioned.iter().any(|c| is_block(c) == is_block(wanted) && rank(mode(c)) >= rank(mode(wanted)))
}

/// Whether a mode lets the volume be on one node only.
pub(super) fn is_single_node(mode: Mode) -> bool {
    rank(mode) == 0
}

/// The required and the limit bytes, 0 for none. Refuses negative and contradictory ranges.
pub(super) fn range(range: Option<&CapacityRange>) -> Result<(i64, i64), Refusal> {
    let Some(range) = range else { return Ok((0, 0)) };
    let (required, limit) = (range.required_bytes, range.limit_bytes);
    if required < 0 || limit < 0 {
        return Err(Refusal::invalid("capacity_range must not be negative"));
    }
    if limit != 0 && limit < required {
        return Err(Refusal::invalid("capacity_range.limit_bytes is below required_bytes"));
    }
    Ok((required, limit))
}

/// The size of a new volume: what is required, but at least `floor`.
pub(super) fn size(profile: &Profile, required: i64, limit: i64, floor: i64) -> Result<i64, Refusal> {
    let size = required.max(floor).max(profile.min_volume_size);
    if size > profile.max_volume_size {
        return Err(Refusal::out_of_range(format!("a volume has at most {} bytes", profile.max_volume_size)));
    }
    if limit != 0 && size > limit {
        return Err(Refusal::out_of_range(format!("the volume needs {size} bytes, above limit_bytes {limit}")));
    }
    Ok(size)
}

/// Refuses mutable parameters that the driver doesn't know.
pub(super) fn mutable<'a>(profile: &Profile, keys: impl IntoIterator<Item = &'a String>) -> Result<(), Refusal> {
    let mut unknown: Vec<&String> = keys.into_iter().filter(|k| !profile.mutable_parameters.contains(*k)).collect();
    unknown.sort();
    match unknown.first() {
        None => Ok(()),
        Some(key) => Err(Refusal::invalid(format!("mutable parameter {key:?} is not supported"))),
    }
}

/// One page of `items` in the order of their keys, and the token of the next. A token stays good when the entry that
/// it was made from is deleted.
pub(super) fn page<'a, T>(
    items: impl DoubleEndedIterator<Item = (&'a String, T)>,
    token: &str,
    max_entries: i32,
    page_limit: usize,
) -> Result<(Vec<T>, String), Refusal> {
    let asked = usize::try_from(max_entries).map_err(|_| Refusal::invalid("max_entries must not be negative"))?;
    let after = match token {
        "" => "",
        token => {
            let bad = || Refusal::new(Code::Aborted, format!("starting_token {token:?} is not one of ours"));
            token.strip_prefix(TOKEN).ok_or_else(bad)?
        }
    };
    let limit = [asked, page_limit].into_iter().filter(|n| *n > 0).min().unwrap_or(usize::MAX);
    let mut rest = items.skip_while(|(key, _)| key.as_str() <= after && !after.is_empty());
    let (mut page, mut last) = (Vec::new(), "");
    for (key, item) in rest.by_ref().take(limit) {
        page.push(item);
        last = key;
    }
    let next = if rest.next().is_some() { format!("{TOKEN}{last}") } else { String::new() };
    Ok((page, next))
}

/// The token from which a listing starts over: good for a driver that never ends one.
pub(super) fn first_page_token() -> String {
    TOKEN.to_owned()
}

/// A request's map in a definite order.
pub(super) fn sorted<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>) -> BTreeMap<String, String> {
    map.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn mount(mode: Mode) -> VolumeCapability {
        let access_type = Some(AccessType::Mount(MountVolume::default()));
        VolumeCapability { access_type, access_mode: Some(AccessMode { mode: mode as i32 }) }
    }

    #[test]
    fn names_are_limited_and_free_of_control_characters() {
        let cases = [("", false), ("ok", true), ("tab\tis fine", true), ("bell\u{7}", false), ("\u{85}", false)];
        for (value, fine) in cases {
            assert_eq!(name("name", value).is_ok(), fine, "{value:?}");
        }
        assert!(name("name", &"x".repeat(128)).is_ok());
        assert!(name("name", &"x".repeat(129)).is_err());
    }

    #[test]
    fn capabilities_need_a_type_and_a_supported_mode() {
        let full = Profile::default();
        let old = Profile::default().without(Rpc::SingleNodeMultiWriter);
        assert!(capability(&full, None).is_err());
        assert!(capability(&full, Some(&VolumeCapability::default())).is_err());
        assert!(capability(&full, Some(&mount(Mode::Unknown))).is_err());
        let unknown = VolumeCapability { access_mode: Some(AccessMode { mode: 99 }), ..mount(Mode::SingleNodeWriter) };
        assert!(capability(&full, Some(&unknown)).is_err());
        assert!(capability(&full, Some(&mount(Mode::SingleNodeMultiWriter))).is_ok());
        assert!(capability(&old, Some(&mount(Mode::SingleNodeMultiWriter))).is_err());
        assert!(capability(&old, Some(&mount(Mode::SingleNodeWriter))).is_ok());
        assert!(capabilities(&full, &[]).is_err());
    }

    #[test]
    fn a_volume_for_many_nodes_serves_one_but_not_the_other_way() {
        let many = [mount(Mode::MultiNodeMultiWriter)];
        let one = [mount(Mode::SingleNodeWriter)];
        assert!(covers(&many, &one[0]) && !covers(&one, &many[0]));
        assert!(covers(&[], &many[0]));
        let block = VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..one[0].clone() };
        assert!(!covers(&one, &block));
    }

    #[test]
    fn ranges_are_checked_and_sized() {
        let profile = Profile { max_volume_size: 100, min_volume_size: 10, ..Profile::default() };
        let of = |required_bytes, limit_bytes| CapacityRange { required_bytes, limit_bytes };
        assert!(range(Some(&of(-1, 0))).is_err() && range(Some(&of(0, -1))).is_err());
        assert!(range(Some(&of(2, 1))).is_err());
        assert_eq!(range(None), Ok((0, 0)));
        assert_eq!(size(&profile, 50, 50, 0), Ok(50));
        assert_eq!(size(&profile, 0, 0, 0), Ok(10));
        assert_eq!(size(&profile, 101, 0, 0).unwrap_err().code, Code::OutOfRange);
        assert_eq!(size(&profile, 20, 30, 40).unwrap_err().code, Code::OutOfRange);
        assert_eq!(size(&profile, 0, 5, 0).unwrap_err().code, Code::OutOfRange);
    }

    #[test]
    fn pages_cover_everything_once_and_survive_deletes() {
        let mut items: BTreeMap<String, u32> = (0..5).map(|n| (format!("v{n}"), n)).collect();
        let (first, token) = page(items.iter(), "", 2, 0).unwrap();
        assert_eq!((first, token.as_str()), (vec![&0, &1], "after/v1"));
        items.remove("v1");
        let (second, token) = page(items.iter(), &token, 0, 2).unwrap();
        assert_eq!(second, [&2, &3]);
        let (third, token) = page(items.iter(), &token, 2, 2).unwrap();
        assert_eq!((third, token.as_str()), (vec![&4], ""));
        assert_eq!(page(items.iter(), "bogus", 0, 0).unwrap_err().code, Code::Aborted);
        assert_eq!(page(items.iter(), "", -1, 0).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(page(items.iter(), &first_page_token(), 0, 0).unwrap().0.len(), 4);
    }
}
