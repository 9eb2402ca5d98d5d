//! Label and field selectors of list, watch and deletecollection.
//!
//! Labels have a grammar (`a=b,c!=d,e in (x,y),f notin (z),g,!h,n>3`), fields only equality and only some of them: the real
//! server refuses a field that its storage does not index, and clients rely on the refusal to fall back.

use super::access::{at, text};
use super::rejection::Rejection;
use super::resources::Resource;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

/// A label selector; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(String, Test)>);

/// A field selector; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<FieldTest>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTest {
    path: String,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    SmolStr(String),
    Sign(&'static str),
}

const SIGNS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!(),><".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::SmolStr(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: std::vec::IntoIter<Token>,
    peeked: Option<Token>,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        self.peeked.take().or_else(|| self.tokens.next())
    }

    fn peek(&mut self) -> Option<&Token> {
        if self.peeked.is_none() {
            self.peeked = self.tokens.next();
        }
        self.peeked.as_ref()
    }

    fn requirement(&mut self) -> Result<(String, Test), String> {
        if self.peek() == Some(&Token::Sign("!")) {
            self.next();
            return Ok((self.key()?, Test::Missing));
        }
        let key = self.key()?;
        let test = match self.peek() {
            None | Some(Token::Sign(",")) => return Ok((key, Test::Exists)),
            Some(_) => match self.next() {
                Some(Token::Sign("=" | "==")) => Test::In(vec![self.value()?]),
                Some(Token::Sign("!=")) => Test::NotIn(vec![self.value()?]),
                Some(Token::Sign(">")) => Test::Greater(self.number()?),
                Some(Token::Sign("<")) => Test::Less(self.number()?),
                Some(Token::SmolStr(word)) if word == "in" => Test::In(self.values()?),
                Some(Token::SmolStr(word)) if word == "notin" => Test::NotIn(self.values()?),
                other => {
                    return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", shown(other.as_ref())));
                }
            },
        };
        Ok((key, test))
    }

    fn key(&mut self) -> Result<String, String> {
        match self.next() {
            Some(Token::SmolStr(word)) if is_label_key(&word) => Ok(word),
            Some(Token::SmolStr(word)) => {
                let why = super::validate::qualified(&word).into_iter().next().unwrap_or_default();
                Err(format!("<nil>: Invalid value: \"{word}\": {why}"))
            }
            other => Err(format!("found '{}', expected: identifier", shown(other.as_ref()))),
        }
    }

    /// A value may be missing: `a=` asks for the empty string.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            None | Some(Token::Sign(",")) => Ok(String::new()),
            Some(Token::SmolStr(_)) => match self.next() {
                Some(Token::SmolStr(word)) => label_value(word),
                _ => Ok(String::new()),
            },
            other => Err(format!("found '{}', expected: identifier", shown(other))),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let opened = self.next();
        if opened != Some(Token::Sign("(")) {
            return Err(format!("found '{}' expected: '('", shown(opened.as_ref())));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Some(Token::SmolStr(word)) => {
                    values.push(label_value(word)?);
                    match self.next() {
                        Some(Token::Sign(",")) => {}
                        Some(Token::Sign(")")) => return Ok(values),
                        other => return Err(format!("found '{}', expected: ',' or ')'", shown(other.as_ref()))),
                    }
                }
                Some(Token::Sign(")")) => {
                    values.push(String::new());
                    return Ok(values);
                }
                Some(Token::Sign(",")) => values.push(String::new()),
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", shown(other.as_ref()))),
            }
        }
    }
}

fn shown(token: Option<&Token>) -> &str {
    match token {
        Some(Token::SmolStr(word)) => word,
        Some(Token::Sign(sign)) => sign,
        None => "",
    }
}

fn is_label_name(name: &str, limit: usize) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let edge = |c: char| c.is_ascii_alphanumeric();
    !name.is_empty() && name.len() <= limit && name.chars().all(inner) && name.starts_with(edge) && name.ends_with(edge)
}

fn is_label_key(key: &str) -> bool {
    match key.rsplit_once('/') {
        Some((prefix, name)) => is_label_name(prefix, 253) && is_label_name(name, 63),
        None => is_label_name(key, 63),
    }
}

