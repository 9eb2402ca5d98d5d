//! docs/configuration.md is generated from config/reference.yaml, which explains each key, and from the schema, which
//! has the allowed values: `just docs-update` writes it.

use std::fmt::Write as _;
use std::path::Path;

use csi_control_plane::config::Config;
use csi_control_plane::roles::sections;
use serde_json::Value;

/// Asks for the page to be written instead of compared.
const UPDATE: &str = "DOCS_UPDATE";

const HEAD: &str = "\
<!-- Made by `just docs-update` from config/reference.yaml and the schema; a test keeps it so. -->

# Configuration

One YAML file, named by `--config` or by the variable `CSI_CONTROL_PLANE_CONFIG`. [`config/minimal.yaml`](../config/minimal.yaml)
is the smallest useful one, [`config/reference.yaml`](../config/reference.yaml) is this page as a file, and `csi-control-plane
schema` prints the JSON Schema, which editors understand.

- A missing key has its default. An unknown key is refused, and the error suggests the key that was probably meant.
- A role is enabled if its block below `roles` is present, even if the block is empty.
- Durations are numbers with a unit (`h`, `m`, `s`, `ms`), such as `15s` or `1m30s`.
- An environment variable takes precedence over the file: `CSI_CONTROL_PLANE_LEADER_ELECTION__LEASE_DURATION=30s` is
  `leaderElection.leaseDuration` (`__` goes one level down, `_` begins the next word). The value can also be a whole block as YAML.
- The flags `--role` (repeated), `--csi-address`, `--timeout` and `--v` of `run` take precedence over both, and with a role no file is
  needed: `csi-control-plane run --role attacher --csi-address /csi/csi.sock`. `check` takes the same flags, and says which key each sets.
- The daemon reads its place in the cluster from variables: `POD_NAMESPACE` (else `NAMESPACE`, else the service account's namespace,
  else `default`) for the journal and capacity objects, the same without `NAMESPACE` for Leases, `POD_NAME` for `capacity.ownerLevel` 0
  and above, `NODE_NAME` for `nodeDeployment` and `csiNodeInterval`. Without one of the last two that its file needs, `run` ends with 78
  and a reload is refused; `check` may run elsewhere, and warns.
  The chart sets those that are needed; `migrate` sets `POD_NAMESPACE` and `POD_NAME`, and keeps the sidecar's `NODE_NAME`. `check` uses
  `POD_NAMESPACE` or `NAMESPACE` in the rights that it prints; without them it prints `NAMESPACE`. The namespace of a kubeconfig's
  context counts for nothing, as in the Go sidecars.
- `csi-control-plane check --config FILE --driver-name NAME` works offline and reports all errors at once, each with its key, its line, the value
  found and the values allowed; `-` is the standard input, also for `migrate -f -`.
- \"was\" names the flag of the Go sidecar that a key replaces; [flags.md](flags.md) is the table by flag.
";

/// A key of the reference, with the comment above it.
struct Key {
    path: Vec<String>,
    /// As it is written; `None`: a block of further keys.
    default: Option<String>,
    told: String,
}

/// The keys of the reference, in its order.
fn keys(text: &str) -> Vec<Key> {
    let (mut keys, mut path, mut told) = (Vec::new(), Vec::<String>::new(), Vec::new());
    for line in text.lines() {
        let rest = line.trim_start();
        if let Some(comment) = rest.strip_prefix('#') {
            told.push(comment.trim());
        } else if let Some((key, value)) = rest.split_once(':') {
            path.truncate((line.len() - rest.len()) / 2);
            path.push(key.to_owned());
            let default = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            keys.push(Key { path: path.clone(), default, told: told.join(" ") });
            told.clear();
        } else {
            assert!(rest.is_empty(), "neither a key nor a comment: {line}");
            told.clear();
        }
    }
    keys
}

/// The allowed values, in words.
fn allowed(schema: &Value) -> String {
    let code = |value: &Value| format!("`{}`", value.as_str().unwrap());
    if let Some(all) = schema["oneOf"].as_array() {
        return all.iter().map(|one| code(&one["const"])).collect::<Vec<_>>().join(", ");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().map(|it| it.as_str().unwrap()).collect(),
        only => vec![only.as_str().unwrap()],
    };
    let mut words: Vec<String> = types
        .iter()
        .filter(|it| **it != "null")
        .map(|it| match (*it, schema["format"].as_str()) {
            ("boolean", _) => "`true`, `false`".to_owned(),
            ("integer" | "number", _) => match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
                (Some(least), Some(most)) if most < f64::from(i32::MAX) => format!("{least} to {most}"),
                (Some(least), _) => format!("at least {least}"),
                _ => "a number".to_owned(),
            },
            ("string", Some("go-duration")) => "duration".to_owned(),
            ("string", Some("socket-address")) => "address and port".to_owned(),
            ("string", _) => "text".to_owned(),
            ("array", _) => "list of texts".to_owned(),
            ("object", _) => "mapping of texts".to_owned(),
            (other, _) => panic!("no word for {other}"),
        })
        .collect();
    // An empty mapping is as good as none; everywhere else null says something of its own.
    words.extend((types.contains(&"null") && !types.contains(&"object")).then(|| "`null`".to_owned()));
    words.join(", or ")
}

fn page(keys: &[Key], schema: &Value) -> String {
    let mut page = HEAD.to_owned();
    for block in keys.iter().filter(|key| key.default.is_none()) {
        let depth = block.path.len();
        write!(page, "\n{} {}\n\n{}\n", "#".repeat(depth + 1), block.path.join("."), block.told).unwrap();
        let held =
            |key: &&Key| key.default.is_some() && key.path.len() == depth + 1 && key.path.starts_with(&block.path);
        let mut held = keys.iter().filter(held).peekable();
        if held.peek().is_some() {
            page.push_str("\n| key | default | may be | what |\n|---|---|---|---|\n");
        }
        for key in held {
            let pointer = key.path.iter().fold(String::new(), |above, part| above + "/properties/" + part);
            let schema = schema.pointer(&pointer).unwrap_or_else(|| panic!("no key {pointer}"));
            let (name, default) = (&key.path[depth], key.default.as_deref().unwrap_or_default());
            let told = key.told.replace('|', "\\|");
            writeln!(page, "| `{name}` | `{default}` | {} | {told} |", allowed(schema)).unwrap();
        }
    }
    page
}

#[test]
fn the_page_of_the_configuration_is_made_of_the_reference_and_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("docs/configuration.md");
    let keys = keys(&std::fs::read_to_string(root.join("config/reference.yaml")).unwrap());
    let wanted = page(&keys, &Config::schema(&sections()));
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let nothing = std::iter::repeat("(nothing)");
    let differs = wanted.lines().zip(found.lines().chain(nothing)).find(|(wanted, found)| wanted != found);
    assert!(wanted == found, "docs/configuration.md: `just docs-update` writes it; first difference: {differs:#?}");
}

#[test]
fn a_key_is_read_with_what_stands_above_it() {
    let text = "# The file.\n\n# A block.\nblock:\n  # The first,\n  # on two lines.\n  first: 1s\n\n  second: {}\n# Last.\nlast: null\n";
    let keys = keys(text);
    let read: Vec<_> = keys.iter().map(|key| (key.path.join("."), key.default.as_deref(), key.told.as_str())).collect();
    let expected = [
        ("block".to_owned(), None, "A block."),
        ("block.first".to_owned(), Some("1s"), "The first, on two lines."),
        ("block.second".to_owned(), Some("{}"), ""),
        ("last".to_owned(), Some("null"), "Last."),
    ];
    assert_eq!(read, expected);
}
