//! The lines of the keys in a YAML text, so that a change keeps all other text: comments, order, quotes. Pure.
//!
//! It supports YAML block style, as in most manifests. It does not find keys in other styles. [`meaning`] takes the
//! changed text if it parses to the changed value.

use std::ops::Range;

use serde_yaml::Value;

use crate::process::yaml;

/// One step down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// To a key of a mapping.
    Key(&'a str),
    /// To an item of a sequence.
    Item(usize),
}

/// A text's lines. Going into an item blanks its dash, so that its keys stand in one column.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    lines: Vec<String>,
}

/// A sequence: the column of its dashes, and each item's lines with the comments above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Items {
    /// The column of the dashes.
    pub(super) column: usize,
    /// The items.
    pub(super) ranges: Vec<Range<usize>>,
}

/// A key: its column, and the lines below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Below {
    /// The key's column.
    pub(super) column: usize,
    /// The lines of its value.
    pub(super) lines: Range<usize>,
}

impl Outline {
    /// The outline of a document.
    pub(super) fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        Self { lines: lines.into_iter().map(str::to_owned).collect() }
    }

    /// The lines below the key at the end of `path`.
    pub(super) fn find(&self, path: &[Step<'_>]) -> Option<Below> {
        self.walk(path).map(|(_, below)| below)
    }

    /// The same, and the text with the dashes of the items on the way blanked.
    fn walk(&self, path: &[Step<'_>]) -> Option<(Self, Below)> {
        let mut view = self.clone();
        let mut at = Below { column: 0, lines: 0..view.lines.len() };
        for step in path {
            at = match step {
                Step::Key(key) => view.key(&at.lines, key)?,
                Step::Item(index) => {
                    let items = view.items(&at)?;
                    let range = items.ranges.get(*index)?.clone();
                    let start = range.clone().find(|line| view.is_content(*line))?;
                    view.lines[start].replace_range(items.column..=items.column, " ");
                    Below { column: items.column, lines: start..range.end }
                }
            };
        }
        Some((view, at))
    }

    /// The items of the sequence below a key.
    pub(super) fn items(&self, below: &Below) -> Option<Items> {
        let first = below.lines.clone().find(|line| self.is_content(*line))?;
        let column = indent(&self.lines[first]);
        let is_dash = |line: &usize| {
            let text = &self.lines[*line];
            indent(text) == column && (text[column..].starts_with("- ") || text.trim() == "-")
        };
        if !is_dash(&first) || column < below.column {
            return None;
        }
        let dashes: Vec<usize> = below.lines.clone().filter(|line| self.is_content(*line)).filter(is_dash).collect();
        let is_above = |line: usize| self.lines[line].trim().starts_with('#') && indent(&self.lines[line]) <= column;
        let heads: Vec<usize> = dashes
            .iter()
            .map(|dash| (below.lines.start..*dash).rev().take_while(|line| is_above(*line)).last().unwrap_or(*dash))
            .collect();
        // Behind the last item stand comments of the sequence, such as `# end of containers`.
        let ends_in =
            |line: &usize| self.is_content(*line) || (!self.lines[*line].trim().is_empty() && !is_above(*line));
        let end = below.lines.clone().rev().find(ends_in).map_or(below.lines.end, |line| line + 1);
        let ranges = heads.iter().zip(heads.iter().skip(1).chain([&end])).map(|(start, end)| *start..*end).collect();
        Some(Items { column, ranges })
    }

    /// The lines of the key at the end of `path`, whatever its value is: one line, a block, a text of several lines. `None` if the
    /// path ends in an item, or the key stands behind an item's dash.
    pub(super) fn entry(&self, path: &[Step<'_>]) -> Option<Range<usize>> {
        let (Step::Key(key), parents) = path.split_last()? else { return None };
        let (view, parent) = self.walk(parents)?;
        let (column, at) = view.head(&parent.lines, key)?;
        let is_behind_a_dash = !self.lines[at][..column].trim().is_empty();
        (!is_behind_a_dash).then(|| at..view.end(&parent.lines, column, at))
    }

    fn key(&self, lines: &Range<usize>, key: &str) -> Option<Below> {
        let (column, at) = self.head(lines, key)?;
        let value = value_of(&self.lines[at][column..], key)?;
        if !value.is_empty() && !value.starts_with('#') {
            return None;
        }
        Some(Below { column, lines: at + 1..self.end(lines, column, at) })
    }

    /// The column and the line of a key.
    fn head(&self, lines: &Range<usize>, key: &str) -> Option<(usize, usize)> {
        let first = lines.clone().find(|line| self.is_content(*line))?;
        let column = indent(&self.lines[first]);
        let at = lines.clone().filter(|line| self.is_content(*line)).find(|line| {
            let text = &self.lines[*line];
            indent(text) == column && value_of(&text[column..], key).is_some()
        })?;
        Some((column, at))
    }

    /// Where the value of the key in this column and line ends.
    fn end(&self, lines: &Range<usize>, column: usize, at: usize) -> usize {
        let leaves = |line: &usize| {
            let text = &self.lines[*line];
            let is_item = text.trim() == "-" || text.trim_start().starts_with("- ");
            self.is_content(*line) && (indent(text) < column || (indent(text) == column && !is_item))
        };
        let mut end = (at + 1..lines.end).find(leaves).unwrap_or(lines.end);
        // Comments above the next key are the next key's.
        while end > at + 1 && !self.is_content(end - 1) && indent(&self.lines[end - 1]) <= column {
            end -= 1;
        }
        end
    }

    fn is_content(&self, line: usize) -> bool {
        let text = self.lines[line].trim();
        !text.is_empty() && !text.starts_with('#')
    }
}

/// What a path leads to.
pub(super) fn descend<'a>(value: &'a mut Value, path: &[Step<'_>]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(*key),
        Step::Item(index) => value.get_mut(*index),
    })
}

