//! Which form of the answer the client accepts. Pure.

use super::super::pure::rejection::Rejection;

/// The forms in which objects are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Whole.
    Full,
    /// `metadata` alone.
    Metadata,
    /// As rows for people.
    Table,
}

/// The first form in the `Accept` header that this server has.
pub(super) fn negotiate(accept: Option<&str>) -> Result<View, Rejection> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else { return Ok(View::Full) };
    accept.split(',').find_map(view).ok_or_else(|| {
        Rejection::not_acceptable(&["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
    })
}

fn view(range: &str) -> Option<View> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    if !matches!(kind, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let mut form = View::Full;
    let mut group = "meta.k8s.io";
    let mut version = "v1";
    for part in parts {
        match part.split_once('=') {
            Some(("as", "Table")) => form = View::Table,
            Some(("as", "PartialObjectMetadata" | "PartialObjectMetadataList")) => form = View::Metadata,
            Some(("as", _)) => return None,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    (form == View::Full || (group == "meta.k8s.io" && version == "v1")).then_some(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_had_is_sent() {
        let table = [
            ("", Some(View::Full)),
            ("*/*", Some(View::Full)),
            ("application/json, */*", Some(View::Full)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(View::Full)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(View::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(View::Full)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(View::Metadata)),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
        ];
        for (accept, wanted) in table {
            assert_eq!(negotiate(Some(accept)).ok(), wanted, "{accept}");
        }
    }
}
