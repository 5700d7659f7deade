//! The account of a run: what was allowed, what was called and counted, how it ended. `receipt.json` beside the call log, and the
//! smaller `--stats-file`. Holds no secret and no text of the agent but its error line. Called by `life`.

use crate::engine::plan::{self, Mode};
use crate::limits;
use crate::relay::budget::Spent;
use crate::relay::caps::Caps;
use crate::relay::note::Call;
use crate::relay::start::Grants;
use crate::run::daemon::Image;
use crate::run::held::{Kept, LOG};
use crate::run::needs;
use crate::run::read::Outcome;
use crate::run::spec::Spec;
use crate::wire::control::TurnEnd;
use crate::wire::digest;
use crate::wire::money::Money;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

/// Calls, added up.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Calls that reached the provider.
    pub calls: u64,
    /// Sums of what was reported; see `relay::usage::Usage`.
    pub input: u64,
    /// See `input`.
    pub cache_read: u64,
    /// See `input`.
    pub cache_write: u64,
    /// See `input`.
    pub output: u64,
    /// In JSON dollars; none: nobody named a price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<Money>,
    /// Calls that are charged and did not say how much.
    pub uncounted: u64,
    /// Models asked for.
    pub models: BTreeSet<String>,
    /// Calls with at least one clamped field.
    pub clamped: u64,
    /// Requests refused here.
    pub denied: u64,
}

/// Models named in a receipt; the agent chooses the words where no `--allow-model` is given.
const MODELS: usize = 32;

impl Tally {
    /// Adds a call.
    pub fn call(&mut self, call: &Call) {
        self.calls += 1;
        for (sum, part) in [
            (&mut self.input, call.input),
            (&mut self.cache_read, call.cache_read),
            (&mut self.cache_write, call.cache_write),
            (&mut self.output, call.output),
        ] {
            *sum = sum.saturating_add(part.unwrap_or(0));
        }
        if let Some(cost) = call.cost {
            self.cost = Some(self.cost.unwrap_or_default().plus(cost));
        }
        let silent = call.input.is_none() && call.output.is_none();
        self.uncounted += u64::from(call.owed && (call.guessed || silent));
        self.clamped += u64::from(!call.clamped.is_empty());
        if let Some(model) = call.model.as_ref().filter(|_| self.models.len() < MODELS) {
            self.models.insert(crate::wire::text::short(model, 200));
        }
    }

    /// For a person: `3 calls, 1,234 in (1,000 cached) / 56 out, $0.0123`.
    pub fn words(&self) -> String {
        let input = self.input.saturating_add(self.cache_read).saturating_add(self.cache_write);
        let mut words = format!("{} call{}", self.calls, if self.calls == 1 { "" } else { "s" });
        words.push_str(&format!(", {} in", grouped(input)));
        if self.cache_read > 0 {
            words.push_str(&format!(" ({} cached)", grouped(self.cache_read)));
        }
        words.push_str(&format!(" / {} out", grouped(self.output)));
        if let Some(cost) = self.cost {
            words.push_str(&format!(", {cost}"));
        }
        for (count, what) in
            [(self.uncounted, "usage=?"), (self.clamped, "clamped"), (self.denied, "refused")]
        {
            if count > 0 {
                words.push_str(&format!(", {count} {what}"));
            }
        }
        words
    }
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// How it went.
pub struct Account<'a> {
    /// The run.
    pub id: &'a str,
    /// The engine that made the box.
    pub engine: &'a needs::Engine,
    /// One word: `finished`, `failed`, `timeout`, `signal`, `policy`, `lost`.
    pub ending: &'static str,
    /// The exit code of the command.
    pub exit: u8,
    /// One line where it is not 0.
    pub error: &'a str,
    /// Calls.
    pub tally: &'a Tally,
    /// What the agent said.
    pub outcome: &'a Outcome,
    /// How its process ended.
    pub agent: Option<&'a TurnEnd>,
    /// What confined the relay.
    pub features: &'a [String],
    /// What was used of the caps.
    pub spent: &'a Spent,
    /// When the box was let go, seconds since the epoch.
    pub began: u64,
    /// How long it ran.
    pub wall: Duration,
    /// Files whose set-id bits were cleared.
    pub cleared: &'a [String],
    /// Where the report is.
    pub report: Option<String>,
    /// Where log and receipt are.
    pub kept: &'a Kept,
}

