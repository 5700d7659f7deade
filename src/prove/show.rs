//! `sanduk audit show`: a line for each call, refusal, start and end of a log, for people; or its records as they are. Stops at the
//! first line that does not hold, says so, and then exits 3. Called by `audit`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::prove::audit::unwritten;
use crate::prove::{input, verify};
use crate::relay::log_read::{Line, Reader};
use crate::relay::record::{Counts, Outcome, Record, Start, Verdict};
use crate::wire::{text, utc};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Prints the log to `out`.
pub fn show(log: &Path, json: bool, out: &mut dyn Write) -> Result<Exit, Error> {
    let mut reader = Reader::new(input::log(log)?, limits::LOG_READ_BYTES);
    let mut open = BTreeMap::new();
    loop {
        let text = match reader.advance() {
            Ok(Some(_)) if json => text::json_escaped(&String::from_utf8_lossy(reader.text())) + "\n",
            Ok(Some(line)) => shown(&line, &mut open),
            Ok(None) => {
                out.write_all(left(&mut open).as_bytes()).map_err(unwritten)?;
                return Ok(Exit::Ok);
            }
            Err(bad) => {
                if let Some(error) = verify::unreadable(log, &bad) {
                    return Err(error);
                }
                out.write_all(left(&mut open).as_bytes()).and_then(|()| out.flush()).map_err(unwritten)?;
                let fault = verify::fault(&bad);
                let why = format!("it does not hold: {}", fault.why);
                let on = format!("{} from line {} on", log.display(), fault.line);
                return Err(Error::new(Exit::Policy, "show", on, why));
            }
        };
        out.write_all(text.as_bytes()).map_err(unwritten)?;
    }
}

/// A record as its line, or nothing for a verdict, which is shown with its outcome.
fn shown(line: &Line, open: &mut BTreeMap<u64, String>) -> String {
    let at = utc::written(line.at_ms);
    match &line.record {
        Record::Verdict(v) => {
            open.insert(v.call, format!("{at}  call {}  {}", v.call, asked(v)));
            String::new()
        }
        Record::Retry(r) => {
            format!("{at}  retry  call {} try {} after {}\n", r.call, r.r#try, r.status)
        }
        Record::Outcome(o) => {
            let asked = open.remove(&o.call).unwrap_or_default();
            format!("{asked} -> {}\n", ended(o))
        }
        Record::Start(s) => format!("{}{at}  start  {}\n", left(open), place(s)),
        Record::Denied(d) => {
            let remedy = if d.remedy.is_empty() { String::new() } else { format!(" ({})", short(&d.remedy)) };
            let (method, path, why) = (short(&d.method), short(&d.path), short(&d.why));
            format!("{at}  refused  {method} {path} -> {}: {why}{remedy}\n", d.status)
        }
        Record::DeniedAgain(a) => format!("{at}  refused  the same {} times more\n", a.times),
        Record::End(e) => format!("{at}  end  {}\n", short(&e.why)),
    }
}

/// Calls that have no outcome.
fn left(open: &mut BTreeMap<u64, String>) -> String {
    let lines = std::mem::take(open).into_values();
    lines.map(|asked| format!("{asked} -> no outcome: perhaps made, perhaps charged\n")).collect()
}

fn asked(v: &Verdict) -> String {
    let model = v.model.as_ref().map_or_else(String::new, |m| format!(" model={}", short(m)));
    let clamped = match v.clamped.is_empty() {
        true => String::new(),
        false => format!(" clamped={}", short(&v.clamped.join(","))),
    };
    format!("{} {}{model} {}B{clamped}", short(&v.method), short(&v.path), v.bytes)
}

fn ended(o: &Outcome) -> String {
    let tenths = o.millis.saturating_add(50) / 100;
    let (ended, usage) = (short(&o.ended), usage(&o.counts));
    format!("{} {ended} {}B{usage} {}.{}s", o.status, o.bytes, tenths / 10, tenths % 10)
}

/// Tokens and cost, a space before each; `usage=?`: charged, and nobody said how much.
pub fn usage(c: &Counts) -> String {
    let mut out = String::new();
    for (name, n) in [
        ("in", c.input),
        ("cache_write", c.cache_write),
        ("cache_read", c.cache_read),
        ("out", c.output),
        ("reasoning", c.reasoning),
    ] {
        out.push_str(&n.map_or_else(String::new, |n| format!(" {name}={n}")));
    }
    if c.owed && out.is_empty() {
        out.push_str(" usage=?");
    }
    if let Some(cost) = c.cost {
        out.push_str(&format!(" ${cost:.4}"));
    }
    out
}

fn place(s: &Start) -> String {
    let mode = if s.grants.sealed { "sealed" } else { "key-safe" };
    let again = s.resumed.as_ref().map_or_else(String::new, |r| {
        format!(
            "; goes on after {} lines, {} calls without an outcome, {} torn bytes",
            r.lines, r.open, r.torn
        )
    });
    format!("sanduk {}, {} at {}, {mode}{again}", short(&s.version), short(&s.provider), short(&s.upstream))
}

/// Words of a log, escaped and cut.
pub fn short(word: &str) -> String {
    text::short(word, limits::SHOWN_CHARS)
}
