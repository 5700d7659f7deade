//! Chooses the role, prints one error line, gives the exit code.

use sanduk::error::Exit;

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(Exit::Fault.code())
}
