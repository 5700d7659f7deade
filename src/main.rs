//! Chooses the role, prints one error line, gives the exit code. What a person typed becomes a typed value here and goes to its
//! layer; nothing else is decided.

use sanduk::catalog::providers::{Protocol, Provider};
use sanduk::catalog::{agents, images, providers};
use sanduk::cli::parse::{self, Given};
use sanduk::cli::{pages, table};
use sanduk::error::{Error, Exit};
use sanduk::prove::{attest, audit, doctor};
use sanduk::relay::caps;
use sanduk::relay::foreground::{Foreground, Listen, foreground};
use sanduk::relay::start::Grants;
use sanduk::relay::stunnel;
use sanduk::relay::upstream::{Ways, parse_upstream, reach};
use sanduk::run::asked::Asked;
use sanduk::run::{boxes, guarded, image, key, life, shell, spec};
use sanduk::sys::{env, exec, proc};
use sanduk::wire::text;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "ENV-80 the command line")]
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    proc::owners_umask();
    match role(&args) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            // A closed standard error is no reason to fail differently.
            let line = text::escaped(&error.to_string());
            let _ = writeln!(std::io::stderr(), "sanduk: {line}");
            ExitCode::from(error.exit().code())
        }
    }
}

/// The roles a person never types come first: each is a re-execution of this binary (`audit/MAP.md`).
fn role(args: &[OsString]) -> Result<Exit, Error> {
    match args.first().and_then(|a| a.to_str()) {
        Some("inside") if args.len() == 2 => sanduk::inside::start::role(Path::new(&args[1])),
        Some("mini") if args.len() == 1 => sanduk::inside::mini::agent::role(),
        Some("probe") if args.len() == 1 => sanduk::inside::probe::start::role(),
        Some("attest-box") if args.len() == 1 => sanduk::prove::boxes::role(),
        Some("keeper") if args.len() == 1 => sanduk::run::keeper::role(),
        Some("relay-role") if args.len() == 1 => sanduk::relay::start::role(),
        _ => command(args),
    }
}

/// What a person typed.
fn command(args: &[OsString]) -> Result<Exit, Error> {
    // Before anything else, while there is one thread: no key stays in `/proc/self/environ`.
    let mut keys = key::take_from_environment();
    let given = parse::parse(args)?;
    if given.help {
        return print(&pages::command(given.command));
    }
    match given.command.name {
        "run" => {
            let env = env::read();
            let (spec, from) = spec::Spec::from(asked(&given)?, &env)?;
            let named = guarded::take(&given.values("secret-env"), &from, &mut keys)?;
            let key = key::find(&from, keys, spec.provider.key_required && !spec.dry_run)?;
            life::run(spec, key.beside(named), &env)
        }
        "relay" => foreground(relay(&given, &mut keys)?),
        "stunnel-conf" => print(&stunnel_conf(&given)?),
        "build" => image::build(&build(&given)?, &env::read()),
        "attest" => attest(&given),
        "doctor" => doctor(&given, &keys),
        "audit" => audit::audit(&audit::Asked {
            operands: given.operands.clone(),
            receipt: given.value("receipt").map(PathBuf::from),
            bodies: given.value("bodies").map(PathBuf::from),
            json: given.has("json"),
            call: given.number("call")?,
        }),
        "ps" => {
            no_operand(&given)?;
            print(&boxes::Boxes::find(&env::read())?.list(given.has("json")))
        }
        "stop" => no_operand(&given).and_then(|()| boxes::Boxes::find(&env::read())?.stop(given.has("all"))),
        "clean" => {
            no_operand(&given).and_then(|()| boxes::Boxes::find(&env::read())?.clean(given.has("all")))
        }
        "destroy" => {
            no_operand(&given)?;
            boxes::Boxes::find(&env::read())?.destroy(given.has("all"), agent_of(&given)?)
        }
        "shell" => {
            no_operand(&given)?;
            shell::shell(agent_of(&given)?, given.value("image"), &env::read())
        }
        "system" => match operand(&given)? {
            Some("status") => print(&shell::status(&env::read())),
            Some(word @ ("start" | "stop")) => {
                Err(Error::wrong("do", format!("system {word}"), "docker is managed outside sanduk")
                    .remedy(format!("sudo systemctl {word} docker")))
            }
            _ => Err(Error::wrong("read", "the command line", "say what: system status")),
        },
        "list" => print(&list(&given)?),
        "man" => no_operand(&given).and_then(|()| print(&pages::man(VERSION))),
        "version" => no_operand(&given).and_then(|()| print(&format!("sanduk {VERSION}\n"))),
        "completions" => {
            let shell = operand(&given)?.unwrap_or_default();
            let text = pages::completions(shell)
                .ok_or_else(|| Error::wrong("print", "completions", "the shells are bash, zsh and fish"))?;
            print(&text)
        }
        _ => match operand(&given)?.map(|name| table::command(name).ok_or(name)) {
            None => print(&pages::overview()),
            Some(Ok(found)) => print(&pages::command(found)),
            Some(Err(name)) => Err(Error::wrong("print", "help", format!("{name} is not a command"))),
        },
    }
}

