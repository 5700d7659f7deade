//! A forgiving JSON reader for answers, fed in pieces of any size: keeps the few members that can report usage (`KEPT`) and
//! walks over all the rest in constant memory, whatever its size, depth or faults (lone surrogates, NaN, bad UTF-8, raw
//! control characters). Never fails. Called by `relay/usage.rs`; what a policy depends on is read by `wire/json.rs` instead.

use crate::limits::{USAGE_DEPTH, USAGE_ELEMENTS, USAGE_FACTS, USAGE_TEXT_BYTES};
use crate::wire::json_text;

/// The places that are kept. `*`: any element of an array. `true`: all below it too.
const KEPT: &[(&[&str], bool)] = &[
    (&["type"], false),
    (&["object"], false),
    (&["model"], false),
    (&["status"], false),
    (&["error"], false),
    (&["error_type"], false),
    (&["cost"], false),
    (&["usage"], true),
    (&["x_groq", "usage"], true),
    (&["choices", "*", "usage"], true),
    (&["choices", "*", "finish_reason"], false),
    (&["message", "model"], false),
    (&["message", "usage"], true),
    (&["delta", "stop_reason"], false),
    (&["amazon-bedrock-invocationMetrics"], true),
    (&["response", "id"], false),
    (&["response", "model"], false),
    (&["response", "status"], false),
    (&["response", "usage"], true),
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
    /// Inside a place of which all is kept, that included.
    region: bool,
    index: usize,
    /// What the name of the member being read says.
    next: Next,
    /// That name, once `named`, where something of the member may be kept.
    name: String,
    named: bool,
    colon: bool,
}

/// What is known of the value that comes next.
#[derive(Clone, Copy, Default)]
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
    /// The string or word being read, as far as it is kept.
    text: Vec<u8>,
    /// Nothing is kept of it: it is longer than `USAGE_TEXT_BYTES`, so it is no report, or none stands at its place.
    dropped: bool,
    facts: Facts,
}

impl Scan {
    /// Ready for another value; buffers are kept.
    pub fn reset(&mut self) {
        self.mode = Mode::Between;
        self.frames.clear();
        self.skip = 0;
        self.text.clear();
        self.dropped = false;
        self.facts.list.clear();
    }

    /// The top-level container was closed.
    pub fn done(&self) -> bool {
        self.mode == Mode::Done
    }