#[derive(Serialize)]
struct Receipt<'a> {
    version: u32,
    run: &'a str,
    ending: &'a str,
    exit: u8,
    error: Option<&'a str>,
    began: u64,
    wall_seconds: f64,
    engine: &'a str,
    image: Option<&'a Image>,
    mode: &'a str,
    agent: AgentPart<'a>,
    provider: &'a str,
    upstream: String,
    policy: &'a Grants,
    /// None: nothing is capped.
    caps: Option<CapsPart<'a>>,
    /// None in open mode: no call is seen.
    usage: Option<&'a Tally>,
    log: Log,
    relay_features: &'a [String],
    limits: Limits,
    set_id_cleared: &'a [String],
    report: Option<&'a str>,
}

/// Limit and use of each cap.
#[derive(Serialize)]
struct CapsPart<'a> {
    budget: Option<f64>,
    mode: &'static str,
    prices: Option<&'a str>,
    max_calls: Option<u64>,
    max_tokens_total: Option<u64>,
    spent: f64,
    calls: u64,
    tokens: u64,
    reached: Option<&'a str>,
}

fn caps<'a>(caps: &'a Caps, spent: &'a Spent) -> Option<CapsPart<'a>> {
    (!caps.none()).then(|| CapsPart {
        budget: caps.budget.map(Money::dollars),
        mode: if caps.strict { "strict" } else { "after" },
        prices: caps.prices.as_ref().map(|p| p.date.as_str()),
        max_calls: caps.max_calls,
        max_tokens_total: caps.max_tokens_total,
        spent: spent.money.dollars(),
        calls: spent.calls,
        tokens: spent.tokens,
        reached: spent.reached.as_deref(),
    })
}

fn dollars<S: serde::Serializer>(cost: &Option<Money>, to: S) -> Result<S::Ok, S::Error> {
    cost.map(Money::dollars).serialize(to)
}

#[derive(Serialize)]
struct AgentPart<'a> {
    name: &'a str,
    code: Option<i32>,
    signal: Option<i32>,
    finished: bool,
    ok: bool,
    turns: Option<u64>,
    session: Option<&'a str>,
}

/// Head and count of the call log: with them a cut tail shows.
#[derive(Debug, PartialEq, Serialize)]
pub struct Log {
    /// Lines.
    pub count: u64,
    /// SHA-256 of the last line, without its line end; none: there is no line.
    pub head: Option<String>,
}

#[derive(Serialize)]
struct Limits {
    timeout_seconds: u64,
    processes: u64,
    open_files: u64,
    file_bytes: u64,
    tmp_bytes: u64,
    home_bytes: u64,
    home: &'static str,
    memory_bytes: Option<u64>,
    cpus: Option<f64>,
}

/// What `--stats-file` holds.
#[derive(Serialize)]
struct Stats<'a> {
    exit: u8,
    ok: bool,
    stats: String,
    error: Option<&'a str>,
    report: Option<&'a str>,
    run: &'a str,
    usage: &'a Tally,
    caps: Option<CapsPart<'a>>,
    wall_seconds: f64,
    log: Log,
    receipt: String,
}

