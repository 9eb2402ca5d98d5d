//! The linker script that puts first what the daemon executes. Pure.
//!
//! A page of a program takes memory once something in it runs, and the kernel maps its neighbours along. So functions that run should
//! lie together. A name says which instance of a generic function it is (Rust's mangling of version 0): of the hundreds of `poll`, those
//! that run. What each build changes in a name is a `*` in the script, and many functions of one module are named by what their names
//! begin with: that puts some first that never run, and makes the script short.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

/// No fewer letters of a name are in the script, where another has the same.
const SHORTEST: usize = 16;

/// The end of a name of C or of the assembler, which is no beginning of another name.
const END: char = ' ';

/// What a script is made for.
const HEADER: &str = "/* Functions that run lie together in the image's binary, so that few of its pages are in memory.\n   \
     `just order` has traced a run and written this. See docs/rebuild.md. */\n";

/// The functions of a program, by what their names are in each build.
pub(crate) struct Functions {
    names: Vec<String>,
    /// How many bytes the functions take that come before each.
    before: Vec<u64>,
}

impl Functions {
    /// The functions with these names and sizes in bytes.
    pub(crate) fn new(all: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut all: Vec<_> = all.into_iter().map(|(name, bytes)| (in_each_build(&name), bytes)).collect();
        all.sort_unstable();
        let mut sum = 0;
        let mut before = vec![0];
        before.extend(all.iter().map(|(_, bytes)| {
            sum += bytes;
            sum
        }));
        Self { names: all.into_iter().map(|(name, _)| name).collect(), before }
    }

    /// Which functions have names that begin so.
    fn range(&self, beginning: &str) -> Range<usize> {
        let from = self.names.partition_point(|name| name.as_str() < beginning);
        from..from + self.names[from..].partition_point(|name| name.starts_with(beginning))
    }

    /// How many bytes the functions take whose names begin so.
    fn bytes(&self, beginning: &str) -> u64 {
        let range = self.range(beginning);
        self.before[range.end] - self.before[range.start]
    }

    /// The shortest beginning that no further name has.
    fn shortest<'a>(&self, beginning: &'a str) -> &'a str {
        let range = self.range(beginning);
        let mut shorter = (0..beginning.len()).map(|length| &beginning[..length]).filter(|it| is_distinct(it));
        shorter.find(|it| self.range(it) == range).unwrap_or(beginning)
    }
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
        let executed = group.executed.iter().map(|name| in_each_build(name));
        let news = executed.filter(|name| !before.iter().any(|it| name.starts_with(it.as_str())));
        let beginnings = beginnings(functions, news.collect(), group.most);
        let _ = writeln!(text, "  {} : {{", group.section);
        for beginning in &beginnings {
            let pattern = match beginning.strip_suffix(END) {
                Some(name) => name.to_owned(),
                None => format!("{}*", functions.shortest(beginning)),
            };
            let _ = writeln!(text, "    *(.text.{pattern})");
        }
        text.push_str("  }\n");
        before.extend(beginnings);
    }
    text.push_str("}\nINSERT BEFORE .text;\n");
    text
}

/// Beginnings of the names of all that was executed, and of as little else as fits into `most` bytes.
fn beginnings(functions: &Functions, executed: BTreeSet<String>, most: u64) -> Vec<String> {
    let mut beginnings: Vec<String> =
        executed.into_iter().filter(|it| functions.names.binary_search(it).is_ok()).collect();
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

/// Whether so many letters stand behind the last `*` that little else has them, wherever.
fn is_distinct(beginning: &str) -> bool {
    beginning.starts_with("_R") && beginning.len() - beginning.rfind('*').map_or(0, |star| star + 1) >= SHORTEST
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
        let beginning = pair[0].get(..common).filter(|it| is_distinct(it))?;
        let from = beginnings[..at].iter().rposition(|it| !it.starts_with(beginning)).map_or(0, |before| before + 1);
        let count = beginnings[from..].partition_point(|it| it.starts_with(beginning));
        let of = from..from + count;
        let added = functions.bytes(beginning) - (sums[of.end] - sums[of.start]);
        Some(Shorter { beginning: beginning.to_owned(), of, added })
    });
    // Whole numbers: a byte more for each of two thousand lines still counts.
    shorter.min_by_key(|it| it.added.saturating_mul(1 << 20) / (it.of.len() as u64 - 1))
}

/// A name of Rust's with a `*` in the place of what is another in each build: the hash of a crate, which has ten or eleven digits, so that
/// what lies behind one is referred to by another number. Without what LLVM adds to a name. Another language's name is as it is, with its
/// [`END`].
///
/// The parts of a name: <https://doc.rust-lang.org/rustc/symbol-mangling/v0.html>.
pub(crate) fn in_each_build(name: &str) -> String {
    let Some(mut rest) = name.strip_prefix("_R").filter(|name| name.is_ascii()) else { return format!("{name}{END}") };
    rest = rest.split_once('.').map_or(rest, |(rest, _)| rest);
    let (length, mut text, mut first) = (rest.len(), "_R".to_owned(), None);
    while let Some(tag) = rest.chars().next() {
        let at = length - rest.len();
        let part = match tag {
            '0'..='9' => identifier(rest),
            'N' => rest.len().min(2),
            'C' if rest[1..].starts_with('s') => {
                text.push_str("Cs*");
                first.get_or_insert(at);
                rest = &rest[2 + number(&rest[2..]).unwrap_or(0)..];
                continue;
            }
            'B' => match number(&rest[1..]) {
                Some(digits) if first.is_some_and(|first| target(&rest[1..=digits]) > first) => {
                    text.push_str("B*");
                    rest = &rest[1 + digits..];
                    continue;
                }
                digits => 1 + digits.map_or(0, |digits| digits + 1),
            },
            // One of several of a name, a lifetime, lifetimes: most are of one digit. Else a type of one letter.
            's' | 'L' | 'G' => match number(&rest[1..]) {
                Some(digits @ ..4) => 2 + digits,
                _ => 1,
            },
            // A constant: its type, and its value in hexadecimal digits.
            'K' if rest[1..].starts_with(|it: char| it.is_ascii_lowercase() && it != 'p') => {
                2 + number(&rest[2..]).map_or(0, |digits| digits + 1)
            }
            _ => 1,
        };
        text.push_str(&rest[..part]);
        rest = &rest[part..];
    }
    text
}

/// The bytes of an identifier with its length in front.
fn identifier(text: &str) -> usize {
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let from = digits + usize::from(text[digits..].starts_with('_'));
    (from + text[..digits].parse().unwrap_or(0)).min(text.len())
}

/// How many digits of a number to the base 62 stand here, in front of its underscore.
fn number(text: &str) -> Option<usize> {
    let digits = text.find(|it: char| !it.is_ascii_alphanumeric())?;
    text[digits..].starts_with('_').then_some(digits)
}

/// The place that a reference names by these digits: 0 to 9, a to z, A to Z.
fn target(digits: &str) -> usize {
    let value = |digit: char| {
        let further = if digit.is_ascii_uppercase() { 26 } else { 0 };
        digit.to_digit(36).map_or(0, |value| value as usize + further)
    };
    let number = digits.chars().fold(0_usize, |sum, digit| sum.saturating_mul(62).saturating_add(value(digit)));
    if digits.is_empty() { 0 } else { number.saturating_add(1) }
}