/// `sanduk doctor`: exit 4 where a sealed run would work on no engine.
fn doctor(given: &Given, keys: &key::Taken) -> Result<Exit, Error> {
    no_operand(given)?;
    let answer = doctor::doctor(keys, &env::read());
    print(&if given.has("json") { answer.json() } else { answer.table() })?;
    Ok(if answer.engines.is_empty() { Exit::Engine } else { Exit::Ok })
}

/// `sanduk attest`: exit 3 where something is open, 1 where something that could be was not tried.
fn attest(given: &Given) -> Result<Exit, Error> {
    no_operand(given)?;
    let text = |flag| given.value(flag).map(str::to_string);
    let wanted = attest::Wanted { runtime: text("runtime"), image: text("image"), hole: text("hole") };
    let answer = attest::attest(&wanted, &env::read())?;
    print(&if given.has("json") { answer.json() } else { answer.table() })?;
    Ok(answer.exit())
}

/// `--agent` of a command about its image.
fn agent_of(given: &Given) -> Result<&str, Error> {
    let agent = given.value("agent").unwrap_or("claude");
    match images::shipped(agent) {
        Some(_) => Ok(agent),
        None => {
            let known = images::names().join(", ");
            Err(Error::wrong(
                "find",
                format!("an image for agent {agent}"),
                format!("there is one for {known}"),
            ))
        }
    }
}

/// The one operand a command may have.
fn operand(given: &Given) -> Result<Option<&str>, Error> {
    match given.operands.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [_, more, ..] => {
            let why = format!("{more} is one word too many; quote a text with spaces");
            Err(Error::wrong("read", "the command line", why))
        }
    }
}

fn asked(given: &Given) -> Result<Asked, Error> {
    let text = |flag| given.value(flag).map(str::to_string);
    Ok(Asked {
        task: operand(given)?.map(str::to_string),
        task_file: text("task-file"),
        workdir: text("workdir"),
        mounts: given.values("mount"),
        masks: given.values("mask"),
        report: text("report"),
        stats_file: text("stats-file"),
        timeout: text("timeout"),
        agent: text("agent"),
        provider: text("provider"),
        model: text("model"),
        max_turns: given.number("max-turns")?,
        effort: text("effort"),
        permission_mode: text("permission-mode"),
        allowed_tools: text("allowed-tools"),
        bare: given.has("bare"),
        mode: text("mode"),
        proxy: given.has("proxy"),
        runtime: text("runtime"),
        allow_models: given.values("allow-model"),
        max_tokens_cap: given.number("max-tokens-cap")?,
        caps: caps_of(given)?,
        allow_server_tools: given.has("allow-server-tools"),
        allow_fields: given.values("allow-field"),
        upstream: text("upstream"),
        insecure_upstream: given.has("insecure-upstream"),
        ca_file: text("ca-file"),
        tls: text("tls"),
        upstream_proxy: text("upstream-proxy"),
        upstream_proxy_auth: text("upstream-proxy-auth"),
        retry_for: text("retry-for"),
        key_file: text("key-file"),
        key_fd: given.number("key-fd")?,
        skip_key_check: given.has("skip-key-check"),
        secret_env: given.values("secret-env"),
        canary: given.has("canary"),
        log_dir: text("log-dir"),
        log_bodies: given.has("log-bodies"),
        no_report_instruction: given.has("no-report-instruction"),
        dry_run: given.has("dry-run"),
        quiet: given.has("quiet"),
        keep: given.has("keep"),
        image: text("image"),
        cpus: text("cpus"),
        memory: text("memory"),
        env: given.values("env"),
        as_root: given.has("as-root"),
        network: text("network"),
        base_url: text("base-url"),
    })
}

