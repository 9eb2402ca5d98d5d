//! What is wrong with a text that is no YAML, or not one document of it, and where. Pure.
//!
//! The parser knows the place of most errors. It knows none of a second document and of aliases that stand for too much, and a wrong one
//! of a control character: these are looked for here.

use std::collections::HashMap;

use granit_parser::{Event, Parser};

use super::{File, shape};
use crate::process::Fault;

/// How many times as many aliases as events a text may have, once they are expanded: the parser's limit.
const MOST_EXPANDED: usize = 100;

/// What is wrong, and what belongs there.
struct Told {
    origin: String,
    found: String,
    allowed: &'static str,
}

/// The fault of a text that the parser refuses: nothing else can be said about it.
pub(super) fn fault(file: &File, error: &serde_yaml::Error) -> Fault {
    let at = |line: usize| format!("{}:{line}", file.name);
    let told = if let Some((line, column, character)) = control_character(&file.text) {
        Told {
            origin: format!("{}:{column}", at(line)),
            found: format!("the character U+{:04X}{}", u32::from(character), before(&file.text, line, column)),
            allowed: "printable characters: of the control characters, YAML takes tabs and ends of lines",
        }
    } else if let Some(location) = error.location() {
        let (line, column) = (location.line(), location.column());
        let text = line_of(&file.text, line);
        let origin = format!("{}:{column}", at(line));
        if text.chars().nth(column.saturating_sub(1)) == Some('\t') {
            let rest = match text.trim() {
                "" => String::new(),
                rest => format!(", before `{}`", shape::shorten(rest)),
            };
            let found = format!("a tab at line {line}, column {column}{rest}");
            Told { origin, found, allowed: "spaces only: YAML takes no tab in an indentation" }
        } else {
            Told { origin, found: format!("{}{error}", quoted(text)), allowed: "YAML" }
        }
    } else {
        match beyond(&file.text) {
            Some(Beyond::Document(line)) => Told {
                origin: at(line),
                found: "a second document".to_owned(),
                allowed: "one document: nothing behind another line `---` or `...`",
            },
            Some(Beyond::Aliases(line)) => Told {
                origin: at(line),
                found: format!("{}too many aliases, with those that they stand for", quoted(line_of(&file.text, line))),
                allowed: "fewer aliases of aliases: write out what they stand for",
            },
            None => Told { origin: file.name.clone(), found: error.to_string(), allowed: "YAML" },
        }
    };
    let Told { origin, found, allowed } = told;
    Fault { key: String::new(), found, allowed: allowed.to_owned(), origin: Some(origin) }
}

fn line_of(text: &str, line: usize) -> &str {
    text.lines().nth(line.saturating_sub(1)).unwrap_or_default()
}

fn quoted(line: &str) -> String {
    if line.trim().is_empty() { String::new() } else { format!("`{}`: ", shape::shorten(line.trim())) }
}

/// What stands on the line before this column.
fn before(text: &str, line: usize, column: usize) -> String {
    let before: String = line_of(text, line).chars().take(column - 1).collect();
    if before.trim().is_empty() { String::new() } else { format!(", behind `{}`", shape::shorten(before.trim())) }
}

/// The first character that YAML has no place for, with its line and column, from 1.
fn control_character(text: &str) -> Option<(usize, usize, char)> {
    let is_printable = |at: usize, c: char| match c {
        '\u{feff}' => at == 0,
        '\t' | '\n' | '\r' | '\u{85}' => true,
        _ => matches!(c, ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..),
    };
    let (at, character) = text.char_indices().find(|(at, c)| !is_printable(*at, *c))?;
    let before = &text[..at];
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Some((before.matches('\n').count() + 1, column, character))
}

/// What the parser refuses in a text whose parts are all right, with its line, from 1.
#[derive(Debug, PartialEq, Eq)]
enum Beyond {
    /// A second document begins.
    Document(usize),
    /// An alias is one too many.
    Aliases(usize),
}

fn beyond(text: &str) -> Option<Beyond> {
    let events: Vec<_> = Parser::new_from_str(text).map_while(Result::ok).collect();
    let most = MOST_EXPANDED * events.iter().filter(|(event, _)| event.is_node()).count();
    let mut documents = 0;
    // How many aliases have been expanded, how many of them stand for each anchor, and where each open collection began to count.
    let (mut expanded, mut anchors, mut open) = (0_usize, HashMap::new(), Vec::new());
    for (event, span) in events {
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return Some(Beyond::Document(span.start.line()));
                }
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => open.push((anchor, expanded)),
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, before) = open.pop()?;
                anchors.insert(anchor, expanded - before);
            }
            Event::Alias(anchor) => {
                expanded = expanded.saturating_add(1 + anchors.get(&anchor).copied().unwrap_or_default());
                if expanded > most {
                    return Some(Beyond::Aliases(span.start.line()));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_document_begins_where_its_line_says() {
        for (text, line) in [
            ("csi: {}\n---\nroles: {}\n", Some(2)),
            ("---\ncsi: {}\n\n---\n# nothing\n", Some(4)),
            ("csi: {}\n...\nroles: {}\n", Some(3)),
            ("---\ncsi: {}\n...\n", None),
        ] {
            assert_eq!(beyond(text), line.map(Beyond::Document), "{text}");
        }
    }

    #[test]
    fn what_is_no_printable_character_has_its_line_and_column() {
        for (text, place) in [
            ("a: b\n", None),
            ("\u{feff}a: ä😀\u{85}\t\r\n", None),
            ("a\n\n b\0", Some((3, 3, '\0'))),
            ("ä\u{1b}[0m", Some((1, 2, '\u{1b}'))),
            ("a\u{feff}", Some((1, 2, '\u{feff}'))),
            ("\u{7f}", Some((1, 1, '\u{7f}'))),
        ] {
            assert_eq!(control_character(text), place, "{text:?}");
        }
    }
}