/// `receipt.json`, as bytes.
pub fn receipt(spec: &Spec, a: &Account<'_>) -> Vec<u8> {
    let tls = if spec.upstream.tls { "https" } else { "http" };
    let receipt = Receipt {
        version: 1,
        run: a.id,
        ending: a.ending,
        exit: a.exit,
        error: (!a.error.is_empty()).then_some(a.error),
        began: a.began,
        wall_seconds: seconds(a.wall),
        engine: &a.engine.words,
        image: a.engine.docker.as_ref().map(|(_, image)| image),
        mode: spec.mode.name(),
        agent: AgentPart {
            name: &spec.agent.name,
            code: a.agent.and_then(|e| e.code),
            signal: a.agent.and_then(|e| e.signal),
            finished: a.outcome.finished,
            ok: a.outcome.ok,
            turns: a.outcome.turns,
            session: a.outcome.session.as_deref(),
        },
        provider: &spec.provider.name,
        upstream: format!("{tls}://{}:{}", spec.upstream.host, spec.upstream.port),
        policy: &spec.grants,
        caps: caps(&spec.caps, a.spent),
        usage: (spec.mode != Mode::Open).then_some(a.tally),
        log: log(a.kept),
        relay_features: a.features,
        limits: Limits {
            timeout_seconds: spec.timeout.as_secs(),
            processes: limits::BOX_PROCESSES,
            open_files: limits::BOX_FILES,
            file_bytes: limits::BOX_FILE_BYTES,
            tmp_bytes: limits::BOX_TMP_BYTES,
            home_bytes: limits::BOX_HOME_BYTES,
            home: plan::HOME,
            memory_bytes: spec.docker.as_ref().map(|d| d.memory),
            cpus: spec.docker.as_ref().map(|d| d.cpus as f64 / 1000.0),
        },
        set_id_cleared: a.cleared,
        report: a.report.as_deref(),
    };
    json(&receipt)
}

/// `--stats-file`, as bytes.
pub fn stats(spec: &Spec, a: &Account<'_>) -> Vec<u8> {
    json(&Stats {
        exit: a.exit,
        ok: a.exit == 0,
        stats: a.tally.words(),
        error: (!a.error.is_empty()).then_some(a.error),
        report: a.report.as_deref(),
        run: a.id,
        usage: a.tally,
        caps: caps(&spec.caps, a.spent),
        wall_seconds: seconds(a.wall),
        log: log(a.kept),
        receipt: a.kept.path.join("receipt.json").display().to_string(),
    })
}

/// Counts the call log's whole lines and hashes the last. A log that cannot be read to its end has no head.
pub fn log(kept: &Kept) -> Log {
    let mut log = Log { count: 0, head: None };
    // Without a relay there is none, and none is made here.
    let opened = kept.dir.facts(LOG).and_then(|_| kept.dir.append(LOG));
    let Ok(mut from) = opened.map(|fd| BufReader::new(File::from(fd))) else { return log };
    let (mut line, mut last) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = (&mut from).take(limits::LOG_LINE_BYTES + 1).read_until(b'\n', &mut line);
        match read {
            Ok(_) if line.pop_if(|b| *b == b'\n').is_some() => {
                log.count += 1;
                std::mem::swap(&mut line, &mut last);
            }
            Ok(_) => break,
            Err(_) => return Log { count: 0, head: None },
        }
    }
    log.head = (log.count > 0).then(|| digest::sha256_hex(&last));
    log
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Our own types: no map with keys that are not text, no number that JSON has not.
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cost: Option<&str>, input: Option<u64>) -> Call {
        Call {
            method: "POST".into(),
            path: "/v1/messages".into(),
            status: 200,
            millis: 1,
            model: Some("m".into()),
            input,
            cache_read: Some(1000),
            cache_write: None,
            output: input,
            cost: cost.and_then(|c| Money::reported(c, 12)),
            guessed: false,
            owed: true,
            clamped: Vec::new(),
            tries: 1,
            why: None,
        }
    }

    #[test]
    fn trap_75_no_price_poisons_the_sum() {
        let mut tally = Tally::default();
        for cost in [Some("NaN"), Some("-1"), Some("inf"), Some("0.25"), None] {
            tally.call(&call(cost, Some(1)));
        }
        assert_eq!(tally.cost.map(Money::dollars), Some(0.25));
        assert_eq!(tally.words(), "5 calls, 5,005 in (5,000 cached) / 5 out, $0.2500");
    }

    #[test]
    fn an_uncounted_call_is_said() {
        let mut tally = Tally::default();
        tally.call(&call(None, None));
        assert_eq!(tally.uncounted, 1);
        assert!(tally.words().ends_with("1 usage=?"));
        assert_eq!(tally.cost, None);
    }

    #[test]
    fn thousands() {
        assert_eq!([0, 12, 999, 1000, 1_234_567].map(grouped), ["0", "12", "999", "1,000", "1,234,567"]);
    }
}
