//! A scripted model provider for tests and for `make demo`; never part of the shipped binary. Plain HTTP, no key of anybody.
//!
//! `cargo run -q --example upstream -- --script FILE|NAME [--listen 127.0.0.1:0] [--record FILE.jsonl] [--stay]`
//!
//! The first line on standard output is `listening 127.0.0.1:PORT`. It ends at the end of standard input, on SIGTERM, or
//! after an hour; `--stay` leaves standard input alone (for a shell's background job, whose input is `/dev/null`). Tests may
//! load `provider.rs` as a module instead, where the script format is described. `--record` appends one JSON object per
//! request. Scripts known by name: those in `tests/support/script/`.
#![expect(clippy::disallowed_methods, reason = "a test program, not the product")]

mod provider;

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

/// A forgotten process ends by itself.
const LIFE: Duration = Duration::from_secs(3600);

struct Options {
    listen: String,
    script: String,
    record: Option<String>,
    stay: bool,
}

fn options() -> Result<Options, String> {
    let mut given =
        Options { listen: "127.0.0.1:0".into(), script: "demo".into(), record: None, stay: false };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--listen" => given.listen = value()?,
            "--script" => given.script = value()?,
            "--record" => given.record = Some(value()?),
            "--stay" => given.stay = true,
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    Ok(given)
}

fn run() -> Result<(), String> {
    let given = options()?;
    let text = match provider::named(&given.script) {
        Some(text) => text.to_string(),
        None => std::fs::read_to_string(&given.script).map_err(|e| format!("{}: {e}", given.script))?,
    };
    let mut file = match &given.record {
        Some(path) => Some(
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|e| format!("{path}: {e}"))?,
        ),
        None => None,
    };
    let record = Box::new(move |line: &str| {
        if let Some(file) = &mut file {
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    });
    let address = provider::start(&given.listen, &text, record)?;
    writeln!(io::stdout(), "listening {address}")
        .and_then(|()| io::stdout().flush())
        .map_err(|e| e.to_string())?;
    if given.stay {
        std::thread::sleep(LIFE);
        return Ok(());
    }
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(0);
    });
    let mut sink = [0u8; 256];
    while io::stdin().read(&mut sink).is_ok_and(|n| n > 0) {}
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "upstream: {why}");
            ExitCode::from(2)
        }
    }
}
