//! Help, man page and completions, printed from the table.

use crate::cli::table::{COMMANDS, Command, FLAGS, Flag};
use std::fmt::Write;

const ABOUT: &str =
    "sanduk runs coding agents in disposable boxes, behind a relay that holds the provider key.";

/// Exit codes, as README and man page print them.
pub const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "the run failed"),
    ("2", "wrong command, configuration, key or file, found before a box existed"),
    ("3", "ended or refused by policy at run time"),
    ("4", "engine missing, not answering, or it could not start the box"),
    ("5", "a cap ended the run"),
    ("124", "--timeout ended the run"),
    ("125", "our own fault"),
    ("128+N", "signal N reached us"),
];

/// `sanduk help`.
pub fn overview() -> String {
    let mut out = format!("{ABOUT}\n\nUsage: sanduk COMMAND [FLAGS]\n\nCommands:\n");
    for c in COMMANDS.iter().filter(|c| c.built) {
        let _ = writeln!(out, "  {:<34} {}", format!("{} {}", c.name, c.operands).trim_end(), c.summary);
    }
    let later: Vec<&str> = COMMANDS.iter().filter(|c| !c.built).map(|c| c.name).collect();
    let _ = writeln!(out, "\nNot built yet: {}", later.join(" "));
    out.push_str("\nExit codes:\n");
    for (code, what) in EXIT_CODES {
        let _ = writeln!(out, "  {code:<6} {what}");
    }
    out.push_str("\n`sanduk COMMAND --help` prints a command's flags; `sanduk man` the manual page.\n");
    out
}

/// `sanduk COMMAND --help`.
pub fn command(c: &Command) -> String {
    let mut out = format!("{}\n\nUsage: sanduk {} {}\n", capital(c.summary), c.name, synopsis(c));
    let flags: Vec<&Flag> = FLAGS.iter().filter(|f| f.built && f.on.contains(&c.name)).collect();
    if !flags.is_empty() {
        out.push_str("\nFlags:\n");
    }
    for f in flags {
        let _ = writeln!(out, "  {}\n      {}", spelling(f), f.doc);
    }
    let later: Vec<String> = FLAGS
        .iter()
        .filter(|f| !f.built && f.on.contains(&c.name))
        .map(|f| format!("--{}", f.long))
        .collect();
    if !later.is_empty() {
        let _ = writeln!(out, "\nNot built yet: {}", later.join(" "));
    }
    out
}

fn synopsis(c: &Command) -> String {
    let flags = if FLAGS.iter().any(|f| f.on.contains(&c.name)) { " [FLAGS]" } else { "" };
    format!("{}{flags}", c.operands).trim().to_string()
}

