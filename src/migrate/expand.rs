//! `$(NAME)` in a container's arguments, as the kubelet expands it. Pure.
//!
//! What is only known in the pod, such as its address, becomes `{status.podIP}`: who reads the value decides whether that
//! can be said otherwise.

use std::collections::BTreeMap;

use serde_yaml::Value;

use super::document::list;
use crate::process::yaml;

/// What a variable of the container holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    Text(String),
    /// Taken from somewhere that is not in the manifest.
    Elsewhere(String),
}

/// A container's variables.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    known: BTreeMap<String, Variable>,
}

/// A variable without a value that could be known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// Its name.
    pub(super) name: String,
    /// Where it comes from.
    pub(super) from: String,
}

impl Variables {
    /// Those of a container; `namespace` is the workload's, if it has one.
    pub(super) fn of(container: &Value, namespace: Option<&str>) -> Self {
        let mut variables = Self::default();
        for entry in list(container, "env") {
            let Some(name) = entry.get("name").and_then(Value::as_str) else { continue };
            let variable = variables.read(entry, namespace);
            variables.known.insert(name.to_owned(), variable);
        }
        variables
    }

    fn read(&self, entry: &Value, namespace: Option<&str>) -> Variable {
        let Some(source) = entry.get("valueFrom") else {
            let text = match entry.get("value") {
                None | Some(Value::Null) => "",
                Some(Value::String(text)) => text,
                // kubectl reads YAML 1.1, where `no` is a switch, and the API refuses the object.
                Some(other) => {
                    let read = yaml::write(other);
                    return Variable::Elsewhere(format!(
                        "{} in YAML 1.1 and needs quotes to be a text",
                        read.trim_end()
                    ));
                }
            };
            return self.expand(text).map_or_else(|missing| Variable::Elsewhere(missing.from), Variable::Text);
        };
        let field = source.get("fieldRef").and_then(|field| field.get("fieldPath")).and_then(Value::as_str);
        match (field, namespace) {
            (Some("metadata.namespace"), Some(namespace)) => Variable::Text(namespace.to_owned()),
            (Some(path), _) => Variable::Text(format!("{{{path}}}")),
            (None, _) => {
                let kind = source.as_mapping().and_then(|map| map.keys().next()).and_then(Value::as_str);
                Variable::Elsewhere(format!("a {}", kind.unwrap_or("source that is not named")))
            }
        }
    }

    /// The value of a variable, if the manifest has it.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.known.get(name)? {
            Variable::Text(text) => Some(text),
            Variable::Elsewhere(_) => None,
        }
    }

    /// Expands a text.
    pub(super) fn expand(&self, text: &str) -> Result<String, Missing> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                expanded.push('$');
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
                let missing = |from: &str| Missing { name: name.to_owned(), from: from.to_owned() };
                match self.known.get(name) {
                    Some(Variable::Text(value)) => expanded.push_str(value),
                    Some(Variable::Elsewhere(from)) => return Err(missing(from)),
                    None => return Err(missing("no variable of the container")),
                }
                rest = after;
            } else {
                expanded.push('$');
            }
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "
env:
  - {name: DIR, value: /csi}
  - {name: ADDRESS, value: $(DIR)/csi.sock}
  - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: POD_IP, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}
  - {name: SWITCH, value: on}
  - {name: MODE, value: 0400}
  - {name: WORD, value: 'on'}
  - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}
";

    fn expand(text: &str, namespace: Option<&str>) -> Result<String, String> {
        let container = yaml::read(CONTAINER).unwrap();
        let missing = |missing: Missing| format!("{}: {}", missing.name, missing.from);
        Variables::of(&container, namespace).expand(text).map_err(missing)
    }

    #[test]
    fn variables_are_expanded_as_the_kubelet_does() {
        for (text, expanded) in [
            ("$(ADDRESS)", Ok("/csi/csi.sock")),
            ("unix://$(DIR)/x", Ok("unix:///csi/x")),
            ("$(POD_IP):8090", Ok("{status.podIP}:8090")),
            ("$$(DIR) $DIR $", Ok("$(DIR) $DIR $")),
            ("$(NS)", Ok("storage")),
            ("$(KEY)", Err("KEY: a secretKeyRef")),
            ("$(NONE)", Err("NONE: no variable of the container")),
            ("$(DIR", Ok("$(DIR")),
            ("$(WORD)", Ok("on")),
            ("$(SWITCH)", Err("SWITCH: true in YAML 1.1 and needs quotes to be a text")),
            ("$(MODE)", Err("MODE: 256 in YAML 1.1 and needs quotes to be a text")),
        ] {
            assert_eq!(expand(text, Some("storage")).as_deref().map_err(String::as_str), expanded, "{text}");
        }
        assert_eq!(expand("$(NS)", None).as_deref(), Ok("{metadata.namespace}"));
    }
}
