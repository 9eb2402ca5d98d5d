//! A small `PromQL` parser that finds the metrics and labels of an expression. promtool checks the grammar.

use std::collections::BTreeSet;

/// A metric in an expression, and the labels that it is selected by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) labels: BTreeSet<String>,
}

/// The metrics of an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) selectors: Vec<Selector>,
    /// Labels of `by`, `on` and their kin.
    pub(crate) grouped: BTreeSet<String>,
    /// Whether an aggregation leaves only the grouped labels.
    pub(crate) aggregates: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    SmolStr(String),
    Mark(char),
    /// A text, a number or a duration.
    Other,
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

fn tokens(text: &str) -> Vec<Token> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            tokens.push(Token::Other);
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.unwrap_or_else(|| panic!("a text without an end in {text}")) + 2
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let is_number = first.is_ascii_digit();
            tokens.push(if is_number { Token::Other } else { Token::SmolStr(rest[..end].to_owned()) });
            end
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Mark(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Reads an expression.
pub(crate) fn read(text: &str) -> Uses {
    let tokens = tokens(&text.replace("$__rate_interval", "5m"));
    let mut uses = Uses::default();
    let mut at = 0;
    let mark = |at: usize, c: char| tokens.get(at) == Some(&Token::Mark(c));
    // The words up to a closing mark that are followed by `before`, and where it stands.
    let words = |from: usize, close: char, before: &[char]| {
        let end = (from..tokens.len()).find(|&at| mark(at, close)).unwrap_or_else(|| panic!("no {close} in {text}"));
        let words = (from..end).filter_map(|at| match &tokens[at] {
            Token::SmolStr(word) if before.iter().any(|&c| mark(at + 1, c)) => Some(word.clone()),
            _ => None,
        });
        (words.collect::<BTreeSet<String>>(), end)
    };
    while at < tokens.len() {
        let Token::SmolStr(word) = &tokens[at] else {
            assert!(tokens[at] != Token::Mark('{'), "a selector without a metric in {text}");
            at += 1;
            continue;
        };
        if GROUPING.contains(&word.as_str()) {
            let (labels, end) = words(at + 1, ')', &[',', ')']);
            uses.grouped.extend(labels);
            uses.aggregates |= word == "by";
            at = end;
        } else if mark(at + 1, '{') {
            let (labels, end) = words(at + 2, '}', &['=', '!']);
            uses.selectors.push(Selector { metric: word.clone(), labels });
            at = end;
        } else {
            let groups = matches!(tokens.get(at + 1), Some(Token::SmolStr(next)) if next == "by" || next == "without");
            if !KEYWORDS.contains(&word.as_str()) && !mark(at + 1, '(') && !groups {
                uses.selectors.push(Selector { metric: word.clone(), labels: BTreeSet::new() });
            }
        }
        at += 1;
    }
    uses
}

#[test]
fn an_expression_gives_up_its_metrics_and_labels() {
    let set = |labels: &[&str]| labels.iter().map(|&it| it.to_owned()).collect::<BTreeSet<_>>();
    let of = |text: &str| {
        let uses = read(text);
        let selectors: Vec<(String, Vec<String>)> =
            uses.selectors.into_iter().map(|it| (it.metric, it.labels.into_iter().collect())).collect();
        (format!("{selectors:?}"), uses.grouped)
    };
    assert_eq!(
        of("histogram_quantile(0.99, sum by (le, x) (rate(a_bucket{b=~\"c{}\\\"\",d!=\"e\"}[$__rate_interval])))"),
        ("[(\"a_bucket\", [\"b\", \"d\"])]".to_owned(), set(&["le", "x"]))
    );
    assert_eq!(
        of("a - a offset 1h > 0 or b unless on (pod) c == 1"),
        ("[(\"a\", []), (\"a\", []), (\"b\", []), (\"c\", [])]".to_owned(), set(&["pod"]))
    );
    assert_eq!(of("max(a) < 1e3").0, "[(\"a\", [])]");
}
