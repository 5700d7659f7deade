//! What a request body says about the price of its call: how much output it can have at most, what could move its price off the
//! table, what costs more tokens than it has bytes. Pure. Called by `relay/policy.rs`, used by `relay/budget.rs`.

use crate::catalog::providers::Protocol;
use crate::relay::policy_read::{Found, Read, Rule, last_name, path_text};
use crate::wire::json::Kind;
use crate::wire::json_text;

/// See the file's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Tokens of output at most, reasoning included; none: nothing in the body bounds it.
    pub output: Option<u64>,
    /// A place by which the call may cost something else than its model's rates.
    pub moved: Option<String>,
    /// Images and documents in the body. Counted only where sealed mode's lists are walked.
    pub media: u64,
    /// Tools of a type that the provider defines: it explains them to the model in words of its own.
    pub typed_tools: u64,
    /// The call may go on behind its answer, which then says nothing of what it uses.
    pub later: bool,
}

/// Values of price-moving fields that mean the usual price.
const USUAL: [&[u8]; 5] = [b"auto", b"default", b"standard", b"standard_only", b"global"];

/// Types of tools that the request itself defines.
const OURS: [&[u8]; 3] = [b"function", b"custom", b"namespace"];
/// How types begin of tools that the provider defines and the client runs: they are billed as tokens alone.
const CLIENTS: [&[u8]; 7] =
    [b"bash_", b"tool_search", b"text_editor_", b"memory_", b"computer_", b"local_shell", b"apply_patch"];

/// `own`: the protocol's names for the bound of its output; `cap`: what each of them is clamped to.
pub fn terms(protocol: Protocol, read: &Read, bytes: &[u8], own: &[&[u8]], cap: Option<u64>) -> Terms {
    let mut terms = Terms { output: output(read, bytes, own, cap), ..Terms::default() };
    if protocol == Protocol::CountTokens {
        return terms;
    }
    for found in read.found.iter().filter(|f| f.kind != Kind::Null) {
        let text = || json_text::decoded(json_text::inside(bytes, &found.span));
        let moves = match found.rule {
            Rule::Price => found.kind != Kind::String || !USUAL.contains(&&*text()),
            Rule::Later => {
                terms.later |= found.kind != Kind::False;
                false
            }
            // Another model has other rates.
            Rule::MoreModel | Rule::ModelList | Rule::Router => true,
            Rule::ToolType => {
                let name = text();
                terms.typed_tools = terms.typed_tools.saturating_add(u64::from(!OURS.contains(&&*name)));
                let client = CLIENTS.iter().any(|start| name.starts_with(start));
                found.kind != Kind::String || !(client || OURS.contains(&&*name))
            }
            _ => false,
        };
        if moves && terms.moved.is_none() {
            terms.moved = Some(path_text(found.path));
        }
    }
    terms
}

/// The largest of the protocol's own bounds; the clamp's where the body has none, because then it is inserted.
fn output(read: &Read, bytes: &[u8], own: &[&[u8]], cap: Option<u64>) -> Option<u64> {
    let named = |f: &&Found| f.path.len() == 1 && own.contains(&last_name(f.path).unwrap_or_default());
    let mut most = None;
    for found in read.found.iter().filter(|f| f.rule == Rule::Cap && f.kind == Kind::Number).filter(named) {
        let source = bytes.get(found.span.clone()).unwrap_or_default();
        let value = std::str::from_utf8(source).ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(u64::MAX);
        most = most.max(Some(value.min(cap.unwrap_or(u64::MAX))));
    }
    let several = read
        .found
        .iter()
        .any(|f| f.rule == Rule::Copies && f.kind != Kind::Null && bytes.get(f.span.clone()) != Some(b"1"));
    if several { None } else { most.or(cap) }
}
