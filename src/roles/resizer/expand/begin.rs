//! What the claim's status says about an expansion before the driver is called (resizer spec 3.3). Pure.

use crate::cluster::quantity::{bytes, format_bytes};
use crate::cluster::{ClaimResize, PersistentVolumeClaim, SmolStr};
use crate::roles::resizer::claim::{ResizeState, Sizes, status};
use crate::roles::resizer::names;
use crate::roles::resizer::step::Begin;

/// What must be written before the driver is called with `size`. `None`: the status says it already. `says_failed`: it says that the last
/// call was refused, so it must say that the next one runs.
pub fn begin(claim: &PersistentVolumeClaim, sizes: &Sizes, size: i64, says_failed: bool) -> Option<Begin> {
    let status = status(claim);
    let is_fresh = sizes.allocated != Some(size);
    // A node's state is left to the node, unless another size begins.
    let keeps_state = sizes.state == ResizeState::ControllerInProgress || (!is_fresh && sizes.state.is_of_node());
    let is_resizing = status.condition(names::RESIZING).is_some_and(|resizing| resizing.status == "True");
    let told = |type_: &&str| status.condition(type_).is_some();
    let of_before = [names::FILE_SYSTEM_RESIZE_PENDING, names::CONTROLLER_RESIZE_ERROR, names::NODE_RESIZE_ERROR];
    let mark = Begin {
        allocated: is_fresh.then(|| words(claim, status, size)),
        sets_state: !keeps_state,
        drops_not_required: claim.metadata.annotation(names::ANNOTATION_EXPANSION_NOT_REQUIRED).is_some(),
        sets_resizing: !is_resizing || (says_failed && !is_fresh),
        removes: if is_fresh { of_before.into_iter().filter(told).collect() } else { Vec::new() },
        is_fresh,
    };
    (mark != Begin::default()).then_some(mark)
}

/// The size as the user has written it, or as it was begun before.
fn words(claim: &PersistentVolumeClaim, status: &ClaimResize, size: i64) -> SmolStr {
    let said = [claim.spec.storage.as_ref(), status.allocated.as_ref()];
    let same = said.into_iter().flatten().find(|text| bytes(text) == Ok(size));
    same.cloned().unwrap_or_else(|| format_bytes(size).into())
}
