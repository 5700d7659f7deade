//! The one table of commands and flags. `parse` reads by it; `--help`, the man page and the shell completions are printed from it, so
//! none of them can say what the others do not. Holds no code.

/// A command as typed after `sanduk`.
pub struct Command {
    /// The word.
    pub name: &'static str,
    /// What follows it, for the synopsis.
    pub operands: &'static str,
    /// One clause for lists.
    pub summary: &'static str,
    /// False: parsed and shown, but answers "not built yet" (exit 2).
    pub built: bool,
}

/// A flag of one or more commands.
pub struct Flag {
    /// Without the dashes.
    pub long: &'static str,
    /// One letter, where there is one.
    pub short: Option<char>,
    /// Placeholder of its value; empty: it takes none.
    pub value: &'static str,
    /// Commands that take it.
    pub on: &'static [&'static str],
    /// May stand more than once.
    pub repeat: bool,
    /// False: answers "not built yet" (exit 2).
    pub built: bool,
    /// One sentence or two.
    pub doc: &'static str,
}

const fn built(name: &'static str, operands: &'static str, summary: &'static str) -> Command {
    Command { name, operands, summary, built: true }
}

const fn later(name: &'static str, operands: &'static str, summary: &'static str) -> Command {
    Command { name, operands, summary, built: false }
}

/// In the order of `--help`.
pub const COMMANDS: &[Command] = &[
    built("run", "[TASK]", "run an agent in a disposable box"),
    built("relay", "", "the key-holding relay alone, in the foreground"),
    built("stunnel-conf", "PROVIDER", "print what a stunnel for --tls must be told"),
    built("list", "agents|providers|runtimes", "what can be named on a command line"),
    built("build", "", "build an agent's image"),
    built("shell", "", "interactive shell in that image"),
    built("ps", "", "list boxes"),
    built("stop", "", "stop boxes that no live run owns, leaving them on disk"),
    built("clean", "", "remove boxes that no live run owns"),
    built("destroy", "", "clean, plus image and network"),
    built("system", "status", "whether the engine is ready"),
    later("assistant", "add|list|show|enable|disable", "scheduled assistants"),
    later("tell", "NAME TEXT", "queue a message for an assistant"),
    later("tick", "", "run every assistant that is due, once"),
    later("serve", "", "tick on a loop, in the foreground"),
    later("outbox", "", "what assistants have produced"),
    later("approve", "ID", "release a result for delivery"),
    later("reject", "ID", "keep a result from ever being sent"),
    later("runs", "", "wakeup history"),
    later("orchestrator", "", "one box per task, behind a web page"),
    built("doctor", "", "what this host gives"),
    built("attest", "", "try every way out of a sealed box"),
    built(
        "audit",
        "verify|show|explain LOG [LINE]",
        "does a call log hold, what stands in it, why was a call refused",
    ),
    built("completions", "bash|zsh|fish", "print completions for a shell"),
    built("man", "", "print the man page"),
    built("version", "", "print the version"),
    built("help", "[COMMAND]", "print help"),
];

const RUN: &[&str] = &["run"];
const BOTH: &[&str] = &["run", "relay"];
const RELAY: &[&str] = &["relay"];
const BUILD: &[&str] = &["build"];
const RUN_BUILD: &[&str] = &["run", "build", "shell", "destroy"];
const PS: &[&str] = &["ps"];
const REMOVE: &[&str] = &["stop", "clean", "destroy"];
const DOCTOR: &[&str] = &["doctor"];
const ATTEST: &[&str] = &["attest"];
const SHELL: &[&str] = &["shell"];
const AUDIT: &[&str] = &["audit"];
const STUNNEL: &[&str] = &["stunnel-conf"];
const CALLS: &[&str] = &["run", "relay", "stunnel-conf"];

const fn flag(
    long: &'static str,
    value: &'static str,
    on: &'static [&'static str],
    doc: &'static str,
) -> Flag {
    Flag { long, short: None, value, on, repeat: false, built: true, doc }
}

const fn short(letter: char, flag: Flag) -> Flag {
    Flag { short: Some(letter), ..flag }
}

const fn many(flag: Flag) -> Flag {
    Flag { repeat: true, ..flag }
}

const fn soon(long: &'static str, value: &'static str, doc: &'static str) -> Flag {
    Flag { long, short: None, value, on: RUN, repeat: true, built: false, doc }
}

