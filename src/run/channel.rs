//! The directory through which host and box meet, one per run, under a name that says neither run nor user (mountinfo in the box
//! shows it). `host/` holds relay.sock, `box/` control.sock; beside them a copy of this program and the box's passwd and group.
//! Made by `life`, removed by `keeper`, `life` or `sweep`.

use crate::engine::plan;
use crate::sys::file::Dir;
use crate::sys::{exec, proc};
use std::io;
use std::path::{Path, PathBuf};

/// Where channels are made, in no box: on every Linux, writable by everybody, sticky.
pub const BASE: &str = "/tmp";
const PREFIX: &str = "sbx-";
/// Random bytes of a name.
const RANDOM: usize = 8;

/// A name for a new channel.
pub fn name() -> io::Result<String> {
    Ok(format!("{PREFIX}{}", proc::random_hex(RANDOM)?))
}

/// The path of a channel.
pub fn path(name: &str) -> PathBuf {
    Path::new(BASE).join(name)
}

/// Makes a channel. As root all of it goes to `user`, who must be able to reach it; nobody else can (0700).
pub fn create(name: &str, user: (u32, u32)) -> io::Result<()> {
    let base = base()?;
    let dir = base.make(name, 0o700)?;
    let etc = dir.make("etc", 0o755)?;
    for (file, text) in
        [("passwd", plan::passwd(user)), ("group", plan::group(user)), ("empty", String::new())]
    {
        etc.write_unsynced(file, text.as_bytes(), 0o644)?;
        give(&etc, file, user)?;
    }
    dir.make("host", 0o755)?;
    dir.make("box", 0o755)?;
    // A copy: neither a home nobody else may enter nor an upgrade while the run lasts can then matter.
    dir.copy_in("sanduk", &exec::own()?, 0o755)?;
    for entry in ["etc", "host", "box", "sanduk"] {
        give(&dir, entry, user)?;
    }
    give(&base, name, user)
}

fn give(dir: &Dir, name: &str, user: (u32, u32)) -> io::Result<()> {
    match proc::ids().0 {
        0 => dir.give(name, user.0, user.1),
        _ => Ok(()),
    }
}

/// Removes a channel of `owner`'s or ours; a missing one is fine. Anything else under that name is left alone and is an error.
pub fn remove(name: &str, owner: u32) -> io::Result<()> {
    if !is_name(name) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is no channel's name"));
    }
    let base = base()?;
    let facts = match base.facts(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let ours = facts.uid == owner || facts.uid == proc::ids().0;
    if !ours || facts.mode & 0o170_000 != 0o040_000 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not the directory that this run made",
        ));
    }
    base.remove_tree(name)
}

fn base() -> io::Result<Dir> {
    #[expect(clippy::disallowed_methods, reason = "FILE-48 /tmp, where channels are made and removed")]
    Dir::open(Path::new(BASE))
}

/// Removes directories of ours in `base` whose maker was killed: `prefix`, then its pid and start time.
pub fn drop_dead(base: &Dir, prefix: &str) {
    for name in base.names().unwrap_or_default() {
        let maker = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
        let maker =
            maker.and_then(|(pid, start)| Some((pid.parse::<u32>().ok()?, start.parse::<u64>().ok()?)));
        let Some((pid, start)) = maker else { continue };
        let ours = base.facts(&name).is_ok_and(|f| f.uid == proc::ids().0 && f.mode & 0o170_000 == 0o040_000);
        if ours && proc::start_time(pid).is_ok_and(|now| now != Some(start)) {
            let _ = base.remove_tree(&name);
        }
    }
}

/// `sbx-` and sixteen hex digits, nothing else: what a record says is never enough to remove another path.
fn is_name(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|hex| {
        hex.len() == 2 * RANDOM && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names() {
        assert!(is_name(&name().unwrap()));
        for bad in [
            "",
            "sbx-",
            "sbx-../../etc",
            "sbx-0123456789abcdeF",
            "sbx-0123456789abcde",
            "../sbx-0123456789abcdef",
        ] {
            assert!(!is_name(bad), "{bad}");
            assert!(remove(bad, 0).is_err(), "{bad}");
        }
    }
}
