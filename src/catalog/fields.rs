//! What sealed mode lets pass in a request body, as data: `resources/protocols/NAME.json`, and under `fields` in a provider's
//! file what that provider adds. Reads and checks the files once, at the start of a relay; `relay/policy_fields.rs` walks by them.
//!
//! A file is `{"tops": {PROTOCOL: SHAPE}, "shapes": {SHAPE: …}}`. A shape says what an object may hold:
//!
//! * `members`: name -> rule. `name!` must be there. A name that is not listed is refused.
//! * `rest`: the rule of all names not listed, for objects whose names are free.
//! * `by`: the member whose string chooses a kind. `kinds`: that string -> the members such an object may hold, `name!` must be
//!   there, `name as FORM` narrows the member's string in this kind (one member of a shape). `server_kinds`: the same, only with
//!   `--allow-server-tools`. `untyped`: the members where `by` is missing; without it, it may not be missing.
//! * `insert`: name -> JSON text that is added where the member is missing.
//!
//! A rule is one or more of these, joined by `|`:
//! `string` `number` `true` `false` `bool` `null` · `scalar` any of them · `1` the number, written so · `'word'` this string ·
//! `base64` `data` (a `data:TYPE;base64,` URL) `image` (the same, of a picture type) `label` (a tool's name): a string of that form ·
//! `{shape}` an object · `[rule]` a list of such values, `[]` an empty one; in a list no further list · `any` nothing inside is
//! judged · `schema` no string or number, and nothing inside is judged but that `$ref` stays within the request.
//!
//! One member has one rule whatever its object's kind is, so that a body can be judged in one pass wherever its `type` stands.

use crate::catalog::providers::{Protocol, Provider};
use crate::wire::json::Scanner;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Scalars and forms of a rule, as bits.
pub mod bit {
    /// Any string.
    pub const STRING: u16 = 1;
    /// Any number.
    pub const NUMBER: u16 = 2;
    /// `true`.
    pub const TRUE: u16 = 4;
    /// `false`.
    pub const FALSE: u16 = 8;
    /// `null`.
    pub const NULL: u16 = 16;
    /// The number 1, written so.
    pub const ONE: u16 = 32;
    /// Any value; an opaque zone.
    pub const ANY: u16 = 64;
    /// Any value but a string or a number; an opaque zone but for `$ref`.
    pub const SCHEMA: u16 = 128;
    /// A string of base64.
    pub const BASE64: u16 = 256;
    /// A string `data:TYPE;base64,…`.
    pub const DATA: u16 = 512;
    /// The same with the type of a picture.
    pub const IMAGE: u16 = 1024;
    /// A string that names a tool.
    pub const LABEL: u16 = 2048;
}

/// What a value may be.
#[derive(Debug, Default)]
pub struct Rule {
    /// See `bit`.
    pub bits: u16,
    /// Strings that are right, decoded.
    pub words: Vec<String>,
    /// The shape an object must have.
    pub object: Option<usize>,
    /// The rule of a list's elements.
    pub list: Option<usize>,
}

/// What an object may hold. Members are bits of a `u64`, by their position in `members`.
#[derive(Debug, Default)]
pub struct Shape {
    /// Name and rule, sorted by name.
    pub members: Vec<(String, usize)>,
    /// The rule of all other names.
    pub rest: Option<usize>,
    /// The member that chooses the kind.
    pub by: Option<usize>,
    /// Without `by`, one kind that has every member.
    pub kinds: Vec<Kind>,
    /// The member that some kinds narrow.
    pub narrowed: Option<usize>,
    /// What is added where it is missing: member, and its whole text `"name":value`.
    pub insert: Vec<(usize, String)>,
}

/// One kind of object.
#[derive(Debug)]
pub struct Kind {
    /// What `by` says; none: `by` is missing.
    pub name: Option<String>,
    /// Only with `--allow-server-tools`.
    pub server: bool,
    /// Members it may hold.
    pub may: u64,
    /// Members it must hold.
    pub must: u64,
    /// The form of the narrowed member here (a `bit`); 0: none.
    pub form: u16,
}

