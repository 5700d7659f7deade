//! `sanduk doctor`: what this host gives a sealed run, a line each, with the consequence where something lacks and what to do about it.
//! Changes nothing, starts no box. Called by `main`; the lines about engines are in `engines`.

use crate::limits;
use crate::prove::engines;
use crate::relay::{tls, upstream};
use crate::run::key::Taken;
use crate::sys::env::Env;
use crate::sys::file::{self, Dir};
use crate::sys::{confine, proc};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// A run works, with less around it.
    Weaker,
    /// What needs it does not work.
    Missing,
}

/// One line.
#[derive(Debug, Serialize)]
pub struct Line {
    /// What was looked at.
    pub what: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub got: String,
    /// What follows from it; empty where all is well.
    pub so: String,
    /// What to do; empty where nothing can or need be done.
    pub remedy: String,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Version of this JSON.
    pub schema: u32,
    /// This program's.
    pub version: &'static str,
    /// A sealed run would work on these.
    pub engines: Vec<&'static str>,
    /// In the order of the table.
    pub lines: Vec<Line>,
}

impl Line {
    /// All is well.
    pub fn ok(what: &'static str, got: impl Into<String>) -> Line {
        Line { what, state: State::Ok, got: got.into(), so: String::new(), remedy: String::new() }
    }

    /// Not all is.
    pub fn bad(
        what: &'static str,
        state: State,
        got: impl Into<String>,
        so: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Line {
        Line { what, state, got: got.into(), so: so.into(), remedy: remedy.into() }
    }
}

/// Looks at everything. `keys`: what `main` took out of the environment.
pub fn doctor(keys: &Taken, env: &Env) -> Answer {
    let (docker, docker_works) = engines::docker(env);
    let (bwrap, bwrap_works) = engines::bwrap(env);
    let seccomp = seccomp();
    let state = state(env);
    let room = room(env);
    let needed = [&seccomp, &state, &room].iter().all(|l| l.state != State::Missing);
    let mut lines = vec![kernel()];
    lines.extend(landlock());
    lines.extend([seccomp, namespaces(), groups(), pidfd()]);
    lines.extend(docker);
    lines.extend(bwrap);
    lines.extend(engines::podman(env));
    lines.extend([openssl(), authorities(), clock(), state, room, user(), provider_keys(keys)]);
    let works = [("docker", docker_works), ("bwrap", bwrap_works)];
    let engines = works.into_iter().filter(|(_, works)| *works && needed).map(|(name, _)| name).collect();
    Answer { schema: 1, version: env!("CARGO_PKG_VERSION"), engines, lines }
}

/// A small file of the kernel's; empty where it is not there.
pub fn read(path: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "FILE-190 doctor: what the kernel says of itself")]
    let bytes = file::read_named(Path::new(path), limits::PROBE_FILE).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

/// What is at a path.
pub fn facts(path: &Path) -> std::io::Result<file::Facts> {
    #[expect(clippy::disallowed_methods, reason = "FILE-191 doctor: what programs and directories are")]
    file::facts(path)
}

fn kernel() -> Line {
    Line::ok("kernel", read("/proc/sys/kernel/osrelease"))
}

/// One line for each rule: they came with different kernels.
fn landlock() -> Vec<Line> {
    let abi = match confine::landlock_abi() {
        Ok(n) => n,
        Err(e) => {
            let so = "the relay's files are held by its uid and the socket filter alone";
            let remedy = "Linux 5.13 or newer with landlock in lsm= (boot parameter)";
            return vec![Line::bad("landlock", State::Weaker, e.to_string(), so, remedy)];
        }
    };
    let mut lines = vec![Line::ok("landlock", format!("ABI {abi}: files"))];
    let rules = [
        (
            4,
            "landlock TCP",
            "ports the relay may connect to",
            "the relay could connect to any port",
            "Linux 6.7",
        ),
        (
            6,
            "landlock scope",
            "abstract sockets, signals",
            "abstract sockets and signals are held by the filter and the uid",
            "Linux 6.12",
        ),
    ];
    for (since, what, words, so, kernel) in rules {
        lines.push(match abi >= since {
            true => Line::ok(what, words),
            false => {
                Line::bad(what, State::Weaker, format!("not in ABI {abi}"), so, format!("{kernel} or newer"))
            }
        });
    }
    lines
}

