//! A Kubernetes manifest in the place of the configuration, most often the ConfigMap that holds it. Each of its keys would be an
//! unknown one, and that would not say what is wrong. Pure.

use serde_json::{Map, Value};

/// The key that says what a manifest is.
pub(super) const KIND: &str = "kind";

/// What was found in the place of the configuration and what belongs there, if the file is a manifest.
pub(super) fn instead(tree: &Value) -> Option<(String, String)> {
    let (Some(_), Some(kind)) = (tree["apiVersion"].as_str(), tree[KIND].as_str()) else { return None };
    let found = format!("a {kind} manifest, not the configuration");
    let itself = "the configuration itself";
    if kind != "ConfigMap" {
        return Some((found, itself.to_owned()));
    }
    let keys: Vec<&str> = tree["data"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    let (place, key) = match keys.as_slice() {
        [] => {
            let allowed = format!("{itself}, which is the text of a data key, and this ConfigMap has none");
            return Some((found, allowed));
        }
        [only] => (format!("its data key `{only}`"), *only),
        several => (format!("one of its data keys `{}`", several.join("`, `")), "KEY"),
    };
    let metadata = |part: &str| tree["metadata"][part].as_str().map_or_else(|| part.to_uppercase(), str::to_owned);
    let allowed = format!(
        "{itself}, which is the text of {place}; of an applied ConfigMap this prints it: kubectl get configmap {} -n {} -o \
         jsonpath='{{.data.{}}}'",
        metadata("name"),
        metadata("namespace"),
        // A dot within a key would lead one level down.
        key.replace('.', "\\."),
    );
    Some((found, allowed))
}
