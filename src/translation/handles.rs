//! Handles, byte for byte as the Go library makes them: kubelet and kube-controller-manager hash them into the names of
//! VolumeAttachments (migration spec I2). Pure.

pub(super) use crate::cluster::UNSPECIFIED;

use super::error::TranslationError;
use super::regions;

/// Between the zones of a label.
pub(super) const ZONES_SEPARATOR: &str = "__";

/// How many parts a handle of Google's cloud has at least: `projects/P/zones/Z/disks/D`.
const GCE_PARTS: usize = 6;

fn gce_zonal(project: &str, zone: &str, disk: &str) -> String {
    format!("projects/{project}/zones/{zone}/disks/{disk}")
}

fn gce_regional(project: &str, region: &str, disk: &str) -> String {
    format!("projects/{project}/regions/{region}/disks/{disk}")
}

/// The handle of a disk of Google's cloud by the zone label of its volume (migration spec 4.1). Nothing of the label is trimmed,
/// dropped or made distinct.
pub(super) fn gce(zone_label: &str, disk: &str) -> Result<String, TranslationError> {
    let zones: Vec<&str> = zone_label.split(ZONES_SEPARATOR).collect();
    Ok(match zones[..] {
        [] | [""] => gce_zonal(UNSPECIFIED, UNSPECIFIED, disk),
        [zone] => gce_zonal(UNSPECIFIED, zone, disk),
        _ => gce_regional(UNSPECIFIED, &regions::gce(&zones).map_err(TranslationError::Regions)?, disk),
    })
}

/// The name of a disk of Google's cloud (migration spec 7).
pub(super) fn gce_disk(handle: &str) -> Result<&str, TranslationError> {
    let count = handle.split('/').count();
    handle.split('/').nth(GCE_PARTS - 1).ok_or(TranslationError::GceHandle(count))
}

/// The handle of a share of Azure (migration spec 4.4, 6). `name`: of the PersistentVolume, or of the pod's volume.
pub(super) fn azure_file(group: &str, secret: &str, share: &str, name: &str, namespace: &str) -> String {
    format!("{group}#{}#{share}#{name}#{namespace}", azure_account(secret))
}

/// The storage account that a Secret's name says: what the library's `azure-storage-account-(.+)-secret` finds, or all of it.
fn azure_account(secret: &str) -> &str {
    const BEFORE: &str = "azure-storage-account-";
    let within = |(at, _): (usize, &str)| {
        // The library's pattern does not reach over the end of a line.
        let line = secret[at + BEFORE.len()..].split('\n').next()?;
        line.rfind("-secret").filter(|end| *end > 0).map(|end| &line[..end])
    };
    secret.match_indices(BEFORE).find_map(within).unwrap_or(secret)
}

/// The parts of an Azure share's handle: resource group, account and share (migration spec 7.2).
pub(super) fn azure_file_parts(handle: &str) -> Option<(&str, &str, &str)> {
    let mut parts = handle.split('#');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

/// The name of an Azure disk: what the library's two patterns find in its address (migration spec 7.1).
pub(super) fn azure_disk_name(uri: &str) -> Result<&str, TranslationError> {
    const MANAGED: &str = ".*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)";
    const UNMANAGED: &str = "http(?:.*)://(?:.*)/vhds/(.+)";
    let is_url = uri.len() > 4 && uri.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let (before, mark, format): (&[&str], &str, _) = if is_url {
        (&["http", "://"], "/vhds/", UNMANAGED)
    } else {
        (&["/subscriptions/", "/resourceGroups/"], "/providers/Microsoft.Compute/disks/", MANAGED)
    };
    uri.split('\n')
        .find_map(|line| last_after(line, before, mark))
        .ok_or_else(|| TranslationError::AzureDiskName { handle: uri.to_owned(), format })
}

/// What follows the last `mark` that something follows, behind all of `before` in their order.
fn last_after<'a>(line: &'a str, before: &[&str], mark: &str) -> Option<&'a str> {
    let mut rest = line;
    for text in before {
        rest = &rest[rest.find(text)? + text.len()..];
    }
    // As the library's pattern has it, the dot of `Microsoft.Compute` stands for any character.
    let ends = |at: usize| -> Option<usize> {
        let mut left = rest[at..].chars();
        let fits = mark.chars().all(|c| left.next().is_some_and(|found| found == c || c == '.'));
        (fits && !left.as_str().is_empty()).then(|| rest.len() - left.as_str().len())
    };
    rest.rmatch_indices('/').find_map(|(at, _)| ends(at)).map(|end| &rest[end..])
}

/// A handle as the driver lists it (migration spec 9). RPCs never use it.
pub fn repair_handle(driver: &str, handle: &str, node_id: &str) -> Result<String, TranslationError> {
    use crate::cluster::InTree;
    match InTree::of_driver(driver) {
        Some(InTree::GcePersistentDisk) => repair_gce(handle, node_id),
        Some(_) => Ok(handle.to_owned()),
        None => Err(TranslationError::NoRepair(driver.to_owned())),
    }
}

fn repair_gce(handle: &str, node_id: &str) -> Result<String, TranslationError> {
    let parts: Vec<&str> = handle.split('/').collect();
    let [_, project, kind, place, _, disk, ..] = parts[..] else {
        return Err(TranslationError::ShortHandle(parts.len()));
    };
    if project != UNSPECIFIED {
        return Ok(handle.to_owned());
    }
    let node: Vec<&str> = node_id.split('/').collect();
    let [_, node_project, _, node_zone, _, _, ..] = node[..] else {
        return Err(TranslationError::ShortNodeId(node.len()));
    };
    match (kind, place) {
        ("zones", UNSPECIFIED) => Ok(gce_zonal(node_project, node_zone, disk)),
        ("zones", zone) => Ok(gce_zonal(node_project, zone, disk)),
        ("regions", UNSPECIFIED) => {
            let region = regions::gce(&[node_zone])
                .map_err(|cause| TranslationError::NodeRegion { zone: node_zone.to_owned(), cause })?;
            Ok(gce_regional(node_project, &region, disk))
        }
        ("regions", region) => Ok(gce_regional(node_project, region, disk)),
        (other, _) => Err(TranslationError::Regionality(other.to_owned())),
    }
}