    /// What was kept. A region (all of it is kept) that was not closed is left out: half a report is none.
    pub fn finish(&mut self) -> &Facts {
        if let Some(open) = self.frames.iter().position(|f| f.region) {
            let root = self.path(open);
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
        let Some((&byte, tail)) = rest.split_first() else {
            self.hold(run);
            return rest;
        };
        match byte {
            b'"' => {
                self.mode = Mode::Between;
                self.text_over(run);
            }
            _ => {
                self.hold(run);
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

    /// A string or a word begins. Most of an answer is text that nothing is kept of.
    fn start(&mut self, mode: Mode) {
        self.text.clear();
        self.dropped = !self.naming() && !self.next().keep;
        self.mode = mode;
    }

    /// What comes in this object is a member name.
    fn naming(&self) -> bool {
        self.frames.last().is_some_and(|f| f.object && !f.colon)
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skip > 0 || self.dropped {
            return;
        }
        if self.text.len().saturating_add(bytes.len()) > USAGE_TEXT_BYTES {
            self.dropped = true;
            self.text.clear();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    /// A string ends with this run. Most are in it whole, and are read where they are.
    fn text_over(&mut self, run: &[u8]) {
        if self.skip > 0 {
            return;
        }
        let whole = self.text.is_empty() && run.len() <= USAGE_TEXT_BYTES;
        if !whole {
            self.hold(run);
        }
        let held = std::mem::take(&mut self.text);
        let text: &[u8] = match (self.dropped, whole) {
            (true, _) => b"",
            (false, true) => run,
            (false, false) => &held,
        };
        if self.naming() {
            self.named(&json_text::text(text));
        } else if !self.dropped {
            self.keep(Value::Text(json_text::text(text).into_owned()));
        }
        // Its memory is used again.
        self.text = held;
    }

    /// A member has this name: what that says of its value. Of most nothing is kept, so their names are not either.
    fn named(&mut self, name: &str) {
        let level = self.frames.len().saturating_sub(1);
        if let Some(frame) = self.frames.last_mut() {
            frame.next = below(frame.mask, level, Some(name));
            frame.name.clear();
            if frame.next.mask != 0 {
                frame.name.push_str(name);
            }
            frame.named = true;
        }
    }

    fn word_over(&mut self) {
        // A word that stands where a name must is no value of anything.
        if !self.dropped && !self.naming() {
            let word = String::from_utf8_lossy(&self.text).into_owned();
            self.keep(Value::Word(word));
        }
    }

    /// What `KEPT` says about the value that comes now.
    fn next(&self) -> Next {
        let Some(frame) = self.frames.last() else {
            return Next { mask: u32::MAX, ..Next::default() };
        };
        match frame.object {
            true if frame.colon => frame.next,
            false if frame.index < USAGE_ELEMENTS => {
                below(frame.mask, self.frames.len().saturating_sub(1), None)
            }
            _ => Next::default(),
        }
    }

    fn keep(&mut self, value: Value) {
        if self.facts.list.len() < USAGE_FACTS {
            let path = self.path(self.frames.len());
            self.facts.list.push((path, value));
        }
    }

    /// Where the member or element that is read by the innermost of the first `levels` containers stands.
    fn path(&self, levels: usize) -> String {
        let mut path = String::new();
        for frame in self.frames.iter().take(levels) {
            if !path.is_empty() {
                path.push('/');
            }
            match frame.object {
                false => path.push_str(&frame.index.to_string()),
                // A name that could be read as two steps is no name of ours.
                true if frame.name.contains('/') => path.push('?'),
                true => path.push_str(&frame.name),
            }
        }
        path
    }

    fn open(&mut self, object: bool) {
        let next = self.next();
        if next.mask == 0 || self.frames.len() >= USAGE_DEPTH {
            self.skip = 1;
            return;
        }
        if next.region && !self.frames.last().is_some_and(|f| f.region) {
            // Told twice: the last counts, whole.
            self.forget(&self.path(self.frames.len()));
        }
        if next.keep {
            self.keep(if object { Value::Object } else { Value::Array });
        }
        let frame = Frame {
            object,
            mask: next.mask,
            region: next.region,
            index: 0,
            next: Next::default(),
            name: String::new(),
            named: false,
            colon: false,
        };
        self.frames.push(frame);
    }

    fn close(&mut self) {
        self.frames.pop();
        if self.frames.is_empty() {
            self.mode = Mode::Done;
        }
    }

    fn forget(&mut self, root: &str) {
        let below = |p: &str| p.strip_prefix(root).is_some_and(|p| p.is_empty() || p.starts_with('/'));
        self.facts.list.retain(|(path, _)| !below(path));
    }
}

/// What the patterns of `mask` say about the member of this name, or the element, of a container `level` deep.
fn below(mask: u32, level: usize, name: Option<&str>) -> Next {
    let mut next = Next::default();
    let mut left = mask;
    while left != 0 {
        let bit = left.trailing_zeros();
        let flag = 1u32.checked_shl(bit).unwrap_or(0);
        left &= !flag;
        let Some((path, all)) = usize::try_from(bit).ok().and_then(|bit| KEPT.get(bit)) else { break };
        let matches = match path.get(level) {
            Some(&"*") => name.is_none(),
            Some(own) => Some(*own) == name,
            None => *all,
        };
        if matches {
            next.mask |= flag;
            let end = level.saturating_add(1);
            next.region |= *all && end >= path.len();
            next.keep |= end == path.len() || next.region;
        }
    }
    next
}
