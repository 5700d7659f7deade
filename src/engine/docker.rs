//! Docker: a `Plan` as the arguments of its command line, and what its answers mean. Pure; `run/daemon` makes the calls. Every
//! call names an endpoint of this host and a configuration directory that does not exist: the caller's own could put proxies
//! with passwords into the box, or choose another daemon.

use crate::engine::plan::{self, Hole, Mask, Mode, Mount, Plan};
use crate::limits;
use std::ffi::OsString;
use std::path::Path;

/// `--config`: below a directory that only root can write; nothing is ever there.
pub const NO_CONFIG: &str = "/run/sanduk/no-configuration";
/// Where the daemon listens if nobody says otherwise.
pub const DEFAULT_ENDPOINT: &str = "unix:///var/run/docker.sock";
/// The label that makes a container ours; its value is the run's id.
pub const LABEL: &str = "sanduk.run";
/// The agent's name, for `ps`.
pub const AGENT_LABEL: &str = "sanduk.agent";
/// The network of `key-safe` boxes.
pub const KEY_SAFE_NETWORK: &str = "sanduk-open";

/// The driver's option that lets containers of one network reach each other.
pub const BETWEEN: &str = "com.docker.network.bridge.enable_icc";
/// The label that makes a network ours.
pub const NETWORK_LABEL: &str = "sanduk.network";

/// What a container has beyond its `Plan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The run's id.
    pub run: String,
    /// Its name for the engine: says neither run nor user.
    pub name: String,
    /// The agent's name.
    pub agent: String,
    /// The image, as given or by digest.
    pub image: String,
    /// Sealed: no network and a read-only root.
    pub mode: Mode,
    /// `--network` (open mode); none: the engine's default.
    pub network: Option<String>,
    /// Processors, in thousandths.
    pub cpus: u64,
    /// Bytes.
    pub memory: u64,
}

