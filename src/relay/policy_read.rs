//! What in a request body is judged: one table of places, and one pass over the body that finds them. Pure; refuses what is no
//! JSON object and names that a careless reader would take for a judged one. Called by `relay/policy.rs`.

use crate::limits::JUDGED_PLACES;
use crate::relay::policy_fields::Walk;
use crate::wire::json::Step::{Each, Member};
use crate::wire::json::{Bad, Kind, Scanner, Step, Token};
use std::ops::Range;

/// What a judged place means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The model of the call.
    Model,
    /// Another model that the call may run: must be allowed too.
    MoreModel,
    /// A list of further models: its elements are judged, anything else than a list is refused.
    ModelList,
    /// Lets the server choose a model.
    Router,
    /// Some tools run a model of their own choice.
    ToolType,
    /// Bounds the output.
    Cap,
    /// Bounds a part of the output; must stay below the cap.
    Budget,
    /// Multiplies the output.
    Copies,
    /// Can make the same tokens cost something else.
    Price,
    /// Lets the call go on, and be billed, behind its answer.
    Later,
    /// Whether the answer is a stream.
    Stream,
    /// The object that holds `IncludeUsage`.
    StreamOptions,
    /// Whether a Chat stream ends with its usage.
    IncludeUsage,
    /// Only there so that its members can be judged.
    Parent,
}

/// A place, and what it means.
type Row = (&'static [Step<'static>], Rule);