/// The lines of a document that means `value`: the edited ones if they do, else the value written anew. Whether it is the former.
pub(super) fn meaning(value: &Value, edited: Option<Vec<String>>) -> (Vec<String>, bool) {
    let means = |lines: &Vec<String>| yaml::read(&(lines.join("\n") + "\n")).is_ok_and(|meant| meant == *value);
    match edited.filter(means) {
        Some(lines) => (lines, true),
        None => (yaml::write(value).lines().map(str::to_owned).collect(), false),
    }
}

/// What stands behind `key:`, if the text begins with it.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let plain = text.strip_prefix(key);
    let quoted = || text.strip_prefix(['"', '\'']).and_then(|rest| rest.strip_prefix(key)?.strip_prefix(['"', '\'']));
    let rest = plain.or_else(quoted)?.trim_start().strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| rest.trim())
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
items:
- kind: Deployment
  spec:
    # the containers
    containers:
      # first
      - name: a
        text: |
          # no comment
          - no item
      - name: b

      # third
      - name: c
        # within c
      # end of containers
    # about volumes
    volumes: # as usual
    - name: v
    - name: w
  other: {x: [1]}
";

    fn items(path: &[Step<'_>]) -> Option<Items> {
        let outline = Outline::of(TEXT.lines());
        outline.items(&outline.find(path)?)
    }

    #[test]
    fn items_come_with_the_comments_above_them() {
        let spec = [Step::Key("items"), Step::Item(0), Step::Key("spec")];
        let of = |key| items(&[&spec[..], &[Step::Key(key)]].concat());
        assert_eq!(of("containers"), Some(Items { column: 6, ranges: vec![5..10, 10..12, 12..15] }));
        assert_eq!(of("volumes"), Some(Items { column: 4, ranges: vec![18..19, 19..20] }));
        assert_eq!(of("absent"), None);
    }

    #[test]
    fn an_entry_is_all_of_its_lines_and_none_of_the_next() {
        let outline = Outline::of(TEXT.lines());
        let spec = [Step::Key("items"), Step::Item(0), Step::Key("spec")];
        let of = |more: &[Step<'_>]| outline.entry(&[&spec[..2], more].concat());
        assert_eq!(of(&[Step::Key("spec")]), Some(2..20));
        assert_eq!(of(&[Step::Key("other")]), Some(20..21));
        assert_eq!(of(&[Step::Key("kind")]), None, "it stands behind the dash");
        let text = [spec[2], Step::Key("containers"), Step::Item(0), Step::Key("text")];
        assert_eq!(of(&text), Some(7..10));
        assert_eq!(of(&[Step::Key("absent")]), None);
        assert_eq!(of(&[spec[2], Step::Key("containers"), Step::Item(0)]), None, "an item is no key");
    }

    #[test]
    fn flow_style_is_not_followed() {
        let path = [Step::Key("items"), Step::Item(0), Step::Key("other"), Step::Key("x")];
        assert_eq!(Outline::of(TEXT.lines()).find(&path), None);
    }
}
