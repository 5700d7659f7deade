//! What a box is, whatever the engine: who it runs as, what of the host is in it, what of that is hidden. Built by `run` from a
//! `Spec`; an engine file (`bwrap`, `docker`) turns it into an argv. Starts nothing.

use crate::sys::file::Dir;
use std::io;
use std::path::{Path, PathBuf};

/// Where the work directory is in the box.
pub const WORK: &str = "/work";
/// The agent's home directory in the box.
pub const HOME: &str = "/home/agent";
/// Our own executable in the box.
pub const BINARY: &str = "/sanduk";
/// The directory with `relay.sock` in the box, read-only.
pub const HOST_END: &str = "/run/sanduk/host";
/// The directory with `control.sock` in the box.
pub const BOX_END: &str = "/run/sanduk/box";

/// `S_IFMT` and two of its values (inode(7)).
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// What boxes are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// bubblewrap: the box is a process of ours.
    Bwrap,
    /// Docker: the box is the daemon's, and outlives whoever asked for it.
    Docker,
}

/// How much of the network, and whether the key, is in the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No network, the key in the relay.
    Sealed,
    /// A network of its own, the key in the relay.
    KeySafe,
    /// The engine's network, the key in the box.
    Open,
}

/// A network that a sealed box must not have: made on purpose, with a made-up key, by `sanduk attest --hole`, to see that it is
/// found. No flag of `run` leads here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole {
    /// The engine's default network (docker).
    Bridge,
    /// The host's own network.
    Host,
}

impl Engine {
    /// As typed after `--runtime`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Bwrap => "bwrap",
            Engine::Docker => "docker",
        }
    }
}

impl Mode {
    /// As typed after `--mode`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sealed => "sealed",
            Mode::KeySafe => "key-safe",
            Mode::Open => "open",
        }
    }
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Uid and gid of every process in it.
    pub user: (u32, u32),
    /// The run's channel directory on the host: `host/`, `box/`, `sanduk`, `etc/`.
    pub channel: PathBuf,
    /// The work directory on the host.
    pub workdir: PathBuf,
    /// Further directories.
    pub mounts: Vec<Mount>,
    /// What of the work directory is hidden.
    pub masks: Vec<Mask>,
    /// None, but for `attest --hole`.
    pub hole: Option<Hole>,
}

/// A directory of the host in the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, links resolved.
    pub host: PathBuf,
    /// Absolute in the box.
    pub dest: String,
    /// The box may not write there.
    pub readonly: bool,
}

/// A hidden path of the work directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Relative to the work directory.
    pub path: String,
    /// Hidden by an empty directory, else by an empty file.
    pub directory: bool,
}

/// Looks at a path below `workdir` that shall be hidden. No component may be a link: the mask would land on what the link leads
/// to, and the link itself could then be changed.
pub fn mask(workdir: &Path, path: &str) -> io::Result<Mask> {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    let Some((last, above)) = parts.split_last() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names the work directory itself"));
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-46 the work directory, walked to a masked path")]
    let mut dir = Dir::open(workdir)?;
    for part in above {
        dir = dir.below(part)?;
    }
    match dir.facts(last)?.mode & KIND {
        DIRECTORY => Ok(Mask { path: parts.join("/"), directory: true }),
        REGULAR => Ok(Mask { path: parts.join("/"), directory: false }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a directory")),
    }
}

/// The box's `/etc/passwd`: programs fail without an entry for their own uid (git, ssh, Node's `os.userInfo`).
pub fn passwd(user: (u32, u32)) -> String {
    format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:{}:{}:agent:{HOME}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        user.0, user.1
    )
}

/// The box's `/etc/group`.
pub fn group(user: (u32, u32)) -> String {
    format!("root:x:0:\nagent:x:{}:\nnogroup:x:65534:\n", user.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_user_has_a_passwd_entry() {
        assert!(passwd((1234, 77)).lines().any(|l| l == "agent:x:1234:77:agent:/home/agent:/bin/bash"));
        assert!(group((1234, 77)).lines().any(|l| l == "agent:x:77:"));
    }
}
