//! A forgiving JSON reader for answers, fed in pieces of any size: keeps the few members that can report usage (`KEPT`) and
//! walks over all the rest in constant memory, whatever its size, depth or faults (lone surrogates, NaN, bad UTF-8, raw
//! control characters). Never fails. Called by `relay/usage.rs`; what a policy depends on is read by `wire/json.rs` instead.

use crate::limits::{USAGE_DEPTH, USAGE_ELEMENTS, USAGE_FACTS, USAGE_TEXT_BYTES};
use crate::wire::json_text;

/// The places that are kept. `*`: any element of an array; `**` at the end: the member and all below it.
const KEPT: &[&[&str]] = &[
    &["type"],
    &["object"],
    &["model"],
    &["status"],
    &["error"],
    &["error_type"],
    &["cost"],
    &["usage", "**"],
    &["x_groq", "usage", "**"],
    &["choices", "*", "usage", "**"],
    &["choices", "*", "finish_reason"],
    &["message", "model"],
    &["message", "usage", "**"],
    &["delta", "stop_reason"],
    &["amazon-bedrock-invocationMetrics", "**"],
    &["response", "id"],
    &["response", "model"],
    &["response", "status"],
    &["response", "usage", "**"],
];

/// A kept value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An object; its members are facts of their own.
    Object,
    /// An array; its elements are facts of their own.
    Array,
    /// A string, decoded.
    Text(String),
    /// A number or a literal, as written.
    Word(String),
}

/// What was kept of one JSON value: path (`usage/prompt_tokens`, `choices/0/finish_reason`) and value, in order.
#[derive(Default)]
pub struct Facts {
    list: Vec<(String, Value)>,
}

impl Facts {
    /// The last value at this path.
    pub fn find(&self, path: &str) -> Option<&Value> {
        self.list.iter().rev().find(|(p, _)| p == path).map(|(_, v)| v)
    }

    /// The last value at `base/rest`.
    pub fn below(&self, base: &str, rest: &str) -> Option<&Value> {
        let same =
            |p: &str| p.strip_prefix(base).and_then(|p| p.strip_prefix('/')).is_some_and(|p| p == rest);
        self.list.iter().rev().find(|(p, _)| same(p)).map(|(_, v)| v)
    }

    /// The string at this path.
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.find(path) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Something else than null or false stands at this path.
    pub fn set(&self, path: &str) -> bool {
        match self.find(path) {
            None => false,
            Some(Value::Word(word)) => word != "null" && word != "false",
            Some(_) => true,
        }
    }

    /// All facts, in order.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
        self.list.iter().map(|(p, v)| (p.as_str(), v))
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// Between tokens.
    #[default]
    Between,
    /// In a string; `true`: behind a backslash.
    Text(bool),
    /// In a number or a literal.
    Word,
    /// The top-level value is over.
    Done,
}

struct Frame {
    object: bool,
    /// Which of `KEPT` still match, a bit each.
    mask: u32,
    /// Length of `path` at this container.
    path: usize,
    /// Inside a `**` region, its root included.
    region: bool,
    index: usize,
    /// The name of the member being read, once `named`.
    name: String,
    named: bool,
    colon: bool,
}

/// What is known of the value that comes next.
struct Next {
    mask: u32,
    keep: bool,
    region: bool,
}

/// Reads one JSON value.
#[derive(Default)]
pub struct Scan {
    mode: Mode,
    frames: Vec<Frame>,
    /// Depth below a container that nothing is kept of; 0: not in one.
    skip: usize,
    path: String,
    /// The string or word being read, as far as it is kept.
    text: Vec<u8>,
    /// It is longer than `USAGE_TEXT_BYTES`, so it is no report.
    long: bool,
    facts: Facts,
}

impl Scan {
    /// Ready for another value; buffers are kept.
    pub fn reset(&mut self) {
        self.mode = Mode::Between;
        self.frames.clear();
        self.skip = 0;
        self.path.clear();
        self.text.clear();
        self.long = false;
        self.facts.list.clear();
    }

    /// The top-level container was closed.
    pub fn done(&self) -> bool {
        self.mode == Mode::Done
    }

