//! The characters of TOML for `toml`: keys, strings, numbers and arrays, with the place of each. Keeps nothing but where it is.

use super::toml::{Bad, Key, Place, Value};
use crate::limits;

/// The text that is left, and where it begins.
pub(super) struct Reader<'a> {
    rest: &'a str,
    at: Place,
}

impl<'a> Reader<'a> {
    /// At the start of `text`; a byte order mark is skipped.
    pub(super) fn new(text: &'a str) -> Reader<'a> {
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        Reader { rest, at: Place { line: 1, column: 1 } }
    }

    /// A refusal at this place.
    pub(super) fn bad(&self, why: impl Into<String>) -> Bad {
        Bad { at: self.at, why: why.into() }
    }

    /// The next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        self.at = match c {
            '\n' => Place { line: self.at.line.saturating_add(1), column: 1 },
            _ => Place { column: self.at.column.saturating_add(1), ..self.at },
        };
        Some(c)
    }

    fn skip(&mut self, word: &str) -> bool {
        let there = self.rest.starts_with(word);
        if there {
            for _ in word.chars() {
                self.next();
            }
        }
        there
    }

    /// Takes white space and then `c`.
    pub(super) fn expect(&mut self, c: char, why: &str) -> Result<(), Bad> {
        self.spaces();
        if self.peek() != Some(c) {
            return Err(self.bad(why));
        }
        self.next();
        Ok(())
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let all = self.rest;
        while self.peek().is_some_and(&fits) {
            self.next();
        }
        all.get(..all.len().saturating_sub(self.rest.len())).unwrap_or_default()
    }

    /// Takes spaces and tabs.
    pub(super) fn spaces(&mut self) {
        self.take_while(|c| c == ' ' || c == '\t');
    }

    fn line_end(&mut self) -> bool {
        self.skip("\n") || self.skip("\r\n")
    }

    /// White space and a comment, up to a line end.
    fn comment(&mut self) -> Result<(), Bad> {
        self.spaces();
        if self.peek() == Some('#') {
            self.take_while(plain);
        }
        match self.peek() {
            Some(c) if c.is_control() && !self.rest.starts_with('\n') && !self.rest.starts_with("\r\n") => {
                Err(self.bad("a control character"))
            }
            _ => Ok(()),
        }
    }

    /// Takes line ends and comments.
    pub(super) fn blank_lines(&mut self) -> Result<(), Bad> {
        self.comment()?;
        while self.line_end() {
            self.comment()?;
        }
        Ok(())
    }

    /// Takes what may stand behind a value or a header.
    pub(super) fn end_of_line(&mut self) -> Result<(), Bad> {
        self.comment()?;
        if self.rest.is_empty() || self.line_end() {
            return Ok(());
        }
        Err(self.bad("the line should end here"))
    }

    /// `[a.b]`.
    pub(super) fn header(&mut self) -> Result<Vec<Key>, Bad> {
        if self.rest.starts_with("[[") {
            return Err(self.bad("arrays of tables are not read here"));
        }
        self.next();
        let path = self.path()?;
        self.expect(']', "a table's name is followed by ]")?;
        Ok(path)
    }

    /// Keys with dots between them.
    pub(super) fn path(&mut self) -> Result<Vec<Key>, Bad> {
        let mut path = Vec::new();
        loop {
            self.spaces();
            let at = self.at;
            if path.len() >= limits::TOML_DEPTH {
                return Err(self.bad("tables are nested too deep"));
            }
            let name = match self.peek() {
                Some(quote @ ('"' | '\'')) => self.line_string(quote)?,
                _ => self.take_while(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_').to_owned(),
            };
            if at == self.at {
                return Err(self.bad("a key of letters, digits, - and _, or a quoted one, should stand here"));
            }
            path.push(Key { name, at });
            self.spaces();
            if !self.skip(".") {
                return Ok(path);
            }
        }
    }

    /// A value of any kind; `depth` arrays are open around it.
    pub(super) fn value(&mut self, depth: usize) -> Result<Value, Bad> {
        match self.peek() {
            Some('[') => self.array(depth),
            Some('{') => Err(self.bad("inline tables are not read here; write a [table]")),
            Some(quote @ ('"' | '\'')) => {
                let fence = if quote == '"' { "\"\"\"" } else { "'''" };
                let long = self.rest.starts_with(fence);
                let string = if long { self.long_string(quote, fence)? } else { self.line_string(quote)? };
                Ok(Value::String(string))
            }
            _ => {
                let at = self.at;
                let word = self.take_while(|c| c.is_ascii_graphic() && !matches!(c, ',' | ']' | '#'));
                scalar(word).map_err(|why| Bad { at, why: why.to_owned() })
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Bad> {
        if depth >= limits::TOML_DEPTH {
            return Err(self.bad("arrays are nested too deep"));
        }
        self.next();
        let mut values = Vec::new();
        loop {
            self.blank_lines()?;
            if self.skip("]") {
                return Ok(Value::Array(values));
            }
            values.push(self.value(depth.saturating_add(1))?);
            self.blank_lines()?;
            if !self.skip(",") && self.peek() != Some(']') {
                return Err(self.bad("an array goes on with , or ends with ]"));
            }
        }
    }

    /// `"…"` or `'…'`, on one line.
    fn line_string(&mut self, quote: char) -> Result<String, Bad> {
        self.next();
        let mut out = String::new();
        loop {
            match self.peek() {
                Some(c) if c == quote => {
                    self.next();
                    return Ok(out);
                }
                Some('\\') if quote == '"' => out.push(self.escape()?),
                Some(c) if plain(c) => out.extend(self.next()),
                _ => return Err(self.bad("a string ends on its line, without control characters")),
            }
        }
    }

    /// `"""…"""` or `'''…'''`; a line end right after the opening is left out.
    fn long_string(&mut self, quote: char, fence: &str) -> Result<String, Bad> {
        self.skip(fence);
        self.line_end();
        let mut out = String::new();
        loop {
            if self.skip(fence) {
                // Up to two quotes may stand before the closing three.
                for _ in 0..2 {
                    if self.peek() == Some(quote) {
                        out.extend(self.next());
                    }
                }
                return Ok(out);
            }
            if self.line_end() {
                out.push('\n');
                continue;
            }
            match self.peek() {
                Some('\\') if quote == '"' && self.folds() => {}
                Some('\\') if quote == '"' => out.push(self.escape()?),
                Some(c) if plain(c) => out.extend(self.next()),
                _ => return Err(self.bad("a long string ends with three quotes, without control characters")),
            }
        }
    }

    /// A backslash at a line's end takes all white space up to the next text.
    fn folds(&mut self) -> bool {
        let after = self.rest.get(1..).unwrap_or_default().trim_start_matches([' ', '\t']);
        if !after.starts_with('\n') && !after.starts_with("\r\n") {
            return false;
        }
        self.next();
        self.spaces();
        while self.line_end() {
            self.spaces();
        }
        true
    }

    fn escape(&mut self) -> Result<char, Bad> {
        let at = self.at;
        self.next();
        let bad = |why: &str| Bad { at, why: why.to_owned() };
        let digits = match self.next() {
            Some('b') => return Ok('\u{8}'),
            Some('t') => return Ok('\t'),
            Some('n') => return Ok('\n'),
            Some('f') => return Ok('\u{c}'),
            Some('r') => return Ok('\r'),
            Some(c @ ('"' | '\\')) => return Ok(c),
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(bad("no such escape")),
        };
        let hex = self.rest.get(..digits).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        for _ in 0..digits {
            self.next();
        }
        code.ok_or(bad("an escape that is no character"))
    }
}

/// What strings and comments may hold beside line ends.
fn plain(c: char) -> bool {
    c == '\t' || (c >= ' ' && c != '\u{7f}')
}

fn scalar(word: &str) -> Result<Value, &'static str> {
    let unsigned = word.trim_start_matches(['+', '-']);
    match word {
        "" => return Err("a value should stand here"),
        "true" => return Ok(Value::Boolean(true)),
        "false" => return Ok(Value::Boolean(false)),
        _ if matches!(unsigned, "inf" | "nan") => return Err("floats are not read here"),
        _ if !unsigned.starts_with(|c: char| c.is_ascii_digit()) => {
            return Err("not a value; a string needs quotes");
        }
        _ => {}
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = word.strip_prefix(prefix) {
            return integer(digits, "", radix);
        }
    }
    if unsigned.contains(':')
        || unsigned.get(1..).is_some_and(|rest| rest.contains('-') && !rest.contains(['e', 'E']))
    {
        return Err("dates and times are not read here; write a string");
    }
    if unsigned.contains(['.', 'e', 'E']) {
        return Err("floats are not read here");
    }
    if unsigned.starts_with('0') && unsigned != "0" {
        return Err("a number does not begin with 0");
    }
    match word.strip_prefix('-') {
        Some(digits) => integer(digits, "-", 10),
        None => integer(word.strip_prefix('+').unwrap_or(word), "", 10),
    }
}

/// Digits with single `_` between them.
fn integer(digits: &str, sign: &str, radix: u32) -> Result<Value, &'static str> {
    if !digits.split('_').all(|group| !group.is_empty() && group.chars().all(|c| c.is_digit(radix))) {
        return Err("not a number");
    }
    let plain = format!("{sign}{}", digits.replace('_', ""));
    i64::from_str_radix(&plain, radix).map(Value::Integer).map_err(|_| "a number that 64 bits do not hold")
}