/// The arguments of `docker run -d …` after those of `call`. Nothing of it is secret or the run's own but paths, ids and limits.
/// `Err`: why this plan cannot be said to docker, as a clause.
pub fn argv(plan: &Plan, container: &Container) -> Result<Vec<OsString>, String> {
    let mut out: Vec<OsString> = Vec::with_capacity(96);
    let mut add = |words: &[&str]| out.extend(words.iter().map(OsString::from));
    add(&["run", "-d", "--name", &container.name, "--hostname", "box"]);
    add(&["--label", &format!("{LABEL}={}", container.run)]);
    add(&["--label", &format!("{AGENT_LABEL}={}", container.agent)]);
    network(&mut add, container, plan.hole);
    // No --init: it would be PID 1, and the agent could stop our role, which then is a process like any other.
    add(&["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "private"]);
    bounds(&mut add, container);
    let (uid, gid) = plan.user;
    add(&["--user", &format!("{uid}:{gid}"), "--workdir", plan::WORK]);
    add(&["--pull", "never", "--no-healthcheck", "--restart", "no", "--log-driver", "none"]);
    if container.mode == Mode::Sealed {
        add(&["--read-only"]);
    }
    let (tmp, home) = (limits::BOX_TMP_BYTES, limits::BOX_HOME_BYTES);
    add(&["--tmpfs", &format!("/tmp:rw,exec,nosuid,nodev,size={tmp},mode=1777")]);
    add(&[
        "--tmpfs",
        &format!("{}:rw,exec,nosuid,nodev,size={home},mode=0700,uid={uid},gid={gid}", plan::HOME),
    ]);
    for mount in mounts(plan, container.mode)? {
        add(&["--mount", &mount]);
    }
    add(&["--entrypoint", plan::BINARY, &container.image, "inside", plan::BOX_END]);
    Ok(out)
}

fn network(add: &mut impl FnMut(&[&str]), container: &Container, hole: Option<Hole>) {
    match (container.mode, &container.network) {
        (Mode::Sealed, _) if hole == Some(Hole::Bridge) => add(&["--network", "bridge"]),
        (Mode::Sealed, _) if hole == Some(Hole::Host) => add(&["--network", "host"]),
        (Mode::Sealed, _) => add(&["--network", "none"]),
        (Mode::KeySafe, _) => add(&["--network", KEY_SAFE_NETWORK]),
        (Mode::Open, Some(name)) => add(&["--network", name]),
        (Mode::Open, None) => {}
    }
}

/// Processes are bounded by the container's own group. Not by RLIMIT_NPROC: without a user namespace the kernel counts every
/// process of that uid on the host, and a busy user's agent could start nothing.
fn bounds(add: &mut impl FnMut(&[&str]), container: &Container) {
    let memory = container.memory.to_string();
    add(&["--pids-limit", &limits::BOX_PROCESSES.to_string()]);
    add(&["--memory", &memory, "--memory-swap", &memory]);
    add(&["--cpus", &format!("{}.{:03}", container.cpus / 1000, container.cpus % 1000)]);
    add(&["--shm-size", &limits::BOX_SMALL_BYTES.to_string()]);
    // 1, not 0: see `sys::proc::harden`.
    for (name, most) in [("core", 1), ("nofile", limits::BOX_FILES), ("fsize", limits::BOX_FILE_BYTES)] {
        add(&["--ulimit", &format!("{name}={most}:{most}")]);
    }
}

/// The values of `--mount`, in an order that does not matter: the daemon sorts by depth.
fn mounts(plan: &Plan, mode: Mode) -> Result<Vec<String>, String> {
    let channel = |rest: &str| plan.channel.join(rest);
    let mut all = vec![
        bind(&channel("sanduk"), plan::BINARY, true)?,
        bind(&channel("host"), plan::HOST_END, true)?,
        bind(&channel("box"), plan::BOX_END, false)?,
        bind(&channel("etc/passwd"), "/etc/passwd", true)?,
        bind(&channel("etc/group"), "/etc/group", true)?,
    ];
    if mode == Mode::Sealed {
        // The daemon would copy the host's, with its names; empty, a look-up fails at once.
        all.push(bind(&channel("etc/empty"), "/etc/resolv.conf", true)?);
    }
    all.push(bind(&plan.workdir, plan::WORK, false)?);
    for Mount { host, dest, readonly } in &plan.mounts {
        all.push(bind(host, dest, *readonly)?);
    }
    for Mask { path, directory } in &plan.masks {
        let dest = format!("{}/{path}", plan::WORK);
        all.push(match directory {
            false => bind(&channel("etc/empty"), &dest, true)?,
            true => {
                let dst = field("dst", &dest)?;
                format!("type=tmpfs,{dst},tmpfs-size={},tmpfs-mode=0555", limits::BOX_SMALL_BYTES)
            }
        });
    }
    Ok(all)
}

fn bind(host: &Path, dest: &str, readonly: bool) -> Result<String, String> {
    let host = host.to_str().ok_or_else(|| format!("{} is not UTF-8", host.display()))?;
    let tail = if readonly { ",readonly" } else { "" };
    Ok(format!("type=bind,{},{}{tail}", field("src", host)?, field("dst", dest)?))
}

/// One field of a `--mount`, which is a line of CSV (RFC 4180 as Go reads it): quoted where it holds what would end it.
fn field(name: &str, value: &str) -> Result<String, String> {
    if value.contains(['\n', '\r']) {
        return Err(format!("{value:?} holds a line break, which docker's --mount does not keep"));
    }
    let whole = format!("{name}={value}");
    match whole.contains([',', '"']) {
        true => Ok(format!("\"{}\"", whole.replace('"', "\"\""))),
        false => Ok(whole),
    }
}

/// What stands before the arguments of every call.
pub fn call(endpoint: &str) -> [String; 4] {
    ["--config".into(), NO_CONFIG.into(), "-H".into(), endpoint.into()]
}

/// The id in the first line of an answer: 64 hex digits, as `run -d` prints it, also where the container could not be started.
pub fn id(answer: &str) -> Option<String> {
    let line = answer.lines().next()?.trim();
    (line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit())).then(|| line.to_string())
}

/// An endpoint that this program can use: a socket of a daemon on this very kernel. `Err`: why it is none, and what to do.
pub fn local(endpoint: &str) -> Result<&str, (String, &'static str)> {
    let Some(path) = endpoint.strip_prefix("unix://").filter(|p| p.starts_with('/')) else {
        return Err((
            "it is not on this host: the box would see another machine's files".into(),
            "unset DOCKER_HOST, or `docker context use default`",
        ));
    };
    let virtual_machine = ["/.docker/", "/.colima/", "/.lima/", "/.orbstack/", "/.rd/", "docker-desktop"];
    if virtual_machine.iter().any(|part| path.contains(part)) {
        return Err((
            "that daemon runs in a virtual machine: no socket of this host can enter its boxes".into(),
            "use a daemon on this kernel (apt install docker.io), or --runtime bwrap",
        ));
    }
    if path.starts_with("/run/user/") || path.starts_with("/var/run/user/") {
        return Err((
            "it is a rootless daemon, which maps uids: not built yet".into(),
            "use the system's daemon, or --runtime bwrap, which needs no root either",
        ));
    }
    Ok(path)
}

/// What a failing call said, as one clause: without the program's name, the daemon's preamble and the hint about help.
pub fn words(errors: &str) -> String {
    let lines = errors.lines().map(str::trim).filter(|l| {
        !l.is_empty() && !l.starts_with("WARNING:") && !l.contains("--help'") && !l.starts_with("See '")
    });
    let text = lines.collect::<Vec<_>>().join("; ");
    let text = text.trim_start_matches("docker: ").trim_start_matches("Error response from daemon: ");
    text.trim_start_matches("Error: ").trim_end_matches('.').to_string()
}

/// The daemon was reached and has no such container (`rm`, `stop`, `inspect`): the exit code alone says nothing.
pub fn no_such(errors: &str) -> bool {
    errors.contains("No such container") || errors.contains("No such object")
}

/// What to do about words of an engine that could not start a box or did not answer.
pub fn remedy(words: &str) -> &'static str {
    let says = |part: &str| words.contains(part);
    if says("permission denied while trying to connect") {
        NO_PERMISSION
    } else if says("Cannot connect to the Docker daemon") || says("Is the docker daemon running") {
        DEAD
    } else if says("No such image") || says("no such image") {
        "build it (`sanduk build`), pull it, or name another with --image"
    } else if says("bind source path does not exist") {
        "the daemon does not see this host's files: is it in a virtual machine, or a snap package?"
    } else if says("cgroup") && says("memory") {
        "give another --memory"
    } else if says("unknown flag") || says("unknown shorthand") {
        "docker 20.10 or newer is needed"
    } else {
        ""
    }
}