/// In the order of `--help`.
pub const FLAGS: &[Flag] = &[
    flag("task-file", "FILE", RUN, "Read the task from FILE instead of the command line."),
    short(
        'w',
        flag(
            "workdir",
            "DIR",
            RUN,
            "Directory the agent works in, mounted at /work. Default ./work, made if missing.",
        ),
    ),
    many(flag(
        "mount",
        "HOST:DEST[:ro]",
        RUN,
        "Another host directory in the box, writable unless :ro. DEST may not be at or below /work.",
    )),
    many(flag("mask", "PATH", RUN, "Hide a file or directory of the work directory from the box.")),
    short('o', flag("report", "FILE", RUN, "Copy REPORT.md there after the run.")),
    flag("stats-file", "FILE", RUN, "Write the outcome there as JSON."),
    flag(
        "timeout",
        "TIME",
        RUN,
        "End the run after this long: seconds, or a number with s, m, h or d. Default 15m, at most 7d.",
    ),
    flag(
        "agent",
        "NAME",
        RUN_BUILD,
        "The agent: see `sanduk list agents`. Default claude; for a run mini where the provider speaks nothing that claude speaks.",
    ),
    flag("provider", "NAME", BOTH, "The model provider: see `sanduk list providers`. Default anthropic."),
    flag("model", "ID", RUN, "The model the agent asks for."),
    flag("max-turns", "N", RUN, "Model calls the agent may make."),
    flag("effort", "LEVEL", RUN, "Reasoning effort: claude takes low, medium, high, xhigh or max."),
    flag(
        "permission-mode",
        "MODE",
        RUN,
        "Claude Code's: acceptEdits, dontAsk, plan and so on. Default: no tool asks, the box is the boundary.",
    ),
    flag("allowed-tools", "LIST", RUN, "Tools that run without asking in Claude Code's --permission-mode."),
    flag(
        "bare",
        "",
        RUN,
        "Claude Code's minimal mode: a short system prompt, nothing looked for but the task.",
    ),
    flag(
        "mode",
        "MODE",
        BOTH,
        "sealed (default): no network. key-safe: a network, the key outside. open: the key in the box. On bwrap only sealed.",
    ),
    flag(
        "runtime",
        "NAME",
        RUN,
        "The engine: docker or bwrap. Default docker where its command line is on PATH, else bwrap.",
    ),
    flag("image", "TAG", RUN, "Image of the box, on docker. Default the agent's own: see `sanduk build`."),
    flag("cpus", "N", RUN, "Processors of the box, on docker. Default 4, never more than the host has."),
    flag("memory", "SIZE", RUN, "Memory of the box with its /tmp and home, on docker. Default 4g."),
    many(flag("env", "NAME=VALUE", RUN, "A variable for the agent. It may not override the run's own.")),
    flag("network", "NAME", RUN, "Network of the box, in open mode. Default the engine's own."),
    flag(
        "base-url",
        "URL",
        RUN,
        "What the agent is pointed at in open mode, path and all. Default the provider's.",
    ),
    flag("as-root", "", RUN, "Let the agent be uid 0 where root owns the work directory, on docker."),
    many(flag("allow-model", "ID", BOTH, "Let only this model be asked for. Repeat for more.")),
    flag(
        "allow-server-tools",
        "",
        BOTH,
        "Let the provider run its own tools for the agent: web search and fetch, code execution. Sealed mode refuses them.",
    ),
    many(flag(
        "allow-field",
        "NAME",
        BOTH,
        "Let a request field, type, header value or query pass that sealed mode refuses, named as the refusal names it.",
    )),
    flag("max-tokens-cap", "N", BOTH, "Upper bound for the output length any call may ask for."),
    flag(
        "budget",
        "DOLLARS",
        BOTH,
        "End the run when its calls have cost that much, such as 2.50: by what the provider reports (openrouter), else by --prices.",
    ),
    flag(
        "budget-mode",
        "MODE",
        BOTH,
        "after (default): one call at a time, the last one crosses. strict: no call passes that could cross; needs --max-tokens-cap and sealed mode.",
    ),
    flag("prices", "FILE", BOTH, "What models cost, read by you on a day: see PRICES in the README."),
    flag("max-calls", "N", BOTH, "Model calls the run may make; the next one ends it."),
    flag(
        "max-tokens-total",
        "N",
        BOTH,
        "Tokens all calls together may use, cached ones too; the next call ends the run.",
    ),
    flag("upstream", "URL", CALLS, "The provider's address as scheme://host[:port], without a path."),
    flag(
        "insecure-upstream",
        "",
        BOTH,
        "Allow plain http to another machine: the key crosses the network readable.",
    ),
    flag("ca-file", "FILE", CALLS, "Trust the certificates in FILE instead of the system's."),
    flag(
        "tls",
        "HOW",
        BOTH,
        "Who speaks TLS: openssl (default), or stunnel:unix:PATH, a stunnel of yours as `sanduk stunnel-conf` prints it.",
    ),
    flag("upstream-proxy", "URL", BOTH, "Reach an https provider through the proxy http://HOST:PORT."),
    flag("upstream-proxy-auth", "FILE", BOTH, "Read user:password for that proxy from FILE."),
    flag(
        "retry-for",
        "TIME",
        BOTH,
        "Ask an overloaded provider (429, 503, 529) again for so long before its answer goes on. Default 60s; 0: never.",
    ),
    flag("key-file", "FILE", BOTH, "Read the provider key from FILE."),
    flag("key-fd", "N", RUN, "Read the provider key from the open descriptor N."),
    many(flag(
        "secret-env",
        "NAME",
        BOTH,
        "Guard the value of this variable of the host (16 bytes or more): a request that holds it, also as base64 or in URL form, ends the run.",
    )),
    flag(
        "canary",
        "",
        RUN,
        "Plant made-up credentials in the box, in ~/.aws/credentials: a request that holds them ends the run.",
    ),
    flag("skip-key-check", "", RUN, "Do not ask the provider beforehand whether the key is good."),
    flag(
        "log-dir",
        "DIR",
        BOTH,
        "Keep calls.jsonl below DIR. Default for a run: beside its receipt; for relay: none.",
    ),
    flag(
        "log-bodies",
        "",
        BOTH,
        "Keep whole request and answer bodies beside the log, in bodies/, by digest. They hold all that the agent read.",
    ),
    flag("no-report-instruction", "", RUN, "Do not ask the agent to write REPORT.md."),
    flag("dry-run", "", RUN, "Print what would be started and handed over, secrets masked. Changes nothing."),
    short('q', flag("quiet", "", BOTH, "No trace and no progress; errors and the result only.")),
    flag("keep", "", RUN, "Leave the box stopped instead of removing it, on docker."),
    flag("proxy", "", RUN, "Old spelling of --mode sealed."),
    flag("listen", "tcp:HOST:PORT|unix:PATH", RELAY, "Where to listen."),
    flag("listen", "unix:PATH", STUNNEL, "Where it is to listen. Default below /run."),
    flag("token-file", "FILE", RELAY, "The token that clients present in the provider's credential header."),
    many(flag("host", "NAME", RELAY, "A value a request's Host may have. Default: the address listened on.")),
    flag("image", "TAG", BUILD, "The image's tag. Default sanduk-AGENT:VERSION."),
    flag(
        "containerfile",
        "FILE",
        BUILD,
        "Build FILE instead of the agent's own Containerfile; needs --image.",
    ),
    flag(
        "base",
        "IMAGE",
        BUILD,
        "What the image starts from. Default: what `make image-base` made, else debian:bookworm-slim.",
    ),
    flag("force", "", BUILD, "Build although the image is there, from nothing of an earlier build."),
    flag("image", "TAG", SHELL, "The image, where it is not the agent's own."),
    flag("json", "", PS, "As JSON: an array, one object a box."),
    flag("runtime", "NAME", ATTEST, "The engine: docker or bwrap. Default as for a run."),
    flag("image", "TAG", ATTEST, "Image of the box, on docker. Default Claude Code's or mini's."),
    flag("json", "", DOCTOR, "As JSON: an object with a list of lines."),
    flag("json", "", ATTEST, "The verdict as JSON: see audit/ATTEST.md."),
    flag(
        "hole",
        "KIND",
        ATTEST,
        "Make a hole on purpose, to see that it is found: bridge (a network), socket (an engine's), key (in environment and file), \
         port (the host's network). Only in the throw-away box, with a made-up key.",
    ),
    flag("json", "", AUDIT, "verify: the finding as JSON. show: the records as they are, a line each."),
    flag(
        "receipt",
        "FILE",
        AUDIT,
        "verify: the run's receipt.json or --stats-file; head and count must be the log's.",
    ),
    flag("bodies", "DIR", AUDIT, "verify: where --log-bodies kept them. Default bodies beside LOG."),
    flag("call", "N", AUDIT, "explain: this call."),
    flag("all", "", REMOVE, "Also the boxes of live runs: those are ended, as by SIGTERM."),
    soon("containerfile", "FILE", "Containerfile of the image."),
    soon("rebuild", "", "Build the image first."),
    soon("oci-runtime", "NAME", "OCI runtime of the engine."),
    soon("agent-key-env", "NAME", "Variable the agent reads its key from."),
    soon("agent-base-url-env", "NAME", "Variable the agent reads its endpoint from."),
    soon("proxy-network", "NAME", "Network of relayed boxes."),
    soon("proxy-port", "N", "Port of the relay."),
    soon("proxy-allow-path", "PATH", "Paths the relay forwards."),
    soon("profile", "NAME", "coding or general."),
    soon("channel", "KIND", "How box and relay are joined."),
    soon("recipe", "NAME", "A recipe."),
    soon("kit", "NAME", "A kit."),
];

/// The command of that name.
pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|c| c.name == name)
}

/// The flag of that name on that command.
pub fn long(on: &str, name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|f| f.long == name && f.on.contains(&on))
}

/// The flag of that letter on that command.
pub fn letter(on: &str, letter: char) -> Option<&'static Flag> {
    FLAGS.iter().find(|f| f.short == Some(letter) && f.on.contains(&on))
}
