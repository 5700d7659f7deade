//! The lines of `doctor` about engines: whether a sealed run would work on each. Called by `doctor`.

use crate::catalog::images;
use crate::engine::docker::remedy;
use crate::prove::doctor::{Line, State, facts, read};
use crate::run::daemon::{self, Daemon};
use crate::run::needs;
use crate::sys::env::Env;
use crate::sys::{exec, proc};

/// Docker: command line, daemon, what it adds or lacks, images. The flag: a sealed run would work.
pub fn docker(env: &Env) -> (Vec<Line>, bool) {
    let so = "no box on docker";
    let Some(program) = exec::find("docker", &env.path) else {
        let line =
            Line::bad("docker", State::Missing, "not on PATH", so, "install docker (the package docker.io)");
        return (vec![line], false);
    };
    let daemon = match Daemon::find(&program, &daemon::place(env)) {
        Ok(daemon) => daemon,
        Err(e) => return (vec![Line::bad("docker", State::Missing, e.to_string(), so, "")], false),
    };
    let version = match daemon.ask(&["version", "--format", "{{.Server.Version}}"]) {
        Ok(version) => version.trim().to_string(),
        Err(e) => {
            let words = e.to_string();
            let line = Line::bad(
                "docker",
                State::Missing,
                format!("{}: {words}", daemon.endpoint),
                so,
                remedy(&words),
            );
            return (vec![line], false);
        }
    };
    let mut lines =
        vec![Line::ok("docker", format!("{version} at {}, {}", daemon.endpoint, program.display()))];
    lines.extend(nature(&daemon));
    let (line, there) = docker_images(&daemon);
    lines.push(line);
    (lines, there)
}

/// What the daemon is made of: `docker info`.
fn nature(daemon: &Daemon) -> Option<Line> {
    let format = "{{.Driver}} {{.CgroupVersion}} {{.MemoryLimit}} {{.PidsLimit}} {{range .SecurityOptions}}{{.}} {{end}}";
    let said = daemon.ask(&["info", "--format", format]).ok()?;
    let words: Vec<&str> = said.split_whitespace().collect();
    let [driver, groups, memory, pids, options @ ..] = words.as_slice() else { return None };
    let has = |name: &str| options.iter().any(|o| o.starts_with(&format!("name={name}")));
    let mut got = format!("storage {driver}, control groups v{groups}");
    for name in ["apparmor", "seccomp", "selinux", "userns", "rootless"] {
        if has(name) {
            got.push_str(&format!(", {name}"));
        }
    }
    let what = "docker daemon";
    if has("userns") || has("rootless") {
        return Some(Line::bad(
            what,
            State::Weaker,
            got,
            "it maps uids: the box's user may not be the work directory's owner",
            "use a daemon without userns-remap",
        ));
    }
    let held = [("memory", *memory), ("processes", *pids)];
    let loose: Vec<&str> = held.iter().filter(|(_, v)| *v != "true").map(|(n, _)| *n).collect();
    Some(match loose.is_empty() {
        true => Line::ok(what, got),
        false => Line::bad(
            what,
            State::Weaker,
            got,
            format!("it cannot limit {}", loose.join(" and ")),
            "switch the controllers on",
        ),
    })
}

fn docker_images(daemon: &Daemon) -> (Line, bool) {
    let tags: Vec<String> = images::names().into_iter().map(images::tag).collect();
    let there: Vec<&str> =
        tags.iter().filter(|tag| daemon.image(tag, "").is_ok()).map(String::as_str).collect();
    match there.is_empty() {
        false => (Line::ok("docker images", there.join(", ")), true),
        true => {
            let line = Line::bad(
                "docker images",
                State::Missing,
                format!("none of {}", tags.join(", ")),
                "a run has nothing to run in, but for --image",
                "sanduk build",
            );
            (line, false)
        }
    }
}

/// bwrap. The flag: a sealed run would work.
pub fn bwrap(env: &Env) -> (Vec<Line>, bool) {
    let so = "no box on bwrap";
    let Some(program) = exec::find("bwrap", &env.path) else {
        return (
            vec![Line::bad("bwrap", State::Missing, "not on PATH", so, "install the package bubblewrap")],
            false,
        );
    };
    let version = match needs::bwrap_version(&program) {
        Ok(version) => version,
        Err(e) => return (vec![Line::bad("bwrap", State::Missing, e.to_string(), so, "")], false),
    };
    let got = format!("{version}, {}", program.display());
    // Set-id, it makes its namespaces as root and then refuses --disable-userns.
    if facts(&program).is_ok_and(|f| f.mode & 0o4000 != 0) {
        return (
            vec![Line::bad(
                "bwrap",
                State::Missing,
                format!("{got}, set-id"),
                so,
                "chmod u-s it, where user namespaces are on",
            )],
            false,
        );
    }
    // A box of root's is started by an ordinary uid too.
    match namespaces_off() {
        None => (vec![Line::ok("bwrap", got)], true),
        Some((why, remedy)) => {
            (vec![Line::bad("bwrap", State::Missing, format!("{got}; {why}"), so, remedy)], false)
        }
    }
}

/// Why an ordinary user makes no user namespaces here, and what to do.
pub fn namespaces_off() -> Option<(String, &'static str)> {
    let number = |path: &str| read(path).parse::<u64>().ok();
    if !proc::has_user_namespaces() {
        return Some(("not in this kernel".into(), "a kernel with CONFIG_USER_NS"));
    }
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return Some(("user.max_user_namespaces is 0".into(), "sysctl user.max_user_namespaces=15000"));
    }
    if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some((
            "kernel.unprivileged_userns_clone is 0".into(),
            "sysctl kernel.unprivileged_userns_clone=1",
        ));
    }
    if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Some((
            "AppArmor restricts them".into(),
            "an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ));
    }
    None
}

/// Named where it is there, so that nobody wonders.
pub fn podman(env: &Env) -> Option<Line> {
    let program = exec::find("podman", &env.path)?;
    Some(Line::bad(
        "podman",
        State::Weaker,
        program.display().to_string(),
        "not built yet: no run uses it",
        "",
    ))
}