fn caps_of(given: &Given) -> Result<caps::Asked, Error> {
    let text = |flag| given.value(flag).map(str::to_string);
    Ok(caps::Asked {
        budget: text("budget"),
        mode: text("budget-mode"),
        prices: text("prices"),
        max_calls: given.number("max-calls")?,
        max_tokens_total: given.number("max-tokens-total")?,
    })
}

fn build(given: &Given) -> Result<image::Asked, Error> {
    no_operand(given)?;
    let text = |flag| given.value(flag).map(str::to_string);
    Ok(image::Asked {
        agent: text("agent"),
        base: text("base"),
        image: text("image"),
        containerfile: text("containerfile"),
        force: given.has("force"),
    })
}

fn no_operand(given: &Given) -> Result<(), Error> {
    match given.operands.first() {
        None => Ok(()),
        Some(word) => {
            let why = format!("`sanduk {}` takes no operand, not {word}", given.command.name);
            Err(Error::wrong("read", "the command line", why))
        }
    }
}

fn relay(given: &Given, keys: &mut key::Taken) -> Result<Foreground, Error> {
    no_operand(given)?;
    let needed = |flag: &'static str, form: &str| {
        given
            .value(flag)
            .ok_or_else(|| Error::wrong("start", "the relay", format!("--{flag} is required")).remedy(form))
    };
    let provider = provider(given.value("provider").unwrap_or("anthropic"))?;
    let url = given.value("upstream").unwrap_or(&provider.upstream);
    let mut upstream = parse_upstream(url, given.has("insecure-upstream"))?;
    let ways = Ways {
        tls: given.value("tls"),
        proxy: given.value("upstream-proxy"),
        proxy_auth: given.has("upstream-proxy-auth"),
        ca_file: given.has("ca-file"),
        retry_for: given.value("retry-for"),
    };
    reach(&mut upstream, &ways)?;
    upstream.ca_file = given.value("ca-file").map(str::to_string);
    let grants = grants(given)?;
    // No variable is this relay's key: it comes from its file.
    let from = key::From::File(PathBuf::new());
    Ok(Foreground {
        named: guarded::take(&given.values("secret-env"), &from, keys)?,
        caps: caps::settle(&caps_of(given)?, &provider, &grants, None)?,
        listen: listen(needed("listen", "give --listen tcp:127.0.0.1:8080 or --listen unix:PATH")?)?,
        token_file: PathBuf::from(needed("token-file", "put a long random token into a file and name it")?),
        key_file: given.value("key-file").map(PathBuf::from),
        proxy_auth: given.value("upstream-proxy-auth").map(PathBuf::from),
        hosts: given.values("host"),
        grants,
        log_dir: given.value("log-dir").map(PathBuf::from),
        log_bodies: with_log(given)?,
        quiet: given.has("quiet"),
        provider,
        upstream,
    })
}

fn provider(name: &str) -> Result<Provider, Error> {
    providers::shipped(name).ok_or_else(|| {
        let known = providers::names().join(", ");
        Error::wrong("find", format!("provider {name}"), format!("the providers are {known}"))
    })
}

/// `sanduk stunnel-conf PROVIDER`.
fn stunnel_conf(given: &Given) -> Result<String, Error> {
    let name = operand(given)?
        .ok_or_else(|| Error::wrong("print", "stunnel's configuration", "name the provider"))?;
    let [url, ca_file, listen] = ["upstream", "ca-file", "listen"].map(|flag| given.value(flag));
    stunnel::print(&provider(name)?, url, ca_file, listen)
}

