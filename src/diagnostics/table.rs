//! The roles' own tables in the report: columns with types, and rows whose cells have their column's name. Pure.
//!
//! How a cell looks is the page's matter: the report says what it is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::shown::{Age, Bytes, cut};

/// A table that a role may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name for programs.
    pub name: &'static str,
    /// Its title for people.
    pub title: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
}

/// A table: its name and its title, and of each column what its cells are, its name and its title.
macro_rules! table {
    ($name:literal, $title:literal: $($kind:ident($column:literal, $head:literal)),+) => {
        $crate::diagnostics::Table {
            name: $name,
            title: $title,
            columns: &[$($crate::diagnostics::Column::$kind($column, $head)),+],
        }
    };
}
pub(crate) use table;

/// A column of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    name: &'static str,
    title: &'static str,
    kind: ColumnType,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ColumnType {
    /// A text.
    Text,
    /// A number of things.
    Count,
    /// A duration in seconds.
    Seconds,
    /// A size in bytes.
    Bytes,
    /// Why the row's object fails.
    Error,
}

impl Column {
    const fn new(name: &'static str, title: &'static str, kind: ColumnType) -> Self {
        Self { name, title, kind }
    }

    /// A column of texts.
    pub const fn text(name: &'static str, title: &'static str) -> Self {
        Self::new(name, title, ColumnType::Text)
    }

    /// A column of numbers.
    pub const fn count(name: &'static str, title: &'static str) -> Self {
        Self::new(name, title, ColumnType::Count)
    }

    /// A column of durations. Its name ends with the unit: `ageSeconds`.
    pub const fn seconds(name: &'static str, title: &'static str) -> Self {
        Self::new(name, title, ColumnType::Seconds)
    }

    /// A column of sizes. Its name ends with the unit: `capacityBytes`.
    pub const fn bytes(name: &'static str, title: &'static str) -> Self {
        Self::new(name, title, ColumnType::Bytes)
    }

    /// The column of the rows' errors: rows with an error come first.
    pub const fn error(name: &'static str, title: &'static str) -> Self {
        Self::new(name, title, ColumnType::Error)
    }
}

/// One value of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Not known, or there is none.
    Nothing,
    /// A number of things or of bytes.
    Number(u64),
    /// A duration.
    Seconds(Age),
    /// A text.
    Text(String),
}

impl Cell {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nothing | Self::Number(_) | Self::Seconds(_) => None,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Number(number) => number.fmt(f),
            Self::Seconds(age) => age.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<std::time::Duration> for Cell {
    fn from(duration: std::time::Duration) -> Self {
        Self::Seconds(Age(duration))
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// A role's own table, for data that the report has no field for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableReport {
    /// The role.
    pub role: String,
    /// Its name for programs.
    pub name: String,
    /// Its title for people.
    pub title: String,
    /// The columns, in the order in which people read them.
    pub columns: Vec<ColumnReport>,
    /// The rows: each column's cell under its name. Those with an error come first. Limited; the total is not.
    pub rows: Vec<BTreeMap<String, Cell>>,
    /// The number of all rows.
    pub rows_total: usize,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColumnReport {
    /// The name of its cells. It ends with the unit, if there is one.
    pub name: String,
    /// Its title for people.
    pub title: String,
    /// What its cells are; each may also be `null`.
    #[serde(rename = "type")]
    pub kind: ColumnType,
}

impl TableReport {
    /// The first `limit` rows, each with a cell for every column.
    pub(super) fn new(role: &str, table: &Table, mut rows: Vec<Vec<Cell>>, limit: usize) -> Self {
        let rows_total = rows.len();
        if let Some(error) = table.columns.iter().position(|column| column.kind == ColumnType::Error) {
            rows.sort_by_key(|row| row.get(error).is_none_or(|cell| *cell == Cell::Nothing));
        }
        rows.truncate(limit);
        let named = |row: Vec<Cell>| {
            let cells = row.into_iter().chain(std::iter::repeat(Cell::Nothing));
            let named = table.columns.iter().zip(cells).map(|(column, mut cell)| {
                if let Cell::Text(text) = &mut cell {
                    cut(text);
                }
                (column.name.to_owned(), cell)
            });
            named.collect()
        };
        Self {
            role: role.to_owned(),
            name: table.name.to_owned(),
            title: table.title.to_owned(),
            columns: table.columns.iter().map(ColumnReport::of).collect(),
            rows: rows.into_iter().map(named).collect(),
            rows_total,
        }
    }
}

impl fmt::Display for TableReport {
    /// As text for people: a line for each row, each column as wide as its widest cell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = self.columns.iter().map(|column| column.title.to_uppercase()).collect();
        let text = |row: &BTreeMap<String, Cell>, column: &ColumnReport| match (row.get(&column.name), column.kind) {
            (None | Some(Cell::Nothing), _) => "-".to_owned(),
            (Some(Cell::Number(bytes)), ColumnType::Bytes) => Bytes(*bytes).to_string(),
            (Some(cell), _) => cell.to_string(),
        };
        let row = |row| self.columns.iter().map(|column| text(row, column)).collect();
        let lines: Vec<Vec<String>> = std::iter::once(titles).chain(self.rows.iter().map(row)).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for line in &lines {
            let padded: Vec<String> = line.iter().zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
            writeln!(f, "{}", padded.join("  ").trim_end())?;
        }
        if self.rows_total > self.rows.len() {
            writeln!(f, "The first {} of {}.", self.rows.len(), self.rows_total)?;
        }
        Ok(())
    }
}

impl ColumnReport {
    fn of(column: &Column) -> Self {
        Self { name: column.name.to_owned(), title: column.title.to_owned(), kind: column.kind }
    }
}
