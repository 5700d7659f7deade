//! README, help, man page and completions against the program: what they print can be typed, and they say the same.
#![expect(clippy::disallowed_methods, reason = "tests")]

use sanduk::cli::{pages, parse, table};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// Words of a line of README as sh splits them, without its comment and what follows a pipe or redirection. Quotes are single ones.
fn words(line: &str) -> Vec<OsString> {
    let mut out = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            out.push(part.into());
            continue;
        }
        for word in part.split_whitespace() {
            if matches!(word, "#" | "|" | ">" | "&&") {
                return out;
            }
            out.push(word.into());
        }
    }
    out
}

/// Every line that begins with `sanduk`, and every `sanduk …` in backquotes, is a command line that the table takes.
#[test]
fn readmes_command_lines_are_taken() {
    let text = readme();
    let blocks = text.lines().filter_map(|l| l.strip_prefix("    sanduk ").map(str::to_string));
    let quoted =
        text.split('`').skip(1).step_by(2).filter_map(|l| l.strip_prefix("sanduk ").map(str::to_string));
    let all: Vec<String> = blocks.chain(quoted).collect();
    assert!(all.len() > 8, "{all:?}");
    for line in all {
        let taken = parse::parse(&words(&line));
        assert!(taken.is_ok(), "sanduk {line}: {}", taken.err().map(|e| e.to_string()).unwrap_or_default());
    }
}

/// Every flag that README names is one, and built; `make` and other programs' flags stand outside backquotes or are named here.
#[test]
fn readmes_flags_exist() {
    for piece in readme().split('`').skip(1).step_by(2) {
        for word in piece.split(|c: char| c.is_whitespace() || c == '=' || c == '[' || c == '(') {
            let Some(name) = word.strip_prefix("--").filter(|n| !n.is_empty()) else { continue };
            let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let known = table::FLAGS.iter().any(|f| f.built && f.long == name) || name == "help";
            assert!(known, "README names --{name}");
        }
    }
}

/// The table of exit codes is the program's.
#[test]
fn readmes_exit_codes() {
    let text = readme();
    let rows: Vec<(String, String)> = text
        .lines()
        .skip_while(|l| *l != "## Exit codes")
        .filter_map(|l| l.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(code, _)| code.starts_with(|c: char| c.is_ascii_digit()))
        .map(|(code, what)| (code.to_string(), what.replace('`', "")))
        .collect();
    let ours: Vec<(String, String)> =
        pages::EXIT_CODES.iter().map(|(c, w)| ((*c).to_string(), (*w).to_string())).collect();
    assert_eq!(rows, ours);
}

/// Each command prints its help; one that is not built says so when it is used, exit 2, and so does each flag.
#[test]
fn what_is_not_built_says_so() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).output().unwrap()
    };
    for c in table::COMMANDS {
        let help = run(&["help", c.name]);
        assert_eq!(help.status.code(), Some(0), "{}", c.name);
        assert!(String::from_utf8_lossy(&help.stdout).contains(&format!("Usage: sanduk {}", c.name)));
        if c.built {
            let same = run(&[c.name, "--help"]);
            assert_eq!(same.stdout, help.stdout, "{}", c.name);
        } else {
            let refused = run(&[c.name]);
            assert_eq!(refused.status.code(), Some(2), "{}", c.name);
            assert!(String::from_utf8_lossy(&refused.stderr).contains("not built yet"), "{}", c.name);
        }
    }
    for f in table::FLAGS.iter().filter(|f| !f.built) {
        let long = format!("--{}", f.long);
        let refused = run(&[f.on[0], "task", &long, "1"]);
        assert_eq!(refused.status.code(), Some(2), "{long}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("not built yet") && said.contains(&long), "{said}");
    }
}

/// The man page has no fault that groff knows of, and each shell can read its completions. What is not installed is said.
#[test]
fn man_page_and_completions_can_be_read() {
    let check = |program: &str, args: &[&str], text: &str| {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
            return None;
        };
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let man = pages::man("0");
    if let Some(page) = check("groff", &["-man", "-Tascii", "-ww", "-P-cbuo"], &man) {
        for f in table::FLAGS.iter().filter(|f| f.built) {
            // A long name may be broken at the end of a line only behind one of its own hyphens.
            assert!(page.replace("-\n", "-").contains(&format!("--{}", f.long)), "{}", f.long);
        }
    }
    for (shell, flag) in [("bash", "-n"), ("zsh", "-n"), ("fish", "-n")] {
        check(shell, &[flag], &pages::completions(shell).unwrap());
    }
}
