//! `sanduk audit explain`: in sentences, what a relay was told to allow, why a request was refused and what would lift that, how a
//! call ended. Of a whole log, a line, or a call. Called by `audit`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::prove::audit::unwritten;
use crate::prove::show::{short, usage};
use crate::prove::{input, verify};
use crate::relay::log_read::{Line, Reader};
use crate::relay::note::Denied;
use crate::relay::record::{Outcome, Record, Start, Verdict};
use crate::wire::utc;
use std::io::Write;
use std::path::Path;

/// What of a log.
pub enum Which {
    /// Every start, and every refusal once.
    All,
    /// This line.
    Line(u64),
    /// Verdict, further tries and outcome of this call.
    Call(u64),
}

/// Prints the sentences to `out`. A log that does not hold is explained up to where it does not.
pub fn explain(log: &Path, which: Which, out: &mut dyn Write) -> Result<Exit, Error> {
    let mut reader = Reader::new(input::log(log)?, limits::LOG_READ_BYTES);
    let mut told = Told { which, refusals: Vec::new(), last: None, more: 0, any: false };
    loop {
        match reader.advance() {
            Ok(Some(line)) => {
                let text = told.line(&line);
                out.write_all(text.as_bytes()).map_err(unwritten)?;
            }
            Ok(None) => {
                out.write_all(told.refused().as_bytes()).map_err(unwritten)?;
                return told.done(reader.lines(), reader.calls());
            }
            Err(bad) => {
                if let Some(error) = verify::unreadable(log, &bad) {
                    return Err(error);
                }
                out.write_all(told.refused().as_bytes()).and_then(|()| out.flush()).map_err(unwritten)?;
                let fault = verify::fault(&bad);
                let on = format!("{} from line {} on", log.display(), fault.line);
                return Err(Error::new(
                    Exit::Policy,
                    "explain",
                    on,
                    format!("it does not hold: {}", fault.why),
                ));
            }
        }
    }
}

/// Refusals that differ, with how often each came.
struct Told {
    which: Which,
    refusals: Vec<(Denied, u64)>,
    /// Where the last one stands there.
    last: Option<usize>,
    /// Refusals beyond `limits::EXPLAINED`.
    more: u64,
    any: bool,
}

impl Told {
    fn line(&mut self, line: &Line) -> String {
        let wanted = match (&self.which, &line.record) {
            (Which::All, Record::Start(_)) => true,
            (Which::All, record) => {
                self.note(record);
                false
            }
            (Which::Line(n), _) => line.n == *n,
            (Which::Call(n), Record::Verdict(v)) => v.call == *n,
            (Which::Call(n), Record::Retry(r)) => r.call == *n,
            (Which::Call(n), Record::Outcome(o)) => o.call == *n,
            (Which::Call(_), _) => false,
        };
        if !wanted {
            return String::new();
        }
        self.any = true;
        format!("Line {}, {}.\n{}", line.n, utc::written(line.at_ms), sentences(&line.record))
    }

    /// Counts a refusal with its like.
    fn note(&mut self, record: &Record) {
        let (at, times) = match record {
            Record::Denied(d) => {
                let known = self.refusals.iter().position(|(known, _)| known == d);
                if known.is_none() && self.refusals.len() < limits::EXPLAINED {
                    self.refusals.push((d.clone(), 0));
                }
                let at = known.unwrap_or(self.refusals.len() - 1);
                self.last = self.refusals.get(at).filter(|(known, _)| known == d).map(|_| at);
                (self.last, 1)
            }
            Record::DeniedAgain(a) => (self.last, a.times),
            _ => return,
        };
        let counter = at.and_then(|at| self.refusals.get_mut(at)).map(|(_, times)| times);
        let counter = counter.unwrap_or(&mut self.more);
        *counter = counter.saturating_add(times);
    }

    fn refused(&self) -> String {
        let mut out = String::new();
        for (denied, times) in &self.refusals {
            out.push_str(&refusal(denied));
            if *times > 1 {
                out.push_str(&format!("  This came {times} times.\n"));
            }
        }
        if self.more > 0 {
            out.push_str(&format!("{} more requests were refused: see `sanduk audit show`.\n", self.more));
        }
        out
    }

    fn done(&self, lines: u64, calls: u64) -> Result<Exit, Error> {
        let missing = match self.which {
            Which::All => None,
            Which::Line(n) => (!self.any).then(|| format!("line {n}: the log has {lines} lines")),
            Which::Call(n) => (!self.any).then(|| format!("call {n}: the log has {calls} calls")),
        };
        match missing {
            None => Ok(Exit::Ok),
            Some(why) => Err(Error::wrong("find", "what to explain", why)),
        }
    }
}

