//! A document as kubectl understands it, with its anchors, aliases and merge keys expanded. Pure.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_yaml::{Mapping, Value};

use super::scalar;

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Unreadable {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub text: String,
}

/// The most values that a document may have once its aliases are expanded. A list of all objects of a large cluster has fewer, and
/// an alias of aliases of aliases, which is an attack, soon has more.
const MOST_VALUES: usize = 10_000_000;

/// Reads one document. A text with nothing but comments is null.
pub fn read(text: &str) -> Result<Value, Unreadable> {
    values(text).map_err(|error| tab(text, &error).unwrap_or(error))
}

/// The error that names the tab, if the parser met one in an indentation. The parser names the line where it began to read: the tab
/// is in that line or below it.
fn tab(text: &str, error: &Unreadable) -> Option<Unreadable> {
    if !error.text.split_whitespace().any(|word| ["tab", "tabs"].contains(&word)) {
        return None;
    }
    let mut lines = text.lines().enumerate().skip(error.line.saturating_sub(1));
    let (at, column) = lines.find_map(|(at, line)| {
        let column = line.chars().position(|c| c == '\t')?;
        line.chars().take(column).all(|c| c == ' ').then_some((at, column))
    })?;
    let text = format!("a tab in the indentation, at column {}: YAML takes spaces only", column + 1);
    Some(Unreadable { line: at + 1, text })
}

fn values(text: &str) -> Result<Value, Unreadable> {
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), line: 1, values: 0 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            event => {
                let node = reader.node(event)?;
                return match reader.next()? {
                    Event::DocumentEnd => Ok(node.value),
                    _ => Err(reader.fault("something behind the end of the document")),
                };
            }
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    /// What has an anchor, by the parser's number for it, and how many values that is.
    anchors: HashMap<usize, (Value, usize)>,
    line: usize,
    values: usize,
}

/// A value, and whether it may be a merge key.
struct Node {
    value: Value,
    is_merge: bool,
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, is_merge: false }
    }
}

impl<'a> Reader<'a> {
    fn fault(&self, text: impl Into<String>) -> Unreadable {
        Unreadable { line: self.line, text: text.into() }
    }

    /// The next event that is no comment.
    fn next(&mut self) -> Result<Event<'a>, Unreadable> {
        loop {
            match self.events.next() {
                Some(Ok((event, span))) => {
                    self.line = span.start.line();
                    if matches!(
                        event,
                        Event::StreamStart
                            | Event::StreamEnd
                            | Event::DocumentStart(..)
                            | Event::DocumentEnd
                            | Event::SequenceEnd
                            | Event::MappingEnd
                    ) || event.is_node()
                    {
                        return Ok(event);
                    }
                }
                Some(Err(error)) => return Err(Unreadable { line: error.marker().line(), text: error.info() }),
                None => return Ok(Event::StreamEnd),
            }
        }
    }

    fn node(&mut self, event: Event<'a>) -> Result<Node, Unreadable> {
        let before = self.values;
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(self.fault(format!("more than {MOST_VALUES} values, with its aliases expanded")));
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let is_merge = is_plain && tag.is_none() && text == "<<";
                (Node { value: self.scalar(&text, is_plain, tag.as_deref())?, is_merge }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.sequence()?.into(), anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping()?.into(), anchor),
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor) else {
                    return Err(self.fault("an alias within what it stands for"));
                };
                self.values += size;
                (value.clone().into(), 0)
            }
            _ => return Err(self.fault("an end where a value is expected")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.value.clone(), self.values - before));
        }
        Ok(node)
    }

    fn scalar(&self, text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<Value, Unreadable> {
        let Some(tag) = tag else {
            return if is_plain { self.in_json(scalar::resolve(text)) } else { Ok(text.into()) };
        };
        let Some(kind) = tag.core_suffix() else { return Ok(text.into()) };
        let value = scalar::resolve(text);
        match kind {
            "int" if value.is_i64() || value.is_u64() => Ok(value),
            "float" if value.is_number() => self.in_json(value),
            "bool" if value.is_bool() => Ok(value),
            "null" if value.is_null() => Ok(value),
            "int" | "float" | "bool" | "null" => Err(self.fault(format!("{text:?} is no {kind}, as its tag says"))),
            _ => Ok(text.into()),
        }
    }

    /// JSON has no infinity, and kubectl sends JSON.
    fn in_json(&self, value: Value) -> Result<Value, Unreadable> {
        match value.as_f64() {
            Some(number) if !number.is_finite() => {
                Err(self.fault("a number that JSON does not have (.inf or .nan): quote it if it is a text"))
            }
            _ => Ok(value),
        }
    }

    fn sequence(&mut self) -> Result<Value, Unreadable> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(items.into()),
                event => items.push(self.node(event)?.value),
            }
        }
    }

    /// The entries in their order: what a merge key brings replaces what stands above it, and what stands below replaces that.
    fn mapping(&mut self) -> Result<Value, Unreadable> {
        let mut mapping = Mapping::new();
        let mut own: Vec<String> = Vec::new();
        loop {
            let event = self.next()?;
            if event == Event::MappingEnd {
                return Ok(mapping.into());
            }
            let key = self.node(event)?;
            let line = self.line;
            let event = self.next()?;
            let is_list = matches!(event, Event::SequenceStart(..));
            let value = self.node(event)?.value;
            if key.is_merge {
                self.merge(&mut mapping, value, is_list)?;
                continue;
            }
            let key =
                key_text(&key.value).ok_or_else(|| Unreadable { line, text: "a key that is no text".to_owned() })?;
            if own.contains(&key) {
                return Err(Unreadable { line, text: format!("the key {key:?} stands twice in a mapping") });
            }
            mapping.insert(key.as_str().into(), value);
            own.push(key);
        }
    }

    /// A list must stand there itself: an alias of one is refused.
    fn merge(&self, into: &mut Mapping, from: Value, is_list: bool) -> Result<(), Unreadable> {
        let all = match from {
            Value::Sequence(items) if is_list => items,
            one => vec![one],
        };
        // The first of a list counts.
        for one in all.into_iter().rev() {
            let Value::Mapping(one) = one else {
                return Err(self.fault("a merge key (<<) needs a mapping or a list of mappings"));
            };
            into.extend(one);
        }
        Ok(())
    }
}

/// A key as JSON has it.
fn key_text(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.clone()),
        Value::Bool(switch) => Some(switch.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
