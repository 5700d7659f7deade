//! Chooses the role, prints one error line, gives the exit code.

use sanduk::cli::{pages, parse};
use sanduk::error::{Error, Exit};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "ENV-80 the command line")]
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match role(&args) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            // A closed standard error is no reason to fail differently.
            let _ = writeln!(std::io::stderr(), "sanduk: {error}");
            ExitCode::from(error.exit().code())
        }
    }
}

/// The roles a person never types come first: each is a re-execution of this binary (`audit/MAP.md`).
fn role(args: &[OsString]) -> Result<Exit, Error> {
    match args.first().and_then(|a| a.to_str()) {
        Some("inside") if args.len() == 2 => sanduk::inside::start::role(Path::new(&args[1])),
        Some("mini") if args.len() == 1 => sanduk::inside::mini::agent::role(),
        Some("keeper") if args.len() == 1 => sanduk::run::keeper::role(),
        Some("relay-role") if args.len() == 1 => sanduk::relay::start::role(),
        _ => command(args),
    }
}

/// What a person typed.
fn command(args: &[OsString]) -> Result<Exit, Error> {
    let given = parse::parse(args)?;
    if given.help {
        return print(&pages::command(given.command));
    }
    todo!()
}

/// To standard output; a closed pipe is an error line, never a panic.
fn print(text: &str) -> Result<Exit, Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::fault("write", "to standard output", e))?;
    Ok(Exit::Ok)
}
