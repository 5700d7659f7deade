//! The part of TOML 1.0 that files written by hand need, strictly: comments, bare, quoted and dotted keys, tables, strings of
//! all four kinds, integers, booleans, arrays. Floats, dates, inline tables and arrays of tables are refused by name. Every
//! error says line and column; every entry knows its own, so that a caller can say where an unknown key stands.

use super::toml_reader::Reader;
use crate::limits;
use std::collections::BTreeMap;
use std::fmt;

/// A place in the text, both counted from 1; columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

/// Why a text was refused, and where. Shows as `line:column: why`; the caller puts the file's name and a colon before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where the thing that is wrong begins, or where something is missing.
    pub at: Place,
    /// One clause.
    pub why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.line, self.at.column, self.why)
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Unescaped; line ends in it are LF.
    String(String),
    /// Decimal, or hexadecimal, octal or binary with its prefix.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// May mix kinds.
    Array(Vec<Value>),
    /// From a header or a dotted key.
    Table(Table),
}

/// A value with the place of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the key begins.
    pub at: Place,
    /// What it is set to.
    pub value: Value,
}

/// A table: names to entries, in order of name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// All of them.
    pub entries: BTreeMap<String, Entry>,
    origin: Origin,
}

impl Table {
    /// The value named `name`.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.entries.get(name).map(|entry| &entry.value)
    }
}

/// What made a table decides what may still add to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// Named on the way to another table; a header may still define it.
    #[default]
    Path,
    /// `[name]`: defined once.
    Header,
    /// `name.other = …`: only the keys beside it may add to it.
    Dotted,
}

/// Reads a whole text.
pub fn parse(text: &str) -> Result<Table, Bad> {
    let mut reader = Reader::new(text);
    if text.len() > limits::TOML_BYTES {
        return Err(reader.bad("the file is over the limit"));
    }
    let (mut root, mut header) = (Table::default(), Vec::new());
    loop {
        reader.blank_lines()?;
        match reader.peek() {
            None => return Ok(root),
            Some('[') => {
                header = reader.header()?;
                define(&mut root, &header)?;
            }
            Some(_) => {
                let path = reader.path()?;
                reader.expect('=', "a key is followed by =")?;
                reader.spaces();
                let value = reader.value(0)?;
                let table = header.iter().try_fold(&mut root, |table, key| step(table, key, Origin::Path))?;
                set(table, path, value)?;
            }
        }
        reader.end_of_line()?;
    }
}

/// A key and its place.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) at: Place,
}

impl Key {
    fn bad(&self, why: &str) -> Bad {
        Bad { at: self.at, why: format!("`{}` {why}", super::text::short(&self.name, 60)) }
    }
}

/// The table named `key` in `table`, made where it is not there. A dotted key may not reach into what a header made.
fn step<'a>(table: &'a mut Table, key: &Key, origin: Origin) -> Result<&'a mut Table, Bad> {
    let entry = table.entries.entry(key.name.clone()).or_insert_with(|| Entry {
        at: key.at,
        value: Value::Table(Table { entries: BTreeMap::new(), origin }),
    });
    match &mut entry.value {
        Value::Table(inner) if origin == Origin::Dotted && inner.origin != Origin::Dotted => {
            Err(key.bad("is already a table of its own"))
        }
        Value::Table(inner) => Ok(inner),
        _ => Err(key.bad("is already a value, not a table")),
    }
}

/// `[a.b]`: makes `b`, or defines it where it was only named so far.
fn define(root: &mut Table, header: &[Key]) -> Result<(), Bad> {
    let Some((last, before)) = header.split_last() else { return Ok(()) };
    let parent = before.iter().try_fold(root, |table, key| step(table, key, Origin::Path))?;
    let table = step(parent, last, Origin::Path)?;
    if table.origin != Origin::Path {
        return Err(last.bad("is defined twice"));
    }
    table.origin = Origin::Header;
    Ok(())
}

/// `a.b = value` in `table`.
fn set(table: &mut Table, path: Vec<Key>, value: Value) -> Result<(), Bad> {
    let mut path = path;
    let Some(last) = path.pop() else { return Ok(()) };
    let table = path.iter().try_fold(table, |table, key| step(table, key, Origin::Dotted))?;
    if table.entries.contains_key(&last.name) {
        return Err(last.bad("is set twice"));
    }
    table.entries.insert(last.name, Entry { at: last.at, value });
    Ok(())
}
