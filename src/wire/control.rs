//! The control protocol: the only types that host and box share (JSON over HTTP/1.1 on `box/control.sock`). The host treats
//! every `Status` as hostile bytes; the box trusts the first `Start` of a peer outside its pid namespace.

use serde::{Deserialize, Serialize};

/// Grows with every change that an older side would misread; a box of another version is refused.
pub const VERSION: u32 = 1;
/// Header that carries the control secret on every host route.
pub const SECRET_HEADER: &str = "x-sanduk-control";

/// `POST /start`: what this run is. Sent once; holds secrets, so it has no `Debug`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// `VERSION` of the host side.
    pub version: u32,
    /// Asked for again on every later host route.
    pub control_secret: String,
    /// The first turn.
    pub turn: Turn,
    /// Where the forwarder listens, on 127.0.0.1; 0: no forwarder.
    pub forward_port: u16,
    /// Seconds without a call of the host after which the box ends itself.
    pub grace_seconds: u64,
    /// Bytes of events kept before the agent's output is no longer read.
    pub event_bytes: usize,
}

/// One agent process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Chosen by the host; a repeat is ignored.
    pub id: String,
    /// Program (absolute) and arguments.
    pub argv: Vec<String>,
    /// The whole environment of the agent; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Files written below `$HOME` before the start, 0600: relative path, content.
    pub files: Vec<(String, String)>,
    /// Standard input; empty: `/dev/null`.
    pub stdin: String,
}

/// One thing that happened in the box, numbered from 1 without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The cursor of this event.
    pub n: u64,
    /// What happened.
    pub what: What,
}

/// The kinds of event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// A line of the agent's output.
    Stdout(Line),
    /// A line of its standard error.
    Stderr(Line),
    /// The agent ended.
    TurnEnd(TurnEnd),
    /// The turn could not be started.
    TurnFailed(TurnFailed),
}

/// Output of the agent, decoded lossily, without its line end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The text.
    pub text: String,
    /// The line was longer than one event holds and goes on in the next.
    pub more: bool,
}

/// How a turn's process ended: one of the two is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// `Turn::id`.
    pub turn: String,
    /// Exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Why a turn did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// `Turn::id`.
    pub turn: String,
    /// One clause.
    pub why: String,
}

/// `GET /status?since=N[&wait=S]`: events after N. Asking with `since=N` acknowledges all up to N.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// `VERSION` of the box side.
    pub version: u32,
    /// `waiting` (no /start yet), `running`, `idle` (turn ended), `ending`.
    pub state: String,
    /// In order of `n`; may be a part only, ask again from the last.
    pub events: Vec<Event>,
}

/// `GET /health`, and the answer to `POST /start` and `DELETE /shutdown`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `VERSION` of the box side.
    pub version: u32,
    /// As in `Status`.
    pub state: String,
}

/// The body of every answer that is not 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// One clause.
    pub error: String,
}
