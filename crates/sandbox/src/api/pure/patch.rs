//! Applies patches: the four kinds of patch that a Kubernetes API server accepts.
//!
//! ```text
//!   application/json-patch+json              json.rs       a list of operations, all or none (RFC 6902, as evanphx/json-patch)
//!   application/merge-patch+json             merge.rs      members replaced, null removes (RFC 7386)
//!   application/strategic-merge-patch+json   strategic.rs  as merge, lists by their merge key
//!   application/apply-patch+yaml             apply.rs      what one manager wants; fields.rs says who owns what
//! ```
//!
//! `schema.rs` knows which lists of our kinds have keys. [`super::validate`] checks the result.

mod apply;
mod fields;
mod go;
mod json;
mod merge;
mod schema;
mod strategic;

use super::rejection::Rejection;
use super::resources::Resource;
use serde_json::Value;

pub use apply::{Managed, apply_configuration, track_update};
pub use merge::merged;

/// The kinds of patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902 operations.
    Json,
    /// RFC 7386 merge.
    Merge,
    /// Merge by the kinds' merge keys and `$` directives.
    Strategic,
    /// Server-side apply.
    Apply {
        /// Who applies: the `fieldManager` parameter.
        manager: String,
        /// Whether fields of other managers are taken over.
        force: bool,
    },
}

/// What `current` becomes by the patch in `body`. Only server-side apply can do without a current object: it makes one.
///
/// Server-side apply to the object itself, at an unknown time; use [`apply_configuration`] for a subresource or a time.
pub fn apply(kind: &PatchKind, resource: &Resource, current: Option<&Value>, body: &[u8]) -> Result<Value, Rejection> {
    if let PatchKind::Apply { manager, force } = kind {
        let managed = Managed { manager, subresource: "", time: None };
        return apply_configuration(resource, current, body, managed, *force);
    }
    let Some(current) = current else { return Err(Rejection::not_found(resource, "")) };
    let patched = match kind {
        PatchKind::Json => json::apply(current, body)?,
        PatchKind::Merge => merge::apply(current, body)?,
        _ => strategic::apply(current, merge::object(body)?)?,
    };
    if patched.is_object() {
        return Ok(patched);
    }
    Err(Rejection::undecodable(resource, "the patched document is no object"))
}

/// A patch as the server shows it when its result is refused: what it makes of the object, but a strategic patch itself.
pub fn shown(kind: &PatchKind, body: &[u8], patched: &Value) -> String {
    match (kind, merge::object(body)) {
        (PatchKind::Strategic, Ok(patch)) => go::go_map(&patch),
        _ => patched.to_string(),
    }
}

#[cfg(test)]
mod tests;
