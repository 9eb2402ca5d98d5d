//! What kubectl's reader takes and the parser refuses, since the one reads YAML 1.1 and the other YAML 1.2: spelled anew in a way
//! that means the same in both. Pure.
//!
//! | text | kubectl's reader | spelled as |
//! |---|---|---|
//! | `"a"#b`, `[a]#b`, `\|#b` | a comment needs no blank before it there | `"a" #b` |
//! | `"it\'s"` | an escaped apostrophe | `"it's"` |
//! | `[-]` | a text of one dash | `["-"]` |
//! | a tab before an item of a flow collection | a blank | a space |
//! | a comment below a block scalar of blank lines that are deeper | the end of the scalar | the comment in column 0 |
//!
//! The parser says where it stopped. A new spelling keeps each line in its place, so that messages name the lines of the text.

use granit_parser::{ErrorKind, Options, ScanError, options};

/// How the parser reads: as libyaml does, of which kubectl's reader is a port.
pub(super) fn parser_options() -> Options {
    options! {
        emit_comments: false,
        bom_inside_document_as_content: true,
        block_scalar_eof_without_line_feed: true,
    }
}

/// A text that is spelled anew.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Respelled {
    pub(super) text: String,
    /// The line, from 1, whose tabs are spaces now. That is right in a flow collection, and there alone.
    pub(super) untabbed: Option<usize>,
}

/// The text without what the parser stumbled over; `None` if kubectl's reader refuses it, too.
pub(super) fn respell(text: &str, error: &ScanError) -> Option<Respelled> {
    let at = error.marker().byte_offset()?;
    let (before, behind) = text.split_at_checked(at)?;
    let (text, untabbed) = match error.kind() {
        ErrorKind::CommentNotSeparated => (format!("{before} {behind}"), None),
        ErrorKind::UnknownQuotedScalarEscape => (format!("{before}{}", without_escaped_apostrophes(behind)?), None),
        ErrorKind::PlainScalarStartsWithDashFlowIndicator => {
            (format!("{before}\"-\"{}", behind.strip_prefix('-')?), None)
        }
        ErrorKind::InvalidBlockScalarIndent => {
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            let comment = text[start..].trim_start_matches(' ');
            let is_deeper = comment.starts_with('#') && comment.len() < text.len() - start;
            is_deeper.then(|| (format!("{}{comment}", &text[..start]), None))?
        }
        ErrorKind::TabInBlockIndentation => {
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            let blank = before[start..].replace('\t', " ");
            let is_blank = blank.trim_start_matches(' ').is_empty();
            (is_blank && blank != before[start..]).then(|| {
                let line = before.matches('\n').count() + 1;
                (format!("{}{blank}{behind}", &before[..start]), Some(line))
            })?
        }
        _ => return None,
    };
    Some(Respelled { text, untabbed })
}

/// A text that begins with a double-quoted scalar, without the backslashes before its apostrophes.
fn without_escaped_apostrophes(text: &str) -> Option<String> {
    let mut spelled = String::with_capacity(text.len());
    let mut rest = text.strip_prefix('"')?;
    spelled.push('"');
    while let Some(at) = rest.find(['\\', '"']) {
        let (plain, behind) = rest.split_at(at);
        spelled.push_str(plain);
        if behind.starts_with('"') {
            spelled.push_str(behind);
            return (spelled.len() < text.len()).then_some(spelled);
        }
        let end = 1 + behind.chars().nth(1).map_or(0, char::len_utf8);
        spelled.push_str(if &behind[..end] == "\\'" { "'" } else { &behind[..end] });
        rest = &behind[end..];
    }
    None
}
