//! The verdict on a request. Pure: head and body in, verdict out; tested by tables. Every edit is a span: all other bytes go
//! upstream as they came. What is judged is the table of `policy_read.rs`;
//! nothing is ever re-serialised.

use crate::catalog::fields::{self, Fields};
use crate::catalog::providers::{ChatCap, Protocol, Provider};
use crate::limits::MODEL_CHARS;
use crate::relay::policy_fields::Walk;
use crate::relay::policy_price::{self, Terms};
use crate::relay::policy_read::{Found, Read, Rule, last_name, path_text, read};
use crate::relay::start::Grants;
use crate::wire::json::Kind;
use crate::wire::json::Step::{Each, Member};
use crate::wire::json_text;
use crate::wire::text;
use std::borrow::Cow;
use std::ops::Range;

/// Why a request is refused: a status, the error kind in the protocol's own words, one clause for the agent.
#[derive(Debug, PartialEq, Eq)]
pub struct Deny {
    /// 400, 403…
    pub status: u16,
    /// `invalid_request_error`, `permission_error`…
    pub kind: &'static str,
    /// Never names a flag: what lifts it is told to the operator only (`remedy`).
    pub why: String,
    /// The flag that lifts it, for the log and the operator.
    pub remedy: Cow<'static, str>,
}

/// What a provider's file says about bodies.
#[derive(Debug)]
pub struct Rules {
    /// Chat streams are made to end with their usage.
    pub include_usage: bool,
    /// The name under which a Chat call gets its cap.
    pub chat_cap: ChatCap,
    /// See `Provider`.
    pub hosted_models: Vec<String>,
    /// What sealed mode lets pass, for each protocol that has a body.
    pub fields: Vec<(Protocol, Fields)>,
}

impl Rules {
    /// Read from the provider's file and the protocols' files. An error is a fault of those who wrote them.
    pub fn of(provider: &Provider) -> Result<Rules, String> {
        let fields = fields::of(provider).map_err(|why| format!("{}: {why}", provider.name))?;
        let hosted_models = provider.hosted_models.clone();
        Ok(Rules {
            include_usage: provider.include_usage,
            chat_cap: provider.chat_cap,
            hosted_models,
            fields,
        })
    }

    fn fields(&self, protocol: Protocol) -> Option<&Fields> {
        self.fields.iter().find(|(p, _)| *p == protocol).map(|(_, fields)| fields)
    }
}

/// A replacement: a span of the original body, and the bytes that go in its place.
pub type Edit = (Range<usize>, Vec<u8>);

/// A body that may go upstream. The private field makes `body` and `bodyless` the only makers: no verdict, no key (`inject`
/// demands it).
#[derive(Debug, PartialEq, Eq)]
pub struct Judged {
    /// In order, not overlapping.
    pub edits: Vec<Edit>,
    /// `max_tokens 64000->1000`, for the log.
    pub clamped: Vec<String>,
    /// The model asked for.
    pub model: Option<String>,
    /// The request asked for a stream.
    pub streamed: bool,
    /// What it says about its price.
    pub terms: Terms,
    seal: Seal,
}

/// Made only here.
#[derive(Debug, PartialEq, Eq)]
struct Seal;

/// The flag that widens the model list.
const MODEL_FLAG: &str = "--allow-model";
/// Tools of a provider that run models which the request need not name.
const MODEL_TOOLS: [&str; 5] = [
    "image_generation",
    "openrouter:advisor",
    "openrouter:fusion",
    "openrouter:image_generation",
    "openrouter:subagent",
];
/// The flag that sets the cap.
const CAP_FLAG: &str = "--max-tokens-cap";

