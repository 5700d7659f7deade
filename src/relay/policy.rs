//! The verdict on a request. Pure: head and body in, verdict out; tested by tables. Every edit is a span: all other bytes go
//! upstream as they came. What is judged is the table `JUDGED`; nothing is ever re-serialised.

use crate::catalog::providers::Protocol;
use crate::relay::start::Grants;
use crate::wire::json::{self, Kind, Scanner, Step, Token};
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
    pub remedy: &'static str,
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
    seal: Seal,
}

/// Made only here.
#[derive(Debug, PartialEq, Eq)]
struct Seal;

/// What a judged place means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The model of the call.
    Model,
    /// Another model that the call may run: must be allowed too.
    MoreModel,
    /// A list of further models: its elements are judged, anything else than a list is refused.
    ModelList,
    /// Lets the server choose a model.
    Router,
    /// Bounds the output.
    Cap,
    /// Bounds a part of the output; must stay below the cap.
    Budget,
    /// Multiplies the output.
    Copies,
    /// Whether the answer is a stream.
    Stream,
    /// The object that holds `IncludeUsage`.
    StreamOptions,
    /// Whether a Chat stream ends with its usage.
    IncludeUsage,
    /// Only there so that its members can be judged.
    Parent,
}

use Step::{Each, Member};

