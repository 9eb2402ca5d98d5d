//! A node's labels, and what asks for them. Pure.

use serde_json::Value;

use super::{list, text};

/// The node's label of this key.
pub(super) fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// Whether the node's labels match an expression.
pub(super) fn holds(expression: &Value, node: &Value) -> bool {
    let label = label(node, text(expression, "/key"));
    let listed = || label.is_some_and(|label| list(expression, "/values").iter().any(|it| *it == label));
    match text(expression, "/operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}