/// Judges a body for a route. First whether it can be read one way only, then models and caps, then what sealed mode lists.
pub fn body(protocol: Protocol, bytes: &[u8], grants: &Grants, rules: &Rules) -> Result<Judged, Deny> {
    if protocol == Protocol::Plain {
        return Err(malformed("this path takes no body".to_string(), ""));
    }
    let mut walk = match (grants.sealed, rules.fields(protocol)) {
        (false, _) => None,
        (true, Some(fields)) => Some(Walk::new(fields, grants, bytes)),
        (true, None) => return Err(forbidden("nothing is allowed on this path".to_string())),
    };
    let read = read(bytes, walk.as_mut()).map_err(|why| malformed(why, ""))?;
    let mut judge =
        Judge { protocol, rules, bytes, grants, read: &read, edits: Vec::new(), clamped: Vec::new() };
    let model = judge.models()?;
    let streamed = judge.stream()?;
    let mut inserted = Vec::new();
    if let (Some(cap), true) = (grants.max_tokens_cap, protocol != Protocol::CountTokens) {
        inserted.extend(judge.cap(cap.max(1))?);
    }
    if streamed && rules.include_usage && protocol == Protocol::Chat {
        inserted.extend(judge.include_usage()?);
    }
    let mut terms = policy_price::terms(protocol, &read, bytes, judge.own_names(), grants.max_tokens_cap);
    let Judge { mut edits, clamped, .. } = judge;
    if let Some(walk) = walk {
        if let Some(refused) = walk.refused {
            return Err(Deny {
                status: 403,
                kind: "permission_error",
                why: refused.why,
                remedy: refused.remedy,
            });
        }
        inserted.extend(walk.inserted.iter().map(ToString::to_string));
        terms.media = walk.media;
        if walk.sound {
            terms.moved.get_or_insert_with(|| "input_audio".to_string());
        }
    }
    if !inserted.is_empty() {
        let tail = if read.empty { "" } else { "," };
        edits.push((read.inside..read.inside, format!("{}{tail}", inserted.join(",")).into_bytes()));
    }
    edits.sort_by_key(|(span, _)| span.start);
    Ok(Judged { edits, clamped, model, streamed, terms, seal: Seal })
}

/// A request without a body (`Protocol::Plain`).
pub fn bodyless() -> Judged {
    Judged {
        edits: Vec::new(),
        clamped: Vec::new(),
        model: None,
        streamed: false,
        terms: Terms::default(),
        seal: Seal,
    }
}

/// The edited body as slices, in order, for one vectored write.
pub fn parts<'a>(body: &'a [u8], edits: &'a [Edit]) -> Vec<&'a [u8]> {
    let mut parts = Vec::with_capacity(edits.len().saturating_mul(2).saturating_add(1));
    let mut from = 0;
    for (span, bytes) in edits {
        parts.push(body.get(from..span.start).unwrap_or_default());
        parts.push(bytes.as_slice());
        from = span.end;
    }
    parts.push(body.get(from..).unwrap_or_default());
    parts.retain(|part| !part.is_empty());
    parts
}

struct Judge<'a> {
    protocol: Protocol,
    rules: &'a Rules,
    bytes: &'a [u8],
    grants: &'a Grants,
    read: &'a Read,
    edits: Vec<Edit>,
    clamped: Vec<String>,
}

impl<'a> Judge<'a> {
    fn with(&self, rule: Rule) -> impl Iterator<Item = &'a Found> + use<'a> {
        self.read.found.iter().filter(move |f| f.rule == rule)
    }

