//! The verdict on a request. Pure: head and body in, verdict out; tested by tables. Every edit is a span: all other bytes go
//! upstream as they came.

use crate::catalog::providers::Protocol;
use crate::relay::start::Grants;

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

/// A body that may go upstream. The private field makes `body` the only maker: no verdict, no key (`inject` demands it).
#[derive(Debug, PartialEq, Eq)]
pub struct Judged {
    /// Replacements in order, not overlapping: span of the original, new bytes.
    pub edits: Vec<(std::ops::Range<usize>, Vec<u8>)>,
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

/// Judges a body for a route. `include_usage`: the provider wants `stream_options.include_usage` for Chat.
pub fn body(protocol: Protocol, bytes: &[u8], grants: &Grants, include_usage: bool) -> Result<Judged, Deny> {
    let _ = (protocol, bytes, grants, include_usage);
    let _ = |s: Judged| s.seal;
    todo!()
}

/// A request without a body (`Protocol::Plain`).
pub fn bodyless() -> Judged {
    todo!()
}