fn seccomp() -> Line {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail");
    match actions.split(' ').any(|a| a == "errno") {
        true => Line::ok("seccomp", "filters"),
        false => Line::bad(
            "seccomp",
            State::Missing,
            "no filters",
            "no box and no relay can start",
            "a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

/// What bwrap needs; docker does not.
fn namespaces() -> Line {
    let what = "user namespaces";
    match engines::namespaces_off() {
        None => Line::ok(what, "for everybody"),
        Some((got, remedy)) => {
            Line::bad(what, State::Weaker, got, "bwrap makes no box for an ordinary user", remedy)
        }
    }
}

fn groups() -> Line {
    let what = "control groups";
    let two = read("/sys/fs/cgroup/cgroup.controllers");
    let (version, controllers) = match two.is_empty() {
        false => ("v2", two),
        true => {
            let text = read("/proc/cgroups");
            let rows = text.lines().skip(1).filter(|l| l.ends_with('1'));
            ("v1", rows.filter_map(|l| l.split_whitespace().next()).collect::<Vec<_>>().join(" "))
        }
    };
    let lacking: Vec<&str> =
        ["memory", "pids", "cpu"].into_iter().filter(|w| !controllers.split(' ').any(|c| c == *w)).collect();
    match lacking.is_empty() {
        true => Line::ok(what, format!("{version}: {controllers}")),
        false => Line::bad(
            what,
            State::Weaker,
            format!("{version}: {controllers}"),
            format!("docker cannot hold a box to {}", lacking.join(", ")),
            "boot with the controllers switched on",
        ),
    }
}

fn pidfd() -> Line {
    match proc::has_pidfd() {
        true => Line::ok("pidfd", "there"),
        false => Line::bad(
            "pidfd",
            State::Weaker,
            "not in this kernel",
            "the end of a child is polled for",
            "Linux 5.3 or newer",
        ),
    }
}

fn openssl() -> Line {
    match upstream::openssl() {
        Ok(path) => Line::ok("openssl", format!("{}, {path}", tls::check_openssl(&path).unwrap_or_default())),
        Err(e) => Line::bad(
            "openssl",
            State::Weaker,
            e.to_string(),
            "no provider by https: only http on loopback works",
            "",
        ),
    }
}

fn authorities() -> Line {
    let what = "certificates";
    let dir = Path::new("/etc/ssl/certs");
    #[expect(clippy::disallowed_methods, reason = "FILE-192 doctor: the directory of authorities")]
    let count = Dir::open(dir).and_then(|d| d.names()).map_or(0, |names| names.len());
    match count {
        0 => Line::bad(
            what,
            State::Weaker,
            "/etc/ssl/certs is empty",
            "no https provider is believed without --ca-file",
            "apt install ca-certificates",
        ),
        n => Line::ok(what, format!("{n} entries in /etc/ssl/certs")),
    }
}

/// 2026-01-01 and 2100-01-01: before the first no release of this program existed.
const SANE: (u64, u64) = (1_767_225_600, 4_102_444_800);

fn clock() -> Line {
    let now = proc::now().as_secs();
    match (SANE.0..SANE.1).contains(&now) {
        true => Line::ok("clock", "plausible"),
        false => Line::bad(
            "clock",
            State::Weaker,
            format!("{now} seconds since 1970"),
            "certificates look expired or not yet valid",
            "set the clock",
        ),
    }
}

/// The nearest part of a path that exists.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|p| facts(p).is_ok()).unwrap_or(Path::new("/")).to_path_buf()
}

fn state(env: &Env) -> Line {
    let what = "state directory";
    let so = "no run can start: it keeps its record there";
    let Some(path) = env.state_home.as_ref().map(|h| h.join("sanduk")) else {
        return Line::bad(what, State::Missing, "neither XDG_STATE_HOME nor HOME is set", so, "set HOME");
    };
    let (shown, at) = (path.display(), nearest(&path));
    let is = match facts(&at) {
        Ok(is) => is,
        Err(e) => return Line::bad(what, State::Missing, format!("{shown}: {e}"), so, "set XDG_STATE_HOME"),
    };
    let me = proc::ids().0;
    let writable = me == 0 || (is.uid == me && is.mode & 0o300 == 0o300) || is.mode & 0o3 == 0o3;
    if !writable || is.mode & 0o170_000 != 0o040_000 {
        return Line::bad(
            what,
            State::Missing,
            format!("{} cannot be written", at.display()),
            so,
            "make it writable, or set XDG_STATE_HOME",
        );
    }
    if at == path && (is.uid != me || is.mode & 0o077 != 0) {
        return Line::bad(
            what,
            State::Weaker,
            format!("{shown}: mode {:o}, uid {}", is.mode & 0o7777, is.uid),
            "others may read records and call logs",
            format!("chmod 700 {shown}"),
        );
    }
    let kind = file_system(&at);
    if ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse"].iter().any(|k| kind == *k || kind.starts_with("fuse.")) {
        return Line::bad(
            what,
            State::Weaker,
            format!("{shown} on {kind}"),
            "locks there may not hold between hosts",
            "set XDG_STATE_HOME to a local file system",
        );
    }
    let made = if at == path { "" } else { ", not made yet" };
    Line::ok(what, format!("{shown} on {kind}{made}"))
}

/// Type of the file system that a path is on (proc(5), mountinfo).
fn file_system(path: &Path) -> String {
    let text = read("/proc/self/mountinfo");
    let mut best = (0, String::new());
    for line in text.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let point = left.split(' ').nth(4).unwrap_or_default();
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), right.split(' ').next().unwrap_or_default().to_string());
        }
    }
    best.1
}

