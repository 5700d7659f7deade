//! The walk of sealed mode: beside the scanner, token by token, by the tables of `catalog/fields.rs`. No tree, no recursion: one
//! frame per judged container that is open. Keeps the first refusal and looks at nothing after it; that the rest is JSON is the
//! scanner's business. Never edits, never sees a head. Called by `relay/policy_read.rs`.

use crate::catalog::fields::{Fields, Kind, Rule, Shape, bit};
use crate::limits::SHOWN_CHARS;
use crate::relay::policy_forms::has_form;
use crate::relay::start::Grants;
use crate::wire::json::{Kind as Json, Scanner, Token};
use crate::wire::json_text::{decoded, inside};
use crate::wire::text;
use std::borrow::Cow;
use std::ops::Range;

/// The forms that hold an image or a document: it can count more tokens than it has bytes.
const MEDIA: u16 = bit::BASE64 | bit::DATA | bit::IMAGE;

/// What sealed mode refuses, and which flag lifts it.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// One clause; names no flag.
    pub why: String,
    /// For the operator.
    pub remedy: Cow<'static, str>,
}

/// What is being read.
#[derive(Clone, Copy)]
enum Zone {
    /// By the tables.
    Judged,
    /// Nothing, until the container of this depth ends.
    Opaque(usize),
    /// A JSON schema, likewise; the flag: the last token was the name `$ref`.
    Schema(usize, bool),
    /// Nothing any more.
    Over,
}

/// A judged container that is open.
struct Frame {
    /// Of an object; none: a list.
    shape: Option<usize>,
    /// The rule of the next value.
    rule: usize,
    /// The position of the member being read.
    member: Option<usize>,
    /// Members met.
    seen: u64,
    /// Its kind, once `by` was met.
    kind: Option<usize>,
    /// Where the narrowed member's string stands.
    narrowed: Option<Range<usize>>,
    /// A member off the list, in an object whose kind may still turn out to be allowed by `--allow-field`.
    doubt: Option<Refused>,
}

