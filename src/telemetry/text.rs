//! A log line for people.
//!
//! ```text
//! 2026-11-21T06:00:00.000000Z  INFO attachment{role="attacher" operation="attach"}: target: attached volume="pv-1"
//! ```
//!
//! The layer of tracing-subscriber appends a field that is recorded again, so that the line of an object grew with each retry.
//! Here a span has each field once, with its last value.

use std::fmt::Write as _;

use serde_json::Value;
use tracing::Level;

/// A line while it is written.
pub(super) struct TextLine {
    line: String,
    ansi: bool,
    has_spans: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";

impl TextLine {
    pub(super) fn begin(time: &str, level: Level, ansi: bool) -> Self {
        let mut line = Self { line: String::with_capacity(256), ansi, has_spans: false };
        line.styled(DIM, time);
        line.line.push(' ');
        let colour = match level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            Level::DEBUG => "34",
            Level::TRACE => "35",
        };
        line.styled(colour, &format!("{level:>5}"));
        line.line.push(' ');
        line
    }

    /// Adds a span, the outermost first.
    pub(super) fn span(&mut self, name: &str, fields: &[(&str, Value)]) {
        self.has_spans = true;
        self.styled(BOLD, name);
        if !fields.is_empty() {
            self.line.push('{');
            self.fields(fields);
            self.line.push('}');
        }
        self.line.push(':');
    }

    /// Adds the event itself.
    pub(super) fn end(mut self, target: &str, message: &str, fields: &[(&str, Value)]) -> String {
        if self.has_spans {
            self.line.push(' ');
        }
        self.styled(DIM, &format!("{target}:"));
        self.line.push(' ');
        // A message of more than one line stays as it is; it must not command the terminal.
        for character in message.chars() {
            if character.is_control() && character != '\n' {
                self.line.extend(character.escape_default());
            } else {
                self.line.push(character);
            }
        }
        if !message.is_empty() && !fields.is_empty() {
            self.line.push(' ');
        }
        self.fields(fields);
        self.line.push('\n');
        self.line
    }

    fn fields(&mut self, fields: &[(&str, Value)]) {
        for (nth, (name, value)) in fields.iter().enumerate() {
            let gap = if nth == 0 { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = match value {
                Value::String(text) => write!(self.line, "{gap}{name}={text:?}"),
                other => write!(self.line, "{gap}{name}={other}"),
            };
        }
    }

    fn styled(&mut self, style: &str, text: &str) {
        let _ = if self.ansi { write!(self.line, "\u{1b}[{style}m{text}\u{1b}[0m") } else { self.line.write_str(text) };
    }
}
