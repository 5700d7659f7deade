//! `sanduk audit verify`: does a call log hold, line by line, and is it the one that a receipt names. Prints what it found; what is
//! printed from a log is escaped. Called by `audit`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::prove::input;
use crate::relay::log_read::{Bad, Line, Reader, What};
use crate::relay::record::Record;
use crate::wire::text;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// What stands in a log, as far as it holds.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// It holds, and is the receipt's where one was given.
    pub holds: bool,
    /// Lines that hold.
    pub lines: u64,
    /// SHA-256 of the last of them; none: there is none.
    pub head: Option<String>,
    /// Verdicts.
    pub calls: u64,
    /// Calls with an outcome.
    pub outcomes: u64,
    /// Calls without: perhaps made, perhaps charged.
    pub without_outcome: u64,
    /// Refusals, repeated ones included.
    pub denied: u64,
    /// Relays that wrote it.
    pub starts: u64,
    /// Bodies that records name; each is there and is what its name says.
    pub bodies: u64,
    /// Bytes of torn lines that relays found and cut off.
    pub torn_bytes: u64,
    /// The last line is a relay's end.
    pub ended: bool,
    /// The first thing that does not hold.
    pub fault: Option<Fault>,
    /// Whether head and count are the receipt's; none: no receipt was given.
    pub receipt_agrees: Option<bool>,
}

/// Why a log does not hold.
#[derive(Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Number of the line, from 1; the line after the last where it is about what is missing.
    pub line: u64,
    /// `torn`, `chain`, `form`, `kind`, `version`, `order`, `size`, `empty`, `receipt`, `body`.
    pub what: &'static str,
    /// One clause, escaped.
    pub why: String,
}

/// Of a receipt or a stats file only this.
#[derive(Deserialize)]
struct Receipt {
    log: Named,
}

#[derive(Deserialize)]
struct Named {
    count: u64,
    head: Option<String>,
}

/// Reads the log, and the receipt where one is named. `Err`: one of them cannot be read.
pub fn verify(log: &Path, receipt: Option<&Path>, bodies: Option<&Path>) -> Result<Found, Error> {
    let named = receipt.map(named).transpose()?;
    let beside = log.with_file_name("bodies");
    let mut found = read(log, input::log(log)?, bodies.unwrap_or(&beside))?;
    if let Some(named) = named {
        agrees(&mut found, &named);
    }
    let none_due = found.receipt_agrees == Some(true);
    if found.lines == 0 && found.fault.is_none() && !none_due {
        let why = "there is no line; a relay's first act is its start record";
        found.fault = Some(Fault { line: 1, what: "empty", why: why.into() });
    }
    found.holds = found.fault.is_none();
    Ok(found)
}

/// For a person, and the exit code.
pub fn told(log: &Path, found: &Found) -> (String, Exit) {
    let name = text::escaped(&log.display().to_string());
    let verdict = match &found.fault {
        None => format!("{name}: holds"),
        Some(f) => format!("{name}: does not hold: line {} ({}): {}", f.line, f.what, f.why),
    };
    let mut out = format!(
        "{verdict}\n  {} lines, {} calls, {} without an outcome, {} refused\n",
        found.lines, found.calls, found.without_outcome, found.denied
    );
    if found.starts > 1 {
        out.push_str(&format!("  {} relays wrote it, one after the other", found.starts));
        if found.torn_bytes > 0 {
            out.push_str(&format!("; {} bytes of torn lines were cut off", found.torn_bytes));
        }
        out.push('\n');
    }
    if found.bodies > 0 {
        out.push_str(&format!("  {} bodies, each what its name says\n", found.bodies));
    }
    if found.lines > 0 && !found.ended {
        out.push_str("  no end: the relay still runs, or was killed\n");
    }
    if let Some(head) = &found.head {
        out.push_str(&format!("  head {head}\n"));
    }
    out.push_str(match found.receipt_agrees {
        None => "  without --receipt a log that lost its last lines looks like a shorter one\n",
        Some(true) => "  head and count are the receipt's\n",
        Some(false) => "  head and count are not the receipt's\n",
    });
    (out, exit(found))
}

