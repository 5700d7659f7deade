//! What a line of `calls.jsonl` says. One set of types for the writer (`log`) and the reader (`log_read`); `audit/LOG.md` says the
//! same to an operator. No bodies, no header values but those refused for what they switch on, no secret.
//!
//! One JSON object per line. On every line: `n` from 1, `prev` (SHA-256 of the line before, without its LF; 64 zeros on the first),
//! `at_ms` since the epoch, `kind`. The rest is by kind, below. Within one `VERSION` members are only added, and only such as may be
//! absent (`#[serde(default)]`); what changes or drops one is another version.

use crate::relay::caps::Capped;
use crate::relay::leak::Guard;
use crate::relay::note::Denied;
use crate::relay::start::Grants;
use crate::relay::usage::Usage;
use crate::wire::money::Money;
use serde::{Deserialize, Serialize};

/// Version of the schema, in each `start` record.
pub const VERSION: u64 = 1;

/// The record before the first.
pub const NO_PREV: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One line, as it is written.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Number of the line, from 1.
    pub n: u64,
    /// SHA-256 of the line before.
    pub prev: &'a str,
    /// Wall clock, milliseconds since the epoch. Clocks are set: it may fall.
    pub at_ms: u64,
    /// What it says.
    #[serde(flatten)]
    pub record: &'a Record,
}

/// By `kind`.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The relay serves.
    Start(Start),
    /// A call may go upstream.
    Verdict(Verdict),
    /// It is sent once more.
    Retry(Retry),
    /// It ended.
    Outcome(Outcome),
    /// A request was refused.
    Denied(Denied),
    /// The refusal of the line before came again so many times.
    DeniedAgain(Again),
    /// The relay stops; nothing follows but another `start`.
    End(End),
}

/// See `Record::Start`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// `VERSION` of who writes from here on.
    pub v: u64,
    /// Of this program.
    pub version: String,
    /// Its name.
    pub provider: String,
    /// As a person writes it.
    pub upstream: String,
    /// What an earlier relay left in this log; absent in the first line, present in every other start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumed>,
    /// The policy.
    #[serde(flatten)]
    pub grants: Grants,
    /// The caps; absent: nothing is capped or priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Capped>,
    /// What requests are searched for beside the key, by name; absent where there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
}

/// What a relay found that goes on with a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// Lines before this one.
    pub lines: u64,
    /// Verdicts among them: the next call has the number after this.
    pub calls: u64,
    /// Calls with a verdict and no outcome. They were perhaps made and charged.
    pub open: u64,
    /// Bytes of a line that was torn by a crash and is cut off. It was never synced, so no call was made for it.
    pub torn: u64,
}

/// See `Record::Verdict`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Number of the call within this log, from 1, without gaps.
    pub call: u64,
    /// `GET` or `POST`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Body bytes as they go upstream.
    pub bytes: u64,
    /// As in `policy::Judged`.
    pub model: Option<String>,
    /// As in `policy::Judged`.
    pub streamed: bool,
    /// As in `policy::Judged`.
    pub clamped: Vec<String>,
    /// Under a cap or with prices: the most it can cost, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_picodollars: Option<Money>,
    /// Likewise: the most tokens it can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_tokens: Option<u64>,
    /// `--log-bodies`: the name of the request body's file in `bodies`, its SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// See `Record::Retry`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// As in its verdict.
    pub call: u64,
    /// The number of the try that follows, from 2.
    pub r#try: u32,
    /// What the provider answered to the one before.
    pub status: u16,
    /// How long was waited.
    pub wait_ms: u64,
}

/// See `Record::Outcome`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// As in its verdict.
    pub call: u64,
    /// What the client got; for an answer that was replaced, what the provider said; 0: nothing came before the relay's end, or nobody knows (`fault`).
    pub status: u16,
    /// `whole`, `cut`, `client-left`, `key-reflected`, `unreadable` (its content coding), `unreachable`, `silent`, `broken`, `unsent`, `stopped` (by the relay's end), `fault` (of ours).
    pub ended: String,
    /// Body bytes that came, as sent.
    pub bytes: u64,
    /// From the request's last byte to the answer's last.
    pub millis: u64,
    /// Under a cap or with prices: what it was charged with, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_picodollars: Option<Money>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_tokens: Option<u64>,
    /// How often it was sent: one more than there are `retry` records of it. Absent: once.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub tries: u32,
    /// What the answer reported.
    #[serde(flatten)]
    pub counts: Counts,
    /// As in `Verdict`, of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

fn once() -> u32 {
    1
}

fn is_once(tries: &u32) -> bool {
    *tries == 1
}

/// `usage::Usage` in the order of the log. A counter that was not reported is absent, which is not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// See `usage::Usage`; so for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// See above. Finite where it was written by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// See above.
    pub owed: bool,
    /// See above.
    pub complete: bool,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Counts {
    /// As they are recorded. A model's name that holds the key is left out: it was decoded here first, so no search has seen it yet.
    pub fn of(usage: &Usage, guard: &Guard) -> Counts {
        Counts {
            input: usage.input,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            output: usage.output,
            reasoning: usage.reasoning,
            cost: usage.cost.map(Money::dollars),
            owed: usage.owed,
            complete: usage.complete,
            model: usage.model.clone().filter(|m| !guard.key_in(m.as_bytes())),
        }
    }
}

/// See `Record::DeniedAgain`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// Without the one that has a line of its own.
    pub times: u64,
}

/// See `Record::End`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// One clause.
    pub why: String,
}