/// The tables of one protocol at one provider.
#[derive(Debug)]
pub struct Fields {
    /// Rules, by the indexes in shapes and rules.
    pub rules: Vec<Rule>,
    /// Shapes, likewise.
    pub shapes: Vec<Shape>,
    /// The shape of the body.
    pub top: usize,
}

/// A shape as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Written {
    members: BTreeMap<String, String>,
    rest: Option<String>,
    by: Option<String>,
    kinds: BTreeMap<String, Vec<String>>,
    server_kinds: BTreeMap<String, Vec<String>>,
    untyped: Option<Vec<String>>,
    insert: BTreeMap<String, String>,
}

/// What a provider adds: protocol's name -> shapes.
pub type Added = BTreeMap<String, BTreeMap<String, Written>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tops: BTreeMap<String, String>,
    shapes: BTreeMap<String, Written>,
}

/// The shipped files.
const SHIPPED: [(&str, &str); 3] = [
    ("chat", include_str!("../../resources/protocols/chat.json")),
    ("messages", include_str!("../../resources/protocols/messages.json")),
    ("responses", include_str!("../../resources/protocols/responses.json")),
];

/// The tables of each protocol that the provider has a route for. The error is one clause, for whoever wrote the file.
pub fn of(provider: &Provider) -> Result<Vec<(Protocol, Fields)>, String> {
    let mut all: Vec<(Protocol, Fields)> = Vec::new();
    for route in &provider.routes {
        let (file, top) = match route.protocol {
            Protocol::Plain => continue,
            Protocol::Chat => ("chat", "chat"),
            Protocol::Messages => ("messages", "messages"),
            Protocol::CountTokens => ("messages", "count-tokens"),
            Protocol::Responses => ("responses", "responses"),
        };
        if all.iter().any(|(protocol, _)| *protocol == route.protocol) {
            continue;
        }
        let text = SHIPPED.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
        let fields = read(text, top, provider.fields.get(file)).map_err(|why| format!("{file}: {why}"))?;
        all.push((route.protocol, fields));
    }
    let stray = provider.fields.keys().find(|name| !SHIPPED.iter().any(|(n, _)| n == name));
    stray.map_or(Ok(all), |name| Err(format!("fields for a protocol {name}")))
}

/// One file with what a provider adds.
pub fn read(text: &str, top: &str, added: Option<&BTreeMap<String, Written>>) -> Result<Fields, String> {
    no_duplicates(text)?;
    let mut file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
    for (name, more) in added.into_iter().flatten() {
        add(file.shapes.entry(name.clone()).or_default(), more).map_err(|why| format!("{name}: {why}"))?;
    }
    let names: Vec<&str> = file.shapes.keys().map(String::as_str).collect();
    let mut building = Building { names: &names, rules: Vec::new(), used: Vec::new() };
    let mut shapes = Vec::new();
    for (name, written) in &file.shapes {
        shapes.push(building.shape(written).map_err(|why| format!("{name}: {why}"))?);
    }
    for name in file.tops.values() {
        let at = building.index(name)?;
        building.used.push(at);
    }
    if let Some(idle) = (0..names.len()).find(|at| !building.used.contains(at)) {
        return Err(format!("no rule names the shape {}", names.get(idle).unwrap_or(&"")));
    }
    let top = building.index(file.tops.get(top).ok_or("no such top")?)?;
    Ok(Fields { rules: building.rules, shapes, top })
}

/// Serde takes the last of two members of one name.
fn no_duplicates(text: &str) -> Result<(), String> {
    let bad = |bad: crate::wire::json::Bad| format!("{} at byte {}", bad.why, bad.at);
    let mut scanner = Scanner::new(text.as_bytes()).map_err(bad)?;
    while scanner.advance().map_err(bad)?.is_some() {}
    Ok(())
}