    /// All fields that choose a model. With a list set each must name one of it, exactly.
    fn models(&self) -> Result<Option<String>, Deny> {
        let model = self.with(Rule::Model).find(|f| f.kind != Kind::Null);
        if let Some(other) = model.filter(|f| f.kind != Kind::String) {
            return Err(malformed(format!("{} must be a string", path_text(other.path)), ""));
        }
        if !self.grants.allow_models.is_empty() {
            match model {
                Some(found) => self.allowed(found)?,
                None => return Err(forbidden("the request must name a model".to_string())),
            }
            for found in self.with(Rule::MoreModel) {
                // Elements of `fallbacks` may be objects: their `model` is a place of its own, and without one there is no choice.
                let object = found.kind == Kind::Object && found.path == [Member("fallbacks"), Each];
                if !object {
                    self.allowed(found)?;
                }
            }
            for found in self.with(Rule::ModelList) {
                if !matches!(found.kind, Kind::Array | Kind::Null) {
                    return Err(forbidden(format!("{} may choose another model", path_text(found.path))));
                }
            }
            for found in self.with(Rule::ToolType).filter(|f| f.kind == Kind::String) {
                let name = json_text::decoded(json_text::inside(self.bytes, &found.span));
                if MODEL_TOOLS.iter().any(|t| t.as_bytes() == &*name) {
                    return Err(forbidden(format!("{} may run another model", path_text(found.path))));
                }
            }
            if let Some(found) = self.with(Rule::Router).find(|f| f.kind != Kind::Null) {
                return Err(forbidden(format!("{} may choose another model", path_text(found.path))));
            }
        }
        let inside = model.map(|f| json_text::inside(self.bytes, &f.span));
        if self.grants.sealed && self.grants.allow_models.is_empty() {
            let name = inside.map(json_text::text).unwrap_or_default();
            if self.rules.hosted_models.iter().any(|pattern| hosted(pattern, &name)) {
                let name = text::escaped(&inside.map(shown).unwrap_or_default());
                return Err(forbidden(format!(
                    "the model {name} does more than answer: it must be allowed by name"
                )));
            }
        }
        Ok(inside.map(shown))
    }

    fn allowed(&self, found: &Found) -> Result<(), Deny> {
        let inside = json_text::inside(self.bytes, &found.span);
        let name = json_text::decoded(inside);
        if found.kind == Kind::String && self.grants.allow_models.iter().any(|m| m.as_bytes() == &*name) {
            return Ok(());
        }
        let why = if found.kind == Kind::String {
            format!("the model {} is not allowed here", text::escaped(&shown(inside)))
        } else {
            format!("{} must name a model", path_text(found.path))
        };
        Err(forbidden(why))
    }

    /// `stream` must be readable here, or the usage of the answer could be missed.
    fn stream(&self) -> Result<bool, Deny> {
        match self.with(Rule::Stream).next().map(|f| f.kind) {
            Some(Kind::True) => Ok(true),
            None | Some(Kind::False | Kind::Null) => Ok(false),
            Some(_) => Err(malformed("stream must be true or false".to_string(), "")),
        }
    }

    /// Bounds every field for the length of the output; gives the member to insert where the protocol's own is missing.
    fn cap(&mut self, cap: u64) -> Result<Option<String>, Deny> {
        for found in self.with(Rule::Copies) {
            let one = found.kind == Kind::Null || (found.kind == Kind::Number && self.source(found) == b"1");
            if !one {
                let why = format!("{} may only be 1: it multiplies the output", path_text(found.path));
                return Err(malformed(why, CAP_FLAG));
            }
        }
        let mut bounded = false;
        for found in self.with(Rule::Cap) {
            if self.unset(found) {
                continue;
            }
            self.clamp(found, cap)?;
            bounded |= found.path.len() == 1
                && self.own_names().contains(&last_name(found.path).unwrap_or_default());
        }
        for found in self.with(Rule::Budget).filter(|f| f.kind != Kind::Null) {
            self.clamp(found, cap.saturating_sub(1))?;
        }
        if bounded {
            return Ok(None);
        }
        let own = self.own_names().first().copied().unwrap_or_default();
        let name = String::from_utf8_lossy(own);
        match self.with(Rule::Cap).find(|f| f.path.len() == 1 && last_name(f.path) == Some(own)) {
            Some(null) => {
                self.edits.push((null.span.clone(), cap.to_string().into_bytes()));
                self.clamped.push(format!("{name} null->{cap}"));
                Ok(None)
            }
            None => {
                self.clamped.push(format!("{name} unset->{cap}"));
                Ok(Some(format!("\"{name}\":{cap}")))
            }
        }
    }

