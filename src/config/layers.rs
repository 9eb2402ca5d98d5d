//! The layers: each is checked against the schema, then figment merges them and remembers the origin of each value.

use figment::value::{Dict, Map as ProfileMap, Value as Tagged};
use figment::{Error, Figment, Metadata, Profile, Provider};
use serde_json::{Map, Value, json};

use super::environment::variable;
use super::yaml::{self, Tree};
use super::{Config, File, FlagSetting, RoleSection, Sources, manifest, schema, shape, syntax};
use crate::process::Fault;

const DEFAULT: &str = "default";

/// What layers are checked against: the schema, and the roles that it is of.
type Known<'a> = (&'a Value, &'a [RoleSection]);

/// One layer without a fault, and what messages call it.
struct Layer {
    origin: String,
    tree: Value,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<ProfileMap<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(Tagged::serialize(&self.tree)?.into_dict().unwrap_or_default()))
    }
}

/// All layers, the later over the earlier.
pub(super) struct Merged<'a> {
    tree: Value,
    tagged: Dict,
    figment: Figment,
    file: Option<&'a File>,
}

/// Merges the valid values and notes the faults of the others.
pub(super) fn merge<'a>(sources: &'a Sources, roles: &[RoleSection], faults: &mut Vec<Fault>) -> Merged<'a> {
    let schema = schema::schema(roles);
    let file = sources.file.as_ref();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut figment = Figment::from(Layer { origin: DEFAULT.to_owned(), tree: defaults });
    for file in sources.base.iter().chain(file) {
        figment = figment.merge(Layer { origin: file.name.clone(), tree: read_file(file, (&schema, roles), faults) });
    }
    // In the order of their names, so that `…_CSI__TIMEOUT` stands over `…_CSI`.
    for (name, text) in &sources.environment {
        if let Some(variable) = variable(name, text) {
            let origin = format!("environment variable {}", variable.name);
            let mut tree = variable.tree(&schema);
            let before = faults.len();
            note((&schema, roles), &mut tree, faults, |_| origin.clone());
            if let Some(meant) = variable.meant(&schema) {
                for fault in faults.iter_mut().skip(before).filter(|fault| fault.found == shape::UNKNOWN_KEY) {
                    fault.allowed = format!("did you mean the variable {meant}?");
                }
            }
            for path in tree.unusual.duplicates {
                faults.push(again(&path, "", origin.clone()));
            }
            figment = figment.merge(Layer { origin, tree: tree.value });
        }
    }
    for FlagSetting { flag, key, value } in &sources.flags {
        let leaf = value.clone();
        let value = key.rsplit('.').fold(leaf, |value, key| json!({ key: value }));
        let mut tree = Tree { value, ..Tree::default() };
        note((&schema, roles), &mut tree, faults, |_| flag.clone());
        figment = figment.merge(Layer { origin: flag.clone(), tree: tree.value });
    }
    let tagged = figment.data().ok().and_then(|mut profiles| profiles.remove(&Profile::Default)).unwrap_or_default();
    let tree = serde_json::to_value(&tagged).unwrap_or_default();
    Merged { tree, tagged, figment, file }
}

fn read_file(file: &File, known: Known<'_>, faults: &mut Vec<Fault>) -> Value {
    let mut tree = match yaml::parse(&file.text) {
        Ok(tree) => tree,
        Err(error) => {
            faults.push(syntax::fault(file, &error));
            return json!({});
        }
    };
    if let Some((found, allowed)) = manifest::instead(&tree.value) {
        let origin = Some(locate(file, &[manifest::KIND.to_owned()]));
        faults.push(Fault { key: String::new(), found, allowed, origin });
        return json!({});
    }
    for path in &tree.unusual.duplicates {
        let line = |nth| yaml::locate(&file.text, path, nth).unwrap_or_default();
        let first = format!(" (first on line {})", line(0));
        faults.push(again(path, &first, format!("{}:{}", file.name, line(1))));
    }
    note(known, &mut tree, faults, |path| locate(file, path));
    tree.value
}

/// A key that stands twice.
fn again(path: &[String], first: &str, origin: String) -> Fault {
    let found = format!("the same key again{first}");
    Fault { key: path.join("."), found, allowed: "each key once".to_owned(), origin: Some(origin) }
}

/// Takes what does not fit out of a layer.
fn note((schema, roles): Known<'_>, tree: &mut Tree, faults: &mut Vec<Fault>, origin: impl Fn(&[String]) -> String) {
    let wide = &tree.unusual.wide;
    let digits = |path: &[String]| wide.iter().find(|(at, _)| at == path).map(|(_, digits)| digits.clone());
    faults.extend(shape::check(schema, roles, &mut tree.value).into_iter().map(|finding| Fault {
        origin: Some(origin(&finding.path)),
        found: digits(&finding.path).filter(|_| finding.found != shape::UNKNOWN_KEY).unwrap_or(finding.found),
        key: finding.path.join("."),
        allowed: finding.allowed,
    }));
}

/// `file:line` of a key, or of the nearest block around it.
fn locate(file: &File, path: &[String]) -> String {
    let line = (1..=path.len()).rev().find_map(|length| yaml::locate(&file.text, &path[..length], 0));
    line.map_or_else(|| file.name.clone(), |line| format!("{}:{line}", file.name))
}

impl Merged<'_> {
    /// Moves the value at `path` out.
    pub(super) fn take(&mut self, path: &[&str]) -> Option<Value> {
        let (last, above) = path.split_last()?;
        let block = above.iter().try_fold(&mut self.tree, |tree, key| tree.get_mut(key))?;
        block.as_object_mut().and_then(|block: &mut Map<String, Value>| block.remove(*last))
    }

    /// Adds where the faulty value came from. What is in no layer is a role's default.
    pub(super) fn trace(&self, fault: Fault) -> Fault {
        let path: Vec<String> = fault.key.split('.').map(str::to_owned).collect();
        let said = self.find(&path).and_then(|value| self.figment.get_metadata(value.tag()));
        let origin = match (said.map(|metadata| metadata.name.as_ref()), self.file) {
            (Some(name), Some(file)) if name == file.name => locate(file, &path),
            (Some(name), _) => name.to_owned(),
            (None, _) => DEFAULT.to_owned(),
        };
        Fault { origin: Some(origin), ..fault }
    }

    fn find(&self, path: &[String]) -> Option<&Tagged> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.tagged.get(first)?, |value, key| value.as_dict()?.get(key))
    }
}
