//! The settings as a configuration file, each with the flag that it comes from, and the ConfigMap that holds it. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use crate::process::yaml;

use super::settle::Chosen;

/// Where the daemon's container finds its file.
pub(super) const FOLDER: &str = "/etc/csi-control-plane";
/// The file's name there, and its key in the ConfigMap.
pub(super) const NAME: &str = "config.yaml";

/// The order of the reference; the roles follow.
const BLOCKS: [&str; 6] = ["csi", "kubernetes", "leaderElection", "diagnostics", "telemetry", "runtime"];

/// The configuration file. Roles that nothing is said of are there with nothing in them: that enables them.
pub(super) fn configuration(chosen: &[Chosen], roles: &[&'static str], source: &str) -> String {
    let mut root = Node::default();
    for block in BLOCKS.iter().filter(|block| chosen.iter().any(|one| one.key.starts_with(&format!("{block}.")))) {
        root.child(block);
    }
    for role in roles {
        root.child("roles").child(role);
    }
    for one in chosen {
        root.put(&one.key, one);
    }
    let mut text =
        format!("# Made by `csi-control-plane migrate` from {source}.\n# Everything else is at its default.\n");
    root.write(0, &mut text);
    text
}

/// The ConfigMap of a file.
pub(super) fn config_map(name: &str, namespace: Option<&str>, file: &str) -> String {
    let name = yaml::text(name);
    let namespace = namespace.map(|namespace| format!("  namespace: {}\n", yaml::text(namespace))).unwrap_or_default();
    let mut text =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{namespace}data:\n  {NAME}: |\n");
    for line in file.lines() {
        // Writing into a String cannot fail.
        let _ = if line.is_empty() { writeln!(text) } else { writeln!(text, "    {line}") };
    }
    text
}

/// A mapping in the order in which it was made.
#[derive(Default)]
struct Node<'a> {
    children: Vec<(String, Self)>,
    value: Option<&'a Chosen>,
}

impl<'a> Node<'a> {
    fn child(&mut self, key: &str) -> &mut Self {
        let at = self.children.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
            self.children.push((key.to_owned(), Node::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }

    fn put(&mut self, path: &str, chosen: &'a Chosen) {
        match path.split_once('.') {
            Some((first, rest)) => self.child(first).put(rest, chosen),
            None => self.child(path).value = Some(chosen),
        }
    }

    fn write(&self, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        for (key, node) in &self.children {
            let _ = match node.value {
                Some(Chosen { value, because, .. }) => {
                    // A comment ends with its line, whatever stood on a command line.
                    let because = because.replace(|c: char| c.is_control() || "\u{2028}\u{2029}".contains(c), " ");
                    writeln!(text, "{indent}{key}: {} # {because}", scalar(value))
                }
                None => writeln!(text, "{indent}{key}:"),
            };
            node.write(depth + 1, text);
        }
    }
}

/// A value in one line: JSON is YAML, and words need no quotes.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if yaml::is_plain(text) => text.clone(),
        Value::String(text) => yaml::quoted(text),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_says_where_each_value_comes_from() {
        let chosen: Vec<Chosen> = [
            ("roles.attacher.retry.max", json!("5m")),
            ("csi.endpoint", json!("/csi/csi.sock")),
            ("leaderElection.labels", json!({"a": "b"})),
            ("diagnostics.listen", json!("0.0.0.0:80")),
            ("telemetry.logs.level", json!("off")),
        ]
        .into_iter()
        .map(|(key, value)| Chosen { key: key.to_owned(), value, because: "x --y".to_owned() })
        .collect();
        let text = configuration(&chosen, &["attacher", "reconciler"], "Deployment d");
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "csi:",
                "  endpoint: /csi/csi.sock # x --y",
                "leaderElection:",
                "  labels: {\"a\":\"b\"} # x --y",
                "diagnostics:",
                "  listen: \"0.0.0.0:80\" # x --y",
                "telemetry:",
                "  logs:",
                "    level: \"off\" # x --y",
                "roles:",
                "  attacher:",
                "    retry:",
                "      max: 5m # x --y",
                "  reconciler:",
            ]
        );
        let map: serde_json::Value = serde_yaml::from_str(&config_map("n", Some("s"), &text)).unwrap();
        assert_eq!(map["data"][NAME], text);
        assert_eq!(map["metadata"], json!({"name": "n", "namespace": "s"}));
    }
}
