//! A document as kubectl understands it, with its anchors, aliases and merge keys expanded. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, StructureStyle, Tag};
use serde_yaml::{Mapping, Value};

use super::{dialect, scalar};

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

/// The most places that are spelled anew, since the text is read again for each.
const MOST_RESPELLED: usize = 1000;

/// One document, as kubectl reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it says.
    pub value: Value,
    /// The keys that stand twice in a mapping, each with the line, from 1, of the one that counts: the last.
    pub repeated: Vec<(usize, String)>,
}

/// Reads the value of one document. A text with nothing but comments is null.
pub fn read(text: &str) -> Result<Value, Unreadable> {
    read_document(text).map(|document| document.value)
}

/// Reads one document, and tells what kubectl leaves out of it.
pub fn read_document(text: &str) -> Result<Document, Unreadable> {
    let mut spelled = Cow::Borrowed(text);
    // The lines whose tabs are spaces now, and what the parser says of the first of them.
    let (mut untabbed, mut first) = (Vec::new(), None);
    for _ in 0..MOST_RESPELLED {
        let mut reader = Reader::of(&spelled);
        let stop = match reader.document() {
            Ok(_) if !untabbed.iter().all(|line| reader.is_in_flow(*line)) => break,
            Ok(value) => return Ok(Document { value, repeated: reader.repeated }),
            Err(Stop::Content(fault)) => return Err(fault),
            Err(Stop::Syntax(error)) => error,
        };
        let fault = Unreadable { line: stop.marker().line(), text: stop.info() };
        let fault = tab(text, &fault).unwrap_or(fault);
        let Some(better) = dialect::respell(&spelled, &stop) else { return Err(first.unwrap_or(fault)) };
        if let Some(line) = better.untabbed {
            untabbed.push(line);
            first.get_or_insert(fault);
        }
        spelled = Cow::Owned(better.text);
    }
    Err(first.unwrap_or_else(|| Unreadable {
        line: 1,
        text: format!("more than {MOST_RESPELLED} places that YAML 1.2 refuses"),
    }))
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

/// Why a text is not read to its end.
#[derive(Debug)]
enum Stop {
    /// The parser does not follow.
    Syntax(Box<ScanError>),
    /// It means nothing.
    Content(Unreadable),
}

impl From<Unreadable> for Stop {
    fn from(fault: Unreadable) -> Self {
        Self::Content(fault)
    }
}

struct Reader<'a> {
    events: Parser<'a, granit_parser::StrInput<'a>>,
    /// What has an anchor, by the parser's number for it, and how many values that is.
    anchors: HashMap<usize, (Value, usize)>,
    line: usize,
    values: usize,
    /// How many flow collections are open, and the lines of those that were closed last.
    depth: usize,
    flows: Vec<Range<usize>>,
    repeated: Vec<(usize, String)>,
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
    fn of(text: &'a str) -> Self {
        let events = Parser::new_from_str_with_options(text, dialect::parser_options());
        let (anchors, flows, repeated) = (HashMap::new(), Vec::new(), Vec::new());
        Self { events, anchors, line: 1, values: 0, depth: 0, flows, repeated }
    }

    fn document(&mut self) -> Result<Value, Stop> {
        loop {
            match self.next()? {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
                event => {
                    let node = self.node(event)?;
                    return match self.next()? {
                        Event::DocumentEnd => Ok(node.value),
                        _ => Err(self.fault("something behind the end of the document").into()),
                    };
                }
            }
        }
    }

    /// Whether a line begins within a flow collection.
    fn is_in_flow(&self, line: usize) -> bool {
        self.flows.iter().any(|lines| lines.contains(&(line - 1)))
    }

    fn fault(&self, text: impl Into<String>) -> Unreadable {
        Unreadable { line: self.line, text: text.into() }
    }

    /// The next event that is no comment.
    fn next(&mut self) -> Result<Event<'a>, Stop> {
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
                Some(Err(error)) => return Err(Stop::Syntax(Box::new(error))),
                None => return Ok(Event::StreamEnd),
            }
        }
    }

    fn node(&mut self, event: Event<'a>) -> Result<Node, Stop> {
        let before = self.values;
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(self.fault(format!("more than {MOST_VALUES} values, with its aliases expanded")).into());
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let is_merge = match &tag {
                    None => is_plain && text == "<<",
                    Some(tag) => tag.handle() == "tag:yaml.org,2002:" && tag.suffix() == "merge" && text == "<<",
                };
                (Node { value: self.scalar(&text, is_plain, tag.as_deref())?, is_merge }, anchor)
            }
            Event::SequenceStart(style, anchor, _) => (self.within(style, Self::sequence)?.into(), anchor),
            Event::MappingStart(style, anchor, _) => (self.within(style, Self::mapping)?.into(), anchor),
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor) else {
                    return Err(self.fault("an alias within what it stands for").into());
                };
                self.values += size;
                (value.clone().into(), 0)
            }
            _ => return Err(self.fault("an end where a value is expected").into()),
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

    /// Reads a collection, and remembers the lines of one in flow style.
    fn within(&mut self, style: StructureStyle, read: fn(&mut Self) -> Result<Value, Stop>) -> Result<Value, Stop> {
        if style == StructureStyle::Block {
            return read(self);
        }
        let start = self.line;
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        if self.depth == 0 {
            self.flows.push(start..self.line);
        }
        Ok(value)
    }

    fn sequence(&mut self) -> Result<Value, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(items.into()),
                event => items.push(self.node(event)?.value),
            }
        }
    }

    /// The entries in their order: what a merge key brings replaces what stands above it, and what stands below replaces that. So does
    /// a key that stands twice.
    fn mapping(&mut self) -> Result<Value, Stop> {
        let mut mapping = Mapping::new();
        let mut own = HashSet::new();
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
            mapping.insert(key.as_str().into(), value);
            if own.insert(key.clone()) {
                continue;
            }
            self.repeated.push((line, key));
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