fn spelling(f: &Flag) -> String {
    let short = f.short.map(|c| format!("-{c}, ")).unwrap_or_default();
    let value = if f.value.is_empty() { String::new() } else { format!(" {}", f.value) };
    format!("{short}--{}{value}{}", f.long, if f.repeat { " (repeatable)" } else { "" })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `sanduk man`: roff for man(7).
pub fn man(version: &str) -> String {
    let mut out = format!(
        ".TH SANDUK 1 \"\" \"sanduk {version}\"\n.SH NAME\nsanduk \\- coding agents in disposable boxes\n"
    );
    let _ = write!(
        out,
        ".SH SYNOPSIS\n.B sanduk\nCOMMAND [FLAGS]\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
        roff(ABOUT)
    );
    for c in COMMANDS.iter().filter(|c| c.built) {
        let line = format!("{} {}", c.name, c.operands);
        let _ = write!(out, ".TP\n.B {}\n{}.\n", roff(line.trim_end()), roff(&capital(c.summary)));
    }
    out.push_str(".SH FLAGS\n");
    for f in FLAGS.iter().filter(|f| f.built) {
        let _ = write!(out, ".TP\n.B {}\n({}) {}\n", roff(&spelling(f)), f.on.join(", "), roff(f.doc));
    }
    out.push_str(".SH EXIT STATUS\n");
    for (code, what) in EXIT_CODES {
        let _ = write!(out, ".TP\n.B {code}\n{}\n", roff(what));
    }
    out
}

/// A line of text for roff: a backslash and a hyphen have meanings there, and so has a leading dot or quote.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// `sanduk completions SHELL`; `None`: no such shell.
pub fn completions(shell: &str) -> Option<String> {
    let names: Vec<&str> = COMMANDS.iter().filter(|c| c.built).map(|c| c.name).collect();
    match shell {
        "bash" => Some(bash(&names)),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

fn longs(command: &str) -> Vec<String> {
    FLAGS.iter().filter(|f| f.built && f.on.contains(&command)).map(|f| format!("--{}", f.long)).collect()
}

fn bash(names: &[&str]) -> String {
    let mut out = String::from("_sanduk() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=\n");
    let _ = writeln!(
        out,
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"{}\"; else\n  case ${{COMP_WORDS[1]}} in",
        names.join(" ")
    );
    for c in COMMANDS.iter().filter(|c| c.built) {
        let operands = if c.operands.contains('|') { c.operands.replace('|', " ") } else { String::new() };
        let _ = writeln!(out, "    {}) words=\"{} {}\";;", c.name, operands, longs(c.name).join(" "));
    }
    out.push_str(
        "  esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\") $(compgen -f -- \"$cur\"))\n}\n",
    );
    out.push_str("complete -o filenames -F _sanduk sanduk\n");
    out
}

fn zsh() -> String {
    let mut out = String::from("#compdef sanduk\nlocal -a cmds\nif (( CURRENT == 2 )); then\n  cmds=(\n");
    for c in COMMANDS.iter().filter(|c| c.built) {
        let _ = writeln!(out, "    '{}:{}'", c.name, c.summary.replace('\'', ""));
    }
    out.push_str("  )\n  _describe command cmds\n  return\nfi\ncase $words[2] in\n");
    for c in COMMANDS.iter().filter(|c| c.built && !longs(c.name).is_empty()) {
        let _ = writeln!(out, "  {}) _arguments \\", c.name);
        for f in FLAGS.iter().filter(|f| f.built && f.on.contains(&c.name)) {
            let doc = f.doc.replace(['\'', '[', ']', ':', '`'], "");
            let value = if f.value.is_empty() { "" } else { "=:value:_files" };
            let star = if f.repeat { "*" } else { "" };
            let _ = writeln!(
                out,
                "    '{star}--{}{}[{doc}]' \\",
                f.long,
                if value.is_empty() { "" } else { "=" }
            );
        }
        out.push_str("    '*:file:_files';;\n");
    }
    out.push_str("esac\n");
    out
}

fn fish() -> String {
    let mut out = String::new();
    for c in COMMANDS.iter().filter(|c| c.built) {
        let doc = c.summary.replace('\'', "");
        let _ = writeln!(out, "complete -c sanduk -n __fish_use_subcommand -f -a {} -d '{doc}'", c.name);
    }
    for f in FLAGS.iter().filter(|f| f.built) {
        let short = f.short.map(|s| format!(" -s {s}")).unwrap_or_default();
        let value = if f.value.is_empty() { "" } else { " -r" };
        let doc = f.doc.replace('\'', "");
        let _ = writeln!(
            out,
            "complete -c sanduk -n '__fish_seen_subcommand_from {}' -l {}{short}{value} -d '{doc}'",
            f.on.join(" "),
            f.long
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_flag_is_in_help_man_and_completions() {
        let man = man("0");
        for f in FLAGS.iter().filter(|f| f.built) {
            assert!(man.contains(&roff(&format!("--{}", f.long))), "{}", f.long);
            for on in f.on {
                let c = crate::cli::table::command(on).unwrap();
                assert!(command(c).contains(&format!("--{}", f.long)));
            }
            for shell in ["bash", "zsh", "fish"] {
                assert!(completions(shell).unwrap().contains(f.long), "{shell} {}", f.long);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, f) in FLAGS.iter().enumerate() {
            for other in FLAGS.iter().skip(i + 1) {
                let shared = f.on.iter().any(|on| other.on.contains(on));
                assert!(!(shared && f.long == other.long), "{}", f.long);
            }
        }
    }
}
