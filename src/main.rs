//! Chooses the role, prints one error line, gives the exit code.

use sanduk::cli;
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
        _ => cli::command(args),
    }
}
