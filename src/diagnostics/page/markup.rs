//! The page's building blocks: escaped text, badges, tables.

use std::fmt::{self, Display, Write as _};

use jiff::Timestamp;

/// A value in HTML text or in a quoted attribute.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                _ => self.0.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// How a badge looks.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    Good,
    Calm,
    Busy,
    Bad,
}

impl Tone {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Calm => "calm",
            Self::Busy => "busy",
            Self::Bad => "bad",
        }
    }
}

pub(super) fn badge(tone: Tone, word: &'static str) -> String {
    format!("<span class=\"badge {}\">{word}</span>", tone.class())
}

/// A table with these columns; `#` before a name marks a column of numbers.
pub(super) fn table(out: &mut String, title: &str, note: &str, columns: &[&str], rows: &[String], empty: &str) {
    let _ = writeln!(out, "<section><h2>{title}<small>{note}</small></h2>");
    if rows.is_empty() {
        let _ = writeln!(out, "<p class=\"empty\">{empty}</p></section>");
        return;
    }
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in columns {
        let _ = match column.strip_prefix('#') {
            Some(number) => write!(out, "<th scope=\"col\" class=\"n\">{number}</th>"),
            None => write!(out, "<th scope=\"col\">{column}</th>"),
        };
    }
    out.push_str("</tr></thead>\n");
    for row in rows {
        let _ = writeln!(out, "<tbody>{row}</tbody>");
    }
    out.push_str("</table></div></section>\n");
}

/// One row: the cells under their columns' names, then what belongs below them over the whole width.
pub(super) fn row(columns: &[&str], cells: &[&dyn Display], below: &str, error: Option<&str>) -> String {
    let mut out = String::from("<tr>");
    for (column, cell) in columns.iter().zip(cells) {
        let (class, label) = column.strip_prefix('#').map_or(("", *column), |label| (" class=\"n\"", label));
        let _ = write!(out, "<td{class} data-label=\"{label}\">{cell}</td>");
    }
    out.push_str("</tr>");
    let width = columns.len();
    if !below.is_empty() {
        let _ = write!(out, "<tr class=\"below\"><td colspan=\"{width}\">{below}</td></tr>");
    }
    if let Some(error) = error {
        let _ = write!(out, "<tr class=\"error\"><td colspan=\"{width}\"><bdi>{}</bdi></td></tr>", Text(error));
    }
    out
}

/// A point in time for people.
pub(super) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", Text(text))
}

pub(super) fn or_dash(value: Option<&dyn Display>) -> String {
    value.map_or_else(|| "<span class=\"none\">–</span>".to_owned(), |value| Text(value).to_string())
}

/// A list of short words.
pub(super) fn chips(out: &mut String, label: &str, values: &[String]) {
    if values.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>{label}</h3><ul class=\"chips\">");
    for value in values {
        let _ = write!(out, "<li>{}</li>", Text(value));
    }
    out.push_str("</ul>\n");
}