/// One walk over one body.
pub struct Walk<'a> {
    fields: &'a Fields,
    grants: &'a Grants,
    bytes: &'a [u8],
    frames: Vec<Frame>,
    zone: Zone,
    /// The first refusal.
    pub refused: Option<Refused>,
    /// Strings that hold an image, a document or sound.
    pub media: u64,
    /// One of them is sound, which has rates of its own.
    pub sound: bool,
    /// Members to add at the top, each `"name":value`.
    pub inserted: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    /// To be given every token behind the body's opening brace.
    pub fn new(fields: &'a Fields, grants: &'a Grants, bytes: &'a [u8]) -> Walk<'a> {
        let top = Frame {
            shape: Some(fields.top),
            rule: 0,
            member: None,
            seen: 0,
            kind: fields.shapes.get(fields.top).and_then(only_kind),
            narrowed: None,
            doubt: None,
        };
        Walk {
            fields,
            grants,
            bytes,
            frames: vec![top],
            zone: Zone::Judged,
            refused: None,
            media: 0,
            sound: false,
            inserted: Vec::new(),
        }
    }

    /// The next token; the scanner stands right behind it.
    pub fn step(&mut self, scanner: &Scanner<'_>, token: &Token) {
        match self.zone {
            Zone::Judged => match token.kind {
                Json::Name => self.name(scanner, token),
                Json::ObjectEnd | Json::ArrayEnd => self.end(scanner, token),
                _ => self.value(scanner, token),
            },
            Zone::Opaque(depth) if ends(token, depth) => self.zone = Zone::Judged,
            Zone::Schema(depth, _) if ends(token, depth) => self.zone = Zone::Judged,
            Zone::Schema(depth, reference) => {
                let away = reference
                    && token.kind == Json::String
                    && !decoded(inside(self.bytes, &token.span)).starts_with(b"#");
                if away {
                    let why =
                        format!("{} refers to something outside the request", place(scanner, token.depth));
                    return self.refuse(why, Cow::Borrowed(""));
                }
                let name = || scanner.member_of(token.depth.saturating_sub(1));
                let reference = token.kind == Json::Name
                    && matches!(name(), Some(b"$ref" | b"$dynamicRef" | b"$recursiveRef"));
                self.zone = Zone::Schema(depth, reference);
            }
            Zone::Opaque(_) | Zone::Over => {}
        }
    }

    fn name(&mut self, scanner: &Scanner<'_>, token: &Token) {
        let fields = self.fields;
        let name = scanner.member_of(token.depth.saturating_sub(1)).unwrap_or_default();
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(shape) = frame.shape.and_then(|s| fields.shapes.get(s)) else { return };
        let found = shape.members.binary_search_by(|(n, _)| n.as_bytes().cmp(name)).ok();
        frame.member = found;
        match (found.and_then(|at| shape.members.get(at)), shape.rest) {
            (Some((_, rule)), _) => {
                frame.seen |= found.map_or(0, one);
                frame.rule = *rule;
            }
            (None, Some(rest)) => frame.rule = rest,
            // Its value is let pass or refused by `value`, which knows what it is.
            (None, None) => frame.rule = usize::MAX,
        }
    }

    fn value(&mut self, scanner: &Scanner<'_>, token: &Token) {
        let fields = self.fields;
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(rule) = fields.rules.get(frame.rule) else {
            return self.off_the_list(scanner, token, "the field");
        };
        let shape = frame.shape.and_then(|s| fields.shapes.get(s));
        if let Some(shape) = shape.filter(|s| s.by.is_some() && s.by == frame.member) {
            return self.kind(scanner, token, shape);
        }
        if token.kind == Json::String
            && shape.is_some_and(|s| s.narrowed.is_some() && s.narrowed == frame.member)
        {
            frame.narrowed = Some(token.span.clone());
        }
        match token.kind {
            Json::Object | Json::Array if rule.bits & bit::ANY != 0 => self.zone = Zone::Opaque(token.depth),
            Json::Object | Json::Array if rule.bits & bit::SCHEMA != 0 => {
                self.zone = Zone::Schema(token.depth, false);
            }
            Json::Object => match rule.object {
                Some(at) => self.open(Some(at), usize::MAX),
                None => self.off_the_list(scanner, token, "the value of"),
            },
            Json::Array => match rule.list {
                Some(elements) => self.open(None, elements),
                None => self.off_the_list(scanner, token, "the value of"),
            },
            _ if self.scalar(rule, token) => {
                let holder = token.depth.checked_sub(2).and_then(|level| scanner.member_of(level));
                self.sound |= rule.bits & bit::BASE64 != 0 && holder == Some(b"input_audio");
            }
            _ => self.off_the_list(scanner, token, "the value of"),
        }
    }

    fn open(&mut self, shape: Option<usize>, rule: usize) {
        let kind = shape.and_then(|at| self.fields.shapes.get(at)).and_then(only_kind);
        self.frames.push(Frame { shape, rule, member: None, seen: 0, kind, narrowed: None, doubt: None });
    }

    fn scalar(&mut self, rule: &Rule, token: &Token) -> bool {
        let bits = match token.kind {
            Json::String => bit::STRING,
            Json::Number => bit::NUMBER,
            Json::True => bit::TRUE,
            Json::False => bit::FALSE,
            _ => bit::NULL,
        };
        // A schema is an object or a truth value; a string in its place could be an address.
        let schema = rule.bits & bit::SCHEMA != 0 && !matches!(token.kind, Json::String | Json::Number);
        if schema || rule.bits & (bits | bit::ANY) != 0 {
            return true;
        }
        match token.kind {
            Json::String => {
                let text = decoded(inside(self.bytes, &token.span));
                if rule.words.iter().any(|w| w.as_bytes() == &*text) {
                    return true;
                }
                let form = has_form(rule.bits, &text);
                self.media = self.media.saturating_add(u64::from(form && rule.bits & MEDIA != 0));
                form
            }
            Json::Number => rule.bits & bit::ONE != 0 && self.bytes.get(token.span.clone()) == Some(b"1"),
            _ => false,
        }
    }

    /// The value of the member that chooses the kind.
    fn kind(&mut self, scanner: &Scanner<'_>, token: &Token, shape: &Shape) {
        if token.kind != Json::String {
            return self.off_the_list(scanner, token, "the value of");
        }
        let name = decoded(inside(self.bytes, &token.span));
        let found = shape.kinds.iter().position(|k| k.name.as_ref().is_some_and(|n| n.as_bytes() == &*name));
        let server = found.and_then(|at| shape.kinds.get(at)).is_some_and(|k| k.server);
        if found.is_some() && (!server || self.grants.allow_server_tools) {
            if let Some(frame) = self.frames.last_mut() {
                frame.kind = found;
            }
            return;
        }
        let name = String::from_utf8_lossy(&name);
        let at = place(scanner, token.depth);
        let named = format!("{at}={name}");
        if self.allowed(&named) {
            self.frames.pop();
            self.zone = Zone::Opaque(token.depth.saturating_sub(1));
        } else if server {
            let why = format!("{at} {} is not allowed here: the provider would run it", quoted(&name));
            self.refuse(why, Cow::Borrowed("--allow-server-tools"));
        } else {
            self.refuse(format!("{at} {} is not allowed here", quoted(&name)), remedy(&named));
        }
    }

    fn end(&mut self, scanner: &Scanner<'_>, token: &Token) {
        let Some(frame) = self.frames.pop() else { return };
        let Some(shape) = frame.shape.and_then(|s| self.fields.shapes.get(s)) else { return };
        if let Some(doubt) = frame.doubt {
            return self.refuse(doubt.why, doubt.remedy);
        }
        let kind = frame.kind.or_else(|| shape.kinds.iter().position(|k| k.name.is_none()));
        let Some(kind) = kind.and_then(|at| shape.kinds.get(at)) else {
            let by = shape.by.map_or("", |at| member(shape, at));
            let why = format!("{} is missing", joined(&place(scanner, token.depth), by));
            return self.refuse(why, Cow::Borrowed(""));
        };
        self.finish(scanner, token, &frame, shape, kind);
        if self.frames.is_empty() {
            let missing = shape.insert.iter().filter(|(at, _)| frame.seen & one(*at) == 0);
            self.inserted.extend(missing.map(|(_, text)| text.as_str()));
        }
    }

    /// What can only be said of a whole object: wrong members for its kind, missing ones, the narrowed one's form.
    fn finish(&mut self, scanner: &Scanner<'_>, token: &Token, frame: &Frame, shape: &Shape, kind: &Kind) {
        let at = || place(scanner, token.depth);
        let wrong = frame.seen & !kind.may;
        let first = |set: u64| (0..shape.members.len()).filter(move |n| set & one(*n) != 0);
        if wrong != 0 {
            let odd = first(wrong).find(|n| !self.allowed(&joined(&at(), member(shape, *n))));
            if let Some(odd) = odd {
                let path = joined(&at(), member(shape, odd));
                let of =
                    kind.name.as_ref().map_or(String::new(), |n| format!(" with the type {}", quoted(n)));
                return self.refuse(format!("the field {path} is not allowed here{of}"), remedy(&path));
            }
        }
        let missing = kind.must & !frame.seen;
        if missing != 0 {
            let name = first(missing).next().map_or("", |n| member(shape, n));
            let why = format!("{} is missing", joined(&at(), name));
            return self.refuse(why, Cow::Borrowed(""));
        }
        self.media = self.media.saturating_add(u64::from(kind.form & MEDIA != 0));
        if kind.form != 0
            && let Some(span) = &frame.narrowed
            && !has_form(kind.form, &decoded(inside(self.bytes, span)))
        {
            let path = joined(&at(), shape.narrowed.map_or("", |n| member(shape, n)));
            let why = format!("the value of {path} is not allowed here: it must hold the data itself");
            self.refuse(why, Cow::Borrowed(""));
        }
    }

    /// A member or a value that no rule has: let pass where `--allow-field` names its place, else refused.
    fn off_the_list(&mut self, scanner: &Scanner<'_>, token: &Token, what: &str) {
        let path = place(scanner, token.depth);
        let container = matches!(token.kind, Json::Object | Json::Array);
        if self.allowed(&path) {
            if container {
                self.zone = Zone::Opaque(token.depth);
            }
            return;
        }
        let is = match token.kind {
            Json::Object => "an object",
            Json::Array => "a list",
            Json::String => "a string",
            Json::Number => "a number",
            Json::True | Json::False => "true or false",
            _ => "null",
        };
        let why = format!("{what} {} ({is}) is not allowed here", text::short(&path, SHOWN_CHARS));
        let remedy = remedy(&path);
        let open = self.kind_may_be_named(scanner, token);
        match self.frames.last_mut() {
            Some(frame) if open => {
                frame.doubt.get_or_insert(Refused { why, remedy });
                if container {
                    self.zone = Zone::Opaque(token.depth);
                }
            }
            _ => self.refuse(why, remedy),
        }
    }

    /// The object's kind is not known yet, and `--allow-field` names one for its place.
    fn kind_may_be_named(&self, scanner: &Scanner<'_>, token: &Token) -> bool {
        let Some(frame) = self.frames.last().filter(|f| f.kind.is_none()) else { return false };
        let Some(shape) = frame.shape.and_then(|s| self.fields.shapes.get(s)) else { return false };
        let by = shape.by.filter(|by| frame.seen & one(*by) == 0).map(|by| member(shape, by));
        let object = place(scanner, token.depth.saturating_sub(1));
        let named = |by: &str| {
            let start = format!("{}=", joined(&object, by));
            self.grants.allow_fields.iter().any(|f| f.starts_with(&start))
        };
        by.is_some_and(named)
    }

    fn allowed(&self, path: &str) -> bool {
        self.grants.allow_fields.iter().any(|f| f == path)
    }

    fn refuse(&mut self, why: String, remedy: Cow<'static, str>) {
        self.refused = Some(Refused { why: text::short(&why, WHY_CHARS), remedy });
        self.zone = Zone::Over;
    }
}