    /// What was kept. A `**` region that was not closed is left out: half a report is none.
    pub fn finish(&mut self) -> &Facts {
        if let Some(open) = self.frames.iter().find(|f| f.region) {
            let root = self.path.get(..open.path).unwrap_or_default().to_string();
            self.forget(&root);
        }
        &self.facts
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            match self.mode {
                Mode::Done => return,
                Mode::Text(true) => {
                    self.hold(&[byte]);
                    self.mode = Mode::Text(false);
                    rest = tail;
                }
                Mode::Text(false) => rest = self.in_text(rest),
                Mode::Word => {
                    if matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') {
                        self.hold(&[byte]);
                        rest = tail;
                    } else {
                        self.mode = Mode::Between;
                        self.word_over();
                    }
                }
                Mode::Between => {
                    self.between(byte);
                    rest = tail;
                }
            }
        }
    }

    /// Walks to the end of the string or of the bytes; gives what is behind.
    fn in_text<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (run, rest) = bytes.split_at_checked(json_text::plain(bytes)).unwrap_or((bytes, &[]));
        self.hold(run);
        let Some((&byte, tail)) = rest.split_first() else { return rest };
        match byte {
            b'"' => {
                self.mode = Mode::Between;
                self.text_over();
            }
            _ => {
                self.hold(&[byte]);
                self.mode = Mode::Text(byte == b'\\');
            }
        }
        tail
    }

    fn between(&mut self, byte: u8) {
        if self.skip > 0 {
            match byte {
                b'{' | b'[' => self.skip = self.skip.saturating_add(1),
                b'}' | b']' => self.skip = self.skip.saturating_sub(1),
                b'"' => self.mode = Mode::Text(false),
                _ => {}
            }
            return;
        }
        match byte {
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'}' | b']' => self.close(),
            b'"' => self.start(Mode::Text(false)),
            b',' => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.index = frame.index.saturating_add(1);
                    frame.named = false;
                    frame.colon = false;
                }
            }
            b':' => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.colon = frame.named;
                }
            }
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.' => {
                self.start(Mode::Word);
                self.hold(&[byte]);
            }
            _ => {}
        }
    }

    fn start(&mut self, mode: Mode) {
        self.text.clear();
        self.long = false;
        self.mode = mode;
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skip > 0 || self.long {
            return;
        }
        if self.text.len().saturating_add(bytes.len()) > USAGE_TEXT_BYTES {
            self.long = true;
            self.text.clear();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    fn text_over(&mut self) {
        if self.skip > 0 {
            return;
        }
        let naming = self.frames.last().is_some_and(|f| f.object && !f.colon);
        if naming {
            if let Some(frame) = self.frames.last_mut() {
                // The buffer of the member before is used again.
                let name = &mut frame.name;
                name.clear();
                if !self.long {
                    name.push_str(&json_text::text(&self.text));
                }
                frame.named = true;
            }
        } else if self.next().keep && !self.long {
            let text = json_text::text(&self.text).into_owned();
            self.keep(Value::Text(text));
        }
    }

    fn word_over(&mut self) {
        if self.next().keep && !self.long {
            let word = String::from_utf8_lossy(&self.text).into_owned();
            self.keep(Value::Word(word));
        }
    }

    /// What `KEPT` says about the value that comes now.
    fn next(&self) -> Next {
        let Some(frame) = self.frames.last() else {
            return Next { mask: u32::MAX, keep: false, region: false };
        };
        let level = self.frames.len().saturating_sub(1);
        let mut next = Next { mask: 0, keep: false, region: false };
        let name = frame.name.as_str();
        let beyond = if frame.object { !frame.colon } else { frame.index >= USAGE_ELEMENTS };
        if beyond {
            return next;
        }
        for (bit, pattern) in KEPT.iter().enumerate() {
            let flag = 1u32.checked_shl(u32::try_from(bit).unwrap_or(u32::MAX)).unwrap_or(0);
            if frame.mask & flag == 0 {
                continue;
            }
            let last = pattern.len().saturating_sub(1);
            let all = pattern.last() == Some(&"**");
            let matches = match pattern.get(level) {
                _ if all && level >= last => true,
                Some(&"*") => !frame.object,
                Some(own) => frame.object && *own == name,
                None => false,
            };
            if matches {
                next.mask |= flag;
                let region = all && level.saturating_add(1) >= last;
                next.region |= region;
                next.keep |= region || level == last;
            }
        }
        next
    }

    fn keep(&mut self, value: Value) {
        if self.facts.list.len() < USAGE_FACTS {
            let path = self.path_here();
            self.facts.list.push((path, value));
        }
    }

    fn path_here(&self) -> String {
        let Some(frame) = self.frames.last() else { return String::new() };
        let index;
        let step = if !frame.object {
            index = frame.index.to_string();
            index.as_str()
        } else if frame.name.contains('/') {
            // A name that could be read as two steps is no name of ours.
            "?"
        } else {
            frame.name.as_str()
        };
        if self.path.is_empty() { step.to_string() } else { format!("{}/{step}", self.path) }
    }

    fn open(&mut self, object: bool) {
        let next = self.next();
        if next.mask == 0 || self.frames.len() >= USAGE_DEPTH {
            self.skip = 1;
            return;
        }
        let here = self.path_here();
        if next.region && !self.frames.last().is_some_and(|f| f.region) {
            // Told twice: the last counts, whole.
            self.forget(&here);
        }
        if next.keep {
            self.keep(if object { Value::Object } else { Value::Array });
        }
        self.path = here;
        let frame = Frame {
            object,
            mask: next.mask,
            path: self.path.len(),
            region: next.region,
            index: 0,
            name: String::new(),
            named: false,
            colon: false,
        };
        self.frames.push(frame);
    }

    fn close(&mut self) {
        self.frames.pop();
        match self.frames.last() {
            Some(frame) => self.path.truncate(frame.path),
            None => self.mode = Mode::Done,
        }
    }

    fn forget(&mut self, root: &str) {
        let below = |p: &str| p.strip_prefix(root).is_some_and(|p| p.is_empty() || p.starts_with('/'));
        self.facts.list.retain(|(path, _)| !below(path));
    }
}