/// 0 or 3.
pub fn exit(found: &Found) -> Exit {
    if found.holds { Exit::Ok } else { Exit::Policy }
}

/// `Err`: the file cannot be read on; a line that does not hold is a finding.
pub fn unreadable(log: &Path, bad: &Bad) -> Option<Error> {
    let why = || format!("line {}: {}", bad.line, bad.why);
    (bad.what == What::Read).then(|| Error::wrong("read", log.display().to_string(), why()))
}

/// The fault as it is shown.
pub fn fault(bad: &Bad) -> Fault {
    Fault { line: bad.line, what: bad.what.word(), why: text::short(&bad.why, limits::SHOWN_CHARS) }
}

fn read(log: &Path, from: Box<dyn Read>, bodies: &Path) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut reader = Reader::new(from, limits::LOG_READ_BYTES);
    loop {
        match reader.advance() {
            Ok(None) => break,
            Ok(Some(line)) => {
                if let Err(why) = body(&line, bodies, &mut found.bodies) {
                    found.fault = Some(Fault { line: line.n, what: "body", why });
                    break;
                }
                count(&mut found, &line);
                (found.lines, found.calls, found.ended) = (line.n, reader.calls(), reader.ended());
                found.head = Some(reader.head().into());
            }
            Err(bad) => {
                if let Some(error) = unreadable(log, &bad) {
                    return Err(error);
                }
                found.fault = Some(fault(&bad));
                break;
            }
        }
    }
    found.without_outcome = found.calls.saturating_sub(found.outcomes);
    Ok(found)
}

fn count(found: &mut Found, line: &Line) {
    match &line.record {
        Record::Start(start) => {
            found.starts += 1;
            let torn = start.resumed.as_ref().map_or(0, |r| r.torn);
            found.torn_bytes = found.torn_bytes.saturating_add(torn);
        }
        Record::Outcome(_) => found.outcomes += 1,
        Record::Denied(_) => found.denied = found.denied.saturating_add(1),
        Record::DeniedAgain(again) => found.denied = found.denied.saturating_add(again.times),
        Record::Verdict(_) | Record::Retry(_) | Record::End(_) => {}
    }
}

/// The body that a record names, looked at whole.
fn body(line: &Line, bodies: &Path, count: &mut u64) -> Result<(), String> {
    let name = match &line.record {
        Record::Verdict(v) => v.body.as_deref(),
        Record::Outcome(o) => o.body.as_deref(),
        _ => None,
    };
    let Some(name) = name else { return Ok(()) };
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if name.len() != 64 || !name.bytes().all(hex) {
        return Err("body is no digest".into());
    }
    match input::body(&bodies.join(format!("{name}.gz"))) {
        Ok(digest) if digest == name => {
            *count = count.saturating_add(1);
            Ok(())
        }
        Ok(_) => Err(format!("body {name} is not what its name says")),
        Err(e) => Err(format!("body {name}: {e}")),
    }
}

fn named(path: &Path) -> Result<Named, Error> {
    let bytes = input::receipt(path)?;
    let receipt: Receipt = serde_json::from_slice(&bytes).map_err(|e| {
        Error::wrong("read", path.display().to_string(), format!("it is no receipt of a run: {e}"))
    })?;
    Ok(receipt.log)
}

fn agrees(found: &mut Found, named: &Named) {
    let same = found.lines == named.count && found.head == named.head;
    found.receipt_agrees = Some(same && found.fault.is_none());
    if same || found.fault.is_some() {
        return;
    }
    let (line, why) = if found.lines < named.count {
        let lost = named.count - found.lines;
        (
            found.lines.saturating_add(1),
            format!("the receipt counts {} lines: the last {lost} are missing", named.count),
        )
    } else if found.lines > named.count {
        (
            named.count.saturating_add(1),
            format!("the receipt counts {} lines: what follows was added", named.count),
        )
    } else {
        (found.lines, "the last line is not the one whose digest the receipt holds".into())
    };
    found.fault = Some(Fault { line, what: "receipt", why });
}