fn sentences(record: &Record) -> String {
    match record {
        Record::Start(s) => policy(s),
        Record::Verdict(v) => allowed(v),
        Record::Retry(r) => format!(
            "Call {} was sent again, try {}: the provider answered {} to the one before, {} ms earlier.\n",
            r.call, r.r#try, r.status, r.wait_ms
        ),
        Record::Outcome(o) => outcome(o),
        Record::Denied(d) => refusal(d),
        Record::DeniedAgain(a) => {
            format!("The refusal of the line before came {} times more, with nothing between.\n", a.times)
        }
        Record::End(e) => format!("The relay ended: {}. It forwarded nothing after this.\n", short(&e.why)),
    }
}

fn policy(s: &Start) -> String {
    let g = &s.grants;
    let mut out = format!(
        "sanduk {} began to forward to {}, the provider {}.\n",
        short(&s.version),
        short(&s.upstream),
        short(&s.provider)
    );
    if let Some(r) = &s.resumed {
        out.push_str(&format!(
            "  It went on with this log: {} lines with {} calls stood there, {} of them without an outcome",
            r.lines, r.calls, r.open
        ));
        out.push_str(&match r.torn {
            0 => ".\n".into(),
            torn => format!("; {torn} bytes of a line torn by a crash were cut off.\n"),
        });
    }
    out.push_str(match g.sealed {
        true => {
            "  Sealed mode: only request fields, tools and sources passed that the provider's list names.\n"
        }
        false => "  Key-safe mode: no list of request fields was held to.\n",
    });
    out.push_str(&match g.allow_models.is_empty() {
        true => "  Any model could be asked for.\n".to_string(),
        false => format!("  Only these models could be asked for: {}.\n", short(&g.allow_models.join(", "))),
    });
    out.push_str(&match g.max_tokens_cap {
        None => "  The output of a call had no upper bound.\n".to_string(),
        Some(cap) => format!("  The output of a call was cut to {cap} tokens.\n"),
    });
    if let Some(names) = &s.secrets {
        out.push_str(&format!(
            "  Requests were searched for more than the key: {}.\n",
            short(&names.join(", "))
        ));
    }
    for line in g.weaker() {
        out.push_str(&format!("  Weaker by {}.\n", short(&line)));
    }
    out
}

fn allowed(v: &Verdict) -> String {
    let model = v.model.as_ref().map_or_else(String::new, |m| format!(" for model {}", short(m)));
    let streamed = if v.streamed { ", as a stream" } else { "" };
    let mut out = format!(
        "Call {} was allowed: {} {}{model}{streamed}, with a body of {} bytes.\n",
        v.call,
        short(&v.method),
        short(&v.path),
        v.bytes
    );
    for clamped in &v.clamped {
        out.push_str(&format!("  Cut by --max-tokens-cap: {}.\n", short(clamped)));
    }
    out
}

fn outcome(o: &Outcome) -> String {
    let how = match o.ended.as_str() {
        "whole" => "the client has the whole answer",
        "cut" => "the provider broke off, and so did the client's answer",
        "client-left" => "the client left before the end",
        "key-reflected" => "the answer held the key and was cut",
        "unreadable" => "the answer came in a coding that cannot be searched, and was not handed on",
        "unreachable" => "the provider could not be reached; nothing was sent",
        "silent" => "the provider sent nothing in time",
        "broken" => "the provider's answer could not be read",
        "unsent" => "no head could be made for it; nothing was sent",
        "fault" => "the relay had a fault of its own there; it may have been charged",
        "stopped" => "the relay ended first; it may have been charged",
        other => &short(other),
    };
    let usage = usage(&o.counts);
    let usage = if usage.is_empty() { " nothing".into() } else { usage };
    let owed = if o.counts.owed { "It is charged" } else { "It is not charged" };
    let booked = o.charged_picodollars.map_or_else(String::new, |m| format!(" It counts with {m}."));
    format!(
        "Call {} ended with status {} after {} ms: {how}.\n  {owed}; reported:{usage}.{booked}\n",
        o.call, o.status, o.millis
    )
}

fn refusal(d: &Denied) -> String {
    let lifted = match d.remedy.is_empty() {
        true => "  No flag lifts this.\n".to_string(),
        false => format!("  What lifts it: {}.\n", short(&d.remedy)),
    };
    let (method, path) = (short(&d.method), short(&d.path));
    let what = if method.is_empty() {
        "A request that could not be read".into()
    } else {
        format!("{method} {path}")
    };
    format!("{what} was refused with status {}: {}.\n{lifted}", d.status, short(&d.why))
}