/// Every place of a body that is judged, for all protocols alike: a field that one protocol does not know may still be obeyed
/// by a gateway behind it. Names that differ from one of these only by case are refused (`twin`).
const JUDGED: &[Row] = &[
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
    (&[Member("service_tier")], Rule::Price),
    (&[Member("speed")], Rule::Price),
    (&[Member("inference_geo")], Rule::Price),
    (&[Member("priority")], Rule::Price),
    (&[Member("modalities")], Rule::Price),
    (&[Member("prediction")], Rule::Price),
    (&[Member("web_search_options")], Rule::Price),
    (&[Member("background")], Rule::Later),
    (&[Member("stream")], Rule::Stream),
    (&[Member("stream_options")], Rule::StreamOptions),
    (&[Member("stream_options"), Member("include_usage")], Rule::IncludeUsage),
    (&[Member("models")], Rule::ModelList),
    (&[Member("models"), Each], Rule::MoreModel),
    (&[Member("fallbacks")], Rule::ModelList),
    (&[Member("fallbacks"), Each], Rule::MoreModel),
    (&[Member("fallbacks"), Each, Member("model")], Rule::MoreModel),
    (&[Member("fallbacks"), Each, Member("max_tokens")], Rule::Cap),
    (&[Member("fallbacks"), Each, Member("max_completion_tokens")], Rule::Cap),
    (&[Member("fallbacks"), Each, Member("max_output_tokens")], Rule::Cap),
    (&[Member("fallbacks"), Each, Member("thinking")], Rule::Parent),
    (&[Member("fallbacks"), Each, Member("thinking"), Member("budget_tokens")], Rule::Budget),
    (&[Member("tools")], Rule::Parent),
    (&[Member("tools"), Each, Member("model")], Rule::MoreModel),
    (&[Member("tools"), Each, Member("max_tokens")], Rule::Cap),
    (&[Member("tools"), Each, Member("svg")], Rule::Parent),
    (&[Member("tools"), Each, Member("svg"), Member("model")], Rule::MoreModel),
    (&[Member("tools"), Each, Member("parameters")], Rule::Parent),
    (&[Member("tools"), Each, Member("parameters"), Member("model")], Rule::MoreModel),
    (&[Member("tools"), Each, Member("parameters"), Member("models")], Rule::ModelList),
    (&[Member("tools"), Each, Member("parameters"), Member("models"), Each], Rule::MoreModel),
    (&[Member("tools"), Each, Member("parameters"), Member("max_tokens")], Rule::Cap),
    (&[Member("tools"), Each, Member("parameters"), Member("max_completion_tokens")], Rule::Cap),
    (&[Member("tools"), Each, Member("type")], Rule::ToolType),
    // Tools in a namespace, and tools that stand among the items of the input.
    (&[Member("tools"), Each, Member("tools")], Rule::Parent),
    (&[Member("tools"), Each, Member("tools"), Each, Member("type")], Rule::ToolType),
    (&[Member("tools"), Each, Member("tools"), Each, Member("model")], Rule::MoreModel),
    (&[Member("input")], Rule::Parent),
    (&[Member("input"), Each, Member("tools")], Rule::Parent),
    (&[Member("input"), Each, Member("tools"), Each, Member("type")], Rule::ToolType),
    (&[Member("input"), Each, Member("tools"), Each, Member("model")], Rule::MoreModel),
    (&[Member("input"), Each, Member("tools"), Each, Member("tools")], Rule::Parent),
    (&[Member("input"), Each, Member("tools"), Each, Member("tools"), Each, Member("type")], Rule::ToolType),
    (
        &[Member("input"), Each, Member("tools"), Each, Member("tools"), Each, Member("model")],
        Rule::MoreModel,
    ),
    (&[Member("messages")], Rule::Parent),
    (&[Member("messages"), Each, Member("model")], Rule::MoreModel),
    // Messages lets a turn define a tool (`tool_addition`).
    (&[Member("messages"), Each, Member("content")], Rule::Parent),
    (&[Member("messages"), Each, Member("content"), Each, Member("tool")], Rule::Parent),
    (&DEFINITION, Rule::Parent),
    (&DEFINED_TYPE, Rule::ToolType),
    (&DEFINED_MODEL, Rule::MoreModel),
    (&DEFINED_CAP, Rule::Cap),
    (&[Member("reasoning")], Rule::Parent),
    (&[Member("reasoning"), Member("max_tokens")], Rule::Cap),
    (&[Member("moderation")], Rule::Parent),
    (&[Member("moderation"), Member("model")], Rule::MoreModel),
    (&[Member("route")], Rule::Router),
    (&[Member("preset")], Rule::Router),
    (&[Member("plugins")], Rule::Router),
    // Of OpenRouter; one of them may take another model for its longer context. An empty list is how to have none.
    (&[Member("transforms")], Rule::Parent),
    (&[Member("transforms"), Each], Rule::Router),
    (&[Member("model_list")], Rule::Router),
    (&[Member("user_config")], Rule::Router),
    (&[Member("context_window_fallbacks")], Rule::Router),
    (&[Member("content_policy_fallbacks")], Rule::Router),
    (&[Member("lora_path")], Rule::Router),
    (&[Member("lora")], Rule::Router),
    (&[Member("compound_custom")], Rule::Router),
    (&[Member("api_base")], Rule::Router),
    (&[Member("base_url")], Rule::Router),
    (&[Member("custom_llm_provider")], Rule::Router),
    (&[Member("deployment_id")], Rule::Router),
    (&[Member("router_settings_override")], Rule::Router),
];