/// `tcp:HOST:PORT` with an address, not a name: what is bound must not depend on a resolver; or `unix:PATH`.
fn listen(text: &str) -> Result<Listen, Error> {
    let bad = |why: &str| Error::wrong("take", format!("--listen {text}"), why);
    match text.split_once(':') {
        Some(("tcp", address)) => {
            let address =
                address.parse().map_err(|_| bad("it must be tcp:ADDRESS:PORT, IPv6 in brackets"))?;
            Ok(Listen::Tcp(address))
        }
        Some(("unix", path)) if !path.is_empty() => Ok(Listen::Unix(PathBuf::from(path))),
        _ => Err(bad("it must be tcp:ADDRESS:PORT or unix:PATH")),
    }
}

/// `--log-bodies` of `sanduk relay`.
fn with_log(given: &Given) -> Result<bool, Error> {
    match given.has("log-bodies") {
        true if !given.has("log-dir") => {
            Err(Error::wrong("take", "--log-bodies", "bodies are kept beside the log")
                .remedy("give --log-dir"))
        }
        given => Ok(given),
    }
}

/// The policy of `sanduk relay`. What lifts a refusal of sealed mode has no effect in the other.
fn grants(given: &Given) -> Result<Grants, Error> {
    let grants = Grants {
        sealed: sealed(given)?,
        allow_models: given.values("allow-model"),
        max_tokens_cap: given.number("max-tokens-cap")?,
        allow_server_tools: given.has("allow-server-tools"),
        allow_fields: given.values("allow-field"),
    };
    let idle = ["allow-server-tools", "allow-field"].into_iter().find(|f| !grants.sealed && given.has(f));
    match idle {
        Some(flag) => Err(Error::wrong(
            "take",
            format!("--{flag}"),
            "in key-safe mode it has no effect: nothing of the kind is refused",
        )),
        None => Ok(grants),
    }
}

fn sealed(given: &Given) -> Result<bool, Error> {
    match given.value("mode").unwrap_or("sealed") {
        "sealed" => Ok(true),
        "key-safe" => Ok(false),
        other => {
            Err(Error::wrong("take", format!("--mode {other}"), "a relay's modes are sealed and key-safe"))
        }
    }
}

/// `sanduk list agents|providers|runtimes`: one line each, columns by spaces.
fn list(given: &Given) -> Result<String, Error> {
    let mut out = String::new();
    match operand(given)? {
        Some("agents") => {
            for agent in agents::names().into_iter().filter_map(agents::shipped) {
                let mut spoken: Vec<&str> = agent.protocols.iter().map(|p| word(*p)).collect();
                spoken.sort();
                out.push_str(&format!("{:<9} {}\n", agent.name, spoken.join(",")));
            }
        }
        Some("providers") => {
            for p in providers::names().into_iter().filter_map(providers::shipped) {
                let key = if p.key_required { p.key_variable.as_str() } else { "(no key needed)" };
                out.push_str(&format!(
                    "{:<14} {:<36} {key}\n",
                    p.name,
                    format!("{}{}", p.upstream, p.prefix)
                ));
            }
        }
        Some("runtimes") => {
            let path = env::read().path;
            let mut default = true;
            for name in ["docker", "bwrap"] {
                let there = exec::find(name, &path).is_some();
                let state = if there { "installed" } else { "not installed" };
                let mark = if there && std::mem::take(&mut default) { "default" } else { "" };
                out.push_str(format!("{name:<8} {name:<12} {state:<13} {mark}").trim_end());
                out.push('\n');
            }
        }
        _ => return Err(Error::wrong("list", "", "say what: agents, providers or runtimes")),
    }
    Ok(out)
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Messages => "anthropic-messages",
        Protocol::Responses => "openai-responses",
        Protocol::Chat => "openai-chat",
        Protocol::CountTokens | Protocol::Plain => "",
    }
}

/// To standard output; a closed pipe is an error line, never a panic.
fn print(text: &str) -> Result<Exit, Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::new(Exit::Failed, "write", "to standard output", e))?;
    Ok(Exit::Ok)
}
