//! The linker script that puts first what the daemon executes. Pure.
//!
//! A page of a program takes memory once something in it runs, and the kernel maps its neighbours along. So functions that run should
//! lie together. The script names them without their hashes, which each build changes, and names many of one module by what their names
//! begin with: that puts some functions first that never run, and makes the script short.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

/// No shorter beginning of a name is in the script.
const SHORTEST: usize = 12;

/// What a script is made for.
const HEADER: &str = "/* Functions that run lie together in the image's binary, so that few of its pages are in memory.\n   \
     `just order` has traced a run and written this. See docs/rebuild.md. */\n";

/// The functions of a program, by name.
pub(crate) struct Functions {
    names: Vec<String>,
    /// How many bytes the functions take that come before each.
    before: Vec<u64>,
}

impl Functions {
    /// The functions with these names and sizes in bytes. Those of C and of the assembler are left where they are.
    pub(crate) fn new(all: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut all: Vec<_> = all.into_iter().filter(|(name, _)| is_of_rust(name)).collect();
        all.sort_unstable();
        let mut sum = 0;
        let mut before = vec![0];
        before.extend(all.iter().map(|(_, bytes)| {
            sum += bytes;
            sum
        }));
        Self { names: all.into_iter().map(|(name, _)| name).collect(), before }
    }

    /// How many bytes the functions take whose names begin so.
    fn bytes(&self, beginning: &str) -> u64 {
        let from = self.names.partition_point(|name| name.as_str() < beginning);
        let count = self.names[from..].partition_point(|name| name.starts_with(beginning));
        self.before[from + count] - self.before[from]
    }
}

fn is_of_rust(name: &str) -> bool {
    name.starts_with("_ZN") || name.starts_with("_R")
}

/// A name without the hash of the build, which ends each mangled name that is not of the standard library.
fn without_hash(name: &str) -> &str {
    const HASH: usize = "0123456789abcdefE".len();
    let Some(start) = name.len().checked_sub(HASH) else { return name };
    let is_hash = name.ends_with('E') && name.get(..start).is_some_and(|rest| rest.ends_with("17h"));
    if is_hash { &name[..start] } else { name }
}

/// What one sort of process executes.
pub(crate) struct Group {
    /// The section of the program that it gets.
    pub(crate) section: &'static str,
    /// The names of the functions.
    pub(crate) executed: BTreeSet<String>,
    /// At most so many bytes of functions go into the section, if there are beginnings of names that do.
    pub(crate) most: u64,
}

/// The script that puts first what the groups execute, one group after the other.
pub(crate) fn script(functions: &Functions, groups: &[Group]) -> String {
    let mut text = format!("{HEADER}SECTIONS\n{{\n");
    let mut before: Vec<String> = Vec::new();
    for group in groups {
        let is_news = |name: &&String| !before.iter().any(|it| name.starts_with(it.as_str()));
        let beginnings = beginnings(functions, group.executed.iter().filter(is_news), group.most);
        let _ = writeln!(text, "  {} : {{", group.section);
        for beginning in &beginnings {
            let _ = writeln!(text, "    *(.text.{}*)", pattern(beginning));
        }
        text.push_str("  }\n");
        before.extend(beginnings);
    }
    text.push_str("}\nINSERT BEFORE .text;\n");
    text
}

/// Beginnings of the names of all that was executed, and of as little else as fits into `most` bytes.
fn beginnings<'a>(functions: &Functions, executed: impl Iterator<Item = &'a String>, most: u64) -> Vec<String> {
    let is_there = |name: &&String| functions.names.binary_search(name).is_ok();
    let exact: BTreeSet<&str> = executed.filter(is_there).map(|name| without_hash(name)).collect();
    let mut beginnings: Vec<String> = exact.into_iter().map(str::to_owned).collect();
    // One that begins with another is in that one.
    beginnings.dedup_by(|longer, shorter| longer.starts_with(shorter.as_str()));
    while let Some(shorter) = cheapest(functions, &beginnings) {
        if total(functions, &beginnings) + shorter.added > most {
            break;
        }
        beginnings.splice(shorter.of.clone(), [shorter.beginning]);
    }
    beginnings
}

fn total(functions: &Functions, beginnings: &[String]) -> u64 {
    beginnings.iter().map(|it| functions.bytes(it)).sum()
}

/// A beginning that takes the place of several.
struct Shorter {
    beginning: String,
    of: Range<usize>,
    /// The bytes of the further functions that it names.
    added: u64,
}

/// The beginning that adds the fewest bytes for each line that it saves.
fn cheapest(functions: &Functions, beginnings: &[String]) -> Option<Shorter> {
    let mut sums = vec![0];
    for beginning in beginnings {
        sums.push(sums[sums.len() - 1] + functions.bytes(beginning));
    }
    let shorter = beginnings.windows(2).enumerate().filter_map(|(at, pair)| {
        let common = pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count();
        // Names are ASCII.
        let beginning = pair[0].get(..common).filter(|_| common >= SHORTEST)?;
        let from = beginnings[..at].iter().rposition(|it| !it.starts_with(beginning)).map_or(0, |before| before + 1);
        let count = beginnings[from..].partition_point(|it| it.starts_with(beginning));
        let of = from..from + count;
        let added = functions.bytes(beginning) - (sums[of.end] - sums[of.start]);
        Some(Shorter { beginning: beginning.to_owned(), of, added })
    });
    // Whole numbers: a byte more for each of two thousand lines still counts.
    shorter.min_by_key(|it| it.added.saturating_mul(1 << 20) / (it.of.len() as u64 - 1))
}

/// A beginning as the linker reads it. The names of the standard library, mangled in another way, say of which build each crate is.
fn pattern(beginning: &str) -> String {
    if !beginning.starts_with("_R") {
        return beginning.to_owned();
    }
    let mut text = String::new();
    let mut rest = beginning;
    while let Some(at) = rest.find("Cs") {
        let (before, build) = rest.split_at(at + 2);
        let digits = build.find(|digit: char| !digit.is_ascii_alphanumeric()).unwrap_or(build.len());
        text.push_str(before);
        rest = &build[digits..];
        if rest.starts_with('_') || rest.is_empty() {
            text.push('*');
        } else {
            text.push_str(&build[..digits]);
        }
    }
    text.push_str(rest);
    text
}