const DEFINITION: [Step<'static>; 6] =
    [Member("messages"), Each, Member("content"), Each, Member("tool"), Member("definition")];
const DEFINED_TYPE: [Step<'static>; 7] = defined("type");
const DEFINED_MODEL: [Step<'static>; 7] = defined("model");
const DEFINED_CAP: [Step<'static>; 7] = defined("max_tokens");

const fn defined(name: &'static str) -> [Step<'static>; 7] {
    let [a, b, c, d, e, f] = DEFINITION;
    [a, b, c, d, e, f, Member(name)]
}

/// A judged place that the body has.
pub struct Found {
    /// The row of the table.
    pub path: &'static [Step<'static>],
    /// What it means.
    pub rule: Rule,
    /// What stands there.
    pub kind: Kind,
    /// Its bytes; of a container the opening bracket only.
    pub span: Range<usize>,
}

/// What one pass over the body found.
pub struct Read {
    /// In the order of the body.
    pub found: Vec<Found>,
    /// Just behind the opening brace.
    pub inside: usize,
    /// The object has no member.
    pub empty: bool,
}

/// One pass: is it JSON, is it an object, and what judged places does it have; the walk of sealed mode goes along. The error is
/// one clause.
pub fn read(bytes: &[u8], mut walk: Option<&mut Walk<'_>>) -> Result<Read, String> {
    let bad = |e: Bad| format!("the body is not acceptable JSON: {} at byte {}", e.why, e.at);
    let mut scanner = Scanner::new(bytes).map_err(bad)?;
    let inside = match scanner.advance().map_err(bad)? {
        Some(Token { kind: Kind::Object, span, .. }) => span.end,
        _ => return Err("the body must be a JSON object".to_string()),
    };
    let mut read = Read { found: Vec::new(), inside, empty: true };
    // The rows below the present top-level member, and how deep they reach: of a large body that is nearly always two of them.
    let mut rows: Vec<&'static Row> = Vec::new();
    let mut watched = 0;
    while let Some(token) = scanner.advance().map_err(bad)? {
        if let Some(walk) = &mut walk {
            walk.step(&scanner, &token);
        }
        if token.kind == Kind::Name {
            read.empty = false;
            if token.depth == 1 {
                rows.clear();
                if judged_name(&scanner, &token, JUDGED.iter())? {
                    rows.extend(JUDGED.iter().filter(|row| below(row, &scanner)));
                }
                watched = rows.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
            } else if token.depth <= watched {
                judged_name(&scanner, &token, rows.iter().copied())?;
            }
        } else if token.depth <= watched && !matches!(token.kind, Kind::ObjectEnd | Kind::ArrayEnd) {
            let place = rows.iter().find(|(path, _)| scanner.at_path(&token, path));
            if let Some(&&(path, rule)) = place
                && rule != Rule::Parent
            {
                if read.found.len() >= JUDGED_PLACES {
                    return Err("the body names too many models or tools".to_string());
                }
                read.found.push(Found { path, rule, kind: token.kind, span: token.span });
            }
        }
    }
    Ok(read)
}

/// The row's path begins with the present top-level member.
fn below(row: &Row, scanner: &Scanner<'_>) -> bool {
    let name = scanner.member_of(0).unwrap_or_default();
    matches!(row.0.first(), Some(Member(first)) if first.as_bytes() == name)
}

/// Whether one of the rows has this member name at its place; a name that is one of theirs but for case is refused.
fn judged_name(
    scanner: &Scanner<'_>,
    token: &Token,
    rows: impl Iterator<Item = &'static Row>,
) -> Result<bool, String> {
    let name = scanner.member_of(token.depth.saturating_sub(1)).unwrap_or_default();
    let mut folded = false;
    for (path, _) in rows.filter(|(path, _)| path.len() == token.depth) {
        let Some(own) = last_name(path) else { continue };
        // The name first: it is seldom one of these, and where it stands is dearer to know.
        let same = own == name;
        if (same || twin(own, name)) && scanner.beside(token, path) {
            if same {
                return Ok(true);
            }
            folded = true;
        }
    }
    if folded {
        let shown = String::from_utf8_lossy(name);
        return Err(format!("the member name {shown} differs only by case from one that is judged"));
    }
    Ok(false)
}

/// Whether a top-level member of this name chooses a model, read as carelessly as by any gateway.
pub fn chooses_model(name: &[u8]) -> bool {
    let choice = |rule| matches!(rule, Rule::Model | Rule::ModelList | Rule::Router);
    JUDGED
        .iter()
        .filter(|(path, rule)| path.len() == 1 && choice(*rule))
        .any(|(path, _)| last_name(path).is_some_and(|own| twin(own, name)))
}

/// The name a path ends with.
pub fn last_name(path: &[Step<'static>]) -> Option<&'static [u8]> {
    match path.last() {
        Some(Member(name)) => Some(name.as_bytes()),
        _ => None,
    }
}

/// Equal to a reader that folds case as Go's encoding/json does: ASCII, and the two letters outside it that fold into it.
fn twin(own: &[u8], name: &[u8]) -> bool {
    // Nothing folds into more bytes than it is, so that of most names the length tells.
    if name.len() <= own.len() || name.is_ascii() {
        return own.eq_ignore_ascii_case(name);
    }
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let folded = name.chars().map(|c| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        _ => c.to_ascii_lowercase(),
    });
    folded.eq(own.iter().map(|&b| char::from(b)))
}

/// `fallbacks[].model`.
pub fn path_text(path: &[Step<'static>]) -> String {
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