fn label_value(value: String) -> Result<String, String> {
    if value.is_empty() || is_label_name(&value, 63) {
        return Ok(value);
    }
    Err(format!(
        "values[0]: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    ))
}

impl Labels {
    /// Reads the `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let refuse = |why: String| Rejection::bad_request(format!("unable to parse requirement: {why}"));
        let mut parser = Parser { tokens: tokens(text).into_iter(), peeked: None };
        let mut tests = Vec::new();
        if parser.peek().is_none() {
            return Ok(Self(tests));
        }
        loop {
            tests.push(parser.requirement().map_err(refuse)?);
            match parser.next() {
                None => return Ok(Self(tests)),
                Some(Token::Sign(",")) => {}
                other => {
                    let why = format!("found '{}', expected: ',' or 'end of string'", shown(other.as_ref()));
                    return Err(Rejection::bad_request(why));
                }
            }
        }
    }

    /// Whether the object's labels pass every test.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = at(object, &["metadata", "labels"]);
        self.0.iter().all(|(key, test)| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            match (test, value) {
                (Test::Exists, value) => value.is_some(),
                (Test::Missing, value) => value.is_none(),
                (Test::In(values), value) => value.is_some_and(|value| values.iter().any(|it| it == value)),
                // An absent label is not any of them.
                (Test::NotIn(values), value) => value.is_none_or(|value| values.iter().all(|it| it != value)),
                (Test::Greater(bound), value) => {
                    value.and_then(|it| it.parse::<i64>().ok()).is_some_and(|it| it > *bound)
                }
                (Test::Less(bound), value) => value.and_then(|it| it.parse::<i64>().ok()).is_some_and(|it| it < *bound),
            }
        })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Fields beside `metadata.name` and `metadata.namespace` by which a kind's objects can be selected.
fn extra_fields(resource: &Resource) -> Option<&'static [&'static str]> {
    match (resource.group, resource.plural) {
        ("", "events") => Some(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]),
        ("", "pods") => Some(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]),
        ("", "nodes") => Some(&["spec.unschedulable"]),
        ("", "namespaces") => Some(&["status.phase"]),
        ("", "secrets") => Some(&["type"]),
        _ => None,
    }
}

fn check_field(resource: &Resource, path: &str) -> Result<(), Rejection> {
    let extra = extra_fields(resource);
    let common = path == "metadata.name" || (path == "metadata.namespace" && (resource.namespaced || extra.is_none()));
    if common || extra.is_some_and(|extra| extra.contains(&path)) {
        return Ok(());
    }
    Err(Rejection::bad_request(if extra.is_some() {
        format!("field label not supported: {path}")
    } else {
        format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }))
}

/// Splits at commas and signs, `\` escaping `\`, `,` and `=`.
fn field_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    terms.retain(|term| !term.is_empty());
    terms
}

fn unescaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

impl Fields {
    /// Reads the `fieldSelector` parameter of a request for this resource.
    pub fn parse(resource: &Resource, text: &str) -> Result<Self, Rejection> {
        let mut tests = Vec::new();
        for term in field_terms(text) {
            let split = ["!=", "==", "="].iter().find_map(|sign| {
                let (path, value) = term.split_once(sign)?;
                Some((path.to_owned(), *sign != "!=", value))
            });
            let Some((path, equal, value)) = split else {
                let why = format!("invalid selector: '{text}'; can't understand '{term}'");
                return Err(Rejection::bad_request(why));
            };
            check_field(resource, &path)?;
            tests.push(FieldTest { path, equal, value: unescaped(value) });
        }
        Ok(Self(tests))
    }

    /// Whether the object's fields pass every test.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|test| (field(object, &test.path) == test.value) == test.equal)
    }

    /// The one name that can match, if `metadata.name` is fixed: the watch of a single object.
    pub fn name(&self) -> Option<&str> {
        self.0.iter().find(|test| test.equal && test.path == "metadata.name").map(|test| test.value.as_str())
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn field(object: &Value, path: &str) -> String {
    match path {
        // `source` is the component; newer events say it elsewhere.
        "source" => {
            let component = text(object, &["source", "component"]);
            let component = if component.is_empty() { text(object, &["reportingComponent"]) } else { component };
            component.to_owned()
        }
        "spec.unschedulable" | "spec.hostNetwork" => {
            let path: Vec<&str> = path.split('.').collect();
            at(object, &path).and_then(Value::as_bool).unwrap_or(false).to_string()
        }
        _ => text(object, &path.split('.').collect::<Vec<_>>()).to_owned(),
    }
}

#[cfg(test)]
mod tests;