/// The remedy where the socket is not the caller's to use.
pub const NO_PERMISSION: &str =
    "join the group docker (`sudo usermod -aG docker $USER`, then log in again), or use --runtime bwrap";
/// The remedy where nobody listens.
pub const DEAD: &str =
    "start it (`sudo systemctl start docker`, or `sudo service docker start`), or use --runtime bwrap";

/// `4g`, `512m`, `1048576`: as bytes. Docker takes no less than 6 MiB.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['b', 'B']);
    let (digits, unit) = match text.char_indices().last()? {
        (at, letter) if letter.is_ascii_alphabetic() => (&text[..at], letter.to_ascii_lowercase()),
        _ => (text, 'b'),
    };
    let factor = match unit {
        'b' => 1,
        'k' => 1 << 10,
        'm' => 1 << 20,
        'g' => 1 << 30,
        't' => 1 << 40,
        _ => return None,
    };
    let number = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?.parse::<u64>().ok()?;
    number.checked_mul(factor).filter(|n| *n >= 6 << 20 && *n <= 1 << 60)
}

/// `2`, `0.5`: in thousandths, at least ten.
pub fn cpus(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.len() <= 4 && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    let all = whole.parse::<u64>().ok()? * 1000 + part;
    (all >= 10).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_34_every_character_of_a_path_survives() {
        let said = |p: &str| bind(Path::new(p), "/x", true).unwrap();
        assert_eq!(said("/a b"), "type=bind,src=/a b,dst=/x,readonly");
        assert_eq!(said("/a,b"), "type=bind,\"src=/a,b\",dst=/x,readonly");
        assert_eq!(said("/a\"b"), "type=bind,\"src=/a\"\"b\",dst=/x,readonly");
        assert_eq!(said("/a=b:c"), "type=bind,src=/a=b:c,dst=/x,readonly");
        assert_eq!(said("/a,readonly=false"), "type=bind,\"src=/a,readonly=false\",dst=/x,readonly");
        assert!(bind(Path::new("/a\nb"), "/x", true).is_err());
    }

    #[test]
    fn only_a_daemon_of_this_kernel() {
        assert_eq!(local("unix:///var/run/docker.sock").unwrap(), "/var/run/docker.sock");
        for (other, part) in [
            ("tcp://10.0.0.1:2375", "not on this host"),
            ("ssh://me@host", "not on this host"),
            ("unix://relative", "not on this host"),
            ("", "not on this host"),
            ("unix:///home/me/.docker/desktop/docker.sock", "virtual machine"),
            ("unix:///home/me/.colima/default/docker.sock", "virtual machine"),
            ("unix:///run/user/1000/docker.sock", "rootless"),
        ] {
            let (why, remedy) = local(other).unwrap_err();
            assert!(why.contains(part) && !remedy.is_empty(), "{other}: {why}");
        }
    }

    #[test]
    fn sizes_and_processors() {
        assert_eq!(
            [size("4g"), size("512M"), size("8388608"), size("8mb")],
            [Some(4 << 30), Some(512 << 20), Some(8 << 20), Some(8 << 20)]
        );
        for bad in ["", "g", "1k", "-1g", "4x", "1.5g", "99999999999999999999g", "4 g"] {
            assert_eq!(size(bad), None, "{bad}");
        }
        assert_eq!([cpus("2"), cpus("0.5"), cpus("1.25")], [Some(2000), Some(500), Some(1250)]);
        for bad in ["", "0", ".5", "1.", "-1", "1e3", "0.001", "99999"] {
            assert_eq!(cpus(bad), None, "{bad}");
        }
    }

    #[test]
    fn answers() {
        let hex = "f".repeat(64);
        assert_eq!(id(&format!("{hex}\n")), Some(hex));
        assert_eq!(id("fff\n"), None);
        let errors = "docker: Error response from daemon: No such image: nope:2\n\nRun 'docker run --help' for more information\n";
        assert_eq!(words(errors), "No such image: nope:2");
        assert!(remedy(&words(errors)).contains("sanduk build"));
        assert!(no_such("Error response from daemon: No such container: x"));
    }
}