/// Each box has a copy of this program in /tmp.
fn room(env: &Env) -> Line {
    let what = "disk";
    let state = env.state_home.as_deref().map(nearest).unwrap_or_else(|| "/".into());
    let mut words = Vec::new();
    for path in [Path::new("/tmp"), &state] {
        match file::free(path) {
            Ok(free) if free < limits::ROOM_LEAST => {
                return Line::bad(
                    what,
                    State::Missing,
                    format!("{} MiB free in {}", free >> 20, path.display()),
                    "a run cannot write its record or its copy of this program",
                    "make room",
                );
            }
            Ok(free) => words.push(format!("{} MiB in {}", free >> 20, path.display())),
            Err(e) => words.push(format!("{}: {e}", path.display())),
        }
    }
    Line::ok(what, format!("free: {}", words.join(", ")))
}

fn user() -> Line {
    match proc::ids().0 {
        0 => Line::ok("user", "root: boxes get the owner of the work directory, the relay a uid of its own"),
        uid => Line::bad(
            "user",
            State::Weaker,
            format!("uid {uid}"),
            "the relay has your uid: your other processes may look into openssl, which holds the key for a moment",
            "none needed on a machine of your own",
        ),
    }
}

/// Names only.
fn provider_keys(keys: &Taken) -> Line {
    match keys.names().as_slice() {
        [] => Line::bad(
            "provider keys",
            State::Weaker,
            "none in the environment",
            "a run needs --key-file, --key-fd or a systemd credential",
            "",
        ),
        names => Line::ok("provider keys", names.join(", ")),
    }
}

impl Answer {
    /// One object.
    pub fn json(&self) -> String {
        // Our own types: no map, no number that JSON has not.
        format!("{}\n", serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// For a person.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for line in &self.lines {
            let word = match line.state {
                State::Ok => "ok",
                State::Weaker => "weaker",
                State::Missing => "missing",
            };
            out.push_str(&format!(
                "{word:<8}{:<17} {}\n",
                line.what,
                crate::wire::text::short(&line.got, 300)
            ));
            for more in [&line.so, &line.remedy].into_iter().filter(|m| !m.is_empty()) {
                out.push_str(&format!("{:<25} {}\n", "", crate::wire::text::short(more, 300)));
            }
        }
        out.push_str(&match self.engines.as_slice() {
            [] => "\na sealed run would not work here\n".to_string(),
            engines => format!("\na sealed run works on {}\n", engines.join(" and ")),
        });
        out
    }
}
