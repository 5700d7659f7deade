//! `sanduk audit verify|show|explain LOG`: what was asked, and where its answer goes. Everything that comes out of a log is hostile:
//! it is bounded, and printed escaped. Called by `main`.

use crate::error::{Error, Exit};
use crate::prove::{explain, show, verify};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// The command line, read.
pub struct Asked {
    /// What follows `audit`: the act, the log, for `explain` perhaps a line.
    pub operands: Vec<String>,
    /// `--receipt`.
    pub receipt: Option<PathBuf>,
    /// `--bodies`.
    pub bodies: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
    /// `--call`.
    pub call: Option<u64>,
}

/// Does it, and prints to standard output. 0: done, and the log holds. 3: it does not hold.
pub fn audit(asked: &Asked) -> Result<Exit, Error> {
    let mut operands = asked.operands.iter().map(String::as_str);
    let (act, log) = (operands.next().unwrap_or_default(), operands.next());
    let line = operands.next();
    if let Some(more) = operands.next().or(line.filter(|_| act != "explain")) {
        return Err(wrong(format!("{more} is one word too many")));
    }
    for (given, flag, of) in [
        (asked.receipt.is_some(), "--receipt", &["verify"][..]),
        (asked.bodies.is_some(), "--bodies", &["verify"]),
        (asked.json, "--json", &["verify", "show"]),
        (asked.call.is_some(), "--call", &["explain"]),
    ] {
        if given && !of.contains(&act) {
            return Err(wrong(format!(
                "{flag} has no effect on `audit {act}`, only on {}",
                of.join(" and ")
            )));
        }
    }
    let log = PathBuf::from(log.unwrap_or_default());
    if !matches!(act, "verify" | "show" | "explain") || log.as_os_str().is_empty() {
        return Err(wrong("say what and of which log: audit verify|show|explain LOG".into()));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let exit = match act {
        "verify" => {
            let found = verify::verify(&log, asked.receipt.as_deref(), asked.bodies.as_deref())?;
            let text = if asked.json { json(&found)? } else { verify::told(&log, &found).0 };
            out.write_all(text.as_bytes()).map_err(unwritten)?;
            verify::exit(&found)
        }
        "show" => show::show(&log, asked.json, &mut out)?,
        _ => explain::explain(&log, which(line, asked.call)?, &mut out)?,
    };
    out.flush().map_err(unwritten)?;
    Ok(exit)
}

/// Standard output takes nothing.
pub fn unwritten(e: std::io::Error) -> Error {
    Error::new(Exit::Failed, "write", "to standard output", e)
}

fn which(line: Option<&str>, call: Option<u64>) -> Result<explain::Which, Error> {
    match (line, call) {
        (None, None) => Ok(explain::Which::All),
        (None, Some(call)) => Ok(explain::Which::Call(call)),
        (Some(_), Some(_)) => Err(wrong("a line and --call: give one of them".into())),
        (Some(line), None) => match line.parse::<u64>() {
            Ok(n) if n > 0 && line.bytes().all(|b| b.is_ascii_digit()) => Ok(explain::Which::Line(n)),
            _ => Err(wrong(format!("{line} is no number of a line"))),
        },
    }
}

fn json(found: &verify::Found) -> Result<String, Error> {
    let text = serde_json::to_string(found).map_err(|e| Error::fault("write", "JSON", e))?;
    Ok(text + "\n")
}

fn wrong(why: String) -> Error {
    Error::wrong("read", "the command line", why).remedy("see `sanduk audit --help`")
}
