//! Finds import cycles among the files, and among the folders, of each crate of ours and of `benches/compare`.
//!
//! An import is followed to the file that defines the item: through `pub use`, and through the names that a `mod.rs` has imported
//! for its children. What a `mod.rs` takes from its own children is not counted: a folder and its contract are one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{code, crates, imports, is_test_file, rust_files};

/// The words before the name of an item.
const ITEMS: &[&str] = &["struct", "enum", "trait", "fn", "type", "const", "static", "union", "macro_rules!"];

/// One file's names.
#[derive(Debug, Default)]
struct Module {
    file: String,
    defines: BTreeSet<String>,
    /// What `use` binds: a name, or `*`, and the path from the file's own module.
    binds: Vec<(String, Vec<String>)>,
    imports: BTreeSet<String>,
}

/// Every module by its path from the crate's root.
#[derive(Debug, Default)]
struct Modules(BTreeMap<Vec<String>, Module>);

fn path_of(text: &str) -> Vec<String> {
    text.split("::").map(str::to_owned).collect()
}

/// Renames are of no matter to where an item comes from.
fn without_renames(code: &str) -> String {
    let mut parts = code.split(" as ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(part.len());
        text.push_str(&part[end..]);
    }
    text
}

/// The leaves of a use tree: the name that is bound and the path.
fn leaves(tree: &str, base: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut base = base.to_vec();
        base.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let (mut depth, mut begin) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&group[begin..at], &base, found);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        leaves(&group[begin..], &base, found);
        return;
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut full = base.to_vec();
    full.extend(path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    if full.last().is_some_and(|last| last == "self") {
        full.pop();
    }
    if let Some(last) = full.last().filter(|_| !path.is_empty()) {
        found.push((name.unwrap_or(last).to_owned(), full.clone()));
    }
}

impl Module {
    fn read(file: &str, code: &str) -> Self {
        let mut module = Self { file: file.to_owned(), ..Self::default() };
        module.imports = imports(Path::new(file), &without_renames(code));
        for line in code.lines().filter(|line| !line.starts_with([' ', '}', ')'])) {
            let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || "(<:=;{".contains(c)).collect();
            if let Some(at) = words.iter().position(|word| ITEMS.contains(word)) {
                // `const fn name`, `const NAME`.
                let name = words[at + 1..].iter().find(|word| !word.is_empty() && **word != "fn");
                module.defines.extend(name.map(|name| (*name).to_owned()));
            }
        }
        for statement in code.split(';') {
            let statement = statement.trim_start();
            let begins = statement.lines().position(|line| {
                line.starts_with("use ") || (line.starts_with("pub") && line.contains(" use ") && !line.contains("fn "))
            });
            let Some(begins) = begins else { continue };
            let text = statement.lines().skip(begins).collect::<Vec<_>>().join(" ");
            if let Some((_, tree)) = text.split_once("use ") {
                leaves(tree, &[], &mut module.binds);
            }
        }
        module
    }
}

impl Modules {
    fn add(&mut self, file: &str, code: &str) {
        let mut path = path_of(&file.trim_end_matches(".rs").replace('/', "::"));
        path.retain(|part| part != "mod" && part != "lib" && part != "main");
        self.0.insert(path, Module::read(file, code));
    }

    /// The file that defines what a path from the crate's root names.
    fn defining(&self, path: &[String], depth: usize) -> Option<&str> {
        let at = (0..=path.len()).rev().find(|at| self.0.contains_key(&path[..*at]))?;
        let module = &self.0[&path[..at]];
        let Some(name) = path.get(at).filter(|name| !module.defines.contains(*name)) else { return Some(&module.file) };
        if depth == 0 {
            return Some(&module.file);
        }
        if let Some((_, target)) = module.binds.iter().find(|(bound, _)| bound == name) {
            let mut target = self.absolute(&path[..at], target)?;
            target.extend_from_slice(&path[at + 1..]);
            return self.defining(&target, depth - 1);
        }
        for (_, target) in module.binds.iter().filter(|(bound, _)| bound == "*") {
            let mut target = self.absolute(&path[..at], &target[..target.len() - 1]).unwrap_or_default();
            if self.0.get(&target).is_some_and(|module| module.defines.contains(name)) {
                target.extend_from_slice(&path[at..]);
                return self.defining(&target, depth - 1);
            }
        }
        Some(&module.file)
    }

