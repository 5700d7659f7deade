//! What the relay tells its asker while it serves: the words of the pipe between them, one JSON line each.

use crate::relay::bodies::Kept;
use crate::relay::budget::Spent;
use crate::wire::money::Money;
use serde::{Deserialize, Serialize};

/// What the relay tells its asker, one JSON line each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// Serving.
    Ready(Ready),
    /// It cannot serve: the key was refused, the upstream is unreachable…
    Refused(Stop),
    /// The provider is overloaded; the call waits to be sent again.
    Again(Again),
    /// A request body was kept.
    Body(Kept),
    /// A call ended.
    Call(Call),
    /// A request was refused here.
    Denied(Denied),
    /// What the calls used so far, after each of them; only where there is a cap.
    Spent(Spent),
    /// A line for the operator: how much of a cap is used.
    Warning(Warning),
    /// The run must end now: key seen in a request, key reflected, too many refusals, log not writable.
    End(Stop),
}

/// What confines the relay.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Words for the receipt: `landlock-abi-4`, `seccomp`, `no-new-privs`…
    pub features: Vec<String>,
}

/// A reason to stop.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// One line for a person.
    pub why: String,
    /// As `error::Exit::code`.
    pub exit: u8,
}

/// See `Note::Warning`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// One clause.
    pub line: String,
}

/// One call. Counters that were not reported are absent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// `GET` or `POST`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What the client got; 0: nothing before the relay's end.
    pub status: u16,
    /// From the request's last byte to the answer's last.
    pub millis: u64,
    /// The model asked for.
    pub model: Option<String>,
    /// See `usage::Usage`.
    pub input: Option<u64>,
    /// See `usage::Usage`.
    pub cache_read: Option<u64>,
    /// See `usage::Usage`.
    pub cache_write: Option<u64>,
    /// See `usage::Usage`.
    pub output: Option<u64>,
    /// What it is charged with, or else what the server reports.
    pub cost: Option<Money>,
    /// Its usage was owed and not found: `cost` is the most it can be.
    pub guessed: bool,
    /// It is charged, whether or not it said how much.
    pub owed: bool,
    /// Fields that were clamped, as in the log.
    pub clamped: Vec<String>,
    /// How often it was sent.
    pub tries: u32,
    /// Why there was no answer, for a person.
    pub why: Option<String>,
}

/// A wait for an overloaded provider.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// What it answered.
    pub status: u16,
    /// How long is waited before the next try.
    pub millis: u64,
    /// How often the call has been sent.
    pub tries: u32,
}

impl Again {
    /// One line for a person.
    pub fn line(&self) -> String {
        let tenths = self.millis.saturating_add(50) / 100;
        let time = format!("{}.{} s", tenths / 10, tenths % 10);
        format!(
            "the provider is overloaded ({}); try {} in {time}",
            self.status,
            self.tries.saturating_add(1)
        )
    }
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// As sent, escaped and cut.
    pub method: String,
    /// As sent, escaped and cut.
    pub path: String,
    /// What the client got.
    pub status: u16,
    /// One clause.
    pub why: String,
    /// The flag that lifts it, or empty.
    pub remedy: String,
}
