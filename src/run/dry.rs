//! `--dry-run`: prints the engine's command line and the hand-over, secrets masked. Changes nothing, starts nothing, resolves no
//! name. Called by `life`.

use crate::engine::docker;
use crate::engine::plan::{Engine, Mode};
use crate::error::{Error, Exit};
use crate::relay::start::Fds;
use crate::run::daemon::Place;
use crate::run::guarded::Canary;
use crate::run::hand;
use crate::run::spec::Spec;
use crate::wire::text;
use std::ffi::OsStr;
use std::io::Write;

/// A channel's name where there is no channel.
const CHANNEL: &str = "sbx-0000000000000000";

/// A run's id where there is no run.
const RUN: &str = "00000000000000000000000000000000";

/// What stands before `run` on docker's command line. A context is not looked up: that is a call.
fn before(spec: &Spec) -> Vec<String> {
    match spec.docker.as_ref().map(|d| &d.place) {
        None => Vec::new(),
        Some(Place::Endpoint(endpoint)) => docker::call(endpoint).to_vec(),
        Some(Place::Context(name, _)) => docker::call(&format!("<endpoint of context {name}>")).to_vec(),
    }
}

/// Prints what would be started.
pub fn print(spec: &Spec) -> Result<Exit, Error> {
    let plan = hand::plan(spec, CHANNEL)?;
    let token = if spec.mode == Mode::Open { "<provider key>" } else { "<run token>" };
    let mut start = hand::start(spec, "1", token, "<control secret>")?;
    if spec.canary {
        start.turn.files.push((Canary::PLACE.into(), "<canary>".into()));
    }
    let fds = Fds { listener: 3, secrets: 4, log: 5, notes: 6, bodies: spec.log_bodies.then_some(7) };
    let relay = hand::relay(spec, fds, None);
    let mut out = String::new();
    let (uid, gid) = spec.user;
    out.push_str(&match spec.engine {
        Engine::Bwrap => format!("# engine, as uid {uid} gid {gid}\n"),
        Engine::Docker => "# engine\n".to_string(),
    });
    out.push_str(&quoted(spec.program.as_os_str()));
    let container = hand::container(spec, RUN, CHANNEL, spec.docker.as_ref().map_or("", |d| &d.image));
    let args = [before(spec), hand::args(&plan, container.as_ref())?].concat();
    for arg in args {
        out.push_str(if arg.starts_with("--") { " \\\n  " } else { " " });
        out.push_str(&quoted(OsStr::new(&arg)));
    }
    if spec.mode != Mode::Open {
        out.push_str("\n# relay, confined, with the key on a pipe\n");
        out.push_str(&json(&relay)?);
    }
    out.push_str("\n# hand-over, POST /start on the box's control socket\n");
    out.push_str(&json(&start)?);
    out.push('\n');
    let mut to = std::io::stdout().lock();
    to.write_all(out.as_bytes())
        .and_then(|()| to.flush())
        .map_err(|e| Error::new(Exit::Failed, "write", "to standard output", e))?;
    Ok(Exit::Ok)
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map_err(|e| Error::fault("print", "the hand-over", e))
}

/// As a POSIX shell takes it back, and safe to print: what a terminal would act on becomes an escape, said by `$'…'`.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    let shown = text::escaped(&word);
    match shown == word {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => format!("$'{}'", shown.replace('\'', "\\'")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;
    use std::ffi::OsStr;

    #[test]
    fn words_survive_a_shell() {
        for (word, shown) in [
            ("--ro-bind", "--ro-bind"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
            ("a\nb", "$'a\\nb'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), shown);
        }
    }
}