/// Room for a path and the words around it.
const WHY_CHARS: usize = SHOWN_CHARS.saturating_mul(2);

/// Of a shape without kinds.
fn only_kind(shape: &Shape) -> Option<usize> {
    shape.by.is_none().then_some(0)
}

fn ends(token: &Token, depth: usize) -> bool {
    token.depth == depth && matches!(token.kind, Json::ObjectEnd | Json::ArrayEnd)
}

fn one(at: usize) -> u64 {
    u32::try_from(at).ok().and_then(|n| 1u64.checked_shl(n)).unwrap_or(0)
}

fn member(shape: &Shape, at: usize) -> &str {
    shape.members.get(at).map_or("", |(name, _)| name)
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", text::short(name, SHOWN_CHARS))
}

/// `messages[].content[].source`: where a value stands that has this many containers around it.
fn place(scanner: &Scanner<'_>, depth: usize) -> String {
    let mut path = String::new();
    for level in 0..depth {
        match scanner.member_of(level) {
            Some(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&String::from_utf8_lossy(name));
            }
            None => path.push_str("[]"),
        }
    }
    path
}

/// The flag with the place, where that is plain enough to be typed: the words are the box's.
pub fn remedy(place: &str) -> Cow<'static, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.:=[]?&".contains(&b);
    if place.len() <= SHOWN_CHARS && place.bytes().all(plain) {
        Cow::Owned(format!("--allow-field '{place}'"))
    } else {
        Cow::Borrowed("--allow-field")
    }
}