/// What a provider adds may replace nothing.
fn add(to: &mut Written, more: &Written) -> Result<(), String> {
    fn all<T: Clone>(to: &mut BTreeMap<String, T>, more: &BTreeMap<String, T>) -> Result<(), String> {
        for (name, value) in more {
            if to.insert(name.clone(), value.clone()).is_some() {
                return Err(format!("{name} is there already"));
            }
        }
        Ok(())
    }
    all(&mut to.members, &more.members)?;
    all(&mut to.kinds, &more.kinds)?;
    all(&mut to.server_kinds, &more.server_kinds)?;
    all(&mut to.insert, &more.insert)?;
    let twice = |a: bool, b: bool| if a && b { Err("said twice".to_string()) } else { Ok(()) };
    twice(to.rest.is_some(), more.rest.is_some())?;
    twice(to.by.is_some(), more.by.is_some())?;
    twice(to.untyped.is_some(), more.untyped.is_some())?;
    to.rest = to.rest.take().or_else(|| more.rest.clone());
    to.by = to.by.take().or_else(|| more.by.clone());
    to.untyped = to.untyped.take().or_else(|| more.untyped.clone());
    Ok(())
}

struct Building<'a> {
    names: &'a [&'a str],
    rules: Vec<Rule>,
    /// Shapes that a rule names.
    used: Vec<usize>,
}

impl Building<'_> {
    fn index(&self, name: &str) -> Result<usize, String> {
        self.names.iter().position(|n| *n == name).ok_or_else(|| format!("no shape {name}"))
    }

    fn shape(&mut self, written: &Written) -> Result<Shape, String> {
        let mut shape = Shape::default();
        // The same order with and without the mark: it sorts before every letter.
        let mut must: u64 = 0;
        let mut members: Vec<(&str, &str, bool)> = written
            .members
            .iter()
            .map(|(name, rule)| (name.trim_end_matches('!'), rule.as_str(), name.ends_with('!')))
            .collect();
        if let Some(by) = &written.by {
            members.push((by, "string", false));
        }
        members.sort_unstable();
        for (at, (name, rule, needed)) in members.iter().enumerate() {
            if *needed {
                must |= mask(at)?;
            }
            mask(at)?;
            let rule = self.rule(rule).map_err(|why| format!("{name}: {why}"))?;
            shape.members.push(((*name).to_string(), rule));
        }
        if members.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            return Err("a member stands twice".into());
        }
        if let Some(rest) = &written.rest {
            shape.rest = Some(self.rule(rest)?);
        }
        for (name, value) in &written.insert {
            let at = position(&shape, name)?;
            shape.insert.push((at, format!("\"{name}\":{value}")));
        }
        kinds(&mut shape, written, must)?;
        Ok(shape)
    }

    /// Parses a rule; gives its index.
    fn rule(&mut self, text: &str) -> Result<usize, String> {
        let (before, list, after) = match (text.find('['), text.rfind(']')) {
            (None, None) => (text, None, ""),
            (Some(open), Some(close)) if open < close => {
                let inner = text.get(open.saturating_add(1)..close).unwrap_or_default();
                (
                    text.get(..open).unwrap_or_default(),
                    Some(inner),
                    text.get(close.saturating_add(1)..).unwrap_or_default(),
                )
            }
            _ => return Err(format!("the brackets of `{text}`")),
        };
        let mut rule = Rule::default();
        if let Some(inner) = list {
            let mut elements = Rule::default();
            self.words(inner, &mut elements)?;
            rule.list = Some(self.keep(elements));
        }
        let outside = |s: &str| s.trim().trim_matches('|').trim().to_string();
        self.words(&outside(before), &mut rule)?;
        self.words(&outside(after), &mut rule)?;
        Ok(self.keep(rule))
    }

    fn keep(&mut self, rule: Rule) -> usize {
        self.rules.push(rule);
        self.rules.len().saturating_sub(1)
    }

    fn words(&mut self, text: &str, rule: &mut Rule) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        for word in text.split('|').map(str::trim) {
            if let Some(name) = word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
                let at = self.index(name)?;
                self.used.push(at);
                if rule.object.replace(at).is_some() {
                    return Err("two shapes in one rule".into());
                }
            } else if let Some(own) = word.strip_prefix('\'').and_then(|w| w.strip_suffix('\'')) {
                rule.words.push(own.to_string());
            } else {
                rule.bits |= scalar(word)?;
            }
        }
        Ok(())
    }
}

