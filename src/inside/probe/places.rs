//! Ways out by files: sockets of the host, a writable system, devices, set-id bits.

use crate::inside::probe::network::refusal;
use crate::limits;
use crate::sys::file::Dir;
use crate::sys::{attempt, net};
use crate::wire::probe::{Found, Way};
use std::path::{Path, PathBuf};

/// `S_IFMT` and three of its values (inode(7)).
const KIND: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const DIRECTORY: u32 = 0o040_000;
const BLOCK: u32 = 0o060_000;
const CHARACTER: u32 = 0o020_000;
/// The two sockets that belong to a box.
const OURS: [&str; 2] = ["/run/sanduk/host/relay.sock", "/run/sanduk/box/control.sock"];
/// Where engines listen.
const ENGINES: [&str; 8] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/user/0/podman/podman.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
];
/// Devices that any box has.
const HARMLESS: [&str; 12] =
    ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "fd", "stdin", "core"];

/// All of it.
pub fn probe(all: &mut Vec<Found>) {
    all.extend(sockets());
    all.push(engines());
    all.push(system());
    all.push(devices());
    #[expect(clippy::disallowed_methods, reason = "FILE-75 attest: a device in the box's /tmp")]
    let made = attempt::make_device(Path::new("/tmp/attest-null"));
    all.push(refusal("make-device", made));
    all.push(set_id());
}

/// Walks a tree without following links, on any file system. `each` gets path and mode and says whether to go below.
pub fn walk(root: &str, skip: &[&str], each: &mut dyn FnMut(&Path, u32) -> bool) -> bool {
    let mut left = vec![PathBuf::from(root)];
    let mut seen = 0usize;
    while let Some(at) = left.pop() {
        #[expect(clippy::disallowed_methods, reason = "FILE-76 attest: every directory of the box")]
        let Ok(dir) = Dir::open(&at) else { continue };
        for name in dir.names().unwrap_or_default() {
            seen = seen.saturating_add(1);
            if seen > limits::PROBE_ENTRIES {
                return false;
            }
            let path = at.join(&name);
            let Ok(facts) = dir.facts(&name) else { continue };
            let below = each(&path, facts.mode) && facts.mode & KIND == DIRECTORY;
            if below && !skip.iter().any(|s| path == Path::new(s)) {
                left.push(path);
            }
        }
    }
    true
}

/// Any socket file but the box's own two is somebody else's.
fn sockets() -> Vec<Found> {
    let id = "host-sockets";
    let mut found: Vec<PathBuf> = Vec::new();
    let whole = walk("/", &["/proc", "/sys"], &mut |path, mode| {
        if mode & KIND == SOCKET && !OURS.iter().any(|o| path == Path::new(o)) {
            found.push(path.to_path_buf());
        }
        true
    });
    let mut all: Vec<Found> = Vec::new();
    for path in found.iter().take(16) {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
            continue;
        };
        #[expect(clippy::disallowed_methods, reason = "NET-71 attest: a socket of the host in the box")]
        let got = match net::connect_unix(dir, name, limits::PROBE_WAIT) {
            Ok(_) => "it is there, and somebody answers".to_string(),
            Err(e) => format!("it is there; connecting: {e}"),
        };
        all.push(Found::new(format!("{id} {}", path.display()), Way::Open, got));
    }
    match (all.is_empty(), whole) {
        (true, true) => {
            all.push(Found::new(id, Way::Shut, "no socket but the relay's and the control server's"))
        }
        (true, false) => {
            all.push(Found::new(id, Way::Untested, "the box has too many files to look through"))
        }
        (false, _) => {}
    }
    all
}

fn engines() -> Found {
    let id = "engine-sockets";
    for path in ENGINES {
        let (Some(dir), Some(name)) =
            (Path::new(path).parent(), Path::new(path).file_name().and_then(|n| n.to_str()))
        else {
            continue;
        };
        #[expect(clippy::disallowed_methods, reason = "NET-72 attest: engines' sockets by name")]
        if let Ok(_conn) = net::connect_unix(dir, name, limits::PROBE_WAIT) {
            return Found::new(id, Way::Open, format!("{path} answers"));
        }
    }
    Found::new(id, Way::Shut, "docker, containerd, podman, crio, dbus and systemd: none")
}

/// Only the work directory, `/tmp` and the agent's home can be written.
fn system() -> Found {
    let id = "writable-system";
    for dir in [
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/var",
        "/opt",
        "/root",
        "/run",
        "/run/sanduk",
        "/run/sanduk/host",
        "/dev",
    ] {
        #[expect(clippy::disallowed_methods, reason = "FILE-77 attest: files in the box's system")]
        let made = attempt::make_file(&Path::new(dir).join(".attest"), 0o600);
        if made.is_ok() {
            return Found::new(id, Way::Open, format!("a file can be made in {dir}"));
        }
    }
    #[expect(clippy::disallowed_methods, reason = "FILE-78 attest: our own program in the box")]
    let program = attempt::open_to_write(Path::new("/sanduk"));
    match program {
        Ok(()) => Found::new(id, Way::Open, "/sanduk can be written"),
        Err(_) => Found::new(id, Way::Shut, "no file can be made outside /work, /tmp and home"),
    }
}

fn devices() -> Found {
    let mut found: Vec<String> = Vec::new();
    walk("/dev", &["/dev/pts", "/dev/shm", "/dev/mqueue"], &mut |path, mode| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if [BLOCK, CHARACTER].contains(&(mode & KIND)) && !HARMLESS.contains(&name) {
            found.push(path.display().to_string());
        }
        true
    });
    match found.is_empty() {
        true => Found::new("devices", Way::Shut, "null, zero, full, random, terminals"),
        false => Found::new("devices", Way::Open, found.join(" ")),
    }
}

fn set_id() -> Found {
    let id = "set-id";
    for path in ["/work/.attest-set-id", "/tmp/.attest-set-id"] {
        #[expect(clippy::disallowed_methods, reason = "FILE-79 attest: a set-id file")]
        match attempt::make_file(Path::new(path), 0o4755) {
            Ok(mode) if mode & 0o6000 != 0 => return Found::new(id, Way::Open, format!("{path} was made")),
            Ok(_) | Err(_) => {}
        }
    }
    Found::new(id, Way::Shut, "no set-id file can be made")
}