/// Every place of a body that is judged, for all protocols alike: a field that one protocol does not know may still be obeyed
/// by a gateway behind it. Names that differ from one of these only by case are refused (`twin`).
const JUDGED: &[(&[Step<'static>], Rule)] = &[
    (&[Member("model")], Rule::Model),
    (&[Member("max_tokens")], Rule::Cap),
    (&[Member("max_completion_tokens")], Rule::Cap),
    (&[Member("max_output_tokens")], Rule::Cap),
    (&[Member("max_tokens_to_sample")], Rule::Cap),
    (&[Member("n_predict")], Rule::Cap),
    (&[Member("thinking")], Rule::Parent),
    (&[Member("thinking"), Member("budget_tokens")], Rule::Budget),
    (&[Member("n")], Rule::Copies),
    (&[Member("best_of")], Rule::Copies),
    (&[Member("n_cmpl")], Rule::Copies),
    (&[Member("stream")], Rule::Stream),
    (&[Member("stream_options")], Rule::StreamOptions),
    (&[Member("stream_options"), Member("include_usage")], Rule::IncludeUsage),
    (&[Member("models")], Rule::ModelList),
    (&[Member("models"), Each], Rule::MoreModel),
    (&[Member("fallbacks")], Rule::ModelList),
    (&[Member("fallbacks"), Each], Rule::MoreModel),
    (&[Member("fallbacks"), Each, Member("model")], Rule::MoreModel),
    (&[Member("fallbacks"), Each, Member("max_tokens")], Rule::Cap),
    (&[Member("fallbacks"), Each, Member("thinking")], Rule::Parent),
    (&[Member("fallbacks"), Each, Member("thinking"), Member("budget_tokens")], Rule::Budget),
    (&[Member("tools")], Rule::Parent),
    (&[Member("tools"), Each, Member("model")], Rule::MoreModel),
    (&[Member("tools"), Each, Member("max_tokens")], Rule::Cap),
    (&[Member("route")], Rule::Router),
    (&[Member("preset")], Rule::Router),
    (&[Member("plugins")], Rule::Router),
    (&[Member("model_list")], Rule::Router),
    (&[Member("user_config")], Rule::Router),
    (&[Member("context_window_fallbacks")], Rule::Router),
    (&[Member("content_policy_fallbacks")], Rule::Router),
    (&[Member("lora_path")], Rule::Router),
];

/// The flag that widens the model list.
const MODEL_FLAG: &str = "--allow-model";
/// The flag that sets the cap.
const CAP_FLAG: &str = "--max-tokens-cap";

/// A judged place that the body has.
struct Found {
    path: &'static [Step<'static>],
    rule: Rule,
    kind: Kind,
    span: Range<usize>,
}

/// Judges a body for a route. `include_usage`: the provider wants `stream_options.include_usage` for Chat.
pub fn body(protocol: Protocol, bytes: &[u8], grants: &Grants, include_usage: bool) -> Result<Judged, Deny> {
    if protocol == Protocol::Plain {
        return Err(malformed("this path takes no body".to_string(), ""));
    }
    let read = read(bytes)?;
    let mut judge = Judge { protocol, bytes, grants, read: &read, edits: Vec::new(), clamped: Vec::new() };
    let model = judge.models()?;
    let streamed = judge.stream()?;
    let mut inserted = Vec::new();
    if let (Some(cap), true) = (grants.max_tokens_cap, protocol != Protocol::CountTokens) {
        inserted.extend(judge.cap(cap.max(1))?);
    }
    if streamed && include_usage && protocol == Protocol::Chat {
        inserted.extend(judge.include_usage()?);
    }
    let Judge { mut edits, clamped, .. } = judge;
    if !inserted.is_empty() {
        let tail = if read.empty { "" } else { "," };
        edits.push((read.inside..read.inside, format!("{}{tail}", inserted.join(",")).into_bytes()));
    }
    edits.sort_by_key(|(span, _)| span.start);
    Ok(Judged { edits, clamped, model, streamed, seal: Seal })
}

/// A request without a body (`Protocol::Plain`).
pub fn bodyless() -> Judged {
    Judged { edits: Vec::new(), clamped: Vec::new(), model: None, streamed: false, seal: Seal }
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

/// What one pass over the body found.
struct Read {
    found: Vec<Found>,
    /// Just behind the opening brace.
    inside: usize,
    /// The object has no member.
    empty: bool,
}

/// One pass: is it JSON, is it an object, and what judged places does it have.
fn read(bytes: &[u8]) -> Result<Read, Deny> {
    let bad =
        |e: json::Bad| malformed(format!("the body is not acceptable JSON: {} at byte {}", e.why, e.at), "");
    let mut scanner = Scanner::new(bytes).map_err(bad)?;
    let inside = match scanner.advance().map_err(bad)? {
        Some(Token { kind: Kind::Object, span, .. }) => span.end,
        _ => return Err(malformed("the body must be a JSON object".to_string(), "")),
    };
    let mut read = Read { found: Vec::new(), inside, empty: true };
    let mut watched = false;
    while let Some(token) = scanner.advance().map_err(bad)? {
        if token.kind == Kind::Name {
            read.empty = false;
            if token.depth == 1 || watched {
                let name = scanner.member_of(token.depth.saturating_sub(1)).unwrap_or_default();
                let judged = JUDGED.iter().filter(|(path, _)| scanner.beside(&token, path));
                let same = judged.clone().any(|(path, _)| last_name(path) == Some(name));
                if !same && judged.clone().any(|(path, _)| last_name(path).is_some_and(|own| twin(own, name)))
                {
                    let why = format!(
                        "the member name {} differs only by case from one that is judged",
                        json::text(name)
                    );
                    return Err(malformed(why, ""));
                }
                if token.depth == 1 {
                    watched = same;
                }
            }
        } else if watched && !matches!(token.kind, Kind::ObjectEnd | Kind::ArrayEnd) {
            let place = JUDGED.iter().find(|(path, _)| scanner.at_path(&token, path));
            if let Some(&(path, rule)) = place {
                read.found.push(Found { path, rule, kind: token.kind, span: token.span });
            }
        }
    }
    Ok(read)
}

fn last_name(path: &[Step<'static>]) -> Option<&'static [u8]> {
    match path.last() {
        Some(Member(name)) => Some(name.as_bytes()),
        _ => None,
    }
}

/// Equal to a reader that folds case as Go's encoding/json does: ASCII, and the two letters outside it that fold into it.
fn twin(own: &[u8], name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let folded = name.chars().map(|c| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        _ => c.to_ascii_lowercase(),
    });
    folded.eq(own.iter().map(|&b| char::from(b)))
}

struct Judge<'a> {
    protocol: Protocol,
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
            if let Some(found) = self.with(Rule::Router).find(|f| f.kind != Kind::Null) {
                return Err(forbidden(format!("{} may choose another model", path_text(found.path))));
            }
        }
        Ok(model.map(|f| json::text(json::inside(self.bytes, &f.span)).into_owned()))
    }

    fn allowed(&self, found: &Found) -> Result<(), Deny> {
        let inside = json::inside(self.bytes, &found.span);
        let name = json::decoded(inside);
        if found.kind == Kind::String && self.grants.allow_models.iter().any(|m| m.as_bytes() == &*name) {
            return Ok(());
        }
        let why = if found.kind == Kind::String {
            format!(
                "the model {} is not allowed here",
                json::text(inside).chars().take(200).collect::<String>()
            )
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

/// 403; the word that `refuse` has for it too.
fn forbidden(why: String) -> Deny {
    Deny { status: 403, kind: "permission_error", why, remedy: MODEL_FLAG }
}

/// 400; all three protocols have the same word for it.
fn malformed(why: String, remedy: &'static str) -> Deny {
    Deny { status: 400, kind: "invalid_request_error", why, remedy }
}

/// `fallbacks[].model`.
fn path_text(path: &[Step<'static>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Member(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Each => text.push_str("[]"),
        }
    }
    text
}