fn scalar(word: &str) -> Result<u16, String> {
    Ok(match word {
        "string" => bit::STRING,
        "number" => bit::NUMBER,
        "true" => bit::TRUE,
        "false" => bit::FALSE,
        "bool" => bit::TRUE | bit::FALSE,
        "null" => bit::NULL,
        "scalar" => bit::STRING | bit::NUMBER | bit::TRUE | bit::FALSE | bit::NULL,
        "1" => bit::ONE,
        "any" => bit::ANY,
        "schema" => bit::SCHEMA,
        _ => return form(word),
    })
}

fn form(word: &str) -> Result<u16, String> {
    match word {
        "base64" => Ok(bit::BASE64),
        "data" => Ok(bit::DATA),
        "image" => Ok(bit::IMAGE),
        "label" => Ok(bit::LABEL),
        _ => Err(format!("no rule `{word}`")),
    }
}

fn mask(at: usize) -> Result<u64, String> {
    u32::try_from(at).ok().and_then(|n| 1u64.checked_shl(n)).ok_or_else(|| "more than 64 members".into())
}

fn position(shape: &Shape, name: &str) -> Result<usize, String> {
    shape.members.iter().position(|(n, _)| n == name).ok_or_else(|| format!("no member {name}"))
}

/// Fills in the kinds; `must` are the members every kind needs.
fn kinds(shape: &mut Shape, written: &Written, must: u64) -> Result<(), String> {
    let Some(by) = &written.by else {
        let typed =
            written.untyped.is_some() || !written.kinds.is_empty() || !written.server_kinds.is_empty();
        if typed {
            return Err("kinds without `by`".into());
        }
        shape.kinds.push(Kind { name: None, server: false, may: u64::MAX, must, form: 0 });
        return Ok(());
    };
    let by = position(shape, by)?;
    shape.by = Some(by);
    let plain = written.kinds.iter().map(|(name, list)| (Some(name), false, list));
    let server = written.server_kinds.iter().map(|(name, list)| (Some(name), true, list));
    let untyped = written.untyped.iter().map(|list| (None, false, list));
    let mut met = mask(by)?;
    for (name, server, list) in plain.chain(server).chain(untyped) {
        if name.is_some_and(|n| shape.kinds.iter().any(|k| k.name.as_ref() == Some(n))) {
            return Err("a kind stands twice".into());
        }
        let mut kind = Kind { name: name.cloned(), server, may: mask(by)?, must, form: 0 };
        for item in list {
            let (item, as_form) =
                item.split_once(" as ").map_or((item.as_str(), None), |(i, f)| (i, Some(f)));
            let at = position(shape, item.trim_end_matches('!'))?;
            kind.may |= mask(at)?;
            if item.ends_with('!') {
                kind.must |= mask(at)?;
            }
            if let Some(as_form) = as_form {
                kind.form = form(as_form)?;
                if shape.narrowed.replace(at).is_some_and(|other| other != at) {
                    return Err("two members are narrowed".into());
                }
            }
        }
        met |= kind.may;
        shape.kinds.push(kind);
    }
    match (0..shape.members.len()).find(|at| mask(*at).is_ok_and(|m| met & m == 0)) {
        Some(at) => Err(format!("no kind has {}", shape.members.get(at).map_or("", |(n, _)| n))),
        None => Ok(()),
    }
}