    /// A null bound is none, except in Messages, where the field is required and null is an error.
    fn unset(&self, found: &Found) -> bool {
        found.kind == Kind::Null && (self.protocol != Protocol::Messages || found.path.len() > 1)
    }

    /// The top-level names of the protocol's bound; the first is the one that is inserted.
    fn own_names(&self) -> &'static [&'static [u8]] {
        match self.protocol {
            Protocol::Chat if self.rules.chat_cap == ChatCap::MaxTokens => {
                &[b"max_tokens", b"max_completion_tokens"]
            }
            Protocol::Chat => &[b"max_completion_tokens", b"max_tokens"],
            Protocol::Responses => &[b"max_output_tokens"],
            Protocol::Messages | Protocol::CountTokens | Protocol::Plain => &[b"max_tokens"],
        }
    }

    /// A whole number above `most` is lowered to it; anything but a whole number above 0 is refused.
    fn clamp(&mut self, found: &Found, most: u64) -> Result<(), Deny> {
        let source = self.source(found);
        let digits = found.kind == Kind::Number && source.iter().all(u8::is_ascii_digit) && source != b"0";
        if !digits {
            let why = format!("{} must be a whole number above 0", path_text(found.path));
            return Err(malformed(why, CAP_FLAG));
        }
        // More digits than a u64 holds is above any cap.
        let value = std::str::from_utf8(source).ok().and_then(|s| s.parse::<u64>().ok());
        if value.is_none_or(|v| v > most) {
            let shown: String = String::from_utf8_lossy(source).chars().take(24).collect();
            self.clamped.push(format!("{} {shown}->{most}", path_text(found.path)));
            self.edits.push((found.span.clone(), most.to_string().into_bytes()));
        }
        Ok(())
    }

    /// Forces `stream_options.include_usage`; gives the member to insert where there are no options at all.
    fn include_usage(&mut self) -> Result<Option<String>, Deny> {
        const OPTIONS: &str = "{\"include_usage\":true}";
        let Some(options) = self.with(Rule::StreamOptions).next() else {
            return Ok(Some(format!("\"stream_options\":{OPTIONS}")));
        };
        match (options.kind, self.with(Rule::IncludeUsage).next()) {
            (Kind::Null, _) => self.edits.push((options.span.clone(), OPTIONS.into())),
            (Kind::Object, Some(found)) if found.kind == Kind::True => {}
            (Kind::Object, Some(found)) if matches!(found.kind, Kind::False | Kind::Null) => {
                self.edits.push((found.span.clone(), "true".into()));
            }
            (Kind::Object, Some(_)) => {
                return Err(malformed("stream_options.include_usage must be true or false".to_string(), ""));
            }
            (Kind::Object, None) => {
                let inside = options.span.end;
                let rest = self.bytes.get(inside..).unwrap_or_default();
                let empty = rest.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
                let member = if empty { "\"include_usage\":true" } else { "\"include_usage\":true," };
                self.edits.push((inside..inside, member.into()));
            }
            _ => return Err(malformed("stream_options must be an object".to_string(), "")),
        }
        Ok(None)
    }

    fn source(&self, found: &Found) -> &'a [u8] {
        self.bytes.get(found.span.clone()).unwrap_or_default()
    }
}

/// The name fits a pattern of `Provider::hosted_models`, in any case: some servers fold it.
fn hosted(pattern: &str, name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

/// A model's name for a person: decoded, and cut where it is longer than any name.
fn shown(inside: &[u8]) -> String {
    json_text::text(inside).chars().take(MODEL_CHARS).collect()
}

/// 403; the word that `refuse` has for it too.
fn forbidden(why: String) -> Deny {
    Deny { status: 403, kind: "permission_error", why, remedy: Cow::Borrowed(MODEL_FLAG) }
}

/// 400; all three protocols have the same word for it.
fn malformed(why: String, remedy: &'static str) -> Deny {
    Deny { status: 400, kind: "invalid_request_error", why, remedy: Cow::Borrowed(remedy) }
}