    /// A path that stands in `module`, from the crate's root. `None`: it begins at another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                let of_ours = self.0.contains_key(&[module, &[child.to_owned()]].concat())
                    || self
                        .0
                        .get(module)
                        .is_some_and(|it| it.binds.iter().any(|(name, path)| name == child && path != rest));
                if !of_ours {
                    return None;
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Which files each file needs.
    fn edges(&self) -> Edges<&str> {
        let needs = |path: &Vec<String>, module: &Module| {
            let found = module.imports.iter().filter_map(|import| {
                let import = path_of(import);
                // What a folder's `mod.rs` takes from its own children.
                let of_child = import.starts_with(path) && module.file.ends_with("mod.rs");
                self.defining(&import, 8)
                    .filter(|file| *file != module.file && !of_child && !matches!(*file, "lib.rs" | "main.rs"))
            });
            found.map(|file| self.0.values().find(|module| module.file == file).unwrap().file.as_str()).collect()
        };
        self.0.iter().map(|(path, module)| (module.file.as_str(), needs(path, module))).collect()
    }

    /// Which entries of each folder, files and folders, need which other entries of it.
    fn edges_within_folders(&self) -> BTreeMap<String, Edges<String>> {
        let mut folders: BTreeMap<String, Edges<String>> = BTreeMap::new();
        for (from, needed) in self.edges() {
            for to in needed {
                let (from, to): (Vec<&str>, Vec<&str>) = (from.split('/').collect(), to.split('/').collect());
                let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                let entry = |path: &[&str]| path[..=shared].join("/");
                let edges = folders.entry(from[..shared].join("/")).or_default();
                edges.entry(entry(&from)).or_default().insert(entry(&to));
            }
        }
        folders
    }

    /// The sets of entries of one folder that all need each other, a folder among them. Circles of files alone are not here.
    fn circles_of_folders(&self) -> BTreeSet<Vec<String>> {
        let within = self.edges_within_folders();
        within
            .values()
            .flat_map(circles)
            .filter(|circle| circle.iter().any(|entry| Path::new(entry).extension().is_none()))
            .collect()
    }
}

/// What each one needs.
type Edges<T> = BTreeMap<T, BTreeSet<T>>;

/// The sets of those that all need each other.
fn circles<T: Ord + Clone>(edges: &Edges<T>) -> BTreeSet<Vec<T>> {
    let reached = |from: &T| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            for needed in edges.get(file).into_iter().flatten() {
                if seen.insert(needed) {
                    next.push(needed);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&T, BTreeSet<&T>> = edges.keys().map(|file| (file, reached(file))).collect();
    let circle = |file: &T| -> Vec<T> {
        let back = |other: &&T| reach.get(*other).is_some_and(|it| it.contains(file));
        reach[file].iter().copied().filter(back).cloned().collect()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn an_import_is_followed_to_the_file_that_defines_the_item() {
    let mut modules = Modules::default();
    for (file, code) in [
        ("lib.rs", "pub mod a;\npub mod b;\n"),
        (
            "a/mod.rs",
            "mod one;\nmod two;\npub use one::{One, Other as Renamed};\npub use two::*;\nuse crate::b::B;\npub const OWN: u8 = 1;\n",
        ),
        ("a/one.rs", "use super::{B, OWN};\npub struct One;\npub struct Other;\n"),
        ("a/two.rs", "use super::One;\npub fn two() {}\n"),
        ("b.rs", "use crate::a::{self, Renamed, two};\npub struct B;\n"),
    ] {
        modules.add(file, code);
    }
    let of = |file: &str| modules.edges()[file].iter().copied().collect::<Vec<_>>();
    assert_eq!(of("a/mod.rs"), ["b.rs"]);
    assert_eq!(of("a/one.rs"), ["a/mod.rs", "b.rs"]);
    assert_eq!(of("a/two.rs"), ["a/one.rs"]);
    assert_eq!(of("b.rs"), ["a/mod.rs", "a/one.rs", "a/two.rs"]);
    assert_eq!(circles(&modules.edges()), BTreeSet::from([vec!["a/mod.rs", "a/one.rs", "a/two.rs", "b.rs"]]));
    assert_eq!(modules.circles_of_folders(), BTreeSet::from([vec!["a".to_owned(), "b.rs".to_owned()]]));
    modules.add("b.rs", "pub struct B;\n");
    assert_eq!(circles(&modules.edges()), BTreeSet::new());
    assert_eq!(modules.circles_of_folders(), BTreeSet::new());
}

/// The modules of one crate, without its tests. Its root is `lib.rs` or `main.rs`; other roots in the folder are left out.
fn modules_of(folder: &Path) -> Modules {
    let mut modules = Modules::default();
    for path in rust_files(folder).iter().filter(|path| !is_test_file(path)) {
        let file = path.strip_prefix(folder).unwrap().to_str().unwrap();
        if file != "main.rs" || !folder.join("lib.rs").exists() {
            modules.add(file, &code(path));
        }
    }
    modules
}

/// The crates whose files this looks at.
fn all_modules() -> Vec<Modules> {
    let compare = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare");
    crates().into_iter().map(|(_, folder)| folder).chain([compare]).map(|folder| modules_of(&folder)).collect()
}

#[test]
fn no_file_needs_itself_through_others() {
    let found: Vec<_> = all_modules()
        .iter()
        .flat_map(|modules| circles(&modules.edges()).into_iter().map(|circle| circle.join(", ")).collect::<Vec<_>>())
        .collect();
    assert!(found.is_empty(), "circles of files:\n{}", found.join("\n"));
}

#[test]
fn no_folder_needs_itself_through_others() {
    let found: BTreeSet<Vec<String>> = all_modules().iter().flat_map(Modules::circles_of_folders).collect();
    assert!(found.is_empty(), "circles of folders: {found:#?}");
}
