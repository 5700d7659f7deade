//! Arguments to a command with its flags, by the table. Checks words and arity only; what a value means is decided where it is used.

use crate::cli::table::{self, Command, Flag};
use crate::error::Error;
use lexopt::Arg;
use std::ffi::OsString;

/// A command line that the table allows.
pub struct Given {
    /// The command.
    pub command: &'static Command,
    /// `-h` or `--help` was given: nothing else matters.
    pub help: bool,
    /// Values that are not flags', in order.
    pub operands: Vec<String>,
    flags: Vec<(&'static str, String)>,
}

impl Given {
    /// The flag was given.
    pub fn has(&self, long: &str) -> bool {
        self.flags.iter().any(|(name, _)| *name == long)
    }

    /// Its value, where it was given.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.flags.iter().find(|(name, _)| *name == long).map(|(_, value)| value.as_str())
    }

    /// All its values, in order.
    pub fn values(&self, long: &str) -> Vec<String> {
        self.flags.iter().filter(|(name, _)| *name == long).map(|(_, value)| value.clone()).collect()
    }

    /// Its value as a number of at least 1.
    pub fn number(&self, long: &str) -> Result<Option<u64>, Error> {
        let Some(text) = self.value(long) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(n) if digits && n > 0 => Ok(Some(n)),
            _ => Err(Error::wrong("take", format!("--{long} {text}"), "it must be a whole number above 0")),
        }
    }
}

/// Reads a command line. `--help` and `--version` stand for their commands.
pub fn parse(args: &[OsString]) -> Result<Given, Error> {
    let mut words = args.iter().cloned();
    let first = match words.next() {
        None => return Err(usage("no command was given", "see `sanduk help`")),
        Some(word) => text(word)?,
    };
    let name = match first.as_str() {
        "-h" | "--help" => "help",
        "-V" | "--version" => "version",
        other => other,
    };
    let Some(command) = table::command(name) else { return Err(unknown(&first)) };
    let mut given = Given { command, help: false, operands: Vec::new(), flags: Vec::new() };
    let read = flags(&mut given, words);
    // Its flags are not built either: the word comes first.
    if !command.built && !given.help {
        return Err(not_built(&format!("`sanduk {}`", command.name)));
    }
    read.map(|()| given)
}

fn flags(given: &mut Given, words: impl Iterator<Item = OsString>) -> Result<(), Error> {
    // The first word of `from_args` is an argument, not the program's name.
    let mut parser = lexopt::Parser::from_args(words);
    let on = given.command.name;
    loop {
        let found = match parser.next().map_err(|e| usage(&e.to_string(), ""))? {
            None => return Ok(()),
            Some(Arg::Long("help")) | Some(Arg::Short('h')) => {
                given.help = true;
                return Ok(());
            }
            Some(Arg::Value(word)) => {
                given.operands.push(text(word)?);
                continue;
            }
            Some(Arg::Long(name)) => table::long(on, name).ok_or_else(|| stray(on, &format!("--{name}")))?,
            Some(Arg::Short(c)) => table::letter(on, c).ok_or_else(|| stray(on, &format!("-{c}")))?,
        };
        if !found.built {
            return Err(not_built(&format!("--{}", found.long)));
        }
        let value = match found.value {
            "" => String::new(),
            _ => text(parser.value().map_err(|e| usage(&e.to_string(), ""))?)?,
        };
        once(given, found)?;
        given.flags.push((found.long, value));
    }
}

fn once(given: &Given, flag: &Flag) -> Result<(), Error> {
    match given.has(flag.long) && !flag.repeat {
        true => Err(usage(&format!("--{} stands twice", flag.long), "give it once")),
        false => Ok(()),
    }
}

fn text(word: OsString) -> Result<String, Error> {
    word.into_string().map_err(|w| usage(&format!("{:?} is not UTF-8", w), "write it in UTF-8"))
}

fn usage(why: &str, remedy: &str) -> Error {
    Error::wrong("read", "the command line", why).remedy(remedy)
}

fn stray(on: &str, flag: &str) -> Error {
    usage(&format!("`sanduk {on}` has no {flag}"), &format!("see `sanduk {on} --help`"))
}

fn not_built(what: &str) -> Error {
    Error::wrong("do", what, "not built yet").remedy("see README, \"What is not built yet\"")
}

/// A task typed without `run` is never taken for one: a task that says "clean" must not run `clean`.
fn unknown(first: &str) -> Error {
    if first.starts_with('-') {
        return usage(&format!("a command comes before {first}"), "see `sanduk help`");
    }
    let names: Vec<&str> = table::COMMANDS.iter().map(|c| c.name).collect();
    usage(
        &format!("{} is not a command", quoted(first)),
        &format!("for a task write: sanduk run {}; commands: {}", quoted(first), names.join(" ")),
    )
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Result<Given, Error> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_may_stand_before_and_after_the_task() {
        let given = line(&["run", "-w", "dir", "do it", "--mount=a:/b", "--mount", "c:/d:ro"]).unwrap();
        assert_eq!(given.operands, ["do it"]);
        assert_eq!(given.value("workdir"), Some("dir"));
        assert_eq!(given.values("mount"), ["a:/b", "c:/d:ro"]);
        let dashed = line(&["run", "--", "--not-a-flag"]).unwrap();
        assert_eq!(dashed.operands, ["--not-a-flag"]);
    }

    #[test]
    fn refusals_name_the_word() {
        for (words, part) in [
            (&["fix the bug"][..], "sanduk run 'fix the bug'"),
            (&["run", "--nope"], "no --nope"),
            (&["run", "--model", "a", "--model", "b"], "stands twice"),
            (&["run", "--recipe", "1"], "--recipe: not built yet"),
            (&["tick"], "`sanduk tick`: not built yet"),
            (&["serve", "--interval", "60"], "`sanduk serve`: not built yet"),
            (&["relay", "--workdir", "x"], "no --workdir"),
            (&["run", "--model"], "model"),
            (&[], "no command"),
        ] {
            let error = line(words).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }

    #[test]
    fn numbers_are_whole_and_above_zero() {
        for bad in ["0", "-1", "+1", "1.5", "", "x", "99999999999999999999"] {
            let given = line(&["run", "t", &format!("--max-turns={bad}")]).unwrap();
            assert!(given.number("max-turns").is_err(), "{bad}");
        }
        assert_eq!(line(&["run", "t", "--max-turns", "7"]).unwrap().number("max-turns").unwrap(), Some(7));
    }
}
