//! The region that zones are in (migration spec 5.5). Pure.

use std::collections::BTreeSet;

use super::error::RegionError;

/// Says in which region zones are. `None` of these: the plugin's regions cannot be told from zones.
pub(super) type RegionOf = fn(&[&str]) -> Result<String, RegionError>;

/// The region of zones of Google's cloud, `us-east1-b`.
pub(super) fn gce(zones: &[&str]) -> Result<String, RegionError> {
    only(zones, |zone| {
        let parts: Vec<&str> = zone.split('-').collect();
        match parts[..] {
            [locale, region, _] => Ok(format!("{locale}-{region}")),
            _ => Err(RegionError::GceZone(zone.to_owned())),
        }
    })
}

/// The region of zones of Amazon's cloud: `us-west-2a`, `us-gov-east-1a`, and, of local zones and those of Wavelength,
/// `us-west-2-lax-1a` and `us-east-1-wl1-bos-wlz-1`.
pub(super) fn aws(zones: &[&str]) -> Result<String, RegionError> {
    only(zones, |zone| {
        let parts: Vec<&str> = zone.split('-').collect();
        let last = parts.last().copied().unwrap_or_default();
        match parts.len() {
            3 | 4 if last.len() == 2 && last.is_ascii() => Ok(zone[..zone.len() - 1].to_owned()),
            5 | 7 => Ok(parts[..3].join("-")),
            _ => Err(RegionError::AwsZone(zone.to_owned())),
        }
    })
}

/// The only region that the zones are in.
fn only(zones: &[&str], region_of: impl Fn(&str) -> Result<String, RegionError>) -> Result<String, RegionError> {
    if zones.is_empty() {
        return Err(RegionError::NoZones);
    }
    let mut regions = zones.iter().map(|zone| region_of(zone)).collect::<Result<BTreeSet<_>, _>>()?;
    match regions.pop_last() {
        Some(region) if regions.is_empty() => Ok(region),
        last => {
            let all: Vec<String> = regions.into_iter().chain(last).collect();
            Err(RegionError::Several(all.join(", ")))
        }
    }
}
