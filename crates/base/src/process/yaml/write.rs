//! A value as YAML text in block style that every reader reads as this value. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_yaml::Value;

use super::scalar;

/// Writes a document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Mapping(entries) if !entries.is_empty() => block(value, 0, &mut out),
        Value::Sequence(items) if !items.is_empty() => block(value, 0, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// A text as a scalar of one line, in quotes if it needs them.
pub fn text(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        Cow::Borrowed(text)
    } else if text.chars().all(is_printable) {
        Cow::Owned(format!("'{}'", text.replace('\'', "''")))
    } else {
        Cow::Owned(quoted(text))
    }
}

/// A text in double quotes, on one line.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        // Writing into a String cannot fail.
        let _ = match character {
            '"' | '\\' => write!(out, "\\{character}"),
            '\n' => out.write_str("\\n"),
            '\t' => out.write_str("\\t"),
            '\r' => out.write_str("\\r"),
            character if is_printable(character) => out.write_char(character),
            character => match u32::from(character) {
                code @ ..0x100 => write!(out, "\\x{code:02x}"),
                code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            },
        };
    }
    out.push('"');
    out
}

/// Whether a text means itself without quotes, wherever a value may stand in block style.
pub fn is_plain(text: &str) -> bool {
    let mut characters = text.chars();
    let begins_well = match (characters.next(), characters.next()) {
        (Some('-'), second) => second.is_some_and(|second| second.is_ascii_alphanumeric() || second == '-'),
        (Some(first), _) => first.is_ascii_alphanumeric() || "/._$(+<;^".contains(first),
        (None, _) => false,
    };
    let means_more = text.contains(": ")
        || text.contains(" #")
        || text.ends_with([':', ' '])
        || text.starts_with("---")
        || text.starts_with("...");
    begins_well && !means_more && text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) && !scalar::is_ambiguous(text)
}

/// Whether a character may stand in quotes as it is, and never ends a line.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // Control characters, line ends of YAML 1.1, the byte order mark, what is no character, and what is outside of the plane
        // that all readers take.
        ..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}'.. => false,
        _ => true,
    }
}

/// A mapping or a sequence that is not empty, the first line without its indent's spaces if `out` does not end with a line end.
fn block(value: &Value, indent: usize, out: &mut String) {
    let begin = |out: &mut String| {
        if out.is_empty() || out.ends_with('\n') {
            out.extend(std::iter::repeat_n(' ', indent));
        }
    };
    match value {
        Value::Mapping(entries) => {
            for (key, value) in entries {
                begin(out);
                inline(key, indent, out);
                out.push(':');
                match value {
                    // The dashes stand below the key.
                    Value::Sequence(items) if !items.is_empty() => {
                        out.push('\n');
                        block(value, indent, out);
                    }
                    Value::Mapping(entries) if !entries.is_empty() => {
                        out.push('\n');
                        block(value, indent + 2, out);
                    }
                    scalar => {
                        out.push(' ');
                        literal(scalar, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Sequence(items) => {
            for item in items {
                begin(out);
                out.push_str("- ");
                match item {
                    Value::Sequence(inner) if !inner.is_empty() => block(item, indent + 2, out),
                    Value::Mapping(inner) if !inner.is_empty() => block(item, indent + 2, out),
                    scalar => {
                        literal(scalar, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Tagged(tagged) => block(&tagged.value, indent, out),
        scalar => inline(scalar, indent, out),
    }
}

/// A text of several lines as such; everything else in one.
fn literal(value: &Value, indent: usize, out: &mut String) {
    let Some(text) = value.as_str().filter(|text| has_lines(text)) else { return inline(value, indent, out) };
    out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in text.lines() {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
    }
}

/// Whether a text can be written line by line: none begins or ends in a way that needs more said.
fn has_lines(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n'])
        && text.split('\n').all(|line| line.chars().all(is_printable) && (line.is_empty() || !line.trim().is_empty()))
}

fn inline(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::String(content) => out.push_str(&text(content)),
        Value::Bool(switch) => out.push_str(if *switch { "true" } else { "false" }),
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::Sequence(items) if items.is_empty() => out.push_str("[]"),
        Value::Mapping(entries) if entries.is_empty() => out.push_str("{}"),
        // A key that is a list or a mapping: kubectl knows none, and the reader makes none.
        Value::Sequence(_) | Value::Mapping(_) => block(value, indent, out),
        Value::Tagged(tagged) => inline(&tagged.value, indent, out),
    }
}
